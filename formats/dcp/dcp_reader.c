#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "formats/dcp/dcp.h"
#include "formats/dcp/dcp_boxes.h"
#include "formats/dcp/dcp_catalogue.h"
#include "formats/dcp/dcp_flattened.h"
#include "formats/dcp/dcp_internal.h"
#include "formats/dcp/dcp_lightning.h"
#include "formats/dcp/dcp_megatron.h"
#include "formats/dcp/dcp_part_folders.h"
#include "formats/dcp/dcp_planner_keys.h"

static bool probe(const probe_input *in, const char **near_miss)
{
    bool any_distcp = false;

    *near_miss = NULL;
    if (!in->is_folder) {
        if (text_ends_with(in->name, strlen(in->name), ".distcp") ||
            text_ends_with(in->name, strlen(in->name), ".metadata"))
            *near_miss = "a file of a DCP checkpoint: give the folder that holds it";
        return false;
    }
    for (size_t i = 0; i < in->entry_count; i++) {
        const char *name = in->entries[i];
        if (strcmp(name, ".metadata") == 0 || strcmp(name, ".metadata.tmp") == 0 ||
            dcp_rank_of_metadata(name) != CAT_NONE || dcp_rank_of_blobs(name) != CAT_NONE)
            return true;
        any_distcp = any_distcp || text_ends_with(name, strlen(name), ".distcp");
    }
    if (any_distcp)
        *near_miss = "folder with .distcp files, but without .metadata";
    return dcp_part_folders_probe(in) > 0 || dcp_megatron_probe(in) != DCP_MEGATRON_NONE;
}

static void note_marks(dcp_marks *marks, const dcp_metadata *m)
{
    marks->has_storage_meta = marks->has_storage_meta || m->has_storage_meta;
    marks->has_modules = marks->has_modules || m->has_modules;
    marks->has_version = marks->has_version || m->has_version;
    marks->has_traces = marks->has_traces || m->has_traces;
    marks->has_new_paths = marks->has_new_paths || m->has_new_paths;
    marks->has_mcore_data = marks->has_mcore_data || m->has_mcore_data;
    marks->has_six_properties = marks->has_six_properties || m->has_six_properties;
    marks->old_package = marks->old_package || m->old_package;
    marks->old_properties = marks->old_properties || m->old_properties;
    marks->has_planner = marks->has_planner || !value_is_none(m->planner);
    marks->is_by_fsdpck = marks->is_by_fsdpck || m->is_by_fsdpck;
    marks->has_tensors = marks->has_tensors || m->tensors.count > 0;
}

/* Parts, or ranks, of one save have the same step in the path that it was made to; and so has the folder, unless it was
 * renamed. */
static void check_step(dcp_marks *marks, const dcp_metadata *m, const open_request *req,
                       const char *name)
{
    step_name own;
    if (!m->has_step)
        return;
    if (marks->has_step && !marks->has_other_step && step_name_same_kind(&marks->step, &m->step) &&
        marks->step.step != m->step.step) {
        marks->has_other_step = true; /* one warning, however many ranks */
        log_warn(&req->log, FSDPCK_FINDING_RANK_MIXED, "check that all files are from one save",
                 "'%s/%s' records a save of step %" PRIu64 ", '%s' one of step %" PRIu64, req->path,
                 name, m->step.step, marks->step_file, marks->step.step);
    }
    if (marks->has_step)
        return;
    if (step_name_of_path(req->path, strlen(req->path), &own) &&
        step_name_same_kind(&own, &m->step) && own.step != m->step.step)
        log_warn(&req->log, FSDPCK_FINDING_STEP_NAME,
                 "copy all files of one save; ignore this if the folder was renamed",
                 "'%s/%s' records a save of step %" PRIu64 ", not of step %" PRIu64
                 " as the name of the folder",
                 req->path, name, m->step.step, own.step);
    snprintf(marks->step_file, sizeof marks->step_file, "%s", name);
    marks->step = m->step;
    marks->has_step = true;
}

/* One `.metadata` into the builder. */
static fsdpck_status read_metadata(dcp_folder *d, const open_request *req, const char *name,
                                   dcp_builder *b, dcp_marks *marks, fsdpck_error *err)
{
    dcp_metadata m;
    RETURN_IF(dcp_metadata_read_file(d, req, name, &d->names, &d->cat->pool, &m, err));
    note_marks(marks, &m);
    check_step(marks, &m, req, name);
    const fsdpck_status st = dcp_builder_add(b, &m, err);
    dcp_metadata_release(&m);
    return st;
}

