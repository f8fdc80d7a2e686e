#include "model/unit.h"

#include <inttypes.h>
#include <string.h>

#include "base/checked.h"

/* Of unit_use.fqn: an index in `shared`, not in `params`. */
#define USE_SHARED UINT32_C(0x80000000)
#define COUNT_MAX  (USE_SHARED - 1)

/* Item that has a name: index + 1, or 0. */
typedef struct unit_use {
    uint32_t unit; /* as a prefix */
    uint32_t fqn;
} unit_use;

void unit_list_init(unit_list *l, budget *owner)
{
    *l = (unit_list){
        .owner = owner,
        .units = VEC_OF(unit, owner),
        .params = VEC_OF(unit_param, owner),
        .shared = VEC_OF(unit_shared, owner),
        .dims = VEC_OF(uint64_t, owner),
        .uses = VEC_OF(unit_use, owner),
    };
    strtab_init(&l->names, owner);
}

void unit_list_release(unit_list *l)
{
    strtab_release(&l->names);
    VEC_RELEASE_ALL(&l->units, &l->params, &l->shared, &l->dims, &l->uses);
    l->open = false;
}

static fsdpck_status fail(fsdpck_error *err, fsdpck_finding_id finding, const char *message,
                          const char *name)
{
    return FAIL_AS(err, FSDPCK_BADINPUT, finding, ("%s", message), (tensor, name));
}

static fsdpck_status misused(const unit_list *l, bool open, fsdpck_error *err)
{
    if (l->open == open)
        return FSDPCK_OK;
    return FAIL(err, INTERNAL, NONE, open ? "no unit is open" : "the previous unit is not closed");
}

static fsdpck_status name_intern(unit_list *l, const char *text, size_t nbytes, uint32_t *id,
                                 fsdpck_error *err)
{
    RETURN_IF(strtab_intern(&l->names, text, nbytes, id, err));
    if (*id >= l->uses.count && vec_push_n(&l->uses, *id + 1 - l->uses.count, err) == NULL)
        return FSDPCK_LIMIT;
    return FSDPCK_OK;
}

static unit_use *use_of(const unit_list *l, uint32_t name_id)
{
    return VEC_AT(&l->uses, unit_use, name_id);
}

static unit *last_unit(const unit_list *l)
{
    return VEC_AT(&l->units, unit, l->units.count - 1);
}

static unit_param *param_at(const unit_list *l, size_t index)
{
    return VEC_AT(&l->params, unit_param, index);
}

fsdpck_status unit_list_add(unit_list *l, const unit *proto, const char *prefix,
                            size_t prefix_nbytes, const char *flat_name, size_t flat_name_nbytes,
                            fsdpck_error *err)
{
    uint32_t prefix_id, flat_id;
    RETURN_IF(misused(l, false, err));
    if (proto->world_size == 0)
        return FAIL(err, INTERNAL, NONE, "unit without ranks");
    if (l->units.count >= COUNT_MAX)
        return FAIL(err, LIMIT, LIMIT_COUNT, "too many units");
    RETURN_IF(name_intern(l, prefix, prefix_nbytes, &prefix_id, err));
    RETURN_IF(name_intern(l, flat_name, flat_name_nbytes, &flat_id, err));
    if (use_of(l, prefix_id)->unit != 0)
        return FAIL_WITH(err, BADINPUT, MODEL_NAME_DUP,
                         ("two units have the prefix '%s'", strtab_text(&l->names, prefix_id)),
                         (next, "give each unit the path of its module as \"prefix\""));
    const unit u = {
        .prefix = prefix_id,
        .flat_name = flat_id,
        .dtype = proto->dtype,
        .compute = proto->compute,
        .strategy = proto->strategy,
        .use_orig_params = proto->use_orig_params,
        .unsharded = proto->unsharded,
        .keyed = proto->keyed,
        .row_major = proto->row_major,
        .alignment = proto->alignment,
        .world_size = proto->world_size,
        .first_param = (uint32_t)l->params.count,
        .first_shared = (uint32_t)l->shared.count,
    };
    RETURN_IF(vec_add(&l->units, &u, err));
    use_of(l, prefix_id)->unit = (uint32_t)l->units.count;
    l->open = true;
    return FSDPCK_OK;
}

