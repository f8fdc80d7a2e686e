/* box.h: boxes inside tensors, in elements.
 *
 * A box is [offset, offset + size) in each of ndim dims; ndim 0 is the single element of a 0-dim
 * tensor. Arrays are borrowed. Callers guarantee (by the readers' checks) that offset + size does
 * not overflow.
 */
#ifndef FSDPCK_STATE_BOX_H
#define FSDPCK_STATE_BOX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* torch's own limit on dims. */
#define NDIM_MAX 64u

/* Number of elements; the readers have checked that it does not overflow. */
uint64_t box_nelems(const uint64_t *sizes, unsigned ndim);

/* Whether two shapes are equal. */
static inline bool shape_equal(const uint64_t *a, unsigned a_ndim, const uint64_t *b,
                               unsigned b_ndim)
{
    return a_ndim == b_ndim && (a_ndim == 0 || memcmp(a, b, a_ndim * sizeof *a) == 0);
}

bool box_equal(const uint64_t *offsets_a, const uint64_t *sizes_a, const uint64_t *offsets_b,
               const uint64_t *sizes_b, unsigned ndim);

/* Intersection into offsets/sizes (may alias neither input); false if it is empty. Two 0-dim boxes
 * intersect. */
bool box_intersect(const uint64_t *offsets_a, const uint64_t *sizes_a, const uint64_t *offsets_b,
                   const uint64_t *sizes_b, unsigned ndim, uint64_t *offsets, uint64_t *sizes);

/* Row-major strides in elements. */
void box_row_major_strides(const uint64_t *sizes, unsigned ndim, uint64_t *strides);

/* Splits the flat row-major interval [begin, end) of a box of `sizes` into at most 2*ndim-1 boxes,
 * in order. Iterator: zero it, set sizes, ndim, begin, end, then call until false. */
typedef struct box_cut {
    const uint64_t *sizes;
    unsigned ndim;
    uint64_t begin, end;
    uint64_t offsets_out[NDIM_MAX]; /* of the returned box, inside the split box */
    uint64_t sizes_out[NDIM_MAX];
    uint64_t flat_out; /* flat position of its first element */
} box_cut;

bool box_cut_next(box_cut *cut);

#endif
