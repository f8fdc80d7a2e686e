/* group_mpi_internal.h: a link over MPI, for group_mpi.c and group_peers_mpi.c. */
#ifndef FSDPCK_GROUP_GROUP_MPI_INTERNAL_H
#define FSDPCK_GROUP_GROUP_MPI_INTERNAL_H

#include <mpi.h>
#include <pthread.h>
#include <stdatomic.h>

#include "group/group_link.h"
#include "group/group_remote_reads.h"

#define LINK_NS UINT64_C(1000000000)

typedef struct beat {
    uint64_t done_bytes;
    uint64_t kept_bytes;
    uint64_t moved_bytes; /* from rank 0: of all */
    uint32_t phase;
    uint32_t flags;
    int32_t lost; /* a rank, or -1 */
    int32_t unused;
} beat;

/* The connection to one other rank. */
typedef struct peer {
    int rank;
    bool left;        /* has sent its goodbye */
    bool sending;     /* `send` is under way */
    uint64_t seen_ns; /* time of its last heartbeat */
    MPI_Request send_request, receive_request;
    beat send, receive, last;
} peer;

struct group_link {
    group_watch *watch;
    pthread_t thread;
    pthread_mutex_t lock; /* call, done, status, error */
    pthread_cond_t changed;
    const link_call *call; /* under way */
    bool done;
    fsdpck_status status;
    char text[MPI_MAX_ERROR_STRING + 64]; /* of what MPI said */
    atomic_bool failed;                   /* this rank's */
    atomic_bool broken;
    atomic_int lost;
    atomic_int abort_status; /* -1 until the process is to end all */
    /* Of the thread alone. */
    int rank, size;
    peer *peers; /* of rank 0: all others; else rank 0 */
    unsigned peer_count;
    uint64_t beat_ns;  /* when the last one was sent */
    uint64_t round_ns; /* time of the last check of peers */
    bool leaving, left;
    remote_reads *reads;
    bool reads_busy;   /* some are in progress, or were until shortly */
    uint64_t reads_ns; /* when they were last; 0: never */
};

uint64_t link_now_ns(void);
/* `lost`: a rank, or -1. */
void link_set_broken(group_link *l, int lost);
/* Whether an MPI call worked; where not, the link is broken. */
bool link_is_ok(group_link *l, int rc);

/* Begins to receive the first heartbeat of a rank. */
void link_receive_next(group_link *l, peer *p);
/* Receives heartbeats, sends them when they are due, and finds silent ranks. */
void link_do_beats(group_link *l);
/* Sends the goodbye to all ranks. True when all have sent theirs. */
bool link_has_left(group_link *l);

#endif
