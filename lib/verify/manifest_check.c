/* Compares a manifest with the existing files and tensors. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "compare/digest.h"
#include "run/manifest_files.h"
#include "verify/manifest_check_internal.h"

static const expect_ids manifest_ids = {FSDPCK_FINDING_MAN_TENSOR, FSDPCK_FINDING_MAN_TENSOR,
                                        FSDPCK_FINDING_MAN_TENSOR, "the manifest"};

/* ---- which manifest, which folder ---- */

static fsdpck_status open_dir(manifest_check *w, fsdpck_error *err)
{
    const expect_request *r = w->r;
    path_kind kind;
    if (r->src != NULL) {
        w->dir = &r->src->probe.dir;
        w->only = r->src->probe.is_folder ? NULL : r->src->probe.name;
        return FSDPCK_OK;
    }
    RETURN_IF(path_probe(NULL, r->path, &kind, NULL, err));
    w->dir = &w->own;
    if (kind == PATH_FOLDER)
        return folder_open(&w->own, r->path, err);
    w->only = text_file_name(r->path);
    return folder_open_parent(&w->own, r->path, err);
}

/* A run that is killed between the renames of its two outputs leaves a checkpoint without its manifest. */
static fsdpck_status read_given(const char *path, char **text, size_t *nbytes, fsdpck_error *err)
{
    path_kind kind;
    const fsdpck_status st = file_read_whole(NULL, path, MANIFEST_NBYTES_MAX, text, nbytes, err);
    if (st != FSDPCK_OK && path_probe(NULL, path, &kind, NULL, NULL) == FSDPCK_OK &&
        kind == PATH_ABSENT)
        error_next(err, "check the name; if the manifest was never written, write it for a "
                        "checkpoint that is known "
                        "to be intact: fsdpck digest --manifest FILE SRC");
    return st;
}

/* *text is NULL if there is none. */
static fsdpck_status read_text(manifest_check *w, char **text, size_t *nbytes, fsdpck_error *err)
{
    path_kind kind;
    *text = NULL;
    if (w->r->manifest_path != NULL)
        return read_given(w->r->manifest_path, text, nbytes, err);
    if (w->r->src != NULL)
        return manifest_files_read(w->r->src, text, nbytes, &w->manifest_folder, err);
    if (!manifest_check_is_folder(w))
        return FSDPCK_OK;
    w->manifest_folder = w->dir->path;
    RETURN_IF(path_probe(w->dir, MANIFEST_NAME, &kind, NULL, err));
    if (kind == PATH_ABSENT)
        return FSDPCK_OK;
    return file_read_whole(w->dir, MANIFEST_NAME, MANIFEST_NBYTES_MAX, text, nbytes, err);
}

/* ---- tensors ---- */

/* Whether the manifest lists each file that chunks lie in. */
static fsdpck_status lists_all(const manifest_check *w, bool *all, fsdpck_error *err)
{
    const fsdpck_checkpoint *src = w->r->src;
    const catalogue *cat = src->adapter == NULL ? &src->cat : &src->read;
    *all = true;
    for (uint32_t i = 0; *all && i < catalogue_file_count(cat); i++) {
        size_t at;
        RETURN_IF(manifest_check_find_own(w, i, &at, err));
        *all = at != SIZE_MAX;
    }
    return FSDPCK_OK;
}

static void note_not_checked(const manifest_check *w, const fsdpck_error *why)
{
    fsdpck_error what;
    FAIL(&what, BADINPUT, MAN_UNSEEN, "tensors are not compared with the manifest: %s",
         why->message);
    if (why->next[0] != '\0')
        error_next(&what, "%s", why->next);
    findings_report(w->r->found, &what);
}

