/* pool.h: a fixed set of threads that share one list of numbered jobs.
 *
 *     st = pool_run(nthreads, njobs, do_job, ctx, cancel, &err);
 *
 * do_job(ctx, worker, job, err) is called once for each job in 0..njobs-1; each worker takes the
 * next number. `worker` is below nthreads, so the callee can keep buffers per worker. The failure
 * of the lowest job number is returned; after a failure or a cancel no further job begins. With one
 * thread, or if no thread can be created, jobs run in the caller. Small stacks (256 KiB) save
 * address space.
 */
#ifndef FSDPCK_BASE_POOL_H
#define FSDPCK_BASE_POOL_H

#include <stdatomic.h>
#include <stdint.h>

#include "base/status.h"

/* Any thread or signal handler may set it to stop work soon. */
typedef struct cancel_token {
    atomic_int set;
} cancel_token;

typedef fsdpck_status (*pool_job_fn)(void *ctx, unsigned worker, uint64_t job, fsdpck_error *err);

/* stack_nbytes: of the threads that it starts, if larger than usual. */
fsdpck_status pool_run_deep(uint64_t stack_nbytes, unsigned nthreads, uint64_t njobs,
                            pool_job_fn fn, void *ctx, const cancel_token *cancel,
                            fsdpck_error *err) FSDPCK_MUST_CHECK;
fsdpck_status pool_run(unsigned nthreads, uint64_t njobs, pool_job_fn fn, void *ctx,
                       const cancel_token *cancel, fsdpck_error *err) FSDPCK_MUST_CHECK;

/* CANCELLED with a message if the token (may be NULL) is set. */
fsdpck_status cancel_check(const cancel_token *cancel, fsdpck_error *err) FSDPCK_MUST_CHECK;

#endif
