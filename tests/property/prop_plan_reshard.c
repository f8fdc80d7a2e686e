/* The plan of a large reshard, without data: parameters with their two Adam moments, each cut by
 * rows over 1,024 ranks, to 256 ranks. Catalogues of both sides, literals and late bytes of each
 * chunk as a DCP writer has them, and the plan: in time and memory in proportion to the chunks.
 *
 * Argument: parameters (250; 3,000 make 9.2 million chunks in and 2.3 million out).
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>

#include "plan/plan.h"
#include "plan/segment.h"

#define RANKS_IN  1024u
#define RANKS_OUT 256u
#define HEAD      700u /* bytes in front of a chunk's elements, and behind them */
#define TAIL      300u

typedef struct world {
    budget metadata;
    catalogue from;
    target to;
    uint64_t tensors;
} world;

static void must(bool ok, const char *what)
{
    if (ok)
        return;
    fprintf(stderr, "prop_plan_reshard: %s\n", what);
    exit(1);
}

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Weights of 8,192 rows, every fifth of a few more, which the last ranks have no part of; every
 * eighth tensor is a bias. */
static unsigned shape_of(uint64_t parameter, uint64_t *shape)
{
    shape[0] = 8192 + (parameter % 5 == 4 ? parameter % 97 : 0);
    shape[1] = 4096;
    return parameter % 8 == 7 ? 1 : 2;
}

static void add_tensors(world *w, catalogue *c)
{
    static const char *const parts[] = {"model", "optim.exp_avg", "optim.exp_avg_sq"};
    for (uint64_t i = 0; i < w->tensors; i++) {
        char name[64];
        uint64_t shape[2];
        uint32_t tensor;
        const int n = snprintf(name, sizeof name, "%s.layers.%" PRIu64 ".weight", parts[i % 3], i / 3);
        const unsigned ndim = shape_of(i / 3, shape);
        must(catalogue_add_tensor(c, name, (size_t)n, DTYPE_FLOAT32, ndim, shape, &tensor, NULL) ==
                 FSDPCK_OK,
             "tensor");
    }
}

static void add_files(catalogue *c, uint32_t ranks)
{
    for (uint32_t r = 0; r < ranks; r++) {
        char name[32];
        uint32_t index;
        const int n = snprintf(name, sizeof name, "__%u_0.distcp", r);
        must(catalogue_add_file(c, name, (size_t)n, (uint64_t)1 << 50, r, &index, NULL) == FSDPCK_OK,
             "file");
    }
}

/* Part of rank r, by torch's rule. */
static uint64_t piece_of(uint64_t tensor, uint32_t r, uint32_t ranks, uint64_t *offsets,
                         uint64_t *sizes)
{
    (void)shape_of(tensor / 3, sizes);
    const uint64_t rows = sizes[0];
    const uint64_t each = (rows + ranks - 1) / ranks;
    offsets[0] = r * each < rows ? r * each : rows;
    offsets[1] = 0;
    sizes[0] = rows - offsets[0] < each ? rows - offsets[0] : each;
    return sizes[0] * (shape_of(tensor / 3, (uint64_t[2]){0}) == 2 ? sizes[1] : 1) * 4;
}

static void add_source(world *w)
{
    uint64_t offsets[2], sizes[2];
    add_tensors(w, &w->from);
    add_files(&w->from, RANKS_IN);
    for (uint32_t r = 0; r < RANKS_IN; r++) { /* rank by rank, as .metadata has them */
        uint64_t at = 0;
        for (uint64_t t = 0; t < w->tensors; t++) {
            const uint64_t nbytes = piece_of(t, r, RANKS_IN, offsets, sizes) + HEAD + TAIL;
            const cat_chunk proto = {.file = r,
                                     .rank = (uint16_t)r,
                                     .place = PLACE_BLOB,
                                     .offset_bytes = at,
                                     .nbytes = nbytes};
            must(catalogue_add_chunk(&w->from, (uint32_t)t, offsets, sizes, &proto, NULL) ==
                     FSDPCK_OK,
                 "chunk");
            at += nbytes;
        }
    }
    must(catalogue_seal(&w->from, NULL) == FSDPCK_OK, "seal");
}

static void make_late(const target *t, size_t index, uint32_t crc32, uint8_t *dst)
{
    (void)t, (void)index, (void)crc32, (void)dst;
}

static void place_target(world *w)
{
    must(text_check(&w->to.text, NULL) == FSDPCK_OK, "text");
    for (uint32_t r = 0; r < RANKS_OUT; r++) {
        uint64_t at = 0;
        for (uint64_t t = 0; t < w->tensors; t++) {
            const uint64_t index = catalogue_tensor(&w->to.cat, t)->first_chunk + r;
            cat_chunk *k = catalogue_chunk(&w->to.cat, index);
            if (k->place == PLACE_EMPTY)
                continue;
            must(target_add_literal_at(&w->to, r, at, 0, HEAD, NULL) == FSDPCK_OK, "literal");
            k->offset_bytes = at + HEAD;
            at += HEAD + k->nbytes;
            target_late *late = vec_push(&w->to.lates, NULL);
            must(late != NULL, "late");
            *late = (target_late){.offset_bytes = at, .chunk = index, .file = r, .nbytes = TAIL};
            at += TAIL;
        }
        catalogue_file(&w->to.cat, r)->nbytes = at;
    }
}

