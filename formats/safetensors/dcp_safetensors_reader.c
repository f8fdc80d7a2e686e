#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "formats/common/renamed_file.h"
#include "formats/safetensors/dcp_safetensors_check.h"
#include "formats/safetensors/dcp_safetensors_global.h"
#include "formats/safetensors/optim_folder.h"
#include "formats/safetensors/shard_name.h"
#include "formats/safetensors/st.h"
#include "formats/safetensors/st_files.h"
#include "formats/safetensors/st_layout.h"

#define RANKS_MAX 1000000u

static bool is_shard(const char *name, shard_name *parts)
{
    return shard_name_parse(name, parts) && parts->rank_number > 0;
}

static bool probe(const probe_input *in, const char **near_miss)
{
    bool any = false;
    bool inner = false;
    if (!in->is_folder)
        return false;
    for (size_t i = 0; i < in->entry_count; i++) {
        const char *name = in->entries[i];
        shard_name parts;
        if (strstr(name, ".safetensors.index.json") != NULL)
            return false; /* consolidated: the index contains more */
        any = any || is_shard(name, &parts);
        inner = inner || strcmp(name, "sharded") == 0;
    }
    if (!any && inner)
        *near_miss = "folder with an unfinished consolidation: its shards are in 'sharded'";
    return any;
}

/* Counts from the names of the files and, in files of fsdpck, from their metadata. */
typedef struct census {
    uint64_t told_files; /* 0: absent, as from torch */
    uint64_t told_ranks;
    uint32_t ranks;      /* highest rank number */
    uint32_t file_count; /* N of -of-N */
    size_t rank_kinds;   /* how many rank numbers are there */
    size_t file_kinds;
    uint8_t *rank_seen; /* by rank number */
    uint8_t *file_seen; /* by file number */
    budget *owner;
} census;

static void census_release(census *c)
{
    budget_free(c->owner, c->rank_seen, (uint64_t)c->ranks + 1);
    budget_free(c->owner, c->file_seen, (uint64_t)c->file_count + 1);
}

static fsdpck_status census_take(const open_request *req, census *c, fsdpck_error *err)
{
    const probe_input *in = req->probe;
    shard_name parts;
    for (size_t i = 0; i < in->entry_count; i++) {
        if (!is_shard(in->entries[i], &parts))
            continue;
        if (c->file_count != 0 && c->file_count != parts.file_count)
            return FAIL_WITH(err, BADINPUT, ST_SHARD_MIXED, ("folder holds shards of two saves"),
                             (path, req->path),
                             (expected, "'-of-%05" PRIu32 "' in all names", c->file_count),
                             (found, "'%s'", in->entries[i]));
        c->file_count = parts.file_count;
        if (parts.rank_number > c->ranks)
            c->ranks = parts.rank_number;
    }
    if (c->ranks > RANKS_MAX || c->file_count > RANKS_MAX)
        return FAIL(err, LIMIT, LIMIT_COUNT, "numbers in the shard names exceed %u", RANKS_MAX);
    c->rank_seen = budget_alloc(c->owner, (uint64_t)c->ranks + 1, err);
    c->file_seen = budget_alloc(c->owner, (uint64_t)c->file_count + 1, err);
    if (c->rank_seen == NULL || c->file_seen == NULL)
        return FSDPCK_LIMIT;
    for (size_t i = 0; i < in->entry_count; i++) {
        if (!is_shard(in->entries[i], &parts))
            continue;
        c->rank_kinds += !c->rank_seen[parts.rank_number];
        c->file_kinds += !c->file_seen[parts.file_number];
        c->rank_seen[parts.rank_number] = 1;
        c->file_seen[parts.file_number] = 1;
    }
    return FSDPCK_OK;
}

