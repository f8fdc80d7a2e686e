/* `.metadata` as bytes, and records into a catalogue. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/dcp/dcp_catalogue.h"
#include "formats/dcp/dcp_internal.h"
#include "io/file.h"
#include "tests/support/dcp_pickle.h"

typedef struct records {
    budget b;
    dcp_names names;
    catalogue cat;
    dcp_metadata m;
    dcp_builder builder;
    fsdpck_error err;
    bool has_metadata;
} records;

static records r;

static fsdpck_status parse(const void *bytes, size_t nbytes, bool opaque)
{
    r = (records){0};
    fsdpck_error_init(&r.err);
    budget_init(&r.b, UINT64_C(1) << 28, "metadata", NULL);
    catalogue_init(&r.cat, &r.b);
    cr_assert_eq(dcp_names_init(&r.names, &r.b, &r.err), FSDPCK_OK);
    dcp_builder_init(&r.builder, &r.cat, &r.names);
    const pickle_input in = {.bytes = bytes, .nbytes = nbytes};
    const fsdpck_status st = dcp_metadata_read(&in, &r.names, &r.cat.pool, opaque, &r.m, &r.err);
    r.has_metadata = st == FSDPCK_OK;
    return st;
}

static void release(void)
{
    if (r.has_metadata)
        dcp_metadata_release(&r.m);
    dcp_builder_release(&r.builder);
    catalogue_release(&r.cat);
    dcp_names_release(&r.names);
    cr_assert_eq(r.b.used_bytes, 0);
}

static const dcp_pickle small = {
    .ntensors = 3, .nranks = 4, .rows = 2, .cols = 5, .blob_nbytes = 100, .hints = 1};

static void generate(const dcp_pickle *spec)
{
    text_buf text = {0};
    dcp_pickle_make(spec, &text);
    cr_assert_eq(parse(text.text, text.nbytes, false), FSDPCK_OK, "%s %s",
                 fsdpck_finding_name(r.err.finding), r.err.message);
    text_release(&text);
}

/* Builds, checks ranges against files of `file_nbytes`, and says which finding came of it. */
static const char *built(uint64_t file_nbytes)
{
    fsdpck_status st = dcp_builder_add(&r.builder, &r.m, &r.err);
    for (size_t i = 0; i < catalogue_file_count(&r.cat); i++)
        catalogue_file(&r.cat, i)->nbytes = file_nbytes;
    if (st == FSDPCK_OK)
        st = dcp_ranges_check(NULL, &r.cat, &r.err);
    if (st == FSDPCK_OK)
        st = catalogue_seal(&r.cat, &r.err);
    return st == FSDPCK_OK ? "" : fsdpck_finding_name(r.err.finding);
}

static dcp_entry *entry(size_t i)
{
    return VEC_AT(&r.m.entries, dcp_entry, i);
}

Test(join, hints_do_not_matter)
{
    for (int reversed = 0; reversed < 2; reversed++) {
        for (int hints = 0; hints < 3; hints++) {
            dcp_pickle spec = small;
            spec.hints = hints;
            spec.reversed = reversed;
            generate(&spec);
            cr_assert_str_eq(built(300), "", "%s", r.err.message);
            cr_assert_eq(r.builder.stray_blobs, 0);
            for (uint64_t i = 0; i < 12; i++) {
                const cat_chunk *c = catalogue_chunk(&r.cat, i);
                uint64_t offsets[NDIM_MAX];
                catalogue_chunk_box(&r.cat, i, offsets, NULL);
                const uint64_t rank = reversed ? 3 - offsets[0] / 2 : offsets[0] / 2;
                cr_assert_eq(c->rank, rank);
                cr_assert_eq(c->offset_bytes, c->tensor * 100);
            }
            release();
        }
    }
}

Test(join, chunk_without_a_blob_is_named)
{
    for (int hints = 0; hints < 3; hints++) {
        dcp_pickle spec = small;
        spec.hints = hints;
        generate(&spec);
        entry(4)->paired = 0; /* rank 1, tensor 1 */
        cr_assert_str_eq(built(300), "DCP-ORPHAN");
        cr_assert_str_eq(r.err.tensor, "model.layers.0.feed_forward.experts.w1.weight");
        cr_assert_not_null(strstr(r.err.expected, "(2, 0)"), "%s", r.err.expected);
        release();
    }
}

