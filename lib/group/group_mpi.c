/* MPI: nonblocking collectives, polled by the link's own thread, and heartbeats.
 *
 * Heartbeats go from every rank to rank 0 and from rank 0 to all: 2 (size - 1) small messages a
 * second. The last one of a rank is a goodbye. It ensures that every message has been received, as
 * MPI_Finalize requires.
 */
#include <mpi.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "group/group_link.h"
#include "group/group_remote_reads.h"

enum { BEAT_TAG = 1 };
enum { BEAT_FAILED = 1, BEAT_BYE = 2 };

#define NS          UINT64_C(1000000000)
#define BEAT_NS     NS
#define IDLE_NS     (NS / 50)
#define POLL_MIN_NS UINT64_C(20000)
#define POLL_MAX_NS UINT64_C(1000000)
/* While files are read for or from others. */
#define POLL_READS_NS UINT64_C(50000)
/* After it was paused this long, a rank waits for new heartbeats of the others. */
#define PAUSE_NS (2 * NS)
/* MPI_Abort gets this long. */
#define ABORT_SECONDS 10

typedef struct beat {
    uint64_t done_bytes;
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
    bool reads_busy; /* some are under way */
};

unsigned group_link_rank(const group_link *l)
{
    return (unsigned)l->rank;
}

unsigned group_link_size(const group_link *l)
{
    return (unsigned)l->size;
}

const char *group_link_name(void)
{
    return "mpi";
}

const char *group_link_description(void)
{
#if defined(OPEN_MPI)
    return "ranks of mpirun or srun, Open MPI";
#elif defined(MPICH)
    return "ranks of mpirun or srun, MPICH";
#else
    return "ranks of mpirun or srun";
#endif
}

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * NS + (uint64_t)t.tv_nsec;
}

/* ---- a broken link ---- */

static void set_broken(group_link *l, int lost)
{
    if (atomic_load(&l->broken))
        return;
    atomic_store(&l->lost, lost);
    atomic_store(&l->broken, true);
    atomic_store(&l->watch->cancel->set, 1);
}

/* Whether an MPI call worked; where not, the link is broken. */
static bool is_ok(group_link *l, int rc)
{
    if (rc == MPI_SUCCESS)
        return true;
    int length = 0;
    char text[MPI_MAX_ERROR_STRING + 1] = "";
    (void)MPI_Error_string(rc, text, &length);
    pthread_mutex_lock(&l->lock);
    strncpy(l->text, text, sizeof l->text - 1);
    pthread_mutex_unlock(&l->lock);
    set_broken(l, -1);
    return false;
}

bool group_link_is_broken(group_link *l, int *lost)
{
    const bool broken = atomic_load(&l->broken);
    *lost = broken ? atomic_load(&l->lost) : -1;
    return broken;
}

void group_link_report_failed(group_link *l)
{
    atomic_store(&l->failed, true);
}

/* ---- heartbeats ---- */

static void receive_next(group_link *l, peer *p)
{
    (void)is_ok(l, MPI_Irecv(&p->receive, sizeof p->receive, MPI_BYTE, p->rank, BEAT_TAG,
                             MPI_COMM_WORLD, &p->receive_request));
}

static void receive_beat(group_link *l, peer *p)
{
    p->last = p->receive;
    p->seen_ns = now_ns();
    if (p->last.flags & BEAT_FAILED) {
        atomic_store(&l->watch->cancel->set, 1);
        if (l->rank == 0)
            atomic_store(&l->failed, true); /* handed on */
    }
    if (p->last.lost >= 0)
        set_broken(l, p->last.lost);
    if (p->last.flags & BEAT_BYE)
        p->left = true;
    else
        receive_next(l, p);
}

static bool can_send(group_link *l, peer *p)
{
    int done = 0;
    if (p->sending && is_ok(l, MPI_Test(&p->send_request, &done, MPI_STATUS_IGNORE)) && done)
        p->sending = false;
    return !p->sending && !atomic_load(&l->broken);
}

