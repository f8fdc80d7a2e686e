#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "model/unit.h"
#include "unit_case.h"

typedef struct shape2 {
    const char *fqn;
    unsigned ndim;
    uint64_t sizes[2];
} shape2;

/* The worked units: W = 4, torch 2.15. */
static const shape2 tied[] = {
    {"emb.weight", 2, {3, 7}}, {"norm.weight", 1, {3}}, {"norm.bias", 1, {3}}};
static const shape2 pair[] = {{"a.weight", 2, {5, 3}}, {"a.bias", 1, {5}}, {"b.weight", 2, {3, 5}}};
static const shape2 four[] = {{"a", 1, {15}}, {"b", 1, {5}}, {"c", 1, {10}}, {"d", 1, {2}}};

TestSuite(unit, .init = setup, .fini = teardown);

static fsdpck_status start(const char *prefix, const unit *proto)
{
    return unit_list_add(&list, proto, prefix, strlen(prefix), "_flat_param", 11, &why);
}

static fsdpck_status put(const char *fqn, unsigned ndim, const uint64_t *shape,
                         const uint64_t *strides)
{
    return unit_list_add_param(&list, fqn, strlen(fqn), ndim, shape, strides, &why);
}

static fsdpck_status put_shared(const char *fqn, const char *same_as)
{
    return unit_list_add_shared(&list, fqn, strlen(fqn), same_as, strlen(same_as), &why);
}

static const unit *make(const unit *proto, const shape2 *params, unsigned count)
{
    cr_assert_eq(start("", proto), FSDPCK_OK);
    for (unsigned i = 0; i < count; i++)
        cr_assert_eq(put(params[i].fqn, params[i].ndim, params[i].sizes, NULL), FSDPCK_OK);
    cr_assert_eq(unit_list_close(&list, NULL), FSDPCK_OK);
    cr_assert_eq(unit_list_seal(&list, NULL), FSDPCK_OK);
    return unit_at(&list, 0);
}

static void expect_totals(const unit *u, uint64_t total, uint64_t shard_size)
{
    cr_expect_eq(u->total, total, "total %lu", (unsigned long)u->total);
    cr_expect_eq(u->shard_size, shard_size, "shard %lu", (unsigned long)u->shard_size);
}

static void expect_offsets(const unit *u, const uint64_t *offsets)
{
    for (uint32_t k = 0; k < u->nparams; k++)
        cr_expect_eq(unit_param_at(&list, u, k)->offset, offsets[k], "parameter %u", k);
}

static void expect_piece(const unit *u, uint32_t rank, uint32_t k, bool in_shard,
                         uint64_t shard_offset, uint64_t begin, uint64_t end)
{
    const unit_param_range p = unit_param_range_of(&list, u, k, rank);
    cr_expect_eq(p.in_shard, in_shard, "rank %u, parameter %u", rank, k);
    cr_expect_eq(p.shard_offset, shard_offset, "rank %u, parameter %u", rank, k);
    cr_expect_eq(p.begin, begin, "rank %u, parameter %u", rank, k);
    cr_expect_eq(p.end, end, "rank %u, parameter %u", rank, k);
}

static void expect_shard(const unit *u, uint32_t rank, uint64_t begin, uint64_t end,
                         uint64_t padding)
{
    const unit_shard s = unit_shard_of(u, rank);
    cr_expect_eq(s.begin, begin, "rank %u", rank);
    cr_expect_eq(s.end, end, "rank %u", rank);
    cr_expect_eq(s.padding, padding, "rank %u", rank);
}

Test(unit, alignment_is_16_bytes_of_the_compute_dtype)
{
    cr_expect_eq(unit_alignment(DTYPE_FLOAT64), 2);
    cr_expect_eq(unit_alignment(DTYPE_FLOAT32), 4);
    cr_expect_eq(unit_alignment(DTYPE_BFLOAT16), 8);
    cr_expect_eq(unit_alignment(DTYPE_FLOAT8_E4M3FN), 16);
    cr_expect_eq(unit_alignment(DTYPE_NONE), 0);
}

