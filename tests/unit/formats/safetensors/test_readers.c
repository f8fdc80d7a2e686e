#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "formats/safetensors/st.h"
#include "st_checkpoint.h"

static st_checkpoint o;

static void check(const format_reader *reader, const char *name, const char *digests)
{
    cr_assert(st_checkpoint_probes(reader, fixture(name)));
    cr_assert_eq(st_checkpoint_open(&o, reader, fixture(name)), FSDPCK_OK, "%s: %s",
                 fsdpck_finding_name(o.err.finding), o.err.message);
    char path[512];
    snprintf(path, sizeof path, "%s.digests", fixture(digests));
    st_checkpoint_expect_digests(&o, path);
    cr_expect_eq(o.src.check_unchanged(o.src.ctx, &o.err), FSDPCK_OK);
}

TestSuite(readers, .timeout = 20);

Test(readers, official_file_with_every_dtype)
{
    check(&safetensors_reader, "st-official/model.safetensors", "st-official");
    cr_expect_str_eq(o.cat.origin.format, "safetensors");
    st_checkpoint_close(&o);
}

Test(readers, folder_with_an_index)
{
    cr_expect_not(st_checkpoint_probes(&dcp_safetensors_reader, fixture("hf-index")));
    check(&hf_reader, "hf-index", "hf-index");
    cr_expect_not_null(strstr(o.cat.origin.note, "config.json"));
    cr_expect_str_empty(o.log);
    st_checkpoint_close(&o);
}

Test(readers, folder_without_an_index)
{
    check(&hf_reader, "st-official", "st-official");
    st_checkpoint_close(&o);
}

Test(readers, links_of_a_hub_snapshot_are_followed_unless_told_otherwise)
{
    check(&hf_reader, "hf-snapshot/snapshots/abc", "hf-snapshot");
    st_checkpoint_close(&o);
    o = (st_checkpoint){.req = {.no_follow = true}};
    cr_expect_eq(st_checkpoint_open(&o, &hf_reader, fixture("hf-snapshot/snapshots/abc")),
                 FSDPCK_BADINPUT);
    st_checkpoint_close(&o);
}

Test(readers, shards_of_four_ranks)
{
    check(&dcp_safetensors_reader, "hf-shards", "hf-shards");
    cr_expect_eq(o.cat.origin.world_size, 4);
    cr_expect_not_null(strstr(o.log, "RANKS-UNKNOWN"));
    const uint32_t t = catalogue_find(&o.cat, "0.weight", 8);
    const cat_tensor *tensor = catalogue_tensor(&o.cat, t);
    for (uint32_t k = 0; k < tensor->nchunks; k++) {
        const cat_chunk *chunk = catalogue_chunk(&o.cat, tensor->first_chunk + k);
        const char *name = catalogue_name(&o.cat, catalogue_file(&o.cat, chunk->file)->path);
        cr_expect_eq(chunk->rank, name[strlen("shard-0000")] - '1');
    }
    st_checkpoint_close(&o);
}

Test(readers, shards_in_two_files_a_rank)
{
    check(&dcp_safetensors_reader, "hf-consolidated/sharded", "hf-consolidated");
    st_checkpoint_close(&o);
}

Test(readers, consolidated_folder_is_hf)
{
    cr_expect_not(st_checkpoint_probes(&dcp_safetensors_reader, fixture("hf-consolidated")));
    cr_assert(st_checkpoint_probes(&hf_reader, fixture("hf-consolidated")));
    cr_assert_eq(st_checkpoint_open(&o, &hf_reader, fixture("hf-consolidated")), FSDPCK_OK, "%s",
                 o.err.message);
    cr_expect_null(strstr(o.log, "0-dim"), "it has none");
    st_checkpoint_close(&o);
}
