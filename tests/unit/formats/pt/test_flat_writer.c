#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/pt/pt.h"
#include "ranks_checkpoint.h"
#include "select/select.h"
#include "tests/support/scratch.h"
#include "tests/support/target_write.h"

/* Source tensors -> aim -> the writer -> the reader: what each record of a flat parameter holds. */

typedef struct param {
    const char *fqn;
    unsigned ndim;
    uint64_t shape[4];
    uint64_t strides[4]; /* 0: contiguous */
} param;

/* W = 4, torch 2.15. */
static const param tied[] = {
    {"emb.weight", 2, {3, 7}, {0}}, {"norm.weight", 1, {3}, {0}}, {"norm.bias", 1, {3}, {0}}};
static const param pair[] = {
    {"a.weight", 2, {5, 3}, {0}}, {"a.bias", 1, {5}, {0}}, {"b.weight", 2, {3, 5}, {0}}};
static const param four[] = {
    {"a", 1, {15}, {0}}, {"b", 1, {5}, {0}}, {"c", 1, {10}, {0}}, {"d", 1, {2}, {0}}};
/* (N, C, H, W) in the order N, H, W, C. */
static const param conv[] = {{"bias", 1, {2}, {0}}, {"conv", 4, {2, 3, 2, 2}, {12, 1, 6, 3}}};

static char scratch[SCRATCH_BYTES];
static budget owner;
static catalogue from;
static checkpoint_parts parts;
static unit_list units;
static layout cut;
static target to;
static select_result result;
static fsdpck_error err;

static void setup(void)
{
    scratch_make(scratch);
    budget_init(&owner, 64 << 20, "metadata", NULL);
    catalogue_init(&from, &owner);
    memset(&parts, 0, sizeof parts);
    unit_list_init(&units, &owner);
    layout_init(&cut, &owner);
    target_init(&to, &owner);
    fsdpck_error_init(&err);
}

static void teardown(void)
{
    select_result_release(&result);
    target_release(&to);
    layout_release(&cut);
    unit_list_release(&units);
    checkpoint_parts_release(&parts);
    catalogue_release(&from);
    cr_expect_eq(owner.used_bytes, 0);
    scratch_remove(scratch);
}

TestSuite(flat_writer, .init = setup, .fini = teardown);

static void add_source(const char *name, dtype d, unsigned ndim, const uint64_t *shape)
{
    static const uint64_t zeros[4] = {0};
    const cat_chunk whole = {.file = 0, .rank = UINT16_MAX, .place = LOCATION_ROWS};
    uint32_t tensor;
    cr_assert_eq(catalogue_add_tensor(&from, name, strlen(name), d, ndim, shape, &tensor, &err),
                 FSDPCK_OK);
    cr_assert_eq(catalogue_add_chunk(&from, tensor, zeros, shape, &whole, &err), FSDPCK_OK);
}

static void add_unit(const unit *proto, const char *prefix, const param *params, unsigned count)
{
    cr_assert_eq(unit_list_add(&units, proto, prefix, strlen(prefix), "_flat_param", 11, &err),
                 FSDPCK_OK);
    for (unsigned i = 0; i < count; i++) {
        const param *p = &params[i];
        cr_assert_eq(unit_list_add_param(&units, p->fqn, strlen(p->fqn), p->ndim, p->shape,
                                         p->strides[0] > 0 ? p->strides : NULL, &err),
                     FSDPCK_OK);
        add_source(p->fqn, (dtype)proto->dtype, p->ndim, p->shape);
    }
    cr_assert_eq(unit_list_close(&units, &err), FSDPCK_OK);
}

/* Every tensor holds 100 times its number, and the number of each element. */
static void fill(void *ctx, const catalogue *cat, uint32_t tensor, uint64_t element, uint8_t *dst)
{
    target_fill_index(ctx, cat, tensor, 100 * (uint64_t)tensor + element, dst);
}

static fsdpck_status aim(const char *mesh_text)
{
    const shard_request request_placements = {.layout = &cut, .every_rank = true, .units = &units};
    const select_request request = {.part = PART_MODEL,
                                    .holds = fsdp1_writer.holds,
                                    .format = fsdp1_writer.name,
                                    .sharding = &request_placements};
    cr_assert_eq(unit_list_seal(&units, &err), FSDPCK_OK, "%s", err.message);
    cr_assert_eq(catalogue_seal(&from, &err), FSDPCK_OK, "%s", err.message);
    cr_assert_eq(checkpoint_parts_find(&from, &parts, &err), FSDPCK_OK);
    cr_assert_eq(mesh_parse(mesh_text, &cut.mesh, &err), FSDPCK_OK);
    return select_build_target(&from, &parts, &request, &to, &result, &err);
}

