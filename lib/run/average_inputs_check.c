#include "run/average_inputs_check.h"

#include <stdlib.h>

#include "run/digest_run.h"
#include "run/manifest_files.h"

static fsdpck_status plan_input(run *sub, fsdpck_error *err)
{
    RETURN_IF(digest_select(sub, err));
    RETURN_IF(manifest_files_check_run(sub, err));
    RETURN_IF(run_lay_out(sub, err));
    return run_make_plan(sub, err);
}

/* Replicas to compare: --replicas first is about those of sharded tensors, not about each rank's own. */
static bool has_replicas(const run *sub)
{
    const bool first = sub->opt.select.replicas == FSDPCK_REPLICAS_FIRST;
    const catalogue *cat = &sub->src->cat;
    uint32_t count = 0;
    for (uint32_t i = 0; i < catalogue_tensor_count(cat) && count == 0; i++)
        if (plan_uses_tensor(sub->plan, i) &&
            (!first || (catalogue_tensor(cat, i)->flags & CAT_TENSOR_EACH_RANK)))
            (void)plan_replicas_of(sub->plan, i, &count);
    return count > 0;
}

static fsdpck_status compare_replicas(run *sub, fsdpck_error *err)
{
    group *g = sub->ctx->group;
    RETURN_IF(run_agree_on_plan(sub, FSDPCK_OK, GROUP_GOES_ON, err));
    RETURN_IF(group_agree_result(g, run_resolve(sub, err), true, err));
    return group_agree_result(g, exec_check_replicas(sub->exec, err), false, err);
}

/* The tensors of an input that are averaged, by number; NULL without memory. */
static uint8_t *taken_of(const fsdpck_checkpoint *average, size_t input)
{
    const size_t inputs = average->input_count;
    uint8_t *takes = calloc(catalogue_tensor_count(&average->inputs[input]->cat) + 1, 1);
    for (size_t i = input; takes != NULL && i < average->average_tensors.count; i += inputs) {
        const uint32_t tensor = *VEC_AT(&average->average_tensors, const uint32_t, i);
        if (tensor != CAT_NONE)
            takes[tensor] = 1;
    }
    return takes;
}

/* Averages are computed from the first of several replicas, so these are compared before. */
static fsdpck_status check_input(run *r, size_t input, fsdpck_error *err)
{
    run sub;
    uint8_t *takes = taken_of(r->src, input);
    uint8_t *no_objects = calloc(r->src->inputs[input]->parts.object_count + 1, 1);
    const select_only only = {.tensors = takes, .objects = no_objects};
    run_init(&sub, r->ctx, r->src->inputs[input], NULL);
    sub.dst = "";
    sub.may_be_empty = true;
    sub.only = &only;
    sub.opt.select.part = r->opt.select.part;
    sub.opt.select.replicas = r->opt.select.replicas;
    sub.opt.select.objects = FSDPCK_OBJECTS_DROP;
    sub.opt.select.clean_names = FSDPCK_ON;
    sub.opt.work = r->opt.work;
    sub.opt.work.engine = FSDPCK_ENGINE_THREADS;
    fsdpck_status st =
        takes == NULL || no_objects == NULL ? error_set_nomem(err, 1) : plan_input(&sub, err);
    st = group_agree_result(r->ctx->group, st, true, err);
    if (st == FSDPCK_OK && !r->opt.dry_run.mode && has_replicas(&sub))
        st = compare_replicas(&sub, err);
    if (st != FSDPCK_OK && err != NULL && err->path[0] == '\0')
        error_path(err, r->src->inputs[input]->path);
    run_release(&sub);
    free(takes);
    free(no_objects);
    return st;
}

fsdpck_status average_inputs_check(run *r, fsdpck_error *err)
{
    const fsdpck_checkpoint *c = r->src;
    for (size_t i = 0; c->average != NULL && i < c->input_count; i++)
        RETURN_IF(check_input(r, i, err));
    return FSDPCK_OK;
}
