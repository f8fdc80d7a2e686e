#include "exec/device_copy.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"

/* Large enough that the bus, not the calls, limits a copy. */
#define SLOT_NBYTES ((uint64_t)4 << 20)

struct device_slot {
    gpu *g;
    gpu_stream *stream;
    uint8_t *pinned;
    uint64_t used; /* bytes of `pinned` that copies may still read */
    bool is_taken;
};

struct device_copy {
    gpu *g;
    pthread_mutex_t lock;
    pthread_cond_t given;
    unsigned nslots;
    device_slot slots[];
};

fsdpck_status device_copy_new(gpu *g, unsigned nslots, device_copy **out, fsdpck_error *err)
{
    *out = NULL;
    device_copy *d = calloc(1, sizeof *d + nslots * sizeof d->slots[0]);
    if (d == NULL)
        return error_set_nomem(err, sizeof *d + nslots * sizeof d->slots[0]);
    d->g = g;
    pthread_mutex_init(&d->lock, NULL);
    pthread_cond_init(&d->given, NULL);
    fsdpck_status st = FSDPCK_OK;
    for (; st == FSDPCK_OK && d->nslots < nslots; d->nslots++) {
        device_slot *s = &d->slots[d->nslots];
        void *pinned = NULL;
        s->g = g;
        st = g->calls->stream_new(g, false, &s->stream, err);
        if (st == FSDPCK_OK)
            st = g->calls->host_new(g, SLOT_NBYTES, &pinned, err);
        s->pinned = pinned;
    }
    if (st != FSDPCK_OK)
        device_copy_free(d);
    else
        *out = d;
    return st;
}

void device_copy_free(device_copy *d)
{
    if (d == NULL)
        return;
    for (unsigned i = 0; i < d->nslots; i++) {
        if (d->slots[i].stream != NULL)
            d->g->calls->stream_free(d->slots[i].stream);
        d->g->calls->host_free(d->g, d->slots[i].pinned, SLOT_NBYTES);
    }
    pthread_cond_destroy(&d->given);
    pthread_mutex_destroy(&d->lock);
    free(d);
}

static device_slot *find_free(device_copy *d)
{
    for (unsigned i = 0; i < d->nslots; i++)
        if (!d->slots[i].is_taken)
            return &d->slots[i];
    return NULL;
}

device_slot *device_copy_take(device_copy *d)
{
    device_slot *s;
    pthread_mutex_lock(&d->lock);
    while ((s = find_free(d)) == NULL)
        pthread_cond_wait(&d->given, &d->lock);
    s->is_taken = true;
    pthread_mutex_unlock(&d->lock);
    return s;
}

static fsdpck_status wait_for_all(device_slot *s, fsdpck_error *err)
{
    s->used = 0;
    RETURN_IF(s->g->calls->mark(s->stream, 0, err));
    return s->g->calls->wait(s->stream, 0, err);
}

fsdpck_status device_slot_put(device_slot *s, gpu_address to, const void *bytes, uint64_t nbytes,
                              fsdpck_error *err)
{
    for (uint64_t at = 0; at < nbytes;) {
        if (s->used == SLOT_NBYTES)
            RETURN_IF(wait_for_all(s, err));
        const uint64_t space = SLOT_NBYTES - s->used, rest = nbytes - at;
        const uint64_t n = rest < space ? rest : space;
        memcpy(s->pinned + s->used, (const uint8_t *)bytes + at, n);
        RETURN_IF(s->g->calls->copy_in(s->stream, to + at, s->pinned + s->used, n, err));
        s->used += n;
        at += n;
    }
    return FSDPCK_OK;
}

fsdpck_status device_slot_get(device_slot *s, void *bytes, gpu_address from, uint64_t nbytes,
                              fsdpck_error *err)
{
    for (uint64_t at = 0; at < nbytes;) {
        const uint64_t rest = nbytes - at, n = rest < SLOT_NBYTES ? rest : SLOT_NBYTES;
        if (s->used > 0)
            RETURN_IF(wait_for_all(s, err));
        RETURN_IF(s->g->calls->copy_out(s->stream, s->pinned, from + at, n, err));
        RETURN_IF(wait_for_all(s, err));
        memcpy((uint8_t *)bytes + at, s->pinned, n);
        at += n;
    }
    return FSDPCK_OK;
}

fsdpck_status device_copy_give(device_copy *d, device_slot *s, fsdpck_status st, fsdpck_error *err)
{
    if (st == FSDPCK_OK && s->used > 0)
        st = wait_for_all(s, err);
    pthread_mutex_lock(&d->lock);
    s->is_taken = false;
    pthread_cond_signal(&d->given);
    pthread_mutex_unlock(&d->lock);
    return st;
}
