#include <criterion/criterion.h>

#include "layout/torch_chunk.h"

typedef struct row {
    uint64_t n, nparts;
    uint64_t sizes[9];
    uint64_t offsets[9];
} row;

Test(chunk, pieces_are_those_of_torch)
{
    static const row rows[] = {
        {10, 4, {3, 3, 3, 1}, {0, 3, 6, 9}},
        {5, 4, {2, 2, 1, 0}, {0, 2, 4, 5}},
        {3, 4, {1, 1, 1, 0}, {0, 1, 2, 3}},
        {2, 4, {1, 1, 0, 0}, {0, 1, 2, 2}},
        {1, 4, {1, 0, 0, 0}, {0, 1, 1, 1}},
        {9, 8, {2, 2, 2, 2, 1, 0, 0, 0}, {0, 2, 4, 6, 8, 9, 9, 9}},
        {0, 3, {0, 0, 0}, {0, 0, 0}},
        {7, 1, {7}, {0}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        for (uint64_t r = 0; r < rows[i].nparts; r++) {
            uint64_t offset, size;
            torch_chunk_range(rows[i].n, rows[i].nparts, r, &offset, &size);
            cr_assert_eq(size, rows[i].sizes[r], "row %zu piece %lu", i, (unsigned long)r);
            cr_assert_eq(offset, rows[i].offsets[r], "row %zu piece %lu", i, (unsigned long)r);
        }
    }
}

Test(chunk, pieces_partition_whatever_the_sizes)
{
    for (uint64_t n = 0; n < 70; n++) {
        for (uint64_t w = 1; w < 20; w++) {
            uint64_t at = 0;
            for (uint64_t r = 0; r < w; r++) {
                uint64_t offset, size;
                torch_chunk_range(n, w, r, &offset, &size);
                cr_assert_eq(offset, at);
                cr_assert_leq(size, torch_chunk_size(n, w));
                at += size;
            }
            cr_assert_eq(at, n);
        }
    }
}

Test(chunk, extreme_values_do_not_wrap)
{
    uint64_t offset, size;
    torch_chunk_range(UINT64_MAX, 2, 1, &offset, &size);
    cr_assert_eq(offset, (UINT64_C(1) << 63));
    cr_assert_eq(size, (UINT64_C(1) << 63) - 1);
    torch_chunk_range(UINT64_MAX, UINT64_MAX, UINT64_MAX - 1, &offset, &size);
    cr_assert_eq(offset, UINT64_MAX - 1);
    cr_assert_eq(size, 1);
    torch_chunk_range(UINT64_MAX, 3, UINT64_MAX, &offset, &size);
    cr_assert_eq(offset, UINT64_MAX);
    cr_assert_eq(size, 0);
    cr_assert_eq(torch_chunk_size(5, 0), 5);
}