Test(join, blob_without_a_chunk_is_counted)
{
    generate(&small);
    VEC_AT(&r.m.lists, dcp_chunk_list, 0)->count = 3;
    VEC_AT(&r.m.runs, dcp_run, 0)->count = 3;
    cr_assert_str_eq(built(300), "");
    cr_assert_eq(r.builder.stray_blobs, 1);
    release();
}

/* Enough chunks for several threads. */
static void generate_many(unsigned nthreads)
{
    dcp_pickle spec = small;
    spec.ntensors = 8;
    spec.nranks = 8192;
    generate(&spec);
    r.builder.nthreads = nthreads;
}

Test(join, threads_do_not_matter)
{
    for (unsigned nthreads = 1; nthreads <= 4; nthreads += 3) {
        generate_many(nthreads);
        cr_assert_str_eq(built(800), "", "%s", r.err.message);
        cr_assert_eq(catalogue_chunk_count(&r.cat), 8 * 8192);
        cr_assert_eq(r.builder.stray_blobs, 0);
        for (uint64_t i = 0; i < 8 * 8192; i++) {
            const cat_chunk *c = catalogue_chunk(&r.cat, i);
            uint64_t offsets[NDIM_MAX], sizes[NDIM_MAX];
            catalogue_chunk_box(&r.cat, i, offsets, sizes);
            cr_assert_eq(c->tensor, i / 8192);
            cr_assert_eq(c->rank, i % 8192);
            cr_assert_eq(offsets[0], 2 * (i % 8192));
            cr_assert_eq(sizes[0], 2);
            cr_assert_eq(c->offset_bytes, c->tensor * 100);
        }
        release();
    }
}

Test(join, threads_report_the_first_failure)
{
    for (unsigned nthreads = 1; nthreads <= 4; nthreads += 3) {
        generate_many(nthreads);
        entry(8 * 8191 + 2)->paired = 0; /* the last chunk of tensor 2 */
        entry(5)->paired = 0;            /* the first one of tensor 5 */
        VEC_AT(&r.m.tensors, dcp_tensor, 6)->properties = DCP_NONE;
        cr_assert_str_eq(built(800), "DCP-ORPHAN", "%s", r.err.message);
        cr_assert_str_eq(r.err.tensor,
                         strtab_text(&r.names.fqns, VEC_AT(&r.m.items, dcp_item, 2)->fqn));
        cr_assert_not_null(strstr(r.err.expected, "(16382, 0)"), "%s", r.err.expected);
        release();
    }
}

Test(join, one_chunk_named_twice)
{
    generate(&small);
    entry(4)->offsets_at = entry(1)->offsets_at;
    cr_assert_str_eq(built(300), "KEY-DUP", "%s", r.err.message);
    release();
}

Test(join, two_chunks_at_one_offset)
{
    dcp_pickle spec = small;
    spec.hints = 0;
    generate(&spec);
    VEC_AT(&r.m.chunks, dcp_chunk, 1)->offsets_at = VEC_AT(&r.m.chunks, dcp_chunk, 0)->offsets_at;
    cr_assert_str_eq(built(300), "CHUNK-OVERLAP");
    release();
}

Test(join, dims_must_agree)
{
    generate(&small);
    /* ndim of the first chunk's sizes: words are [ndim, sizes] */
    *VEC_AT(&r.m.dims, uint32_t, VEC_AT(&r.m.chunks, dcp_chunk, 0)->sizes_at) = 1;
    cr_assert_str_eq(built(300), "DCP-RANK");
    release();
}

Test(join, chunk_outside_of_its_tensor)
{
    generate(&small);
    *VEC_AT(&r.m.dims, uint32_t, VEC_AT(&r.m.chunks, dcp_chunk, 0)->sizes_at + 1) = 9;
    cr_assert_str_eq(built(300), "CHUNK-BOUNDS");
    cr_assert_str_eq(r.err.tensor, "model.layers.0.feed_forward.experts.w0.weight");
    release();
}

Test(join, empty_chunks_need_no_blob)
{
    generate(&small);
    *VEC_AT(&r.m.dims, uint32_t, VEC_AT(&r.m.chunks, dcp_chunk, 5)->sizes_at + 1) = 0;
    entry(4)->paired = 0; /* the same chunk: rank 1, tensor 1 */
    cr_assert_str_eq(built(300), "", "%s", r.err.message);
    cr_assert_eq(catalogue_chunk(&r.cat, 5)->place, LOCATION_EMPTY);
    release();
}

