#include <criterion/criterion.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "statedict/unflatten.h"

/* The worked units of a small model: emb (3,7), norm (3), norm (3), head tied to emb; below it
 * `blk` with a (5,3), a (5), b (3,5), and a channels-last conv (4,3,2,2). The value of each element
 * of a flat parameter is its position; -1 must never appear. */

#define DATA_MAX 8192u

typedef struct stage {
    budget memory;
    unit_list units;
    catalogue base, seen;
    source src;
    flat_adapter *view;
    float data[DATA_MAX];
    uint32_t used;
    bool has_file;
} stage;

static stage *s;

static fsdpck_status stage_locate(void *ctx, uint64_t chunk, place *where, fsdpck_error *err)
{
    stage *st = ctx;
    const cat_chunk *k = catalogue_chunk(&st->base, chunk);
    (void)err;
    *where = (place){.file = k->file,
                     .rows = true,
                     .offset_bytes = k->offset_bytes,
                     .record_offset_bytes = k->offset_bytes,
                     .record_nbytes = k->nbytes};
    return FSDPCK_OK;
}

static fsdpck_status stage_read(void *ctx, uint32_t file, uint64_t offset_bytes, void *dst,
                                uint64_t nbytes, fsdpck_error *err)
{
    (void)file;
    (void)err;
    memcpy(dst, (const char *)((stage *)ctx)->data + offset_bytes, nbytes);
    return FSDPCK_OK;
}

static void setup(void)
{
    s = calloc(1, sizeof *s);
    cr_assert_not_null(s);
    budget_init(&s->memory, 64u << 20, "metadata", NULL);
    unit_list_init(&s->units, &s->memory);
    catalogue_init(&s->base, &s->memory);
    catalogue_init(&s->seen, &s->memory);
    s->src = (source){.ctx = s, .cat = &s->base, .locate = stage_locate, .read_at = stage_read};
}

static void teardown(void)
{
    flat_adapter_free(s->view);
    catalogue_release(&s->seen);
    catalogue_release(&s->base);
    unit_list_release(&s->units);
    cr_expect_eq(s->memory.used_bytes, 0, "%" PRIu64 " bytes were not given back",
                 (uint64_t)s->memory.used_bytes);
    free(s);
}

TestSuite(unflatten, .init = setup, .fini = teardown);

/* --- units --- */

static void add_param(const char *fqn, unsigned ndim, const uint64_t *shape,
                      const uint64_t *strides)
{
    cr_assert_eq(unit_list_add_param(&s->units, fqn, strlen(fqn), ndim, shape, strides, NULL),
                 FSDPCK_OK);
}

static void begin_unit(const char *prefix, bool orig, uint32_t world)
{
    const unit proto = {.dtype = DTYPE_FLOAT32,
                        .use_orig_params = orig,
                        .alignment = orig ? 4 : 0,
                        .world_size = world};
    cr_assert_eq(unit_list_add(&s->units, &proto, prefix, strlen(prefix), "_flat_param", 11, NULL),
                 FSDPCK_OK);
}

static void end_unit(void)
{
    cr_assert_eq(unit_list_close(&s->units, NULL), FSDPCK_OK);
}

static void make_units(bool orig, uint32_t world)
{
    const uint64_t emb[] = {3, 7}, three[] = {3}, a[] = {5, 3}, five[] = {5}, b[] = {3, 5};
    const uint64_t conv[] = {4, 3, 2, 2}, last[] = {12, 1, 6, 3};

    begin_unit("", orig, world);
    add_param("emb.weight", 2, emb, NULL);
    add_param("norm.weight", 1, three, NULL);
    add_param("norm.bias", 1, three, NULL);
    cr_assert_eq(unit_list_add_shared(&s->units, "head.weight", 11, "emb.weight", 10, NULL),
                 FSDPCK_OK);
    end_unit();
    begin_unit("blk", orig, world);
    add_param("blk.a.weight", 2, a, NULL);
    add_param("blk.a.bias", 1, five, NULL);
    add_param("blk.b.weight", 2, b, NULL);
    add_param("blk.conv.weight", 4, conv, last);
    end_unit();
    cr_assert_eq(unit_list_seal(&s->units, NULL), FSDPCK_OK);
}

/* --- the first catalogue --- */

