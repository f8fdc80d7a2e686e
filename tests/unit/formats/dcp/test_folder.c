/* Incomplete or damaged folders, and their findings. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "formats/dcp/dcp.h"
#include "tests/support/scratch.h"
#include "tests/unit/formats/dcp/dcp_checkpoint.h"

static char dir[SCRATCH_BYTES];
static char path[4096];
static dcp_checkpoint o;

/* A copy of a fixture that may be spoilt. */
static void begin(const char *fixture)
{
    scratch_make(dir);
    copy_folder(fixture_path(path, sizeof path, fixture), dir);
}

static const char *in_dir(const char *name)
{
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return path;
}

static long size_of(const char *name)
{
    struct stat st;
    cr_assert_eq(stat(in_dir(name), &st), 0);
    return (long)st.st_size;
}

/* Replaces every occurrence of a text by another of the same length; ends the test where there is
 * none. */
static void patch(const char *name, const char *from, const char *to, size_t nbytes)
{
    folder d;
    char *bytes;
    size_t total, found = 0;
    cr_assert_eq(folder_open(&d, dir, NULL), FSDPCK_OK);
    cr_assert_eq(file_read_whole(&d, name, 1u << 24, &bytes, &total, NULL), FSDPCK_OK);
    for (size_t i = 0; i + nbytes <= total; i++) {
        if (memcmp(bytes + i, from, nbytes) == 0) {
            memcpy(bytes + i, to, nbytes);
            found++;
        }
    }
    cr_assert_gt(found, 0);
    scratch_write(dir, name, bytes, total);
    free(bytes);
    folder_close(&d);
}

static void expect(fsdpck_status status, const char *finding)
{
    const fsdpck_status st = dcp_checkpoint_open_path(&o, dir);
    cr_assert_eq(st, status, "%s %s (%s, %s)", fsdpck_finding_name(o.err.finding), o.err.message,
                 o.err.expected, o.err.found);
    cr_assert_str_eq(fsdpck_finding_name(o.err.finding), finding, "%s", o.err.message);
    cr_assert_eq(o.err.status, status);
    dcp_checkpoint_close(&o);
}

static void end(void)
{
    scratch_remove(dir);
}

Test(folder, probe_knows_each_form)
{
    static const char *const fixtures[] = {"torch-2.15.0/dcp-fsdp2",
                                           "torch-2.15.0/dcp-nocollective",
                                           "torch-1.13.1/dcp-sharded-tensor"};
    const char *near_miss;
    for (size_t i = 0; i < sizeof fixtures / sizeof *fixtures; i++) {
        dcp_checkpoint_prepare(&o, fixture_path(path, sizeof path, fixtures[i]));
        cr_assert(dcp_reader.probe(&o.probe, &near_miss), "%s", fixtures[i]);
        dcp_checkpoint_close(&o);
    }
    dcp_checkpoint_prepare(&o, fixture_path(path, sizeof path, "torch-2.15.0/hf-index"));
    cr_assert(!dcp_reader.probe(&o.probe, &near_miss));
    dcp_checkpoint_close(&o);
}

Test(folder, without_metadata_the_save_did_not_complete)
{
    begin("torch-2.15.0/dcp-multifile");
    unlink(in_dir(".metadata"));
    const char *near_miss;
    dcp_checkpoint_prepare(&o, dir);
    cr_assert(dcp_reader.probe(&o.probe, &near_miss));
    dcp_checkpoint_close(&o);
    expect(FSDPCK_BADINPUT, "SAVE-INCOMPLETE");
    scratch_write(dir, ".metadata.tmp", "", 0);
    cr_assert_eq(dcp_checkpoint_open_path(&o, dir), FSDPCK_BADINPUT);
    cr_assert_not_null(strstr(o.err.message, "save did not complete"));
    cr_assert_not_null(strstr(o.err.found, ".metadata.tmp"));
    dcp_checkpoint_close(&o);
    end();
}

