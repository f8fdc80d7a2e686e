/* The other ranks of a link over MPI: broken links and heartbeats.
 *
 * Heartbeats go from every rank to rank 0 and from rank 0 to all: 2 (size - 1) small messages a second.
 * The last one of a rank is a goodbye. It ensures that every message has been received, as
 * MPI_Finalize requires.
 */
#include <string.h>
#include <time.h>

#include "group/group_mpi_internal.h"

enum { BEAT_TAG = 1 };
enum { BEAT_FAILED = 1, BEAT_BYE = 2 };

#define BEAT_NS LINK_NS
/* After it was paused this long, a rank waits for new heartbeats of the others. */
#define PAUSE_NS (2 * LINK_NS)

uint64_t link_now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * LINK_NS + (uint64_t)t.tv_nsec;
}

void link_set_broken(group_link *l, int lost)
{
    if (atomic_load(&l->broken))
        return;
    atomic_store(&l->lost, lost);
    atomic_store(&l->broken, true);
    atomic_store(&l->watch->cancel->set, 1);
}

bool link_is_ok(group_link *l, int rc)
{
    if (rc == MPI_SUCCESS)
        return true;
    int length = 0;
    char text[MPI_MAX_ERROR_STRING + 1] = "";
    (void)MPI_Error_string(rc, text, &length);
    pthread_mutex_lock(&l->lock);
    strncpy(l->text, text, sizeof l->text - 1);
    pthread_mutex_unlock(&l->lock);
    link_set_broken(l, -1);
    return false;
}

/* ---- heartbeats ---- */

void link_receive_next(group_link *l, peer *p)
{
    (void)link_is_ok(l, MPI_Irecv(&p->receive, sizeof p->receive, MPI_BYTE, p->rank, BEAT_TAG,
                                  MPI_COMM_WORLD, &p->receive_request));
}

static void receive_beat(group_link *l, peer *p)
{
    p->last = p->receive;
    p->seen_ns = link_now_ns();
    if (p->last.flags & BEAT_FAILED) {
        atomic_store(&l->watch->cancel->set, 1);
        if (l->rank == 0)
            atomic_store(&l->failed, true); /* handed on */
    }
    if (p->last.lost >= 0)
        link_set_broken(l, p->last.lost);
    if (p->last.flags & BEAT_BYE)
        p->left = true;
    else
        link_receive_next(l, p);
}

/* Of the other ranks, as far as known. */
static uint64_t sum_moved(const group_link *l)
{
    uint64_t sum = 0;
    for (unsigned i = 0; i < l->peer_count; i++)
        sum += l->peers[i].last.moved_bytes;
    return sum;
}

static bool can_send(group_link *l, peer *p)
{
    int done = 0;
    if (p->sending && link_is_ok(l, MPI_Test(&p->send_request, &done, MPI_STATUS_IGNORE)) && done)
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
        .kept_bytes = atomic_load(&w->kept_bytes),
        .moved_bytes = atomic_load(&w->moved_bytes) + (l->rank == 0 ? sum_moved(l) : 0),
        .phase = atomic_load(&w->phase_number),
        .flags = flags | (atomic_load(&l->failed) ? (uint32_t)BEAT_FAILED : 0u),
        .lost = -1,
    };
    p->sending = link_is_ok(l, MPI_Isend(&p->send, sizeof p->send, MPI_BYTE, p->rank, BEAT_TAG,
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
    uint64_t sum = 0, kept = 0;
    for (unsigned i = 0; l->rank == 0 && i < l->peer_count; i++)
        if (l->peers[i].last.phase == phase) {
            sum += l->peers[i].last.done_bytes;
            kept += l->peers[i].last.kept_bytes;
        }
    atomic_store(&w->peers_bytes, sum);
    atomic_store(&w->peers_kept_bytes, kept);
    atomic_store(&w->peers_moved_bytes, sum_moved(l));
}

static void check_silence(group_link *l, uint64_t now)
{
    const uint64_t timeout = atomic_load(&l->watch->peer_timeout_seconds) * LINK_NS;
    const bool paused = now - l->round_ns > PAUSE_NS; /* this process was stopped */
    l->round_ns = now;
    for (unsigned i = 0; i < l->peer_count; i++) {
        peer *p = &l->peers[i];
        if (paused)
            p->seen_ns = now;
        /* A rank that sent its goodbye counts as lost only if a call still waits for it. */
        const bool missed = !p->left || (l->call != NULL && l->call->kind != LINK_LEAVE);
        if (missed && p->seen_ns + timeout < now) {
            link_set_broken(l, p->rank);
            send_loss(l);
            return;
        }
    }
}

void link_do_beats(group_link *l)
{
    const uint64_t now = link_now_ns();
    for (unsigned i = 0; i < l->peer_count; i++) {
        peer *p = &l->peers[i];
        int done = 1;
        while (!p->left && done && !atomic_load(&l->broken)) {
            done = 0;
            if (link_is_ok(l, MPI_Test(&p->receive_request, &done, MPI_STATUS_IGNORE)) && done)
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

bool link_has_left(group_link *l)
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