static value path_of(const char *text)
{
    value items[8], path;
    size_t count = 0;
    while (*text != '\0') {
        const size_t nbytes = strcspn(text, "/");
        const bool number = text[0] == '#';
        if (number)
            cr_assert_eq(
                value_new_bytes(&s->base.pool, text + 1, nbytes - 1, &items[count++], NULL),
                FSDPCK_OK);
        else
            cr_assert_eq(value_new_str(&s->base.pool, text, nbytes, &items[count++], NULL),
                         FSDPCK_OK);
        text += nbytes + (text[nbytes] == '/');
    }
    cr_assert_eq(value_new_from(&s->base.pool, VALUE_TUPLE, items, count, &path, NULL), FSDPCK_OK);
    return path;
}

/* path: "model/blk._flat_param", "optim/state/#0/exp_avg": the name is the same with dots. */
static uint32_t add_tensor(const char *path, unsigned ndim, uint64_t nelems, unsigned flags)
{
    char name[128];
    size_t n = 0;
    uint32_t tensor, file = 0;

    if (!s->has_file)
        cr_assert_eq(catalogue_add_file(&s->base, "data", 4, DATA_MAX * 4, CAT_NONE, &file, NULL),
                     FSDPCK_OK);
    s->has_file = true;
    for (const char *c = path; *c != '\0'; c++)
        if (*c != '#')
            name[n++] = *c == '/' ? '.' : *c;
    cr_assert_eq(
        catalogue_add_tensor(&s->base, name, n, DTYPE_FLOAT32, ndim, &nelems, &tensor, NULL),
        FSDPCK_OK);
    catalogue_tensor(&s->base, tensor)->path = path_of(path);
    catalogue_tensor(&s->base, tensor)->flags = (uint8_t)flags;
    return tensor;
}

/* `count` values from `first` on, then `padding` times -1, as one chunk of a rank. */
static void add_values(uint32_t tensor, uint64_t offset, uint64_t first, uint64_t count,
                       uint64_t padding, unsigned rank)
{
    const uint64_t sizes[1] = {count + padding};
    const cat_chunk k = {.rank = (uint16_t)rank,
                         .place = LOCATION_ROWS,
                         .offset_bytes = s->used * UINT64_C(4),
                         .nbytes = (count + padding) * 4};
    for (uint64_t i = 0; i < count + padding; i++)
        s->data[s->used++] = i < count ? (float)(first + i) : -1.0f;
    cr_assert_leq(s->used, DATA_MAX);
    cr_assert_eq(catalogue_add_chunk(&s->base, tensor, &offset, sizes, &k, NULL), FSDPCK_OK);
}

/* As a ShardedTensor: without what the ranks pad. */
static void add_sharded(const char *path, uint32_t unit_index)
{
    const unit *u = unit_at(&s->units, unit_index);
    const uint32_t tensor = add_tensor(path, 1, u->total, 0);
    for (uint32_t r = 0; r < u->world_size; r++) {
        const unit_shard h = unit_shard_of(u, r);
        if (h.end > h.begin)
            add_values(tensor, h.begin, h.begin, h.end - h.begin, 0, r);
    }
}

static void add_model(bool orig, uint32_t world)
{
    make_units(orig, world);
    add_sharded("model/_flat_param", 0);
    add_sharded("model/blk._flat_param", 1);
}

/* As bare tensors of `ranks` ranks, padding and all. */
static void add_bare(const char *path, uint32_t unit_index, uint32_t ranks)
{
    const unit *u = unit_at(&s->units, unit_index);
    for (uint32_t r = 0; r < ranks; r++) {
        const unit_shard h = unit_shard_of(u, r % u->world_size);
        char text[128];
        snprintf(text, sizeof text, "%s.rank%" PRIu32, path, r);
        const uint32_t tensor = add_tensor(text, 1, u->shard_size, CAT_TENSOR_OF_RANK);
        add_values(tensor, 0, h.begin, h.end - h.begin, u->shard_size - (h.end - h.begin), r);
    }
}

static fsdpck_status open_view_of(per_rank_policy ranks, fsdpck_error *err)
{
    const flat_adapter_options options = {.ranks = ranks, .assume_order = true};
    if (!s->base.sealed)
        cr_assert_eq(catalogue_seal(&s->base, NULL), FSDPCK_OK);
    fsdpck_error_init(err);
    return flat_adapter_new(&s->base, &s->src, &s->units, &options, &s->seen, &s->view, err);
}

static fsdpck_status open_view(bool keep_ranks, fsdpck_error *err)
{
    return open_view_of(keep_ranks ? PER_RANK_KEEP : PER_RANK_AUTO, err);
}

static void open_well(void)
{
    fsdpck_error err;
    cr_assert_eq(open_view(false, &err), FSDPCK_OK, "%s: %s", err.tensor, err.message);
}