Test(ranges, blobs_do_not_overlap)
{
    generate(&small);
    entry(0)->nbytes++;
    cr_assert_str_eq(built(300), "DCP-RANGE-OVERLAP");
    release();
    generate(&small);
    entry(2)->offset_bytes = entry(0)->offset_bytes;
    cr_assert_str_eq(built(300), "DCP-RANGE-OVERLAP");
    release();
}

Test(ranges, blobs_lie_in_their_files)
{
    static const struct {
        uint64_t offset_bytes, nbytes;
        const char *finding;
    } rows[] = {
        {200, 101, "FILE-SHORT"},
        {200, UINT64_MAX, "DCP-RANGE"},
        {UINT64_MAX, 2, "DCP-RANGE"},
        {UINT64_MAX - 1, 1, "DCP-RANGE"},
        {1000, 100, "DCP-RANGE"},
        {300, 1, "DCP-RANGE"},
        {200, 100, ""},
        {300, 0, ""},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        generate(&small);
        entry(2)->offset_bytes = rows[i].offset_bytes;
        entry(2)->nbytes = rows[i].nbytes;
        cr_assert_str_eq(built(300), rows[i].finding, "row %zu: %s", i, r.err.message);
        release();
    }
    generate(&small);
    cr_assert_str_eq(built(299), "FILE-SHORT");
    cr_assert_not_null(strstr(r.err.expected, "300"));
    cr_assert_not_null(strstr(r.err.found, "299"));
    release();
}

Test(ranks, must_agree_about_a_tensor)
{
    dcp_metadata other;
    text_buf text = {0};
    dcp_pickle spec = small;
    generate(&small);
    cr_assert_eq(dcp_builder_add(&r.builder, &r.m, &r.err), FSDPCK_OK);
    cr_assert_eq(dcp_builder_add(&r.builder, &r.m, &r.err), FSDPCK_OK,
                 "equal boxes of another rank");
    cr_assert_eq(catalogue_tensor_count(&r.cat), 3);
    cr_assert_eq(catalogue_chunk_count(&r.cat), 24);
    spec.cols = 6;
    dcp_pickle_make(&spec, &text);
    const pickle_input in = {.bytes = (const uint8_t *)text.text, .nbytes = text.nbytes};
    cr_assert_eq(dcp_metadata_read(&in, &r.names, &r.cat.pool, false, &other, &r.err), FSDPCK_OK);
    cr_assert_eq(dcp_builder_add(&r.builder, &other, &r.err), FSDPCK_BADINPUT);
    cr_assert_str_eq(fsdpck_finding_name(r.err.finding), "DCP-MIXED");
    dcp_metadata_release(&other);
    text_release(&text);
    release();
}

static void expect_bytes(const char *bytes, size_t nbytes, bool opaque, const char *finding,
                         const char *word)
{
    cr_assert_eq(parse(bytes, nbytes, opaque), FSDPCK_BADINPUT);
    cr_assert_str_eq(fsdpck_finding_name(r.err.finding), finding, "%s", r.err.message);
    cr_assert_not_null(strstr(r.err.message, word), "%s", r.err.message);
    release();
}

#define EXPECT(text, opaque, finding, word) \
    expect_bytes(text, sizeof(text) - 1, opaque, finding, word)

Test(calls, are_named_and_not_made)
{
    EXPECT("\x80\4cos\nsystem\n\x8c\5touch\x85R.", false, "PKL-GLOBAL", "'os.system'");
    EXPECT("\x80\4cos\nsystem\n\x8c\5touch\x85R.", false, "PKL-GLOBAL", "touch");
    EXPECT("\x80\4cposix\nsystem\n\x8c\5touch\x85R.", false, "PKL-GLOBAL", "'posix.system'");
    EXPECT("\x80\4cbuiltins\neval\n\x8c\0031+1\x85R.", false, "PKL-GLOBAL", "'builtins.eval'");
    EXPECT("\x80\4csome.where\nMaker\n)R.", false, "PKL-CALL", "'some.where.Maker'");
    EXPECT("\x80\4csome.where\nMaker\nK\1K\2\x86R.", false, "PKL-CALL", "'some.where.Maker'");
    EXPECT("\x80\4csome.where\nColour\nK\1\x85R.", false, "DCP-META-TYPE", "not the metadata");
    EXPECT("\x80\4cos\nsystem\n.", false, "DCP-META-TYPE", "not the metadata");
    EXPECT("\x80\4cos\nsystem\n\x8c\5touch\x85R.", true, "PKL-GLOBAL", "'os.system'");
    EXPECT("\x80\4csome.where\nMaker\n)R.", true, "DCP-META-TYPE", "not the metadata");
}

