#include <criterion/criterion.h>

#include "state/filter.h"

Test(filter, cells_cover_every_tensor_in_order)
{
    /* Bytes of a cell, of a span, of the tensor. */
    static const uint64_t grids[][3] = {{10, 10, 10}, {1, 1, 0}, {4, 10, 30},
                                        {7, 7, 21},   {0, 0, 0}, {8, 3, 6}};
    const size_t count = sizeof grids / sizeof grids[0];
    target_filter p = {.grids = VEC_OF(filter_grid, NULL)};
    uint64_t tensor = 0, number = 0, at = 0;
    for (size_t i = 0; i < count; i++)
        cr_assert_eq(filter_add_tensor(&p, grids[i][0], grids[i][1], grids[i][2], NULL), FSDPCK_OK);
    cr_assert_eq(p.cell_count, 1 + 9 + 3 + 2);
    cr_assert_eq(p.cell_nbytes_max, 10);
    for (uint64_t i = 0; i < p.cell_count; i++) {
        filter_cell cell;
        filter_get_cell(&p, i, &cell);
        while (at == grids[tensor][2]) {
            tensor++;
            at = number = 0;
        }
        cr_expect_eq(cell.tensor, tensor);
        cr_expect_eq(cell.number, number++);
        cr_expect_eq(cell.at, at);
        cr_expect(cell.nbytes > 0 && cell.nbytes <= grids[tensor][0]);
        cr_expect_eq(at / grids[tensor][1], (at + cell.nbytes - 1) / grids[tensor][1],
                     "within a span");
        at += cell.nbytes;
    }
    cr_expect_eq(tensor, count - 1);
    cr_expect_eq(at, grids[tensor][2]);
    filter_release(&p);
}
