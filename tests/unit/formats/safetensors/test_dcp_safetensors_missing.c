/* Which folders of sharded safetensors show that files are missing: layouts as torch gives them. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/safetensors/st.h"
#include "st_checkpoint.h"
#include "tests/support/scratch.h"

static char dir[SCRATCH_BYTES];
static st_checkpoint o;
static unsigned file_count;

static void setup(void)
{
    scratch_make(dir);
}

static void teardown(void)
{
    scratch_remove(dir);
}

TestSuite(dcp_safetensors_missing, .init = setup, .fini = teardown);

/* What a rank writes into a file: rows of tensors with 2 columns (0: a tensor of one dim). */
typedef struct entry {
    const char *name;
    unsigned rows, at, columns;
} entry;

static void put(unsigned rank, unsigned number, const entry *entries, size_t count)
{
    char header[2048], info[1024], name[64];
    size_t n = 0, m = 0;
    unsigned at = 0;
    for (size_t i = 0; i < count; i++) {
        const entry *e = &entries[i];
        const unsigned nbytes = e->rows * (e->columns > 0 ? e->columns : 1);
        m += (size_t)snprintf(info + m, sizeof info - m,
                              e->columns > 0 ? "%s\\\"%s\\\":{\\\"saved_offsets\\\":[%u,0]}"
                                             : "%s\\\"%s\\\":{\\\"saved_offsets\\\":[%u]}",
                              i > 0 ? "," : "", e->name, e->at);
        n += (size_t)snprintf(header + n, sizeof header - n,
                              ",\"%s\":{\"dtype\":\"U8\",\"shape\":[%u", e->name, e->rows);
        if (e->columns > 0)
            n += (size_t)snprintf(header + n, sizeof header - n, ",%u", e->columns);
        n += (size_t)snprintf(header + n, sizeof header - n, "],\"data_offsets\":[%u,%u]}", at,
                              at + nbytes);
        at += nbytes;
    }
    char whole[4096];
    snprintf(whole, sizeof whole, "{\"__metadata__\":{\"DCP_SHARDING_INFO\":\"{%s}\"}%s}", info,
             header);
    snprintf(name, sizeof name, "shard-%05u-model-%05u-of-%05u.safetensors", rank, number,
             file_count);
    write_safetensors(dir, name, whole, at);
}

#define PUT(rank, file, ...)                                             \
    do {                                                                 \
        const entry entries_[] = {__VA_ARGS__};                          \
        put(rank, file, entries_, sizeof entries_ / sizeof entries_[0]); \
    } while (0)

static void lose(unsigned rank, unsigned number)
{
    char name[64], path[SCRATCH_BYTES];
    snprintf(name, sizeof name, "shard-%05u-model-%05u-of-%05u.safetensors", rank, number,
             file_count);
    cr_assert_eq(remove(scratch_path(path, dir, name)), 0);
}

static void put_text(const char *name, const char *text)
{
    char path[SCRATCH_BYTES];
    FILE *f = fopen(scratch_path(path, dir, name), "w");
    cr_assert_not_null(f);
    cr_assert(fputs(text, f) >= 0);
    cr_assert_eq(fclose(f), 0);
}

static void expect_open(fsdpck_status status)
{
    cr_expect_eq(st_checkpoint_open(&o, &dcp_safetensors_reader, dir), status, "%s: %s",
                 fsdpck_finding_name(o.err.finding), o.err.message);
    if (status != FSDPCK_OK)
        cr_expect_str_eq(fsdpck_finding_name(o.err.finding), "FILE-MISSING", "%s", o.err.message);
    st_checkpoint_close(&o);
    o = (st_checkpoint){0};
}

/* Two ranks, a layer a file. */
static void put_layers(void)
{
    file_count = 2;
    for (unsigned r = 0; r < 2; r++) {
        PUT(r + 1, 1, {"l.0.w", 4, 4 * r, 2}, {"l.0.n", 2, 2 * r, 0});
        PUT(r + 1, 2, {"l.1.w", 4, 4 * r, 2}, {"l.1.n", 2, 2 * r, 0});
    }
}

Test(dcp_safetensors_missing, a_file_of_a_rank_that_has_others)
{
    put_layers();
    expect_open(FSDPCK_OK);
    lose(2, 2);
    expect_open(FSDPCK_BADINPUT);
}

