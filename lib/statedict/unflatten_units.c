/* Flat parameters: finds the units, and converts their parameters to tensors. */
#include <inttypes.h>

#include "base/text.h"
#include "statedict/unflatten_internal.h"

/* A parameter without elements has no interval, but still needs an empty chunk. */
static fsdpck_status add_nothing(flat_adapter *v, uint32_t tensor, uint32_t param, uint64_t chunk,
                                 fsdpck_error *err)
{
    static const uint64_t zeros[NDIM_MAX];
    cat_chunk k;
    if (flat_param(v, param)->nelems > 0)
        return FSDPCK_OK;
    RETURN_IF(flat_add_chunk(v, chunk, 0, FLAT_CHUNK_AS_IS, &k, err));
    return catalogue_add_chunk(v->out, tensor, zeros, catalogue_shape(v->out, tensor), &k, err);
}

static fsdpck_status wrong_length(const flat_adapter *v, const unit *u, uint32_t base_tensor,
                                  fsdpck_error *err)
{
    const catalogue *c = v->base;
    return FAIL_WITH(
        err, BADINPUT, MODEL_MISMATCH, ("flat parameter and its unit differ in length"),
        (tensor, catalogue_name(c, catalogue_tensor(c, base_tensor)->name)),
        (expected, "%" PRIu64 " element%s, or %" PRIu64 " on each of %" PRIu32 " rank%s", u->total,
         text_plural(u->total), u->shard_size, u->world_size, text_plural(u->world_size)),
        (found, "%" PRIu64, catalogue_tensor_nelems(c, base_tensor)),
        (next, "compare the unit's parameters, world_size and alignment with the "
               "training code's: fsdpck-model(5)"));
}

fsdpck_status flat_rank_interval(const flat_adapter *v, const unit *u, uint32_t base_tensor,
                                 uint64_t chunk, uint64_t *begin, uint64_t *end, fsdpck_error *err)
{
    const cat_tensor *t = catalogue_tensor(v->base, base_tensor);
    const uint64_t nelems = catalogue_tensor_nelems(v->base, base_tensor);
    uint64_t offset = 0, size = 1;
    flat_name n;

    if (t->ndim != 1)
        return wrong_length(v, u, base_tensor, err);
    catalogue_chunk_box(v->base, chunk, &offset, &size);
    flat_name_read(v->base, base_tensor, &n);
    /* With one element, a shard is as long as the whole. */
    if (nelems == u->total && (n.rank == CAT_NONE || nelems != u->shard_size)) {
        *begin = offset;
        *end = offset + size;
        return FSDPCK_OK;
    }
    uint32_t rank = n.rank;
    if (rank == CAT_NONE)
        rank = catalogue_chunk(v->base, chunk)->rank;
    if ((n.rank == CAT_NONE && rank == UINT16_MAX) || size != nelems)
        return wrong_length(v, u, base_tensor, err);
    /* Hybrid sharding shards over neighboring ranks. */
    const unit_shard s = unit_shard_of(u, rank % u->world_size);
    if (nelems != u->shard_size && nelems != s.end - s.begin)
        return wrong_length(v, u, base_tensor, err);
    *begin = s.begin;
    *end = s.end;
    return FSDPCK_OK;
}

/* The names of parameter `param`: its own, then its aliases. id CAT_NONE after the last. */
typedef struct name_walk {
    uint32_t next_twin;
    uint32_t id;
} name_walk;

static void names_begin(const flat_adapter *v, uint32_t param, name_walk *w)
{
    w->id = flat_param(v, param)->fqn;
    w->next_twin = *VEC_AT(&v->first_alias, const uint32_t, param);
}

static void names_next(const flat_adapter *v, name_walk *w)
{
    w->id = CAT_NONE;
    if (w->next_twin == CAT_NONE)
        return;
    const flat_alias *t = VEC_AT(&v->twins, const flat_alias, w->next_twin);
    w->id = t->fqn;
    w->next_twin = t->next;
}

typedef struct unit_tensors {
    const unit *u;
    uint32_t base_tensor;
    const text_buf *outer;
    size_t key_at; /* in the base tensor's name: path elements before it are kept */
    vec tensors;   /* uint32_t: of each parameter those of all its names */
    vec first;     /* uint64_t: where a parameter's begin */
} unit_tensors;

