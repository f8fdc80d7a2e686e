/* Getters with an index out of range fill zeros. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fsdpck.h"

static fsdpck_context *ctx;
static fsdpck_checkpoint *src;
static char path[4096];

static void setup(void)
{
    ctx = fsdpck_context_new();
    snprintf(path, sizeof path, "%s/torch-2.15.0/dcp-fsdp2", getenv("FIXTURES"));
    cr_assert_eq(fsdpck_open(ctx, path, NULL, &src, NULL), FSDPCK_OK);
}

static void teardown(void)
{
    fsdpck_close(src);
    fsdpck_context_free(ctx);
}

TestSuite(getters, .init = setup, .fini = teardown);

/* A struct of `type` full of other bytes, filled by `call`, has zeros after its size. */
#define EXPECT_ZEROS(type, call)                                     \
    do {                                                             \
        type got, zeros = FSDPCK_INIT(type);                         \
        memset(&got, 0xa5, sizeof got);                              \
        got.struct_nbytes = sizeof got;                              \
        call;                                                        \
        cr_expect_eq(memcmp(&got, &zeros, sizeof got), 0, "" #call); \
    } while (0)

Test(getters, of_a_checkpoint)
{
    fsdpck_info info = FSDPCK_INIT(fsdpck_info);
    fsdpck_get_info(src, &info);
    char text[8] = "other", *object = NULL;
    EXPECT_ZEROS(fsdpck_tensor, fsdpck_get_tensor(src, info.tensors, &got));
    EXPECT_ZEROS(fsdpck_tensor, fsdpck_get_tensor(src, UINT64_MAX, &got));
    EXPECT_ZEROS(fsdpck_chunk, fsdpck_get_chunk(src, info.chunks, &got));
    EXPECT_ZEROS(fsdpck_object, fsdpck_get_object(src, info.objects, &got));
    fsdpck_describe_chunks(src, info.tensors, text, sizeof text);
    cr_expect_str_eq(text, "");
    cr_expect_eq(fsdpck_print_object(src, info.objects, 100, &object, NULL), FSDPCK_USAGE);
    cr_expect_null(object);
}

Test(getters, of_digests_and_files)
{
    fsdpck_digests *d = NULL;
    fsdpck_files *f = NULL;
    fsdpck_digests_info info = FSDPCK_INIT(fsdpck_digests_info);
    cr_assert_eq(fsdpck_digests_new(ctx, src, NULL, &d, NULL), FSDPCK_OK);
    fsdpck_digests_get_info(d, &info);
    EXPECT_ZEROS(fsdpck_digest, fsdpck_digests_get(d, info.tensors, &got));
    cr_assert_eq(fsdpck_files_new(ctx, src, 1, 0, &f, NULL), FSDPCK_OK);
    EXPECT_ZEROS(fsdpck_file, fsdpck_files_get(f, fsdpck_files_count(f), &got));
    fsdpck_files_free(f);
    fsdpck_digests_free(d);
}

Test(getters, of_a_diff_and_a_verification)
{
    fsdpck_diff *d = NULL;
    fsdpck_verify *v = NULL;
    fsdpck_verify_info info = FSDPCK_INIT(fsdpck_verify_info);
    cr_assert_eq(fsdpck_diff_new(ctx, src, src, NULL, &d, NULL), FSDPCK_OK);
    EXPECT_ZEROS(fsdpck_diff_row, fsdpck_diff_get_row(d, 0, &got));
    fsdpck_diff_info compared = FSDPCK_INIT(fsdpck_diff_info);
    fsdpck_diff_row first = FSDPCK_INIT(fsdpck_diff_row);
    fsdpck_diff_get_info(d, &compared);
    cr_assert_gt(compared.tensors_compared, 0);
    cr_assert_eq(fsdpck_diff_get_compared(d, 0, &first), 1);
    cr_assert_gt(first.name_nbytes, 0);
    EXPECT_ZEROS(fsdpck_diff_row, fsdpck_diff_get_compared(d, compared.tensors_compared, &got));
    fsdpck_diff_part whole = FSDPCK_INIT(fsdpck_diff_part);
    cr_assert_eq(fsdpck_diff_get_part(d, FSDPCK_PART_MODEL, &whole), 1);
    cr_assert_eq(whole.tensors, 8); /* 9, one of them a counter */
    cr_assert_eq(whole.differing_tensors, 0);
    cr_assert_eq(whole.has_norms, 0); /* without options.norms */
    cr_assert_eq(fsdpck_diff_get_part(d, FSDPCK_PART_OTHER, &whole), 0);
    cr_assert_eq(whole.tensors, 0);
    cr_assert_eq(fsdpck_verify_new(ctx, path, NULL, &v, NULL), FSDPCK_OK);
    fsdpck_verify_get_info(v, &info);
    EXPECT_ZEROS(fsdpck_finding, fsdpck_verify_get_finding(v, info.listed, &got));
    fsdpck_verify_free(v);
    fsdpck_diff_free(d);
}

Test(getters, of_a_layout)
{
    fsdpck_sharding_options sharding = FSDPCK_INIT(fsdpck_sharding_options);
    fsdpck_layout_options o = FSDPCK_INIT(fsdpck_layout_options);
    fsdpck_layout_info info = FSDPCK_INIT(fsdpck_layout_info);
    fsdpck_layout *l = NULL;
    sharding.world_size = 3;
    o.sharding = &sharding;
    cr_assert_eq(fsdpck_layout_new(ctx, src, &o, &l, NULL), FSDPCK_OK);
    fsdpck_layout_get_info(l, &info);
    EXPECT_ZEROS(fsdpck_layout_tensor, fsdpck_layout_get_tensor(l, info.tensors, &got));
    EXPECT_ZEROS(fsdpck_layout_shard, fsdpck_layout_get_shard(l, info.tensors, 0, &got));
    EXPECT_ZEROS(fsdpck_layout_shard, fsdpck_layout_get_shard(l, 0, 3, &got));
    EXPECT_ZEROS(fsdpck_layout_rank, fsdpck_layout_get_rank(l, 3, &got));
    fsdpck_layout_free(l);
}
