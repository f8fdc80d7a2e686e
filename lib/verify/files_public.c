/* Checksums of a checkpoint's files, and the manifest of an existing checkpoint. */
#include <stdlib.h>
#include <string.h>

#include "base/struct_copy.h"
#include "compare/digest.h"
#include "run/file_checksums.h"
#include "run/manifest_run.h"
#include "run/output_paths.h"

struct fsdpck_files {
    fsdpck_checkpoint *src;
    manifest_base base;
    file_checksums sums;
    bool has_sha256;
};

static int compare_files(const void *a, const void *b)
{
    const file_checksum *x = a, *y = b;
    return strcmp(x->name, y->name);
}

fsdpck_status fsdpck_files_new(fsdpck_context *ctx, fsdpck_checkpoint *src, unsigned threads,
                               int sha256, fsdpck_files **out, fsdpck_error *err)
{
    *out = NULL;
    if (src->format->id == FSDPCK_FORMAT_MEMORY)
        return FAIL(err, USAGE, NONE, "a checkpoint in memory has no files");
    fsdpck_files *f = calloc(1, sizeof *f);
    if (f == NULL)
        return error_set_nomem(err, sizeof *f);
    f->src = src;
    f->has_sha256 = sha256 != 0;
    fsdpck_status st = manifest_base_open(&f->base, src, err);
    file_checksums_init(&f->sums, f->base.dir, false);
    file_checksums_use_group(&f->sums, src);
    if (st == FSDPCK_OK)
        st = file_checksums_add_checkpoint(&f->sums, &f->base, src, err);
    st = group_agree(ctx->group, st, err);
    if (st == FSDPCK_OK && f->sums.files.count > 1)
        qsort(f->sums.files.items, f->sums.files.count, sizeof(file_checksum), compare_files);
    if (st == FSDPCK_OK)
        st = file_checksums_read(&f->sums, ctx, thread_count(threads),
                                 CHECKSUM_CRC64 | (sha256 ? CHECKSUM_SHA256 : 0), err);
    progress_phase(&ctx->progress, NULL, 0);
    if (st != FSDPCK_OK)
        fsdpck_files_free(f);
    else
        *out = f;
    return st;
}

size_t fsdpck_files_count(const fsdpck_files *f)
{
    return f->sums.files.count;
}

void fsdpck_files_get(const fsdpck_files *f, size_t index, fsdpck_file *one)
{
    if (index >= f->sums.files.count) {
        struct_clear(one);
        return;
    }
    const file_checksum *s = VEC_AT(&f->sums.files, const file_checksum, index);
    const fsdpck_file all = {
        .struct_nbytes = sizeof all,
        .name = s->name,
        .nbytes = s->nbytes,
        .crc64 = s->crc64,
        .sha256 = f->has_sha256 ? s->sha256 : NULL,
    };
    struct_copy_out(one, &all, sizeof all);
}

void fsdpck_files_free(fsdpck_files *f)
{
    if (f == NULL)
        return;
    file_checksums_release(&f->sums);
    manifest_base_close(&f->base);
    free(f);
}

static fsdpck_status fill(manifest *m, const fsdpck_files *f, const fsdpck_digests *d,
                          fsdpck_error *err)
{
    for (size_t i = 0; i < f->sums.files.count; i++) {
        const file_checksum *s = VEC_AT(&f->sums.files, const file_checksum, i);
        manifest_file *entry;
        RETURN_IF(manifest_add_file(m, s->name, strlen(s->name), s->nbytes, &entry, err));
        entry->crc64 = s->crc64;
        entry->has_sha256 = f->has_sha256;
        memcpy(entry->sha256, s->sha256, sizeof entry->sha256);
    }
    return manifest_add_rows(m, &d->rows, &d->run.to, err);
}

fsdpck_status fsdpck_manifest_check_path(const char *path, int force, fsdpck_manifest_old *old,
                                         fsdpck_error *err)
{
    path_stamp stamp;
    if (old != NULL)
        struct_clear(old);
    RETURN_IF(output_check_manifest_file(path, force != 0, &stamp, err));
    const fsdpck_manifest_old all = {
        .struct_nbytes = sizeof all,
        .exists = stamp.kind == PATH_FILE,
        .nbytes = stamp.nbytes,
        .mtime_ns = stamp.mtime_ns,
    };
    if (old != NULL)
        struct_copy_out(old, &all, sizeof all);
    return FSDPCK_OK;
}

static fsdpck_status stamp_of_old(const fsdpck_manifest_old *old, path_stamp *stamp,
                                  fsdpck_error *err)
{
    fsdpck_manifest_old all = FSDPCK_INIT(fsdpck_manifest_old);
    RETURN_IF(STRUCT_COPY_IN(&all, old, fsdpck_manifest_old, err));
    *stamp = (path_stamp){all.exists ? PATH_FILE : PATH_ABSENT, all.nbytes, all.mtime_ns};
    return FSDPCK_OK;
}

static fsdpck_status write_manifest(const fsdpck_files *f, const fsdpck_digests *d,
                                    const char *path, int force, const fsdpck_manifest_old *old,
                                    fsdpck_error *err)
{
    path_stamp earlier;
    manifest m;
    text_buf text = {.limit_bytes = MANIFEST_NBYTES_MAX};
    output out = {0};
    RETURN_IF(output_check_manifest_file(path, force != 0, &earlier, err));
    if (old != NULL)
        RETURN_IF(stamp_of_old(old, &earlier, err));
    manifest_init(&m, &f->src->metadata);
    fsdpck_status st = fill(&m, f, d, err);
    if (st == FSDPCK_OK)
        st = manifest_write(&m, &text, err);
    if (st == FSDPCK_OK)
        st = manifest_stage(path, &text, force ? OUTPUT_REPLACE : 0, &earlier, &f->src->ctx->log,
                            &out, err);
    if (st == FSDPCK_OK)
        st = output_commit(&out, err);
    output_release(&out);
    manifest_release(&m);
    text_release(&text);
    return st;
}

fsdpck_status fsdpck_manifest_write(const fsdpck_files *f, const fsdpck_digests *d,
                                    const char *path, int force, const fsdpck_manifest_old *old,
                                    fsdpck_error *err)
{
    group *g = f->src->ctx->group;
    const bool first = group_rank(g) == 0; /* the file is one for all */
    return group_agree(g, first ? write_manifest(f, d, path, force, old, err) : FSDPCK_OK, err);
}