Test(calls, getattr_is_for_one_enum)
{
    EXPECT("\x80\4cbuiltins\ngetattr\ncos\nenviron\n\x8c\3get\x86R.", false, "PKL-GETATTR",
           "os.environ");
    EXPECT("\x80\4cbuiltins\ngetattr\ncm\nMEM_FORMAT_ENCODING\nK\1\x86R.", false, "PKL-GETATTR",
           "getattr");
    EXPECT("\x80\4cbuiltins\ngetattr\n)R.", false, "PKL-GETATTR", "getattr");
    EXPECT("\x80\4cbuiltins\ngetattr\ncm\n_MEM_FORMAT_ENCODING\n\x8c\1X\x86R.", false,
           "DCP-META-TYPE", "not the metadata");
    EXPECT("\x80\2c__builtin__\ngetattr\ncm\nShardedTensor\nX\x11\0\0\0ProcessGroupState\x86R.",
           false, "DCP-META-TYPE", "not the metadata");
    EXPECT("\x80\2c__builtin__\ngetattr\ncm\nShardedTensor\nX\x03\0\0\0foo\x86R.", false,
           "PKL-GETATTR", "foo");
}

Test(shape, odd_records_are_refused)
{
#define CLASS "ctorch.distributed.checkpoint.metadata\n"
    EXPECT("N.", false, "DCP-META-TYPE", "not the metadata");
    EXPECT("\x80\4" CLASS "Metadata\n)\x81}b.", false, "DCP-META-TYPE", "state_dict_metadata");
    EXPECT("\x80\4" CLASS "Metadata\n)\x81.", false, "DCP-META-TYPE", "not the metadata");
    EXPECT("\x80\4" CLASS "Metadata\n)\x81}\x8c\x13state_dict_metadataK\1sb.", false,
           "DCP-META-TYPE", "not a dict");
    EXPECT("\x80\4" CLASS "Metadata\n)\x81}\x8c\x13state_dict_metadata}\x8c\1aK\1ssb.", false,
           "DCP-META-TYPE", "unknown");
    EXPECT("\x80\4" CLASS "ChunkStorageMetadata\nK\1\x85\x81.", false, "DCP-META-TYPE",
           "arguments");
    EXPECT("\x80\4" CLASS "ChunkStorageMetadata\n)\x81}b.", false, "DCP-META-TYPE", "offsets");
    EXPECT("\x80\4" CLASS "MetadataIndex\n)\x81}\x8c\3fqnK\1sb.", false, "DCP-META-TYPE", "fqn");
    EXPECT("\x80\4" CLASS "_StorageInfo\n)\x81}\x8c\3fqnK\1sb.", false, "DCP-META-TYPE",
           "relative_path");
    EXPECT("\x80\4" CLASS "TensorProperties\n)\x81K\1b.", false, "DCP-META-TYPE", "dtype");
    EXPECT("\x80\4ctorch\nSize\nJ\xff\xff\xff\xff\x85\x85R.", false, "CHUNK-BOUNDS", "negative");
    EXPECT("\x80\4ctorch\nSize\nN\x85\x85R.", false, "DCP-META-TYPE", "int");
    EXPECT("\x80\4ctorch\nSize\n\x8a\x09\0\0\0\0\0\0\0\0\1\x85\x85R.", false, "CHUNK-BOUNDS",
           "too large");
    EXPECT("\x80\4}" CLASS "MetadataIndex\n)\x81" CLASS "_StorageInfo\n)\x81s.", false,
           "DCP-META-TYPE", "before its state");
    EXPECT("\x80\4}" CLASS "MetadataIndex\n)\x81K\1s.", false, "DCP-META-TYPE", "_StorageInfo");
}