static void write_all(const char *mesh_text)
{
    cr_assert_eq(aim(mesh_text), FSDPCK_OK, "%s", err.message);
    cr_assert_eq(fsdp1_writer.layout(&to, NULL, &err), FSDPCK_OK, "%s", err.message);
    cr_assert_eq(target_write(&to, &fsdp1_writer, scratch, fill, NULL, &err), FSDPCK_OK, "%s",
                 err.message);
}

/* A 1-dim tensor assembled from the files, as numbers; each rank's chunk is one run. */
static unsigned read_flat(ranks_checkpoint *o, const char *name, unsigned *numbers,
                          unsigned *chunks)
{
    const uint32_t index = ranks_tensor_named(o, name);
    cr_assert_neq(index, CAT_NONE, "%s", name);
    const cat_tensor *t = catalogue_tensor(&o->cat, index);
    const size_t itemsize = dtype_get((dtype)t->dtype)->itemsize_bytes;
    *chunks = t->nchunks;
    for (uint32_t i = 0; i < t->nchunks; i++) {
        uint64_t offset, size;
        place where;
        catalogue_chunk_box(&o->cat, t->first_chunk + i, &offset, &size);
        if (size == 0)
            continue;
        cr_assert_eq(o->src.locate(o->src.ctx, t->first_chunk + i, &where, &err), FSDPCK_OK);
        for (uint64_t k = 0; k < size; k++) {
            uint8_t bytes[4] = {0};
            float f;
            cr_assert_eq(o->src.read_at(o->src.ctx, where.file, where.offset_bytes + k * itemsize,
                                        bytes + 4 - itemsize, itemsize, &err),
                         FSDPCK_OK);
            memcpy(&f, bytes, sizeof f);
            numbers[offset + k] = (unsigned)f;
        }
    }
    return (unsigned)catalogue_tensor_nelems(&o->cat, index);
}

typedef struct run_of {
    unsigned first, count; /* numbers from `first` on; 42: padding, the same number */
} run_of;

static void expect_flat(const char *name, const run_of *runs, unsigned chunks_wanted)
{
    ranks_checkpoint o = {0};
    unsigned numbers[256], chunks, at = 0;
    cr_assert_eq(ranks_checkpoint_open(&o, scratch, &err), FSDPCK_OK, "%s", err.message);
    const unsigned nelems = read_flat(&o, name, numbers, &chunks);
    cr_expect_eq(chunks, chunks_wanted, "%u chunks", chunks);
    for (const run_of *r = runs; r->count > 0; r++)
        for (unsigned i = 0; i < r->count; i++, at++)
            cr_expect_eq(numbers[at], r->first == 42 ? 42 : r->first + i, "element %u: %u", at,
                         numbers[at]);
    cr_expect_eq(at, nelems, "%u elements, expected %u", nelems, at);
    ranks_checkpoint_close(&o);
}

static unit proto_of(bool orig, dtype d, uint32_t alignment)
{
    return (unit){
        .world_size = 4, .use_orig_params = orig, .dtype = (uint8_t)d, .alignment = alignment};
}

static void write_unit(bool orig, dtype d, uint32_t alignment, const char *prefix,
                       const param *params, unsigned count)
{
    const unit proto = proto_of(orig, d, alignment);
    add_unit(&proto, prefix, params, count);
    write_all("fsdp=4");
}

Test(flat_writer, without_orig_params_nothing_is_padded)
{
    write_unit(false, DTYPE_FLOAT32, 4, "", tied, 3);
    cr_expect_eq(scratch_count(scratch), 4);
    expect_flat("_flat_param", (const run_of[]){{0, 21}, {100, 3}, {200, 3}, {0, 0}}, 4);
}

Test(flat_writer, with_orig_params_padding_is_42)
{
    write_unit(true, DTYPE_FLOAT32, 4, "", tied, 3);
    expect_flat("_flat_param",
                (const run_of[]){{0, 21}, {42, 3}, {100, 3}, {42, 1}, {200, 3}, {42, 1}, {0, 0}},
                4);
}

Test(flat_writer, a_piece_that_is_several_boxes)
{
    write_unit(false, DTYPE_FLOAT32, 4, "", pair, 3);
    expect_flat("_flat_param", (const run_of[]){{0, 15}, {100, 5}, {200, 15}, {0, 0}}, 4);
    /* Elements 0 to 8 of (5, 3) are whole rows, 9 to 14 too; of (3, 5), 20 to 34 of the flat one,
     * rank 2 has 7 elements and rank 3 has 8. */
    cr_expect_eq(catalogue_tensor(&to.cat, 0)->nchunks, 2);
    cr_expect_eq(catalogue_tensor(&to.cat, 2)->nchunks, 4);
}

