#include <criterion/criterion.h>
#include <stdint.h>

#include "state/box.h"

Test(box, intersection)
{
    const uint64_t oa[] = {0, 2}, sa[] = {4, 4};
    const uint64_t ob[] = {3, 0}, sb[] = {4, 3};
    uint64_t offsets[2], sizes[2];
    cr_assert(box_intersect(oa, sa, ob, sb, 2, offsets, sizes));
    cr_expect(offsets[0] == 3 && offsets[1] == 2);
    cr_expect(sizes[0] == 1 && sizes[1] == 1);
    const uint64_t touching[] = {4, 0};
    cr_expect_not(box_intersect(oa, sa, touching, sb, 2, offsets, sizes));
    cr_expect(box_intersect(NULL, NULL, NULL, NULL, 0, NULL, NULL), "two 0-dim boxes meet");
}

Test(box, strides_see_through_empty_dims)
{
    const uint64_t sizes[] = {3, 0, 2, 5};
    uint64_t strides[4];
    box_row_major_strides(sizes, 4, strides);
    cr_expect(strides[3] == 1 && strides[2] == 5 && strides[1] == 10 && strides[0] == 10);
    cr_expect_eq(box_nelems(sizes, 4), 0);
    cr_expect_eq(box_nelems(sizes, 0), 1);
}

/* Flat position of a box's k-th element (row-major in the box). */
static uint64_t flat_of(const box_cut *cut, uint64_t k)
{
    uint64_t flat = 0, stride = 1;
    for (unsigned d = cut->ndim; d-- > 0;) {
        flat += (cut->offsets_out[d] + k % cut->sizes_out[d]) * stride;
        k /= cut->sizes_out[d];
        stride *= cut->sizes[d];
    }
    return flat;
}

/* The boxes of [begin, end) list exactly these positions, in order, in few enough boxes. */
static void check_cut(const uint64_t *sizes, unsigned ndim, uint64_t begin, uint64_t end)
{
    box_cut cut = {.sizes = sizes, .ndim = ndim, .begin = begin, .end = end};
    uint64_t at = begin;
    unsigned boxes = 0;
    while (box_cut_next(&cut)) {
        boxes++;
        cr_assert_eq(cut.flat_out, at);
        const uint64_t n = box_nelems(cut.sizes_out, ndim);
        cr_assert_gt(n, 0);
        for (uint64_t k = 0; k < n; k++)
            cr_assert_eq(flat_of(&cut, k), at++);
        for (unsigned d = 0; d < ndim; d++)
            cr_assert_leq(cut.offsets_out[d] + cut.sizes_out[d], sizes[d]);
    }
    cr_assert_eq(at, end);
    cr_assert_leq(boxes, ndim == 0 ? 1 : 2 * ndim - 1);
}

Test(box, cut_against_brute_force)
{
    static const uint64_t shapes[][4] = {
        {7},       {1},       {3, 4},    {4, 1},       {1, 5},
        {2, 3, 4}, {3, 1, 2}, {1, 1, 1}, {2, 3, 2, 3}, {2, 1, 4, 2},
    };
    static const unsigned ndims[] = {1, 1, 2, 2, 2, 3, 3, 3, 4, 4};
    for (size_t i = 0; i < sizeof ndims / sizeof ndims[0]; i++) {
        const uint64_t n = box_nelems(shapes[i], ndims[i]);
        for (uint64_t begin = 0; begin <= n; begin++)
            for (uint64_t end = begin; end <= n; end++)
                check_cut(shapes[i], ndims[i], begin, end);
    }
    check_cut(NULL, 0, 0, 1);
    const uint64_t empty[] = {3, 0};
    check_cut(empty, 2, 0, 0);
}

Test(box, cut_of_a_large_box_is_exact)
{
    const uint64_t sizes[] = {1u << 20, 1u << 20, 8192};
    const uint64_t row = sizes[1] * sizes[2];
    box_cut cut = {.sizes = sizes, .ndim = 3, .begin = 5, .end = 3 * row + 8192 + 7};
    uint64_t sum = 0;
    unsigned boxes = 0;
    while (box_cut_next(&cut)) {
        sum += box_nelems(cut.sizes_out, 3);
        boxes++;
    }
    cr_expect_eq(boxes, 5);
    cr_expect_eq(sum, 3 * row + 8192 + 7 - 5);
}