static void expect_refused(const char *finding, const char *expected, const char *found)
{
    fsdpck_error err;
    cr_assert_eq(open_view(false, &err), FSDPCK_BADINPUT);
    cr_expect_str_eq(fsdpck_finding_name(err.finding), finding);
    cr_expect(strstr(err.expected, expected) != NULL, "expected: %s", err.expected);
    cr_expect(strstr(err.found, found) != NULL, "found: %s", err.found);
}

/* --- looking at the view --- */

static uint32_t seen_tensor(const char *name)
{
    return catalogue_find(&s->seen, name, strlen(name));
}

/* The element at `at`, from whichever chunks have it, which must agree; *copies of them. */
static float element(uint32_t tensor, const uint64_t *at, unsigned *copies)
{
    const cat_tensor *t = catalogue_tensor(&s->seen, tensor);
    const source *src = flat_adapter_source(s->view);
    float found = -2.0f;
    *copies = 0;
    for (uint64_t k = t->first_chunk; k < t->first_chunk + t->nchunks; k++) {
        uint64_t offsets[NDIM_MAX], sizes[NDIM_MAX], rows[NDIM_MAX], position = 0;
        bool inside = true;
        place where;
        float v;
        catalogue_chunk_box(&s->seen, k, offsets, sizes);
        for (unsigned d = 0; d < t->ndim; d++)
            inside = inside && at[d] >= offsets[d] && at[d] - offsets[d] < sizes[d];
        if (!inside)
            continue;
        cr_assert_eq(src->locate(src->ctx, k, &where, NULL), FSDPCK_OK);
        box_row_major_strides(sizes, t->ndim, rows);
        for (unsigned d = 0; d < t->ndim; d++)
            position += (at[d] - offsets[d]) * (where.rows ? rows[d] : where.strides[d]);
        cr_assert_eq(
            src->read_at(src->ctx, where.file, where.offset_bytes + position * 4, &v, 4, NULL),
            FSDPCK_OK);
        cr_expect(*copies == 0 || v == found, "copies differ: %g and %g", (double)found, (double)v);
        found = v;
        ++*copies;
    }
    return found;
}

/* Every element of a tensor of the view against its position in the flat parameter. */
static void expect_param(const char *name, const char *fqn, unsigned copies)
{
    const uint32_t tensor = seen_tensor(name);
    const unit_param *p = unit_list_find_param(&s->units, fqn, strlen(fqn), NULL);
    cr_assert_neq(tensor, CAT_NONE, "no tensor '%s'", name);
    cr_assert_not_null(p);
    const uint64_t *shape = unit_param_shape(&s->units, p);
    cr_assert_eq(catalogue_tensor(&s->seen, tensor)->ndim, p->ndim);
    for (unsigned d = 0; d < p->ndim; d++)
        cr_assert_eq(catalogue_shape(&s->seen, tensor)[d], shape[d]);
    for (uint64_t i = 0; i < p->nelems; i++) {
        uint64_t at[NDIM_MAX], rest = i;
        unsigned found;
        for (unsigned d = p->ndim; d-- > 0; rest /= shape[d])
            at[d] = rest % shape[d];
        uint64_t stored = 0; /* position in memory order */
        for (unsigned j = 0; j < p->ndim; j++) {
            const uint64_t d = p->permuted ? *VEC_AT(&s->units.dims, uint64_t, p->order_at + j) : j;
            stored = stored * shape[d] + at[d];
        }
        const float v = element(tensor, at, &found);
        cr_assert_eq(found, copies, "'%s': element %" PRIu64 " in %u chunks", name, i, found);
        cr_assert_eq(v, (float)(p->offset + stored), "'%s': element %" PRIu64 " is %g", name, i,
                     (double)v);
    }
}

static const char *const all_params[] = {"emb.weight",     "norm.weight", "norm.bias",
                                         "blk.a.weight",   "blk.a.bias",  "blk.b.weight",
                                         "blk.conv.weight"};
#define PARAM_COUNT (sizeof all_params / sizeof *all_params)

static void expect_all(const char *before, const char *after, unsigned copies)
{
    char name[128];
    for (size_t i = 0; i < PARAM_COUNT; i++) {
        snprintf(name, sizeof name, "%s%s%s", before, all_params[i], after);
        expect_param(name, all_params[i], copies);
    }
}

/* --- parameters --- */

