
#include "base/checked.h"
#include "base/struct_copy.h"
#include "describe/units.h"

/* Upper bound for the bytes of one element, including those that count twice (Adam). */
#define ELEMENT_NBYTES_MAX 64u

static void free_group(const fsdpck_units *u, const units_group *g)
{
    budget_free(u->owner, g->nbytes, 2 * (g->world_size + 1) * sizeof *g->nbytes);
}

void units_totals_release(fsdpck_units *u)
{
    for (size_t i = 0; i < u->totals.count; i++)
        free_group(u, VEC_AT(&u->totals, const units_group, i));
    vec_release(&u->totals);
}

/* There are few sizes: factors of the world size that the description names. */
static units_group *group_of_size(fsdpck_units *u, uint64_t world_size, fsdpck_error *err)
{
    for (size_t i = u->totals.count; i-- > 0;) {
        units_group *g = VEC_AT(&u->totals, units_group, i);
        if (g->world_size == world_size)
            return g;
    }
    units_group *g = vec_push(&u->totals, err);
    if (g == NULL)
        return NULL;
    *g = (units_group){.world_size = world_size};
    g->nbytes = budget_alloc(u->owner, 2 * (world_size + 1) * sizeof *g->nbytes, err);
    if (g->nbytes == NULL) {
        u->totals.count--;
        return NULL;
    }
    g->adam = g->nbytes + world_size + 1;
    return g;
}

/* Adds n to each of ranks [begin, end), as differences, at constant cost. */
static void add_difference(uint64_t *differences, uint64_t begin, uint64_t end, uint64_t n)
{
    differences[begin] += n;
    differences[end] -= n;
}

/* Adds elements [begin, end) of a flat parameter to the ranks whose shards contain them. */
static void add_interval(uint64_t *differences, uint64_t shard_size, uint64_t begin, uint64_t end,
                         uint64_t item)
{
    if (begin == end)
        return;
    const uint64_t first = begin / shard_size;
    const uint64_t last = (end - 1) / shard_size;
    if (first == last) {
        add_difference(differences, first, first + 1, (end - begin) * item);
        return;
    }
    add_difference(differences, first, first + 1, ((first + 1) * shard_size - begin) * item);
    add_difference(differences, first + 1, last, shard_size * item);
    add_difference(differences, last, last + 1, (end - last * shard_size) * item);
}

static bool is_trained(const fsdpck_units *u, uint32_t name)
{
    const model *m = &u->of->m;
    return name == MODEL_NONE || model_param_at(m, model_param_first(m, name))->requires_grad;
}

static void sum_flat(fsdpck_units *u, const units_row *row, units_group *g)
{
    const unit *f = units_flat_of(u, row);
    const uint64_t item = dtype_get((dtype)f->dtype)->itemsize_bytes;
    bool any = false;
    for (uint32_t k = 0; k < f->nparams; k++) {
        const unit_param *p = unit_param_at(&u->flat, f, k);
        const bool one = is_trained(u, *VEC_AT(&u->flat_names, const uint32_t, f->first_param + k));
        const uint64_t adam = one && f->use_orig_params ? 2 * item : 0;
        any = any || one;
        if (f->unsharded) {
            add_difference(g->nbytes, 0, g->world_size, p->nelems * item);
            add_difference(g->adam, 0, g->world_size, p->nelems * adam);
        } else {
            add_interval(g->nbytes, f->shard_size, p->offset, p->offset + p->nelems, item);
            add_interval(g->adam, f->shard_size, p->offset, p->offset + p->nelems, adam);
        }
    }
    if (!any)
        return;
    if (!f->use_orig_params)
        add_difference(g->adam, 0, g->world_size, f->shard_size * 2 * item);
    u->info.grad_nbytes += f->shard_size * item;
}

