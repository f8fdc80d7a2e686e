/* prop_pool: pool_run under real contention; meant for the thread sanitizer as well.
 *
 * Random numbers of threads, jobs, failures and cancels. Held to: every job at most once; all of
 * them where nothing failed; the lowest failing job is the one told; no two jobs of one worker at
 * the same time (buffers of a worker need no lock); a budget and a string of CRCs that threads
 * share come out as if one thread had done it. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/crc.h"
#include "base/pool.h"
#include "base/progress.h"

enum { JOBS_MAX = 400, WORKERS_MAX = 12, PART_BYTES = 257 };

struct trial {
    unsigned nthreads;
    uint64_t njobs;
    uint64_t fails[2]; /* these jobs fail, those past the end never */
    uint64_t cancels;  /* this job sets the token */
    cancel_token cancel;
    budget shared;
    progress done;
    atomic_int times[JOBS_MAX];
    int busy[WORKERS_MAX]; /* not atomic: only its worker may touch it */
    uint64_t crcs[JOBS_MAX];
    uint8_t bytes[JOBS_MAX * PART_BYTES];
};

static uint64_t next_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

static void check(bool holds, const char *what, uint64_t seed)
{
    if (holds)
        return;
    fprintf(stderr, "prop_pool: %s (seed %llu)\n", what, (unsigned long long)seed);
    exit(1);
}

static fsdpck_status job(void *ctx, unsigned worker, uint64_t number, fsdpck_error *err)
{
    struct trial *t = ctx;
    if (worker >= t->nthreads || t->busy[worker] != 0)
        return error_set(err, FSDPCK_INTERNAL, FSDPCK_FINDING_NONE, "two jobs on one worker");
    t->busy[worker] = 1;
    atomic_fetch_add(&t->times[number], 1);
    fsdpck_status st = budget_reserve(&t->shared, 64, err);
    if (st == FSDPCK_OK) {
        t->crcs[number] = crc64_update(0, t->bytes + number * PART_BYTES, PART_BYTES);
        progress_add(&t->done, PART_BYTES);
        budget_release(&t->shared, 64);
    }
    if (number == t->cancels)
        atomic_store(&t->cancel.set, 1);
    if (number == t->fails[0] || number == t->fails[1])
        st = error_set(err, FSDPCK_IO, FSDPCK_FINDING_NONE, "%d", (int)number);
    t->busy[worker] = 0;
    return st;
}

static void judge(struct trial *t, fsdpck_status st, const fsdpck_error *err, uint64_t seed)
{
    uint64_t begun = 0;
    for (uint64_t i = 0; i < t->njobs; i++) {
        check(t->times[i] <= 1, "a job ran twice", seed);
        check(i == 0 || t->times[i] <= t->times[i - 1], "jobs were not begun in order", seed);
        begun += (uint64_t)t->times[i];
    }
    check(t->shared.used_bytes == 0, "the budget did not come back", seed);
    check(t->done.done_bytes == begun * PART_BYTES, "progress was lost", seed);
    const uint64_t first = t->fails[0] < t->fails[1] ? t->fails[0] : t->fails[1];
    if (st == FSDPCK_OK) {
        check(begun == t->njobs && first >= t->njobs, "called done, but it is not", seed);
        uint64_t crc = 0;
        for (uint64_t i = 0; i < t->njobs; i++)
            crc = crc64_join(crc, t->crcs[i], PART_BYTES);
        check(crc == crc64_update(0, t->bytes, t->njobs * PART_BYTES), "joined CRC", seed);
    } else if (st == FSDPCK_IO) {
        check(strtoull(err->message, NULL, 10) == first, "not the lowest failure", seed);
        check(t->nthreads > 1 || begun == first + 1, "work went on after a failure", seed);
    } else {
        check(st == FSDPCK_CANCELLED && t->cancels < t->njobs, "cancelled by nobody", seed);
        check(t->nthreads > 1 || begun == t->cancels + 1, "work went on after a cancel", seed);
    }
}

static void run_trial(uint64_t seed)
{
    uint64_t state = seed * 0x9E3779B97F4A7C15u + 1;
    struct trial *t = calloc(1, sizeof(*t));
    if (t == NULL)
        exit(1);
    t->nthreads = 1 + (unsigned)(next_random(&state) % WORKERS_MAX);
    t->njobs = next_random(&state) % (JOBS_MAX + 1);
    const uint64_t kind = next_random(&state) % 4;
    t->fails[0] = kind & 1 ? next_random(&state) % JOBS_MAX : UINT64_MAX;
    t->fails[1] = kind & 1 ? next_random(&state) % JOBS_MAX : UINT64_MAX;
    t->cancels = kind & 2 ? next_random(&state) % JOBS_MAX : UINT64_MAX;
    budget_init(&t->shared, 64 * WORKERS_MAX, "test", NULL);
    for (size_t i = 0; i < sizeof(t->bytes); i++)
        t->bytes[i] = (uint8_t)(i * 31 + seed);
    fsdpck_error err;
    fsdpck_error_init(&err);
    const fsdpck_status st = pool_run(t->nthreads, t->njobs, job, t, &t->cancel, &err);
    judge(t, st, &err, seed);
    free(t);
}

int main(void)
{
    for (uint64_t seed = 1; seed <= 400; seed++)
        run_trial(seed);
    puts("prop_pool: 400 trials held");
    return 0;
}
