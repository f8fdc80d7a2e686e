#include "run/digest_run.h"
#include "base/checked.h"
#include "plan/coverage.h"
#include "run/manifest_files.h"

/* ---- the writer of nothing ---- */

/* Elements are aligned in memory too. */
#define DIGEST_ALIGN 64u

static bool holds_any_dtype(dtype d)
{
    return d != DTYPE_NONE;
}

fsdpck_status digest_lay_out_tensor(catalogue *c, uint32_t tensor, uint32_t file_index,
                                    uint64_t *at, fsdpck_error *err)
{
    const cat_tensor *t = catalogue_tensor(c, tensor);
    const uint64_t nbytes = catalogue_tensor_nbytes(c, tensor);
    uint64_t end;
    if (!checked_add(*at, nbytes, &end) || end > INT64_MAX - DIGEST_ALIGN)
        return FAIL(err, LIMIT, LIMIT_COUNT, "total size of the tensors is too large");
    for (uint32_t k = 0; k < t->nchunks; k++) {
        cat_chunk *chunk = catalogue_chunk(c, t->first_chunk + k);
        chunk->file = file_index;
        chunk->offset_bytes = *at;
        chunk->nbytes = nbytes;
        chunk->place = nbytes > 0 ? LOCATION_ROWS : LOCATION_EMPTY;
    }
    *at = (end + DIGEST_ALIGN - 1) / DIGEST_ALIGN * DIGEST_ALIGN;
    return FSDPCK_OK;
}

/* One tensor after the other, as in a file. */
fsdpck_status digest_lay_out(target *t, const writer_options *opt, fsdpck_error *err)
{
    (void)opt;
    uint64_t at = 0;
    uint32_t index;
    for (uint32_t i = 0; i < catalogue_tensor_count(&t->cat); i++)
        RETURN_IF(digest_lay_out_tensor(&t->cat, i, 0, &at, err));
    t->want_digest = true;
    return catalogue_add_file(&t->cat, "", 0, at, CAT_NONE, &index, err);
}

const format_writer digest_writer = {
    .name = "digest",
    .description = "the digest of each tensor",
    .takes = STATE_NAMES_ONLY,
    .holds = holds_any_dtype,
    .layout = digest_lay_out,
};

fsdpck_status digest_select(run *r, fsdpck_error *err)
{
    r->writer = &digest_writer;
    r->bare_optimizer = true;
    r->attributes = true;
    if (r->opt.select.part < 0)
        r->opt.select.part = FSDPCK_PART_ALL;
    if (r->opt.select.part == FSDPCK_PART_ALL && r->opt.select.clean_names == FSDPCK_AUTO)
        r->opt.select.clean_names = FSDPCK_OFF;
    r->opt.output.direct = FSDPCK_OFF;
    return run_select(r, err);
}

/* Everything but reading the data. */
static fsdpck_status prepare(run *r, fsdpck_error *err)
{
    RETURN_IF(run_check_engine(r, err));
    RETURN_IF(digest_select(r, err));
    if (r->check_manifest)
        RETURN_IF(manifest_files_check_lost(r, err));
    RETURN_IF(checkpoint_check_flat(r->src, &r->to.cat, err));
    RETURN_IF(run_lay_out(r, err));
    return run_make_plan(r, err);
}

fsdpck_status digest_check_boxes(fsdpck_checkpoint *src, fsdpck_error *err)
{
    const catalogue *cat = &src->cat;
    struct coverage_report report;
    for (uint32_t i = 0; cat->origin.by_rank && i < catalogue_tensor_count(cat); i++) {
        RETURN_IF(coverage_check(cat, i, &src->metadata, &report, err));
        if (coverage_is_complete(&report))
            continue;
        const fsdpck_status st = coverage_error(cat, i, &report, err);
        error_path(err, src->path);
        return st;
    }
    return FSDPCK_OK;
}

uint64_t digest_differences_words(const fsdpck_checkpoint *src)
{
    return (catalogue_tensor_count(&src->cat) + 63) / 64;
}

/* Combines the differences found by all ranks, with the first one. st: the same on all ranks. */
static fsdpck_status share_differences(const run *r, fsdpck_status st, fsdpck_error *err)
{
    group *g = r->ctx->group;
    rank_differences *d = r->differences;
    fsdpck_error first = d->first;
    if (g == NULL || (st != FSDPCK_OK && st != FSDPCK_BADINPUT))
        return st;
    RETURN_IF(group_or(g, d->tensors, digest_differences_words(r->src), err));
    d->any = group_agree_result(g, d->any ? first.status : FSDPCK_OK, false, &first) != FSDPCK_OK;
    d->first = first;
    return st;
}

static fsdpck_status check_coverage(fsdpck_context *ctx, fsdpck_checkpoint *src, fsdpck_part part,
                                    bool replicas, rank_differences *d, fsdpck_error *err)
{
    run r;
    run_init(&r, ctx, src, NULL);
    r.dst = "";
    r.opt.select.part = (int)part;
    r.differences = d;
    r.ignores_copies = !replicas;
    fsdpck_status st = run_agree_on_plan(&r, prepare(&r, err), GROUP_GOES_ON, err);
    if (st == FSDPCK_OK)
        st = group_agree_result(ctx->group, run_resolve(&r, err), true, err);
    if (st == FSDPCK_OK && !replicas) /* verify warns itself */
        st = group_agree_result(ctx->group, run_warn_same_files(&r, err), true, err);
    if (st == FSDPCK_OK && replicas) {
        st = group_agree_result(ctx->group, exec_check_replicas(r.exec, err), false, err);
        if (d != NULL)
            st = share_differences(&r, st, err);
    }
    progress_phase(&ctx->progress, NULL, 0);
    run_release(&r);
    return st;
}

fsdpck_status digest_check_headers(fsdpck_context *ctx, fsdpck_checkpoint *src, fsdpck_part part,
                                   fsdpck_error *err)
{
    return check_coverage(ctx, src, part, false, NULL, err);
}

fsdpck_status digest_check_coverage(fsdpck_context *ctx, fsdpck_checkpoint *src, fsdpck_part part,
                                    fsdpck_error *err)
{
    return check_coverage(ctx, src, part, true, NULL, err);
}

fsdpck_status digest_check_copies(fsdpck_context *ctx, fsdpck_checkpoint *src, rank_differences *d,
                                  fsdpck_error *err)
{
    return check_coverage(ctx, src, FSDPCK_PART_ALL, true, d, err);
}

static fsdpck_status run_digest(fsdpck_digests *d, fsdpck_error *err)
{
    RETURN_IF(run_agree_on_plan(&d->run, prepare(&d->run, err), GROUP_STOPS, err));
    RETURN_IF(group_agree(d->run.ctx->group, run_resolve(&d->run, err), err));
    RETURN_IF(exec_assign_work(d->run.exec, true, FSDPCK_OK, err));
    RETURN_IF(exec_run(d->run.exec, NULL, err));
    return digest_rows_make(&d->rows, &d->run.to, err);
}

fsdpck_status digest_run(fsdpck_digests *d, fsdpck_context *ctx, fsdpck_checkpoint *src,
                         const run_options *options, bool check_manifest, fsdpck_error *err)
{
    run_init(&d->run, ctx, src, options);
    d->run.check_manifest = check_manifest;
    d->run.dst = "";
    const fsdpck_status st = run_digest(d, err);
    progress_phase(&ctx->progress, NULL, 0);
    return st;
}

void digest_run_release(fsdpck_digests *d)
{
    run_release(&d->run);
    digest_rows_release(&d->rows);
}