Test(unflatten, every_element_in_both_modes_on_many_ranks)
{
    static const uint32_t worlds[] = {1, 2, 3, 4, 7, 8, 40, 130};
    for (unsigned i = 0; i < 2 * sizeof worlds / sizeof *worlds; i++) {
        add_model(i % 2 == 1, worlds[i / 2]);
        open_well();
        expect_all("model.", "", 1);
        expect_param("model.head.weight", "emb.weight", 1);
        cr_expect_eq(catalogue_tensor_count(&s->seen), PARAM_COUNT + 1);
        teardown();
        setup();
    }
}

Test(unflatten, bare_shards_with_padding_and_hybrid_copies)
{
    make_units(false, 2);
    add_bare("model/_flat_param", 0, 4);
    add_bare("model/blk._flat_param", 1, 4);
    open_well();
    expect_all("model.", "", 2);
}

Test(unflatten, live_names_without_a_path)
{
    make_units(true, 4);
    add_sharded("model._fsdp_wrapped_module._flat_param", 0);
    add_sharded("model._fsdp_wrapped_module.blk._fsdp_wrapped_module._flat_param", 1);
    for (uint32_t i = 0; i < 2; i++)
        catalogue_tensor(&s->base, i)->path = VALUE_OF_NONE;
    open_well();
    expect_all("model.", "", 1);
}

Test(unflatten, paths_follow_the_names)
{
    add_model(true, 4);
    open_well();
    const value path = catalogue_tensor(&s->seen, seen_tensor("model.blk.a.bias"))->path;
    cr_expect_eq(value_count(&s->seen.pool, path), 2);
    cr_expect(value_is_str(&s->seen.pool, value_item(&s->seen.pool, path, 0), "model"));
    cr_expect(value_is_str(&s->seen.pool, value_item(&s->seen.pool, path, 1), "blk.a.bias"));
}

Test(unflatten, pieces_beside_a_flat_parameter_go_and_all_else_stays)
{
    add_model(true, 4);
    add_values(add_tensor("model/norm.bias", 1, 2, 0), 0, 900, 2, 0, 1);
    add_values(add_tensor("model/emb.weight.rank0", 1, 8, CAT_TENSOR_OF_RANK), 0, 900, 8, 0, 0);
    add_values(add_tensor("model/scale", 1, 3, 0), 0, 500, 3, 0, 0);
    add_values(add_tensor("model/mean.rank0", 1, 3, CAT_TENSOR_OF_RANK), 0, 600, 3, 0, 0);
    add_values(add_tensor("model/mean.rank1", 1, 3, CAT_TENSOR_OF_RANK), 0, 600, 3, 0, 1);
    add_values(add_tensor("model/ragged.rank0", 1, 3, CAT_TENSOR_OF_RANK), 0, 700, 3, 0, 0);
    add_values(add_tensor("model/ragged.rank1", 1, 4, CAT_TENSOR_OF_RANK), 0, 700, 4, 0, 1);
    open_well();
    const uint64_t at[1] = {1};
    unsigned copies;
    cr_expect_eq(catalogue_tensor_count(&s->seen), PARAM_COUNT + 4);
    cr_expect_eq(element(seen_tensor("model.scale"), at, &copies), 501.0f);
    cr_expect_eq(copies, 1);
    cr_expect_eq(element(seen_tensor("model.mean"), at, &copies), 601.0f);
    cr_expect_eq(copies, 2);
    const source *src = flat_adapter_source(s->view);
    fsdpck_error err;
    place where;
    const uint32_t ragged = seen_tensor("model.ragged");
    cr_expect_eq(
        src->locate(src->ctx, catalogue_tensor(&s->seen, ragged)->first_chunk, &where, &err),
        FSDPCK_BADINPUT);
    cr_expect_str_eq(fsdpck_finding_name(err.finding), "RANK-DIFFER");
}

Test(unflatten, pieces_go_though_compile_put_a_part_into_their_names)
{
    make_units(true, 4);
    add_sharded("model/_flat_param", 0);
    add_sharded("model/blk._orig_mod._flat_param", 1);
    add_values(add_tensor("model/blk._orig_mod.a.bias", 1, 2, 0), 0, 900, 2, 0, 1);
    open_well();
    expect_all("model.", "", 1);
    cr_expect_eq(seen_tensor("model.blk._orig_mod.a.bias"), CAT_NONE);
    cr_expect_eq(catalogue_tensor_count(&s->seen), PARAM_COUNT + 1);
}