static void sum_group(fsdpck_units *u, const units_row *row, units_group *g)
{
    for (uint32_t k = 0; k < units_row_nparams(u, row); k++) {
        const uint32_t param = units_group_param(u, row, k);
        const fsdp2_spec s = units_spec(u, row, param);
        const uint64_t item = dtype_get((dtype)s.orig_dtype)->itemsize_bytes;
        const uint64_t nelems = box_nelems(s.shape, s.ndim);
        const uint64_t padded = fsdp2_padded_nelems(&s);
        const bool one = is_trained(u, param);
        if (one)
            u->info.grad_nbytes += padded * item;
        if (nelems == 0)
            continue;
        /* Chunks of a dim are intervals of `padded` elements each, the last one shorter. */
        add_interval(g->nbytes, padded, 0, nelems, item);
        add_interval(g->adam, padded, 0, nelems, one ? 2 * item : 0);
    }
}

/* Whether all bytes of a unit over all ranks can be counted. */
static bool fits(const fsdpck_units *u, const fsdpck_unit *of, uint64_t *total)
{
    uint64_t nelems, nbytes;
    return checked_mul(of->shard_nelems, u->info.world_size, &nelems) &&
           checked_add(nelems, of->gather_nbytes, &nelems) &&
           checked_mul(nelems, ELEMENT_NBYTES_MAX, &nbytes) && checked_add(*total, nbytes, total) &&
           *total <= INT64_MAX;
}

static fsdpck_status too_large(fsdpck_error *err)
{
    return FAIL(err, LIMIT, LIMIT_COUNT, "size of the model on all ranks does not fit in 63 bits");
}

static fsdpck_status sum_unit(fsdpck_units *u, uint64_t index, uint64_t *total, fsdpck_error *err)
{
    const units_row *row = units_row_at(u, index);
    fsdpck_unit of;
    units_fill(u, row, &of);
    if (!row->fully_shard && units_flat_of(u, row)->dtype == DTYPE_NONE)
        return FAIL_WITH(err, BADINPUT, MODEL_DTYPE, ("list of units has no dtype"),
                         (tensor, of.path), (expected, "'dtype' of the flat parameter"),
                         (found, "no such key"),
                         (next, "add 'dtype' to each unit: no checkpoint provides it here"));
    if (!fits(u, &of, total))
        return too_large(err);
    units_group *g = group_of_size(u, of.world_size, err);
    if (g == NULL)
        return FSDPCK_LIMIT;
    if (row->fully_shard)
        sum_group(u, row, g);
    else
        sum_flat(u, row, g);
    u->info.params += of.params;
    if (u->of->info.lists_units) {
        u->info.nelems += of.nelems;
        u->info.nbytes +=
            of.nelems * dtype_get((dtype)units_flat_of(u, row)->dtype)->itemsize_bytes;
    }
    u->info.rank_nbytes += of.shard_nbytes;
    u->info.cpu_nbytes += of.cpu_offload ? of.shard_nbytes : 0;
    if (of.gather_nbytes > u->info.gather_nbytes_max) {
        u->info.gather_nbytes_max = of.gather_nbytes;
        u->info.gather_unit = index;
    }
    return FSDPCK_OK;
}

static fsdpck_status sum_unwrapped(fsdpck_units *u, uint64_t *total, fsdpck_error *err)
{
    const model *m = &u->of->m;
    fsdpck_units_info *info = &u->info;
    for (uint32_t i = 0; i < model_param_count(m); i++) {
        const model_param *p = model_param_at(m, i);
        if (p->same_as != MODEL_NONE || *VEC_AT(&u->in_unit, const uint8_t, i))
            continue;
        const uint64_t nelems = box_nelems(model_shape(m, p->shape_at), p->ndim);
        const uint64_t nbytes = nelems * dtype_get((dtype)p->dtype)->itemsize_bytes;
        const fsdpck_unit of = {.shard_nelems = nelems};
        if (!fits(u, &of, total))
            return too_large(err);
        info->whole_params++;
        info->ignored_params += u->of->ignored[i];
        info->whole_nbytes += nbytes;
        if (p->requires_grad && dtype_get((dtype)p->dtype)->kind == DTYPE_IS_FLOAT) {
            u->whole_grad_nbytes += nbytes;
            u->whole_adam_nbytes += 2 * nbytes;
        }
    }
    for (uint32_t i = 0; i < model_buffer_count(m); i++) {
        const model_buffer *b = model_buffer_at(m, i);
        if (b->same_as == MODEL_NONE)
            info->buffers++;
        const uint64_t nelems = box_nelems(model_shape(m, b->shape_at), b->ndim);
        const fsdpck_unit of = {.shard_nelems = nelems};
        if (!fits(u, &of, total))
            return too_large(err);
        if (b->same_as == MODEL_NONE)
            info->buffer_nbytes += nelems * dtype_get((dtype)b->dtype)->itemsize_bytes;
    }
    return FSDPCK_OK;
}

