#include <criterion/criterion.h>
#include <string.h>

#include "fsdpck.h"

static const char flat_text[] =
    "{\"version\": 1, \"world_size\": 4, \"modules\": ["
    "{\"name\": \"\", \"class\": \"Net\", \"ddp\": true, \"fsdp\": {\"use_orig_params\": true, "
    "\"param_dtype\": \"bfloat16\"}},"
    "{\"name\": \"emb\", \"params\": [{\"name\": \"weight\", \"shape\": [11, 6], \"dtype\": "
    "\"float32\"}]},"
    "{\"name\": \"inner\", \"fsdp\": {\"use_orig_params\": true}, \"params\": ["
    "{\"name\": \"w\", \"shape\": [5, 3], \"dtype\": \"float32\"},"
    "{\"name\": \"b\", \"shape\": [5], \"dtype\": \"float32\"}]},"
    "{\"name\": \"head\", \"params\": [{\"name\": \"weight\", \"same_as\": \"emb.weight\"}]},"
    "{\"name\": \"extra\", \"ignored\": true, \"params\": [{\"name\": \"w\", \"shape\": [2], "
    "\"dtype\": \"float16\"}], \"buffers\": [{\"name\": \"n\", \"shape\": [], \"dtype\": "
    "\"int64\", \"persistent\": false}]}]}";

static const char sharded_text[] =
    "{\"version\": 1, \"world_size\": 4, \"modules\": ["
    "{\"name\": \"\", \"fully_shard\": {\"param_dtype\": \"bfloat16\"}, \"params\": ["
    "{\"name\": \"w\", \"shape\": [5, 3], \"dtype\": \"float32\"},"
    "{\"name\": \"q\", \"shape\": [4, 4], \"dtype\": \"float32\", \"all_gather\": ["
    "{\"dtype\": \"float8_e4m3fn\", \"shape\": [4, 4]}, {\"dtype\": \"float32\", \"shape\": "
    "[4, 1]}]}]},"
    "{\"name\": \"tied\", \"params\": [{\"name\": \"w\", \"same_as\": \"w\"}]}]}";

static fsdpck_model *read_model(const char *text)
{
    fsdpck_model *model = NULL;
    fsdpck_error err;
    cr_assert_eq(fsdpck_model_read(NULL, text, strlen(text), &model, &err), FSDPCK_OK, "%s: %s",
                 err.message, err.found);
    return model;
}

static fsdpck_units *make_units(const fsdpck_model *model, uint64_t world_size, uint64_t shard_size)
{
    fsdpck_units *units = NULL;
    fsdpck_error err;
    cr_assert_eq(fsdpck_units_new(model, world_size, shard_size, &units, &err), FSDPCK_OK, "%s",
                 err.message);
    return units;
}