Test(unflatten, tensors_of_ranks_stay_apart_where_they_shall)
{
    fsdpck_error err;
    add_model(true, 4);
    add_values(add_tensor("model/mean.rank0", 1, 3, CAT_TENSOR_OF_RANK), 0, 600, 3, 0, 0);
    cr_assert_eq(open_view(true, &err), FSDPCK_OK);
    cr_expect_neq(seen_tensor("model.mean.rank0"), CAT_NONE);
}

/* `mean` differs between ranks, `scale` does not. */
static void add_plain_of_ranks(void)
{
    add_model(true, 4);
    for (unsigned r = 0; r < 3; r++) {
        char path[64];
        snprintf(path, sizeof path, "model/mean.rank%u", r);
        add_values(add_tensor(path, 1, 3, CAT_TENSOR_OF_RANK | CAT_TENSOR_DIFFERS), 0, 600 + 10 * r,
                   3, 0, r);
        snprintf(path, sizeof path, "model/scale.rank%u", r);
        add_values(add_tensor(path, 1, 3, CAT_TENSOR_OF_RANK), 0, 700, 3, 0, r);
    }
}

Test(unflatten, of_tensors_of_ranks_the_lowest_ranks_is_taken)
{
    fsdpck_error err;
    unsigned copies;
    add_plain_of_ranks();
    cr_assert_eq(open_view_of(PER_RANK_FIRST, &err), FSDPCK_OK, "%s", err.message);
    cr_assert_neq(seen_tensor("model.mean"), CAT_NONE);
    cr_expect_eq(element(seen_tensor("model.mean"), (const uint64_t[]){1}, &copies), 601.0f);
    cr_expect_eq(copies, 1);
    cr_expect_eq(catalogue_tensor(&s->seen, seen_tensor("model.mean"))->flags, 0);
    cr_expect_eq(flat_adapter_dropped(s->view), 0);
}

Test(unflatten, tensors_of_ranks_that_differ_are_left_out)
{
    fsdpck_error err;
    unsigned copies;
    add_plain_of_ranks();
    cr_assert_eq(open_view_of(PER_RANK_DROP, &err), FSDPCK_OK, "%s", err.message);
    cr_expect_eq(seen_tensor("model.mean"), CAT_NONE);
    cr_assert_neq(seen_tensor("model.scale"), CAT_NONE);
    cr_expect_eq(element(seen_tensor("model.scale"), (const uint64_t[]){2}, &copies), 702.0f);
    cr_expect_eq(copies, 3);
    cr_expect_eq(flat_adapter_dropped(s->view), 1);
}

/* --- mismatches --- */

Test(unflatten, a_flat_parameter_of_another_length)
{
    make_units(false, 4);
    add_sharded("model/_flat_param", 0);
    add_values(add_tensor("model/blk._flat_param", 1, 84, 0), 0, 0, 84, 0, 0);
    expect_refused("MODEL-MISMATCH", "83 elements, or 21 on each of 4 ranks", "84");
}

Test(unflatten, a_flat_parameter_of_no_unit)
{
    add_model(false, 4);
    add_values(add_tensor("model/other._flat_param", 1, 4, 0), 0, 0, 4, 0, 0);
    expect_refused("MODEL-MISMATCH", "one of 2 units", "");
}

Test(unflatten, a_unit_without_its_flat_parameter)
{
    make_units(false, 4);
    add_sharded("model/_flat_param", 0);
    expect_refused("MODEL-MISMATCH", "", "");
}

Test(unflatten, a_parameter_that_is_there_twice)
{
    add_model(true, 4);
    const uint64_t shape[] = {5, 3};
    uint32_t tensor;
    cr_assert_eq(catalogue_add_tensor(&s->base, "model.blk.a.weight", 18, DTYPE_FLOAT32, 2, shape,
                                      &tensor, NULL),
                 FSDPCK_OK);
    catalogue_tensor(&s->base, tensor)->path = path_of("model/blk.a.weight");
    expect_refused("MODEL-MISMATCH", "", "");
}

/* --- the optimizer --- */

static uint32_t add_object(const char *name, value path)
{
    uint32_t object;
    cr_assert_eq(catalogue_add_object(&s->base, name, strlen(name), &object, NULL), FSDPCK_OK);
    catalogue_object(&s->base, object)->path = path;
    catalogue_object(&s->base, object)->loaded = 1;
    return object;
}