Test(folder, all_missing_files_and_lost_tensors_are_named)
{
    begin("torch-2.15.0/dcp-multifile");
    unlink(in_dir("__0_1.distcp"));
    unlink(in_dir("__1_0.distcp"));
    cr_assert_eq(dcp_checkpoint_open_path(&o, dir), FSDPCK_BADINPUT);
    cr_assert_str_eq(fsdpck_finding_name(o.err.finding), "FILE-MISSING");
    cr_assert_not_null(strstr(o.err.message, "2 files"), "%s", o.err.message);
    cr_assert_not_null(strstr(o.err.message, "__0_1.distcp"));
    cr_assert_not_null(strstr(o.err.message, "__1_0.distcp"));
    cr_assert_not_null(strstr(o.err.found, "model.0.weight"), "%s", o.err.found);
    cr_assert_not_null(strstr(o.log.text, "__0_1.distcp"), "each is logged besides");
    dcp_checkpoint_close(&o);
    end();
}

Test(folder, truncated_file_is_short)
{
    begin("torch-2.15.0/dcp-multifile");
    const long nbytes = size_of("__0_0.distcp");
    const long kept[] = {nbytes - 1, nbytes - 10, nbytes / 2, 0};
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++) {
        cr_assert_eq(truncate(in_dir("__0_0.distcp"), kept[i]), 0);
        expect(FSDPCK_BADINPUT, "FILE-SHORT");
    }
    end();
}

Test(folder, paths_stay_inside)
{
    static const char *const bad[] = {"../_0.distcp", "/__0_.distcp", "a/../.distcp",
                                      "__0\0_.distcp", "a//b0.distcp"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        begin("torch-2.15.0/dcp-multifile");
        patch(".metadata", "__0_0.distcp", bad[i], 12);
        expect(FSDPCK_BADINPUT, "DCP-PATH");
        end();
    }
    begin("torch-2.15.0/dcp-multifile");
    patch(".metadata", "__0_0.distcp", "sub/a.distcp", 12);
    cr_assert_eq(mkdir(in_dir("sub"), 0777), 0);
    char from[SCRATCH_BYTES], to[SCRATCH_BYTES];
    cr_assert_eq(
        rename(scratch_path(from, dir, "__0_0.distcp"), scratch_path(to, dir, "sub/a.distcp")), 0);
    cr_assert_eq(dcp_checkpoint_open_path(&o, dir), FSDPCK_OK, "a folder below is fine: %s",
                 o.err.message);
    dcp_checkpoint_close(&o);
    end();
}

Test(folder, only_regular_files_hold_blobs)
{
    begin("torch-2.15.0/dcp-multifile");
    unlink(in_dir("__0_0.distcp"));
    cr_assert_eq(mkfifo(in_dir("__0_0.distcp"), 0600), 0);
    expect(FSDPCK_BADINPUT, "FILE-TYPE");
    unlink(in_dir("__0_0.distcp"));
    cr_assert_eq(mkdir(in_dir("__0_0.distcp"), 0700), 0);
    expect(FSDPCK_BADINPUT, "FILE-TYPE");
    end();
}

Test(folder, links_are_followed_unless_refused)
{
    char from[SCRATCH_BYTES], to[SCRATCH_BYTES];
    begin("torch-2.15.0/dcp-multifile");
    cr_assert_eq(
        rename(scratch_path(from, dir, "__0_0.distcp"), scratch_path(to, dir, "elsewhere")), 0);
    cr_assert_eq(symlink("elsewhere", in_dir("__0_0.distcp")), 0);
    cr_assert_eq(dcp_checkpoint_open_path(&o, dir), FSDPCK_OK);
    dcp_checkpoint_close(&o);
    dcp_checkpoint_prepare(&o, dir);
    o.request.no_follow = true;
    cr_assert_eq(dcp_checkpoint_open(&o), FSDPCK_BADINPUT);
    cr_assert_str_eq(fsdpck_finding_name(o.err.finding), "FILE-TYPE");
    dcp_checkpoint_close(&o);
    end();
}