/* Names that no layer repeats: the tensors of the other file reveal it. */
Test(dcp_safetensors_missing, counts_of_other_tensors)
{
    file_count = 2;
    PUT(1, 1, {"a", 4, 0, 2});
    PUT(2, 1, {"a", 4, 4, 2});
    PUT(1, 2, {"b", 3, 0, 2});
    expect_open(FSDPCK_BADINPUT);
    PUT(2, 2, {"b", 3, 3, 2});
    expect_open(FSDPCK_OK);
}

/* A tensor that is whole on a rank that begins no other: torch gave it to the rank with the least. */
Test(dcp_safetensors_missing, a_file_of_replicated_tensors)
{
    file_count = 2;
    PUT(1, 1, {"a", 4, 0, 2});
    PUT(2, 1, {"a", 4, 4, 2});
    PUT(2, 2, {"b", 3, 0, 2});
    expect_open(FSDPCK_OK);
}

/* A tensor that is whole on one rank, with as many elements in another shape as the first shard of a
 * tensor that differs in a number: torch gives neither another shard. */
Test(dcp_safetensors_missing, whole_beside_a_shard_of_another_shape)
{
    file_count = 1;
    PUT(1, 1, {"l.0.w", 2, 0, 4}, {"l.1.w", 4, 0, 2});
    PUT(2, 1, {"l.1.w", 4, 4, 2});
    expect_open(FSDPCK_OK);
    PUT(1, 1, {"l.0.w", 4, 0, 2}, {"l.1.w", 2, 0, 4});
    PUT(2, 1, {"l.0.w", 4, 4, 2});
    expect_open(FSDPCK_OK);
    PUT(1, 1, {"l.0.w", 4, 0, 2}, {"l.1.w", 4, 0, 2});
    expect_open(FSDPCK_BADINPUT);
}

/* A pipeline: no tensor is on ranks of two stages. */
Test(dcp_safetensors_missing, stages_of_a_pipeline)
{
    file_count = 2;
    for (unsigned r = 0; r < 2; r++) {
        PUT(r + 1, 1, {"l.0.w", 4, 4 * r, 2});
        PUT(r + 3, 2, {"l.1.w", 4, 4 * r, 2});
    }
    expect_open(FSDPCK_OK);
}

/* Nothing is sharded, and each tensor is with one rank. */
Test(dcp_safetensors_missing, replicated_tensors_alone)
{
    file_count = 2;
    PUT(1, 1, {"l.0.w", 8, 0, 2});
    PUT(2, 1, {"l.1.w", 8, 0, 2});
    PUT(1, 2, {"l.2.w", 8, 0, 2});
    cr_expect_eq(st_checkpoint_open(&o, &dcp_safetensors_reader, dir), FSDPCK_OK, "%s",
                 o.err.message);
    cr_expect_not_null(strstr(o.log, "ST-FILES-UNKNOWN"), "%s", o.log);
    st_checkpoint_close(&o);
    o = (st_checkpoint){0};
}

/* A mesh of 2 x 2: the rank that held the second half of a layer is lost as a whole. */
Test(dcp_safetensors_missing, half_of_the_ranks_of_a_replica)
{
    file_count = 1;
    PUT(1, 1, {"l.0.w", 4, 0, 2});
    PUT(2, 1, {"l.0.w", 4, 4, 2});
    PUT(3, 1, {"l.1.w", 4, 0, 2});
    expect_open(FSDPCK_BADINPUT);
    PUT(4, 1, {"l.1.w", 4, 4, 2});
    expect_open(FSDPCK_OK);
}

/* Three shards of four cannot be all: 12 rows over 4 ranks are 3 each. */
Test(dcp_safetensors_missing, a_last_shard_against_the_chunk_rule)
{
    file_count = 1;
    for (unsigned r = 0; r < 3; r++)
        PUT(r + 1, 1, {"a", 5, 5 * r, 2}, {"b", 4, 4 * r, 2});
    PUT(4, 1, {"b", 4, 12, 2});
    expect_open(FSDPCK_BADINPUT);
}