/* One param_group of all numbers. */
static void add_group(uint32_t count)
{
    value items[4], list, path;
    cr_assert_eq(value_new_list(&s->base.pool, &list, NULL), FSDPCK_OK);
    for (uint32_t i = 0; i < count; i++) {
        value n;
        cr_assert_eq(value_new_int(&s->base.pool, i, &n, NULL), FSDPCK_OK);
        cr_assert_eq(value_append(&s->base.pool, list, n, NULL), FSDPCK_OK);
    }
    static const char *const texts[] = {"optim", "param_groups", "", "params"};
    for (unsigned i = 0; i < 4; i++)
        cr_assert_eq(
            i == 2 ? value_new_int(&s->base.pool, 0, &items[i], NULL)
                   : value_new_str(&s->base.pool, texts[i], strlen(texts[i]), &items[i], NULL),
            FSDPCK_OK);
    cr_assert_eq(value_new_from(&s->base.pool, VALUE_TUPLE, items, 4, &path, NULL), FSDPCK_OK);
    catalogue_object(&s->base, add_object("optim.param_groups.0.params", path))->content = list;
}

static void add_step(uint32_t number, unsigned ranks)
{
    static const uint64_t none[1];
    char path[64];
    snprintf(path, sizeof path, "optim/state/#%" PRIu32 "/step", number);
    const uint32_t tensor = add_tensor(path, 0, 0, 0);
    for (unsigned r = 0; r < ranks; r++) {
        const cat_chunk k = {.rank = (uint16_t)r,
                             .place = LOCATION_ROWS,
                             .offset_bytes = s->used * UINT64_C(4),
                             .nbytes = 4};
        s->data[s->used++] = 3.0f;
        cr_assert_eq(catalogue_add_chunk(&s->base, tensor, none, none, &k, NULL), FSDPCK_OK);
    }
}

/* Pieces of parameter `fqn` on the ranks that have some, under a number. */
static void add_pieces(uint32_t number, const char *fqn, uint32_t ranks)
{
    const unit *u = NULL;
    const unit_param *p = unit_list_find_param(&s->units, fqn, strlen(fqn), &u);
    cr_assert_not_null(p);
    const uint32_t k = (uint32_t)(p - unit_param_at(&s->units, u, 0));
    for (uint32_t r = 0; r < ranks; r++) {
        const unit_param_range q = unit_param_range_of(&s->units, u, k, r % u->world_size);
        char path[64];
        if (!q.in_shard)
            continue;
        snprintf(path, sizeof path, "optim/state/#%" PRIu32 "/exp_avg.rank%" PRIu32, number, r);
        const uint32_t tensor = add_tensor(path, 1, q.end - q.begin, CAT_TENSOR_OF_RANK);
        add_values(tensor, 0, p->offset + q.begin, q.end - q.begin, 0, r);
    }
}

static void expect_params_are(const char *const *want, size_t count)
{
    const value_pool *pool = &s->seen.pool;
    cr_assert_eq(catalogue_object_count(&s->seen), 1);
    const value list = catalogue_object(&s->seen, 0)->content;
    cr_assert_eq(value_count(pool, list), count);
    for (size_t i = 0; i < count; i++)
        cr_expect(value_is_str(pool, value_item(pool, list, i), want[i]), "%zu", i);
}

Test(unflatten, optimizer_state_of_flat_parameters)
{
    make_units(false, 4);
    for (uint32_t n = 0; n < 2; n++) {
        char path[64];
        snprintf(path, sizeof path, "optim/state/#%" PRIu32 "/exp_avg", n);
        add_step(n, 4);
        add_bare(path, n, 4);
    }
    add_group(2);
    open_well();
    expect_all("optim.state.", ".exp_avg", 1);
    const uint32_t step = seen_tensor("optim.state.blk.b.weight.step");
    unsigned copies;
    cr_assert_neq(step, CAT_NONE);
    cr_expect_eq(element(step, NULL, &copies), 3.0f);
    cr_expect_eq(copies, 4);
    cr_expect_eq(catalogue_tensor_count(&s->seen), 2 * PARAM_COUNT);
    expect_params_are(all_params, PARAM_COUNT);
}

/* A unit of all ranks, and one that each of two has of its own. */
static void make_expert(bool orig)
{
    const uint64_t gate[] = {8}, expert[] = {2, 3};
    begin_unit("", orig, 2);
    add_param("gate", 1, gate, NULL);
    end_unit();
    begin_unit("own", orig, 1);
    add_param("own.w", 2, expert, NULL);
    end_unit();
    cr_assert_eq(unit_list_seal(&s->units, NULL), FSDPCK_OK);
}

