/* group_remote_reads.h: reads files that only another rank has, by a request and a reply between
 * two links.
 *
 *     remote_reads *r = remote_reads_new(&lock, &wake);   // of the link: `wake` is signalled for its thread
 *     remote_reads_serve(r, fn, ctx);                   // handles requests of others
 *     st = remote_reads_read(r, owner, what, dst, &err);   // any thread; waits
 *     ... the link's thread: remote_reads_step(r, &busy) again and again ...
 *
 * A read is divided into requests of at most REMOTE_READS_NBYTES_MAX, which are in progress
 * together. At most REMOTE_READS_SLOTS requests and REMOTE_READS_JOBS replies are in progress, which
 * bounds the memory. Separate threads read the data of replies, so that a slow disk does not delay
 * heartbeats.
 */
#ifndef FSDPCK_GROUP_GROUP_REMOTE_READS_H
#define FSDPCK_GROUP_GROUP_REMOTE_READS_H

#include <pthread.h>

#include "group/group_link.h"

#define REMOTE_READS_SLOTS      64u
#define REMOTE_READS_JOBS       64u
#define REMOTE_READS_NBYTES_MAX ((uint64_t)1 << 20)

typedef struct remote_reads remote_reads;

remote_reads *remote_reads_new(pthread_mutex_t *lock, pthread_cond_t *wake);
void remote_reads_free(remote_reads *r);
void remote_reads_serve(remote_reads *r, group_serve_fn fn, void *ctx);
fsdpck_status remote_reads_read(remote_reads *r, unsigned owner, const link_range *what, void *dst,
                                fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Called by the link's thread. Returns MPI's result; *busy: whether a request or reply is in
 * progress. */
int remote_reads_step(remote_reads *r, bool *busy);
/* Before MPI_Finalize. */
void remote_reads_stop(remote_reads *r);
/* All waiting callers get PEER. */
void remote_reads_fail(remote_reads *r);

#endif
