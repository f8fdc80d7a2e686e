/* filter.h: an output whose tensors are compressed while they are written, so that the offsets of
 * their bytes are known only then. A writer's layout() requests this by filling target.pack:
 *
 *     t->pack = (target_filter){.grids = VEC_OF(filter_grid, owner), .place = fn, ...};
 *     // for each tensor, in order:
 *     RETURN_IF(filter_add_tensor(&t->pack, cell_nbytes, span_nbytes, nbytes, err));
 *
 * The target's one file and the locations of its chunks then describe a virtual image that is never
 * written: the uncompressed tensors one after another. Each tensor is a grid of cells, which are
 * runs of its bytes. Each span is divided into cells from its start; the last cell of a span may be
 * shorter. The code that runs the plan (lib/exec/compress.c) does for each cell
 *
 *     code(t, coder, &cell, bytes, coded, &nbytes, &how, err)      // any thread, own coder
 *     place(t, &cell, nbytes, how, &offset_bytes, err)             // one at a time, in cell order
 *     ... writes `coded` there ...                                 // any thread
 *
 * and at the end
 *
 *     finish(t, &file_nbytes, err)
 *     put_rest(t, put, ctx, err)                                   // the bytes outside the cells
 *
 * so that the file depends on neither threads nor timing.
 */
#ifndef FSDPCK_STATE_FILTER_H
#define FSDPCK_STATE_FILTER_H

#include "base/alloc.h"

struct target;

/* Of one tensor. */
typedef struct filter_grid {
    uint64_t first_cell; /* among those of all tensors */
    uint64_t cell_nbytes;
    uint64_t span_nbytes;
} filter_grid;

typedef struct filter_cell {
    uint32_t tensor;
    uint64_t number; /* among its tensor's */
    uint64_t at;     /* in its tensor */
    uint64_t nbytes;
} filter_cell;

/* Location of a written cell. */
typedef struct filter_location {
    uint64_t offset_bytes;
    uint64_t nbytes;
    uint64_t crc64; /* raw (base/crc.h) */
} filter_location;

typedef fsdpck_status (*filter_put_fn)(void *ctx, uint64_t offset_bytes, const void *bytes,
                                       uint64_t nbytes, fsdpck_error *err);

typedef struct target_filter {
    vec grids;  /* filter_grid of each tensor */
    vec places; /* filter_location of each cell, filled while the plan runs */
    uint64_t cell_count;
    uint64_t cell_nbytes_max;
    uint64_t coder_nbytes; /* approximate memory of one coder */
    /* NULL: no compression. Functions as above; `coded` has space for cell_nbytes of its grid, and
     * `how` is passed from code() to place(). */
    fsdpck_status (*place)(struct target *t, const filter_cell *cell, uint64_t nbytes, uint32_t how,
                           uint64_t *offset_bytes, fsdpck_error *err);
    fsdpck_status (*coder_new)(const struct target *t, void **coder, fsdpck_error *err);
    void (*coder_free)(void *coder); /* accepts NULL */
    fsdpck_status (*code)(const struct target *t, void *coder, const filter_cell *cell,
                          const uint8_t *bytes, uint8_t *coded, uint64_t *nbytes, uint32_t *how,
                          fsdpck_error *err);
    fsdpck_status (*finish)(struct target *t, uint64_t *file_nbytes, fsdpck_error *err);
    fsdpck_status (*put_rest)(const struct target *t, filter_put_fn put, void *ctx,
                              fsdpck_error *err);
} target_filter;

/* The grid of the next tensor, of `nbytes` in spans of span_nbytes (a divisor of nbytes). Without
 * bytes it has no cells. */
fsdpck_status filter_add_tensor(target_filter *p, uint64_t cell_nbytes, uint64_t span_nbytes,
                                uint64_t nbytes, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Cell 0 to cell_count - 1. */
void filter_get_cell(const target_filter *p, uint64_t index, filter_cell *cell);
void filter_release(target_filter *p);

#endif