Test(units, a_description_is_walked_and_searched)
{
    fsdpck_model *model = read_model(flat_text);
    fsdpck_model_info info = {.struct_nbytes = sizeof info};
    fsdpck_model_get_info(model, &info);
    cr_expect(info.modules == 5 && info.params == 4 && info.names == 5 && info.buffers == 1);
    cr_expect_eq(info.sharding, FSDPCK_SHARDING_FLAT);
    cr_expect_eq(info.nelems, 66 + 15 + 5 + 2);
    cr_expect_eq(info.nbytes, 4 * (66 + 15 + 5) + 2 * 2);

    fsdpck_module module = {.struct_nbytes = sizeof module};
    fsdpck_model_get_module(model, 0, &module);
    cr_expect_str_eq(module.class_name, "Net");
    cr_expect_eq(module.kinds, FSDPCK_MODULE_FSDP | FSDPCK_MODULE_DDP);
    cr_expect(module.parent == FSDPCK_NONE && module.end == 5);
    fsdpck_model_get_module(model, 2, &module);
    cr_expect(module.parent == 0 && module.first_name == 1 && module.names == 2);
    fsdpck_model_get_module(model, 99, &module);
    cr_expect_str_eq(module.path, "");

    const char *live = "module._fsdp_wrapped_module.head._orig_mod.weight";
    const uint64_t found = fsdpck_model_find_param(model, live, strlen(live));
    cr_expect_eq(found, 0, "the first name of what is tied");
    cr_expect_eq(fsdpck_model_find_param(model, "head.bias", 9), FSDPCK_NONE);
    cr_expect_eq(fsdpck_model_find_module(model, "inner", 5), 2);
    fsdpck_param p = {.struct_nbytes = sizeof p};
    fsdpck_model_get_param(model, 0, &p);
    cr_expect(p.next_name == 3 && p.first_name == 0 && !p.ignored && p.requires_grad);
    fsdpck_model_get_param(model, 4, &p);
    cr_expect_str_eq(p.dtype, "float16");
    cr_expect(p.ignored && p.itemsize_nbytes == 2);
    fsdpck_buffer b = {.struct_nbytes = sizeof b};
    fsdpck_model_get_buffer(model, 0, &b);
    cr_expect_str_eq(b.fqn, "extra.n");
    cr_expect(!b.persistent && b.nbytes == 8 && b.ndim == 0);
    fsdpck_model_close(model);
}

Test(units, flat_units_have_offsets_padding_pieces_and_boxes)
{
    fsdpck_model *model = read_model(flat_text);
    fsdpck_units *units = make_units(model, 0, 0);
    fsdpck_unit u = {.struct_nbytes = sizeof u};
    fsdpck_units_get(units, 0, &u);
    cr_expect_str_eq(u.strategy, "FULL_SHARD");
    cr_expect_str_eq(u.gather_dtype, "bfloat16");
    cr_expect_str_eq(u.reduce_dtype, "bfloat16");
    cr_expect(u.alignment == 8 && u.total == 68 && u.padding_world == 2 && u.shared == 1);
    cr_expect(u.gather_nbytes == 136 && u.shard_nbytes == 68 && u.reduce_nbytes == 136);
    cr_expect_eq(u.post_forward_size, 1, "the root keeps its parameters");
    fsdpck_units_get(units, 1, &u);
    cr_expect_str_eq(u.path, "inner");
    /* 15, padded to 16, then 5, padded to 24: 6 a rank. */
    cr_expect(u.total == 24 && u.padding_inside == 1 && u.padding_world == 3);
    cr_expect(u.shard_nelems == 6 && u.padding_ranks == 0 && u.post_forward_size == 4);
    cr_expect_eq(u.rank_nelems_max, 6);

    fsdpck_unit_param p = {.struct_nbytes = sizeof p};
    fsdpck_units_get_param(units, 1, 1, &p);
    cr_expect_str_eq(p.fqn, "inner.b");
    cr_expect(p.offset == 16 && p.padding_before == 1);
    fsdpck_param_shard piece = {.struct_nbytes = sizeof piece};
    fsdpck_units_get_param_shard(units, 1, 0, 1, &piece);
    cr_expect(piece.in_shard && piece.begin == 6 && piece.end == 12 && piece.shard_offset == 0);
    fsdpck_units_get_param_shard(units, 1, 0, 2, &piece);
    cr_expect(piece.begin == 12 && piece.end == 15 && piece.nelems == 3);
    fsdpck_box boxes[3];
    cr_expect_eq(fsdpck_units_get_boxes(units, 0, 0, 17, 34, boxes, 3), 3);
    cr_expect(boxes[0].offsets[0] == 2 && boxes[0].offsets[1] == 5 && boxes[0].sizes[1] == 1);
    cr_expect(boxes[1].offsets[0] == 3 && boxes[1].sizes[0] == 2 && boxes[1].flat == 18);
    cr_expect_eq(fsdpck_units_get_boxes(units, 0, 0, 17, 34, boxes, 1), 3, "no room for all");
    cr_expect_eq(fsdpck_units_get_boxes(units, 0, 0, 17, 67, boxes, 3), 0, "out of range");
    fsdpck_unit_shard shard = {.struct_nbytes = sizeof shard};
    fsdpck_units_get_shard(units, 1, 2, &shard);
    cr_expect(shard.begin == 12 && shard.end == 18 && shard.first_param == 0);
    cr_expect_eq(shard.end_param, 2);

    uint64_t unit, k;
    cr_assert(fsdpck_units_find(units, "inner.b", 7, &unit, &k));
    cr_expect(unit == 1 && k == 1);
    cr_assert(fsdpck_units_find(units, "module.head.weight", 18, &unit, &k));
    cr_expect(unit == 0 && k == 0);
    cr_expect_not(fsdpck_units_find(units, "extra.w", 7, &unit, &k));
    cr_expect(fsdpck_units_has(units, 0) && !fsdpck_units_has(units, 4));
    fsdpck_unit_shared s = {.struct_nbytes = sizeof s};
    fsdpck_units_get_shared(units, 0, 0, &s);
    cr_expect_str_eq(s.fqn, "head.weight");
    cr_expect_str_eq(s.same_as, "emb.weight");
    fsdpck_units_free(units);
    fsdpck_model_close(model);
}

