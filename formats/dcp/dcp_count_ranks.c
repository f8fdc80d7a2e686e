/* The number of ranks of a save, from its data files and those that the metadata does not name. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "formats/dcp/dcp_catalogue.h"
#include "formats/dcp/dcp_internal.h"
#include "formats/dcp/dcp_part_folders.h"
#include "io/path_stamp.h"

/* Of files left from another save. */
#define STALE_NAMED 8u

/* Data files not in any `.metadata`: empty ones are from ranks without data, others from an older
 * save. */
typedef struct unnamed {
    int64_t highest;                /* rank of an empty one */
    int64_t of_part[DCP_PARTS_MAX]; /* the highest rank of each part */
    uint64_t stale, nbytes, newer;  /* newer: than the metadata */
    text_buf names;                 /* of a few stale ones */
} unnamed;

/* 0: unknown. */
static int64_t mtime_of(const dcp_folder *d, const char *path)
{
    path_stamp stamp;
    return path_stamp_get(&stamp, &d->dir, path, NULL) == FSDPCK_OK && stamp.kind == PATH_FILE
               ? stamp.mtime_ns
               : 0;
}

/* Times of one save are in steps, and not exact on several hosts. */
static bool is_newer(const dcp_folder *d, const char *path, const char *prefix)
{
    char metadata[80];
    snprintf(metadata, sizeof metadata, "%s.metadata", prefix);
    const int64_t of_metadata = mtime_of(d, metadata), own = mtime_of(d, path);
    return of_metadata > 0 && own > of_metadata && own - of_metadata > 1000000000;
}

/* Of a name that torch does not give: copies, or files of another program. */
static void note_other_name(const dcp_folder *d, const open_request *req, const char *path)
{
    path_kind kind;
    if (text_ends_with(path, strlen(path), ".distcp") &&
        strtab_find(&d->names.paths, path, strlen(path)) == STRTAB_NONE &&
        path_probe(&d->dir, path, &kind, NULL, NULL) == FSDPCK_OK && kind == PATH_FILE)
        format_note(req->found, req->found_ctx, FSDPCK_FINDING_DCP_STALE, d->dir.path, path,
                    "file is not in the metadata and is not read");
}

/* `prefix` is "", or that of a part. */
static fsdpck_status count_unnamed(dcp_folder *d, const open_request *req, const char *prefix,
                                   char *const *entries, size_t count, unnamed *u,
                                   fsdpck_error *err)
{
    text_buf path = {0};
    fsdpck_status st = FSDPCK_OK;

    for (size_t i = 0; i < count && st == FSDPCK_OK; i++) {
        const uint32_t rank = dcp_rank_of_blobs(entries[i]);
        path_kind kind;
        uint64_t nbytes;
        path.nbytes = 0;
        text_printf(&path, "%s%s", prefix, entries[i]);
        GOTO_IF(text_check(&path, err), out);
        if (rank == CAT_NONE) {
            note_other_name(d, req, path.text);
            continue;
        }
        if (strtab_find(&d->names.paths, path.text, path.nbytes) != STRTAB_NONE)
            continue;
        GOTO_IF(path_probe(&d->dir, path.text, &kind, &nbytes, err), out);
        if (kind == PATH_FILE && nbytes > 0) {
            if (u->stale++ < STALE_NAMED)
                text_printf(&u->names, "%s'%s'", u->stale > 1 ? ", " : "", path.text);
            u->nbytes += nbytes;
            u->newer += is_newer(d, path.text, prefix);
        } else if ((int64_t)rank > u->highest) {
            u->highest = rank;
        }
    }
out:
    text_release(&path);
    return st;
}

/* The parts of one save are of the same ranks. */
static void warn_mixed_parts(const dcp_folder *d, const dcp_part_folders *f, const unnamed *u)
{
    const int64_t model = u->of_part[0], optim = u->of_part[1];
    if (model < 0 || optim < 0 || model == optim)
        return;
    log_warn(&d->log, FSDPCK_FINDING_RANK_MIXED, "check that both folders are from one save",
             "'%s' was written by %" PRId64 " rank%s, '%s' by %" PRId64, f->parts[0].folder,
             model + 1, model == 0 ? "" : "s", f->parts[1].folder, optim + 1);
}