/* A number from `__metadata__`; 0 if absent. */
static fsdpck_status read_number(const st_header *h, const char *key, uint64_t *n,
                                 fsdpck_error *err)
{
    size_t nbytes;
    const char *text = st_header_metadata(h, key, &nbytes);
    *n = 0;
    if (text == NULL)
        return FSDPCK_OK;
    for (size_t i = 0; i < nbytes && nbytes <= 7; i++) {
        if (text[i] < '0' || text[i] > '9')
            break;
        *n = 10 * *n + (uint64_t)(text[i] - '0');
        if (i + 1 == nbytes && *n > 0 && *n <= RANKS_MAX)
            return FSDPCK_OK;
    }
    return FAIL(err, BADINPUT, ST_META, "%s is not a number from 1 to %u", key, RANKS_MAX);
}

static fsdpck_status error_two_saves(const open_request *req, const char *what, uint64_t expected,
                                     uint64_t found, const char *unit, fsdpck_error *err)
{
    return FAIL_WITH(
        err, BADINPUT, ST_SHARD_MIXED, ("folder holds shards of two saves"), (path, req->path),
        (expected, "%" PRIu64 " %s%s, as %s", expected, unit, expected == 1 ? "" : "s", what),
        (found, "%" PRIu64 " %s%s", found, unit, found == 1 ? "" : "s"));
}

/* The recorded counts must be the same in all files. */
static fsdpck_status census_hear(census *c, const st_files *s, fsdpck_error *err)
{
    for (size_t i = 0; i < st_files_count(s); i++) {
        const st_header *h = st_files_header(s, i);
        uint64_t files, ranks;
        fsdpck_status st = read_number(h, ST_SHARD_COUNT, &files, err);
        if (st == FSDPCK_OK)
            st = read_number(h, ST_WORLD_SIZE, &ranks, err);
        if (st == FSDPCK_OK && files > 0 && ranks < files)
            st = FAIL(err, BADINPUT, ST_META, ST_WORLD_SIZE " is less than the number of files");
        if (st != FSDPCK_OK) {
            st_files_error_path(s, i, err);
            return st;
        }
        if (i > 0 && files != c->told_files) {
            st = FAIL_WITH(err, BADINPUT, ST_SHARD_MIXED, ("folder holds shards of two saves"),
                           (expected, ST_SHARD_COUNT " %" PRIu64 " (0: absent), as in the others",
                            c->told_files),
                           (found, ST_SHARD_COUNT " %" PRIu64, files));
            st_files_error_path(s, i, err);
            return st;
        }
        c->told_files = files;
        c->told_ranks = ranks > c->told_ranks ? ranks : c->told_ranks;
    }
    return FSDPCK_OK;
}

/* A rank without data has no file, so not every listed name need be a lost file. */
static bool are_candidates(const census *c, uint64_t ranks)
{
    return c->told_files > 0 && c->told_files < ranks;
}

/* Names of the expected files; `*` for unknown parts of a name. */
static void list_missing(const census *c, const open_request *req, uint64_t ranks, text_buf *list)
{
    char name[80];
    for (uint64_t r = 1; r <= ranks; r++) {
        if (r <= c->ranks && c->rank_seen[r])
            continue;
        snprintf(name, sizeof name, "shard-%05" PRIu64 "-model-%s-of-%05" PRIu32 ".safetensors", r,
                 c->file_count == 1 ? "00001" : "*", c->file_count);
        if (c->file_count == 1 && !are_candidates(c, ranks))
            log_missing_file(&req->log, req->path, name);
        text_printf(list, "%s%s", list->nbytes > 0 ? ", " : "", name);
    }
    for (uint32_t n = 1; n <= c->file_count && !list->failed; n++)
        if (!c->file_seen[n])
            text_printf(list, "%sshard-*-model-%05" PRIu32 "-of-%05" PRIu32 ".safetensors",
                        list->nbytes > 0 ? ", " : "", n, c->file_count);
}

/* Names of the tensors with gaps, according to the existing files. */
static void list_holes(const open_request *req, st_files *s, text_buf *tensors)
{
    shards_global g;
    shards_global_init(&g, req->metadata);
    if (shards_global_gather(&g, s, NULL) == FSDPCK_OK)
        shards_global_list_holes(&g, tensors);
    shards_global_release(&g);
}

/* A rank without items writes no file. A missing rank number is therefore a loss only if tensors
 * have gaps. */