Test(unit, tied_head_without_orig_params)
{
    const unit proto = {.world_size = 4, .dtype = DTYPE_FLOAT32, .alignment = 4};
    const unit *u = make(&proto, tied, 3);
    expect_totals(u, 27, 7);
    expect_offsets(u, (const uint64_t[]){0, 21, 24});
    expect_shard(u, 0, 0, 7, 0);
    expect_shard(u, 3, 21, 27, 1);
    expect_piece(u, 3, 0, false, 0, 0, 0);
    expect_piece(u, 3, 1, true, 0, 0, 3);
    expect_piece(u, 3, 2, true, 3, 0, 3);
}

Test(unit, tied_head_with_orig_params)
{
    const unit proto = {
        .world_size = 4, .dtype = DTYPE_FLOAT32, .alignment = 4, .use_orig_params = true};
    const unit *u = make(&proto, tied, 3);
    expect_totals(u, 32, 8);
    expect_offsets(u, (const uint64_t[]){0, 24, 28});
    expect_shard(u, 3, 24, 32, 0);
    expect_piece(u, 2, 0, true, 0, 16, 21);
    expect_piece(u, 3, 1, true, 0, 0, 3);
    expect_piece(u, 3, 2, true, 4, 0, 3);
}

/* The rank's flat data as text: parameter and element, 42 between parameters, 0 at the end. */
static void expect_data(const unit *u, uint32_t rank, const char *expected)
{
    const unit_shard s = unit_shard_of(u, rank);
    char found[256] = "";
    size_t used = 0;
    for (uint64_t at = s.begin; at < s.end + s.padding; at++) {
        unit_param_range p = {0};
        uint32_t k = 0;
        for (; k < u->nparams; k++) {
            p = unit_param_range_of(&list, u, k, rank);
            if (p.in_shard && at - s.begin >= p.shard_offset &&
                at - s.begin - p.shard_offset < p.end - p.begin)
                break;
        }
        const uint64_t element = p.begin + (at - s.begin - p.shard_offset);
        int n = 0;
        if (k < u->nparams)
            n = snprintf(found + used, sizeof found - used, " %u:%lu", k, (unsigned long)element);
        else
            n = snprintf(found + used, sizeof found - used, " %d",
                         at < s.end ? UNIT_PADDING_VALUE : 0);
        used += (size_t)n;
        cr_assert_lt(used, sizeof found);
    }
    cr_expect_str_eq(found, expected);
}

Test(unit, data_of_the_last_rank)
{
    unit proto = {.world_size = 4, .dtype = DTYPE_FLOAT32, .alignment = 4};
    expect_data(make(&proto, tied, 3), 3, " 1:0 1:1 1:2 2:0 2:1 2:2 0");
    unit_list_release(&list);
    unit_list_init(&list, &bytes);
    proto.use_orig_params = true;
    expect_data(make(&proto, tied, 3), 3, " 1:0 1:1 1:2 42 2:0 2:1 2:2 42");
}

Test(unit, pieces_without_orig_params)
{
    const unit proto = {.world_size = 4, .dtype = DTYPE_FLOAT32};
    const unit *u = make(&proto, pair, 3);
    expect_totals(u, 35, 9);
    expect_offsets(u, (const uint64_t[]){0, 15, 20});
    /* torch: (True, 0, 6, 9, 14), (True, 6, 3, 0, 2), (False, ...) */
    expect_piece(u, 1, 0, true, 0, 9, 15);
    expect_piece(u, 1, 1, true, 6, 0, 3);
    expect_piece(u, 1, 2, false, 0, 0, 0);
    expect_shard(u, 3, 27, 35, 1);
    uint32_t first, end;
    unit_params_of_rank(&list, u, 1, &first, &end);
    cr_expect_eq(first, 0);
    cr_expect_eq(end, 2);
    unit_params_of_rank(&list, u, 3, &first, &end);
    cr_expect_eq(first, 2);
    cr_expect_eq(end, 3);
}

Test(unit, padding_with_orig_params_follows_the_compute_dtype)
{
    static const struct {
        dtype compute;
        const shape2 *params;
        unsigned count;
        uint64_t total, shard_size, offsets[4];
    } rows[] = {{DTYPE_FLOAT32, pair, 3, 40, 10, {0, 16, 24}},
                {DTYPE_BFLOAT16, four, 4, 44, 11, {0, 16, 24, 40}},
                {DTYPE_FLOAT32, four, 4, 40, 10, {0, 16, 24, 36}}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const unit proto = {.world_size = 4,
                            .dtype = DTYPE_FLOAT32,
                            .use_orig_params = true,
                            .alignment = unit_alignment(rows[i].compute)};
        const unit *u = make(&proto, rows[i].params, rows[i].count);
        expect_totals(u, rows[i].total, rows[i].shard_size);
        expect_offsets(u, rows[i].offsets);
        teardown();
        setup();
    }
}

