#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/safetensors/st.h"
#include "st_checkpoint.h"
#include "tests/support/scratch.h"
#include "tests/support/sharded_target.h"
#include "tests/support/target_write.h"

static char dir[SCRATCH_BYTES], path[SCRATCH_BYTES];
static budget owner;
static target t;
static fsdpck_error err;

static void setup(void)
{
    scratch_make(dir);
    budget_init(&owner, 64 << 20, "target", NULL);
    target_init(&t, &owner);
}

static void teardown(void)
{
    target_release(&t);
    cr_expect_eq(owner.used_bytes, 0);
    scratch_remove(dir);
}

TestSuite(dcp_safetensors_writer, .init = setup, .fini = teardown);

static void begin(const char *mesh_text)
{
    cr_assert_eq(sharded_target_begin(&t, mesh_text, &err), FSDPCK_OK, "%s", err.message);
}

static void add(const char *name, dtype d, unsigned ndim, const uint64_t *shape, const char *cut)
{
    cr_assert_eq(sharded_target_add(&t, name, d, ndim, shape, cut, false, NULL, &err), FSDPCK_OK,
                 "%s", err.message);
}

static void write_all(void)
{
    cr_assert_eq(catalogue_seal(&t.cat, &err), FSDPCK_OK);
    cr_assert_eq(dcp_safetensors_writer.layout(&t, &(writer_options){0}, &err), FSDPCK_OK, "%s",
                 err.message);
    cr_assert_eq(target_write(&t, &dcp_safetensors_writer, dir, target_fill_index, NULL, &err),
                 FSDPCK_OK, "%s", err.message);
}

Test(dcp_safetensors_writer, headers_are_those_of_torch_and_count_the_files)
{
    static const char expected[] =
        "{\"__metadata__\":{\"format\":\"pt\",\"DCP_VERSION\":\"1.0\",\"DCP_SHARDING_INFO\":"
        "\"{\\\"w\\\":{\\\"saved_offsets\\\":[3,0]}}\",\"shard_count\":\"2\",\"world_size\":\"2\"},"
        "\"w\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]}}";
    char *bytes;
    size_t nbytes;

    begin("fsdp=2");
    add("w", DTYPE_FLOAT32, 2, (uint64_t[]){5, 3}, "0");
    write_all();
    scratch_path(path, dir, "shard-00002-model-00001-of-00001.safetensors");
    cr_assert_eq(file_read_whole(NULL, path, 1 << 20, &bytes, &nbytes, &err), FSDPCK_OK);
    cr_expect_eq((nbytes - 24) % 8, 0);
    cr_expect_eq(memcmp(bytes + 8, expected, sizeof expected - 1), 0, "%s", bytes + 8);
    free(bytes);
}

Test(dcp_safetensors_writer, the_reader_finds_the_parts)
{
    static const uint64_t shapes[3][2] = {{5, 3}, {8, 4}, {2, 0}};
    st_checkpoint o = {0};
    begin("fsdp=4");
    add("w", DTYPE_FLOAT32, 2, shapes[0], "0");
    add("c", DTYPE_BFLOAT16, 2, shapes[1], "1");
    add("none", DTYPE_FLOAT32, 2, shapes[2], "R");
    add("step", DTYPE_INT64, 0, NULL, "");
    write_all();
    cr_assert_eq(st_checkpoint_open(&o, &dcp_safetensors_reader, dir), FSDPCK_OK, "%s",
                 o.err.message);
    cr_expect_eq(catalogue_tensor_count(&o.cat), 4);
    for (uint32_t i = 0; i < 4; i++) {
        const char *name = catalogue_name(&t.cat, catalogue_tensor(&t.cat, i)->name);
        const uint32_t found = catalogue_find(&o.cat, name, strlen(name));
        cr_assert_neq(found, CAT_NONE, "%s", name);
        cr_expect_eq(memcmp(catalogue_shape(&o.cat, found), catalogue_shape(&t.cat, i),
                            catalogue_tensor(&t.cat, i)->ndim * sizeof(uint64_t)),
                     0, "%s", name);
    }
    st_checkpoint_close(&o);
}

/* Each box of a mesh with replicas is written by one of its holders, the work is spread. */
Test(dcp_safetensors_writer, replicas_are_spread_over_their_holders)
{
    bool used[4] = {false};
    char name[8];
    begin("ddp=2,fsdp=2");
    for (int i = 0; i < 4; i++) {
        snprintf(name, sizeof name, "w%d", i);
        add(name, DTYPE_FLOAT32, 1, (uint64_t[]){64}, "R0");
    }
    write_all();
    cr_expect_eq(scratch_count(dir), 4);
    cr_expect_eq(catalogue_chunk_count(&t.cat), 8);
    for (uint64_t k = 0; k < 8; k++) {
        const cat_chunk *c = catalogue_chunk(&t.cat, k);
        const uint32_t rank = catalogue_file(&t.cat, c->file)->rank;
        uint64_t offset;
        catalogue_chunk_box(&t.cat, k, &offset, NULL);
        cr_expect_eq(rank % 2, offset / 32, "a rank that does not hold it");
        used[rank] = true;
    }
    cr_expect(used[0] && used[1] && used[2] && used[3]);
}

Test(dcp_safetensors_writer, a_rank_without_items_has_no_file)
{
    begin("fsdp=8");
    add("a", DTYPE_FLOAT32, 1, (uint64_t[]){3}, "");
    write_all();
    cr_expect_eq(scratch_count(dir), 1);
}

Test(dcp_safetensors_writer, a_dtype_without_a_code_is_refused)
{
    begin("fsdp=2");
    add("z", DTYPE_COMPLEX128, 1, (uint64_t[]){4}, "0");
    cr_assert_eq(catalogue_seal(&t.cat, &err), FSDPCK_OK);
    cr_expect_eq(dcp_safetensors_writer.layout(&t, &(writer_options){0}, &err), FSDPCK_UNSUPPORTED);
    cr_expect_str_eq(err.tensor, "z");
}