Test(unflatten, optimizer_state_that_each_rank_has_of_its_own)
{
    fsdpck_error err;
    unsigned copies;
    make_expert(false);
    add_sharded("model/_flat_param", 0); /* of the other unit torch leaves the parameters whole */
    add_bare("optim/state/#0/exp_avg", 0, 2);
    for (uint32_t r = 0; r < 2; r++) {
        char path[64];
        snprintf(path, sizeof path, "optim/state/#1/exp_avg.rank%" PRIu32, r);
        add_values(add_tensor(path, 1, 6, CAT_TENSOR_OF_RANK), 0, 100 * r, 6, 0, r);
    }
    add_group(2);
    cr_assert_eq(open_view(true, &err), FSDPCK_OK, "%s", err.message);
    for (uint32_t r = 0; r < 2; r++) {
        char name[64];
        snprintf(name, sizeof name, "optim.state.own.w.exp_avg.rank%" PRIu32, r);
        const uint32_t tensor = seen_tensor(name);
        cr_assert_neq(tensor, CAT_NONE);
        cr_expect_eq(catalogue_tensor(&s->seen, tensor)->ndim, 2);
        cr_expect_eq(element(tensor, (const uint64_t[]){1, 1}, &copies), 100.0f * (float)r + 4.0f);
        cr_expect_eq(copies, 1);
    }
}

/* In the order of the tree: the nested unit stands among its parent's parameters. */
static const char *const tree_order[] = {"emb.weight",   "blk.a.weight",    "blk.a.bias",
                                         "blk.b.weight", "blk.conv.weight", "norm.weight",
                                         "norm.bias"};

Test(unflatten, optimizer_state_of_original_parameters)
{
    for (uint32_t world = 2; world <= 8; world++) {
        make_units(true, world);
        for (uint32_t n = 0; n < PARAM_COUNT; n++)
            add_pieces(n, tree_order[n], 2 * world);
        add_group(PARAM_COUNT);
        open_well();
        expect_all("optim.state.", ".exp_avg", 2);
        expect_params_are(tree_order, PARAM_COUNT);
        teardown();
        setup();
    }
}

static void expect_state_refused(const char *name, const char *finding, const char *what)
{
    const source *src = flat_adapter_source(s->view);
    const uint32_t tensor = seen_tensor(name);
    fsdpck_error err;
    place where;
    fsdpck_error_init(&err);
    cr_assert_neq(tensor, CAT_NONE);
    cr_expect_eq(
        src->locate(src->ctx, catalogue_tensor(&s->seen, tensor)->first_chunk, &where, &err),
        FSDPCK_BADINPUT);
    cr_expect_str_eq(fsdpck_finding_name(err.finding), finding);
    cr_expect(strstr(err.message, what) != NULL, "%s", err.message);
}

Test(unflatten, an_order_that_no_tree_has_is_refused_and_the_model_stays)
{
    add_model(true, 4);
    for (uint32_t n = 0; n < PARAM_COUNT; n++)
        add_pieces(n, tree_order[PARAM_COUNT - 1 - n], 4);
    add_group(PARAM_COUNT);
    open_well();
    expect_all("model.", "", 1);
    expect_state_refused("optim.state.0.exp_avg.rank3", "MODEL-OPTIM", "no order");
    cr_assert_not_null(flat_adapter_order_error(s->view));
    cr_expect(strstr(flat_adapter_order_error(s->view)->message, "no order") != NULL);
}

Test(unflatten, pieces_that_could_mean_two_orders_are_refused)
{
    const uint64_t shape[] = {4};
    begin_unit("", true, 1);
    add_param("first", 1, shape, NULL);
    end_unit();
    begin_unit("inner", true, 1);
    add_param("inner.weight", 1, shape, NULL);
    end_unit();
    cr_assert_eq(unit_list_seal(&s->units, NULL), FSDPCK_OK);
    add_pieces(0, "first", 1);
    add_pieces(1, "inner.weight", 1);
    add_group(2);
    open_well();
    expect_state_refused("optim.state.0.exp_avg.rank0", "MODEL-NEEDED", "more than one order");
}

Test(unflatten, another_number_of_flat_parameters_is_refused)
{
    make_units(false, 4);
    add_bare("optim/state/#0/exp_avg", 0, 4);
    add_group(3);
    open_well();
    expect_state_refused("optim.state.0.exp_avg.rank0", "MODEL-OPTIM", "number of parameters that differs");
}