Test(flat_writer, with_orig_params_and_a_world_to_fill)
{
    write_unit(true, DTYPE_FLOAT32, 4, "", pair, 3);
    expect_flat("_flat_param",
                (const run_of[]){{0, 15}, {42, 1}, {100, 5}, {42, 3}, {200, 15}, {42, 1}, {0, 0}},
                4);
}

Test(flat_writer, bf16_compute_aligns_to_8)
{
    write_unit(true, DTYPE_FLOAT32, 8, "", four, 4);
    expect_flat(
        "_flat_param",
        (const run_of[]){
            {0, 15}, {42, 1}, {100, 5}, {42, 3}, {200, 10}, {42, 6}, {300, 2}, {42, 2}, {0, 0}},
        4);
}

Test(flat_writer, bf16_parameters_are_padded_in_bf16)
{
    static const param halves[] = {{"a", 1, {5}, {0}}, {"b", 1, {20}, {0}}};
    write_unit(true, DTYPE_BFLOAT16, 8, "blk", halves, 2);
    expect_flat("blk._flat_param", (const run_of[]){{0, 5}, {42, 3}, {100, 20}, {0, 0}}, 4);
}

/* Memory order: rows of one pixel's channels, which are 4 elements apart in row-major order. */
Test(flat_writer, channels_last_is_in_memory_order)
{
    unsigned numbers[256], chunks, at = 2;
    ranks_checkpoint o = {0};
    write_unit(false, DTYPE_FLOAT32, 4, "", conv, 2);
    cr_assert_eq(ranks_checkpoint_open(&o, scratch, &err), FSDPCK_OK, "%s", err.message);
    cr_expect_eq(read_flat(&o, "_flat_param", numbers, &chunks), 26);
    for (unsigned n = 0; n < 2; n++)
        for (unsigned pixel = 0; pixel < 4; pixel++)
            for (unsigned c = 0; c < 3; c++, at++)
                cr_expect_eq(numbers[at], 100 + n * 12 + c * 4 + pixel, "element %u: %u", at,
                             numbers[at]);
    ranks_checkpoint_close(&o);
}

/* 3 elements over 4 ranks: the last rank's file records that, and has no shard. */
Test(flat_writer, a_rank_may_have_nothing)
{
    static const param few[] = {{"w", 1, {3}, {0}}};
    write_unit(false, DTYPE_FLOAT32, 4, "", few, 1);
    expect_flat("_flat_param", (const run_of[]){{0, 3}, {0, 0}}, 3);
}

Test(flat_writer, what_is_of_no_unit_is_on_every_rank)
{
    const unit proto = proto_of(false, DTYPE_FLOAT32, 4);
    add_unit(&proto, "", tied, 3);
    add_source("steps", DTYPE_INT64, 1, (const uint64_t[]){5});
    write_all("fsdp=4");
    cr_expect_eq(catalogue_tensor(&to.cat, 3)->nchunks, 4);
    cr_expect_eq(*VEC_AT(&to.flat_params, uint32_t, 3), CAT_NONE);
}

/* One of the two names has a place; it may be either. */
Test(flat_writer, a_shared_name_has_no_place_of_its_own)
{
    const unit proto = proto_of(false, DTYPE_FLOAT32, 4);
    add_source("head.weight", DTYPE_FLOAT32, 2, tied[0].shape);
    add_unit(&proto, "", tied, 3);
    cr_assert_eq(unit_list_add(&units, &proto, "top", 3, "_flat_param", 11, &err), FSDPCK_OK);
    cr_assert_eq(unit_list_add_shared(&units, "head.weight", 11, "emb.weight", 10, &err),
                 FSDPCK_OK);
    cr_assert_eq(unit_list_close(&units, &err), FSDPCK_OK);
    write_all("fsdp=4");
    cr_expect_eq(result.tied_dropped, 1);
    cr_assert_eq(result.tied_names.count, 1);
    cr_expect_str_eq(result.tied_names.list[0], "head.weight = emb.weight");
    expect_flat("_flat_param", (const run_of[]){{0, 21}, {100, 3}, {200, 3}, {0, 0}}, 4);
}

