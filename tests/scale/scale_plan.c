/* Plans of many chunks take time and memory in proportion: 16 times the chunks may not take
 * more than 140 times as long. Up to 1,048,576 chunks, on one
 * tensor (rows; a grid; a grid in random order; all replicas) and on many. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "plan/plan.h"
#include "plan/segment.h"
#include "tests/support/must.h"
#include "tests/support/seconds.h"

#define CHUNKS_MAX ((uint64_t)1 << 20)

typedef enum shape_kind {
    ROWS,
    GRID,
    SHUFFLED_GRID,
    REPLICAS,
    MANY_TENSORS,
    SHAPE_KINDS
} shape_kind;

static const char *const names[] = {"rows", "grid", "shuffled grid", "replicas", "many tensors"};

static uint64_t side_of(uint64_t n)
{
    uint64_t side = 1;
    while (side * side < n)
        side *= 2;
    return side;
}

/* i -> a permutation of 0..n-1, n a power of two. */
static uint64_t shuffle(uint64_t i, uint64_t n)
{
    i = i * 0x9E3779B1u & (n - 1);
    i ^= i >> 7;
    return i * 0x85EBCA6Bu & (n - 1);
}

static void add_tensor(catalogue *from, target *to, unsigned ndim, const uint64_t *shape,
                       uint64_t index, uint64_t *at)
{
    static const uint64_t zeros[2];
    char name[32];
    uint32_t tensor;
    const size_t length = (size_t)snprintf(name, sizeof name, "layers.%" PRIu64 ".weight", index);
    const uint64_t nbytes = box_nelems(shape, ndim) * 2;
    const cat_chunk proto = {.place = LOCATION_ROWS, .offset_bytes = *at, .nbytes = nbytes};
    must(catalogue_add_tensor(from, name, length, DTYPE_BFLOAT16, ndim, shape, &tensor, NULL) ==
             FSDPCK_OK,
         "tensor");
    must(catalogue_add_tensor(&to->cat, name, length, DTYPE_BFLOAT16, ndim, shape, &tensor, NULL) ==
             FSDPCK_OK,
         "tensor");
    must(catalogue_add_chunk(&to->cat, tensor, zeros, shape, &proto, NULL) == FSDPCK_OK, "chunk");
    uint32_t *entry = vec_push(&to->from, NULL);
    must(entry != NULL, "memory");
    *entry = tensor;
    *at += nbytes;
}

static void add_chunk(catalogue *from, uint64_t tensor, uint64_t row, uint64_t col, uint64_t rows,
                      uint64_t cols)
{
    const uint64_t offsets[2] = {row, col};
    const uint64_t sizes[2] = {rows, cols};
    const cat_chunk proto = {.place = LOCATION_BLOB};
    must(catalogue_add_chunk(from, (uint32_t)tensor, offsets, sizes, &proto, NULL) == FSDPCK_OK,
         "chunk");
}

static void fill(shape_kind kind, uint64_t n, catalogue *from, target *to)
{
    uint32_t f;
    uint64_t at = 0;
    const uint64_t side = side_of(n);
    const uint64_t per_tensor = 512;
    must(catalogue_add_file(from, "f", 1, (uint64_t)1 << 50, 0, &f, NULL) == FSDPCK_OK, "file");
    must(catalogue_add_file(&to->cat, "", 0, 0, 0, &f, NULL) == FSDPCK_OK, "file");
    if (kind == MANY_TENSORS) {
        for (uint64_t t = 0; t < n / per_tensor; t++)
            add_tensor(from, to, 2, (const uint64_t[2]){per_tensor * 4, 8}, t, &at);
        for (uint64_t r = 0; r < per_tensor; r++) /* rank by rank, as plans of DCP are */
            for (uint64_t t = 0; t < n / per_tensor; t++)
                add_chunk(from, t, r * 4, 0, 4, 8);
    } else if (kind == ROWS || kind == REPLICAS) {
        const uint64_t copies = kind == REPLICAS ? 64 : 1;
        add_tensor(from, to, 2, (const uint64_t[2]){n / copies * 3, 8}, 0, &at);
        for (uint64_t i = 0; i < n; i++)
            add_chunk(from, 0, i % (n / copies) * 3, 0, 3, 8);
    } else {
        add_tensor(from, to, 2, (const uint64_t[2]){side * 4, n / side * 8}, 0, &at);
        for (uint64_t k = 0; k < n; k++) {
            const uint64_t i = kind == GRID ? k : shuffle(k, n);
            add_chunk(from, 0, i % side * 4, i / side * 8, 4, 8);
        }
    }
    catalogue_file(&to->cat, 0)->nbytes = at;
    must(catalogue_seal(from, NULL) == FSDPCK_OK && catalogue_seal(&to->cat, NULL) == FSDPCK_OK,
         "seal");
}

/* Every segment of every item, by which all elements must be accounted for. */
static uint64_t walk_all(const plan *p)
{
    static segment_walk s;
    uint64_t nelems = 0;
    for (uint64_t i = 0; i < plan_item_count(p); i++) {
        output_range range;
        range_walk w;
        range_part part;
        plan_get_item(p, i, &range);
        range_walk_begin(&w, p, &range);
        while (range_walk_next(&w, &part)) {
            must(part.kind == RANGE_PART_CHUNK, "parts");
            segment_walk_begin(&s, p, part.chunk, part.first_elem, part.end_elem);
            while (segment_walk_next(&s))
                nelems += s.nelems;
        }
    }
    return nelems;
}

static double measure(shape_kind kind, uint64_t n, bool print)
{
    budget b;
    catalogue from;
    target to;
    plan *p;
    plan_totals sums;
    const plan_options opt = {.replicas = REPLICAS_FIRST};
    budget_init(&b, (uint64_t)4 << 30, "metadata", NULL);
    catalogue_init(&from, &b);
    target_init(&to, &b);
    fill(kind, n, &from, &to);
    const uint64_t before = b.used_bytes;
    const double start = cpu_seconds();
    must(plan_new(&from, &to, &opt, &b, &p, NULL) == FSDPCK_OK, "plan");
    const double planned = cpu_seconds();
    const uint64_t kept = b.used_bytes - before;
    plan_get_totals(p, &sums);
    const uint64_t nelems = walk_all(p);
    const double walked = cpu_seconds();
    must(nelems * 2 == sums.target_bytes, "segments do not add up to the target");
    must(kept <= 64 * n + (1 << 20), "a plan keeps more than 64 bytes a chunk");
    plan_free(p);
    catalogue_release(&from);
    target_release(&to);
    must(b.used_bytes == 0, "memory was not given back");
    if (print)
        printf("%-14s %8" PRIu64 " chunks: plan %.3f s, segments %.3f s, %.1f bytes a chunk\n",
               names[kind], n, planned - start, walked - planned, (double)kept / (double)n);
    return walked - start;
}

/* Argument: the largest number of chunks, a power of two. */
int main(int argc, char **argv)
{
    const uint64_t most = argc > 1 ? strtoull(argv[1], NULL, 10) : CHUNKS_MAX;
    int bad = 0;
    for (int kind = 0; kind < SHAPE_KINDS; kind++) {
        const double small = measure((shape_kind)kind, most / 16, true);
        const double large = measure((shape_kind)kind, most, true);
        /* n log n over a factor of 16 is about 20; cache misses make it 40 to 75; quadratic is 256. */
        if (large > 140 * small && large > 0.5) {
            fprintf(stderr, "%s: %.3f s for 16 times the chunks of %.3f s\n", names[kind], large,
                    small);
            bad = 1;
        }
    }
    return bad;
}
