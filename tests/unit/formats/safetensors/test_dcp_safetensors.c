#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/safetensors/shard_name.h"
#include "formats/safetensors/st.h"
#include "st_checkpoint.h"
#include "tests/support/scratch.h"

static char dir[SCRATCH_BYTES];
static st_checkpoint o;

static void setup(void)
{
    scratch_make(dir);
}

static void teardown(void)
{
    scratch_remove(dir);
}

TestSuite(dcp_safetensors, .init = setup, .fini = teardown);

/* One shard "w" of uint8 with this shape and these offsets (JSON texts). */
static void put(const char *file_name, const char *dtype_code, const char *shape,
                const char *offsets, unsigned nbytes)
{
    char header[1024];
    snprintf(header, sizeof header,
             "{\"__metadata__\":{\"DCP_VERSION\":\"1.0\",\"format\":\"pt\",\"DCP_SHARDING_INFO\":"
             "\"{\\\"w\\\": {\\\"saved_offsets\\\": %s}}\"},"
             "\"w\":{\"dtype\":\"%s\",\"shape\":%s,\"data_offsets\":[0,%u]}}",
             offsets, dtype_code, shape, nbytes);
    write_safetensors(dir, file_name, header, nbytes);
}

/* The same, with the counts that fsdpck's own files record. */
static void put_telling(const char *file_name, unsigned row, const char *count, const char *ranks)
{
    char header[1024];
    snprintf(
        header, sizeof header,
        "{\"__metadata__\":{\"DCP_SHARDING_INFO\":\"{\\\"w\\\": {\\\"saved_offsets\\\": [%u]}}\","
        "\"shard_count\":\"%s\",\"world_size\":\"%s\"},"
        "\"w\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}",
        row, count, ranks);
    write_safetensors(dir, file_name, header, 1);
}

static void expect_open(fsdpck_status status, const char *finding)
{
    cr_expect_eq(st_checkpoint_open(&o, &dcp_safetensors_reader, dir), status, "%s: %s",
                 fsdpck_finding_name(o.err.finding), o.err.message);
    cr_expect_str_eq(fsdpck_finding_name(o.err.finding), finding, "%s", o.err.message);
}

static void next(void)
{
    st_checkpoint_close(&o);
    o = (st_checkpoint){0};
}

#define SHARD(rank) "shard-0000" #rank "-model-00001-of-00001.safetensors"

static void put_three(void)
{
    put(SHARD(1), "U8", "[2,3]", "[0, 0]", 6);
    put(SHARD(2), "U8", "[2,3]", "[2, 0]", 6);
    put(SHARD(3), "U8", "[1,3]", "[4, 0]", 3);
}

Test(dcp_safetensors, the_global_shape_is_the_largest_end)
{
    put_three();
    put(SHARD(4), "U8", "[0]", "[]", 0);
    cr_assert(st_checkpoint_probes(&dcp_safetensors_reader, dir));
    expect_open(FSDPCK_OK, "");
    const uint32_t t = catalogue_find(&o.cat, "w", 1);
    const uint64_t *shape = catalogue_shape(&o.cat, t);
    cr_expect(catalogue_tensor(&o.cat, t)->ndim == 2 && shape[0] == 5 && shape[1] == 3);
    cr_expect_eq(catalogue_tensor(&o.cat, t)->nchunks, 3);
    cr_expect_eq(o.cat.origin.world_size, 4);
    next();
}

/* The rank without elements may come first, and does not know the number of dims. */
Test(dcp_safetensors, an_empty_shard_first)
{
    put(SHARD(1), "U8", "[0]", "[5]", 0);
    put(SHARD(2), "U8", "[2,3]", "[0, 0]", 6);
    expect_open(FSDPCK_OK, "");
    const uint32_t t = catalogue_find(&o.cat, "w", 1);
    cr_expect_eq(catalogue_tensor(&o.cat, t)->ndim, 2);
    cr_expect_eq(catalogue_tensor_nelems(&o.cat, t), 6);
    cr_expect_eq(catalogue_tensor(&o.cat, t)->nchunks, 1);
    next();
}

Test(dcp_safetensors, a_missing_rank_is_named_with_what_it_held)
{
    put_three();
    char path[SCRATCH_BYTES];
    remove(scratch_path(path, dir, SHARD(2)));
    expect_open(FSDPCK_BADINPUT, "FILE-MISSING");
    cr_expect_not_null(strstr(o.err.message, SHARD(2)));
    cr_expect_null(strstr(o.err.message, SHARD(1)));
    cr_expect_not_null(strstr(o.err.found, "'w'"), "%s", o.err.found);
    next();
}