static void compare_digests(const manifest_check *w, const fsdpck_digests *d)
{
    for (uint64_t i = 0; i < d->rows.count; i++) {
        const digest_row *row = &d->rows.rows[i];
        const size_t at = expect_find(&w->m, &w->names, row->name, row->name_nbytes);
        fsdpck_error what;
        if (at == SIZE_MAX)
            continue;
        const manifest_tensor *t = VEC_AT(&w->m.tensors, const manifest_tensor, at);
        if (t->digest == row->digest)
            continue;
        FAIL_WITH(&what, BADINPUT, MAN_HASH, ("contents of the tensor differ from the manifest"),
                  (tensor, row->name), (expected, "digest %016" PRIx64, t->digest),
                  (found, "%016" PRIx64, row->digest));
        findings_report_in(w->r->found, FINDINGS_TENSOR_SUM, &what);
    }
}

/* If all files match, so do the tensors. They are read only if some file differs, to find the
 * damaged ones. */
static fsdpck_status check_digests(manifest_check *w, fsdpck_error *err)
{
    fsdpck_work_options work = FSDPCK_INIT(fsdpck_work_options);
    fsdpck_digest_options options = FSDPCK_INIT(fsdpck_digest_options);
    fsdpck_digests *d;
    fsdpck_error what = FSDPCK_ERROR_INIT;
    work.threads = w->r->nthreads;
    options.work = &work;
    const fsdpck_status st = digests_new(w->r->ctx, w->r->src, &options, false, &d, &what);
    if (st == FSDPCK_OK) {
        compare_digests(w, d);
        fsdpck_digests_free(d);
        return FSDPCK_OK;
    }
    if (st == FSDPCK_BADINPUT || st == FSDPCK_UNSUPPORTED) {
        note_not_checked(w, &what);
        return FSDPCK_OK;
    }
    if (err != NULL)
        *err = what;
    return st;
}

/* Flat parameters do not record the model's names within a larger state. So their manifest has the
 * model's own names, one name for tied parameters, and shared optimizer state of a unit once. */
static void set_names(manifest_check *w)
{
    const fsdpck_checkpoint *src = w->r->src;
    w->names.ignore_missing = w->only != NULL && w->m.files.count > 1; /* are in other files */
    if (src->adapter == NULL)
        return;
    w->names.ignore_extra = true;
    if (src->parts.model_key[0] == '\0')
        return;
    snprintf(w->outer, sizeof w->outer, "%s.", src->parts.model_key);
    w->names.outer = w->outer;
}

static fsdpck_status check_tensors(manifest_check *w, fsdpck_error *err)
{
    const expect_request *r = w->r;
    fsdpck_error what = FSDPCK_ERROR_INIT;
    if (r->src == NULL || r->level < CHECK_STRUCTURE || w->is_other)
        return FSDPCK_OK;
    if (checkpoint_check_flat(r->src, &r->src->cat, &what) != FSDPCK_OK) {
        note_not_checked(w, &what);
        return FSDPCK_OK;
    }
    RETURN_IF(checkpoint_load_inner(r->src, err));
    set_names(w);
    const uint64_t differing =
        expect_compare(&w->m, &w->names, &r->src->cat, &manifest_ids, r->found);
    bool all;
    RETURN_IF(lists_all(w, &all, err));
    if (r->level < CHECK_CHECKSUM || w->partial || (!w->differs && differing == 0 && all))
        return FSDPCK_OK;
    return check_digests(w, err);
}

fsdpck_status manifest_check_run(manifest_check *w, const check_file *files, bool partial,
                                 manifest_check_result *result, fsdpck_error *err)
{
    *result = (manifest_check_result){0};
    if (w == NULL)
        return FSDPCK_OK;
    const expect_request *r = w->r;
    w->result = result;
    w->summed = files;
    w->partial = partial;
    result->there = true;
    result->files = w->m.files.count;
    result->tensors = w->m.tensors.count;
    if (r->level >= CHECK_CHECKSUM) {
        RETURN_IF(manifest_check_checksums(w, err));
        if (r->src != NULL)
            RETURN_IF(lists_all(w, &result->covers, err));
        result->covers = result->covers && result->unhashed_files == 0;
    } else {
        result->unhashed_files = result->files;
    }
    return check_tensors(w, err);
}