static fsdpck_status make_named(flat_adapter *v, unit_tensors *ut, uint32_t param, uint32_t fqn,
                                fsdpck_error *err)
{
    const cat_tensor *t = catalogue_tensor(v->base, ut->base_tensor);
    const size_t depth = value_count(&v->base->pool, t->path);
    text_buf name = {0};
    uint32_t tensor = 0;
    bool fresh = false;
    size_t nbytes;
    const char *text = unit_name(v->units, fqn, &nbytes);

    text_append(&name, ut->outer->text, ut->outer->nbytes);
    text_append(&name, text, nbytes);
    fsdpck_status st = text_check(&name, err);
    if (st == FSDPCK_OK)
        st = flat_tensor_get(v, name.text, name.nbytes, (dtype)t->dtype, param, &tensor, &fresh,
                             err);
    if (st == FSDPCK_OK && fresh) {
        const char *key = name.text + ut->key_at;
        const size_t key_nbytes = name.nbytes - ut->key_at;
        value path = VALUE_OF_NONE;
        st = flat_path(v, t->path, depth == 0 ? 0 : depth - 1, &key, &key_nbytes, 1, &path, err);
        catalogue_tensor(v->out, tensor)->path = path;
        catalogue_tensor(v->out, tensor)->flags |= t->flags & CAT_TENSOR_REQUIRES_GRAD;
        if (st == FSDPCK_OK && t->nchunks > 0)
            st = add_nothing(v, tensor, param, t->first_chunk, err);
    }
    text_release(&name);
    RETURN_IF(st);
    return vec_add(&ut->tensors, &(uint32_t){tensor}, err);
}

static fsdpck_status make_unit(flat_adapter *v, unit_tensors *ut, fsdpck_error *err)
{
    for (uint32_t k = 0; k <= ut->u->nparams; k++) {
        RETURN_IF(vec_add(&ut->first, &(uint64_t){ut->tensors.count}, err));
        if (k == ut->u->nparams)
            break;
        const uint32_t param = ut->u->first_param + k;
        name_walk w;
        for (names_begin(v, param, &w); w.id != CAT_NONE; names_next(v, &w))
            RETURN_IF(make_named(v, ut, param, w.id, err));
    }
    return FSDPCK_OK;
}