Test(dcp_safetensors, a_rank_that_held_nothing_wrote_no_file)
{
    put(SHARD(1), "U8", "[2]", "[0]", 2);
    put(SHARD(3), "U8", "[2]", "[2]", 2);
    expect_open(FSDPCK_OK, "");
    next();
}

Test(dcp_safetensors, a_missing_file_of_all_ranks_is_named)
{
    put("shard-00001-model-00001-of-00003.safetensors", "U8", "[2]", "[0]", 2);
    put("shard-00001-model-00003-of-00003.safetensors", "U8", "[2]", "[0]", 2);
    expect_open(FSDPCK_BADINPUT, "FILE-MISSING");
    cr_expect_not_null(strstr(o.err.message, ": shard-*-model-00002-of-00003.safetensors"));
    next();
    put("shard-00001-model-00001-of-00002.safetensors", "U8", "[2]", "[0]", 2);
    expect_open(FSDPCK_BADINPUT, "ST-SHARD-MIXED");
    cr_expect_not_null(strstr(o.err.message, "two saves"));
    next();
}

Test(dcp_safetensors, files_that_tell_their_number)
{
    put_telling(SHARD(1), 0, "2", "3");
    put_telling(SHARD(2), 1, "2", "3");
    expect_open(FSDPCK_OK, "");
    cr_expect_eq(o.cat.origin.world_size, 3);
    cr_expect_str_eq(o.log, "");
    next();
    o.req.expect_ranks = 2;
    expect_open(FSDPCK_BADINPUT, "RANKS-STATED");
    next();
    put_telling(SHARD(2), 1, "3", "3");
    expect_open(FSDPCK_BADINPUT, "ST-SHARD-MIXED"); /* two saves */
    next();
    put_telling(SHARD(1), 0, "3", "3");
    expect_open(FSDPCK_BADINPUT, "FILE-MISSING");
    cr_expect_not_null(strstr(o.err.message, SHARD(3)), "%s", o.err.message);
    next();
    put_telling(SHARD(1), 0, "1", "3");
    put_telling(SHARD(2), 1, "1", "3");
    expect_open(FSDPCK_BADINPUT, "ST-SHARD-MIXED"); /* more than the recorded number */
    next();
}

Test(dcp_safetensors, numbers_that_are_none)
{
    static const char *const bad[][2] = {{"", "3"},  {"0", "3"},  {"2x", "3"},      {"2", ""},
                                         {"2", "1"}, {"-2", "3"}, {"10000000", "3"}};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        put_telling(SHARD(1), 0, bad[i][0], bad[i][1]);
        expect_open(FSDPCK_BADINPUT, "ST-META");
        next();
    }
}

Test(dcp_safetensors, ranks_as_stated)
{
    put_three();
    o.req.expect_ranks = 3;
    expect_open(FSDPCK_OK, "");
    cr_expect_str_empty(o.cat.origin.note, "nothing is in doubt");
    next();
    o.req.expect_ranks = 5;
    expect_open(FSDPCK_BADINPUT, "FILE-MISSING");
    cr_expect_not_null(strstr(o.err.message, SHARD(4) ", " SHARD(5)), "%s", o.err.message);
    next();
    o.req.expect_ranks = 2;
    expect_open(FSDPCK_BADINPUT, "RANKS-STATED");
    next();
}

Test(dcp_safetensors, shards_that_do_not_fit_together)
{
    put_three();
    put(SHARD(2), "I8", "[2,3]", "[2, 0]", 6);
    expect_open(FSDPCK_BADINPUT, "ST-SHARD-DTYPE");
    cr_expect_not_null(strstr(o.err.path, SHARD(2)));
    next();
    put(SHARD(2), "U8", "[6]", "[0]", 6);
    expect_open(FSDPCK_BADINPUT, "ST-SHARD-RANK");
    next();
    put(SHARD(2), "U8", "[2,3]", "[2]", 6);
    expect_open(FSDPCK_BADINPUT, "ST-META");
    next();
    put(SHARD(2), "U8", "[2,3]", "[2, 18446744073709551615]", 6);
    expect_open(FSDPCK_BADINPUT, "ST-META");
    next();
    put(SHARD(2), "U8", "[2,3]", "[9223372036854775807, 0]", 6);
    expect_open(FSDPCK_BADINPUT, "CHUNK-BOUNDS");
    next();
    write_safetensors(dir, SHARD(2),
                      "{\"w\":{\"dtype\":\"U8\",\"shape\":[2,3],\"data_offsets\":[0,6]}}", 6);
    expect_open(FSDPCK_BADINPUT, "ST-META");
    next();
    write_safetensors(dir, SHARD(2),
                      "{\"__metadata__\":{\"DCP_SHARDING_INFO\":\"{}\"},"
                      "\"w\":{\"dtype\":\"U8\",\"shape\":[2,3],\"data_offsets\":[0,6]}}",
                      6);
    expect_open(FSDPCK_BADINPUT, "ST-META");
    cr_expect_str_eq(o.err.tensor, "w");
    next();
}