static bool has_holes(const open_request *req, st_files *s)
{
    text_buf tensors = {.limit_bytes = 180};
    list_holes(req, s, &tensors);
    const bool any = tensors.nbytes > 0 || tensors.failed;
    text_release(&tensors);
    return any;
}

static uint64_t expected_ranks(const open_request *req, const census *c)
{
    return req->expect_ranks > 0 ? req->expect_ranks : c->told_files > 0 ? c->told_ranks : c->ranks;
}

static void format_counts(const census *c, uint64_t ranks, text_buf *expected, text_buf *found)
{
    if (c->told_files > 0)
        text_printf(expected, "%" PRIu64 " file%s, as each records", c->told_files,
                    c->told_files == 1 ? "" : "s");
    else
        text_printf(expected, "files of %" PRIu64 " rank%s", ranks, ranks == 1 ? "" : "s");
    text_printf(found, "%s%zu%s", c->told_files > 0 ? "" : "files of ", c->rank_kinds,
                c->told_files > 0    ? ""
                : c->rank_kinds == 1 ? " rank"
                                     : " ranks");
    if (c->file_count > 1) {
        text_printf(expected, ", %" PRIu32 " for each rank", c->file_count);
        text_printf(found, ", with %zu different file numbers", c->file_kinds);
    }
}

static bool is_shard_or_other(const void *ctx, const char *entry)
{
    shard_name parts;
    (void)ctx;
    return !shard_name_is_safetensors(entry) || is_shard(entry, &parts);
}

static fsdpck_status error_missing(const open_request *req, const census *c, uint64_t ranks,
                                   st_files *s, fsdpck_error *err)
{
    text_buf files = {.limit_bytes = 300};
    text_buf tensors = {.limit_bytes = 180};
    text_buf expected = {0}, found = {0};
    list_missing(c, req, ranks, &files);
    list_holes(req, s, &tensors);
    const fsdpck_status st =
        FAIL_WITH(err, BADINPUT, FILE_MISSING,
                  ("files of ranks are missing: %s%s%s", are_candidates(c, ranks) ? "some of " : "",
                   files.text != NULL ? files.text : "", files.failed ? ", ..." : ""),
                  (path, req->path));
    format_counts(c, ranks, &expected, &found);
    if (tensors.nbytes > 0)
        text_printf(&found, "; incomplete: %s%s", tensors.text, tensors.failed ? ", ..." : "");
    if (text_check(&expected, NULL) == FSDPCK_OK && text_check(&found, NULL) == FSDPCK_OK) {
        error_expected(err, "%s", expected.text);
        error_found(err, "%s", found.text);
    }
    const char *other =
        renamed_file_find(req->probe, RENAMED_FILE_ANY_SIZE, is_shard_or_other, NULL);
    if (other != NULL)
        error_next(err,
                   "rename '%s' if it is one of them; otherwise copy them from the machines that "
                   "wrote them",
                   other);
    else
        error_next(err, "copy the missing files from the machines that wrote them");
    text_release(&files);
    text_release(&tensors);
    text_release(&expected);
    text_release(&found);
    return st;
}

static fsdpck_status error_stated(const open_request *req, uint64_t ranks, fsdpck_error *err)
{
    return FAIL_WITH(err, BADINPUT, RANKS_STATED,
                     ("folder holds shards of %s ranks than --source-ranks gives",
                      ranks > req->expect_ranks ? "more" : "fewer"),
                     (path, req->path),
                     (expected, "%" PRIu64 " rank%s (--source-ranks)", req->expect_ranks,
                      req->expect_ranks == 1 ? "" : "s"),
                     (found, "%" PRIu64 " rank%s", ranks, ranks == 1 ? "" : "s"),
                     (next, "find the number with fsdpck inspect, without --source-ranks"));
}