/* Interns the FQN, which must be unused. */
static fsdpck_status fqn_intern(unit_list *l, const char *fqn, size_t nbytes, uint32_t *id,
                                fsdpck_error *err)
{
    RETURN_IF(misused(l, true, err));
    RETURN_IF(name_intern(l, fqn, nbytes, id, err));
    if (use_of(l, *id)->fqn != 0)
        return fail(err, FSDPCK_FINDING_MODEL_NAME_DUP, "name is in the units twice",
                    strtab_text(&l->names, *id));
    if (l->params.count >= COUNT_MAX || l->shared.count >= COUNT_MAX)
        return FAIL(err, LIMIT, LIMIT_COUNT, "too many parameters");
    return FSDPCK_OK;
}

/* Finds the order of dims in memory, outermost first; false if elements would overlap or have gaps.
 * The strides of dims of size 1 are ignored, so these dims keep their position. */
static bool order_dims(unsigned ndim, const uint64_t *shape, const uint64_t *strides,
                       uint64_t *order)
{
    unsigned places[NDIM_MAX];
    unsigned n = 0;
    for (unsigned d = 0; d < ndim; d++) {
        order[d] = d;
        if (shape[d] == 1)
            continue;
        unsigned at = n;
        places[n++] = d;
        for (; at > 0 && strides[order[places[at - 1]]] < strides[d]; at--)
            order[places[at]] = order[places[at - 1]];
        order[places[at]] = d;
    }
    uint64_t stride = 1; /* does not overflow: at most the number of elements */
    for (unsigned i = n; i-- > 0;) {
        const uint64_t d = order[places[i]];
        if (strides[d] != stride)
            return false;
        stride *= shape[d];
    }
    return true;
}

/* Stores the order of dims after the shape if it is not row-major. */
static fsdpck_status keep_order(unit_list *l, unit_param *p, unsigned ndim, const uint64_t *shape,
                                const uint64_t *strides, fsdpck_error *err)
{
    uint64_t order[NDIM_MAX];
    if (strides == NULL || p->nelems == 0 || last_unit(l)->row_major)
        return FSDPCK_OK;
    if (!order_dims(ndim, shape, strides, order))
        return FAIL_WITH(err, UNSUPPORTED, NONE, ("strides leave gaps or overlap"),
                         (next, "make the parameter contiguous before it is wrapped"));
    for (unsigned d = 0; d < ndim && !p->permuted; d++)
        p->permuted = order[d] != d;
    if (!p->permuted)
        return FSDPCK_OK;
    p->order_at = l->dims.count;
    return vec_add_n(&l->dims, order, ndim, err);
}

fsdpck_status unit_list_add_param(unit_list *l, const char *fqn, size_t nbytes, unsigned ndim,
                                  const uint64_t *shape, const uint64_t *strides, fsdpck_error *err)
{
    unit_param p = {.ndim = (uint8_t)ndim, .shape_at = l->dims.count};
    RETURN_IF(fqn_intern(l, fqn, nbytes, &p.fqn, err));
    const char *name = strtab_text(&l->names, p.fqn);
    if (ndim > NDIM_MAX)
        return fail(err, FSDPCK_FINDING_MODEL_SHAPE, "the parameter has too many dims", name);
    if (!checked_product(shape, ndim, &p.nelems) || p.nelems > INT64_MAX)
        return fail(err, FSDPCK_FINDING_MODEL_SHAPE,
                    "the shape has more elements than 63 bits can count", name);
    RETURN_IF(vec_add_n(&l->dims, shape, ndim, err));
    const fsdpck_status st = keep_order(l, &p, ndim, shape, strides, err);
    if (st != FSDPCK_OK) {
        error_tensor(err, name);
        return st;
    }
    RETURN_IF(vec_add(&l->params, &p, err));
    use_of(l, p.fqn)->fqn = (uint32_t)l->params.count;
    last_unit(l)->nparams++;
    return FSDPCK_OK;
}

fsdpck_status unit_list_add_shared(unit_list *l, const char *fqn, size_t nbytes,
                                   const char *same_as, size_t same_as_nbytes, fsdpck_error *err)
{
    unit_shared s = {0};
    RETURN_IF(fqn_intern(l, fqn, nbytes, &s.fqn, err));
    RETURN_IF(name_intern(l, same_as, same_as_nbytes, &s.same_as, err));
    RETURN_IF(vec_add(&l->shared, &s, err));
    use_of(l, s.fqn)->fqn = (uint32_t)l->shared.count | USE_SHARED;
    last_unit(l)->nshared++;
    return FSDPCK_OK;
}

