#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "describe/units.h"
#include "state/mesh.h"

/* ---- small accessors for all files of units ---- */

const units_row *units_row_at(const fsdpck_units *u, uint64_t index)
{
    return VEC_AT(&u->rows, const units_row, index);
}

const unit *units_flat_of(const fsdpck_units *u, const units_row *row)
{
    return unit_at(&u->flat, row->index);
}

static const sharded_unit *group_of(const fsdpck_units *u, const units_row *row)
{
    return VEC_AT(&u->groups.units, const sharded_unit, row->index);
}

uint32_t units_row_nparams(const fsdpck_units *u, const units_row *row)
{
    return row->fully_shard ? group_of(u, row)->nparams : units_flat_of(u, row)->nparams;
}

uint32_t units_group_param(const fsdpck_units *u, const units_row *row, uint32_t k)
{
    return *VEC_AT(&u->groups.params, const uint32_t, group_of(u, row)->first_param + k);
}

fsdp2_spec units_spec(const fsdpck_units *u, const units_row *row, uint32_t param)
{
    const model *m = &u->of->m;
    const model_param *p = model_param_at(m, param);
    const model_sharding *s = model_sharding_of(m, model_module_at(m, row->module));
    return (fsdp2_spec){
        .ndim = p->ndim,
        .shape = model_shape(m, p->shape_at),
        .shard_dim = p->shard_dim == UINT8_MAX ? s->shard_dim : p->shard_dim,
        .world_size = row->world_size,
        .replicas = u->info.world_size / row->world_size,
        .post_forward = s->post_forward,
        .orig_dtype = p->dtype,
        .param_dtype = s->param_dtype,
        .reduce_dtype = s->reduce_dtype,
        .torch = m->torch,
    };
}

/* ---- number of ranks ---- */

static fsdpck_status refuse_ranks(fsdpck_error *err, const char *message, uint64_t expected,
                                  uint64_t found)
{
    return FAIL_WITH(err, USAGE, MODEL_WORLD, ("%s", message), (expected, "%" PRIu64, expected),
                     (found, "%" PRIu64, found));
}

static fsdpck_status choose_ranks(fsdpck_units *u, uint64_t world_size, uint64_t shard_size,
                                  fsdpck_error *err)
{
    const model *m = &u->of->m;
    if (world_size == 0)
        world_size = m->world_size;
    if (world_size == 0 && m->lists_units)
        world_size = unit_list_largest_group(&m->units);
    if (world_size == 0)
        return FAIL_WITH(
            err, BADINPUT, MODEL_WORLD, ("number of ranks is not given"),
            (expected, "'world_size' in the description"), (found, "no such key"),
            (next, "give --world-size N or --mesh DIMS, or add 'world_size' to the description"));
    if (world_size > MESH_RANKS_MAX)
        return refuse_ranks(err, "more ranks than can be counted", MESH_RANKS_MAX, world_size);
    if (shard_size > 0 && (shard_size > world_size || world_size % shard_size != 0))
        return refuse_ranks(err,
                            "number of ranks that share a unit does not divide the number of ranks",
                            world_size, shard_size);
    u->info.world_size = world_size;
    return FSDPCK_OK;
}

/* Ranks to request; 0: as described. A list of hybrid units does not record that groups are smaller
 * than the world, but its world_size does. */
static uint32_t requested_ranks(const fsdpck_units *u)
{
    const model *m = &u->of->m;
    const uint32_t most = m->lists_units ? unit_list_largest_group(&m->units) : 0;
    const uint32_t described = m->world_size > 0 ? m->world_size : most;
    if (m->lists_units && (most < m->world_size || u->info.world_size == described))
        return 0;
    return (uint32_t)u->info.world_size;
}

static fsdpck_status check_group(const fsdpck_units *u, uint64_t size, const char *path,
                                 fsdpck_error *err)
{
    if (u->info.world_size % size == 0)
        return FSDPCK_OK;
    return FAIL_WITH(
        err, USAGE, MODEL_WORLD, ("group size of a unit does not divide the number of ranks"),
        (expected, "a factor of %" PRIu64 " rank%s", u->info.world_size,
         text_plural(u->info.world_size)),
        (found, "a group of %" PRIu64, size),
        (next, "choose a multiple of the group size that the description gives the unit"),
        (tensor, path));
}

/* Ranks that share a unit of FSDP2, by the rule of model_find_units. */
static uint32_t group_ranks(const fsdpck_units *u, const sharded_unit *g, uint64_t shard_size)
{
    const bool local = g->world_size == 1;
    if (g->world_size > 0 && g->world_size != u->of->m.world_size &&
        (shard_size == 0 || local || g->world_size != u->main_group))
        return g->world_size;
    return (uint32_t)(shard_size > 0 ? shard_size : u->info.world_size);
}