static fsdpck_status check_complete(const open_request *req, const census *c, st_files *s,
                                    fsdpck_error *err)
{
    const uint64_t expected = expected_ranks(req, c);
    if (c->told_files > 0 && expected != c->told_ranks)
        return error_stated(req, c->told_ranks, err);
    if (c->told_files > 0) {
        if (c->ranks > expected)
            return error_two_saves(req, "the files record", expected, c->ranks, "rank", err);
        if (c->rank_kinds > c->told_files)
            return error_two_saves(req, "each records", c->told_files, c->rank_kinds, "file", err);
        return c->rank_kinds < c->told_files ? error_missing(req, c, expected, s, err) : FSDPCK_OK;
    }
    const bool gap = c->rank_kinds < expected && c->ranks <= expected;
    if (gap && (req->expect_ranks > 0 || has_holes(req, s)))
        return error_missing(req, c, expected, s, err);
    if (c->ranks > expected)
        return error_stated(req, c->ranks, err);
    if (c->file_kinds < c->file_count)
        return error_missing(req, c, expected, s, err);
    return FSDPCK_OK;
}

static fsdpck_status add_files(const open_request *req, st_files *s, fsdpck_error *err)
{
    shard_name parts;
    for (size_t i = 0; i < req->probe->entry_count; i++) {
        const char *name = req->probe->entries[i];
        if (is_shard(name, &parts))
            RETURN_IF(st_files_add(s, name, err));
        else if (shard_name_is_safetensors(name))
            log_warn(&req->log, FSDPCK_FINDING_IDX_EXTRA, "to read the file, give its path",
                     "'%s' is not a shard of this save", name);
    }
    return FSDPCK_OK;
}

/* Files that fsdpck wrote record their number, which was compared. */
static fsdpck_status judge(const open_request *req, const st_files *s, const shards_global *g,
                           const census *c, fsdpck_error *err)
{
    const shards_check_input judged = {
        .req = req, .files = s, .global = g, .ranks = c->ranks, .file_count = c->file_count};
    RETURN_IF(shards_check_duplicate(&judged, err));
    return c->told_files > 0 ? FSDPCK_OK : shards_check(&judged, err);
}

static fsdpck_status fill_catalogue(const open_request *req, st_files *s, census *c, catalogue *cat,
                                    fsdpck_error *err)
{
    for (size_t i = 0; i < st_files_count(s); i++) {
        const char *name = st_files_name(s, i);
        shard_name parts;
        uint32_t index;
        (void)is_shard(name, &parts);
        RETURN_IF(catalogue_add_file(cat, name, strlen(name), st_files_nbytes(s, i),
                                     parts.rank_number - 1, &index, err));
        catalogue_file(cat, index)->identity = st_files_identity(s, i);
    }
    shards_global g;
    shards_global_init(&g, req->metadata);
    fsdpck_status st = shards_global_gather(&g, s, err);
    if (st == FSDPCK_OK)
        st = judge(req, s, &g, c, err);
    if (st == FSDPCK_OK)
        st = shards_global_fill(&g, s, cat, err);
    shards_global_release(&g);
    return st == FSDPCK_OK ? catalogue_seal(cat, err) : st;
}

/* A rank has no file for tensors that it holds no part of. */
static void warn_of_absent(const open_request *req, const st_files *s, const census *c)
{
    const uint64_t absent = (uint64_t)c->rank_kinds * c->file_kinds - st_files_count(s);
    if (absent > 0 && c->told_files == 0)
        log_warn(&req->log, FSDPCK_FINDING_ST_FILES_UNKNOWN,
                 "compare the file names with those on the machines that wrote them",
                 "shard files that some ranks have and other ranks lack: %" PRIu64
                 "; a rank without such a file has no shards of its tensors, or the file was lost",
                 absent);
}

/* A gap in the numbers of ranks is no error where tensors have no gap: torch gives a replicated tensor to
 * one rank, so a rank may have nothing to write. */