static void send_beat(group_link *l, peer *p, uint32_t flags)
{
    progress *w = l->watch->progress;
    if (!can_send(l, p))
        return;
    p->send = (beat){
        .done_bytes = atomic_load(&w->done_bytes),
        .phase = atomic_load(&w->phase_number),
        .flags = flags | (atomic_load(&l->failed) ? (uint32_t)BEAT_FAILED : 0u),
        .lost = -1,
    };
    p->sending = is_ok(l, MPI_Isend(&p->send, sizeof p->send, MPI_BYTE, p->rank, BEAT_TAG,
                                    MPI_COMM_WORLD, &p->send_request));
}

/* Sends the loss of a rank to all reachable ranks, without waiting. */
static void send_loss(group_link *l)
{
    for (unsigned i = 0; i < l->peer_count; i++) {
        peer *p = &l->peers[i];
        MPI_Request request;
        int done = 0;
        if (p->left || p->rank == atomic_load(&l->lost))
            continue;
        p->send = (beat){.flags = BEAT_FAILED, .lost = atomic_load(&l->lost)};
        if (!p->sending && MPI_Isend(&p->send, sizeof p->send, MPI_BYTE, p->rank, BEAT_TAG,
                                     MPI_COMM_WORLD, &request) == MPI_SUCCESS)
            (void)MPI_Test(&request, &done, MPI_STATUS_IGNORE);
    }
}

static void sum_progress(group_link *l)
{
    progress *w = l->watch->progress;
    const uint32_t phase = atomic_load(&w->phase_number);
    uint64_t sum = 0;
    for (unsigned i = 0; l->rank == 0 && i < l->peer_count; i++)
        if (l->peers[i].last.phase == phase)
            sum += l->peers[i].last.done_bytes;
    atomic_store(&w->peers_bytes, sum);
}

static void check_silence(group_link *l, uint64_t now)
{
    const uint64_t timeout = atomic_load(&l->watch->peer_timeout_seconds) * NS;
    const bool paused = now - l->round_ns > PAUSE_NS; /* this process was stopped */
    l->round_ns = now;
    for (unsigned i = 0; i < l->peer_count; i++) {
        peer *p = &l->peers[i];
        if (paused)
            p->seen_ns = now;
        /* A rank that sent its goodbye counts as lost only if a call still waits for it. */
        const bool missed = !p->left || (l->call != NULL && l->call->kind != LINK_LEAVE);
        if (missed && p->seen_ns + timeout < now) {
            set_broken(l, p->rank);
            send_loss(l);
            return;
        }
    }
}

static void do_beats(group_link *l)
{
    const uint64_t now = now_ns();
    for (unsigned i = 0; i < l->peer_count; i++) {
        peer *p = &l->peers[i];
        int done = 1;
        while (!p->left && done && !atomic_load(&l->broken)) {
            done = 0;
            if (is_ok(l, MPI_Test(&p->receive_request, &done, MPI_STATUS_IGNORE)) && done)
                receive_beat(l, p);
        }
    }
    if (!l->leaving && (now - l->beat_ns >= BEAT_NS)) {
        l->beat_ns = now;
        for (unsigned i = 0; i < l->peer_count; i++)
            send_beat(l, &l->peers[i], 0);
        sum_progress(l);
    }
    if (!atomic_load(&l->broken))
        check_silence(l, now);
}

static void do_reads(group_link *l)
{
    l->reads_busy = false;
    if (is_ok(l, remote_reads_step(l->reads, &l->reads_busy)))
        return;
    remote_reads_fail(l->reads);
}

/* ---- calls ---- */