Test(units, ranks_add_up)
{
    static const char *const texts[] = {flat_text, sharded_text};
    for (unsigned i = 0; i < 2; i++) {
        fsdpck_model *model = read_model(texts[i]);
        for (uint64_t world = 1; world <= 12; world++) {
            fsdpck_units *units = make_units(model, world, 0);
            fsdpck_units_info all = {.struct_nbytes = sizeof all};
            fsdpck_units_get_info(units, &all);
            uint64_t sum = 0;
            for (uint64_t r = 0; r < world; r++) {
                fsdpck_units_rank rank = {.struct_nbytes = sizeof rank};
                uint64_t held = 0;
                fsdpck_units_get_rank(units, r, &rank);
                sum += rank.nbytes;
                for (uint64_t unit = 0; unit < all.units; unit++) {
                    fsdpck_unit u = {.struct_nbytes = sizeof u};
                    fsdpck_units_get(units, unit, &u);
                    for (uint64_t k = 0; k < u.params; k++) {
                        fsdpck_param_shard piece = {.struct_nbytes = sizeof piece};
                        fsdpck_units_get_param_shard(units, unit, k, r, &piece);
                        held += 4 * piece.nelems;
                    }
                }
                cr_expect_eq(rank.nbytes, held + all.whole_nbytes);
                cr_expect_eq(rank.nbytes + rank.padding_nbytes, all.rank_nbytes);
            }
            cr_expect_eq(sum, all.nbytes + (world - 1) * all.whole_nbytes);
            cr_expect_eq(sum, all.rank_nbytes_total);
            fsdpck_units_free(units);
        }
        fsdpck_model_close(model);
    }
}

