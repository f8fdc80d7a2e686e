#include <criterion/criterion.h>
#include <stdlib.h>

#include "state/sort.h"
#include "tests/support/random.h"

static uint64_t state = 1;

static uint64_t draw(void)
{
    return random_below(&state, UINT64_C(1) << 31);
}

static int by_item(const void *ctx, uint32_t a, uint32_t b)
{
    (void)ctx;
    return (a > b) - (a < b);
}

Test(sort, pairs_are_sorted_and_equal_ones_keep_their_order)
{
    for (size_t n = 0; n < 300; n += 1 + n / 3) {
        sort_pair pairs[300], scratch[300];
        for (size_t i = 0; i < n; i++)
            pairs[i] = (sort_pair){draw() % 20, (uint32_t)i};
        sort_pairs(pairs, scratch, n, NULL, NULL);
        for (size_t i = 1; i < n; i++)
            cr_assert(pairs[i - 1].key < pairs[i].key ||
                      (pairs[i - 1].key == pairs[i].key && pairs[i - 1].item < pairs[i].item));
    }
}

/* Keys that differ in one byte, in bytes apart, in all; and that are already in order. */
Test(sort, many_pairs)
{
    enum { N = 5000 };
    static sort_pair pairs[N], scratch[N];
    static const uint64_t masks[] = {
        0xFF, UINT64_C(0xFF) << 56, UINT64_C(0xF0000F0000F), UINT64_MAX, 0, 0x1FFF};
    for (size_t m = 0; m < sizeof masks / sizeof *masks; m++) {
        for (unsigned round = 0; round < 2; round++) {
            for (uint32_t i = 0; round == 0 && i < N; i++)
                pairs[i] = (sort_pair){(draw() << 40 ^ draw() << 20 ^ draw()) & masks[m], i};
            sort_pairs(pairs, scratch, N, NULL, NULL);
            for (size_t i = 1; i < N; i++)
                cr_assert(pairs[i - 1].key < pairs[i].key ||
                          (pairs[i - 1].key == pairs[i].key && pairs[i - 1].item < pairs[i].item));
        }
    }
}

Test(sort, ties_are_broken_by_the_callback)
{
    sort_pair pairs[100], scratch[100];
    for (size_t i = 0; i < 100; i++)
        pairs[i] = (sort_pair){draw() % 3, (uint32_t)draw()};
    sort_pairs(pairs, scratch, 100, by_item, NULL);
    for (size_t i = 1; i < 100; i++)
        cr_assert(pairs[i - 1].key < pairs[i].key || pairs[i - 1].item <= pairs[i].item);
}

Test(sort, select_parts_at_k)
{
    for (unsigned round = 0; round < 200; round++) {
        sort_pair pairs[128];
        const size_t n = 1 + draw() % 128;
        const size_t k = draw() % n;
        const uint64_t spread = 1 + draw() % 60;
        for (size_t i = 0; i < n; i++)
            pairs[i] = (sort_pair){draw() % spread, (uint32_t)i};
        sort_select(pairs, n, k);
        for (size_t i = 0; i < n; i++)
            cr_assert(i < k ? pairs[i].key <= pairs[k].key : pairs[i].key >= pairs[k].key);
    }
}