/* Rounds up to a multiple of any alignment. */
static bool round_up(uint64_t n, uint64_t alignment, uint64_t *rounded)
{
    const uint64_t over = n % alignment;
    return checked_add(n, over == 0 ? 0 : alignment - over, rounded) && *rounded <= INT64_MAX;
}

fsdpck_status unit_list_close(unit_list *l, fsdpck_error *err)
{
    RETURN_IF(misused(l, true, err));
    unit *u = last_unit(l);
    const bool aligned = u->use_orig_params && u->alignment > 0;
    uint64_t total = 0;
    for (uint32_t k = 0; k < u->nparams; k++) {
        unit_param *p = param_at(l, u->first_param + k);
        if ((aligned && !round_up(total, u->alignment, &total)) ||
            !checked_add(total, p->nelems, &p->offset) || p->offset > INT64_MAX)
            return fail(err, FSDPCK_FINDING_MODEL_SHAPE,
                        "the unit has more elements than 63 bits can count",
                        strtab_text(&l->names, p->fqn));
        p->offset = total;
        total += p->nelems;
    }
    if (aligned && !round_up(total, u->world_size, &total))
        return FAIL(err, BADINPUT, MODEL_SHAPE,
                    "the unit '%s' has more elements than 63 bits can count",
                    strtab_text(&l->names, u->prefix));
    u->total = total;
    u->shard_size = u->unsharded ? total : total / u->world_size + (total % u->world_size != 0);
    l->open = false;
    return FSDPCK_OK;
}

fsdpck_status unit_list_seal(unit_list *l, fsdpck_error *err)
{
    RETURN_IF(misused(l, false, err));
    for (size_t i = 0; i < l->shared.count; i++) {
        const unit_shared *s = VEC_AT(&l->shared, const unit_shared, i);
        const uint32_t use = use_of(l, s->same_as)->fqn;
        if (use != 0 && (use & USE_SHARED) == 0)
            continue;
        FAIL_WITH(err, BADINPUT, MODEL_TIE,
                  ("no unit flattens '%s', the target of a shared name",
                   strtab_text(&l->names, s->same_as)),
                  (tensor, strtab_text(&l->names, s->fqn)),
                  (expected, "the name of a parameter of the list"));
        if (use != 0)
            error_found(err, "another shared name");
        return FSDPCK_BADINPUT;
    }
    return FSDPCK_OK;
}

uint32_t unit_count(const unit_list *l)
{
    return (uint32_t)l->units.count;
}

uint32_t unit_list_largest_group(const unit_list *l)
{
    uint32_t most = 1;
    for (uint32_t i = 0; i < unit_count(l); i++)
        if (unit_at(l, i)->world_size > most)
            most = unit_at(l, i)->world_size;
    return most;
}

const unit *unit_at(const unit_list *l, uint32_t i)
{
    return VEC_AT(&l->units, const unit, i);
}

const unit_param *unit_param_at(const unit_list *l, const unit *u, uint32_t k)
{
    return param_at(l, (size_t)u->first_param + k);
}

const unit_shared *unit_shared_at(const unit_list *l, const unit *u, uint32_t k)
{
    return VEC_AT(&l->shared, const unit_shared, (size_t)u->first_shared + k);
}

const uint64_t *unit_param_shape(const unit_list *l, const unit_param *p)
{
    return p->ndim == 0 ? NULL : VEC_AT(&l->dims, const uint64_t, p->shape_at);
}

const char *unit_name(const unit_list *l, uint32_t name_id, size_t *nbytes)
{
    if (nbytes != NULL)
        *nbytes = strtab_nbytes(&l->names, name_id);
    return strtab_text(&l->names, name_id);
}

const unit *unit_list_find(const unit_list *l, const char *prefix, size_t nbytes)
{
    const uint32_t id = strtab_find(&l->names, prefix, nbytes);
    if (id == STRTAB_NONE || use_of(l, id)->unit == 0)
        return NULL;
    return unit_at(l, use_of(l, id)->unit - 1);
}

/* The last unit that does not begin after the parameter; empty units begin together with the next.
 */
const unit *unit_of_param(const unit_list *l, uint32_t param)
{
    uint32_t low = 0;
    uint32_t high = unit_count(l);
    while (high - low > 1) {
        const uint32_t mid = low + (high - low) / 2;
        if (unit_at(l, mid)->first_param <= param)
            low = mid;
        else
            high = mid;
    }
    return unit_at(l, low);
}

