#include "run/manifest_files.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

fsdpck_status manifest_files_read(const fsdpck_checkpoint *src, char **text, size_t *nbytes,
                                  const char **from, fsdpck_error *err)
{
    path_kind kind = PATH_ABSENT;
    *text = NULL;
    *from = src->path;
    if (src->probe.is_folder)
        RETURN_IF(path_probe(&src->probe.dir, MANIFEST_NAME, &kind, NULL, err));
    if (kind != PATH_ABSENT)
        return file_read_whole(&src->probe.dir, MANIFEST_NAME, MANIFEST_NBYTES_MAX, text, nbytes,
                               err);
    if (src->entered_from == NULL || src->remote_files != NULL)
        return FSDPCK_OK;
    *from = src->entered_from;
    char *path = folder_path_join(src->entered_from, MANIFEST_NAME);
    if (path == NULL)
        return error_set_nomem(err, strlen(src->entered_from));
    fsdpck_status st = path_probe(NULL, path, &kind, NULL, err);
    if (st == FSDPCK_OK && kind != PATH_ABSENT)
        st = file_read_whole(NULL, path, MANIFEST_NBYTES_MAX, text, nbytes, err);
    free(path);
    return st;
}

/* *there: the manifest in the folder was read. *is_above: that of the folder that was given, and the checkpoint is
 * inside. log: NULL for no warning. */
static fsdpck_status read_manifest(const fsdpck_checkpoint *src, manifest *m, bool *there,
                                   bool *is_above, const logger *log, fsdpck_error *err)
{
    const char *from;
    char *text;
    size_t nbytes;
    fsdpck_error why = FSDPCK_ERROR_INIT;
    *there = false;
    /* Each rank of a group may have a different part of the files. */
    if (src->remote_files != NULL)
        return FSDPCK_OK;
    fsdpck_status st = manifest_files_read(src, &text, &nbytes, &from, &why);
    if (st == FSDPCK_OK && text == NULL)
        return FSDPCK_OK;
    if (st == FSDPCK_OK)
        st = manifest_read(m, text, nbytes, &why);
    free(text);
    *is_above = from == src->entered_from;
    *there = st == FSDPCK_OK;
    if (st == FSDPCK_BADINPUT || st == FSDPCK_UNSUPPORTED) {
        if (log == NULL)
            return FSDPCK_OK;
        log_warn(log, FSDPCK_FINDING_MAN_UNSEEN,
                 "use the manifest that was written with the checkpoint",
                 "files were not compared with '" MANIFEST_NAME "', which cannot be read: %s",
                 why.message);
        return FSDPCK_OK;
    }
    if (st != FSDPCK_OK && err != NULL)
        *err = why;
    return st;
}

static fsdpck_status report_missing(const manifest_base *b, const fsdpck_checkpoint *src,
                                    const char *name, path_kind kind, uint64_t expected,
                                    uint64_t found, fsdpck_error *err)
{
    const bool size = kind == PATH_FILE;
    const fsdpck_status st =
        FAIL_AS(err, FSDPCK_BADINPUT, size ? FSDPCK_FINDING_MAN_SIZE : FSDPCK_FINDING_MAN_MISSING,
                ("%s", size                  ? "file size differs from the manifest"
                       : kind == PATH_ABSENT ? "file in the manifest is missing"
                                             : "entry in the manifest is not a regular file"),
                (path_in, src->probe.is_folder || b->is_above ? b->path : NULL,
                 src->probe.is_folder || b->is_above ? name : src->path));
    if (size) {
        error_expected(err, "%" PRIu64 " bytes", expected);
        error_found(err, "%" PRIu64 " bytes", found);
    }
    error_next(err, "copy the file from where the checkpoint was written, or move '" MANIFEST_NAME
                    "' away to accept the existing files as the checkpoint");
    return st;
}

/* As verify compares them: a manifest of one file applies to the file that is read, and of the others
 * only that file is compared. *name is NULL: not compared. */
static fsdpck_status name_in_base(const manifest_base *b, const fsdpck_checkpoint *src,
                                  const manifest *m, size_t i, const char **name, fsdpck_error *err)
{
    text_buf own = {0};
    *name = manifest_file_name(m, i);
    if (src->probe.is_folder)
        return FSDPCK_OK;
    RETURN_IF(manifest_base_name(b, src->probe.name, &own, err));
    if (m->files.count == 1 && !b->is_above)
        *name = src->probe.name;
    else if (strcmp(*name, own.text) != 0)
        *name = NULL;
    text_release(&own);
    return FSDPCK_OK;
}

static fsdpck_status check_in(const manifest_base *b, const fsdpck_checkpoint *src,
                              const manifest *m, manifest_needed_fn needed, void *arg,
                              const logger *log, fsdpck_error *err)
{
    uint64_t unneeded = 0;
    const char *first = NULL;
    for (size_t i = 0; i < m->files.count; i++) {
        const manifest_file *f = VEC_AT(&m->files, const manifest_file, i);
        const char *name;
        path_kind kind;
        uint64_t nbytes = 0;
        RETURN_IF(name_in_base(b, src, m, i, &name, err));
        if (name == NULL)
            continue;
        RETURN_IF(path_probe(b->dir, name, &kind, &nbytes, err));
        if (kind == PATH_FILE && nbytes == f->nbytes)
            continue;
        if (needed == NULL || needed(arg, m, b, name))
            return report_missing(b, src, name, kind, f->nbytes, nbytes, err);
        first = first == NULL ? name : first;
        unneeded++;
    }
    if (unneeded > 0 && log != NULL)
        log_warn(log, FSDPCK_FINDING_MAN_MISSING,
                 "list them with fsdpck verify; the selected tensors do not need them",
                 "%" PRIu64 " file%s of the manifest %s missing or %s a different size: '%s'%s",
                 unneeded, unneeded == 1 ? "" : "s", unneeded == 1 ? "is" : "are",
                 unneeded == 1 ? "has" : "have", first, unneeded == 1 ? "" : ", ...");
    return FSDPCK_OK;
}

