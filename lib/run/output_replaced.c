#include "run/output_replaced.h"

#include <stdlib.h>
#include <string.h>

#include "manifest/manifest.h"
#include "run/manifest_files.h"

/* Replaceable entries: files of the checkpoint, and their folders. */
typedef struct replaced {
    run *r;
    const probe_input *in;
    fsdpck_checkpoint *there;
    strtab files, folders; /* paths below the folder; folder 0 is "", the folder itself */
    text_buf lost;         /* their names */
    size_t lost_count;
} replaced;

/* Names that a message lists. */
#define LOST_NAMES_MAX 3u

/* Every rank reads the folder itself, without warnings, as it is not the input. */
static fsdpck_status open_alone(const replaced *w, const fsdpck_open_options *options,
                                fsdpck_checkpoint **out, fsdpck_error *err)
{
    fsdpck_context *ctx = w->r->ctx;
    const logger log = ctx->log;
    group *const together = ctx->group;
    ctx->log = (logger){0};
    ctx->group = NULL;
    const fsdpck_status st = checkpoint_open(ctx, w->in->path, options, NULL, NULL, out, err);
    ctx->log = log;
    ctx->group = together;
    return st;
}

/* The run's own names of rank files come first, as runs mostly replace their own earlier output.
 * Folders without a recognized name are not searched. */
static fsdpck_status open_there(replaced *w, fsdpck_error *err)
{
    const run *r = w->r;
    const bool known = probe_readers(w->in, NULL) != NULL;
    const char *pattern = r->opt.output.rank_pattern != NULL ? r->opt.output.rank_pattern
                                                             : r->src->cat.origin.rank_pattern;
    fsdpck_open_options options = {.struct_nbytes = sizeof options,
                                   .opaque_calls = 1,
                                   .threads = r->opt.work.threads,
                                   .per_rank = FSDPCK_PER_RANK_KEEP};
    fsdpck_error why = FSDPCK_ERROR_INIT;
    fsdpck_status st = FSDPCK_EXISTS;
    options.rank_pattern = pattern;
    if (pattern[0] != '\0')
        st = open_alone(w, &options, &w->there, NULL);
    options.rank_pattern = NULL;
    if (st != FSDPCK_OK && st != FSDPCK_CANCELLED && known)
        st = open_alone(w, &options, &w->there, &why);
    if (st == FSDPCK_OK)
        return st;
    if (st == FSDPCK_CANCELLED)
        return cancel_check(&r->ctx->cancel, err);
    if (!known)
        return FAIL(err, EXISTS, NONE, "output folder contains no checkpoint: not replaced");
    return FAIL_WITH(err, EXISTS, NONE,
                     ("output folder contains a checkpoint that cannot be read: cannot determine "
                      "which files belong to it"),
                     (found, "%s", why.message));
}

/* The folders that lead to a file. */
static fsdpck_status add_folders_of(replaced *w, const char *path, fsdpck_error *err)
{
    uint32_t id;
    for (const char *at = strchr(path, '/'); at != NULL; at = strchr(at + 1, '/'))
        RETURN_IF(strtab_intern(&w->folders, path, (size_t)(at - path), &id, err));
    return FSDPCK_OK;
}

/* Files that no index and no number shows to be parts: those that the manifest names, or `only` this one. */
static fsdpck_status add_of_manifest(replaced *w, const char *only, fsdpck_error *err)
{
    manifest m;
    const char *from;
    char *text = NULL;
    size_t nbytes = 0;
    uint32_t id;
    manifest_init(&m, NULL);
    fsdpck_status st = manifest_files_read(w->there, &text, &nbytes, &from, err);
    if (st == FSDPCK_OK && text != NULL && manifest_read(&m, text, nbytes, NULL) == FSDPCK_OK)
        for (size_t i = 0; st == FSDPCK_OK && i < m.files.count; i++) {
            const char *name = manifest_file_name(&m, i);
            path_kind kind;
            uint64_t size = 0;
            if (only != NULL && strcmp(name, only) != 0)
                continue;
            st = path_probe(&w->in->dir, name, &kind, &size, err);
            if (st == FSDPCK_OK && size == VEC_AT(&m.files, const manifest_file, i)->nbytes)
                st = strtab_intern(&w->files, name, strlen(name), &id, err);
        }
    free(text);
    manifest_release(&m);
    return st;
}

