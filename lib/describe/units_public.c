#include <string.h>

#include "base/checked.h"
#include "base/struct_copy.h"
#include "describe/units.h"
#include "layout/torch_chunk.h"

static const dtype_info *info_of(uint8_t d)
{
    return dtype_get((dtype)d);
}

/* NULL where there is no such unit. */
static const units_row *find_row(const fsdpck_units *u, uint64_t index)
{
    return index < u->rows.count ? units_row_at(u, index) : NULL;
}

/* The unit that has a parameter k, else NULL. */
static const units_row *find_param_row(const fsdpck_units *u, uint64_t index, uint64_t k)
{
    const units_row *row = find_row(u, index);
    return row != NULL && k < units_row_nparams(u, row) ? row : NULL;
}

/* ---- units ---- */

/* Saturates on overflow; units_compute_totals then refuses it. */
static void add_to(uint64_t *sum, uint64_t n, uint64_t times)
{
    uint64_t product;
    if (!checked_mul(n, times, &product) || !checked_add(*sum, product, sum))
        *sum = UINT64_MAX;
}

/* The one dtype of several so far; `other` where they differ. */
static const char *join(const char *so_far, const char *name, const char *other)
{
    if (so_far == NULL)
        return name;
    return strcmp(so_far, name) == 0 ? so_far : other;
}

/* The maximum of parameter elements in one shard; gaps between them are padding. */
static uint64_t max_held(const fsdpck_units *u, const unit *f)
{
    uint64_t most = 0;
    uint64_t held = 0;
    uint64_t shard = 0;
    for (uint32_t k = 0; k < f->nparams && most < f->shard_size; k++) {
        const unit_param *p = unit_param_at(&u->flat, f, k);
        uint64_t at = p->offset;
        const uint64_t end = p->offset + p->nelems;
        if (at / f->shard_size > shard)
            held = 0;
        while (at < end && most < f->shard_size) { /* a shard that is full ends it */
            shard = at / f->shard_size;
            const uint64_t stop =
                (shard + 1) * f->shard_size < end ? (shard + 1) * f->shard_size : end;
            held += stop - at;
            most = held > most ? held : most;
            if (stop < end)
                held = 0;
            at = stop;
        }
    }
    return most;
}

static void fill_flat(const fsdpck_units *u, const units_row *row, fsdpck_unit *to)
{
    const model *m = &u->of->m;
    const unit *f = units_flat_of(u, row);
    const model_sharding *s =
        row->module == MODEL_NONE ? NULL : model_sharding_of(m, model_module_at(m, row->module));
    const uint8_t gather = f->compute != DTYPE_NONE ? f->compute : f->dtype;
    const uint8_t param = s == NULL ? (uint8_t)DTYPE_NONE : s->param_dtype;
    const uint8_t asked = s == NULL ? (uint8_t)DTYPE_NONE : s->reduce_dtype;
    const uint8_t reduce = asked != DTYPE_NONE ? asked : param != DTYPE_NONE ? param : f->dtype;
    const uint64_t unsharded = f->unsharded ? f->total : f->shard_size * f->world_size;
    uint64_t end = 0;
    bool any = s == NULL;
    to->path = unit_name(&u->flat, f->prefix, &to->path_nbytes);
    to->kind = FSDPCK_SHARDING_FLAT;
    to->strategy = sharding_strategy_name(f->unsharded ? STRATEGY_NO_SHARD : f->strategy);
    to->flat_name = unit_name(&u->flat, f->flat_name, NULL);
    to->dtype = f->dtype == DTYPE_NONE ? "" : info_of(f->dtype)->name;
    to->gather_dtype = info_of(gather)->name;
    to->reduce_dtype = info_of(reduce)->name;
    to->use_orig_params = f->use_orig_params;
    to->cpu_offload = s != NULL && s->cpu_offload;
    to->alignment = f->use_orig_params ? f->alignment : 0;
    to->shared = f->nshared;
    for (uint32_t k = 0; k < f->nparams; k++) {
        const unit_param *p = unit_param_at(&u->flat, f, k);
        const uint32_t name = *VEC_AT(&u->flat_names, const uint32_t, f->first_param + k);
        to->nelems += p->nelems;
        end = p->offset + p->nelems;
        any = any || name == MODEL_NONE ||
              model_param_at(m, model_param_first(m, name))->requires_grad;
    }
    to->total = f->total;
    to->shard_nelems = f->shard_size;
    to->padding_inside = end - to->nelems;
    to->padding_world = f->total - end;
    to->padding_ranks = unsharded - f->total;
    const bool keeps = row->is_root || f->strategy == STRATEGY_SHARD_GRAD_OP ||
                       f->strategy == STRATEGY_HYBRID_SHARD_ZERO2;
    to->post_forward_size = f->unsharded || keeps ? 1 : f->world_size;
    to->shard_nbytes = f->shard_size * info_of(f->dtype)->itemsize_bytes;
    to->padding_nbytes = (unsharded - to->nelems) * info_of(f->dtype)->itemsize_bytes *
                         (f->unsharded ? f->world_size : 1);
    to->gather_nbytes = f->unsharded ? 0 : unsharded * info_of(gather)->itemsize_bytes;
    to->post_forward_nbytes = keeps ? to->gather_nbytes : 0;
    to->reduce_nbytes = any ? unsharded * info_of(reduce)->itemsize_bytes : 0;
    to->rank_nelems_max = f->unsharded ? to->nelems : max_held(u, f);
}