Test(unit, torch_2_0_pads_nothing_inside)
{
    const unit proto = {.world_size = 4, .dtype = DTYPE_FLOAT32, .use_orig_params = true};
    const unit *u = make(&proto, pair, 3);
    expect_totals(u, 35, 9);
    expect_shard(u, 3, 27, 35, 1);
}

Test(unit, ranks_past_the_end_hold_padding_alone)
{
    static const shape2 two[] = {{"w", 1, {2}}};
    const unit proto = {.world_size = 4, .dtype = DTYPE_FLOAT32};
    const unit *u = make(&proto, two, 1);
    expect_totals(u, 2, 1);
    expect_shard(u, 1, 1, 2, 0);
    expect_shard(u, 2, 2, 2, 1);
    expect_shard(u, 3, 2, 2, 1);
    expect_piece(u, 3, 0, false, 0, 0, 0);
}

Test(unit, chunks_are_those_of_torch_where_fewer_than_ranks_come_out)
{
    static const shape2 five[] = {{"w", 1, {5}}};
    const unit proto = {.world_size = 4, .dtype = DTYPE_FLOAT32};
    const unit *u = make(&proto, five, 1);
    expect_totals(u, 5, 2);
    expect_shard(u, 2, 4, 5, 1);
    expect_shard(u, 3, 5, 5, 2);
}

Test(unit, no_shard_pads_for_the_ranks_and_leaves_all_to_each)
{
    const unit proto = {.world_size = 3,
                        .dtype = DTYPE_FLOAT32,
                        .alignment = 4,
                        .use_orig_params = true,
                        .unsharded = true};
    const unit *u = make(&proto, pair, 3);
    expect_totals(u, 39, 39);
    expect_shard(u, 2, 0, 39, 0);
    expect_piece(u, 2, 2, true, 24, 0, 15);
}

Test(unit, parameters_of_no_elements_are_in_the_shard_around_them)
{
    static const shape2 with_empty[] = {
        {"a", 1, {3}}, {"none", 2, {0, 4}}, {"b", 1, {3}}, {"last", 1, {0}}};
    const unit proto = {.world_size = 2, .dtype = DTYPE_FLOAT32};
    const unit *u = make(&proto, with_empty, 4);
    expect_totals(u, 6, 3);
    /* torch asks whether the shard has an element before and one at the place: neither has. */
    expect_piece(u, 0, 1, false, 0, 0, 0);
    expect_piece(u, 1, 1, false, 0, 0, 0);
    expect_piece(u, 1, 3, false, 0, 0, 0);
}

/* Boxes as text: "offsets:sizes@flat ". */
static void boxes_text(const unit_param *p, uint64_t begin, uint64_t end, text_buf *out)
{
    unit_boxes b;
    unit_boxes_init(&b, &list, p, begin, end);
    while (unit_boxes_next(&b)) {
        for (unsigned d = 0; d < p->ndim; d++)
            text_printf(out, "%lu,", (unsigned long)b.offsets[d]);
        text_puts(out, ":");
        for (unsigned d = 0; d < p->ndim; d++)
            text_printf(out, "%lu,", (unsigned long)b.sizes[d]);
        text_printf(out, "@%lu ", (unsigned long)b.flat);
    }
}

static void expect_boxes(const unit_param *p, uint64_t begin, uint64_t end, const char *want)
{
    text_buf out = {0};
    text_puts(&out, "");
    boxes_text(p, begin, end, &out);
    cr_expect_str_eq(out.text, want);
    text_release(&out);
}

Test(unit, a_piece_is_boxes_of_its_dims)
{
    const unit proto = {.world_size = 4, .dtype = DTYPE_FLOAT32};
    const unit *u = make(&proto, pair, 3);
    expect_boxes(unit_param_at(&list, u, 0), 9, 15, "3,0,:2,3,@9 ");
    expect_boxes(unit_param_at(&list, u, 0), 1, 14, "0,1,:1,2,@1 1,0,:3,3,@3 4,0,:1,2,@12 ");
    expect_boxes(unit_param_at(&list, u, 1), 0, 3, "0,:3,@0 ");
    expect_boxes(unit_param_at(&list, u, 1), 3, 3, "");
}