Test(units, fully_shard_tells_of_each_parameter)
{
    fsdpck_model *model = read_model(sharded_text);
    fsdpck_units *units = make_units(model, 0, 0);
    fsdpck_unit u = {.struct_nbytes = sizeof u};
    fsdpck_units_get(units, 0, &u);
    cr_expect(u.kind == FSDPCK_SHARDING_FULLY_SHARD && u.params == 2 && u.shared == 1);
    cr_expect_str_eq(u.gather_dtype, "uint8");
    /* 24 of bfloat16, 16 of float8, 4 scales */
    cr_expect_eq(u.gather_nbytes, 48 + 16 + 16);
    cr_expect(u.shard_nelems == 10 && u.padding_ranks == 9 && u.rank_nelems_max == 10);
    fsdpck_sharded_param p = {.struct_nbytes = sizeof p};
    fsdpck_units_get_sharded(units, 0, 0, 2, &p);
    cr_expect(p.sharded_size[0] == 1 && p.padded_sharded_param_size[0] == 2 && p.offset == 4);
    cr_expect_str_eq(p.param_dtype, "bfloat16");
    fsdpck_units_get_sharded(units, 0, 1, 2, &p);
    cr_expect_eq(p.all_gather_inputs, 2);
    fsdpck_gather_input in = {.struct_nbytes = sizeof in};
    fsdpck_units_get_input(units, 0, 1, 1, &in);
    cr_expect_str_eq(in.dtype, "float32");
    cr_expect(in.nelems == 1 && in.output_nbytes == 16);
    fsdpck_units_get_input(units, 0, 1, 2, &in);
    cr_expect_eq(in.nelems, 0, "there is no third");
    uint64_t unit = 9;
    uint64_t k = 9;
    cr_assert(fsdpck_units_find(units, "tied.w", 6, &unit, &k));
    cr_expect(unit == 0 && k == 0);
    fsdpck_units_free(units);

    units = make_units(model, 4, 2); /* HSDP: the third rank is the first of its group */
    fsdpck_units_get_sharded(units, 0, 0, 2, &p);
    cr_expect(p.sharded_size[0] == 3 && p.offset == 0);
    cr_expect(p.post_forward_size == 1 && p.post_forward_replicas == 4);
    fsdpck_units_free(units);
    fsdpck_model_close(model);
}

Test(units, sizes_that_do_not_divide_are_usage_errors)
{
    fsdpck_model *model = read_model(flat_text);
    fsdpck_units *units = NULL;
    cr_expect_eq(fsdpck_units_new(model, 6, 4, &units, NULL), FSDPCK_USAGE);
    cr_expect_eq(fsdpck_units_new(model, 4, 8, &units, NULL), FSDPCK_USAGE);
    cr_expect_eq(fsdpck_units_new(model, UINT64_MAX, 0, &units, NULL), FSDPCK_USAGE);
    cr_expect_null(units);
    fsdpck_model_close(model);
}

/* A mesh stands for the group of the model as a whole. */
Test(units, a_mesh_overrides_the_main_group_alone)
{
    static const char text[] =
        "{\"version\": 1, \"world_size\": 32, \"modules\": ["
        "{\"name\": \"\", \"fsdp\": {\"sharding_strategy\": \"HYBRID_SHARD\", \"world_size\": 8}, "
        "\"params\": [{\"name\": \"w\", \"shape\": [64], \"dtype\": \"float32\"}]},"
        "{\"name\": \"e\", \"fsdp\": {\"world_size\": 4}, "
        "\"params\": [{\"name\": \"w\", \"shape\": [64], \"dtype\": \"float32\"}]}]}";
    static const struct {
        uint64_t world_size, shard_size, main, expert;
    } rows[] = {{0, 0, 8, 4}, {64, 0, 8, 4}, {64, 16, 16, 4}, {64, 64, 64, 4}, {4, 2, 2, 4}};
    fsdpck_model *model = read_model(text);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        fsdpck_units *units = make_units(model, rows[i].world_size, rows[i].shard_size);
        fsdpck_unit u = {.struct_nbytes = sizeof u};
        fsdpck_units_info all = {.struct_nbytes = sizeof all};
        fsdpck_units_get(units, 0, &u);
        cr_expect_eq(u.world_size, rows[i].main, "row %zu", i);
        fsdpck_units_get(units, 1, &u);
        cr_expect_eq(u.world_size, rows[i].expert, "row %zu", i);
        fsdpck_units_get_info(units, &all);
        cr_expect_eq(all.group_size_min + all.group_size_max, rows[i].main + rows[i].expert);
        fsdpck_units_free(units);
    }
    fsdpck_model_close(model);
}