static fsdpck_status list_own(replaced *w, fsdpck_error *err)
{
    const fsdpck_checkpoint *c = w->there;
    const catalogue *cat = c->adapter == NULL ? &c->cat : &c->read;
    const char *side = c->cat.origin.side_folder;
    uint32_t id;
    RETURN_IF(strtab_intern(&w->folders, "", 0, &id, err));
    RETURN_IF(strtab_intern(&w->files, MANIFEST_NAME, strlen(MANIFEST_NAME), &id, err));
    for (size_t i = 0; i < w->r->side.files.count; i++) {
        const sidecar *f = VEC_AT(&w->r->side.files, const sidecar, i);
        if (f->copied && f->inside)
            RETURN_IF(add_folders_of(w, f->path, err));
    }
    if (side[0] != '\0')
        RETURN_IF(strtab_intern(&w->folders, side, strlen(side), &id, err));
    if (cat->origin.by_suffix)
        return add_of_manifest(w, NULL, err);
    if (cat->origin.open_file[0] != '\0')
        RETURN_IF(add_of_manifest(w, cat->origin.open_file, err));
    for (size_t i = 0; i < catalogue_file_count(cat); i++) {
        const uint32_t path = catalogue_file(cat, i)->path;
        const char *name = catalogue_name(cat, path);
        if (strcmp(name, cat->origin.open_file) == 0)
            continue;
        RETURN_IF(strtab_intern(&w->files, name, catalogue_name_nbytes(cat, path), &id, err));
        RETURN_IF(add_folders_of(w, name, err));
    }
    return FSDPCK_OK;
}

static fsdpck_status is_checkpoint_file(const replaced *w, const char *path, bool *own,
                                        fsdpck_error *err)
{
    const fsdpck_checkpoint *c = w->there;
    path_kind kind;
    uint64_t nbytes = 0;
    *own = true;
    if (strtab_find(&w->files, path, strlen(path)) != STRTAB_NONE ||
        sidecars_has(&w->r->side, path))
        return FSDPCK_OK;
    RETURN_IF(path_probe(&w->in->dir, path, &kind, &nbytes, err));
    if (kind == PATH_FOLDER)
        *own = strtab_find(&w->folders, path, strlen(path)) != STRTAB_NONE;
    else
        *own = kind == PATH_FILE && c->format->owns != NULL &&
               c->format->owns(&c->probe, &c->cat.origin, path, nbytes);
    return FSDPCK_OK;
}

static fsdpck_status remember(const replaced *w, const text_buf *path, fsdpck_error *err)
{
    run *r = w->r;
    uint32_t id;
    path_stamp stamp;
    RETURN_IF(strtab_intern(&r->replaced, path->text, path->nbytes, &id, err));
    if (id < r->replaced_stamps.count)
        return FSDPCK_OK;
    RETURN_IF(path_stamp_get(&stamp, &w->in->dir, path->text, err));
    return vec_add(&r->replaced_stamps, &stamp, err);
}

static void add_lost(replaced *w, const char *path)
{
    char text[280];
    if (w->lost_count++ < LOST_NAMES_MAX)
        text_printf(&w->lost, "%s'%s'", w->lost_count > 1 ? ", " : "",
                    escape_text(text, sizeof text, path, strlen(path)));
}

static fsdpck_status search_folder(replaced *w, const char *folder_path, fsdpck_error *err)
{
    const bool top = folder_path[0] == '\0';
    char **entries;
    size_t count;
    text_buf path = {0};
    RETURN_IF(folder_list(&w->in->dir, top ? NULL : folder_path, &entries, &count, err));
    fsdpck_status st = FSDPCK_OK;
    for (size_t i = 0; i < count && st == FSDPCK_OK; i++) {
        bool own = true;
        path.nbytes = 0;
        text_printf(&path, "%s%s%s", folder_path, top ? "" : "/", entries[i]);
        st = text_check(&path, err);
        if (st == FSDPCK_OK)
            st = is_checkpoint_file(w, path.text, &own, err);
        if (st == FSDPCK_OK && own)
            st = remember(w, &path, err);
        else if (st == FSDPCK_OK)
            add_lost(w, path.text);
    }
    text_release(&path);
    free(entries);
    return st;
}

static fsdpck_status fail_lost(const char *names, bool by_suffix, fsdpck_error *err)
{
    if (by_suffix)
        return FAIL(
            err, EXISTS, NONE,
            "output folder contains files that no index, manifest or numbering shows to be one "
            "checkpoint: %s would be lost",
            names);
    return FAIL(err, EXISTS, NONE,
                "output folder contains more than a checkpoint: %s would be lost", names);
}

