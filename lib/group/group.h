/* group.h: the processes that do one run together: this one alone, or the ranks of an MPI launcher.
 *
 *     RETURN_IF(group_join(&watch, &g, err));              // g is NULL: one process alone
 *     st = plan_something(...);
 *     RETURN_IF(group_agree(g, st, err));                  // all ranks: OK, or the same failure
 *     RETURN_IF(group_check_same(g, plan_hash(p), "plan", err));
 *     group_range(g, njobs, &begin, &end);                 // this rank's share
 *     st = work(begin, end, err);
 *     RETURN_IF(group_agree(g, st, err));
 *     RETURN_IF(group_xor(g, sums, count, err));
 *     group_leave(&g, st);
 *
 * Every rank makes the same calls in the same order. A rank that fails does not go away: it comes to
 * the next group_agree with its failure, and meanwhile the others are told (watch->cancel is set), so
 * that they come too. Between two agreements all ranks are known to be well, and only there are the
 * calls that move bytes.
 *
 * No wait is without an end: each rank is heard of every second, and one that is silent for
 * peer_timeout_seconds is lost: watch->cancel is set and every call of the group fails with PEER.
 * Then there is nobody to agree with: callers undo what they did, and group_leave has the launcher
 * end what is left.
 *
 * Every function takes NULL for one process alone and does nothing then. From one thread at a time.
 */
#ifndef FSDPCK_GROUP_GROUP_H
#define FSDPCK_GROUP_GROUP_H

#include <stdbool.h>

#include "base/pool.h"
#include "base/progress.h"
#include "base/status.h"

/* What a group looks at and sets while others wait; borrowed for its life. */
typedef struct group_watch {
    cancel_token *cancel;
    progress *progress; /* rank 0 has the bytes of all in peers_bytes */
    _Atomic unsigned peer_timeout_seconds;
} group_watch;

typedef struct group group;

/* *out is NULL where no launcher started this process, or one rank only. USAGE: torchrun started it,
 * or the ranks run different builds; UNSUPPORTED: a launcher did, but this is a build without MPI. */
fsdpck_status group_join(group_watch *watch, group **out, fsdpck_error *err) FSDPCK_MUST_CHECK;

unsigned group_rank(const group *g);
unsigned group_size(const group *g); /* 1 for NULL */
/* Seconds after which a rank that is silent is lost. */
unsigned group_peer_timeout(const group *g);
/* Name of the host that a rank runs on. */
const char *group_host(const group *g, unsigned rank);

/* What all ranks go on with: OK where all brought OK; else one failure, the same on every rank: of
 * those that are no mere consequence of another's the one of the lowest rank, which err->rank and
 * the message name. */
fsdpck_status group_agree(group *g, fsdpck_status st, fsdpck_error *err) FSDPCK_MUST_CHECK;

/* The same where a failure is a result like another, after which work may go on: nobody is stopped
 * because of it. Not `named`: it is told as one process alone would tell it. */
fsdpck_status group_agree_result(group *g, fsdpck_status st, bool named,
                                 fsdpck_error *err) FSDPCK_MUST_CHECK;

/* BADINPUT where the ranks do not have the same value: they see different files, say. */
fsdpck_status group_check_same(group *g, uint64_t value, const char *what,
                               fsdpck_error *err) FSDPCK_MUST_CHECK;

/* The same without an error: whether all have the same value. */
fsdpck_status group_is_same(group *g, uint64_t value, bool *same,
                            fsdpck_error *err) FSDPCK_MUST_CHECK;

/* From rank `root` to all. */
fsdpck_status group_broadcast(group *g, unsigned root, void *bytes, uint64_t nbytes,
                              fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Word by word over all ranks; every rank has the result. */
fsdpck_status group_xor(group *g, uint64_t *words, uint64_t count,
                        fsdpck_error *err) FSDPCK_MUST_CHECK;
fsdpck_status group_or(group *g, uint64_t *words, uint64_t count,
                       fsdpck_error *err) FSDPCK_MUST_CHECK;
fsdpck_status group_sum(group *g, uint64_t *words, uint64_t count,
                        fsdpck_error *err) FSDPCK_MUST_CHECK;

/* What each rank has, of whatever length, to all: `take` is called for one rank after the other. Every
 * rank comes with OK or its failure, and all go on with the same. */
typedef fsdpck_status (*group_receive_fn)(void *ctx, unsigned rank, const uint8_t *bytes,
                                          uint64_t nbytes, fsdpck_error *err);
fsdpck_status group_all_gather(group *g, fsdpck_status st, const void *bytes, uint64_t nbytes,
                               group_receive_fn take, void *ctx,
                               fsdpck_error *err) FSDPCK_MUST_CHECK;

/* This rank's share of `count` jobs: neighbours stay together. */
void group_range(const group *g, uint64_t count, uint64_t *begin, uint64_t *end);
/* The same of any numbers. */
void group_range_of(uint64_t rank, uint64_t size, uint64_t count, uint64_t *begin, uint64_t *end);

/* A stretch of a file that a rank has. */
typedef struct link_range {
    uint32_t view, file;
    uint64_t offset, nbytes;
} link_range;

/* Reads it for others, by threads of the group. */
typedef fsdpck_status (*group_serve_fn)(void *ctx, const link_range *what, void *dst,
                                        fsdpck_error *err);
/* By all ranks in the same order: ranges with the view number that is returned go to fn, until
 * group_stop_serving of this ctx. */
uint32_t group_serve(group *g, group_serve_fn fn, void *ctx);
void group_stop_serving(group *g, const void *ctx);
/* Any thread, at any time. */
fsdpck_status group_read(group *g, unsigned owner, const link_range *what, void *dst,
                         fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Whether a rank does not answer any more; rank 0 in particular. */
bool group_is_broken(const group *g);

/* Once all is agreed and cleaned up, with the status that the process ends with: *g is NULL then.
 * Where a rank is lost the launcher is told to end all processes, and it seldom returns. */
void group_leave(group **g, fsdpck_status st);

/* Which groups this build has, for `fsdpck version`. */
const char *group_built_name(void);
const char *group_built_description(void);

#endif
