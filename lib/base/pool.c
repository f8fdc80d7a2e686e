#include "base/pool.h"

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <unistd.h>

enum { STACK_BYTES = 256 * 1024, THREADS_MOST = 1024 };

struct pool {
    pool_job_fn fn;
    void *ctx;
    const cancel_token *cancel;
    uint64_t njobs;
    _Atomic uint64_t next_job;
    _Atomic uint64_t done_jobs;
    atomic_int stop;
    pthread_mutex_t lock; /* guards the members below */
    fsdpck_status status;
    uint64_t failed_job;
    fsdpck_error *err;
};

struct worker {
    struct pool *pool;
    unsigned index;
    pthread_t thread;
};

static bool is_cancelled(const cancel_token *cancel)
{
    /* const here because only the owner sets the token. */
    return cancel != NULL &&
           atomic_load_explicit((atomic_int *)&cancel->set, memory_order_relaxed) != 0;
}

fsdpck_status cancel_check(const cancel_token *cancel, fsdpck_error *err)
{
    if (!is_cancelled(cancel))
        return FSDPCK_OK;
    return FAIL(err, CANCELLED, NONE, "stopped on request");
}

/* Jobs are begun in order, so every job below a failed one has been begun and will report: the
 * lowest failure does not depend on timing. */
static void record_failure(struct pool *p, uint64_t job, fsdpck_status st, const fsdpck_error *err)
{
    pthread_mutex_lock(&p->lock);
    if (p->status == FSDPCK_OK || job < p->failed_job) {
        p->status = st;
        p->failed_job = job;
        if (p->err != NULL)
            *p->err = *err;
    }
    pthread_mutex_unlock(&p->lock);
    atomic_store(&p->stop, 1);
}

static void work(struct pool *p, unsigned worker)
{
    fsdpck_error err = FSDPCK_ERROR_INIT;
    while (!atomic_load(&p->stop) && !is_cancelled(p->cancel)) {
        const uint64_t job = atomic_fetch_add(&p->next_job, 1);
        if (job >= p->njobs)
            return;
        const fsdpck_status st = p->fn(p->ctx, worker, job, &err);
        if (st != FSDPCK_OK) {
            record_failure(p, job, st, &err);
            return;
        }
        atomic_fetch_add(&p->done_jobs, 1);
    }
}

static void *thread_main(void *arg)
{
    struct worker *w = arg;
    work(w->pool, w->index);
    return NULL;
}

/* Only the program's own threads handle signals. */
static void block_signals(sigset_t *old)
{
    sigset_t all;
    sigfillset(&all);
    sigdelset(&all, SIGSEGV);
    sigdelset(&all, SIGBUS);
    sigdelset(&all, SIGFPE);
    sigdelset(&all, SIGILL);
    sigdelset(&all, SIGABRT);
    pthread_sigmask(SIG_BLOCK, &all, old);
}

/* Starts workers 1.. as far as the system allows; returns their number. */
static unsigned start_workers(struct pool *p, struct worker *workers, unsigned nthreads,
                              uint64_t stack_nbytes)
{
    pthread_attr_t attr;
    if (nthreads < 2 || pthread_attr_init(&attr) != 0)
        return 0;
    long least = sysconf(_SC_THREAD_STACK_MIN);
    size_t stack = least > STACK_BYTES ? (size_t)least : STACK_BYTES;
    stack = stack_nbytes > stack ? (size_t)stack_nbytes : stack;
    (void)pthread_attr_setstacksize(&attr, stack); /* else the default, which is larger */
    sigset_t old;
    block_signals(&old);
    unsigned started = 0;
    for (; started + 1 < nthreads; started++) {
        struct worker *w = &workers[started];
        w->pool = p;
        w->index = started + 1;
        if (pthread_create(&w->thread, &attr, thread_main, w) != 0)
            break;
    }
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    pthread_attr_destroy(&attr);
    return started;
}

fsdpck_status pool_run(unsigned nthreads, uint64_t njobs, pool_job_fn fn, void *ctx,
                       const cancel_token *cancel, fsdpck_error *err)
{
    return pool_run_deep(0, nthreads, njobs, fn, ctx, cancel, err);
}

fsdpck_status pool_run_deep(uint64_t stack_nbytes, unsigned nthreads, uint64_t njobs,
                            pool_job_fn fn, void *ctx, const cancel_token *cancel,
                            fsdpck_error *err)
{
    struct pool p = {.fn = fn, .ctx = ctx, .cancel = cancel, .njobs = njobs, .err = err};
    if (nthreads > THREADS_MOST)
        nthreads = THREADS_MOST;
    if (nthreads > njobs)
        nthreads = (unsigned)njobs;
    if (pthread_mutex_init(&p.lock, NULL) != 0)
        return error_set_nomem(err, sizeof(p.lock));
    struct worker *workers = nthreads > 1 ? calloc(nthreads - 1, sizeof(*workers)) : NULL;
    const unsigned started =
        workers != NULL ? start_workers(&p, workers, nthreads, stack_nbytes) : 0;
    work(&p, 0);
    for (unsigned i = 0; i < started; i++)
        pthread_join(workers[i].thread, NULL);
    free(workers);
    pthread_mutex_destroy(&p.lock);
    if (p.status != FSDPCK_OK)
        return p.status;
    return atomic_load(&p.done_jobs) == njobs ? FSDPCK_OK : cancel_check(cancel, err);
}