static fsdpck_status read_named(dcp_folder *d, const open_request *req, const char *name,
                                dcp_builder *b, dcp_marks *marks, fsdpck_error *err)
{
    const fsdpck_status st = read_metadata(d, req, name, b, marks, err);
    if (st != FSDPCK_OK) {
        text_buf path = {.limit_bytes = 8192};
        text_printf(&path, "%s/%s", d->dir.path, name);
        error_path(err, path.text);
        text_release(&path);
    }
    return st;
}

static fsdpck_status report_unfinished(const char *path, bool tmp, fsdpck_error *err)
{
    return FAIL_WITH(
        err, BADINPUT, SAVE_INCOMPLETE, ("save did not complete: the folder has no '.metadata'"),
        (path, path), (expected, "'.metadata', or '__{rank}.metadata' of every rank"),
        (found, "%s", tmp ? "'.metadata.tmp', which was not renamed" : "only data files"),
        (next, "%s",
         tmp ? "use an earlier checkpoint: fsdpck latest ROOT finds it"
             : "if the save was complete, copy '.metadata' (a hidden file) from where it was "
               "written; otherwise use an earlier checkpoint: fsdpck latest ROOT finds it"));
}

/* Ranks that have files, by name: highest + 1, and the ranks with their own metadata. */
static uint64_t rank_count(const probe_input *in)
{
    uint64_t count = 0;
    for (size_t i = 0; i < in->entry_count; i++) {
        const uint32_t a = dcp_rank_of_metadata(in->entries[i]),
                       b = dcp_rank_of_blobs(in->entries[i]);
        if (a != CAT_NONE && a + UINT64_C(1) > count)
            count = a + UINT64_C(1);
        if (b != CAT_NONE && b + UINT64_C(1) > count)
            count = b + UINT64_C(1);
    }
    return count;
}

static fsdpck_status report_ranks(const open_request *req, const uint8_t *seen, uint64_t nranks,
                                  uint64_t nmissing, fsdpck_error *err)
{
    text_buf list = {.limit_bytes = 2048};
    uint64_t listed = 0;

    for (uint64_t r = 0; r < nranks; r++) {
        char name[40];
        if (seen[r])
            continue;
        snprintf(name, sizeof name, "__%" PRIu64 ".metadata", r);
        log_missing_file(&req->log, req->path, name);
        if (listed < 32)
            text_printf(&list, "%s%" PRIu64, listed++ > 0 ? ", " : "", r);
    }
    FAIL_WITH(err, BADINPUT, FILE_MISSING,
              ("metadata of %" PRIu64 " of %" PRIu64 " ranks is missing: rank %s%s", nmissing,
               nranks, list.text != NULL ? list.text : "", listed < nmissing ? ", ..." : ""),
              (path, req->path),
              (expected, "'__{rank}.metadata' of ranks 0 to %" PRIu64, nranks - 1),
              (found, "%" PRIu64 " of them", nranks - nmissing));
    text_release(&list);
    return FSDPCK_BADINPUT;
}

/* use_collectives=False: every rank wrote its own data. */
static fsdpck_status read_ranks(dcp_folder *d, const open_request *req, dcp_builder *b,
                                dcp_marks *marks, fsdpck_error *err)
{
    const probe_input *in = req->probe;
    uint64_t nranks = rank_count(in), found = 0;
    fsdpck_status st = FSDPCK_OK;

    if (req->expect_ranks > nranks)
        nranks = req->expect_ranks;
    uint8_t *seen = budget_alloc(d->owner, nranks, err);
    if (seen == NULL)
        return FSDPCK_LIMIT;
    for (size_t i = 0; i < in->entry_count; i++) {
        const uint32_t rank = dcp_rank_of_metadata(in->entries[i]);
        if (rank != CAT_NONE && !seen[rank]) {
            seen[rank] = 1;
            found++;
        }
    }
    if (found < nranks)
        st = report_ranks(req, seen, nranks, nranks - found, err);
    marks->no_collectives = true;
    marks->world_size = (int64_t)nranks;
    for (uint64_t r = 0; r < nranks && st == FSDPCK_OK; r++) {
        char name[64];
        snprintf(name, sizeof name, "__%" PRIu64 ".metadata", r);
        b->has_lower_ranks = r > 0;
        st = cancel_check(req->cancel, err);
        if (st == FSDPCK_OK)
            st = read_named(d, req, name, b, marks, err);
    }
    budget_free(d->owner, seen, nranks);
    if (st == FSDPCK_OK && req->expect_ranks == 0)
        log_warn(&d->log, FSDPCK_FINDING_RANKS_UNKNOWN,
                 "give --source-ranks N, where N is the number of ranks that saved the checkpoint",
                 "%" PRIu64 " rank%s found, each with its own metadata; these files cannot show "
                 "whether a last rank is missing",
                 nranks, nranks == 1 ? "" : "s");
    return st;
}