Test(folder, trailing_bytes)
{
    begin("torch-2.15.0/dcp-multifile");
    FILE *f = fopen(in_dir(".metadata"), "ab");
    fputs("N.", f);
    fclose(f);
    expect(FSDPCK_BADINPUT, "PKL-TRAILING");
    end();
}

/* First chunk that is not empty. */
static uint64_t some_chunk(void)
{
    for (uint64_t i = 0; i < catalogue_chunk_count(&o.cat); i++)
        if (catalogue_chunk(&o.cat, i)->place != LOCATION_EMPTY)
            return i;
    cr_assert(false);
    return 0;
}

Test(folder, payload_is_compared_with_the_metadata)
{
    place where;
    begin("torch-2.15.0/dcp-multifile");
    patch(".metadata", "float32", "float64", 7);
    cr_assert_eq(dcp_checkpoint_open_path(&o, dir), FSDPCK_OK);
    cr_assert_eq(o.src.locate(o.src.ctx, some_chunk(), &where, &o.err), FSDPCK_BADINPUT);
    cr_assert_str_eq(fsdpck_finding_name(o.err.finding), "DCP-PAYLOAD-DTYPE", "%s", o.err.message);
    cr_assert_str_eq(o.err.expected, "float64");
    cr_assert_str_eq(o.err.found, "float32");
    cr_assert(o.err.tensor[0] != '\0' && o.err.path[0] != '\0');
    dcp_checkpoint_close(&o);
    end();

    begin("torch-2.15.0/dcp-multifile");
    patch(".metadata", "K\3K\4\x86", "K\2K\6\x86", 5); /* "scale", its size and its only chunk */
    cr_assert_eq(dcp_checkpoint_open_path(&o, dir), FSDPCK_OK);
    const uint32_t scale = catalogue_find(&o.cat, "scale", 5);
    cr_assert_eq(
        o.src.locate(o.src.ctx, catalogue_tensor(&o.cat, scale)->first_chunk, &where, &o.err),
        FSDPCK_BADINPUT);
    cr_assert_str_eq(fsdpck_finding_name(o.err.finding), "DCP-PAYLOAD-SHAPE");
    cr_assert_str_eq(o.err.expected, "[2, 6]");
    cr_assert_str_eq(o.err.found, "[3, 4]");
    dcp_checkpoint_close(&o);
    end();
}

Test(folder, unknown_dtype_is_named)
{
    begin("torch-2.15.0/dcp-multifile");
    patch(".metadata", "float32", "float13", 7);
    cr_assert_eq(dcp_checkpoint_open_path(&o, dir), FSDPCK_UNSUPPORTED);
    cr_assert_not_null(strstr(o.err.message, "float13"));
    cr_assert(o.err.tensor[0] != '\0');
    dcp_checkpoint_close(&o);
    end();
}

Test(folder, unknown_transform_is_named)
{
    place where;
    begin("torch-2.15.0/dcp-zstd");
    patch(".metadata", "stream.zstd/1", "stream.zstd/9", 13);
    cr_assert_eq(dcp_checkpoint_open_path(&o, dir), FSDPCK_OK, "metadata alone can be read");
    cr_assert_eq(o.src.locate(o.src.ctx, some_chunk(), &where, &o.err), FSDPCK_UNSUPPORTED);
    cr_assert_not_null(strstr(o.err.message, "stream.zstd/9"));
    dcp_checkpoint_close(&o);
    end();
}

