/* Random partitions: each element of each parameter is where DeepSpeed's formulas have it. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/deepspeed/ds_internal.h"

enum { PARAMS_MAX = 6, RANKS_MAX = 5, ITEMSIZE = 4, BASE = 1 << 20 };

typedef struct world {
    budget memory;
    catalogue cat;
    torch_folder reader;
    open_request req;
    ds_state s;
    uint64_t sizes[PARAMS_MAX][2];
    uint32_t groups[PARAMS_MAX];
    unsigned params, ranks;
} world;

static unsigned below(unsigned n)
{
    return (unsigned)rand() % n;
}

static void begin(world *w, unsigned stage)
{
    memset(w, 0, sizeof *w);
    budget_init(&w->memory, 1 << 26, "metadata", NULL);
    catalogue_init(&w->cat, &w->memory);
    w->reader = (torch_folder){.pieces = VEC_OF(torch_shard, &w->memory),
                               .dims = VEC_OF(uint64_t, &w->memory),
                               .cat = &w->cat};
    w->req = (open_request){.path = "folder", .metadata = &w->memory};
    w->ranks = 1 + below(RANKS_MAX);
    w->s = (ds_state){.req = &w->req,
                      .reader = &w->reader,
                      .cat = &w->cat,
                      .world = w->ranks,
                      .stage = stage,
                      .partitions = VEC_OF(ds_partition, &w->memory),
                      .params = VEC_OF(ds_param, &w->memory),
                      .shapes = VEC_OF(uint64_t, &w->memory),
                      .paddings = VEC_OF(ds_padding, &w->memory),
                      .slices = VEC_OF(ds_slice, &w->memory)};
    cr_assert_eq(file_set_init(&w->reader.files, NULL, 8, 0, NULL), FSDPCK_OK);
}

static void end(world *w)
{
    VEC_RELEASE_ALL(&w->s.partitions, &w->s.params, &w->s.shapes, &w->s.paddings, &w->s.slices,
                    &w->reader.pieces, &w->reader.dims);
    file_set_release(&w->reader.files);
    catalogue_release(&w->cat);
    cr_expect_eq(w->memory.used_bytes, 0);
}

/* A partition lies at BASE * (rank * 64 + group) of its file. */
static void add_partition(world *w, uint32_t rank, uint32_t group, uint64_t nelems)
{
    const uint64_t dims[] = {nelems, 1};
    const torch_shard piece = {.offset_bytes = (uint64_t)BASE * (rank * 64 + group),
                               .dims_at = w->reader.dims.count,
                               .flags = TORCH_SHARD_ROWS,
                               .dtype = DTYPE_FLOAT32,
                               .ndim = 1};
    const ds_partition p = {
        .rank = rank, .group = group, .piece = (uint32_t)w->reader.pieces.count, .nelems = nelems};
    cr_assert_eq(vec_add_n(&w->reader.dims, dims, 2, NULL), FSDPCK_OK);
    cr_assert_eq(vec_add(&w->reader.pieces, &piece, NULL), FSDPCK_OK);
    cr_assert_eq(vec_add(&w->s.partitions, &p, NULL), FSDPCK_OK);
}

static void add_params(world *w, unsigned groups)
{
    w->params = groups + below(PARAMS_MAX + 1 - groups);
    w->s.group_count = groups;
    for (unsigned i = 0; i < w->params; i++) {
        w->groups[i] = i < groups ? i : groups - 1;
        w->sizes[i][0] = 1 + below(9);
        w->sizes[i][1] = 1 + below(7);
        const ds_param p = {.group = w->groups[i],
                            .ndim = 2,
                            .shape_at = w->s.shapes.count,
                            .nelems = w->sizes[i][0] * w->sizes[i][1]};
        cr_assert_eq(vec_add_n(&w->s.shapes, w->sizes[i], 2, NULL), FSDPCK_OK);
        cr_assert_eq(vec_add(&w->s.params, &p, NULL), FSDPCK_OK);
    }
}

/* The catalogue has each element of the parameter at its expected byte. */
static void check_param(world *w, unsigned param, const uint64_t *expected)
{
    const ds_param *p = VEC_AT(&w->s.params, const ds_param, param);
    uint64_t seen = 0;
    uint32_t tensor;
    char name[16];
    snprintf(name, sizeof name, "p%u", param);
    cr_assert_eq(catalogue_add_tensor(&w->cat, name, strlen(name), DTYPE_FLOAT32, 2,
                                      w->sizes[param], &tensor, NULL),
                 FSDPCK_OK);
    const uint64_t first = catalogue_chunk_count(&w->cat);
    cr_assert_eq(ds_flat_dtype(&w->s, 0, p), DTYPE_FLOAT32);
    cr_assert_eq(ds_flat_add(&w->s, 0, p, tensor, NULL), FSDPCK_OK);
    for (uint64_t k = first; k < catalogue_chunk_count(&w->cat); k++) {
        uint64_t offsets[NDIM_MAX], sizes[NDIM_MAX];
        catalogue_chunk_box(&w->cat, k, offsets, sizes);
        for (uint64_t i = 0; i < sizes[0] * sizes[1]; i++, seen++) {
            const uint64_t row = offsets[0] + i / sizes[1], column = offsets[1] + i % sizes[1];
            cr_assert_eq(catalogue_chunk(&w->cat, k)->offset_bytes + i * ITEMSIZE,
                         expected[row * w->sizes[param][1] + column]);
        }
    }
    cr_assert_eq(seen, p->nelems);
}