/* The order of the files need not be that of the rows. */
Test(dcp_safetensors, the_same_shard_in_two_files)
{
    static const char *const found = "also in '" SHARD(1) "'";
    for (unsigned row = 0; row < 2; row++) {
        put_three();
        put(SHARD(1), "U8", "[2,3]", row == 0 ? "[0, 0]" : "[2, 0]", 6);
        put(SHARD(2), "U8", "[2,3]", row == 0 ? "[2, 0]" : "[0, 0]", 6);
        expect_open(FSDPCK_OK, "");
        next();
        put(SHARD(3), "U8", "[2,3]", row == 0 ? "[0, 0]" : "[2, 0]", 6);
        expect_open(FSDPCK_BADINPUT, "ST-SHARD-MIXED");
        cr_expect_str_eq(o.err.found, found);
        cr_expect_not_null(strstr(o.err.path, SHARD(3)));
        next();
    }
}

/* Sharding info is read for several files at a time, but files are added in order. */
Test(dcp_safetensors, the_first_file_with_an_error_is_reported)
{
    put_three();
    put(SHARD(2), "I8", "[2,3]", "[2, 0]", 6);
    put(SHARD(3), "U8", "[1,3]", "true", 3);
    expect_open(FSDPCK_BADINPUT, "ST-SHARD-DTYPE");
    cr_expect_not_null(strstr(o.err.path, SHARD(2)));
    next();
    put(SHARD(1), "U8", "[2,3]", "[0, 0, {}]", 6);
    expect_open(FSDPCK_BADINPUT, "ST-META");
    cr_expect_not_null(strstr(o.err.path, SHARD(1)));
    cr_expect_str_eq(o.err.tensor, "w");
    next();
}

/* More files than are read at a time. */
Test(dcp_safetensors, many_files)
{
    for (unsigned i = 0; i < 40; i++) {
        char name[80], offsets[16];
        snprintf(name, sizeof name, "shard-%05u-model-00001-of-00001.safetensors", i + 1);
        snprintf(offsets, sizeof offsets, "[%u, 0]", 2 * i);
        put(name, "U8", "[2,3]", offsets, 6);
    }
    expect_open(FSDPCK_OK, "");
    const cat_tensor *t = catalogue_tensor(&o.cat, 0);
    cr_expect_eq(t->nchunks, 40);
    for (uint64_t k = 0; k < t->nchunks; k++) {
        uint64_t at[NDIM_MAX], sizes[NDIM_MAX];
        catalogue_chunk_box(&o.cat, t->first_chunk + k, at, sizes);
        cr_expect_eq(at[0], 2 * (uint64_t)catalogue_chunk(&o.cat, t->first_chunk + k)->file);
        cr_expect_eq(at[1], 0);
    }
    next();
}

static bool same_set(const char *name, const char *other)
{
    shard_name a, b;
    return shard_name_parse(name, &a) && shard_name_parse(other, &b) &&
           shard_name_same_set(name, &a, other, &b);
}

Test(dcp_safetensors, sets_of_names)
{
    cr_expect(same_set("m-9-of-12.safetensors", "m-10-of-12.safetensors"));
    cr_expect(same_set("model0-mp4.safetensors", "model3-mp4.safetensors"));
    cr_expect(
        same_set("a_world_size_12_rank_3.safetensors", "a_world_size_12_rank_11.safetensors"));
    cr_expect_not(same_set("model0-mp4.safetensors", "model0-mp8.safetensors"));
    cr_expect_not(
        same_set("a_world_size_2_rank_1.safetensors", "a_world_size_12_rank_1.safetensors"));
    cr_expect_not(
        same_set("a_world_size_2_rank_1.safetensors", "b_world_size_2_rank_1.safetensors"));
    cr_expect_not(same_set("m_1_of_2.safetensors", "m_1.of.2.safetensors"));
    cr_expect_not(same_set("m_1_of_2.safetensors", "m_1_of_2.fp16.safetensors"));
}