/* Every folder that leads to a file of the checkpoint. */
static fsdpck_status search_folders_of(replaced *w, fsdpck_error *err)
{
    for (uint32_t i = 0; i < strtab_count(&w->folders); i++) {
        path_kind kind;
        const char *path = strtab_text(&w->folders, i);
        RETURN_IF(path_probe(&w->in->dir, path[0] == '\0' ? "." : path, &kind, NULL, err));
        if (kind == PATH_FOLDER)
            RETURN_IF(search_folder(w, path, err));
    }
    if (w->lost_count > LOST_NAMES_MAX)
        text_printf(&w->lost, " and %zu more", w->lost_count - LOST_NAMES_MAX);
    return text_check(&w->lost, err);
}

fsdpck_status output_check_lost(run *r, const probe_input *in, fsdpck_error *err)
{
    replaced w = {.r = r, .in = in};
    strtab_init(&w.files, NULL);
    strtab_init(&w.folders, NULL);
    fsdpck_status st = open_there(&w, err);
    if (st == FSDPCK_OK)
        st = list_own(&w, err);
    if (st == FSDPCK_OK)
        st = search_folders_of(&w, err);
    if (st == FSDPCK_OK && w.lost_count > 0)
        st = fail_lost(w.lost.text, w.there->cat.origin.by_suffix, err);
    fsdpck_close(w.there);
    text_release(&w.lost);
    strtab_release(&w.folders);
    strtab_release(&w.files);
    return st;
}

/* ---- at the commit ---- */

static fsdpck_status fail_appeared(const char *path, fsdpck_error *err)
{
    char text[280];
    return FAIL(err, EXISTS, NONE,
                "output folder contains more than a checkpoint: '%s' would be lost",
                escape_text(text, sizeof text, path, strlen(path)));
}

/* The files of "NAME/folder", below the parent, must have been there at the beginning. */
static fsdpck_status check_names(const run *r, const folder *parent, const char *inside,
                                 const char *folder_path, fsdpck_error *err)
{
    const bool top = folder_path[0] == '\0';
    char **entries = NULL;
    size_t count = 0;
    text_buf path = {0};
    fsdpck_status st = folder_list(parent, inside, &entries, &count, err);
    for (size_t i = 0; i < count && st == FSDPCK_OK; i++) {
        path.nbytes = 0;
        text_printf(&path, "%s%s%s", folder_path, top ? "" : "/", entries[i]);
        st = text_check(&path, err);
        if (st != FSDPCK_OK || strtab_find(&r->replaced, path.text, path.nbytes) != STRTAB_NONE)
            continue;
        st = fail_appeared(path.text, err);
        error_path(err, r->dst);
        error_next(err, "it appeared while the output was written: move it, and run again");
    }
    free(entries);
    text_release(&path);
    return st;
}

/* One entry that was there at the beginning. One that is absent now is not lost by a removal. */
static fsdpck_status check_entry(const run *r, const folder *parent, const char *name, uint32_t id,
                                 fsdpck_error *err)
{
    const path_stamp *before = VEC_AT(&r->replaced_stamps, const path_stamp, id);
    const char *entry = strtab_text(&r->replaced, id);
    path_stamp now;
    text_buf path = {0};
    text_printf(&path, "%s/%s", name, entry);
    fsdpck_status st = text_check(&path, err);
    if (st == FSDPCK_OK)
        st = path_stamp_get(&now, parent, path.text, err);
    if (st == FSDPCK_OK && now.kind != PATH_ABSENT) {
        if (!path_stamp_is_same(before, &now))
            st = path_stamp_error(before, &now, r->dst, entry, err);
        else if (now.kind == PATH_FOLDER)
            st = check_names(r, parent, path.text, entry, err);
    }
    text_release(&path);
    return st;
}

/* Files of the checkpoint that were known at the beginning, and are unchanged, are the only ones to
 * remove. */
static fsdpck_status check_replaced(const void *ctx, const folder *parent, const char *name,
                                    fsdpck_error *err)
{
    const run *r = ctx;
    path_kind kind;
    RETURN_IF(path_probe(parent, name, &kind, NULL, err));
    if (kind == PATH_FOLDER)
        RETURN_IF(check_names(r, parent, name, "", err));
    for (uint32_t i = 0; i < strtab_count(&r->replaced); i++)
        RETURN_IF(check_entry(r, parent, name, i, err));
    return FSDPCK_OK;
}

fsdpck_status output_guard_replaced(run *r, fsdpck_error *err)
{
    r->out.check_replaced = check_replaced;
    r->out.check_ctx = r;
    return r->out.kind == OUTPUT_FILE ? output_expect_old(&r->out, &r->replaced_file, err)
                                      : FSDPCK_OK;
}