/* Damages byte `at` of the blob of tensor 0's first chunk; whether reading it all finds that. */
static bool damage_is_found(const char *fixture, uint64_t at, bool *had_more)
{
    char digest[17], before[17], label[256];
    begin(fixture);
    cr_assert_eq(dcp_checkpoint_open_path(&o, dir), FSDPCK_OK);
    cr_assert_eq(dcp_checkpoint_digest(&o, 0, before, label), FSDPCK_OK);
    const cat_chunk c = *catalogue_chunk(&o.cat, catalogue_tensor(&o.cat, 0)->first_chunk);
    char name[256];
    snprintf(name, sizeof name, "%s", catalogue_name(&o.cat, catalogue_file(&o.cat, c.file)->path));
    dcp_checkpoint_close(&o);
    *had_more = at + 1 < c.nbytes;
    FILE *f = fopen(in_dir(name), "r+b");
    fseek(f, (long)(c.offset_bytes + at), SEEK_SET);
    const int byte = fgetc(f);
    fseek(f, (long)(c.offset_bytes + at), SEEK_SET);
    fputc(byte ^ 0x10, f);
    fclose(f);
    cr_assert_eq(dcp_checkpoint_open_path(&o, dir), FSDPCK_OK);
    const fsdpck_status st = dcp_checkpoint_digest(&o, 0, digest, label);
    const bool found = st != FSDPCK_OK;
    if (!found)
        cr_assert_str_eq(digest, before, "%s: byte %llu changed the tensor unseen", fixture,
                         (unsigned long long)at);
    dcp_checkpoint_close(&o);
    end();
    return found;
}

Test(folder, damage_in_a_compressed_blob_never_changes_a_tensor_unseen, .timeout = 120)
{
    unsigned found = 0, total = 0;
    bool more = true;
    for (uint64_t at = 0; more; at++, total++)
        found += damage_is_found("torch-2.15.0/dcp-zstd", at, &more);
    cr_assert_gt(total, 100);
    cr_assert_gt(found, total * 9 / 10, "%u of %u", found, total);
}

Test(ranks, each_rank_needs_its_metadata)
{
    begin("torch-2.15.0/dcp-nocollective");
    unlink(in_dir("__2.metadata"));
    cr_assert_eq(dcp_checkpoint_open_path(&o, dir), FSDPCK_BADINPUT);
    cr_assert_str_eq(fsdpck_finding_name(o.err.finding), "FILE-MISSING");
    cr_assert_not_null(strstr(o.err.message, "rank 2"), "%s", o.err.message);
    dcp_checkpoint_close(&o);
    end();

    begin("torch-2.15.0/dcp-nocollective");
    unlink(in_dir("__3.metadata"));
    expect(FSDPCK_BADINPUT, "FILE-MISSING"); /* its data file reveals it */
    unlink(in_dir("__3_0.distcp"));
    expect(FSDPCK_OK, "");
    dcp_checkpoint_prepare(&o, dir);
    o.request.expect_ranks = 4;
    cr_assert_eq(dcp_checkpoint_open(&o), FSDPCK_BADINPUT,
                 "a stated number of ranks sees what names cannot");
    cr_assert_str_eq(fsdpck_finding_name(o.err.finding), "FILE-MISSING");
    dcp_checkpoint_close(&o);
    end();
}

Test(ranks, equal_boxes_stay_several_chunks)
{
    cr_assert_eq(dcp_checkpoint_open_path(
                     &o, fixture_path(path, sizeof path, "torch-2.15.0/dcp-nocollective")),
                 FSDPCK_OK);
    const uint32_t scale = catalogue_find(&o.cat, "scale", 5);
    const cat_tensor *t = catalogue_tensor(&o.cat, scale);
    cr_assert_eq(t->nchunks, 4);
    for (uint32_t k = 0; k < 4; k++)
        cr_assert_eq(catalogue_chunk(&o.cat, t->first_chunk + k)->rank, k);
    cr_assert_eq(o.cat.origin.world_size, 4);
    dcp_checkpoint_close(&o);
}