static const uint64_t conv[] = {4, 3, 2, 2};
static const uint64_t channels_last[] = {12, 1, 6, 3};

static const unit *make_conv(bool row_major, const uint64_t *shape, const uint64_t *strides,
                             unsigned ndim)
{
    const unit proto = {.world_size = 4, .dtype = DTYPE_FLOAT32, .row_major = row_major};
    cr_assert_eq(start("", &proto), FSDPCK_OK);
    cr_assert_eq(put("conv.weight", ndim, shape, strides), FSDPCK_OK);
    cr_assert_eq(unit_list_close(&list, NULL), FSDPCK_OK);
    return unit_at(&list, 0);
}

Test(unit, channels_last_is_in_memory_order)
{
    const unit_param *p = unit_param_at(&list, make_conv(false, conv, channels_last, 4), 0);
    cr_assert(p->permuted);
    /* Elements 0, 4, 8 of row-major order come first: the channels of one pixel. */
    expect_boxes(p, 0, 3, "0,0,0,0,:1,3,1,1,@0 ");
    expect_boxes(p, 2, 12, "0,2,0,0,:1,1,1,1,@2 0,0,0,1,:1,3,1,1,@3 0,0,1,0,:1,3,1,2,@6 ");
    expect_boxes(p, 0, 48, "0,0,0,0,:4,3,2,2,@0 ");
}

Test(unit, channels_last_before_torch_2_6_is_row_major)
{
    const unit_param *p = unit_param_at(&list, make_conv(true, conv, channels_last, 4), 0);
    cr_assert_not(p->permuted);
    expect_boxes(p, 0, 3, "0,0,0,0,:1,1,1,2,@0 0,0,1,0,:1,1,1,1,@2 ");
}

Test(unit, strides_of_dims_of_one_element_mean_nothing)
{
    static const uint64_t shape[] = {4, 3, 1, 1};
    static const uint64_t strides[] = {3, 1, 3, 3};
    cr_expect_not(unit_param_at(&list, make_conv(false, shape, strides, 4), 0)->permuted);
}

Test(unit, a_transposed_matrix_is_column_major)
{
    static const uint64_t shape[] = {2, 3};
    static const uint64_t strides[] = {1, 2};
    const unit_param *p = unit_param_at(&list, make_conv(false, shape, strides, 2), 0);
    expect_boxes(p, 1, 4, "1,0,:1,1,@1 0,1,:2,1,@2 ");
}

Test(unit, gaps_and_overlaps_are_not_supported)
{
    static const uint64_t shape[] = {2, 3};
    static const uint64_t bad[][2] = {{4, 1}, {1, 1}, {0, 1}, {3, 2}, {1, 3}};
    const unit proto = {.world_size = 1};
    cr_assert_eq(start("", &proto), FSDPCK_OK);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        const char name[] = {(char)('a' + (int)i), '\0'};
        cr_expect_eq(put(name, 2, shape, bad[i]), FSDPCK_UNSUPPORTED, "row %zu", i);
        cr_expect_str_eq(why.tensor, name);
    }
}

Test(unit, names_stand_once)
{
    static const uint64_t two[] = {2};
    const unit proto = {.world_size = 2};
    cr_assert_eq(start("a", &proto), FSDPCK_OK);
    cr_assert_eq(put("a.w", 1, two, NULL), FSDPCK_OK);
    cr_expect_eq(put("a.w", 1, two, NULL), FSDPCK_BADINPUT);
    cr_expect_str_eq(fsdpck_finding_name(why.finding), "MODEL-NAME-DUP");
    cr_expect_str_eq(why.tensor, "a.w");
    cr_expect_eq(put_shared("a.w", "a.w"), FSDPCK_BADINPUT);
    cr_assert_eq(put_shared("a.v", "a.w"), FSDPCK_OK);
    cr_expect_eq(put_shared("a.v", "a.w"), FSDPCK_BADINPUT);
    cr_expect_eq(put("a.v", 1, two, NULL), FSDPCK_BADINPUT);
    cr_assert_eq(unit_list_close(&list, NULL), FSDPCK_OK);
    cr_expect_eq(start("a", &proto), FSDPCK_BADINPUT);
    cr_expect_str_eq(fsdpck_finding_name(why.finding), "MODEL-NAME-DUP");
    cr_expect_eq(start("a.w", &proto), FSDPCK_OK, "a module may be called as a parameter is");
}