/* The first parameter of a unit that ends after `at`. */
static uint32_t param_after(const flat_adapter *v, const unit *u, uint64_t at)
{
    uint32_t low = 0, high = u->nparams;
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        const unit_param *p = unit_param_at(v->units, u, middle);
        if (p->offset + p->nelems <= at)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static fsdpck_status cut_chunk(flat_adapter *v, const unit_tensors *ut, uint64_t chunk,
                               fsdpck_error *err)
{
    const unit *u = ut->u;
    uint64_t begin, end;
    RETURN_IF(flat_rank_interval(v, u, ut->base_tensor, chunk, &begin, &end, err));
    for (uint32_t k = param_after(v, u, begin); k < u->nparams; k++) {
        const uint32_t param = u->first_param + k;
        const uint64_t offset = flat_param(v, param)->offset;
        if (offset >= end)
            break;
        const uint64_t *at = VEC_AT(&ut->first, const uint64_t, k);
        for (uint64_t i = at[0]; i < at[1]; i++)
            RETURN_IF(flat_add_interval(v, *VEC_AT(&ut->tensors, const uint32_t, i), param, offset,
                                        chunk, begin, begin, end, err));
    }
    return FSDPCK_OK;
}

fsdpck_status flat_expand(flat_adapter *v, uint32_t base_tensor, const flat_name *n, const unit *u,
                          const text_buf *outer, fsdpck_error *err)
{
    const cat_tensor *t = catalogue_tensor(v->base, base_tensor);
    unit_tensors ut = {.u = u,
                       .base_tensor = base_tensor,
                       .outer = outer,
                       .key_at = n->key_at,
                       .tensors = VEC_OF(uint32_t, v->owner),
                       .first = VEC_OF(uint64_t, v->owner)};
    fsdpck_status st = FSDPCK_OK;

    if (u->dtype != DTYPE_NONE && u->dtype != t->dtype)
        return FAIL_WITH(err, BADINPUT, MODEL_MISMATCH,
                         ("flat parameter and its unit differ in dtype"),
                         (tensor, catalogue_name(v->base, t->name)),
                         (expected, "%s", dtype_get((dtype)u->dtype)->name),
                         (found, "%s", dtype_get((dtype)t->dtype)->name));
    GOTO_IF(make_unit(v, &ut, err), out);
    for (uint64_t k = t->first_chunk; k < t->first_chunk + t->nchunks; k++)
        if (catalogue_chunk(v->base, k)->place != LOCATION_EMPTY)
            GOTO_IF(cut_chunk(v, &ut, k, err), out);
out:
    VEC_RELEASE_ALL(&ut.tensors, &ut.first);
    return st;
}

/* --- finding the units --- */

static fsdpck_status cover_unit(flat_adapter *v, const unit *u, const text_buf *outer,
                                fsdpck_error *err)
{
    text_buf name = {0};
    fsdpck_status st = FSDPCK_OK;
    for (uint32_t k = 0; st == FSDPCK_OK && k < u->nparams; k++) {
        name_walk w;
        for (names_begin(v, u->first_param + k, &w); st == FSDPCK_OK && w.id != CAT_NONE;
             names_next(v, &w)) {
            size_t nbytes;
            uint32_t id;
            const char *text = unit_name(v->units, w.id, &nbytes);
            name.nbytes = 0;
            text_append(&name, outer->text, outer->nbytes);
            text_append(&name, text, nbytes);
            st = text_check(&name, err);
            if (st == FSDPCK_OK)
                st = strtab_intern(&v->covered, name.text, name.nbytes, &id, err);
        }
    }
    text_release(&name);
    return st;
}

static fsdpck_status no_unit(const flat_adapter *v, uint32_t tensor, fsdpck_error *err)
{
    return FAIL_WITH(err, BADINPUT, MODEL_MISMATCH,
                     ("flat parameter belongs to no unit of the model"),
                     (tensor, catalogue_name(v->base, catalogue_tensor(v->base, tensor)->name)),
                     (expected, "one of %" PRIu32 " unit%s", unit_count(v->units),
                      text_plural(unit_count(v->units))));
}

static fsdpck_status unit_missing(const flat_adapter *v, const unit *u, fsdpck_error *err)
{
    size_t nbytes;
    return FAIL(err, BADINPUT, MODEL_MISMATCH, "unit '%s' has no flat parameter in the checkpoint",
                unit_name(v->units, u->prefix, &nbytes));
}

fsdpck_status flat_cover_all(flat_adapter *v, uint8_t *seen, text_buf *outer, fsdpck_error *err)
{
    uint32_t count = 0;
    uint32_t *flat_of = vec_push_n(&v->flat_of, unit_count(v->units), err);
    if (flat_of == NULL && unit_count(v->units) > 0)
        return FSDPCK_LIMIT;
    for (uint32_t i = 0; i < unit_count(v->units); i++)
        flat_of[i] = CAT_NONE;
    for (uint32_t i = 0; i < catalogue_tensor_count(v->base); i++) {
        const unit *u;
        bool is_flat;
        flat_name n;
        if (catalogue_tensor(v->base, i)->flags & (CAT_TENSOR_IN_OBJECT | CAT_TENSOR_STORAGE))
            continue;
        flat_name_read(v->base, i, &n);
        RETURN_IF(flat_name_unit(v, &n, &u, &is_flat, outer, err));
        if (!is_flat)
            continue;
        if (u == NULL)
            return no_unit(v, i, err);
        RETURN_IF(cover_unit(v, u, outer, err));
        uint8_t *mark = &seen[u - unit_at(v->units, 0)];
        count += *mark == 0;
        flat_of[u - unit_at(v->units, 0)] = n.rank == CAT_NONE ? i : CAT_NONE;
        *mark = 1;
    }
    for (uint32_t i = 0; count > 0 && i < unit_count(v->units); i++)
        if (!seen[i] && unit_at(v->units, i)->nparams > 0 && unit_is_sharded(unit_at(v->units, i)))
            return unit_missing(v, unit_at(v->units, i), err);
    return FSDPCK_OK;
}