/* What a newer or older program passes. */
Test(units, structs_of_another_size_are_filled_as_far_as_they_go)
{
    fsdpck_model *model = read_model(flat_text);
    struct {
        fsdpck_model_info info;
        uint64_t more;
    } newer = {.info = {.struct_nbytes = sizeof newer}, .more = 7};
    fsdpck_model_get_info(model, &newer.info);
    cr_expect(newer.info.modules == 5 && newer.more == 0);
    fsdpck_model_info older = {.struct_nbytes = offsetof(fsdpck_model_info, params), .params = 7};
    fsdpck_model_get_info(model, &older);
    cr_expect(older.modules == 5 && older.params == 7);
    fsdpck_model_close(model);
}

Test(units, names_are_cleaned_into_any_room)
{
    const char *live = "module._fsdp_wrapped_module.a._orig_mod.weight";
    char name[64];
    cr_expect_eq(fsdpck_clean_fqn(live, strlen(live), 0, name, sizeof name), 15);
    cr_expect_str_eq(name, "module.a.weight");
    cr_expect_eq(fsdpck_clean_fqn(live, strlen(live), FSDPCK_CLEAN_DDP, name, 5), 8);
    cr_expect_str_eq(name, "a.we");
    cr_expect_eq(fsdpck_clean_fqn(live, strlen(live), 0, NULL, 0), 15);
    strcpy(name, live);
    cr_expect_eq(fsdpck_clean_fqn(name, strlen(name), FSDPCK_CLEAN_DDP, name, sizeof name), 8);
    cr_expect_str_eq(name, "a.weight");
}

Test(units, one_parameter_and_placements_without_a_model)
{
    static const uint64_t shape[] = {5, 3};
    fsdpck_sharded_spec spec = {.struct_nbytes = sizeof spec,
                                .ndim = 2,
                                .shape = shape,
                                .world_size = 4,
                                .post_forward = 2,
                                .dtype = "float32"};
    fsdpck_sharded_param p = {.struct_nbytes = sizeof p};
    cr_assert_eq(fsdpck_sharded_param_of(&spec, 2, &p, NULL), FSDPCK_OK);
    cr_expect(p.sharded_size[0] == 1 && p.padded_nelems == 6 && p.post_forward_begin == 0);
    cr_expect(p.post_forward_replicas == 2 && p.unsharded_stride[0] == 3);
    cr_expect_eq(fsdpck_sharded_param_of(&spec, 4, &p, NULL), FSDPCK_USAGE);
    spec.dtype = "float33";
    cr_expect_eq(fsdpck_sharded_param_of(&spec, 0, &p, NULL), FSDPCK_USAGE);

    uint64_t offset, size, world, shard, offsets[2], sizes[2];
    fsdpck_chunk_of(5, 4, 2, &offset, &size);
    cr_expect(offset == 4 && size == 1);
    cr_assert_eq(fsdpck_mesh_sizes("dp_replicate=2,dp_shard=4", &world, &shard, NULL), FSDPCK_OK);
    cr_expect(world == 8 && shard == 4);
    cr_expect_eq(fsdpck_mesh_sizes("dp_shard=2,tp=2", &world, &shard, NULL), FSDPCK_USAGE);
    cr_assert_eq(fsdpck_mesh_sizes("tp", &world, &shard, NULL), FSDPCK_USAGE);
    /* (8, 3) by tp into halves, then each by fsdp: rank 1 is fsdp 0 of tp 1. */
    static const uint64_t wide[] = {8, 3};
    cr_assert_eq(fsdpck_shard_of("fsdp=2,tp=2", "[_StridedShard(0, 2), Shard(0)]", 2, wide, 1,
                                 offsets, sizes, NULL),
                 FSDPCK_OK);
    cr_expect(offsets[0] == 4 && sizes[0] == 2 && sizes[1] == 3);
    cr_expect_eq(fsdpck_shard_of("fsdp=2", "Shard(2)", 2, wide, 1, offsets, sizes, NULL),
                 FSDPCK_USAGE);
    cr_expect_eq(fsdpck_shard_of("fsdp=2", "Shard(0)", 2, wide, 2, offsets, sizes, NULL),
                 FSDPCK_USAGE);
}