static void add_target(world *w)
{
    static const char zeros[HEAD];
    uint64_t offsets[2], sizes[2];
    target *to = &w->to;
    text_append(&to->text, zeros, sizeof zeros);
    add_tensors(w, &to->cat);
    add_files(&to->cat, RANKS_OUT);
    for (uint64_t t = 0; t < w->tensors; t++) {
        uint32_t *entry = vec_push(&to->from, NULL);
        must(entry != NULL, "memory");
        *entry = (uint32_t)t;
        for (uint32_t r = 0; r < RANKS_OUT; r++) {
            const uint64_t nbytes = piece_of(t, r, RANKS_OUT, offsets, sizes);
            const cat_chunk proto = {.file = r, .place = PLACE_ROWS, .nbytes = nbytes};
            must(catalogue_add_chunk(&to->cat, (uint32_t)t, offsets, sizes, &proto, NULL) ==
                     FSDPCK_OK,
                 "chunk");
        }
    }
    must(catalogue_seal(&to->cat, NULL) == FSDPCK_OK, "seal");
    place_target(w);
    to->want_crc = true;
    to->make_late = make_late;
    to->is_folder = true;
    to->world_size = RANKS_OUT;
}

/* Every segment of some items: bytes must add up to those of the items' chunks. */
static void walk_items(const plan *p)
{
    static segment_walk s;
    const uint64_t count = plan_item_count(p);
    const uint64_t step = count / 500 + 1;
    for (uint64_t i = 0; i < count; i += step) {
        output_range range;
        range_walk w;
        range_part part;
        plan_get_item(p, i, &range);
        range_walk_begin(&w, p, &range);
        while (range_walk_next(&w, &part)) {
            uint64_t nelems = 0;
            if (part.kind != PART_CHUNK)
                continue;
            segment_walk_begin(&s, p, part.chunk, part.first_elem, part.end_elem);
            while (segment_walk_next(&s))
                nelems += s.nelems;
            must(nelems == part.end_elem - part.first_elem, "segments do not add up");
        }
    }
}

static double measure(uint64_t parameters)
{
    world w = {.tensors = 3 * parameters};
    plan *p;
    plan_sums sums;
    const plan_options opt = {.replicas = REPLICAS_CRC};
    budget_init(&w.metadata, (uint64_t)8 << 30, "metadata", NULL);
    catalogue_init(&w.from, &w.metadata);
    target_init(&w.to, &w.metadata);
    const double begin = seconds();
    add_source(&w);
    const double sourced = seconds();
    const uint64_t source_nbytes = w.metadata.used_bytes;
    add_target(&w);
    const double targeted = seconds();
    const uint64_t catalogue_nbytes = w.metadata.used_bytes;
    must(plan_new(&w.from, &w.to, &opt, &w.metadata, &p, NULL) == FSDPCK_OK, "plan");
    const double planned = seconds();
    plan_get_sums(p, &sums);
    const uint64_t chunks = catalogue_chunk_count(&w.from);
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    printf("%5" PRIu64 " tensors, %8" PRIu64 " chunks in, %8" PRIu64 " out, %9" PRIu64
           " segments: source %.2f s, target %.2f s, plan %.2f s; source %.1f bytes a chunk, plan "
           "%.1f; peak %ld MB\n",
           w.tensors, sums.chunks_in, sums.chunks_out, sums.segments_at_least, sourced - begin,
           targeted - sourced, planned - targeted, (double)source_nbytes / (double)chunks,
           (double)(w.metadata.used_bytes - catalogue_nbytes) / (double)chunks,
           usage.ru_maxrss / 1000);
    fflush(stdout);
    must(source_nbytes <= 64 * chunks + (4 << 20), "more than 64 bytes a source chunk");
    must(w.metadata.used_bytes - catalogue_nbytes <= 32 * chunks, "the plan keeps too much");
    must(sums.target_bytes == sums.source_bytes, "bytes were lost");
    walk_items(p);
    plan_free(p);
    catalogue_release(&w.from);
    target_release(&w.to);
    must(w.metadata.used_bytes == 0, "memory was not given back");
    return planned - begin;
}

int main(int argc, char **argv)
{
    const uint64_t most = argc > 1 ? strtoull(argv[1], NULL, 10) : 250;
    const double small = measure(most / 10);
    const double large = measure(most);
    printf("%.1f times the time for 10 times the tensors\n", large / small);
    /* n log n gives 12; caches that are left behind a little more; quadratic is 100. */
    must(large < 40 * small || large < 0.5, "time grows faster than n log n");
    return 0;
}