Test(unit, a_shared_name_is_one_of_a_parameter)
{
    static const uint64_t two[] = {2};
    const unit proto = {.world_size = 2};
    cr_assert_eq(start("", &proto), FSDPCK_OK);
    cr_assert_eq(put_shared("head", "emb"), FSDPCK_OK);
    cr_assert_eq(put_shared("second", "head"), FSDPCK_OK);
    cr_assert_eq(unit_list_close(&list, NULL), FSDPCK_OK);
    cr_expect_eq(unit_list_seal(&list, &why), FSDPCK_BADINPUT);
    cr_expect_str_eq(fsdpck_finding_name(why.finding), "MODEL-TIE");
    cr_expect_str_eq(why.tensor, "head");
    cr_assert_eq(start("later", &proto), FSDPCK_OK);
    cr_assert_eq(put("emb", 1, two, NULL), FSDPCK_OK);
    cr_assert_eq(unit_list_close(&list, NULL), FSDPCK_OK);
    fsdpck_error_init(&why);
    cr_expect_eq(unit_list_seal(&list, &why), FSDPCK_BADINPUT);
    cr_expect_str_eq(why.tensor, "second", "a shared name of a shared name");
}

Test(unit, units_and_parameters_are_found_by_name)
{
    static const uint64_t two[] = {2};
    const unit proto = {.world_size = 2};
    const unit *of = NULL;
    cr_assert_eq(start("", &proto), FSDPCK_OK);
    cr_assert_eq(put("emb.weight", 1, two, NULL), FSDPCK_OK);
    cr_assert_eq(put_shared("blk.head", "emb.weight"), FSDPCK_OK);
    cr_assert_eq(unit_list_close(&list, NULL), FSDPCK_OK);
    cr_assert_eq(start("none", &proto), FSDPCK_OK);
    cr_assert_eq(unit_list_close(&list, NULL), FSDPCK_OK);
    cr_assert_eq(start("blk", &proto), FSDPCK_OK);
    cr_assert_eq(put("blk.w", 1, two, NULL), FSDPCK_OK);
    cr_assert_eq(unit_list_close(&list, NULL), FSDPCK_OK);
    cr_assert_eq(unit_list_seal(&list, NULL), FSDPCK_OK);
    cr_expect_eq(unit_list_find(&list, "", 0), unit_at(&list, 0));
    cr_expect_eq(unit_list_find(&list, "blk", 3), unit_at(&list, 2));
    cr_expect_null(unit_list_find(&list, "blk.w", 5));
    cr_expect_null(unit_list_find(&list, "what", 4));
    cr_expect_eq(unit_list_find_param(&list, "blk.w", 5, &of), unit_param_at(&list, of, 0));
    cr_expect_eq(of, unit_at(&list, 2));
    cr_expect_eq(unit_list_find_param(&list, "blk.head", 8, &of),
                 unit_param_at(&list, unit_at(&list, 0), 0));
    cr_expect_eq(of, unit_at(&list, 0));
    cr_expect_null(unit_list_find_param(&list, "blk", 3, NULL));
}