static bool begin_call(group_link *l, const link_call *c, MPI_Request *request)
{
    const int n = (int)c->nbytes, words = (int)(c->nbytes / sizeof(uint64_t));
    int rc = MPI_SUCCESS;
    switch (c->kind) {
    case LINK_GATHER:
        rc = MPI_Iallgather(c->bytes, n, MPI_BYTE, c->all, n, MPI_BYTE, MPI_COMM_WORLD, request);
        break;
    case LINK_BROADCAST:
        rc = MPI_Ibcast(c->bytes, n, MPI_BYTE, (int)c->root, MPI_COMM_WORLD, request);
        break;
    case LINK_XOR:
    case LINK_OR:
    case LINK_SUM:
        rc = MPI_Iallreduce(MPI_IN_PLACE, c->bytes, words, MPI_UINT64_T,
                            c->kind == LINK_XOR  ? MPI_BXOR
                            : c->kind == LINK_OR ? MPI_BOR
                                                 : MPI_SUM,
                            MPI_COMM_WORLD, request);
        break;
    case LINK_LEAVE:
        l->leaving = true;
        break;
    }
    return is_ok(l, rc);
}

/* Goodbye to all, and from all. */
static bool has_left(group_link *l)
{
    bool all = true;
    for (unsigned i = 0; i < l->peer_count; i++) {
        peer *p = &l->peers[i];
        if ((p->send.flags & BEAT_BYE) == 0)
            send_beat(l, p, BEAT_BYE);
        all = can_send(l, p) && (p->send.flags & BEAT_BYE) != 0 && p->left && all;
    }
    return all;
}

static bool call_is_done(group_link *l, MPI_Request *request)
{
    int done = 0;
    if (l->call->kind == LINK_LEAVE)
        return has_left(l);
    return is_ok(l, MPI_Test(request, &done, MPI_STATUS_IGNORE)) && done;
}

static void report_done(group_link *l, fsdpck_status st)
{
    pthread_mutex_lock(&l->lock);
    l->status = st;
    l->call = NULL;
    l->done = true;
    pthread_cond_broadcast(&l->changed);
    pthread_mutex_unlock(&l->lock);
}

/* Polls until the call is done or the link broken. */
static void carry_out(group_link *l)
{
    MPI_Request request = MPI_REQUEST_NULL;
    uint64_t pause = POLL_MIN_NS;
    bool done = false;
    if (begin_call(l, l->call, &request)) {
        while (!(done = call_is_done(l, &request)) && !atomic_load(&l->broken)) {
            const struct timespec t = {.tv_nsec = (long)pause};
            do_beats(l);
            do_reads(l);
            nanosleep(&t, NULL);
            const uint64_t most = l->reads_busy ? POLL_READS_NS : POLL_MAX_NS;
            pause = pause * 2 < most ? pause * 2 : most;
        }
    }
    if (done && l->leaving) {
        remote_reads_stop(l->reads);
        (void)MPI_Finalize();
        l->left = true;
    }
    report_done(l, done ? FSDPCK_OK : FSDPCK_PEER);
}

/* Waits for a call, but not longer than beats may wait. */
static bool wait_for_call(group_link *l)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    const uint64_t ns = (uint64_t)until.tv_nsec + (l->reads_busy ? POLL_READS_NS : IDLE_NS);
    until.tv_sec += (time_t)(ns / NS);
    until.tv_nsec = (long)(ns % NS);
    pthread_mutex_lock(&l->lock);
    if (l->call == NULL || l->done)
        (void)pthread_cond_timedwait(&l->changed, &l->lock, &until);
    const bool there = l->call != NULL && !l->done;
    pthread_mutex_unlock(&l->lock);
    return there;
}

static bool begin_mpi(group_link *l)
{
    int provided;
    if (MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &provided) != MPI_SUCCESS)
        return false;
    (void)MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    (void)MPI_Comm_rank(MPI_COMM_WORLD, &l->rank);
    (void)MPI_Comm_size(MPI_COMM_WORLD, &l->size);
    l->peer_count = l->rank == 0 ? (unsigned)l->size - 1 : 1;
    l->peers = calloc(l->peer_count > 0 ? l->peer_count : 1, sizeof *l->peers);
    if (l->peers == NULL)
        MPI_Abort(MPI_COMM_WORLD, FSDPCK_LIMIT);
    l->round_ns = now_ns();
    for (unsigned i = 0; i < l->peer_count; i++) {
        l->peers[i].rank = l->rank == 0 ? (int)i + 1 : 0;
        l->peers[i].seen_ns = l->round_ns;
        receive_next(l, &l->peers[i]);
    }
    return true;
}