static int compare_repeats(const void *a, const void *b)
{
    const dcp_repeat *x = a, *y = b;
    ORDER_BY(x->object, y->object);
    return x->file < y->file ? -1 : x->file > y->file;
}

static void keep_tables(dcp_folder *d, dcp_builder *b)
{
    if (b->repeats.count > 1)
        qsort(b->repeats.items, b->repeats.count, sizeof(dcp_repeat), compare_repeats);
    d->repeats = b->repeats;
    b->repeats = VEC_OF(dcp_repeat, d->owner);
    d->ends = b->ends;
    b->ends = VEC_OF(uint64_t, d->owner);
    d->flat_boxes = b->flat_boxes;
    b->flat_boxes = VEC_OF(dcp_flat_box, d->owner);
}

/* One `.metadata` each, of one save. */
static fsdpck_status read_parts(dcp_folder *d, const open_request *req, dcp_builder *b,
                                dcp_marks *marks, fsdpck_error *err)
{
    const dcp_part_folders *f = dcp_part_folders_get(marks->part_folders);
    for (uint32_t part = 0; part < dcp_part_count(f); part++) {
        const char *const folder_name = f->parts[part].folder;
        char name[64];
        path_kind kind;
        RETURN_IF(path_probe(&d->dir, folder_name, &kind, NULL, err));
        if (kind == PATH_ABSENT)
            continue;
        snprintf(name, sizeof name, "%s/.metadata", folder_name);
        RETURN_IF(path_probe(&d->dir, name, &kind, NULL, err));
        if (kind == PATH_ABSENT) {
            text_buf path = {.limit_bytes = 8192};
            text_printf(&path, "%s/%s", req->path, folder_name);
            const fsdpck_status st =
                report_unfinished(path.text != NULL ? path.text : folder_name, false, err);
            text_release(&path);
            return st;
        }
        d->names.folder = folder_name;
        const fsdpck_status st = read_named(d, req, name, b, marks, err);
        d->names.folder = NULL;
        RETURN_IF(st);
    }
    return FSDPCK_OK;
}

static fsdpck_status fill(dcp_folder *d, const open_request *req, dcp_builder *b, fsdpck_error *err)
{
    dcp_marks marks = {.world_size = -1};
    uint32_t lightning_file;

    if (probe_has_entry(req->probe, ".metadata")) {
        RETURN_IF(read_named(d, req, ".metadata", b, &marks, err));
        RETURN_IF(dcp_second_save_check(d, req, err));
    } else if ((marks.part_folders = dcp_part_folders_probe(req->probe)) > 0) {
        RETURN_IF(read_parts(d, req, b, &marks, err));
    } else {
        bool any = false;
        for (size_t i = 0; i < req->probe->entry_count && !any; i++)
            any = dcp_rank_of_metadata(req->probe->entries[i]) != CAT_NONE;
        if (!any)
            RETURN_IF(dcp_megatron_check(req->probe, err));
        if (!any)
            return report_unfinished(req->path, probe_has_entry(req->probe, ".metadata.tmp"), err);
        RETURN_IF(read_ranks(d, req, b, &marks, err));
    }
    RETURN_IF(dcp_check_unlisted(b, req, err));
    keep_tables(d, b);
    RETURN_IF(dcp_lightning_add_file(d, req, &lightning_file, err));
    RETURN_IF(dcp_files_check(d, req, err));
    if (!open_request_is_damaged(req))
        RETURN_IF(dcp_warn_of_empty_lost(d, err));
    if (!marks.no_collectives)
        RETURN_IF(dcp_count_ranks(d, req, &marks, err));
    if (b->stray_blobs > 0)
        log_warn(
            &d->log, FSDPCK_FINDING_DCP_ORPHAN,
            "use another copy of the metadata: this one was altered, or written by another program",
            "%" PRIu64 " blob%s to no tensor or object", b->stray_blobs,
            b->stray_blobs == 1 ? " belongs" : "s belong");
    if (b->leftovers > 0)
        log_warn(&d->log, FSDPCK_FINDING_DCP_LEFT_OUT,
                 "give --model FILE to restore the parameters: fsdpck-model(5)",
                 "%" PRIu64 " tensor%s left out, the first '%s': per-rank shards that FSDP1 stores "
                 "next to its flat parameters (LOCAL_STATE_DICT with use_orig_params)",
                 b->leftovers, b->leftovers == 1 ? " is" : "s are",
                 strtab_text(&d->names.fqns, b->first_leftover));
    marks.has_transforms = strtab_count(&d->names.transforms) > 1;
    dcp_origin_fill(d->cat, req, &marks);
    d->marks = marks;
    if (marks.has_traces)
        format_note(
            req->found, req->found_ctx, FSDPCK_FINDING_DCP_TRACES, d->dir.path, NULL,
            "metadata contains the path where the checkpoint was saved, or an id of that save");
    if (marks.has_new_paths)
        format_note(req->found, req->found_ctx, FSDPCK_FINDING_DCP_PATHLIB, d->dir.path, NULL,
                    "metadata contains pathlib objects of Python 3.13, which older versions of "
                    "Python cannot read");
    RETURN_IF(catalogue_seal(d->cat, err));
    dcp_warn_part_kinds(d, &marks);
    RETURN_IF(dcp_lightning_read(d, req, lightning_file, err));
    RETURN_IF(dcp_order_check(d, req, err));
    return req->repair_strided ? dcp_boxes_repair(d, req, err)
                               : dcp_boxes_check_suspect(d, req, err);
}