Test(unit, sizes_past_63_bits_are_refused)
{
    static const uint64_t huge[] = {UINT64_C(1) << 32, UINT64_C(1) << 31};
    static const uint64_t half[] = {UINT64_C(1) << 62};
    static const uint64_t most[] = {INT64_MAX};
    static const uint64_t empty[] = {0, UINT64_MAX};
    static const uint64_t dims[NDIM_MAX + 1] = {0};
    unit proto = {.world_size = 4, .use_orig_params = true, .alignment = 4};
    cr_assert_eq(start("", &proto), FSDPCK_OK);
    cr_expect_eq(put("huge", 2, huge, NULL), FSDPCK_BADINPUT);
    cr_expect_str_eq(fsdpck_finding_name(why.finding), "MODEL-SHAPE");
    cr_expect_eq(put("dims", NDIM_MAX + 1, dims, NULL), FSDPCK_BADINPUT);
    cr_expect_eq(put("empty", 2, empty, NULL), FSDPCK_OK);
    cr_expect_eq(put("half", 1, half, NULL), FSDPCK_OK);
    cr_expect_eq(put("other", 1, half, NULL), FSDPCK_OK);
    cr_expect_eq(unit_list_close(&list, &why), FSDPCK_BADINPUT);
    cr_expect_str_eq(fsdpck_finding_name(why.finding), "MODEL-SHAPE");
    unit_list_release(&list);
    unit_list_init(&list, &bytes);
    cr_assert_eq(start("", &proto), FSDPCK_OK);
    cr_expect_eq(put("most", 1, most, NULL), FSDPCK_OK);
    cr_expect_eq(unit_list_close(&list, &why), FSDPCK_BADINPUT, "padding goes past");
    unit_list_release(&list);
    unit_list_init(&list, &bytes);
    proto = (unit){.world_size = UINT32_MAX};
    cr_assert_eq(start("", &proto), FSDPCK_OK);
    cr_expect_eq(put("most", 1, most, NULL), FSDPCK_OK);
    cr_assert_eq(unit_list_close(&list, &why), FSDPCK_OK);
    const unit_shard s = unit_shard_of(unit_at(&list, 0), UINT32_MAX - 1);
    cr_expect_eq(s.end - s.begin + s.padding, unit_at(&list, 0)->shard_size);
}

Test(unit, scaled_units_are_those_of_other_ranks)
{
    static const uint64_t two[] = {2};
    unit_list out;
    unit proto = {.world_size = 4, .dtype = DTYPE_FLOAT32, .alignment = 4, .use_orig_params = true};
    const unit expert = {.world_size = 1, .unsharded = true};
    cr_assert_eq(start("", &proto), FSDPCK_OK);
    cr_assert_eq(put("conv", 4, conv, channels_last), FSDPCK_OK);
    cr_assert_eq(put("w", 1, two, NULL), FSDPCK_OK);
    cr_assert_eq(put_shared("tied", "w"), FSDPCK_OK);
    cr_assert_eq(unit_list_close(&list, NULL), FSDPCK_OK);
    cr_assert_eq(start("expert", &expert), FSDPCK_OK);
    cr_assert_eq(put("expert.w", 1, two, NULL), FSDPCK_OK);
    cr_assert_eq(unit_list_close(&list, NULL), FSDPCK_OK);
    cr_assert_eq(unit_list_seal(&list, NULL), FSDPCK_OK);
    unit_list_init(&out, &bytes);
    cr_assert_eq(unit_list_scale(&list, 3, &out, NULL), FSDPCK_OK);
    const unit *u = unit_at(&out, 0);
    expect_totals(u, 51, 17);
    cr_expect_eq(u->world_size, 3);
    cr_expect(unit_param_at(&out, u, 0)->permuted);
    cr_expect_arr_eq((const uint64_t *)out.dims.items + unit_param_at(&out, u, 0)->order_at,
                     ((const uint64_t[]){0, 2, 3, 1}), 4 * sizeof(uint64_t));
    cr_expect_str_eq(unit_name(&out, unit_shared_at(&out, u, 0)->fqn, NULL), "tied");
    cr_expect_str_eq(unit_name(&out, unit_shared_at(&out, u, 0)->same_as, NULL), "w");
    cr_expect_eq(unit_at(&out, 1)->world_size, 1, "experts of one rank stay");
    cr_expect(unit_at(&out, 1)->unsharded);
    unit_list_release(&out);
}

Test(unit, one_rank_scaled_up_is_sharded)
{
    unit_list out;
    const unit proto = {.world_size = 1, .unsharded = true};
    make(&proto, pair, 3);
    unit_list_init(&out, &bytes);
    cr_assert_eq(unit_list_scale(&list, 4, &out, NULL), FSDPCK_OK);
    expect_totals(unit_at(&out, 0), 35, 9);
    unit_list_release(&out);
}

Test(unit, scaled_to_as_many_ranks_as_now_is_a_copy)
{
    unit_list out;
    const unit proto = {.world_size = 3, .unsharded = true};
    make(&proto, pair, 3);
    unit_list_init(&out, &bytes);
    cr_assert_eq(unit_list_scale(&list, 0, &out, NULL), FSDPCK_OK);
    cr_expect_eq(unit_at(&out, 0)->world_size, 3);
    expect_totals(unit_at(&out, 0), 35, 35);
    unit_list_release(&out);
}