fsdp2_input units_input_at(const fsdpck_units *u, const fsdp2_spec *s, uint32_t param, uint64_t j,
                           uint32_t *count)
{
    const model *m = &u->of->m;
    const model_input *inputs = model_inputs(m, model_param_first(m, param), count);
    if (*count == 0) {
        *count = 1;
        return fsdp2_input_of(s);
    }
    if (j >= *count)
        return (fsdp2_input){0};
    return fsdp2_extension_of(s, inputs[j].dtype, inputs[j].ndim,
                              model_shape(m, inputs[j].shape_at));
}

static void fill_group(const fsdpck_units *u, const units_row *row, fsdpck_unit *to)
{
    const model *m = &u->of->m;
    const model_module *module = model_module_at(m, row->module);
    const char *dtypes = NULL;
    const char *gather = NULL;
    const char *reduce = NULL;
    uint64_t padded_nbytes = 0;
    to->path = model_name(m, module->name, &to->path_nbytes);
    to->kind = FSDPCK_SHARDING_FULLY_SHARD;
    to->strategy = to->flat_name = "";
    to->cpu_offload = model_sharding_of(m, module)->cpu_offload;
    to->shared = row->nshared;
    to->post_forward_size = 1;
    for (uint32_t k = 0; k < units_row_nparams(u, row); k++) {
        const uint32_t param = units_group_param(u, row, k);
        const fsdp2_spec s = units_spec(u, row, param);
        const uint64_t nelems = box_nelems(s.shape, s.ndim);
        const uint64_t padded = fsdp2_padded_nelems(&s);
        const uint64_t item = info_of(s.orig_dtype)->itemsize_bytes;
        const uint64_t first = torch_chunk_size(s.shape[s.shard_dim], s.world_size);
        add_to(&to->nelems, nelems, 1);
        add_to(&to->shard_nelems, padded, 1);
        add_to(&to->shard_nbytes, padded, item);
        add_to(&to->padding_ranks, padded * s.world_size - nelems, 1);
        add_to(&padded_nbytes, padded * s.world_size - nelems, item);
        add_to(&to->rank_nelems_max, first == 0 ? 0 : nelems < padded ? nelems : padded, 1);
        dtypes = join(dtypes, info_of(s.orig_dtype)->name, "mixed");
        uint32_t ninputs = 1;
        for (uint32_t j = 0; j < ninputs; j++) {
            const fsdp2_input in = units_input_at(u, &s, param, j, &ninputs);
            gather = join(gather, info_of(in.dtype)->name, "uint8");
            add_to(&to->gather_nbytes, in.output_nelems, info_of(in.dtype)->itemsize_bytes);
        }
        to->post_forward_size = fsdp2_post_forward_size(&s);
        const uint8_t grad = fsdp2_grad_dtype(&s);
        if (!model_param_at(m, model_param_first(m, param))->requires_grad)
            continue;
        reduce = join(reduce, info_of(grad)->name, "mixed");
        add_to(&to->reduce_nbytes, padded * s.world_size, info_of(grad)->itemsize_bytes);
    }
    to->padding_nbytes = padded_nbytes;
    to->dtype = dtypes == NULL ? "" : dtypes;
    to->gather_dtype = gather == NULL ? "" : gather;
    to->reduce_dtype = reduce == NULL ? "" : reduce;
    if (to->post_forward_size < row->world_size)
        to->post_forward_nbytes = to->gather_nbytes / to->post_forward_size;
}

