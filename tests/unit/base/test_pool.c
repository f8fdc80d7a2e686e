#include <criterion/criterion.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <time.h>

#include "base/log.h"
#include "base/pool.h"
#include "base/progress.h"

enum { JOBS = 1000 };

static fsdpck_error err;

struct state {
    atomic_int times[JOBS];
    atomic_uint workers_seen; /* bits */
    uint64_t fails_from;      /* jobs from here on fail */
    cancel_token *cancel;
    uint64_t cancel_at;
};

static fsdpck_status job(void *ctx, unsigned worker, uint64_t number, fsdpck_error *e)
{
    struct state *s = ctx;
    atomic_fetch_add(&s->times[number], 1);
    atomic_fetch_or(&s->workers_seen, 1u << worker);
    if (s->cancel != NULL && number == s->cancel_at)
        atomic_store(&s->cancel->set, 1);
    while (s->cancel != NULL && number > s->cancel_at && !atomic_load(&s->cancel->set))
        sched_yield();
    if (number >= s->fails_from)
        return error_set(e, FSDPCK_IO, FSDPCK_FINDING_NONE, "job %d", (int)number);
    return FSDPCK_OK;
}

Test(pool, each_job_once)
{
    for (unsigned threads = 0; threads <= 16; threads += 4) {
        struct state s = {.fails_from = UINT64_MAX};
        cr_assert_eq(pool_run(threads, JOBS, job, &s, NULL, &err), FSDPCK_OK);
        for (int i = 0; i < JOBS; i++)
            cr_assert_eq(s.times[i], 1);
        const unsigned most = threads > 0 ? threads : 1;
        cr_assert_eq(s.workers_seen >> most, 0, "worker numbers are below nthreads");
    }
}

Test(pool, no_jobs)
{
    cr_assert_eq(pool_run(4, 0, job, NULL, NULL, &err), FSDPCK_OK);
}

Test(pool, the_lowest_failure_is_told)
{
    for (int round = 0; round < 50; round++) {
        struct state s = {.fails_from = 300};
        cr_assert_eq(pool_run(4, JOBS, job, &s, NULL, &err), FSDPCK_IO);
        cr_assert_str_eq(err.message, "job 300");
        int begun = 0;
        for (int i = 0; i < JOBS; i++)
            begun += s.times[i];
        cr_assert_leq(begun, 304, "no new job after a failure");
    }
}

static fsdpck_status slow_but_the_first(void *ctx, unsigned worker, uint64_t number,
                                        fsdpck_error *e)
{
    struct state *s = ctx;
    (void)worker;
    atomic_fetch_add(&s->times[number], 1);
    if (number == 0)
        return error_set(e, FSDPCK_IO, FSDPCK_FINDING_NONE, "first");
    nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
    return FSDPCK_OK;
}

Test(pool, others_stop_after_a_failure)
{
    struct state s = {0};
    cr_assert_eq(pool_run(2, JOBS, slow_but_the_first, &s, NULL, &err), FSDPCK_IO);
    cr_assert_eq(s.times[JOBS - 1], 0, "the rest would take two seconds");
}

Test(pool, cancel_stops)
{
    cancel_token cancel = {0};
    struct state s = {.fails_from = UINT64_MAX, .cancel = &cancel, .cancel_at = 100};
    cr_assert_eq(cancel_check(&cancel, &err), FSDPCK_OK);
    cr_assert_eq(pool_run(4, JOBS, job, &s, &cancel, &err), FSDPCK_CANCELLED);
    cr_assert_eq(err.status, FSDPCK_CANCELLED);
    for (int i = 104; i < JOBS; i++)
        cr_assert_eq(s.times[i], 0, "no new job after a cancel");
    cr_assert_eq(cancel_check(&cancel, &err), FSDPCK_CANCELLED);
    cr_assert_eq(cancel_check(NULL, &err), FSDPCK_OK);
    cr_assert_eq(pool_run(4, JOBS, job, &s, &cancel, &err), FSDPCK_CANCELLED);
}

static fsdpck_status masked(void *ctx, unsigned worker, uint64_t number, fsdpck_error *e)
{
    (void)number;
    (void)e;
    sigset_t now;
    pthread_sigmask(SIG_SETMASK, NULL, &now);
    if (worker > 0 && !sigismember(&now, SIGINT))
        atomic_store((atomic_int *)ctx, 1);
    return FSDPCK_OK;
}

Test(pool, signals_stay_with_the_caller)
{
    atomic_int open_to_signals = 0;
    cr_assert_eq(pool_run(4, JOBS, masked, &open_to_signals, NULL, &err), FSDPCK_OK);
    cr_assert_eq(open_to_signals, 0);
    sigset_t now;
    pthread_sigmask(SIG_SETMASK, NULL, &now);
    cr_assert_not(sigismember(&now, SIGINT), "the caller's mask is as before");
}

Test(progress, counts)
{
    progress p = {0};
    progress_phase(&p, "writing", 100);
    progress_add(&p, 40);
    progress_add(&p, 2);
    progress_add(NULL, 1);
    progress_phase(NULL, "x", 1);
    cr_assert_eq(p.done_bytes, 42);
    cr_assert_eq(p.total_bytes, 100);
    cr_assert_str_eq((const char *)p.phase, "writing");
}

static void keep_line(void *ctx, const log_line *line)
{
    sprintf(ctx, "%d %s: %s (%s)", (int)line->level, fsdpck_finding_name(line->finding), line->text,
            line->next);
}

Test(log, one_escaped_line)
{
    char line[4096] = "";
    const logger l = {keep_line, line};
    log_write(&l, LOG_NOTE, "file '%s' has %d", "a\nb", 3);
    cr_assert_str_eq(line, "2 : file 'a\\x0Ab' has 3 ()");
    log_warn(&l, FSDPCK_FINDING_ZIP_CRC, "look again", "file '%s'", "\x1b");
    cr_assert_str_eq(line, "1 ZIP-CRC: file '\\x1B' (look again)");
    log_warn(NULL, FSDPCK_FINDING_ZIP_CRC, "", "x");
    log_write(NULL, LOG_NOTE, "x");
    log_write(&(logger){0}, LOG_NOTE, "x");
}
