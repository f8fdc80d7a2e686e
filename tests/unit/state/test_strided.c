#include <criterion/criterion.h>
#include <string.h>

#include "state/strided.h"
#include "tests/support/random.h"

static uint64_t state = 7;

static uint64_t draw(uint64_t below)
{
    return random_below(&state, below);
}

/* Item by item. */
static void copy_plainly(const strided *s, size_t itemsize, uint8_t *dst, const uint8_t *src)
{
    for (uint64_t flat = 0; flat < box_nelems(s->sizes, s->ndim); flat++) {
        uint64_t rest = flat, from = 0, to = 0;
        for (unsigned d = s->ndim; d-- > 0;) {
            from += rest % s->sizes[d] * s->src_strides[d];
            to += rest % s->sizes[d] * s->dst_strides[d];
            rest /= s->sizes[d];
        }
        memcpy(dst + to, src + from, itemsize);
    }
}

static void random_strides(unsigned ndim, const uint64_t *sizes, uint64_t itemsize, bool shuffled,
                           uint64_t *strides)
{
    unsigned order[8];
    uint64_t stride = itemsize;
    for (unsigned d = 0; d < ndim; d++) {
        const unsigned j = shuffled ? (unsigned)draw(d + 1) : d;
        order[d] = order[j];
        order[j] = d;
    }
    for (unsigned i = ndim; i-- > 0;) {
        strides[order[i]] = stride;
        stride *= sizes[order[i]] + (draw(4) == 0);
    }
}

Test(strided, copies_like_the_plain_loop)
{
    static uint8_t src[1 << 20], a[1 << 20], b[1 << 20];
    for (size_t i = 0; i < sizeof src; i++)
        src[i] = (uint8_t)draw(256);
    for (unsigned round = 0; round < 3000; round++) {
        strided s = {.ndim = (unsigned)draw(5)};
        const size_t itemsize = (size_t)1 << draw(5);
        for (unsigned d = 0; d < s.ndim; d++)
            s.sizes[d] = 1 + draw(s.ndim < 3 ? 70 : 8);
        random_strides(s.ndim, s.sizes, itemsize, draw(2), s.src_strides);
        random_strides(s.ndim, s.sizes, itemsize, false, s.dst_strides);
        const uint64_t used = strided_span(s.ndim, s.sizes, s.dst_strides, itemsize);
        cr_assert_leq(used, sizeof a);
        memset(a, 0xEE, used + 64);
        memset(b, 0xEE, used + 64);
        copy_plainly(&s, itemsize, a, src);
        strided_collapse(&s);
        strided_copy(&s, itemsize, b, src);
        cr_assert_eq(memcmp(a, b, used + 64), 0, "round %u", round);
    }
}

Test(strided, split_covers_the_box_once_within_the_limit)
{
    static uint8_t seen[10000];
    for (unsigned round = 0; round < 2000; round++) {
        box_split b;
        uint64_t sizes[5], strides[5], dense[5], last_end = 0;
        const unsigned ndim = (unsigned)draw(5);
        for (unsigned d = 0; d < ndim; d++)
            sizes[d] = 1 + draw(8);
        random_strides(ndim, sizes, 4, true, strides);
        box_row_major_strides(sizes, ndim, dense);
        const uint64_t limit = 1 + draw(600);
        memset(seen, 0, sizeof seen);
        cr_assert(strides_nest(ndim, sizes, strides, 4));
        box_split_begin(&b, ndim, sizes, strides, 4, limit);
        while (box_split_next(&b)) {
            uint64_t offset = 0;
            cr_assert(b.span_bytes <= limit || b.span_bytes == 4);
            for (unsigned d = 0; d < ndim; d++)
                offset += b.at[d] * strides[d];
            cr_assert_eq(offset, b.offset_bytes);
            cr_assert_geq(offset, last_end); /* front to back */
            last_end = offset + b.span_bytes;
            for (uint64_t flat = 0; flat < box_nelems(b.part, ndim); flat++) {
                uint64_t rest = flat, at = 0;
                for (unsigned d = ndim; d-- > 0;) {
                    at += (b.at[d] + rest % b.part[d]) * dense[d];
                    rest /= b.part[d];
                }
                cr_assert_eq(seen[at]++, 0);
            }
        }
        for (uint64_t i = 0; i < box_nelems(sizes, ndim); i++)
            cr_assert_eq(seen[i], 1);
    }
}

Test(strided, overlapping_strides_do_not_nest)
{
    const uint64_t sizes[2] = {4, 4};
    const uint64_t windows[2] = {4, 4};  /* a sliding window */
    const uint64_t expanded[2] = {0, 4}; /* one row, seen four times */
    const uint64_t rows[2] = {20, 4};
    cr_assert(!strides_nest(2, sizes, windows, 4));
    cr_assert(strides_nest(2, sizes, expanded, 4));
    cr_assert(strides_nest(2, sizes, rows, 4));
}
