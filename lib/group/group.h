/* group.h: the processes that share a run: a single one, or the ranks of an MPI launcher.
 *
 *     RETURN_IF(group_join(&watch, &g, err));              // g is NULL: a single process
 *     st = plan_something(...);
 *     RETURN_IF(group_agree(g, st, err));                  // all ranks: OK, or the same failure
 *     RETURN_IF(group_check_same(g, FSDPCK_OK, GROUP_STOPS, plan_hash(p), "plan", err));
 *     group_range(g, njobs, &begin, &end);                 // this rank's share
 *     st = work(begin, end, err);
 *     RETURN_IF(group_agree(g, st, err));
 *     RETURN_IF(group_xor(g, sums, count, err));
 *     group_leave(&g, st);
 *
 * Every rank makes the same calls in the same order. A rank that fails does not exit: it calls the
 * next group_agree with its failure. Meanwhile watch->cancel is set on the others, so that they
 * call it soon. Calls that move bytes are made only after an agreement, when all ranks are known to
 * be well.
 *
 * Every wait is bounded. Each rank sends a heartbeat every second; one that is silent for
 * peer_timeout_seconds is lost. Then watch->cancel is set and every call of the group fails with
 * PEER. Callers undo their work, and group_leave makes the launcher end the remaining processes.
 *
 * Every function accepts NULL, a single process, and then does nothing. From one thread at a time.
 */
#ifndef FSDPCK_GROUP_GROUP_H
#define FSDPCK_GROUP_GROUP_H

#include <stdbool.h>

#include "base/pool.h"
#include "base/progress.h"
#include "base/status.h"

/* State that a group reads and sets while it waits; borrowed for its lifetime. */
typedef struct group_watch {
    cancel_token *cancel;
    progress *progress; /* on rank 0, peers_bytes has the bytes of all; on all, peers_moved_bytes */
    _Atomic unsigned peer_timeout_seconds;
} group_watch;

typedef struct group group;

/* *out is NULL without a launcher, or with a single rank. USAGE: started by torchrun, or ranks run
 * different builds. UNSUPPORTED: started by a launcher, in a build without MPI. */
fsdpck_status group_join(group_watch *watch, group **out, fsdpck_error *err) FSDPCK_MUST_CHECK;

unsigned group_rank(const group *g);
unsigned group_size(const group *g); /* 1 for NULL */
/* Seconds after which a rank that is silent is lost. */
unsigned group_peer_timeout(const group *g);
/* Name of the host that a rank runs on. */
const char *group_host(const group *g, unsigned rank);

/* What a failure means for the ranks that have none. */
typedef enum group_failure {
    GROUP_STOPS,   /* they are cancelled, and reach the next agreement soon */
    GROUP_GOES_ON, /* an ordinary result after which work may continue: no rank is stopped */
    GROUP_UNNAMED  /* the same, and the message does not name the rank, as in a single process */
} group_failure;

/* Returns OK if all ranks pass OK; else one failure, the same on every rank. It is the failure of
 * the lowest rank that is not just a consequence of a different one; err->rank and the message name
 * the rank. */
fsdpck_status group_agree(group *g, fsdpck_status st, fsdpck_error *err) FSDPCK_MUST_CHECK;

/* The same with GROUP_GOES_ON; not `named`: with GROUP_UNNAMED. */
fsdpck_status group_agree_result(group *g, fsdpck_status st, bool named,
                                 fsdpck_error *err) FSDPCK_MUST_CHECK;

/* An agreement that also gathers nbytes of each rank, in the same step: those of rank r are at
 * `all` + r * nbytes, unless a rank failed. Between hosts each step takes a round trip, so one is
 * better than two. */
#define GROUP_GATHER_MAX 256u /* bytes */
fsdpck_status group_gather(group *g, fsdpck_status st, group_failure how, const void *bytes,
                           uint64_t nbytes, void *all, fsdpck_error *err) FSDPCK_MUST_CHECK;