/* ---- rows ---- */

static fsdpck_status add_row(fsdpck_units *u, const units_row *row, fsdpck_error *err)
{
    return vec_add(&u->rows, row, err);
}

static uint32_t flat_module(const fsdpck_units *u, uint32_t index)
{
    size_t nbytes;
    const char *prefix = unit_name(&u->flat, unit_at(&u->flat, index)->prefix, &nbytes);
    return model_find_module(&u->of->m, prefix, nbytes);
}

/* Merges the units of both lists, which are already in module order. */
static fsdpck_status merge_rows(fsdpck_units *u, uint64_t shard_size, fsdpck_error *err)
{
    const model *m = &u->of->m;
    const size_t nflat = unit_count(&u->flat);
    const size_t ngroups = u->groups.units.count;
    size_t flat = 0;
    size_t group = 0;
    while (flat < nflat || group < ngroups) {
        const uint32_t module = flat < nflat ? flat_module(u, (uint32_t)flat) : MODEL_NONE;
        const sharded_unit *g =
            group < ngroups ? VEC_AT(&u->groups.units, const sharded_unit, group) : NULL;
        units_row row = {0};
        size_t nbytes;
        const char *path;
        if (g == NULL || (flat < nflat && module < g->module)) {
            const unit *f = unit_at(&u->flat, (uint32_t)flat);
            path = unit_name(&u->flat, f->prefix, &nbytes);
            row = (units_row){.module = module,
                              .index = (uint32_t)flat++,
                              .is_root = nbytes == 0,
                              .world_size = f->world_size};
        } else {
            path = model_name(m, model_module_at(m, g->module)->name, &nbytes);
            row = (units_row){.module = g->module,
                              .index = (uint32_t)group++,
                              .fully_shard = true,
                              .world_size = group_ranks(u, g, shard_size)};
        }
        RETURN_IF(check_group(u, row.world_size, path, err));
        if (u->info.group_size_min == 0 || row.world_size < u->info.group_size_min)
            u->info.group_size_min = row.world_size;
        if (row.world_size > u->info.group_size_max)
            u->info.group_size_max = row.world_size;
        RETURN_IF(add_row(u, &row, err));
    }
    return FSDPCK_OK;
}

/* FSDP1: units with no other around them. */
static void find_roots(fsdpck_units *u)
{
    const model *m = &u->of->m;
    uint32_t end = 0;
    size_t at = 0;
    for (uint32_t i = 0; i < model_module_count(m) && at < u->rows.count; i++) {
        const model_module *module = model_module_at(m, i);
        const bool outermost = i >= end && module->kinds & MODULE_FSDP;
        if (outermost)
            end = module->next;
        units_row *row = VEC_AT(&u->rows, units_row, at);
        if (row->module == i) {
            row->is_root = outermost;
            at++;
        }
    }
}

/* ---- parameters ---- */

static fsdpck_status name_flat(fsdpck_units *u, fsdpck_error *err)
{
    const model *m = &u->of->m;
    const size_t count = u->flat.params.count;
    uint32_t *names = vec_push_n(&u->flat_names, count, err);
    if (names == NULL)
        return FSDPCK_LIMIT;
    for (size_t i = 0; i < count; i++) {
        size_t nbytes;
        const unit_param *p = VEC_AT(&u->flat.params, const unit_param, i);
        const char *fqn = unit_name(&u->flat, p->fqn, &nbytes);
        names[i] = model_find_param(m, fqn, nbytes);
        if (names[i] != MODEL_NONE)
            *VEC_AT(&u->in_unit, uint8_t, model_param_first(m, names[i])) = 1;
    }
    return FSDPCK_OK;
}

static fsdpck_status add_shared(fsdpck_units *u, units_row *row, uint32_t primary,
                                fsdpck_error *err)
{
    const model *m = &u->of->m;
    for (uint32_t i = model_param_first(m, primary); i != MODEL_NONE;
         i = model_param_at(m, i)->next_name) {
        if (*VEC_AT(&u->places, const uint32_t, i) != MODEL_NONE)
            continue; /* it, or a parameter of another unit */
        RETURN_IF(vec_add(&u->shared, &(units_shared){i, primary}, err));
        row->nshared++;
    }
    return FSDPCK_OK;
}