/* A ShardedTensor of 3 rows over 4 ranks has no fourth shard, nor an empty one. */
Test(dcp_safetensors_missing, a_tensor_smaller_than_the_mesh)
{
    file_count = 1;
    for (unsigned r = 0; r < 3; r++)
        PUT(r + 1, 1, {"a", 1, r, 2}, {"b", 4, 4 * r, 2});
    PUT(4, 1, {"b", 4, 12, 2});
    expect_open(FSDPCK_OK);
    /* Entries without elements show DTensors, which have one at the end of each tensor. */
    PUT(4, 1, {"b", 4, 12, 2}, {"c", 0, 3, 2});
    for (unsigned r = 0; r < 3; r++)
        PUT(r + 1, 1, {"a", 1, r, 2}, {"b", 4, 4 * r, 2}, {"c", 1, r, 2});
    expect_open(FSDPCK_BADINPUT);
    PUT(4, 1, {"a", 0, 3, 2}, {"b", 4, 12, 2}, {"c", 0, 3, 2});
    expect_open(FSDPCK_OK);
}

/* A quarter of 'w', which has 8 rows and 4 columns. */
static void put_quarter(unsigned rank, unsigned row, unsigned column)
{
    char header[512], name[64];
    snprintf(
        header, sizeof header,
        "{\"__metadata__\":{\"DCP_SHARDING_INFO\":\"{\\\"w\\\":{\\\"saved_offsets\\\":[%u,%u]}}"
        "\"},\"w\":{\"dtype\":\"U8\",\"shape\":[4,2],\"data_offsets\":[0,8]}}",
        row, column);
    snprintf(name, sizeof name, "shard-%05u-model-00001-of-%05u.safetensors", rank, file_count);
    write_safetensors(dir, name, header, 8);
}

/* A ShardedTensor of 5 rows over 4 ranks has 3 shards; the third is its end, as it is smaller. */
Test(dcp_safetensors_missing, a_last_shard_that_is_smaller)
{
    file_count = 2;
    PUT(1, 1, {"a", 2, 0, 2});
    PUT(2, 1, {"a", 2, 2, 2});
    PUT(3, 1, {"a", 1, 4, 2});
    for (unsigned r = 0; r < 4; r++)
        PUT(r + 1, 2, {"b", 4, 4 * r, 2});
    expect_open(FSDPCK_OK);
    lose(3, 1);
    expect_open(FSDPCK_BADINPUT);
}

/* Three ranks: the third has a replicated tensor, and no file of the sharded ones. */
Test(dcp_safetensors_missing, a_rank_with_replicated_tensors_alone)
{
    file_count = 2;
    PUT(1, 1, {"l.0.w", 3, 0, 4}, {"l.1.w", 3, 0, 4});
    PUT(2, 1, {"l.0.r", 4, 0, 0}, {"l.0.w", 3, 3, 4}, {"l.1.w", 3, 3, 4});
    PUT(2, 2, {"norm", 6, 0, 0});
    PUT(3, 1, {"l.0.w", 2, 6, 4}, {"l.1.r", 4, 0, 0}, {"l.1.w", 2, 6, 4});
    PUT(3, 2, {"freqs", 6, 0, 0});
    expect_open(FSDPCK_OK);
    lose(3, 1);
    expect_open(FSDPCK_BADINPUT);
    o.req.expect_ranks = 3;
    expect_open(FSDPCK_OK);
    /* Such a file that another rank has shows that the third wrote it without shards. */
    PUT(3, 1, {"l.1.r", 4, 0, 0});
    expect_open(FSDPCK_OK);
    lose(3, 1);
    /* A layer on the third rank alone: a pipeline. */
    PUT(3, 2, {"l.2.w", 6, 0, 4});
    expect_open(FSDPCK_OK);
    /* A fourth rank: two shards, each on two ranks. */
    PUT(3, 2, {"freqs", 6, 0, 0});
    PUT(4, 2, {"positions", 6, 0, 0});
    expect_open(FSDPCK_OK);
}

/* Two such tensors are needed: the ranks that hold replicas of a single one may have nothing to write. */
Test(dcp_safetensors_missing, one_sharded_tensor_with_replicas)
{
    file_count = 2;
    PUT(1, 1, {"w", 3, 0, 4});
    PUT(2, 1, {"w", 3, 3, 4});
    PUT(3, 2, {"freqs", 6, 0, 0});
    expect_open(FSDPCK_OK);
}

