/* Digests for callers; digest_run.c computes them. */
#include <inttypes.h>
#include <stdlib.h>

#include "base/struct_copy.h"
#include "compare/digest.h"
#include "compare/digest_beside.h"

fsdpck_status digests_new(fsdpck_context *ctx, fsdpck_checkpoint *src,
                          const fsdpck_digest_options *options, bool check_manifest,
                          fsdpck_digests **out, fsdpck_error *err)
{
    run_options o;
    *out = NULL;
    RETURN_IF(run_options_of_digest(&o, options, err));
    fsdpck_digests *d = calloc(1, sizeof *d);
    if (d == NULL)
        return error_set_nomem(err, sizeof *d);
    const fsdpck_status st = digest_run(d, ctx, src, &o, check_manifest, err);
    if (st != FSDPCK_OK)
        fsdpck_digests_free(d);
    else
        *out = d;
    return st;
}

fsdpck_status fsdpck_digests_new(fsdpck_context *ctx, fsdpck_checkpoint *src,
                                 const fsdpck_digest_options *options, fsdpck_digests **out,
                                 fsdpck_error *err)
{
    RETURN_IF(digests_new(ctx, src, options, true, out, err));
    checkpoint_warn_lost_whole(src);
    const fsdpck_status st = group_agree(
        ctx->group, group_rank(ctx->group) == 0 ? digest_beside_warn(src, options, err) : FSDPCK_OK,
        err);
    if (st != FSDPCK_OK) {
        fsdpck_digests_free(*out);
        *out = NULL;
    }
    return st;
}

void fsdpck_digests_free(fsdpck_digests *d)
{
    if (d == NULL)
        return;
    digest_run_release(d);
    free(d);
}

void fsdpck_digests_get_info(const fsdpck_digests *d, fsdpck_digests_info *info)
{
    struct exec_stats stats;
    exec_get_stats(d->run.exec, &stats);
    const fsdpck_digests_info all = {
        .struct_nbytes = sizeof all,
        .tensors = d->rows.count,
        .nbytes = d->rows.nbytes,
        .bytes_read = stats.bytes_read,
        .left_out_tensors = d->run.selected.left_out_tensors,
        .left_out_objects = d->run.selected.left_out_objects,
        .whole = d->rows.whole,
        .left_out_nbytes = d->run.selected.left_out_nbytes,
        .left_out_names = d->run.selected.left_out_names.list,
        .left_out_names_count = d->run.selected.left_out_names.count,
        .tensors_in = d->run.selected.tensors_in,
        .nbytes_in = d->run.selected.nbytes_in,
        .tied_dropped = d->run.selected.tied_dropped,
        .tied_dropped_nbytes = d->run.selected.tied_dropped_nbytes,
    };
    struct_copy_out(info, &all, sizeof all);
}

void fsdpck_digests_get(const fsdpck_digests *d, uint64_t index, fsdpck_digest *digest)
{
    if (index >= d->rows.count) {
        struct_clear(digest);
        return;
    }
    const digest_row *row = &d->rows.rows[index];
    const catalogue *cat = &d->run.to.cat;
    const cat_tensor *ct = catalogue_tensor(cat, row->tensor);
    const fsdpck_digest all = {
        .struct_nbytes = sizeof all,
        .name = row->name,
        .name_nbytes = row->name_nbytes,
        .dtype = dtype_get((dtype)ct->dtype)->name,
        .ndim = ct->ndim,
        .shape = catalogue_shape(cat, row->tensor),
        .nbytes = catalogue_tensor_nbytes(cat, row->tensor),
        .type = d->rows.texts.text + row->type_at,
        .value = row->digest,
    };
    struct_copy_out(digest, &all, sizeof all);
}
