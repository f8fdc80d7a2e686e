#include "run/load_places.h"

#include <string.h>

#include "base/status.h"
#include "state/box.h"

typedef struct load_place {
    uint64_t begin, end; /* in the output */
    uintptr_t memory;    /* of the first element */
    size_t dims_at;      /* of `ndim` pairs of size and stride, outermost first */
    unsigned ndim;       /* outside of a run */
    uint64_t run_nbytes; /* bytes that are together on both sides */
} load_place;

void load_places_init(load_places *p, budget *owner)
{
    *p = (load_places){.places = VEC_OF(load_place, owner), .dims = VEC_OF(uint64_t, owner)};
}

void load_places_release(load_places *p)
{
    vec_release(&p->places);
    vec_release(&p->dims);
}

/* From the innermost dim on, dims without gaps form one run. Of the other dims, neighbors that form one are merged:
 * pairs of size and stride, innermost first. */
static unsigned merge_dims(const fsdpck_load_tensor *t, uint64_t itemsize, uint64_t *run_nbytes,
                           uint64_t *pairs)
{
    unsigned ndim = 0;
    *run_nbytes = itemsize;
    for (size_t d = t->ndim; d-- > 0;) {
        const uint64_t size = t->sizes[d], stride = t->strides[d] * itemsize;
        if (size == 1)
            continue;
        if (ndim == 0 && stride == *run_nbytes) {
            *run_nbytes *= size;
        } else if (ndim > 0 && stride == pairs[2 * ndim - 2] * pairs[2 * ndim - 1]) {
            pairs[2 * ndim - 2] *= size;
        } else {
            pairs[2 * ndim] = size;
            pairs[2 * ndim + 1] = stride;
            ndim++;
        }
    }
    return ndim;
}

fsdpck_status load_places_add(load_places *p, const fsdpck_load_tensor *t, uint64_t offset,
                              uint64_t nbytes, uint64_t itemsize, fsdpck_error *err)
{
    uint64_t pairs[2 * NDIM_MAX];
    load_place place = {.begin = offset,
                        .end = offset + nbytes,
                        .memory = (uintptr_t)t->memory,
                        .dims_at = p->dims.count,
                        .run_nbytes = nbytes};
    if (t->strides != NULL && nbytes > 0)
        place.ndim = merge_dims(t, itemsize, &place.run_nbytes, pairs);
    for (unsigned d = place.ndim; d-- > 0;) {
        RETURN_IF(vec_add(&p->dims, &pairs[2 * d], err));
        RETURN_IF(vec_add(&p->dims, &pairs[2 * d + 1], err));
    }
    return vec_add(&p->places, &place, err);
}

/* Where run number `run` begins. */
static uintptr_t address_of(const load_places *p, const load_place *place, uint64_t run)
{
    uintptr_t address = place->memory;
    for (unsigned d = place->ndim; d-- > 0;) {
        const uint64_t size = *VEC_AT(&p->dims, const uint64_t, place->dims_at + 2 * d);
        address += run % size * *VEC_AT(&p->dims, const uint64_t, place->dims_at + 2 * d + 1);
        run /= size;
    }
    return address;
}

/* The first place that ends after `offset`. */
static size_t find_place(const load_places *p, uint64_t offset)
{
    size_t low = 0, high = p->places.count;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (VEC_AT(&p->places, const load_place, middle)->end <= offset)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* One range of bytes on its way: `from` or `to` is NULL. */
typedef struct transfer {
    const load_places *p;
    device_slot *slot;
    const uint8_t *from;
    uint8_t *to;
    uint64_t begin, end; /* in the output */
} transfer;

static fsdpck_status move_run(const transfer *t, uintptr_t address, uint64_t at, uint64_t nbytes,
                              fsdpck_error *err)
{
    if (t->slot != NULL)
        return t->from != NULL ? device_slot_put(t->slot, address, t->from + at, nbytes, err)
                               : device_slot_get(t->slot, t->to + at, address, nbytes, err);
    if (t->from != NULL)
        memcpy((void *)address, t->from + at, nbytes);
    else
        memcpy(t->to + at, (const void *)address, nbytes);
    return FSDPCK_OK;
}

/* The part of the range that lies in a place, run by run. */
static fsdpck_status move_place(const transfer *t, const load_place *place, fsdpck_error *err)
{
    uint64_t begin = t->begin > place->begin ? t->begin : place->begin;
    const uint64_t end = t->end < place->end ? t->end : place->end;
    while (begin < end) {
        const uint64_t run = (begin - place->begin) / place->run_nbytes,
                       inside = (begin - place->begin) % place->run_nbytes;
        const uint64_t rest = place->run_nbytes - inside,
                       n = rest < end - begin ? rest : end - begin;
        RETURN_IF(move_run(t, address_of(t->p, place, run) + inside, begin - t->begin, n, err));
        begin += n;
    }
    return FSDPCK_OK;
}

static fsdpck_status move_range(transfer *t, fsdpck_error *err)
{
    const load_places *p = t->p;
    fsdpck_status st = FSDPCK_OK;
    if (p->copy != NULL)
        t->slot = device_copy_take(p->copy);
    for (size_t i = find_place(p, t->begin); st == FSDPCK_OK && i < p->places.count; i++) {
        const load_place *place = VEC_AT(&p->places, const load_place, i);
        if (place->begin >= t->end)
            break;
        st = move_place(t, place, err);
    }
    return t->slot == NULL ? st : device_copy_give(p->copy, t->slot, st, err);
}

fsdpck_status load_places_write(void *ctx, size_t index, uint64_t offset, const void *src,
                                uint64_t nbytes, fsdpck_error *err)
{
    (void)index;
    transfer t = {.p = ctx, .from = src, .begin = offset, .end = offset + nbytes};
    return move_range(&t, err);
}

/* Between places there is nothing: zeros. */
fsdpck_status load_places_read(void *ctx, size_t index, uint64_t offset, void *dst, uint64_t nbytes,
                               fsdpck_error *err)
{
    (void)index;
    transfer t = {.p = ctx, .to = dst, .begin = offset, .end = offset + nbytes};
    memset(dst, 0, nbytes);
    return move_range(&t, err);
}
