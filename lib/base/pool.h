/* pool.h: a fixed crew of threads that share one list of numbered jobs.
 *
 *     st = pool_run(nthreads, njobs, do_job, ctx, cancel, &err);
 *
 * do_job(ctx, worker, job, err) is called once for each job in 0..njobs-1, each worker taking the
 * next number; `worker` is below nthreads and lets the callee keep buffers for each worker. The
 * first failure (lowest job number among those that failed) is returned; after a failure or a
 * cancel no further job is begun. With one thread, or where none can be made, jobs run on the
 * caller. Small stacks (256 KiB) keep the address space small.
 */
#ifndef FSDPCK_BASE_POOL_H
#define FSDPCK_BASE_POOL_H

#include <stdatomic.h>
#include <stdint.h>

#include "base/status.h"

/* Set by anybody (also a signal handler) to stop work soon. */
typedef struct cancel_token {
    atomic_int set;
} cancel_token;

typedef fsdpck_status (*pool_job_fn)(void *ctx, unsigned worker, uint64_t job, fsdpck_error *err);

fsdpck_status pool_run(unsigned nthreads, uint64_t njobs, pool_job_fn fn, void *ctx,
                       const cancel_token *cancel, fsdpck_error *err) FSDPCK_MUST_CHECK;

/* CANCELLED with a message where the token (may be NULL) is set. */
fsdpck_status cancel_check(const cancel_token *cancel, fsdpck_error *err) FSDPCK_MUST_CHECK;

#endif
