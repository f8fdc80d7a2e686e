/* load_places.h: the memory of fsdpck_load's entries as one output: each has a range of bytes of it, the elements of
 * its box in row-major order.
 *
 *     load_places p;
 *     load_places_init(&p, budget);
 *     RETURN_IF(load_places_add(&p, &entry, offset, nbytes, itemsize, err));       // in ascending order of offsets
 *     p.copy = NULL, or copies to and from a GPU
 *     output_in_memory(&out, &(output_memory){load_places_write, load_places_read, &p});
 *     load_places_release(&p);
 */
#ifndef FSDPCK_RUN_LOAD_PLACES_H
#define FSDPCK_RUN_LOAD_PLACES_H

#include "base/alloc.h"
#include "exec/device_copy.h"
#include "fsdpck_load.h"

typedef struct load_places {
    vec places;        /* struct load_place */
    vec dims;          /* uint64_t: size and stride of each of their dims, in bytes */
    device_copy *copy; /* borrowed; NULL: addresses are those of the host */
} load_places;

void load_places_init(load_places *p, budget *owner);
void load_places_release(load_places *p);

/* The bytes at `offset` are the elements of t: its sizes are set, and strides are NULL or fit t->memory_nbytes. */
fsdpck_status load_places_add(load_places *p, const fsdpck_load_tensor *t, uint64_t offset,
                              uint64_t nbytes, uint64_t itemsize,
                              fsdpck_error *err) FSDPCK_MUST_CHECK;

/* As output_memory has them; `ctx`: the places. */
fsdpck_status load_places_write(void *ctx, size_t index, uint64_t offset, const void *src,
                                uint64_t nbytes, fsdpck_error *err) FSDPCK_MUST_CHECK;
fsdpck_status load_places_read(void *ctx, size_t index, uint64_t offset, void *dst, uint64_t nbytes,
                               fsdpck_error *err) FSDPCK_MUST_CHECK;

#endif
