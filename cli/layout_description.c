#include "layout_description.h"

#include "pager.h"
#include "report.h"

/* The first option given that asks for something of a checkpoint; NULL where there is none. */
static const char *find_foreign_option(const command_request *r)
{
    const struct {
        bool given;
        const char *name;
    } options[] = {
        {r->given->like != NULL, "--like"},
        {r->given->tp_plan != NULL, "--tp-plan"},
        {r->job.sharding.shard_count > 0, "--shard"},
        {r->job.sharding.replicate_count > 0, "--replicate"},
        {r->job.select.part >= 0, "--part"},
        {r->job.select.keys_count > 0, "--keys"},
        {r->job.select.exclude_count > 0, "--exclude"},
        {r->job.output.format != NULL, "--format"},
        {r->open.source_ranks > 0, "--source-ranks"},
        {r->open.rank_pattern != NULL, "--source-rank-pattern"},
        {r->open.per_rank != FSDPCK_PER_RANK_AUTO, "--per-rank"},
        {r->open.model_path != NULL, "--model"},
        {r->open.repair_strided != 0, "--repair-strided"},
        {r->open.assume_tp_first != 0 || r->open.assume_order != 0 || r->open.assume_lost_keys != 0,
         "--assume"},
        {r->open.hdf5_separator != NULL, "--hdf5-sep"},
        {r->open.hdf5_fill != 0, "--hdf5-fill"},
        {r->open.no_follow != 0, "--no-follow"},
    };
    for (size_t i = 0; i < sizeof options / sizeof options[0]; i++)
        if (options[i].given)
            return options[i].name;
    return NULL;
}

static fsdpck_status open_all(const cli *c, const command_request *r, model_layout *l,
                              fsdpck_error *err)
{
    uint64_t world_size = r->job.sharding.world_size;
    uint64_t shard_size = 0;
    fsdpck_status st = FSDPCK_OK;
    if (r->job.sharding.mesh != NULL)
        st = fsdpck_mesh_sizes(r->job.sharding.mesh, &world_size, &shard_size, err);
    if (st == FSDPCK_OK)
        st = fsdpck_model_open(c->ctx, r->src, &l->model, err);
    if (st == FSDPCK_OK)
        st = fsdpck_units_new(l->model, world_size, shard_size, &l->units, err);
    l->ranks_given = world_size > 0;
    if (st == FSDPCK_OK) {
        fsdpck_model_get_info(l->model, &l->about);
        fsdpck_units_get_info(l->units, &l->all);
    }
    return st;
}

/* --world-size and --mesh may both be given if they agree. */
static bool ranks_agree(const cli *c, const command_request *r)
{
    uint64_t world_size, shard_size;
    if (r->job.sharding.mesh == NULL || r->job.sharding.world_size == 0 ||
        fsdpck_mesh_sizes(r->job.sharding.mesh, &world_size, &shard_size, NULL) != FSDPCK_OK ||
        world_size == r->job.sharding.world_size)
        return true;
    opt_usage_error(c, "--world-size and --mesh give different numbers of ranks");
    return false;
}

int layout_description_run(cli *c, const command_request *r)
{
    const char *foreign = find_foreign_option(r);
    if (foreign != NULL)
        return opt_usage_error_next(
            c, "omit it; model descriptions take --world-size, --mesh, --rank and --json",
            "%s does not apply to model descriptions such as '%s'", foreign, r->src);
    if (!ranks_agree(c, r))
        return FSDPCK_USAGE;
    fsdpck_error err = FSDPCK_ERROR_INIT;
    model_layout l = {.out = &c->out, .path = r->src};
    layout_scope scope;
    l.about.struct_nbytes = sizeof l.about;
    l.all.struct_nbytes = sizeof l.all;
    int code;
    if (open_all(c, r, &l, &err) != FSDPCK_OK) {
        code = report_failure(c, NULL, &err);
    } else if (!layout_choose_scope(c, r->given->show_rank, l.all.world_size, &scope)) {
        code = FSDPCK_USAGE;
    } else {
        pager_start(c);
        code = c->json ? layout_description_json(c, &l, &scope)
                       : layout_description_text(c, &l, &scope);
    }
    fsdpck_units_free(l.units);
    fsdpck_model_close(l.model);
    return code;
}