void units_fill(const fsdpck_units *u, const units_row *row, fsdpck_unit *to)
{
    const model *m = &u->of->m;
    *to = (fsdpck_unit){.struct_nbytes = sizeof *to, .class_name = "", .module = FSDPCK_NONE};
    if (row->module != MODEL_NONE) {
        const uint32_t name = model_module_at(m, row->module)->class_name;
        to->module = row->module;
        to->class_name = name == MODEL_NONE ? "" : strtab_text(&m->classes, name);
    }
    to->world_size = row->world_size;
    to->params = units_row_nparams(u, row);
    if (row->fully_shard)
        fill_group(u, row, to);
    else
        fill_flat(u, row, to);
}

void fsdpck_units_get_info(const fsdpck_units *u, fsdpck_units_info *info)
{
    struct_copy_out(info, &u->info, sizeof u->info);
}

void fsdpck_units_get(const fsdpck_units *u, uint64_t index, fsdpck_unit *to)
{
    static const fsdpck_unit none = {.path = "",
                                     .class_name = "",
                                     .module = FSDPCK_NONE,
                                     .strategy = "",
                                     .flat_name = "",
                                     .dtype = "",
                                     .gather_dtype = "",
                                     .reduce_dtype = ""};
    const units_row *row = find_row(u, index);
    fsdpck_unit of = none;
    if (row != NULL)
        units_fill(u, row, &of);
    struct_copy_out(to, &of, sizeof of);
}

/* ---- parameters ---- */

static const unit_param *flat_param(const fsdpck_units *u, const units_row *row, uint64_t k)
{
    return unit_param_at(&u->flat, units_flat_of(u, row), (uint32_t)k);
}

static void fill_flat_param(const fsdpck_units *u, const units_row *row, uint32_t k,
                            fsdpck_unit_param *to)
{
    const unit *f = units_flat_of(u, row);
    const unit_param *p = flat_param(u, row, k);
    const uint32_t name = *VEC_AT(&u->flat_names, const uint32_t, f->first_param + k);
    to->fqn = unit_name(&u->flat, p->fqn, &to->fqn_nbytes);
    to->name = name == MODEL_NONE ? FSDPCK_NONE : name;
    to->dtype = info_of(f->dtype)->name;
    to->itemsize_nbytes = info_of(f->dtype)->itemsize_bytes;
    to->ndim = p->ndim;
    to->shape = unit_param_shape(&u->flat, p);
    to->nelems = p->nelems;
    to->offset = p->offset;
    to->padding_before = p->offset;
    if (k > 0) {
        const unit_param *before = flat_param(u, row, k - 1);
        to->padding_before = p->offset - before->offset - before->nelems;
    }
    to->permuted = p->permuted;
}

static void fill_group_param(const fsdpck_units *u, const units_row *row, uint32_t k,
                             fsdpck_unit_param *to)
{
    const uint32_t param = units_group_param(u, row, k);
    const fsdp2_spec s = units_spec(u, row, param);
    to->fqn = model_name(&u->of->m, model_param_at(&u->of->m, param)->name, &to->fqn_nbytes);
    to->name = param;
    to->dtype = info_of(s.orig_dtype)->name;
    to->itemsize_nbytes = info_of(s.orig_dtype)->itemsize_bytes;
    to->ndim = s.ndim;
    to->shape = s.shape;
    to->nelems = box_nelems(s.shape, s.ndim);
    to->padded_nelems = fsdp2_padded_nelems(&s);
    to->shard_dim = s.shard_dim;
}

void fsdpck_units_get_param(const fsdpck_units *u, uint64_t index, uint64_t k,
                            fsdpck_unit_param *to)
{
    fsdpck_unit_param of = {.fqn = "", .name = FSDPCK_NONE, .dtype = ""};
    const units_row *row = find_param_row(u, index, k);
    if (row != NULL && row->fully_shard)
        fill_group_param(u, row, (uint32_t)k, &of);
    else if (row != NULL)
        fill_flat_param(u, row, (uint32_t)k, &of);
    struct_copy_out(to, &of, sizeof of);
}

void fsdpck_units_get_strides(const fsdpck_units *u, uint64_t index, uint64_t k, uint64_t *strides)
{
    const units_row *row = find_param_row(u, index, k);
    fsdpck_unit_param p = {.struct_nbytes = sizeof p};
    fsdpck_units_get_param(u, index, k, &p);
    if (row != NULL && !row->fully_shard && p.permuted)
        unit_param_strides(&u->flat, flat_param(u, row, k), strides);
    else if (row != NULL)
        box_row_major_strides(p.shape, p.ndim, strides);
}

