/* group_link.h: what group.c needs of the library that connects the ranks: twins group_mpi.c and
 * group_none.c, chosen by CMake.
 *
 * A link has one thread that makes every call of that library (so it needs no more than
 * MPI_THREAD_FUNNELED): it carries out one link_call at a time and, beside it, sends and receives a
 * heartbeat a second.
 */
#ifndef FSDPCK_GROUP_GROUP_LINK_H
#define FSDPCK_GROUP_GROUP_LINK_H

#include "group/group.h"

typedef enum link_kind {
    LINK_GATHER,    /* every rank's nbytes from `bytes` to rank r's place in `all` */
    LINK_BROADCAST, /* nbytes in `bytes`, from `root` */
    LINK_XOR,       /* nbytes / 8 words in `bytes` */
    LINK_OR,
    LINK_SUM,
    LINK_LEAVE /* waits for all, then ends the library */
} link_kind;

typedef struct link_call {
    link_kind kind;
    unsigned root;
    void *bytes;
    uint8_t *all;    /* size * nbytes */
    uint64_t nbytes; /* at most LINK_NBYTES_MAX */
} link_call;

#define LINK_NBYTES_MAX ((uint64_t)64 << 20)

typedef struct group_link group_link;

/* *out is NULL where the launcher started one rank only. */
fsdpck_status group_link_open(group_watch *watch, group_link **out,
                              fsdpck_error *err) FSDPCK_MUST_CHECK;
unsigned group_link_rank(const group_link *l);
unsigned group_link_size(const group_link *l);

/* PEER where the link is broken, before or meanwhile. */
fsdpck_status group_link_do(group_link *l, const link_call *call,
                            fsdpck_error *err) FSDPCK_MUST_CHECK;

/* From a file of another rank, which calls what it gave to group_link_serve. From any thread, also while a
 * call is under way. */
fsdpck_status group_link_read(group_link *l, unsigned owner, const link_range *what, void *dst,
                              fsdpck_error *err) FSDPCK_MUST_CHECK;
void group_link_serve(group_link *l, group_serve_fn fn, void *ctx);

/* From now on heartbeats say that this rank has failed, whereupon the others' watch->cancel is set. */
void group_link_report_failed(group_link *l);
/* Whether there is nobody to talk to any more; *lost is the rank that is silent, or -1 where it is not
 * known which. */
bool group_link_is_broken(group_link *l, int *lost);

/* After LINK_LEAVE. */
void group_link_free(group_link *l);
/* Makes the launcher end all processes, this one too, with this exit status. Returns only where it could
 * not. */
void group_link_abort(group_link *l, int status);

/* "mpi" or "self", and which library. */
const char *group_link_name(void);
const char *group_link_description(void);

#endif
