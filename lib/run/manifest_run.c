#include "run/manifest_run.h"

#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "manifest/manifest.h"
#include "run/file_checksums.h"
#include "run/output_paths.h"
#include "run/view_sums.h"

bool manifest_run_is_in_output(const run *r)
{
    return r->to.is_folder && !r->opt.output.no_manifest;
}

bool manifest_run_is_made(const run *r)
{
    return manifest_run_is_in_output(r) || r->opt.output.manifest_path != NULL;
}

void manifest_run_request_checksums(run *r)
{
    r->to.want_digest = r->to.want_file_crc = manifest_run_is_made(r);
}

/* ---- tensors ---- */

/* The name is that in the output: see target.dropped_key. */
static fsdpck_status add_row(manifest *m, const target *t, const char *name, size_t nbytes,
                             uint32_t tensor, uint64_t digest, fsdpck_error *err)
{
    const cat_tensor *ct = catalogue_tensor(&t->cat, tensor);
    const size_t n = t->dropped_key == NULL ? 0 : strlen(t->dropped_key);
    const bool has_key =
        n > 0 && n < nbytes && memcmp(name, t->dropped_key, n) == 0 && name[n] == '.';
    const size_t dropped = has_key ? n + 1 : 0;
    return manifest_add_tensor(m, name + dropped, nbytes - dropped, (dtype)ct->dtype, ct->ndim,
                               catalogue_shape(&t->cat, tensor), digest, err);
}

fsdpck_status manifest_add_rows(manifest *m, const digest_rows *d, const target *t,
                                fsdpck_error *err)
{
    for (uint64_t i = 0; i < d->count; i++) {
        const digest_row *row = &d->rows[i];
        RETURN_IF(
            add_row(m, t, row->name, row->name_nbytes, (uint32_t)row->tensor, row->digest, err));
    }
    return FSDPCK_OK;
}

/* Names that share the tensor of another name (--tied link) are in the output, too. */
static fsdpck_status add_linked_rows(manifest *m, const digest_rows *d, const target *t,
                                     fsdpck_error *err)
{
    for (size_t i = 0; i < t->linked.count; i++) {
        const target_dropped *second = VEC_AT(&t->linked, const target_dropped, i);
        const cat_tensor *ct = catalogue_tensor(&t->cat, second->tensor);
        const uint64_t at = digest_rows_find(d, catalogue_name(&t->cat, ct->name),
                                             catalogue_name_nbytes(&t->cat, ct->name));
        const char *name = catalogue_name(&t->cat, second->name);
        const size_t nbytes = catalogue_name_nbytes(&t->cat, second->name);
        if (at < d->count && digest_rows_find(d, name, nbytes) == d->count)
            RETURN_IF(add_row(m, t, name, nbytes, second->tensor, d->rows[at].digest, err));
    }
    return FSDPCK_OK;
}

static fsdpck_status add_tensors(run *r, manifest *m, fsdpck_error *err)
{
    digest_rows rows;
    RETURN_IF(view_sums_fill(r, err));
    fsdpck_status st = digest_rows_make(&rows, &r->to, err);
    if (st == FSDPCK_OK)
        st = manifest_add_rows(m, &rows, &r->to, err);
    if (st == FSDPCK_OK)
        st = add_linked_rows(m, &rows, &r->to, err);
    digest_rows_release(&rows);
    return st;
}

/* ---- files ---- */

/* The output's single file, or one of its folder. */
static const char *name_of_file(const run *r, size_t i)
{
    return r->to.is_folder ? catalogue_name(&r->to.cat, catalogue_file(&r->to.cat, i)->path)
                           : text_file_name(r->dst);
}

static fsdpck_status add_file(manifest *m, const char *name, uint64_t nbytes, uint64_t crc64,
                              fsdpck_error *err)
{
    manifest_file *f;
    RETURN_IF(manifest_add_file(m, name, strlen(name), nbytes, &f, err));
    f->crc64 = crc64;
    return FSDPCK_OK;
}