static void integrate(units_group *g)
{
    for (uint64_t r = 1; r <= g->world_size; r++) {
        g->nbytes[r] += g->nbytes[r - 1];
        g->adam[r] += g->adam[r - 1];
    }
}

void fsdpck_units_get_rank(const fsdpck_units *u, uint64_t rank, fsdpck_units_rank *totals)
{
    fsdpck_units_rank to = {0};
    if (rank < u->info.world_size) {
        to.nbytes = u->info.whole_nbytes;
        to.adam_nbytes = u->whole_adam_nbytes;
        for (size_t i = 0; i < u->totals.count; i++) {
            const units_group *g = VEC_AT(&u->totals, const units_group, i);
            to.nbytes += g->nbytes[rank % g->world_size];
            to.adam_nbytes += g->adam[rank % g->world_size];
        }
        to.padding_nbytes = u->info.rank_nbytes - to.nbytes;
        to.grad_nbytes = u->info.grad_nbytes;
    }
    struct_copy_out(totals, &to, sizeof to);
}

/* Totals repeat after the largest group: each group size divides the number of ranks, but not each
 * other. */
static void find_extremes(fsdpck_units *u)
{
    fsdpck_units_info *info = &u->info;
    info->rank_nbytes_min = UINT64_MAX;
    for (uint64_t r = 0; r < info->world_size; r++) {
        fsdpck_units_rank totals = {.struct_nbytes = sizeof totals};
        fsdpck_units_get_rank(u, r, &totals);
        if (totals.nbytes < info->rank_nbytes_min) {
            info->rank_nbytes_min = totals.nbytes;
            info->rank_min = r;
        }
        if (r == 0 || totals.nbytes > info->rank_nbytes_max) {
            info->rank_nbytes_max = totals.nbytes;
            info->rank_max = r;
        }
        if (totals.adam_nbytes > info->adam_nbytes)
            info->adam_nbytes = totals.adam_nbytes;
        info->rank_nbytes_total += totals.nbytes;
        info->padding_nbytes += totals.padding_nbytes;
    }
}

fsdpck_status units_compute_totals(fsdpck_units *u, fsdpck_error *err)
{
    fsdpck_units_info *info = &u->info;
    uint64_t total = 0;
    info->units = u->rows.count;
    for (uint64_t i = 0; i < info->units; i++) {
        const unsigned kind =
            units_row_at(u, i)->fully_shard ? FSDPCK_SHARDING_FULLY_SHARD : FSDPCK_SHARDING_FLAT;
        info->sharding = (fsdpck_sharding)((unsigned)info->sharding | kind);
        RETURN_IF(sum_unit(u, i, &total, err));
    }
    RETURN_IF(sum_unwrapped(u, &total, err));
    for (size_t i = 0; i < u->totals.count; i++)
        integrate(VEC_AT(&u->totals, units_group, i));
    info->rank_nbytes += info->whole_nbytes;
    info->grad_nbytes += u->whole_grad_nbytes;
    info->nelems += u->of->info.nelems;
    info->nbytes += u->of->info.nbytes;
    find_extremes(u);
    return FSDPCK_OK;
}
