/* group_reads.h: reading files that only another rank has: a question and an answer between two links.
 *
 *     link_reads *r = link_reads_new(&lock, &wake);   // of the link: `wake` is signalled for its thread
 *     link_reads_serve(r, fn, ctx);                   // how questions of others are answered
 *     st = link_reads_read(r, owner, what, dst, &err);   // any thread; waits
 *     ... the link's thread: link_reads_step(r, &busy) again and again ...
 *
 * At most READS_SLOTS questions are under way from here and READS_JOBS answers from here, each of at
 * most READS_NBYTES_MOST: that bounds the memory. Answers are read by threads of its own, so that a
 * slow disk does not silence the heartbeats.
 */
#ifndef FSDPCK_GROUP_GROUP_READS_H
#define FSDPCK_GROUP_GROUP_READS_H

#include <pthread.h>

#include "group/group_link.h"

#define READS_SLOTS       64u
#define READS_JOBS        16u
#define READS_NBYTES_MOST ((uint64_t)4 << 20)

typedef struct link_reads link_reads;

link_reads *link_reads_new(pthread_mutex_t *lock, pthread_cond_t *wake);
void link_reads_free(link_reads *r);
void link_reads_serve(link_reads *r, group_serve_fn fn, void *ctx);
fsdpck_status link_reads_read(link_reads *r, unsigned owner, const link_range *what, void *dst,
                              fsdpck_error *err) FSDPCK_MUST_CHECK;

/* By the link's thread. Returns what MPI said, MPI_SUCCESS mostly; *busy: whether something is under way. */
int link_reads_step(link_reads *r, bool *busy);
/* Before MPI_Finalize. */
void link_reads_stop(link_reads *r);
/* Whoever waits gets PEER. */
void link_reads_fail(link_reads *r);

#endif