/* The same for bytes that only `root` has; the others' are replaced. */
fsdpck_status group_agree_broadcast(group *g, fsdpck_status st, group_failure how, unsigned root,
                                    void *bytes, uint64_t nbytes,
                                    fsdpck_error *err) FSDPCK_MUST_CHECK;

/* The same for one number. BADINPUT if the ranks have different ones, for example because they read
 * different files. */
fsdpck_status group_check_same(group *g, fsdpck_status st, group_failure how, uint64_t value,
                               const char *what, fsdpck_error *err) FSDPCK_MUST_CHECK;

/* The same without an error: whether all have the same value. */
fsdpck_status group_is_same(group *g, fsdpck_status st, group_failure how, uint64_t value,
                            bool *same, fsdpck_error *err) FSDPCK_MUST_CHECK;

/* From rank `root` to all. */
fsdpck_status group_broadcast(group *g, unsigned root, void *bytes, uint64_t nbytes,
                              fsdpck_error *err) FSDPCK_MUST_CHECK;
/* XOR of each word over all ranks; every rank gets the result. */
fsdpck_status group_xor(group *g, uint64_t *words, uint64_t count,
                        fsdpck_error *err) FSDPCK_MUST_CHECK;
fsdpck_status group_or(group *g, uint64_t *words, uint64_t count,
                       fsdpck_error *err) FSDPCK_MUST_CHECK;
/* An agreement that also adds each of up to GROUP_SUM_MAX words over all ranks, in the same step. */
#define GROUP_SUM_MAX (GROUP_GATHER_MAX / sizeof(uint64_t))
fsdpck_status group_sum(group *g, fsdpck_status st, group_failure how, uint64_t *words,
                        unsigned count, fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Sends the bytes of each rank, of any length, to all: `take` is called in rank order. Every rank
 * passes OK or its failure, and all get the same status. */
typedef fsdpck_status (*group_receive_fn)(void *ctx, unsigned rank, const uint8_t *bytes,
                                          uint64_t nbytes, fsdpck_error *err);
fsdpck_status group_all_gather(group *g, fsdpck_status st, group_failure how, const void *bytes,
                               uint64_t nbytes, group_receive_fn take, void *ctx,
                               fsdpck_error *err) FSDPCK_MUST_CHECK;
/* The same without an agreement on what `take` returned: the ranks agree on the result next. */
fsdpck_status group_all_gather_part(group *g, fsdpck_status st, group_failure how,
                                    const void *bytes, uint64_t nbytes, group_receive_fn take,
                                    void *ctx, fsdpck_error *err) FSDPCK_MUST_CHECK;

/* This rank's share of `count` jobs: neighbors stay together. */
void group_range(const group *g, uint64_t count, uint64_t *begin, uint64_t *end);
/* The same of any numbers. */
void group_range_of(uint64_t rank, uint64_t size, uint64_t count, uint64_t *begin, uint64_t *end);

/* A range of a file that a rank has. */
typedef struct link_range {
    uint32_t view, file;
    uint64_t offset, nbytes;
} link_range;

/* Reads the range for other ranks, on threads of the group. */
typedef fsdpck_status (*group_serve_fn)(void *ctx, const link_range *what, void *dst,
                                        fsdpck_error *err);
/* Collective, in the same order on all ranks. Requests with the returned number go to fn, until
 * group_stop_serving with this ctx. */
uint32_t group_serve(group *g, group_serve_fn fn, void *ctx);
void group_stop_serving(group *g, const void *ctx);
/* Any thread, at any time. */
fsdpck_status group_read(group *g, unsigned owner, const link_range *what, void *dst,
                         fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Whether a rank has stopped responding; and whether rank 0 has. */
bool group_is_broken(const group *g);

/* Call it after the last agreement and cleanup, with the exit status of the process; sets *g to
 * NULL. If a rank is lost, the launcher is told to end all processes, and the call usually does not
 * return. */
void group_leave(group **g, fsdpck_status st);

/* Which groups this build has, for `fsdpck version`. */
const char *group_built_name(void);
const char *group_built_description(void);

#endif