static uint64_t place_in(uint32_t rank, uint32_t group, uint64_t at)
{
    return (uint64_t)BASE * (rank * 64 + group) + at * ITEMSIZE;
}

/* Parts of equal size, the last possibly without its padding; padding after each parameter. */
static void check_stage_2(void)
{
    world w;
    uint64_t expected[PARAMS_MAX][64], offset = 0;
    begin(&w, 2);
    const bool padded = below(2) == 0;
    add_params(&w, 1 + below(3));
    for (unsigned g = 0, i = 0; g < w.s.group_count; g++, offset = 0) {
        const unsigned from = i;
        uint64_t starts[PARAMS_MAX];
        for (; i < w.params && w.groups[i] == g; i++) {
            const ds_padding pad = {.group = g, .nelems = padded ? below(4) : 0};
            starts[i] = offset;
            offset += w.sizes[i][0] * w.sizes[i][1] + pad.nelems;
            if (padded)
                cr_assert_eq(vec_add(&w.s.paddings, &pad, NULL), FSDPCK_OK);
        }
        const uint64_t part = (offset + 2 * w.ranks - 1) / (2 * w.ranks) * 2;
        for (uint32_t r = 0; r < w.ranks; r++) {
            const bool trims = r + 1 == w.ranks && r * part < offset && below(2) == 0;
            add_partition(&w, r, g, trims ? offset - r * part : part);
        }
        for (unsigned k = from; k < i; k++)
            for (uint64_t e = 0; e < w.sizes[k][0] * w.sizes[k][1]; e++)
                expected[k][e] =
                    place_in((uint32_t)((starts[k] + e) / part), g, (starts[k] + e) % part);
    }
    cr_assert_eq(ds_flat_lay_out(&w.s, NULL), FSDPCK_OK);
    for (unsigned i = 0; i < w.params; i++)
        check_param(&w, i, expected[i]);
    end(&w);
}

/* A part of each parameter on each rank; the sub-groups are the groups of parameters. */
static void check_stage_3(void)
{
    world w;
    uint64_t expected[PARAMS_MAX][64], ends[PARAMS_MAX], total = 0, offset = 0;
    begin(&w, 3);
    add_params(&w, 1 + below(3));
    const unsigned count = w.s.group_count;
    for (unsigned i = 0; i < w.params; i++) {
        total += (w.sizes[i][0] * w.sizes[i][1] + w.ranks - 1) / w.ranks;
        ends[w.groups[i]] = total;
    }
    for (uint32_t r = 0; r < w.ranks; r++)
        for (unsigned g = 0; g < count; g++)
            add_partition(&w, r, g, ends[g] - (g == 0 ? 0 : ends[g - 1]));
    for (unsigned i = 0; i < w.params; i++) {
        const uint64_t n = w.sizes[i][0] * w.sizes[i][1], part = (n + w.ranks - 1) / w.ranks;
        for (uint64_t e = 0; e < n; e++) {
            const uint64_t at = offset + e % part;
            uint32_t g = 0;
            while (ends[g] <= at)
                g++;
            expected[i][e] = place_in((uint32_t)(e / part), g, at - (g == 0 ? 0 : ends[g - 1]));
        }
        offset += part;
    }
    cr_assert_eq(ds_flat_lay_out(&w.s, NULL), FSDPCK_OK);
    for (unsigned i = 0; i < w.params; i++)
        check_param(&w, i, expected[i]);
    end(&w);
}

Test(ds_flat, stages_1_and_2)
{
    srand(1);
    for (unsigned i = 0; i < 500; i++)
        check_stage_2();
}

Test(ds_flat, stage_3)
{
    srand(2);
    for (unsigned i = 0; i < 500; i++)
        check_stage_3();
}

/* Sub-groups of exchanged sizes: each rank has the right number of elements. */
Test(ds_flat, exchanged_sub_groups)
{
    fsdpck_error err = FSDPCK_ERROR_INIT;
    world w;
    srand(3);
    begin(&w, 3);
    add_params(&w, 2);
    uint64_t sizes[2] = {0};
    for (unsigned i = 0; i < w.params; i++)
        sizes[w.groups[i]] += (w.sizes[i][0] * w.sizes[i][1] + w.ranks - 1) / w.ranks;
    cr_assert_neq(sizes[0], sizes[1]);
    for (uint32_t r = 0; r < w.ranks; r++) {
        add_partition(&w, r, 0, sizes[1]);
        add_partition(&w, r, 1, sizes[0]);
    }
    uint32_t added;
    cr_assert_eq(file_set_add(&w.reader.files, "optim.pt", &added, NULL), FSDPCK_OK);
    cr_expect_eq(ds_flat_lay_out(&w.s, &err), FSDPCK_BADINPUT);
    cr_expect_eq(err.finding, FSDPCK_FINDING_RANK_SHAPE);
    end(&w);
}