static fsdpck_status add_files(const run *r, manifest *m, fsdpck_error *err)
{
    for (size_t i = 0; i < catalogue_file_count(&r->to.cat); i++)
        RETURN_IF(add_file(m, name_of_file(r, i), catalogue_file(&r->to.cat, i)->nbytes,
                           target_file_crc(&r->to, i), err));
    for (size_t i = 0; i < r->side.files.count; i++) {
        const sidecar *f = VEC_AT(&r->side.files, const sidecar, i);
        if (f->copied)
            RETURN_IF(add_file(m, sidecars_output(&r->side, f), f->nbytes, f->crc64, err));
    }
    return FSDPCK_OK;
}

/* Files of the manifest come in the order of the output. */
static fsdpck_status add_sha256(run *r, manifest *m, fsdpck_error *err)
{
    uint64_t nbytes = 0;
    file_checksum *files = calloc(m->files.count + 1, sizeof *files);
    if (files == NULL)
        return error_set_nomem(err, m->files.count * sizeof *files);
    for (size_t i = 0; i < m->files.count; i++) {
        files[i].nbytes = VEC_AT(&m->files, const manifest_file, i)->nbytes;
        nbytes += files[i].nbytes;
    }
    const file_checksums_request request = {
        .files = files,
        .count = m->files.count,
        .what = CHECKSUM_SHA256,
        .nthreads = thread_count(r->opt.work.threads),
        .read_at = run_read_output,
        .arg = r,
        .cancel = &r->ctx->cancel,
        .progress = &r->ctx->progress,
    };
    progress_phase(&r->ctx->progress, "checksumming files", nbytes);
    const fsdpck_status st = file_checksums_run(&request, err);
    for (size_t i = 0; st == FSDPCK_OK && i < m->files.count; i++) {
        manifest_file *f = VEC_AT(&m->files, manifest_file, i);
        f->has_sha256 = true;
        memcpy(f->sha256, files[i].sha256, sizeof f->sha256);
    }
    free(files);
    return st;
}

fsdpck_status manifest_run_make(run *r, text_buf *text, fsdpck_error *err)
{
    manifest m;
    *text = (text_buf){.limit_bytes = MANIFEST_NBYTES_MAX};
    if (!manifest_run_is_made(r))
        return FSDPCK_OK;
    manifest_init(&m, &r->src->metadata);
    fsdpck_status st = add_files(r, &m, err);
    if (st == FSDPCK_OK && r->opt.output.sha256)
        st = add_sha256(r, &m, err);
    if (st == FSDPCK_OK)
        st = add_tensors(r, &m, err);
    if (st == FSDPCK_OK)
        st = manifest_write(&m, text, err);
    manifest_release(&m);
    return st;
}

fsdpck_status manifest_run_write(run *r, const text_buf *text, fsdpck_error *err)
{
    size_t index;
    if (!manifest_run_is_in_output(r))
        return FSDPCK_OK;
    RETURN_IF(output_add(&r->out, MANIFEST_NAME, text->nbytes, false, &index, err));
    return output_write_at(&r->out, index, 0, text->text, text->nbytes, err);
}

/* ---- a separate file ---- */

fsdpck_status manifest_stage(const char *path, const text_buf *text, unsigned output_flags,
                             const path_stamp *earlier, const logger *log, output *out,
                             fsdpck_error *err)
{
    size_t index;
    RETURN_IF(output_begin(out, path, OUTPUT_FILE, output_flags, err));
    out->log = *log;
    RETURN_IF(output_expect_old(out, earlier, err));
    RETURN_IF(output_check_replaced(out, err));
    RETURN_IF(output_add(out, "", text->nbytes, false, &index, err));
    return output_write_at(out, index, 0, text->text, text->nbytes, err);
}

fsdpck_status run_stage_manifest(const run *r, const text_buf *text, output *beside,
                                 fsdpck_error *err)
{
    const unsigned flags =
        (r->opt.output.force ? OUTPUT_REPLACE : 0u) | (r->opt.output.no_sync ? OUTPUT_NO_SYNC : 0u);
    return manifest_stage(r->opt.output.manifest_path, text, flags, &r->replaced_manifest,
                          &r->ctx->log, beside, err);
}
