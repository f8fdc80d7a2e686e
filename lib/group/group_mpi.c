/* MPI: nonblocking collectives, polled by the link's own thread. */
#include <mpi.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "group/group_mpi_internal.h"

#define IDLE_NS     (LINK_NS / 50)
#define POLL_MIN_NS UINT64_C(20000)
#define POLL_MAX_NS UINT64_C(1000000)
/* While files are read for or from others, and shortly after: the next request follows soon. */
#define POLL_READS_NS  UINT64_C(50000)
#define READS_AFTER_NS (LINK_NS / 100)
/* MPI_Abort gets this long. */
#define ABORT_SECONDS 10

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

/* ---- a broken link ---- */

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

static void do_reads(group_link *l)
{
    bool busy = false;
    if (link_is_ok(l, remote_reads_step(l->reads, &busy))) {
        const uint64_t now = link_now_ns();
        l->reads_ns = busy ? now : l->reads_ns;
        l->reads_busy = l->reads_ns != 0 && now - l->reads_ns < READS_AFTER_NS;
        return;
    }
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
        rc = MPI_Iallreduce(MPI_IN_PLACE, c->bytes, words, MPI_UINT64_T,
                            c->kind == LINK_XOR ? MPI_BXOR : MPI_BOR, MPI_COMM_WORLD, request);
        break;
    case LINK_LEAVE:
        l->leaving = true;
        break;
    }
    return link_is_ok(l, rc);
}

static bool call_is_done(group_link *l, MPI_Request *request)
{
    int done = 0;
    if (l->call->kind == LINK_LEAVE)
        return link_has_left(l);
    return link_is_ok(l, MPI_Test(request, &done, MPI_STATUS_IGNORE)) && done;
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

/* Until another thread has something for MPI, but not longer than `ns`. Under the lock. */
static void wait_for_work(group_link *l, uint64_t ns)
{
    const uint64_t end = link_now_ns() + ns;
    const struct timespec until = {(time_t)(end / LINK_NS), (long)(end % LINK_NS)};
    (void)pthread_cond_timedwait(&l->changed, &l->lock, &until);
}

/* Polls until the call is done or the link broken. */
static void carry_out(group_link *l)
{
    MPI_Request request = MPI_REQUEST_NULL;
    uint64_t pause = POLL_MIN_NS;
    bool done = false;
    if (begin_call(l, l->call, &request)) {
        while (!(done = call_is_done(l, &request)) && !atomic_load(&l->broken)) {
            link_do_beats(l);
            do_reads(l);
            pthread_mutex_lock(&l->lock);
            wait_for_work(l, pause);
            pthread_mutex_unlock(&l->lock);
            const uint64_t most = l->reads_busy ? POLL_READS_NS : POLL_MAX_NS;
            pause = pause + pause / 8 < most ? pause + pause / 8 : most; /* late by an eighth */
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
    pthread_mutex_lock(&l->lock);
    if (l->call == NULL || l->done)
        wait_for_work(l, l->reads_busy ? POLL_READS_NS : IDLE_NS);
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
    l->round_ns = link_now_ns();
    for (unsigned i = 0; i < l->peer_count; i++) {
        l->peers[i].rank = l->rank == 0 ? (int)i + 1 : 0;
        l->peers[i].seen_ns = l->round_ns;
        link_receive_next(l, &l->peers[i]);
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
                link_do_beats(l);
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
