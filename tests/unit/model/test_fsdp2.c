#include <criterion/criterion.h>

#include "model/fsdp2.h"

static fsdp2_spec matrix(const uint64_t *shape, uint64_t world_size)
{
    return (fsdp2_spec){.ndim = 2,
                        .shape = shape,
                        .world_size = world_size,
                        .replicas = 1,
                        .post_forward = 1,
                        .orig_dtype = DTYPE_FLOAT32,
                        .torch = {2, 15}};
}

static void expect_sizes(const uint64_t *found, uint64_t a, uint64_t b, const char *what)
{
    cr_expect(found[0] == a && found[1] == b, "%s: (%lu, %lu), expected (%lu, %lu)", what,
              (unsigned long)found[0], (unsigned long)found[1], (unsigned long)a, (unsigned long)b);
}

/* torch.chunk of (5, 3) on 4: 2, 2, 1 and no row; each padded to 2. */
Test(fsdp2, rows_that_do_not_divide_are_padded_to_the_first_chunk)
{
    static const uint64_t shape[] = {5, 3}, rows[] = {2, 2, 1, 0}, offsets[] = {0, 2, 4, 5};
    const fsdp2_spec s = matrix(shape, 4);
    cr_assert_eq(fsdp2_check(&s, NULL), FSDPCK_OK);
    for (uint64_t r = 0; r < 8; r++) { /* the second group holds what the first does */
        fsdp2_shard shard;
        fsdp2_shard_of(&s, r, &shard);
        expect_sizes(shard.sizes, rows[r % 4], 3, "sharded_size");
        expect_sizes(shard.strides, 3, 1, "strides");
        expect_sizes(shard.padded, 2, 3, "padded");
        cr_expect_eq(shard.offset, offsets[r % 4]);
        cr_expect_eq(shard.nelems, 3 * rows[r % 4]);
        cr_expect_eq(shard.padded_nelems, 6);
    }
    const fsdp2_input in = fsdp2_input_of(&s);
    cr_expect_eq(in.dtype, DTYPE_FLOAT32);
    cr_expect_eq(in.nelems, 6);
    cr_expect_eq(in.output_nelems, 24);
}

/* From the gathered flat data: 24 elements on 2 ranks are 12 each; the sizes are those of
 * torch.chunk of the parameter. */
Test(fsdp2, after_forward_fewer_ranks_share_the_gathered_data)
{
    static const uint64_t shape[] = {5, 3};
    fsdp2_spec s = matrix(shape, 4);
    fsdp2_shard shard;
    s.post_forward = 2;
    cr_assert_eq(fsdp2_check(&s, NULL), FSDPCK_OK);
    cr_expect_eq(fsdp2_post_forward_size(&s), 2);
    fsdp2_shard_of(&s, 3, &shard);
    expect_sizes(shard.post_sizes, 2, 3, "after forward");
    cr_expect_eq(shard.post_begin, 12);
    cr_expect_eq(shard.post_end, 24);
    s.post_forward = 0;
    fsdp2_shard_of(&s, 3, &shard);
    expect_sizes(shard.post_sizes, 5, 3, "whole");
    cr_expect_eq(shard.post_begin, 0);
    cr_expect_eq(shard.post_end, 24);
    s.post_forward = 4;
    fsdp2_shard_of(&s, 3, &shard);
    expect_sizes(shard.post_sizes, 0, 3, "as before");
}

Test(fsdp2, a_group_that_does_not_divide_is_refused)
{
    static const uint64_t shape[] = {5, 3};
    fsdp2_spec s = matrix(shape, 4);
    fsdpck_error err;
    s.post_forward = 3;
    cr_assert_eq(fsdp2_check(&s, &err), FSDPCK_BADINPUT);
    cr_expect_str_eq(fsdpck_finding_name(err.finding), "MODEL-WORLD");
    s.post_forward = 8;
    cr_expect_eq(fsdp2_check(&s, NULL), FSDPCK_BADINPUT);
    s.world_size = 0;
    cr_expect_eq(fsdp2_check(&s, NULL), FSDPCK_BADINPUT);
}

Test(fsdp2, another_dim_must_divide_evenly)
{
    static const uint64_t shape[] = {3, 8};
    fsdp2_spec s = matrix(shape, 4);
    fsdp2_shard shard;
    fsdpck_error err;
    s.shard_dim = 1;
    cr_assert_eq(fsdp2_check(&s, NULL), FSDPCK_OK);
    fsdp2_shard_of(&s, 3, &shard);
    expect_sizes(shard.sizes, 3, 2, "columns");
    cr_expect_eq(shard.offset, 6);
    s.world_size = 3;
    cr_assert_eq(fsdp2_check(&s, &err), FSDPCK_UNSUPPORTED);
    cr_expect_str_eq(fsdpck_finding_name(err.finding), "LAYOUT-UNEVEN");
    s.shard_dim = 2;
    cr_assert_eq(fsdp2_check(&s, &err), FSDPCK_BADINPUT);
    cr_expect_str_eq(fsdpck_finding_name(err.finding), "MODEL-SHAPE");
    s.ndim = s.shard_dim = 0;
    cr_assert_eq(fsdp2_check(&s, &err), FSDPCK_BADINPUT);
    cr_expect_str_eq(fsdpck_finding_name(err.finding), "MODEL-SHAPE");
}