static fsdpck_status dcp_open(const open_request *req, catalogue *cat, void **self,
                              fsdpck_error *err)
{
    dcp_folder *d;
    dcp_builder b;

    RETURN_IF(dcp_folder_new(req, cat, &d, err));
    dcp_builder_init(&b, cat, &d->names);
    b.keep_leftovers = req->keep_flat_shards;
    b.nthreads = req->nthreads;
    b.cancel = req->cancel;
    const fsdpck_status st = fill(d, req, &b, err);
    dcp_builder_release(&b);
    if (st != FSDPCK_OK) {
        dcp_folder_free(d);
        return st;
    }
    *self = d;
    return FSDPCK_OK;
}

static fsdpck_status read_at(void *ctx, uint32_t file_id, uint64_t offset_bytes, void *dst,
                             uint64_t nbytes, fsdpck_error *err)
{
    dcp_folder *d = ctx;
    return file_set_read_at(&d->blobs, file_id, offset_bytes, dst, nbytes, err);
}

static fsdpck_status check_unchanged(void *ctx, fsdpck_error *err)
{
    dcp_folder *d = ctx;
    RETURN_IF(file_set_check_unchanged(&d->metadatas, err));
    return file_set_check_unchanged(&d->blobs, err);
}

static void dcp_source(void *self, catalogue *cat, source *src)
{
    dcp_folder *d = self;
    d->cat = cat;
    *src = (source){
        .ctx = d,
        .cat = cat,
        .locate = dcp_locate,
        .check_empty = dcp_check_empty,
        .read_at = read_at,
        .stream_open = dcp_stream_open,
        .stream_read = dcp_stream_read,
        .stream_finish = dcp_stream_finish,
        .stream_close = dcp_stream_close,
        .check_unchanged = check_unchanged,
    };
}

/* Ranks without data write empty files. */
static bool owns(const probe_input *in, const cat_origin *origin, const char *path, uint64_t nbytes)
{
    const char *slash = strrchr(path, '/');
    const char *name = slash == NULL ? path : slash + 1;
    if (strcmp(name, ".metadata") == 0)
        return (slash != NULL) == (origin->part_folders > 0);
    if (dcp_rank_of_metadata(name) != CAT_NONE)
        return slash == NULL && !probe_has_entry(in, ".metadata") && origin->part_folders == 0;
    return nbytes == 0 && dcp_rank_of_blobs(name) != CAT_NONE;
}

const format_reader dcp_reader = {
    .name = "dcp",
    .description = "folder of torch.distributed.checkpoint (.metadata and .distcp files)",
    .probe = probe,
    .open = dcp_open,
    .source = dcp_source,
    .load_object = dcp_object_load,
    .check_records = dcp_check_records,
    .close = dcp_folder_free,
    .tables = dcp_tables,
    .open_tables = dcp_open_tables,
    .owns = owns,
    .id = FSDPCK_FORMAT_DCP,
    .writer = &dcp_writer,
    .of_two_saves = true,
    .drops_empty = true,
};
