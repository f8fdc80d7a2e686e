#include "state/sort.h"

#include <stdbool.h>
#include <string.h>

static bool after(const sort_pair *a, const sort_pair *b, sort_tie_fn tie, const void *ctx)
{
    if (a->key != b->key)
        return a->key > b->key;
    return tie != NULL && tie(ctx, a->item, b->item) > 0;
}

static void merge(sort_pair *to, const sort_pair *from, size_t begin, size_t middle, size_t end,
                  sort_tie_fn tie, const void *ctx)
{
    size_t left = begin;
    size_t right = middle;
    for (size_t i = begin; i < end; i++) {
        if (left < middle && (right >= end || !after(&from[left], &from[right], tie, ctx)))
            to[i] = from[left++];
        else
            to[i] = from[right++];
    }
}

/* From here on counting a byte of the keys costs less than merging. */
#define COUNT_PAIRS 1024

/* Ascending by one byte of the key; equal ones keep their order. */
static void sort_by_byte(sort_pair *to, const sort_pair *from, size_t n, unsigned shift)
{
    size_t at[256] = {0};
    size_t begin = 0;
    for (size_t i = 0; i < n; i++)
        at[from[i].key >> shift & 0xFF]++;
    for (unsigned byte = 0; byte < 256; byte++) {
        const size_t count = at[byte];
        at[byte] = begin;
        begin += count;
    }
    for (size_t i = 0; i < n; i++)
        to[at[from[i].key >> shift & 0xFF]++] = from[i];
}

/* By the bytes in which the keys differ, from the lowest on. Returns the array that holds the result. */
static sort_pair *sort_by_bytes(sort_pair *from, sort_pair *to, size_t n)
{
    uint64_t differ = 0;
    for (size_t i = 1; i < n; i++)
        differ |= from[i].key ^ from[0].key;
    for (unsigned shift = 0; shift < 64; shift += 8) {
        if ((differ >> shift & 0xFF) == 0)
            continue;
        sort_by_byte(to, from, n, shift);
        sort_pair *swap = from;
        from = to;
        to = swap;
    }
    return from;
}

static sort_pair *sort_by_merging(sort_pair *from, sort_pair *to, size_t n, sort_tie_fn tie,
                                  const void *ctx)
{
    for (size_t width = 1; width < n; width *= 2) {
        for (size_t begin = 0; begin < n; begin += 2 * width) {
            const size_t middle = begin + width < n ? begin + width : n;
            const size_t end = begin + 2 * width < n ? begin + 2 * width : n;
            merge(to, from, begin, middle, end, tie, ctx);
        }
        sort_pair *swap = from;
        from = to;
        to = swap;
    }
    return from;
}

void sort_pairs(sort_pair *pairs, sort_pair *scratch, size_t n, sort_tie_fn tie, const void *ctx)
{
    size_t sorted = 1;
    while (sorted < n && !after(&pairs[sorted - 1], &pairs[sorted], tie, ctx))
        sorted++;
    if (sorted >= n)
        return;
    const sort_pair *from = tie == NULL && n >= COUNT_PAIRS
                                ? sort_by_bytes(pairs, scratch, n)
                                : sort_by_merging(pairs, scratch, n, tie, ctx);
    if (from != pairs)
        memcpy(pairs, from, n * sizeof *pairs);
}

static uint64_t mix(uint64_t *state)
{
    uint64_t z = *state += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

static void swap_pairs(sort_pair *a, sort_pair *b)
{
    const sort_pair t = *a;
    *a = *b;
    *b = t;
}

void sort_select(sort_pair *pairs, size_t n, size_t k)
{
    size_t begin = 0;
    size_t end = n;
    uint64_t state = n;
    while (end - begin > 1) {
        const uint64_t pivot = pairs[begin + mix(&state) % (end - begin)].key;
        /* Three parts, so that many equal keys take one pass: [begin, less) < pivot, [less, at) ==
         * pivot, [greater, end) > pivot. */
        size_t less = begin;
        size_t at = begin;
        size_t greater = end;
        while (at < greater) {
            if (pairs[at].key < pivot)
                swap_pairs(&pairs[less++], &pairs[at++]);
            else if (pairs[at].key > pivot)
                swap_pairs(&pairs[at], &pairs[--greater]);
            else
                at++;
        }
        if (k < less)
            end = less;
        else if (k >= greater)
            begin = greater;
        else
            return;
    }
}