Test(ranks, objects_that_differ_are_told)
{
    begin("torch-2.15.0/dcp-nocollective");
    for (int spoilt = 0; spoilt < 2; spoilt++) {
        uint32_t i = 0;
        cr_assert_eq(dcp_checkpoint_open_path(&o, dir), FSDPCK_OK, "%s", o.err.message);
        while (strcmp(catalogue_name(&o.cat, catalogue_object(&o.cat, i)->name), "epoch") != 0)
            i++;
        cr_assert_eq(catalogue_file(&o.cat, catalogue_object(&o.cat, i)->file)->rank, 0);
        cr_assert_eq(dcp_reader.load_object(o.self, &o.cat, i, &o.err), FSDPCK_OK, "%s",
                     o.err.message);
        const char *said = o.log.text != NULL ? o.log.text : "";
        if (spoilt)
            cr_assert_not_null(strstr(said, "object 'epoch' differs on 1 other rank: using "), "%s",
                               said);
        else
            cr_assert_null(strstr(said, "differs"), "%s", said);
        dcp_checkpoint_close(&o);
        if (!spoilt)
            patch("__3_0.distcp", "K\3.", "K\4.", 3); /* epoch 3 becomes 4 */
    }
    end();
}

Test(origin, torch_and_ranks)
{
    static const struct {
        const char *fixture, *torch;
        int64_t world_size;
    } rows[] = {
        {"torch-2.15.0/dcp-fsdp2", "2.15 or newer", 4},
        {"torch-2.15.0/dcp-multifile", "2.15 or newer", 2},
        {"torch-2.8.0/dcp-fsdp2", "2.7 or 2.8", 4},
        {"torch-2.4.1/dcp-fsdp2", "2.4 to 2.6", 4},
        {"torch-2.6.0/dcp-hsdp", "2.4 to 2.6", 4},
        {"torch-2.1.2/dcp-sharded-tensor", "2.0 to 2.2", 4},
        {"torch-1.13.1/dcp-sharded-tensor", "1.13", 4},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        cr_assert_eq(dcp_checkpoint_open_path(&o, fixture_path(path, sizeof path, rows[i].fixture)),
                     FSDPCK_OK);
        cr_expect_str_eq(o.cat.origin.torch_version, rows[i].torch, "%s", rows[i].fixture);
        cr_expect_eq(o.cat.origin.world_size, rows[i].world_size, "%s: %lld", rows[i].fixture,
                     (long long)o.cat.origin.world_size);
        cr_expect_str_eq(o.cat.origin.format, "dcp");
        cr_expect_eq(o.cat.origin.step, -1);
        dcp_checkpoint_close(&o);
    }
}

static void check_origin(const char *folder_name, const char *extra, const char *trainer,
                         int64_t step)
{
    char whole[SCRATCH_BYTES * 2];
    begin("torch-2.15.0/dcp-multifile");
    snprintf(whole, sizeof whole, "%s/%s", dir, folder_name);
    cr_assert_eq(mkdir(whole, 0777), 0);
    copy_folder(fixture_path(path, sizeof path, "torch-2.15.0/dcp-multifile"), whole);
    if (extra != NULL)
        scratch_write(whole, extra, "", 0);
    strcat(whole, "/");
    cr_assert_eq(dcp_checkpoint_open_path(&o, whole), FSDPCK_OK, "%s", o.err.message);
    cr_expect_str_eq(o.cat.origin.trainer, trainer, "%s: %s", folder_name, o.cat.origin.trainer);
    cr_expect_eq(o.cat.origin.step, step, "%s: %lld", folder_name, (long long)o.cat.origin.step);
    dcp_checkpoint_close(&o);
    end();
}

Test(origin, trainers_and_steps)
{
    check_origin("step-100", NULL, "", 100);
    check_origin("global_step_7", NULL, "", 7);
    check_origin("iter_0000100", NULL, "", 100);
    check_origin("checkpoint-5", NULL, "", 5);
    check_origin("checkpoint-", NULL, "", -1);
    check_origin("step-1x", NULL, "", -1);
    check_origin("pytorch_model_fsdp_0", NULL, "accelerate", -1);
    check_origin("some", "meta.pt", "lightning", -1);
}