/* An empty piece keeps its other sizes; a parameter without elements has no first chunk either. */
Test(fsdp2, parameters_without_elements)
{
    static const uint64_t none[] = {0, 4}, narrow[] = {4, 0};
    fsdp2_spec s = matrix(none, 2);
    fsdp2_shard shard;
    cr_assert_eq(fsdp2_check(&s, NULL), FSDPCK_OK);
    fsdp2_shard_of(&s, 1, &shard);
    expect_sizes(shard.sizes, 0, 4, "no rows");
    cr_expect_eq(shard.padded_nelems, 0);
    s.shape = narrow;
    fsdp2_shard_of(&s, 0, &shard);
    expect_sizes(shard.sizes, 0, 0, "no columns");
    expect_sizes(shard.padded, 2, 0, "no columns, padded");
    expect_sizes(shard.strides, 1, 1, "no columns");
}

Test(fsdp2, dtypes_that_change_nothing_are_dropped)
{
    static const uint64_t shape[] = {5, 3};
    fsdp2_spec s = matrix(shape, 4);
    cr_expect_eq(fsdp2_param_dtype(&s), DTYPE_NONE);
    cr_expect_eq(fsdp2_grad_dtype(&s), DTYPE_FLOAT32);
    s.param_dtype = DTYPE_FLOAT32;
    cr_expect_eq(fsdp2_param_dtype(&s), DTYPE_NONE);
    s.param_dtype = s.reduce_dtype = DTYPE_BFLOAT16;
    cr_expect_eq(fsdp2_param_dtype(&s), DTYPE_BFLOAT16);
    cr_expect_eq(fsdp2_input_of(&s).dtype, DTYPE_BFLOAT16);
    cr_expect_eq(fsdp2_reduce_dtype(&s), DTYPE_BFLOAT16, "torch 2.15 keeps it");
    s.torch.minor = 14;
    cr_expect_eq(fsdp2_reduce_dtype(&s), DTYPE_NONE);
    cr_expect_eq(fsdp2_grad_dtype(&s), DTYPE_BFLOAT16);
    s.torch.minor = 6;
    cr_expect_eq(fsdp2_reduce_dtype(&s), DTYPE_BFLOAT16);
    s.reduce_dtype = DTYPE_NONE;
    cr_expect_eq(fsdp2_grad_dtype(&s), DTYPE_BFLOAT16, "computed in");
    s.torch.minor = 15;
    cr_expect_eq(fsdp2_grad_dtype(&s), DTYPE_FLOAT32, "upcast by autograd");
    s.orig_dtype = DTYPE_INT64;
    cr_expect_eq(fsdp2_param_dtype(&s), DTYPE_NONE, "of no floating dtype");
    s.torch.minor = 11;
    cr_expect_eq(fsdp2_param_dtype(&s), DTYPE_BFLOAT16);
}

Test(fsdp2, tensors_of_an_extension_are_cut_as_the_parameter)
{
    static const uint64_t shape[] = {5, 8}, scales[] = {5, 1};
    fsdp2_spec s = matrix(shape, 2);
    fsdp2_input in = fsdp2_extension_of(&s, DTYPE_FLOAT8_E4M3FN, 2, shape);
    cr_expect(in.dtype == DTYPE_FLOAT8_E4M3FN && in.nelems == 24 && in.output_nelems == 48);
    in = fsdp2_extension_of(&s, DTYPE_FLOAT32, 2, scales);
    cr_expect(in.nelems == 3 && in.output_nelems == 6);
    in = fsdp2_extension_of(&s, DTYPE_FLOAT32, 0, NULL);
    cr_expect(in.nelems == 1 && in.output_nelems == 2);
    s.shard_dim = 1; /* one row of scales has no such dim to cut */
    cr_expect_eq(fsdp2_check_extension(&s, 2, scales, NULL), FSDPCK_UNSUPPORTED);
    cr_expect_eq(fsdp2_check_extension(&s, 1, scales, NULL), FSDPCK_OK);
    in = fsdp2_extension_of(&s, DTYPE_FLOAT32, 1, scales);
    cr_expect_eq(in.nelems, 3);
}

Test(fsdp2, what_is_gathered_must_be_countable)
{
    static const uint64_t shape[] = {1, UINT64_C(1) << 62};
    const fsdp2_spec s = matrix(shape, 4);
    cr_expect_eq(fsdp2_check(&s, NULL), FSDPCK_LIMIT);
}