/* After a break every call fails at once. */
static void *run_link(void *ctx)
{
    group_link *l = ctx;
    const bool begun = begin_mpi(l);
    report_done(l, begun ? FSDPCK_OK : FSDPCK_PEER);
    while (begun && !l->left) {
        const bool called = wait_for_call(l);
        const int abort_status = atomic_load(&l->abort_status);
        if (abort_status >= 0)
            MPI_Abort(MPI_COMM_WORLD, abort_status);
        if (!atomic_load(&l->broken)) {
            if (called)
                carry_out(l);
            else
                do_beats(l);
            if (!l->left)
                do_reads(l);
        } else {
            remote_reads_fail(l->reads);
            if (called)
                report_done(l, FSDPCK_PEER);
        }
    }
    return NULL;
}

static fsdpck_status wait_done(group_link *l)
{
    pthread_mutex_lock(&l->lock);
    while (!l->done)
        (void)pthread_cond_wait(&l->changed, &l->lock);
    const fsdpck_status st = l->status;
    pthread_mutex_unlock(&l->lock);
    return st;
}

fsdpck_status group_link_do(group_link *l, const link_call *call, fsdpck_error *err)
{
    pthread_mutex_lock(&l->lock);
    l->call = call;
    l->done = false;
    pthread_cond_broadcast(&l->changed);
    pthread_mutex_unlock(&l->lock);
    if (wait_done(l) == FSDPCK_OK)
        return FSDPCK_OK;
    pthread_mutex_lock(&l->lock);
    FAIL(err, PEER, NONE, "connection between the ranks was lost%s%s",
         l->text[0] != '\0' ? ": " : "", l->text);
    pthread_mutex_unlock(&l->lock);
    return FSDPCK_PEER;
}

fsdpck_status group_link_read(group_link *l, unsigned owner, const link_range *what, void *dst,
                              fsdpck_error *err)
{
    return remote_reads_read(l->reads, owner, what, dst, err);
}

void group_link_serve(group_link *l, group_serve_fn fn, void *ctx)
{
    remote_reads_serve(l->reads, fn, ctx);
}

/* ---- life ---- */

/* Signals go to other threads, which handle them. */
static int start_thread(group_link *l)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    const int rc = pthread_create(&l->thread, NULL, run_link, l);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return rc;
}

static void free_link(group_link *l)
{
    remote_reads_free(l->reads);
    pthread_mutex_destroy(&l->lock);
    pthread_cond_destroy(&l->changed);
    free(l->peers);
    free(l);
}

void group_link_free(group_link *l)
{
    if (l == NULL)
        return;
    pthread_join(l->thread, NULL);
    free_link(l);
}

static group_link *new_link(group_watch *watch)
{
    group_link *l = calloc(1, sizeof *l);
    pthread_condattr_t attr;
    if (l == NULL)
        return NULL;
    l->watch = watch;
    atomic_store(&l->lost, -1);
    atomic_store(&l->abort_status, -1);
    pthread_mutex_init(&l->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&l->changed, &attr);
    pthread_condattr_destroy(&attr);
    l->reads = remote_reads_new(&l->lock, &l->changed);
    if (l->reads != NULL)
        return l;
    free_link(l);
    return NULL;
}

fsdpck_status group_link_open(group_watch *watch, group_link **out, fsdpck_error *err)
{
    *out = NULL;
    group_link *l = new_link(watch);
    if (l == NULL)
        return error_set_nomem(err, sizeof *l);
    const int rc = start_thread(l);
    if (rc != 0) {
        free_link(l);
        return error_set_errno(err, rc, "pthread_create", NULL);
    }
    if (wait_done(l) != FSDPCK_OK) {
        group_link_free(l);
        return FAIL(err, PEER, NONE, "MPI could not be initialized");
    }
    *out = l;
    return FSDPCK_OK;
}

void group_link_abort(group_link *l, int status)
{
    const struct timespec most = {.tv_sec = ABORT_SECONDS};
    atomic_store(&l->abort_status, status);
    nanosleep(&most, NULL);
}
