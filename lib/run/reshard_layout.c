#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "run/run.h"

static fsdpck_status mesh_of_like(run *r, mesh *m, fsdpck_error *err)
{
    fsdpck_checkpoint *like = r->opt.sharding.like;
    const mesh *theirs = catalogue_largest_mesh(&like->cat);
    if (theirs == NULL && like->format->of_model)
        return FAIL_WITH(
            err, UNSUPPORTED, LAYOUT_UNKNOWN,
            ("--like takes the mesh of a sharded checkpoint, but this is a folder of full "
             "tensors"),
            (path, like->path),
            (next, "omit --like; for the names and files of this folder, give it to a "
                   "following fsdpck consolidate --like"));
    if (theirs == NULL)
        return FAIL_WITH(err, UNSUPPORTED, LAYOUT_UNKNOWN,
                         ("layout cannot be determined from the chunks"), (path, like->path));
    *m = *theirs;
    r->sharding.like = &like->cat;
    r->sharding.like_model_key = like->parts.model_depth > 0 ? like->parts.model_key : "";
    return FSDPCK_OK;
}

/* FSDP1 has one group, of all ranks. */
static fsdpck_status flat_mesh(run *r, mesh *m, fsdpck_error *err)
{
    mesh asked = {0};
    char text[32];
    if (r->opt.sharding.mesh != NULL)
        RETURN_IF(mesh_parse(r->opt.sharding.mesh, &asked, err));
    if (asked.ndim > 1)
        return FAIL_WITH(
            err, USAGE, NONE,
            ("format '%s' supports only a mesh of one dim, over all ranks", r->writer->name),
            (next, "give --world-size N"));
    const uint64_t ranks = asked.ndim > 0 ? asked.sizes[0] : r->opt.sharding.world_size;
    if (ranks == 0 || ranks > MESH_RANKS_MAX)
        return FAIL_WITH(err, USAGE, NONE, ("number of ranks is not given"),
                         (expected, "--world-size of 1 to %u", (unsigned)MESH_RANKS_MAX));
    snprintf(text, sizeof text, "fsdp=%" PRIu64, ranks);
    return mesh_parse(text, m, err);
}

/* A mesh whose dims have unknown names can only be kept if all sharded tensors use it. */
static bool all_are_on(const catalogue *c, const mesh *m)
{
    for (size_t i = 0; i < catalogue_tensor_count(c); i++) {
        const cat_spec *spec = catalogue_spec(c, i);
        if (spec != NULL && !mesh_equal(catalogue_mesh(c, spec->mesh), m))
            return false;
    }
    return true;
}

static void list_lost(const mesh *from, const layout_refit *refit, text_buf *out)
{
    for (unsigned i = 0; i < refit->lost_count; i++) {
        const unsigned dim = refit->lost[i];
        char shown[4 * MESH_NAME_NBYTES];
        escape_text(shown, sizeof shown, from->names[dim], strlen(from->names[dim]));
        text_printf(out, "%s%s%s%" PRIu64, i > 0 ? ", " : "", shown, shown[0] == '\0' ? "" : "=",
                    from->sizes[dim]);
    }
}

/* The --mesh that keeps the dropped dims. */
static void refit_next(const layout_refit *refit, text_buf *next)
{
    mesh parsed;
    text_buf keeper = {0};
    mesh_print(&refit->keeper, &keeper);
    const bool known = refit->keeper.ndim > 0 && text_check(&keeper, NULL) == FSDPCK_OK &&
                       mesh_parse(keeper.text, &parsed, NULL) == FSDPCK_OK;
    if (known && refit->is_exact)
        text_printf(next, "give --mesh %s to keep the dropped dims", keeper.text);
    else if (known)
        text_printf(next,
                    "choose a multiple of %" PRIu64
                    " ranks, for example --mesh %s, to keep the dropped dims",
                    refit->step, keeper.text);
    else if (refit->has_unknown)
        text_puts(
            next,
            "give each dim a name that shows its purpose, for example --mesh dp_shard=4,tp=2");
    text_release(&keeper);
}

static void warn_refit(const run *r, const mesh *from, const mesh *m, const layout_refit *refit)
{
    text_buf was = {0}, is = {0}, lost = {0}, next = {0};
    mesh_print(from, &was);
    mesh_print(m, &is);
    list_lost(from, refit, &lost);
    refit_next(refit, &next);
    if (text_check(&was, NULL) == FSDPCK_OK && text_check(&is, NULL) == FSDPCK_OK &&
        text_check(&lost, NULL) == FSDPCK_OK && text_check(&next, NULL) == FSDPCK_OK)
        log_warn(&r->ctx->log, FSDPCK_FINDING_MESH_REFIT, next.text == NULL ? "" : next.text,
                 "mesh %s of the source becomes %s for %" PRIu64 " rank%s; dropped: %s%s", was.text,
                 is.text, mesh_size(m), mesh_size(m) == 1 ? "" : "s", lost.text,
                 refit->has_unknown ? " (the names do not identify their roles)" : "");
    text_release(&was);
    text_release(&is);
    text_release(&lost);
    text_release(&next);
}