Test(dcp_safetensors, names)
{
    shard_name n;
    cr_assert(shard_name_parse("shard-00012-model-00001-of-00002.safetensors", &n));
    cr_expect(n.rank_number == 12 && n.file_number == 1 && n.file_count == 2);
    cr_assert(shard_name_parse("model-00002-of-00005.safetensors", &n));
    cr_expect(n.rank_number == 0 && n.file_number == 2 && n.prefix_nbytes == 5);
    cr_assert(shard_name_parse("a-b-00002-of-00005.safetensors", &n));
    cr_expect_eq(n.prefix_nbytes, 3);
    cr_assert(shard_name_parse("model-1-of-12.safetensors", &n));
    cr_expect(n.file_number == 1 && n.file_count == 12 && n.prefix_nbytes == 5);
    cr_assert(shard_name_parse("shard-00001-model-00000-of-00002.safetensors", &n));
    cr_expect(n.rank_number == 0 && n.file_number == 0 && n.file_count == 2);
    cr_assert(shard_name_parse("shard-00001-model-1-of-2.safetensors", &n));
    cr_expect_eq(n.rank_number, 0);
    cr_assert(shard_name_parse("model-00002-of-00005.fp16.safetensors", &n));
    cr_expect(n.is_variant && n.file_number == 2 && n.number_at == 6 && n.tail_at == 20);
    cr_assert(shard_name_parse("shard-00001-model-00001-of-00001.fp16.safetensors", &n));
    cr_expect(n.is_variant && n.rank_number == 0);
    cr_assert(shard_name_parse("model_00002-of-00005.safetensors", &n));
    cr_expect(!n.is_variant && n.prefix_nbytes == 5 && n.number_at == 6);
    cr_assert(shard_name_parse("00002-of-00005.safetensors", &n));
    cr_expect(n.prefix_nbytes == 0 && n.number_at == 0);
    cr_assert(shard_name_parse("model_1_of_3.safetensors", &n));
    cr_expect(n.file_number == 1 && n.file_count == 3 && n.rank_number == 0 && !n.from_zero);
    cr_assert(shard_name_parse_as("part2of3.pt", ".pt", &n));
    cr_expect(n.file_number == 2 && n.file_count == 3);
    cr_assert(shard_name_parse("model_world_size_12_rank_3.safetensors", &n));
    cr_expect(n.file_number == 3 && n.file_count == 12 && n.from_zero && !n.is_slice);
    cr_assert(shard_name_parse("model0-mp4.safetensors", &n));
    cr_expect(n.file_number == 0 && n.file_count == 4 && n.from_zero && n.is_slice);
    static const char *const others[] = {
        "model.safetensors",
        "model_1-of-3.safetensors",
        "1-of-3.safetensors",
        "model-00001-of-00002-0a1b2c.safetensors",
        "model-00001-of-x.safetensors",
        "model-00003-of-00002.safetensors",
        "model-1-of-0.safetensors",
        "model-00001-of-00002.bin",
        "model-0000000001-of-00002.safetensors",
        "-of-.safetensors",
        "model_1_of-3.safetensors",
        "model_1_of_x.safetensors",
        "model_4_of_3.safetensors",
        "_of_3.safetensors",
        "model4-mp4.safetensors",
        "-mp4.safetensors",
        "world_size_3_rank_3.safetensors",
        "3_rank_1.safetensors",
        "_rank_1.safetensors",
        "rank_1.safetensors",
        "1.safetensors",
        ".safetensors",
        "",
    };
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        cr_expect_not(shard_name_parse(others[i], &n), "%s", others[i]);
}

/* As save_pretrained of transformers and diffusers names them, with and without a variant. */
Test(shard_name, index)
{
    static const char *const rows[][2] = {
        {"model-00001-of-00002.safetensors", "model.safetensors.index.json"},
        {"pytorch_model-00002-of-00002.bin", "pytorch_model.bin.index.json"},
        {"ft-model-00001-of-00002.safetensors", "ft-model.safetensors.index.json"},
        {"model.fp16-00001-of-00002.safetensors", "model.safetensors.index.fp16.json"},
        {"model-00001-of-00002.fp16.safetensors", "model.safetensors.index.fp16.json"},
        {"diffusion_pytorch_model.non_ema-00001-of-00002.safetensors",
         "diffusion_pytorch_model.safetensors.index.non_ema.json"}};
    static const char *const others[] = {"model.safetensors",
                                         "model-1-of-2.safetensors",
                                         "-00001-of-00002.safetensors",
                                         "model-00001-of-00002.pt",
                                         "model-00001-of-00002x.safetensors",
                                         "model-00001-of-000022.safetensors",
                                         ""};
    char index[80];
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        cr_assert(shard_name_index(rows[i][0], index, sizeof index), "%s", rows[i][0]);
        cr_assert_str_eq(index, rows[i][1]);
        cr_assert_not(shard_name_index(rows[i][0], index, strlen(rows[i][1])));
    }
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        cr_assert_not(shard_name_index(others[i], index, sizeof index), "%s", others[i]);
}