static fsdpck_status check_param(const fsdpck_units *u, const units_row *row, uint32_t param,
                                 fsdpck_error *err)
{
    const model *m = &u->of->m;
    const model_param *p = model_param_at(m, param);
    const fsdp2_spec spec = units_spec(u, row, param);
    uint32_t ninputs;
    const model_input *inputs = model_inputs(m, model_param_first(m, param), &ninputs);
    fsdpck_status st = fsdp2_check(&spec, err);
    for (uint32_t i = 0; st == FSDPCK_OK && i < ninputs; i++)
        st = fsdp2_check_extension(&spec, inputs[i].ndim, model_shape(m, inputs[i].shape_at), err);
    if (st == FSDPCK_OK && p->strided)
        st = FAIL_WITH(err, BADINPUT, MODEL_SHAPE,
                       ("fully_shard rejects parameters that are not contiguous"),
                       (next, "make this parameter contiguous first"));
    if (st != FSDPCK_OK)
        error_tensor(err, model_name(m, p->name, NULL));
    return st;
}

static fsdpck_status name_groups(fsdpck_units *u, fsdpck_error *err)
{
    const model *m = &u->of->m;
    uint32_t *places = vec_push_n(&u->places, model_param_count(m), err);
    if (places == NULL)
        return FSDPCK_LIMIT;
    memset(places, 0xFF, u->places.count * sizeof *places); /* MODEL_NONE */
    for (size_t i = 0; i < u->groups.params.count; i++) {
        const uint32_t param = *VEC_AT(&u->groups.params, const uint32_t, i);
        places[param] = (uint32_t)i;
        *VEC_AT(&u->in_unit, uint8_t, model_param_first(m, param)) = 1;
    }
    for (size_t i = 0; i < u->rows.count; i++) {
        units_row *row = VEC_AT(&u->rows, units_row, i);
        if (!row->fully_shard)
            continue;
        row->first_shared = (uint32_t)u->shared.count;
        for (uint32_t k = 0; k < units_row_nparams(u, row); k++) {
            const uint32_t param = units_group_param(u, row, k);
            RETURN_IF(check_param(u, row, param, err));
            RETURN_IF(add_shared(u, row, param, err));
        }
    }
    return FSDPCK_OK;
}

/* ---- the whole ---- */

static fsdpck_status build(fsdpck_units *u, uint64_t world_size, uint64_t shard_size,
                           fsdpck_error *err)
{
    const model *m = &u->of->m;
    RETURN_IF(choose_ranks(u, world_size, shard_size, err));
    u->main_group = m->lists_units ? 0 : model_main_group(m);
    const model_ranks ranks = {.world_size = requested_ranks(u),
                               .group = (uint32_t)shard_size,
                               .main_group = u->main_group};
    RETURN_IF(model_find_units(m, &ranks, &u->flat, err));
    RETURN_IF(model_find_fully_sharded(m, &u->groups, err));
    RETURN_IF(merge_rows(u, shard_size, err));
    if (!m->lists_units)
        find_roots(u);
    if (vec_push_n(&u->in_unit, model_param_count(m), err) == NULL)
        return FSDPCK_LIMIT;
    RETURN_IF(name_flat(u, err));
    RETURN_IF(name_groups(u, err));
    return units_compute_totals(u, err);
}

fsdpck_status fsdpck_units_new(const fsdpck_model *of, uint64_t world_size, uint64_t shard_size,
                               fsdpck_units **out, fsdpck_error *err)
{
    *out = NULL;
    fsdpck_units *u = calloc(1, sizeof *u);
    if (u == NULL)
        return error_set_nomem(err, sizeof *u);
    u->of = of;
    u->owner = of->m.owner;
    unit_list_init(&u->flat, u->owner);
    sharded_list_init(&u->groups, u->owner);
    u->rows = VEC_OF(units_row, u->owner);
    u->flat_names = VEC_OF(uint32_t, u->owner);
    u->places = VEC_OF(uint32_t, u->owner);
    u->in_unit = VEC_OF(uint8_t, u->owner);
    u->shared = VEC_OF(units_shared, u->owner);
    u->totals = VEC_OF(units_group, u->owner);
    const fsdpck_status st = build(u, world_size, shard_size, err);
    if (st != FSDPCK_OK)
        fsdpck_units_free(u);
    else
        *out = u;
    return st;
}

void fsdpck_units_free(fsdpck_units *u)
{
    if (u == NULL)
        return;
    units_totals_release(u);
    VEC_RELEASE_ALL(&u->rows, &u->flat_names, &u->places, &u->in_unit, &u->shared);
    sharded_list_release(&u->groups);
    unit_list_release(&u->flat);
    free(u);
}