static fsdpck_status check_files(const fsdpck_checkpoint *src, manifest *m,
                                 manifest_needed_fn needed, void *arg, const logger *log,
                                 fsdpck_error *err)
{
    bool there, is_above = false;
    manifest_base b;
    RETURN_IF(read_manifest(src, m, &there, &is_above, log, err));
    if (!there)
        return FSDPCK_OK;
    manifest_base_of_checkpoint(&b, src);
    fsdpck_status st = is_above ? manifest_base_open(&b, src, err) : FSDPCK_OK;
    if (st == FSDPCK_OK)
        st = check_in(&b, src, m, needed, arg, log, err);
    manifest_base_close(&b);
    return st;
}

fsdpck_status manifest_files_check(const fsdpck_checkpoint *src, manifest *m,
                                   manifest_needed_fn needed, void *arg, fsdpck_error *err)
{
    return check_files(src, m, needed, arg, &src->ctx->log, err);
}

/* ---- of a run ---- */

typedef struct taken {
    const run *r;
    int lost; /* whether a lost tensor may be selected; -1: not computed yet */
} taken;

static bool same_shape(const manifest *m, size_t at, const catalogue *cat, uint32_t tensor)
{
    const manifest_tensor *a = VEC_AT(&m->tensors, const manifest_tensor, at);
    const cat_tensor *b = catalogue_tensor(cat, tensor);
    return a->dtype == DTYPE_NONE ||
           shape_equal(manifest_shape(m, a), a->ndim, catalogue_shape(cat, tensor), b->ndim);
}

/* A tensor of the manifest that the checkpoint does not have, or not in its shape: a part of it was
 * in the file. */
static bool has_lost(const run *r, const manifest *m)
{
    const catalogue *cat = &r->src->cat;
    const char *outer = r->opt.select.part == (int)PART_MODEL ? r->src->parts.model_key : "";
    const size_t n = strlen(outer);
    bool lost = false;
    uint8_t *seen = calloc(m->tensors.count + 1, 1);
    if (seen == NULL || r->src->adapter != NULL) {
        free(seen);
        return true;
    }
    for (uint32_t i = 0; i < catalogue_tensor_count(cat); i++) {
        const uint32_t name = catalogue_tensor(cat, i)->name;
        const size_t at =
            manifest_find_tensor(m, catalogue_name(cat, name), catalogue_name_nbytes(cat, name));
        if (at < m->tensors.count)
            seen[at] = same_shape(m, at, cat, i);
    }
    for (uint32_t i = 0; i < m->tensors.count && !lost; i++) {
        const char *name = strtab_text(&m->tensor_names, i);
        lost = !seen[i] && (n == 0 || (strncmp(name, outer, n) == 0 && name[n] == '.'));
    }
    free(seen);
    return lost;
}

static bool lost_tensors(taken *t, const manifest *m)
{
    if (t->lost < 0)
        t->lost = has_lost(t->r, m);
    return t->lost > 0;
}

/* Whether the file is one of the catalogue's. */
static bool is_own(const manifest_base *b, const catalogue *cat, const char *name)
{
    if (b->inside_nbytes > 0 &&
        (strncmp(name, b->inside, b->inside_nbytes) != 0 || name[b->inside_nbytes] != '/'))
        return false;
    name += b->inside_nbytes > 0 ? b->inside_nbytes + 1 : 0;
    return catalogue_has_file(cat, name);
}

static bool is_needed(void *arg, const manifest *m, const manifest_base *b, const char *name)
{
    taken *t = arg;
    const fsdpck_checkpoint *src = t->r->src;
    const catalogue *cat = src->adapter == NULL ? &src->cat : &src->read;
    if (!src->probe.is_folder)
        return true;
    if (is_own(b, cat, name))
        return true;
    if (!sidecars_is_weights(name))
        return false;
    return lost_tensors(t, m) || t->r->opt.select.part != (int)PART_MODEL;
}

static bool has_lost_tensors(void *arg, const manifest *m, const manifest_base *b, const char *name)
{
    (void)b;
    return sidecars_is_weights(name) && lost_tensors(arg, m);
}

static fsdpck_status check_run(run *r, manifest_needed_fn needed, const logger *log,
                               fsdpck_error *err)
{
    taken t = {r, -1};
    manifest m;
    manifest_init(&m, &r->src->metadata);
    const fsdpck_status st = check_files(r->src, &m, needed, &t, log, err);
    manifest_release(&m);
    return st;
}

fsdpck_status manifest_files_check_run(run *r, fsdpck_error *err)
{
    return check_run(r, is_needed, &r->ctx->log, err);
}

fsdpck_status manifest_files_check_lost(run *r, fsdpck_error *err)
{
    return check_run(r, has_lost_tensors, NULL, err);
}
