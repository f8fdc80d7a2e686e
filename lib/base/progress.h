/* progress.h: counters updated by workers and read by an observer; no lock, no output. */
#ifndef FSDPCK_BASE_PROGRESS_H
#define FSDPCK_BASE_PROGRESS_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

typedef struct progress {
    _Atomic uint64_t done_bytes;
    _Atomic uint64_t total_bytes;
    _Atomic uint64_t peers_bytes; /* done by other processes in this phase */
    /* Of those done: bytes that an earlier run had written, and that are checked only. */
    _Atomic uint64_t kept_bytes, peers_kept_bytes;
    /* Never reset: bytes read and done by this process; the same of other processes, which changes as
     * long as one of them goes on. */
    _Atomic uint64_t moved_bytes, peers_moved_bytes;
    _Atomic uint32_t phase_number; /* number of the phase: equal in cooperating processes */
    _Atomic(const char *) phase;   /* constant text: "reading metadata", "writing" */
} progress;

static inline void progress_phase(progress *p, const char *phase, uint64_t total_bytes)
{
    if (p == NULL)
        return;
    atomic_store(&p->done_bytes, 0);
    atomic_store(&p->peers_bytes, 0);
    atomic_store(&p->kept_bytes, 0);
    atomic_store(&p->peers_kept_bytes, 0);
    atomic_store(&p->total_bytes, total_bytes);
    atomic_store(&p->phase, phase);
    atomic_fetch_add(&p->phase_number, 1);
}

/* Bytes on the way, not yet done. */
static inline void progress_move(progress *p, uint64_t nbytes)
{
    if (p != NULL)
        atomic_fetch_add_explicit(&p->moved_bytes, nbytes, memory_order_relaxed);
}

static inline void progress_add(progress *p, uint64_t nbytes)
{
    if (p != NULL)
        atomic_fetch_add_explicit(&p->done_bytes, nbytes, memory_order_relaxed);
    progress_move(p, nbytes);
}

static inline void progress_keep(progress *p, uint64_t nbytes)
{
    progress_add(p, nbytes);
    if (p != NULL)
        atomic_fetch_add_explicit(&p->kept_bytes, nbytes, memory_order_relaxed);
}

#endif