/* A mesh of 2 x 2: 'w' is sharded over both dims, 'n' over one, with a file of its own. */
Test(dcp_safetensors_missing, one_dim_of_a_mesh)
{
    file_count = 2;
    put_quarter(1, 0, 0);
    put_quarter(2, 0, 2);
    put_quarter(3, 4, 0);
    put_quarter(4, 4, 2);
    PUT(2, 2, {"n", 2, 0, 0});
    PUT(4, 2, {"n", 2, 2, 0});
    expect_open(FSDPCK_OK);
    lose(4, 1);
    expect_open(FSDPCK_BADINPUT);
}

/* A mesh of 2 x 2, as 'w' shows: 'f1' is sharded over both dims, 'f2' over one. They are not one tensor of two layers, as 'l.0'
 * and 'l.1' are. */
Test(dcp_safetensors_missing, two_tensors_of_a_layer_on_a_mesh)
{
    file_count = 3;
    for (unsigned r = 0; r < 4; r++) {
        put_quarter(r + 1, r / 2 * 4, r % 2 * 2);
        PUT(r + 1, 2, {"l.0.f1.b", 2, 2 * r, 0});
    }
    for (unsigned r = 0; r < 2; r++)
        PUT(r + 1, 3, {"l.0.f2.b", 2, 2 * r, 0}, {"l.1.f2.b", 2, 2 * r, 0});
    expect_open(FSDPCK_OK);
    for (unsigned r = 0; r < 4; r++)
        PUT(r + 1, 2, {"l.0.f1.b", 2, 2 * r, 0}, {"l.2.f2.b", 2, 2 * r, 0});
    expect_open(FSDPCK_BADINPUT);
}

/* The offset of an empty entry is the end of the tensor, also where its own shape is [0]. */
Test(dcp_safetensors_missing, an_end_that_shards_do_not_reach)
{
    file_count = 1;
    PUT(1, 1, {"a", 2, 0, 2});
    write_safetensors(
        dir, "shard-00002-model-00001-of-00001.safetensors",
        "{\"__metadata__\":{\"DCP_SHARDING_INFO\":\"{\\\"a\\\":{\\\"saved_offsets\\\":[4,0]}}\"},"
        "\"a\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}}",
        0);
    cr_expect_eq(st_checkpoint_open(&o, &dcp_safetensors_reader, dir), FSDPCK_OK, "%s",
                 o.err.message);
    cr_expect_eq(catalogue_tensor_nelems(&o.cat, catalogue_find(&o.cat, "a", 1)), 8);
    st_checkpoint_close(&o);
    o = (st_checkpoint){0};
}

Test(dcp_safetensors_missing, files_of_more_ranks_beside)
{
    put_layers();
    put_text("rng_state_1.pth", "");
    expect_open(FSDPCK_OK);
    put_text("rng_state_2.pth", "");
    expect_open(FSDPCK_BADINPUT);
    o.req.expect_ranks = 2;
    expect_open(FSDPCK_OK);
}

Test(dcp_safetensors_missing, sizes_in_the_settings_of_the_model)
{
    file_count = 1;
    PUT(1, 1, {"model.embed_tokens.weight", 4, 0, 2}, {"model.norm.weight", 2, 0, 0});
    put_text("config.json", "{\"hidden_size\": 2, \"vocab_size\": 4, \"other\": [1, {}]}");
    expect_open(FSDPCK_OK);
    put_text("config.json", "{\"text_config\": {\"hidden_size\": 2, \"vocab_size\": 8}}");
    expect_open(FSDPCK_BADINPUT);
    o.req.expect_ranks = 1;
    expect_open(FSDPCK_OK);
    put_text("config.json", "{\"hidden_size\": 4, \"vocab_size\": 4}");
    expect_open(FSDPCK_BADINPUT);
    put_text("config.json", "{\"hidden_size\": 4,");
    expect_open(FSDPCK_OK);
}

/* Only the end of its last part is that of an embedding. */
Test(dcp_safetensors_missing, a_name_that_ends_as_an_embedding)
{
    file_count = 1;
    PUT(1, 1, {"model.pos_wte.weight", 4, 0, 2}, {"model.norm.weight", 2, 0, 0});
    put_text("config.json", "{\"hidden_size\": 2, \"vocab_size\": 8}");
    expect_open(FSDPCK_OK);
}
