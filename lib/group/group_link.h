/* group_link.h: the library that connects the ranks, as group.c uses it: backends group_mpi.c and
 * group_none.c, chosen by CMake.
 *
 * A link has one thread that makes every call of that library (so MPI_THREAD_FUNNELED suffices). It
 * performs one link_call at a time, and sends and receives a heartbeat every second.
 */
#ifndef FSDPCK_GROUP_GROUP_LINK_H
#define FSDPCK_GROUP_GROUP_LINK_H

#include "group/group.h"

typedef enum link_kind {
    LINK_GATHER,    /* the nbytes in `bytes` of rank r to index r of `all` */
    LINK_BROADCAST, /* nbytes in `bytes`, from `root` */
    LINK_XOR,       /* nbytes / 8 words in `bytes` */
    LINK_OR,
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

/* *out is NULL if the launcher started a single rank. */
fsdpck_status group_link_open(group_watch *watch, group_link **out,
                              fsdpck_error *err) FSDPCK_MUST_CHECK;
unsigned group_link_rank(const group_link *l);
unsigned group_link_size(const group_link *l);

/* PEER where the link is broken, before or meanwhile. */
fsdpck_status group_link_do(group_link *l, const link_call *call,
                            fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Reads from a file of another rank, which calls its function of group_link_serve. From any thread,
 * also during a call. */
fsdpck_status group_link_read(group_link *l, unsigned owner, const link_range *what, void *dst,
                              fsdpck_error *err) FSDPCK_MUST_CHECK;
void group_link_serve(group_link *l, group_serve_fn fn, void *ctx);

/* From now on heartbeats report that this rank has failed, which sets watch->cancel on the
 * others. */
void group_link_report_failed(group_link *l);
/* Whether the link is broken; *lost is the silent rank, or -1 if unknown. */
bool group_link_is_broken(group_link *l, int *lost);

/* After LINK_LEAVE. */
void group_link_free(group_link *l);
/* Makes the launcher end all processes, including this one, with this exit status. Returns only on
 * failure. */
void group_link_abort(group_link *l, int status);

/* "mpi" or "self", and which library. */
const char *group_link_name(void);
const char *group_link_description(void);

#endif