/* Chunks beyond 2^32 elements a dim, and a size that is shared by the memo. */
Test(shape, wide_sizes)
{
    text_buf text = {0};
    const dcp_pickle spec = {
        .ntensors = 1, .nranks = 3, .rows = 2000000000, .cols = 3, .blob_nbytes = 10, .hints = 0};
    dcp_pickle_make(&spec, &text);
    cr_assert_eq(parse(text.text, text.nbytes, false), FSDPCK_OK, "%s", r.err.message);
    cr_assert_str_eq(built(10), "", "%s", r.err.message);
    uint64_t offsets[NDIM_MAX], sizes[NDIM_MAX];
    catalogue_chunk_box(&r.cat, 2, offsets, sizes);
    cr_assert_eq(offsets[0], UINT64_C(4000000000));
    cr_assert_eq(sizes[0], 2000000000);
    cr_assert_eq(*catalogue_shape(&r.cat, 0), UINT64_C(6000000000));
    text_release(&text);
    release();
}

Test(names, ranks_in_file_names)
{
    cr_assert_eq(dcp_rank_of_blobs("__12_3.distcp"), 12);
    cr_assert_eq(dcp_rank_of_blobs("a/__0_0.distcp"), 0);
    cr_assert_eq(dcp_rank_of_blobs("__12.distcp"), CAT_NONE);
    cr_assert_eq(dcp_rank_of_blobs("__12_.distcp"), CAT_NONE);
    cr_assert_eq(dcp_rank_of_blobs("__x_0.distcp"), CAT_NONE);
    cr_assert_eq(dcp_rank_of_blobs("__99999999999999999999_0.distcp"), CAT_NONE);
    cr_assert_eq(dcp_rank_of_blobs("weights.bin"), CAT_NONE);
    cr_assert_eq(dcp_rank_of_metadata("__7.metadata"), 7);
    cr_assert_eq(dcp_rank_of_metadata("__7.metadata.tmp"), CAT_NONE);
    cr_assert_eq(dcp_rank_of_metadata(".metadata"), CAT_NONE);
}

/* Forms of releases that are not among the fixtures, written by Python from classes of the same
 * names. */
Test(releases, emulated_forms_are_read)
{
    static const struct {
        const char *name;
        bool old_package, old_properties, has_six, has_version, has_mcore, has_planner;
    } rows[] = {
        {"emulated-1.13", true, true, false, false, false, false},
        {"emulated-2.1-protocol2", false, true, false, false, false, true},
        {"emulated-2.3-protocol3", false, false, false, false, false, true},
        {"emulated-2.9-getattr", false, false, false, true, false, true},
        {"emulated-2.15-protocol5-zstd", false, false, true, true, false, true},
        {"emulated-megatron", false, false, false, false, true, false},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char path[4096], *bytes;
        size_t nbytes;
        snprintf(path, sizeof path, "%s/../corpus/dcp_metadata/%s", getenv("FIXTURES"),
                 rows[i].name);
        cr_assert_eq(file_read_whole(NULL, path, 1u << 20, &bytes, &nbytes, NULL), FSDPCK_OK, "%s",
                     path);
        cr_assert_eq(parse(bytes, nbytes, false), FSDPCK_OK, "%s: %s %s", rows[i].name,
                     fsdpck_finding_name(r.err.finding), r.err.message);
        cr_assert_eq(r.m.old_package, rows[i].old_package, "%s", rows[i].name);
        cr_assert_eq(r.m.old_properties, rows[i].old_properties, "%s", rows[i].name);
        cr_assert_eq(r.m.has_six_properties, rows[i].has_six, "%s", rows[i].name);
        cr_assert_eq(r.m.has_version, rows[i].has_version, "%s", rows[i].name);
        cr_assert_eq(r.m.has_mcore_data, rows[i].has_mcore, "%s", rows[i].name);
        cr_assert_eq(!value_is_none(r.m.planner), rows[i].has_planner, "%s", rows[i].name);
        cr_assert_str_eq(built(1000), "", "%s: %s", rows[i].name, r.err.message);
        cr_assert_eq(catalogue_tensor_count(&r.cat), 3);
        cr_assert_eq(catalogue_chunk_count(&r.cat), 9);
        cr_assert_eq(catalogue_chunk(&r.cat, 3)->place, LOCATION_EMPTY);
        cr_assert_eq(catalogue_object_count(&r.cat), 1);
        const cat_tensor *t = catalogue_tensor(&r.cat, 0);
        cr_assert_eq(value_count(&r.cat.pool, t->path), rows[i].has_planner ? 2u : 0u);
        cr_assert_eq(catalogue_tensor(&r.cat, 2)->ndim, 0);
        free(bytes);
        release();
    }
}