/* A given manifest, and one in the folder that was given, has names relative to that folder. One of a
 * single file has its name only. */
static fsdpck_status set_base(manifest_check *w, fsdpck_error *err)
{
    const fsdpck_checkpoint *src = w->r->src;
    if (src == NULL)
        return FSDPCK_OK;
    manifest_base_of_checkpoint(&w->base, src);
    if (w->manifest_folder == src->path || (w->only != NULL && w->m.files.count == 1))
        return FSDPCK_OK;
    RETURN_IF(manifest_base_open(&w->base, src, err));
    w->dir = w->base.dir;
    if (w->base.is_above)
        w->only = NULL;
    return FSDPCK_OK;
}

/* *there: a manifest was read. */
static fsdpck_status read_manifest(manifest_check *w, bool *there, fsdpck_error *err)
{
    char *text;
    size_t nbytes;
    fsdpck_error what = FSDPCK_ERROR_INIT;
    *there = false;
    RETURN_IF(open_dir(w, err));
    fsdpck_status st = read_text(w, &text, &nbytes, &what);
    if (st == FSDPCK_BADINPUT && w->r->manifest_path == NULL) { /* a folder, a pipe */
        findings_report(w->r->found, &what);
        return FSDPCK_OK;
    }
    if (st != FSDPCK_OK && err != NULL)
        *err = what;
    if (st != FSDPCK_OK || text == NULL)
        return st;
    st = manifest_read(&w->m, text, nbytes, &what);
    free(text);
    *there = st == FSDPCK_OK;
    if (st == FSDPCK_OK)
        st = set_base(w, &what);
    if (st == FSDPCK_OK)
        return manifest_check_files(w, err);
    if (w->r->manifest_path != NULL)
        error_path(&what, w->r->manifest_path);
    else
        error_path_in(&what, strcmp(w->manifest_folder, ".") == 0 ? NULL : w->manifest_folder,
                      MANIFEST_NAME);
    error_next(&what, "use the manifest that was written with the checkpoint, or make a new one: "
                      "fsdpck digest --manifest FILE SRC");
    if (st == FSDPCK_BADINPUT) {
        findings_report(w->r->found, &what);
        return FSDPCK_OK;
    }
    if (err != NULL)
        *err = what;
    return st;
}

static void report_no_manifest(const manifest_check *w)
{
    fsdpck_error what;
    FAIL_WITH(&what, BADINPUT, MAN_UNSEEN, ("no SHA-256 was compared: no readable manifest"),
              (path, w->r->path), (next, "give --manifest FILE, or omit --sha256"));
    findings_report_as(w->r->found, FINDING_ERROR, &what);
}

fsdpck_status manifest_check_new(const expect_request *r, manifest_check **out, fsdpck_error *err)
{
    bool there;
    *out = NULL;
    manifest_check *w = calloc(1, sizeof *w);
    if (w == NULL)
        return error_set_nomem(err, sizeof *w);
    w->request = *r;
    w->r = &w->request;
    w->own = w->base.own = FOLDER_CLOSED;
    manifest_init(&w->m, r->src == NULL ? NULL : &r->src->metadata);
    const fsdpck_status st = read_manifest(w, &there, err);
    if (st == FSDPCK_OK && !there && r->sha256)
        report_no_manifest(w);
    if (st == FSDPCK_OK && there)
        *out = w;
    else
        manifest_check_free(w);
    return st;
}

void manifest_check_free(manifest_check *w)
{
    if (w == NULL)
        return;
    manifest_release(&w->m);
    folder_close(&w->own);
    manifest_base_close(&w->base);
    free(w->good);
    free(w->file_of);
    free(w);
}