Test(flat_writer, the_only_name_there_is_may_be_the_shared_one)
{
    const unit proto = proto_of(false, DTYPE_FLOAT32, 4);
    cr_assert_eq(unit_list_add(&units, &proto, "", 0, "_flat_param", 11, &err), FSDPCK_OK);
    cr_assert_eq(unit_list_add_param(&units, "emb", 3, 1, (const uint64_t[]){6}, NULL, &err),
                 FSDPCK_OK);
    cr_assert_eq(unit_list_add_shared(&units, "head", 4, "emb", 3, &err), FSDPCK_OK);
    cr_assert_eq(unit_list_close(&units, &err), FSDPCK_OK);
    add_source("head", DTYPE_FLOAT32, 1, (const uint64_t[]){6});
    write_all("fsdp=4");
    expect_flat("_flat_param", (const run_of[]){{0, 6}, {0, 0}}, 3);
}

static void expect_refused(fsdpck_status status, const char *finding, const char *tensor)
{
    cr_expect_eq(aim("fsdp=4"), status, "%s", err.message);
    cr_expect_str_eq(fsdpck_finding_name(err.finding), finding);
    cr_expect_str_eq(err.tensor, tensor);
}

Test(flat_writer, a_parameter_that_is_not_there)
{
    const unit proto = proto_of(false, DTYPE_FLOAT32, 4);
    cr_assert_eq(unit_list_add(&units, &proto, "", 0, "_flat_param", 11, &err), FSDPCK_OK);
    cr_assert_eq(unit_list_add_param(&units, "a", 1, 1, (const uint64_t[]){6}, NULL, &err),
                 FSDPCK_OK);
    cr_assert_eq(unit_list_close(&units, &err), FSDPCK_OK);
    add_source("b", DTYPE_FLOAT32, 1, (const uint64_t[]){6});
    expect_refused(FSDPCK_BADINPUT, "MODEL-MISMATCH", "a");
}

Test(flat_writer, another_shape)
{
    const unit proto = proto_of(false, DTYPE_FLOAT32, 4);
    cr_assert_eq(unit_list_add(&units, &proto, "", 0, "_flat_param", 11, &err), FSDPCK_OK);
    cr_assert_eq(unit_list_add_param(&units, "a", 1, 2, (const uint64_t[]){2, 3}, NULL, &err),
                 FSDPCK_OK);
    cr_assert_eq(unit_list_close(&units, &err), FSDPCK_OK);
    add_source("a", DTYPE_FLOAT32, 2, (const uint64_t[]){3, 2});
    expect_refused(FSDPCK_BADINPUT, "MODEL-MISMATCH", "a");
    cr_expect_str_eq(err.expected, "[2, 3]");
    cr_expect_str_eq(err.found, "[3, 2]");
}

Test(flat_writer, two_dtypes_in_one_unit)
{
    const unit proto = proto_of(false, DTYPE_FLOAT32, 4);
    cr_assert_eq(unit_list_add(&units, &proto, "", 0, "_flat_param", 11, &err), FSDPCK_OK);
    for (int i = 0; i < 2; i++) {
        const char *name = i == 0 ? "a" : "b";
        cr_assert_eq(unit_list_add_param(&units, name, 1, 1, (const uint64_t[]){6}, NULL, &err),
                     FSDPCK_OK);
        add_source(name, i == 0 ? DTYPE_FLOAT32 : DTYPE_BFLOAT16, 1, (const uint64_t[]){6});
    }
    cr_assert_eq(unit_list_close(&units, &err), FSDPCK_OK);
    expect_refused(FSDPCK_UNSUPPORTED, "KEY-DTYPE", "b");
}

Test(flat_writer, integers_are_not_flattened)
{
    static const param ints[] = {{"a", 1, {6}, {0}}};
    const unit proto = proto_of(false, DTYPE_INT64, 0);
    add_unit(&proto, "", ints, 1);
    expect_refused(FSDPCK_UNSUPPORTED, "KEY-DTYPE", "a");
}

/* Metadata of 64 ranks in 64 files: stored once, except each rank's own. */
Test(flat_writer, texts_of_the_ranks_are_held_once)
{
    static char names[40][8];
    unit proto = proto_of(false, DTYPE_FLOAT32, 4);
    proto.world_size = 64;
    for (int i = 0; i < 40; i++) {
        const param p = {names[i], 1, {640}, {0}};
        snprintf(names[i], sizeof names[i], "m%02d.w", i);
        char prefix[8];
        snprintf(prefix, sizeof prefix, "m%02d", i);
        add_unit(&proto, prefix, &p, 1);
    }
    cr_assert_eq(aim("fsdp=64"), FSDPCK_OK, "%s", err.message);
    cr_assert_eq(fsdp1_writer.layout(&to, NULL, &err), FSDPCK_OK, "%s", err.message);
    cr_expect_gt(to.text.nbytes, 40 * 64 * 40);
    cr_expect_lt(to.text.nbytes, 3 << 20, "%zu", to.text.nbytes);
}