static fsdpck_status fit_mesh(run *r, mesh *m, fsdpck_error *err)
{
    const mesh *from = catalogue_largest_mesh(&r->src->cat);
    layout_refit refit;
    r->layout.moves_uneven = true;
    RETURN_IF(layout_scale_mesh(from, r->opt.sharding.world_size,
                                from == NULL || all_are_on(&r->src->cat, from), m, &refit, err));
    if (refit.lost_count > 0)
        warn_refit(r, from, m, &refit);
    return FSDPCK_OK;
}

static fsdpck_status choose_mesh(run *r, mesh *m, fsdpck_error *err)
{
    if (r->writer->flat)
        return flat_mesh(r, m, err);
    if (r->opt.sharding.like != NULL)
        return mesh_of_like(r, m, err);
    if (r->opt.sharding.mesh != NULL)
        return mesh_parse(r->opt.sharding.mesh, m, err);
    if (r->opt.sharding.world_size > 0)
        return fit_mesh(r, m, err);
    return FAIL_WITH(err, USAGE, NONE, ("number of ranks is not given"),
                     (next, "give --world-size N, --mesh NAME=N,... or --like OTHER"));
}

static fsdpck_status check_world_size(const run *r, fsdpck_error *err)
{
    const uint64_t ranks = mesh_size(&r->layout.mesh);
    if (r->opt.sharding.world_size == 0 || r->opt.sharding.world_size == ranks)
        return FSDPCK_OK;
    return FAIL_WITH(err, USAGE, NONE, ("mesh and world size contradict each other"),
                     (expected, "%" PRIu64 " rank%s (--world-size)", r->opt.sharding.world_size,
                      r->opt.sharding.world_size == 1 ? "" : "s"),
                     (found, "%" PRIu64 " rank%s (%s)", ranks, ranks == 1 ? "" : "s",
                      r->opt.sharding.like != NULL ? "--like" : "--mesh"),
                     (next, "omit --world-size: the mesh determines the number of ranks"));
}

static fsdpck_status add_rules(run *r, fsdpck_error *err)
{
    const run_options *o = &r->opt;
    r->layout.tp_plan_path = o->sharding.tp_plan_path;
    for (size_t i = 0; i < o->sharding.replicate_count; i++)
        RETURN_IF(layout_add_rule(&r->layout, LAYOUT_REPLICATE, o->sharding.replicate[i], 0, err));
    for (size_t i = 0; i < o->sharding.shard_count; i++)
        RETURN_IF(layout_add_shard_text(&r->layout, o->sharding.shard[i], err));
    if (o->sharding.tp_plan != NULL)
        RETURN_IF(
            layout_read_tp_plan(&r->layout, o->sharding.tp_plan, strlen(o->sharding.tp_plan), err));
    return FSDPCK_OK;
}

static void report_mesh(const run *r)
{
    text_buf text = {0};
    mesh_print(&r->layout.mesh, &text);
    const mesh *from = catalogue_largest_mesh(&r->src->cat);
    if (r->opt.sharding.mesh == NULL && r->opt.sharding.like == NULL &&
        text_check(&text, NULL) == FSDPCK_OK) {
        text_buf was = {0};
        if (from != NULL)
            mesh_print(from, &was);
        if (from != NULL && from->ndim > 1 && text_check(&was, NULL) == FSDPCK_OK)
            log_write(&r->ctx->log, LOG_DETAIL,
                      "mesh: %s, fitted to --world-size; the source has %s; choose with --mesh",
                      text.text, was.text);
        text_release(&was);
    }
    text_release(&text);
}

static void report_other_specs(const run *r)
{
    if (r->src->sharded_otherwise > 0 && r->opt.sharding.like == NULL && !r->writer->flat)
        log_write(&r->ctx->log, LOG_NOTE,
                  "tensors that the source shards differently from mesh %s: %" PRIu64
                  "; FSDP shards their dim 0; choose with --shard and --replicate",
                  r->src->mesh == NULL ? "" : r->src->mesh, r->src->sharded_otherwise);
}

fsdpck_status reshard_choose_layout(run *r, fsdpck_error *err)
{
    RETURN_IF(choose_mesh(r, &r->layout.mesh, err));
    RETURN_IF(check_world_size(r, err));
    RETURN_IF(add_rules(r, err));
    report_mesh(r);
    report_other_specs(r);
    if (r->writer->flat) {
        RETURN_IF(
            unit_list_scale(&r->src->units, (uint32_t)mesh_size(&r->layout.mesh), &r->units, err));
        r->sharding.units = &r->units;
        r->sharding.optimizers = r->src->optimizers.lists.count > 0 ? &r->src->optimizers : NULL;
        r->sharding.param_order =
            strtab_count(&r->src->param_order) > 0 ? &r->src->param_order : NULL;
    }
    r->sharding.layout = &r->layout;
    r->sharding.every_rank = r->writer->every_rank;
    r->sharding.any_size = !r->writer->every_rank; /* boxes in files, not a DTensor a rank */
    return FSDPCK_OK;
}