void fsdpck_units_get_shared(const fsdpck_units *u, uint64_t index, uint64_t k,
                             fsdpck_unit_shared *to)
{
    const model *m = &u->of->m;
    const units_row *row = find_row(u, index);
    fsdpck_unit_shared of = {.fqn = "", .same_as = ""};
    if (row != NULL && row->fully_shard && k < row->nshared) {
        const units_shared *s = VEC_AT(&u->shared, const units_shared, row->first_shared + k);
        of.fqn = model_name(m, model_param_at(m, s->name)->name, &of.fqn_nbytes);
        of.same_as = model_name(m, model_param_at(m, s->same_as)->name, &of.same_as_nbytes);
    } else if (row != NULL && !row->fully_shard && k < units_flat_of(u, row)->nshared) {
        const unit_shared *s = unit_shared_at(&u->flat, units_flat_of(u, row), (uint32_t)k);
        of.fqn = unit_name(&u->flat, s->fqn, &of.fqn_nbytes);
        of.same_as = unit_name(&u->flat, s->same_as, &of.same_as_nbytes);
    }
    struct_copy_out(to, &of, sizeof of);
}

/* ---- finding ---- */

/* The row of a unit: rows are in the order of both lists. */
static uint64_t row_of(const fsdpck_units *u, bool fully_shard, uint32_t index, uint32_t module)
{
    uint64_t low = 0;
    uint64_t high = u->rows.count;
    if (module == MODEL_NONE)
        return index; /* one list alone */
    while (high - low > 1) {
        const uint64_t mid = low + (high - low) / 2;
        if (units_row_at(u, mid)->module <= module)
            low = mid;
        else
            high = mid;
    }
    while (low > 0 && units_row_at(u, low)->fully_shard != fully_shard)
        low--; /* a module with both */
    return low;
}

static bool find_flat(const fsdpck_units *u, const char *fqn, size_t nbytes, uint64_t *at,
                      uint64_t *k)
{
    const unit *f = NULL;
    const unit_param *p = unit_list_find_param(&u->flat, fqn, nbytes, &f);
    if (p == NULL)
        return false;
    const char *prefix = unit_name(&u->flat, f->prefix, &nbytes);
    const uint32_t module = model_find_module(&u->of->m, prefix, nbytes);
    *at = row_of(u, false, (uint32_t)(f - unit_at(&u->flat, 0)), module);
    *k = (uint64_t)(p - unit_param_at(&u->flat, f, 0));
    return true;
}

/* The last group that begins at or before a place: empty ones are not listed. */
static bool find_group(const fsdpck_units *u, const char *fqn, size_t nbytes, uint64_t *at,
                       uint64_t *k)
{
    const model *m = &u->of->m;
    uint32_t place = MODEL_NONE;
    uint32_t name = model_find_param(m, fqn, nbytes);
    if (name != MODEL_NONE)
        place = *VEC_AT(&u->places, const uint32_t, name);
    /* By a different name of the same parameter; one of them is the unit's. */
    name = name == MODEL_NONE ? name : model_param_first(m, name);
    for (; place == MODEL_NONE && name != MODEL_NONE; name = model_param_at(m, name)->next_name)
        place = *VEC_AT(&u->places, const uint32_t, name);
    if (place == MODEL_NONE)
        return false;
    size_t low = 0;
    size_t high = u->groups.units.count;
    while (high - low > 1) {
        const size_t mid = low + (high - low) / 2;
        if (VEC_AT(&u->groups.units, const sharded_unit, mid)->first_param <= place)
            low = mid;
        else
            high = mid;
    }
    const sharded_unit *g = VEC_AT(&u->groups.units, const sharded_unit, low);
    *at = row_of(u, true, (uint32_t)low, g->module);
    *k = place - g->first_param;
    return true;
}

int fsdpck_units_find(const fsdpck_units *u, const char *fqn, size_t nbytes, uint64_t *at,
                      uint64_t *k)
{
    uint64_t unit_found = 0;
    uint64_t k_found = 0;
    bool found = find_flat(u, fqn, nbytes, &unit_found, &k_found) ||
                 find_group(u, fqn, nbytes, &unit_found, &k_found);
    if (!found) {
        text_buf clean = {0};
        if (model_clean_name(u->of, fqn, nbytes, &clean) == FSDPCK_OK && clean.nbytes > 0)
            found = find_flat(u, clean.text, clean.nbytes, &unit_found, &k_found) ||
                    find_group(u, clean.text, clean.nbytes, &unit_found, &k_found);
        text_release(&clean);
    }
    if (found && at != NULL)
        *at = unit_found;
    if (found && k != NULL)
        *k = k_found;
    return found;
}

int fsdpck_units_has(const fsdpck_units *u, uint64_t name)
{
    return name < u->in_unit.count && *VEC_AT(&u->in_unit, const uint8_t, name) != 0;
}