Test(unflatten, a_step_that_is_a_number_is_each_parameters)
{
    make_units(false, 4);
    value step;
    add_bare("optim/state/#1/exp_avg", 1, 4);
    add_bare("optim/state/#0/exp_avg", 0, 4);
    add_group(2);
    cr_assert_eq(value_new_int(&s->base.pool, 7, &step, NULL), FSDPCK_OK);
    catalogue_object(&s->base, add_object("optim.state.1.step", path_of("optim/state/#1/step")))
        ->content = step;
    open_well();
    cr_assert_eq(catalogue_object_count(&s->seen), 1 + 4);
    const cat_object *o = catalogue_object(&s->seen, 1);
    int64_t n = 0;
    cr_expect_str_eq(catalogue_name(&s->seen, o->name), "optim.state.blk.a.weight.step");
    cr_expect(value_as_i64(&s->seen.pool, o->content, &n));
    cr_expect_eq(n, 7);
}

/* --- two names of one tensor --- */

static fsdpck_status open_tied(const description_tie *ties, size_t count)
{
    const flat_adapter_options options = {.ties = ties, .tie_count = count};
    cr_assert_eq(catalogue_seal(&s->base, NULL), FSDPCK_OK);
    return flat_adapter_new(&s->base, &s->src, &s->units, &options, &s->seen, &s->view, NULL);
}

static description_tie tie_of(uint32_t first, uint32_t twin, const char *fqn)
{
    return (description_tie){.first = first,
                             .twin = twin,
                             .fqn = fqn,
                             .fqn_nbytes = strlen(fqn),
                             .first_fqn = "emb",
                             .first_fqn_nbytes = 3};
}

Test(unflatten, a_twin_is_a_replica_and_says_whose)
{
    const uint32_t emb = add_tensor("model/emb", 1, 4, 0), head = add_tensor("model/head", 1, 4, 0);
    for (unsigned rank = 0; rank < 2; rank++)
        add_values(emb, rank * 2, rank * 2, 2, 0, rank);
    for (unsigned rank = 0; rank < 2; rank++)
        add_values(head, rank * 2, rank * 2, 2, 0, rank);
    const description_tie tie = tie_of(emb, head, "head");
    cr_assert_eq(open_tied(&tie, 1), FSDPCK_OK);
    const source *src = flat_adapter_source(s->view);
    const cat_tensor *t = catalogue_tensor(&s->seen, seen_tensor("model.emb"));
    cr_assert_eq(t->nchunks, 4);
    unsigned twins = 0;
    for (uint64_t k = t->first_chunk; k < t->first_chunk + t->nchunks; k++) {
        const char *of = src->replica_of(src->ctx, k);
        place where;
        twins += of != NULL && strcmp(of, "model.head") == 0;
        cr_expect_eq(src->locate(src->ctx, k, &where, NULL), FSDPCK_OK);
    }
    cr_expect_eq(twins, 2);
    cr_expect_eq(catalogue_tensor(&s->seen, seen_tensor("model.head"))->nchunks, 2);
    cr_expect_eq(flat_adapter_ties_uncompared(s->view), 0);
}

Test(unflatten, a_twin_that_is_cut_otherwise_is_counted)
{
    const uint32_t emb = add_tensor("model/emb", 1, 4, 0), head = add_tensor("model/head", 1, 4, 0);
    add_values(emb, 0, 0, 4, 0, 0);
    add_values(head, 0, 0, 3, 0, 0);
    add_values(head, 3, 3, 1, 0, 1);
    const description_tie tie = tie_of(emb, head, "head");
    cr_assert_eq(open_tied(&tie, 1), FSDPCK_OK);
    cr_expect_eq(catalogue_tensor(&s->seen, seen_tensor("model.emb"))->nchunks, 1);
    cr_expect_eq(flat_adapter_ties_uncompared(s->view), 1);
}

Test(unflatten, a_twin_that_is_not_there_has_the_other_ones_chunks)
{
    const uint32_t emb = add_tensor("model/emb", 1, 4, 0);
    add_values(emb, 0, 0, 4, 0, 0);
    const description_tie tie = tie_of(emb, CAT_NONE, "deep.head");
    cr_assert_eq(open_tied(&tie, 1), FSDPCK_OK);
    const uint32_t head = seen_tensor("model.deep.head");
    cr_assert_neq(head, CAT_NONE);
    const cat_tensor *t = catalogue_tensor(&s->seen, head);
    cr_assert_eq(t->nchunks, 1);
    cr_expect(value_is_str(&s->seen.pool, value_item(&s->seen.pool, t->path, 1), "deep.head"));
    place where;
    cr_assert_eq(flat_adapter_source(s->view)->locate(s->view, t->first_chunk, &where, NULL),
                 FSDPCK_OK);
    cr_expect_eq(where.offset_bytes, 0);
}