Test(objects, hold_what_was_saved)
{
    cr_assert_eq(
        dcp_checkpoint_open_path(&o, fixture_path(path, sizeof path, "torch-2.15.0/dcp-zstd")),
        FSDPCK_OK);
    bool seen = false;
    for (uint32_t i = 0; i < catalogue_object_count(&o.cat); i++) {
        cr_assert_eq(dcp_reader.load_object(o.self, &o.cat, i, &o.err), FSDPCK_OK, "%s",
                     o.err.message);
        const cat_object *object = catalogue_object(&o.cat, i);
        int64_t epoch;
        if (strcmp(catalogue_name(&o.cat, object->name), "epoch") != 0)
            continue;
        seen = value_as_i64(&o.cat.pool, object->content, &epoch) && epoch == 3;
        cr_assert_eq(value_count(&o.cat.pool, object->path), 1);
    }
    cr_assert(seen);
    dcp_checkpoint_close(&o);
}

Test(objects, tensors_inside_can_be_read)
{
    char digest[17], label[256];
    cr_assert_eq(dcp_checkpoint_open_path(
                     &o, fixture_path(path, sizeof path, "torch-2.15.0/dcp-transposed")),
                 FSDPCK_OK);
    const size_t before = catalogue_tensor_count(&o.cat);
    cr_assert_eq(catalogue_object_count(&o.cat), 1);
    cr_assert_eq(dcp_reader.load_object(o.self, &o.cat, 0, &o.err), FSDPCK_OK, "%s", o.err.message);
    cr_assert_eq(catalogue_tensor_count(&o.cat), before + 1);
    const value pair = catalogue_object(&o.cat, 0)->content;
    cr_assert_eq(value_kind_of(pair), VALUE_TUPLE);
    cr_assert_eq(value_kind_of(value_item(&o.cat.pool, pair, 0)), VALUE_TENSOR);
    cr_assert_eq(value_tensor_index(value_item(&o.cat.pool, pair, 0)), before);
    const cat_tensor *t = catalogue_tensor(&o.cat, before);
    cr_assert(t->flags & CAT_TENSOR_IN_OBJECT);
    cr_assert_eq(dcp_checkpoint_digest(&o, (uint32_t)before, digest, label), FSDPCK_OK, "%s",
                 o.err.message);
    cr_assert_str_eq(label, "float32[2,2]");
    cr_assert_str_eq(digest, "b56c1a15f1cb2cc7");
    dcp_checkpoint_close(&o);
}

/* Whatever the budget, opening succeeds or fails with LIMIT, and gives all back (dcp_checkpoint_close checks
 * that). */
Test(memory, any_budget_fails_cleanly)
{
    static const char *const fixtures[] = {"torch-2.15.0/dcp-zstd", "torch-2.15.0/dcp-nocollective",
                                           "torch-2.15.0/dcp-st-inside"};
    for (size_t i = 0; i < sizeof fixtures / sizeof *fixtures; i++) {
        unsigned failed = 0, opened = 0;
        for (uint64_t limit = 0; limit < (1u << 20) && opened < 3; limit += 997) {
            dcp_checkpoint_prepare(&o, fixture_path(path, sizeof path, fixtures[i]));
            o.metadata.limit_bytes = limit;
            const fsdpck_status st = dcp_checkpoint_open(&o);
            cr_assert(st == FSDPCK_OK || st == FSDPCK_LIMIT, "%s at %llu: %d %s", fixtures[i],
                      (unsigned long long)limit, st, o.err.message);
            opened += st == FSDPCK_OK;
            failed += st == FSDPCK_LIMIT;
            dcp_checkpoint_close(&o);
        }
        cr_assert(failed > 10 && opened == 3, "%s: %u failed, %u opened", fixtures[i], failed,
                  opened);
    }
}