/* By the names of the files in the metadata. */
static void count_named_in_parts(const dcp_folder *d, const dcp_part_folders *form, unnamed *u)
{
    const catalogue *cat = d->cat;
    for (size_t i = 0; i < catalogue_file_count(cat); i++) {
        const cat_file *f = catalogue_file(cat, i);
        const char *path = catalogue_name(cat, f->path);
        for (uint32_t part = 0; f->rank != CAT_NONE && part < dcp_part_count(form); part++) {
            const char *folder_name = form->parts[part].folder;
            const size_t n = strlen(folder_name);
            if (strncmp(path, folder_name, n) == 0 && path[n] == '/' &&
                (int64_t)f->rank > u->of_part[part])
                u->of_part[part] = f->rank;
        }
    }
}

static fsdpck_status count_in_parts(dcp_folder *d, const open_request *req, unsigned part_folders,
                                    unnamed *u, fsdpck_error *err)
{
    const dcp_part_folders *f = dcp_part_folders_get(part_folders);
    int64_t all = u->highest;
    count_named_in_parts(d, f, u);
    for (uint32_t part = 0; part < dcp_part_count(f); part++) {
        const char *folder_name = f->parts[part].folder;
        char prefix[64];
        char **entries;
        size_t count;
        path_kind kind;
        RETURN_IF(path_probe(&d->dir, folder_name, &kind, NULL, err));
        if (kind != PATH_FOLDER)
            continue;
        RETURN_IF(folder_list(&d->dir, folder_name, &entries, &count, err));
        snprintf(prefix, sizeof prefix, "%s/", folder_name);
        u->highest = u->of_part[part];
        const fsdpck_status st = count_unnamed(d, req, prefix, entries, count, u, err);
        free(entries);
        RETURN_IF(st);
        u->of_part[part] = u->highest;
        all = u->highest > all ? u->highest : all;
    }
    u->highest = all;
    warn_mixed_parts(d, f, u);
    return FSDPCK_OK;
}

static void warn_of_unnamed(const dcp_folder *d, const unnamed *u)
{
    const char *names = u->names.text != NULL ? u->names.text : "";
    const char *more = u->stale > STALE_NAMED ? ", ..." : "";
    if (u->newer > 0)
        log_warn(
            &d->log, FSDPCK_FINDING_DCP_NEWER,
            "verify this save, and decide whether to resume from it; the other files are not read",
            "%" PRIu64 " .distcp file%s not in the metadata, %" PRIu64
            " of them newer than it, as after a newer save that was interrupted: %s%s (%" PRIu64
            " bytes)",
            u->stale, u->stale == 1 ? " is" : "s are", u->newer, names, more, u->nbytes);
    else
        log_warn(&d->log, FSDPCK_FINDING_DCP_STALE, "verify this save, then remove the other files",
                 "%" PRIu64
                 " .distcp file%s not in the metadata, left from another save: %s%s (%" PRIu64
                 " bytes)",
                 u->stale, u->stale == 1 ? " is" : "s are", names, more, u->nbytes);
}

fsdpck_status dcp_count_ranks(dcp_folder *d, const open_request *req, dcp_marks *marks,
                              fsdpck_error *err)
{
    const catalogue *cat = d->cat;
    unnamed u = {.highest = -1, .of_part = {-1, -1, -1}, .names = {.limit_bytes = 2048}};

    for (size_t i = 0; i < catalogue_file_count(cat); i++) {
        const uint32_t rank = catalogue_file(cat, i)->rank;
        if (rank != CAT_NONE && (int64_t)rank > u.highest)
            u.highest = rank;
    }
    const fsdpck_status st =
        marks->part_folders > 0
            ? count_in_parts(d, req, marks->part_folders, &u, err)
            : count_unnamed(d, req, "", req->probe->entries, req->probe->entry_count, &u, err);
    if (st == FSDPCK_OK && u.stale > 0)
        warn_of_unnamed(d, &u);
    text_release(&u.names);
    RETURN_IF(st);
    const int64_t highest = u.highest;
    marks->world_size = highest < 0 ? -1 : highest + 1;
    if (req->expect_ranks == 0 || highest < 0 || (uint64_t)highest + 1 == req->expect_ranks)
        return FSDPCK_OK;
    return FAIL_WITH(
        err, BADINPUT, RANKS_STATED, ("number of ranks differs from --source-ranks"),
        (path, req->path),
        (expected, "%" PRIu64 " rank%s (--source-ranks)", req->expect_ranks,
         req->expect_ranks == 1 ? "" : "s"),
        (found, "%" PRId64 " rank%s that wrote files", highest + 1, highest == 0 ? "" : "s"),
        (next, "omit --source-ranks if the last ranks wrote no data"));
}
