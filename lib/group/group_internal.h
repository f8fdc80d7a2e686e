/* group_internal.h: a group, as the files of this folder see it. */
#ifndef FSDPCK_GROUP_GROUP_INTERNAL_H
#define FSDPCK_GROUP_GROUP_INTERNAL_H

#include <pthread.h>

#include "base/alloc.h"
#include "group/group_link.h"

#define HOST_NBYTES 64

/* Data that each rank sends about itself on joining. */
typedef struct hello {
    char host[HOST_NBYTES];
    char build[HOST_NBYTES];
} hello;

struct group {
    group_link *link;
    group_watch *watch;
    unsigned rank, size;
    hello *hellos;  /* by rank */
    uint8_t *votes; /* by rank: a status and the bytes that go with it; then this rank's */
    uint64_t gathered_nbytes; /* that went with each of them last */
    uint64_t inline_nbytes;   /* most that may */
    pthread_mutex_t lock;     /* views */
    vec views;                /* served: handlers by number */
};

/* What a rank sends with its status: as much as all take in GATHERED_NBYTES, within limits. */
enum { GATHERED_NBYTES = 256 * 1024, INLINE_MAX = 16 * 1024 };

/* Performs a call of the link. Where a rank is lost, the error names it. */
fsdpck_status group_do(group *g, const link_call *call, fsdpck_error *err) FSDPCK_MUST_CHECK;

/* group_gather of up to inline_nbytes. The bytes of a rank are valid until the next call. */
fsdpck_status group_gather_inline(group *g, fsdpck_status st, group_failure how, const void *bytes,
                                  uint64_t nbytes, fsdpck_error *err) FSDPCK_MUST_CHECK;
const uint8_t *group_gathered(const group *g, unsigned rank);

#endif