static void warn_of_ranks(const open_request *req, const census *c)
{
    static const char *const next =
        "give --source-ranks N, where N is the number of ranks that saved the checkpoint";
    text_buf list = {.limit_bytes = 120};
    if (c->rank_kinds == c->ranks) {
        log_warn(&req->log, FSDPCK_FINDING_RANKS_UNKNOWN, next,
                 "%" PRIu32 " rank%s found; these files cannot show whether a last rank is missing",
                 c->ranks, c->ranks == 1 ? "" : "s");
        return;
    }
    for (uint32_t r = 1; r <= c->ranks && !list.failed; r++)
        if (!c->rank_seen[r])
            text_printf(&list, "%sshard-%05" PRIu32, list.nbytes > 0 ? ", " : "", r);
    log_warn(&req->log, FSDPCK_FINDING_RANKS_UNKNOWN, next,
             "files of %zu rank%s found; no file name begins with %s%s: such a rank had nothing "
             "to write, or its files were lost; a last rank may be missing too",
             c->rank_kinds, text_plural(c->rank_kinds), list.text != NULL ? list.text : "",
             list.failed ? ", ..." : "");
    text_release(&list);
}

static void warn_of_optimizer(const open_request *req, uint64_t here, uint64_t ranks)
{
    if (here < ranks)
        log_warn(&req->log, FSDPCK_FINDING_FILE_OF_SET,
                 "compare the names with those of the folder in which they were saved",
                 "files of %" PRIu64 " rank%s found, but %" PRIu64
                 " ranks wrote the optimizer in '../optim': files of the last ranks may be missing",
                 here, text_plural(here), ranks);
}

static void describe(const open_request *req, const census *c, cat_origin *origin)
{
    path_kind kind;
    uint64_t ranks;
    snprintf(origin->format, sizeof origin->format, "dcp-safetensors");
    snprintf(origin->torch_version, sizeof origin->torch_version, "2.8 or newer");
    origin->world_size = (int64_t)expected_ranks(req, c);
    /* NeMo Automodel: config and tokenizer, for its own consolidation. */
    if (probe_has_entry(req->probe, ".hf_metadata") &&
        path_probe(&req->probe->dir, ".hf_metadata", &kind, NULL, NULL) == FSDPCK_OK &&
        kind == PATH_FOLDER) {
        snprintf(origin->trainer, sizeof origin->trainer, "automodel");
        snprintf(origin->side_folder, sizeof origin->side_folder, ".hf_metadata");
        if (optim_folder_ranks(req->probe, &ranks)) {
            snprintf(origin->note, sizeof origin->note,
                     "the optimizer is in '../optim', a checkpoint of its own");
            warn_of_optimizer(req, (uint64_t)origin->world_size, ranks);
        }
    }
    origin->ranks_unknown = req->expect_ranks == 0 && c->told_files == 0;
    if (origin->ranks_unknown)
        warn_of_ranks(req, c);
}

static fsdpck_status open_folder(const open_request *req, catalogue *cat, void **self,
                                 fsdpck_error *err)
{
    st_files *s = NULL;
    census c = {.owner = req->metadata};
    fsdpck_status st;
    GOTO_IF(census_take(req, &c, err), out);
    GOTO_IF(st_files_open(req, &s, err), out);
    GOTO_IF(add_files(req, s, err), out);
    GOTO_IF(st_files_read_headers(s, err), out);
    GOTO_IF(census_hear(&c, s, err), out);
    GOTO_IF(check_complete(req, &c, s, err), out);
    st_files_warn_extra_fields(s, &req->log);
    st_files_note_unpadded(s, req);
    GOTO_IF(fill_catalogue(req, s, &c, cat, err), out);
    warn_of_absent(req, s, &c);
    describe(req, &c, &cat->origin);
    GOTO_IF(st_files_keep_metadata(s, &cat->origin, err), out);
    st_files_drop_headers(s);
    *self = s;
out:
    census_release(&c);
    if (st != FSDPCK_OK)
        st_files_close(s);
    return st;
}

const format_reader dcp_safetensors_reader = {
    .name = "dcp-safetensors",
    .description = "a folder of safetensors shards, one or more per rank, as torch's "
                   "HuggingFaceStorageWriter writes",
    .probe = probe,
    .open = open_folder,
    .source = st_files_source,
    .close = st_files_close,
    .id = FSDPCK_FORMAT_DCP_SAFETENSORS,
    .writer = &dcp_safetensors_writer,
    .by_content = true,
    .of_model = true,
    .of_two_saves = true,
};
