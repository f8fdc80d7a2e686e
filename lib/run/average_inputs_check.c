#include "run/average_inputs_check.h"

#include "run/digest_run.h"
#include "run/manifest_files.h"

static fsdpck_status plan_input(run *sub, fsdpck_error *err)
{
    RETURN_IF(digest_select(sub, err));
    RETURN_IF(manifest_files_check_run(sub, err));
    RETURN_IF(run_lay_out(sub, err));
    return run_make_plan(sub, err);
}

static bool has_replicas(const run *sub)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < catalogue_tensor_count(&sub->src->cat) && count == 0; i++)
        if (plan_uses_tensor(sub->plan, i))
            (void)plan_replicas_of(sub->plan, i, &count);
    return count > 0;
}

static fsdpck_status compare_replicas(run *sub, fsdpck_error *err)
{
    group *g = sub->ctx->group;
    RETURN_IF(run_check_same_plan(sub, err));
    RETURN_IF(group_agree_result(g, run_resolve(sub, err), true, err));
    return group_agree_result(g, exec_check_replicas(sub->exec, err), false, err);
}

/* Averages are computed from the first of several replicas, so these are compared before. */
static fsdpck_status check_input(run *r, fsdpck_checkpoint *input, fsdpck_error *err)
{
    run sub;
    const bool compares = r->opt.select.replicas != FSDPCK_REPLICAS_FIRST && !r->opt.dry_run.mode;
    run_init(&sub, r->ctx, input, NULL);
    sub.dst = "";
    sub.may_be_empty = true;
    sub.keys_are_used = true;
    sub.opt.select.part = r->opt.select.part;
    sub.opt.select.keys = r->opt.select.keys;
    sub.opt.select.keys_count = r->opt.select.keys_count;
    sub.opt.select.exclude = r->opt.select.exclude;
    sub.opt.select.exclude_count = r->opt.select.exclude_count;
    sub.opt.select.replicas = r->opt.select.replicas;
    sub.opt.select.objects = FSDPCK_OBJECTS_DROP;
    sub.opt.select.clean_names = FSDPCK_ON;
    sub.opt.work = r->opt.work;
    sub.opt.work.engine = FSDPCK_ENGINE_THREADS;
    fsdpck_status st = group_agree_result(r->ctx->group, plan_input(&sub, err), true, err);
    if (st == FSDPCK_OK && compares && has_replicas(&sub))
        st = compare_replicas(&sub, err);
    if (st != FSDPCK_OK && err != NULL && err->path[0] == '\0')
        error_path(err, input->path);
    run_release(&sub);
    return st;
}

/* The average does not depend on the format of the output, so it was made before the names were known that
 * --keys and --exclude apply to. */
static fsdpck_status check_taken(const run *r, fsdpck_error *err)
{
    for (uint32_t i = 0; i < catalogue_tensor_count(&r->to.cat); i++) {
        const uint32_t from = *VEC_AT(&r->to.from, const uint32_t, i);
        if (from == CAT_NONE || averager_takes(r->src->average, from))
            continue;
        const char *name = catalogue_name(&r->to.cat, catalogue_tensor(&r->to.cat, i)->name);
        return FAIL_WITH(err, USAGE, NONE, ("'%s' would be written, but is not averaged", name),
                         (tensor, name),
                         (next, "give --keys and --exclude patterns of the names in the output"));
    }
    return FSDPCK_OK;
}

fsdpck_status average_inputs_check(run *r, fsdpck_error *err)
{
    if (r->src->average != NULL)
        RETURN_IF(group_agree(r->ctx->group, check_taken(r, err), err));
    const fsdpck_checkpoint *c = r->src;
    for (size_t i = 0; c->average != NULL && i < c->input_count; i++)
        RETURN_IF(check_input(r, c->inputs[i], err));
    return FSDPCK_OK;
}