const unit_param *unit_list_find_param(const unit_list *l, const char *fqn, size_t nbytes,
                                       const unit **of)
{
    const uint32_t id = strtab_find(&l->names, fqn, nbytes);
    uint32_t use = id == STRTAB_NONE ? 0 : use_of(l, id)->fqn;
    if ((use & USE_SHARED) != 0) {
        const unit_shared *s = VEC_AT(&l->shared, const unit_shared, (use & ~USE_SHARED) - 1);
        use = use_of(l, s->same_as)->fqn;
    }
    if (use == 0 || (use & USE_SHARED) != 0)
        return NULL;
    if (of != NULL)
        *of = unit_of_param(l, use - 1);
    return param_at(l, use - 1);
}

bool unit_is_sharded(const unit *u)
{
    return !u->unsharded && u->world_size > 1;
}

const char *sharding_strategy_name(unsigned strategy)
{
    static const char *const names[] = {"FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD", "HYBRID_SHARD",
                                        "_HYBRID_SHARD_ZERO2"};
    return strategy < sizeof names / sizeof names[0] ? names[strategy] : "";
}

uint32_t unit_alignment(dtype compute)
{
    const uint32_t itemsize = dtype_get(compute)->itemsize_bytes;
    return itemsize == 0 ? 0 : 16 / itemsize;
}

unit_shard unit_shard_of(const unit *u, uint32_t rank)
{
    if (u->unsharded)
        return (unit_shard){0, u->total, 0};
    unit_shard s = {u->total, u->total, u->shard_size};
    if (rank >= u->world_size)
        return s;
    /* rank * shard_size < total + world_size: does not overflow */
    const uint64_t begin = rank * u->shard_size;
    if (begin >= u->total)
        return s;
    s.begin = begin;
    s.end = u->total - begin < u->shard_size ? u->total : begin + u->shard_size;
    s.padding = u->shard_size - (s.end - s.begin);
    return s;
}

unit_param_range unit_param_range_of(const unit_list *l, const unit *u, uint32_t k, uint32_t rank)
{
    const unit_param *p = unit_param_at(l, u, k);
    const unit_shard s = unit_shard_of(u, rank);
    const uint64_t end = p->offset + p->nelems;
    /* As in torch: the shard includes its padding, and a parameter without elements is in the shard
     * with an element before it. */
    if (s.begin >= end || s.end + s.padding <= p->offset)
        return (unit_param_range){0};
    const uint64_t first = s.begin > p->offset ? s.begin : p->offset;
    const uint64_t last = s.end < end ? s.end : end;
    return (unit_param_range){
        .in_shard = true,
        .shard_offset = first - s.begin,
        .begin = first - p->offset,
        .end = last - p->offset,
    };
}

void unit_params_of_rank(const unit_list *l, const unit *u, uint32_t rank, uint32_t *first,
                         uint32_t *end)
{
    const unit_shard s = unit_shard_of(u, rank);
    uint32_t low = 0;
    uint32_t high = u->nparams;
    while (low < high) { /* the first that ends after s.begin */
        const uint32_t mid = low + (high - low) / 2;
        const unit_param *p = unit_param_at(l, u, mid);
        if (p->offset + p->nelems > s.begin)
            high = mid;
        else
            low = mid + 1;
    }
    *first = low;
    high = u->nparams;
    while (low < high) { /* the first that begins at s.end or after */
        const uint32_t mid = low + (high - low) / 2;
        if (unit_param_at(l, u, mid)->offset >= s.end)
            high = mid;
        else
            low = mid + 1;
    }
    *end = low;
}

void unit_boxes_init(unit_boxes *b, const unit_list *l, const unit_param *p, uint64_t begin,
                     uint64_t end)
{
    const uint64_t *shape = unit_param_shape(l, p);
    memset(b, 0, sizeof *b);
    b->cut = (box_cut){.sizes = shape, .ndim = p->ndim, .begin = begin, .end = end};
    if (!p->permuted)
        return;
    b->order = VEC_AT(&l->dims, const uint64_t, p->order_at);
    for (unsigned i = 0; i < p->ndim; i++)
        b->stored[i] = shape[b->order[i]];
    b->cut.sizes = b->stored;
}

bool unit_boxes_next(unit_boxes *b)
{
    if (!box_cut_next(&b->cut))
        return false;
    b->flat = b->cut.flat_out;
    for (unsigned i = 0; i < b->cut.ndim; i++) {
        const uint64_t d = b->order == NULL ? i : b->order[i];
        b->offsets[d] = b->cut.offsets_out[i];
        b->sizes[d] = b->cut.sizes_out[i];
    }
    return true;
}
