/* Optimizer state by number, as tensors and objects named after the parameters. */
#include <string.h>

#include "statedict/unflatten_internal.h"

/* Meaning of a number: parameters [from, to), or one that is not flattened. */
typedef struct meaning {
    uint32_t from, to;
    const flat_order *other;
} meaning;

/* False if unknown. */
static bool meaning_of(const flat_adapter *v, const flat_optimizer *o, uint32_t number, meaning *m)
{
    const uint32_t target = o->failed || number >= o->count
                                ? CAT_NONE
                                : *VEC_AT(&v->targets, const uint32_t, o->targets_at + number);
    *m = (meaning){0};
    if (target == CAT_NONE)
        return false;
    if (target & FLAT_OTHER) {
        m->other = &v->options.order[target & ~FLAT_OTHER];
        m->to = 1;
    } else if (v->orig) {
        m->from = target;
        m->to = target + 1;
    } else {
        m->from = unit_at(v->units, target)->first_param;
        m->to = m->from + unit_at(v->units, target)->nparams;
    }
    return true;
}

static const char *name_of(const flat_adapter *v, const meaning *m, uint32_t param, size_t *nbytes)
{
    if (m->other == NULL)
        return unit_name(v->units, flat_param(v, param)->fqn, nbytes);
    *nbytes = m->other->nbytes;
    return m->other->fqn;
}

/* --- making tensors --- */

/* 'optim.state.' FQN '.exp_avg' and its path. */
static fsdpck_status state_name(flat_adapter *v, const flat_optimizer *o, const char *fqn,
                                size_t fqn_nbytes, const char *key, size_t key_nbytes, value path,
                                text_buf *name, value *made, fsdpck_error *err)
{
    const char *const more[2] = {fqn, key};
    const size_t more_nbytes[2] = {fqn_nbytes, key_nbytes};
    name->nbytes = 0;
    text_append(name, strtab_text(&v->texts, o->prefix), strtab_nbytes(&v->texts, o->prefix));
    text_puts(name, "state.");
    text_append(name, more[0], more_nbytes[0]);
    text_puts(name, ".");
    text_append(name, key, key_nbytes);
    RETURN_IF(text_check(name, err));
    return flat_path(v, path, o->depth + 1u, more, more_nbytes, 2, made, err);
}

static fsdpck_status add_piece(flat_adapter *v, uint32_t made, uint32_t param,
                               const flat_state_tensor *p, fsdpck_error *err)
{
    const unit_param *up = flat_param(v, param);
    const unit *u = flat_unit_of(v, param);
    const cat_tensor *t = catalogue_tensor(v->base, p->tensor);
    for (uint64_t k = t->first_chunk; k < t->first_chunk + t->nchunks; k++) {
        const uint32_t rank = p->rank != CAT_NONE ? p->rank : catalogue_chunk(v->base, k)->rank;
        uint64_t begin = 0, end = 0;
        if (catalogue_chunk(v->base, k)->place == LOCATION_EMPTY)
            continue;
        if (v->orig) {
            const unit_param_range q =
                unit_param_range_of(v->units, u, param - u->first_param, rank % u->world_size);
            begin = up->offset + q.begin;
            end = up->offset + q.end;
        } else {
            RETURN_IF(flat_rank_interval(v, u, p->tensor, k, &begin, &end, err));
        }
        RETURN_IF(flat_add_interval(v, made, param, up->offset, k, begin, begin, end, err));
    }
    return FSDPCK_OK;
}

/* Whether each rank has its own state, and it stays separate: an expert's, or that of a parameter
 * that is not kept equal. If it is equal on all ranks, only the description can decide. */
static bool is_own(const flat_adapter *v, const meaning *m, uint32_t param,
                   const flat_state_tensor *p, const text_buf *name)
{
    return (m->other != NULL || flat_unit_of(v, param)->world_size == 1) &&
           ((v->options.ranks == PER_RANK_KEEP && p->rank != CAT_NONE) ||
            flat_is_local(v, name->text, name->nbytes));
}

/* 'optim.state.FQN.exp_avg.rank3', with the shape of the parameter; one chunk. */
static fsdpck_status make_own(flat_adapter *v, const meaning *m, uint32_t param,
                              const flat_state_tensor *p, uint64_t chunk, fsdpck_error *err)
{
    const flat_optimizer *o = VEC_AT(&v->optimizers, const flat_optimizer, p->owner);
    const cat_tensor *t = catalogue_tensor(v->base, p->tensor);
    text_buf key = {0}, name = {0};
    const bool whole =
        m->other != NULL || t->ndim == 0 || (v->orig && flat_piece_is_whole(v, p->tensor, param));
    uint32_t made = 0;
    size_t fqn_nbytes;
    const char *fqn = name_of(v, m, param, &fqn_nbytes);
    bool fresh;
    value path;

    text_append(&key, strtab_text(&v->texts, p->key), strtab_nbytes(&v->texts, p->key));
    text_printf(&key, ".rank%u", (unsigned)catalogue_chunk(v->base, chunk)->rank);
    fsdpck_status st = text_check(&key, err);
    if (st == FSDPCK_OK)
        st = state_name(v, o, fqn, fqn_nbytes, key.text, key.nbytes, t->path, &name, &path, err);
    if (st == FSDPCK_OK && whole)
        st = flat_copy_tensor(v, p->tensor, name.text, name.nbytes, path, &made, err);
    else if (st == FSDPCK_OK)
        st = flat_tensor_get(v, name.text, name.nbytes, (dtype)t->dtype, param, &made, &fresh, err);
    if (st == FSDPCK_OK) {
        catalogue_tensor(v->out, made)->path = path;
        catalogue_tensor(v->out, made)->flags |= CAT_TENSOR_OF_RANK;
    }
    if (st == FSDPCK_OK && whole) {
        st = flat_add_same(v, made, chunk, FLAT_CHUNK_AS_IS, err);
    } else if (st == FSDPCK_OK) {
        const unit_param *up = flat_param(v, param);
        st = flat_add_interval(v, made, param, up->offset, chunk, v->orig ? up->offset : 0,
                               up->offset, up->offset + up->nelems, err);
    }
    text_release(&key);
    text_release(&name);
    return st;
}

/* One state (shards [first, end)) of one parameter. */
static fsdpck_status make_state(flat_adapter *v, const meaning *m, uint32_t param, size_t first,
                                size_t end, text_buf *name, fsdpck_error *err)
{
    const flat_state_tensor *p = VEC_AT(&v->pieces, const flat_state_tensor, first);
    const flat_optimizer *o = VEC_AT(&v->optimizers, const flat_optimizer, p->owner);
    const cat_tensor *t = catalogue_tensor(v->base, p->tensor);
    size_t fqn_nbytes;
    const char *fqn = name_of(v, m, param, &fqn_nbytes);
    value path;
    uint32_t made;
    bool fresh;

    RETURN_IF(state_name(v, o, fqn, fqn_nbytes, strtab_text(&v->texts, p->key),
                         strtab_nbytes(&v->texts, p->key), t->path, name, &path, err));
    if (is_own(v, m, param, p, name)) {
        for (size_t i = first; i < end; i++) {
            const flat_state_tensor *q = VEC_AT(&v->pieces, const flat_state_tensor, i);
            const cat_tensor *of = catalogue_tensor(v->base, q->tensor);
            for (uint64_t k = of->first_chunk; k < of->first_chunk + of->nchunks; k++)
                RETURN_IF(make_own(v, m, param, q, k, err));
        }
        return FSDPCK_OK;
    }
    if (m->other != NULL || t->ndim == 0 || (v->orig && flat_piece_is_whole(v, p->tensor, param))) {
        for (size_t i = first; i < end; i++)
            RETURN_IF(flat_join_tensor(v, VEC_AT(&v->pieces, const flat_state_tensor, i)->tensor,
                                       name->text, name->nbytes, path, err));
        return FSDPCK_OK;
    }
    RETURN_IF(
        flat_tensor_get(v, name->text, name->nbytes, (dtype)t->dtype, param, &made, &fresh, err));
    catalogue_tensor(v->out, made)->path = path;
    for (size_t i = first; i < end; i++)
        RETURN_IF(add_piece(v, made, param, VEC_AT(&v->pieces, const flat_state_tensor, i), err));
    return FSDPCK_OK;
}

static size_t run_end(const flat_adapter *v, size_t first, bool same_key)
{
    const flat_state_tensor *p = VEC_AT(&v->pieces, const flat_state_tensor, first);
    size_t end = first + 1;
    for (; end < v->pieces.count; end++) {
        const flat_state_tensor *q = VEC_AT(&v->pieces, const flat_state_tensor, end);
        if (q->owner != p->owner || q->number != p->number || (same_key && q->key != p->key))
            break;
    }
    return end;
}

/* All states of one number. */
static fsdpck_status make_number(flat_adapter *v, size_t first, size_t end, text_buf *name,
                                 fsdpck_error *err)
{
    const flat_state_tensor *p = VEC_AT(&v->pieces, const flat_state_tensor, first);
    const flat_optimizer *o = VEC_AT(&v->optimizers, const flat_optimizer, p->owner);
    meaning m;

    if (!meaning_of(v, o, p->number, &m)) {
        for (size_t i = first; i < end; i++)
            RETURN_IF(flat_keep_tensor(v, VEC_AT(&v->pieces, const flat_state_tensor, i)->tensor,
                                       o->failed ? FLAT_CHUNK_REFUSED : FLAT_CHUNK_AS_IS, err));
        return FSDPCK_OK;
    }
    for (uint32_t param = m.from; param < m.to; param++) {
        for (size_t i = first; i < end;) {
            const size_t next = run_end(v, i, true);
            RETURN_IF(make_state(v, &m, param, i, next, name, err));
            i = next;
        }
    }
    return FSDPCK_OK;
}

fsdpck_status flat_optim_make(flat_adapter *v, fsdpck_error *err)
{
    text_buf name = {0};
    fsdpck_status st = FSDPCK_OK;

    for (size_t i = 0; st == FSDPCK_OK && i < v->pieces.count;) {
        const size_t end = run_end(v, i, false);
        st = make_number(v, i, end, &name, err);
        i = end;
    }
    text_release(&name);
    return st;
}

/* --- objects --- */

static fsdpck_status append_names(flat_adapter *v, const flat_optimizer *o, uint32_t number,
                                  value list, fsdpck_error *err)
{
    value_pool *pool = &v->out->pool;
    value item;
    meaning m;

    if (!meaning_of(v, o, number, &m)) {
        RETURN_IF(value_new_int(pool, number, &item, err));
        return value_append(pool, list, item, err);
    }
    for (uint32_t param = m.from; param < m.to; param++) {
        size_t nbytes;
        const char *text = name_of(v, &m, param, &nbytes);
        RETURN_IF(value_new_str(pool, text, nbytes, &item, err));
        RETURN_IF(value_append(pool, list, item, err));
    }
    return FSDPCK_OK;
}

static fsdpck_status rename_params(flat_adapter *v, const flat_optimizer *o, uint32_t base_object,
                                   fsdpck_error *err)
{
    const cat_object *from = catalogue_object(v->base, base_object);
    uint32_t made;
    value path, list;

    RETURN_IF(value_copy(&v->base->pool, from->path, &v->out->pool, NULL, &path, err));
    RETURN_IF(flat_add_object(v, catalogue_name(v->base, from->name),
                              catalogue_name_nbytes(v->base, from->name), path, base_object, &made,
                              err));
    RETURN_IF(value_new_list(&v->out->pool, &list, err));
    for (size_t i = 0; i < value_count(&v->base->pool, from->content); i++) {
        const uint32_t number = flat_number_at(v, from->content, i);
        if (number < o->count)
            RETURN_IF(append_names(v, o, number, list, err));
    }
    catalogue_object(v->out, made)->content = list;
    return FSDPCK_OK;
}

/* Numbers of unknown parameters, which no tensor's refusal accompanies: loading them fails. */
static fsdpck_status refuse_params(flat_adapter *v, uint32_t base_object, fsdpck_error *err)
{
    const cat_object *from = catalogue_object(v->base, base_object);
    uint32_t made;
    value path;

    RETURN_IF(value_copy(&v->base->pool, from->path, &v->out->pool, NULL, &path, err));
    RETURN_IF(flat_add_object(v, catalogue_name(v->base, from->name),
                              catalogue_name_nbytes(v->base, from->name), path, base_object, &made,
                              err));
    cat_object *o = catalogue_object(v->out, made);
    o->loaded = 0;
    o->content = VALUE_OF_NONE;
    return vec_add(&v->refused, &o->number, err);
}

/* 'state.0.step' that is a Python number: one for each parameter. */
static fsdpck_status spread_object(flat_adapter *v, const flat_optimizer *o, uint32_t base_object,
                                   const meaning *m, fsdpck_error *err)
{
    const cat_object *from = catalogue_object(v->base, base_object);
    const value_pool *pool = &v->base->pool;
    text_buf name = {0};
    size_t nbytes = 0;
    const char *key =
        value_text(pool, value_item(pool, from->path, value_count(pool, from->path) - 1), &nbytes);
    fsdpck_status st = FSDPCK_OK;

    for (uint32_t param = m->from; st == FSDPCK_OK && param < m->to; param++) {
        uint32_t made;
        value path;
        size_t fqn_nbytes;
        const char *fqn = name_of(v, m, param, &fqn_nbytes);
        st = state_name(v, o, fqn, fqn_nbytes, key, nbytes, from->path, &name, &path, err);
        if (st == FSDPCK_OK)
            st = flat_add_object(v, name.text, name.nbytes, path, base_object, &made, err);
    }
    text_release(&name);
    return st;
}

static bool has_prefix(const flat_adapter *v, const flat_optimizer *o, const cat_object *from,
                       size_t depth)
{
    const size_t nbytes = flat_prefix_nbytes(v->base, from->path, from->name, depth);
    return nbytes == strtab_nbytes(&v->texts, o->prefix) &&
           memcmp(catalogue_name(v->base, from->name), strtab_text(&v->texts, o->prefix), nbytes) ==
               0;
}

fsdpck_status flat_optim_object(flat_adapter *v, uint32_t base_object, bool *taken,
                                fsdpck_error *err)
{
    const cat_object *from = catalogue_object(v->base, base_object);
    const value_pool *pool = &v->base->pool;
    size_t depth;
    uint32_t number;
    meaning m;

    *taken = false;
    for (size_t i = 0; !*taken && i < v->optimizers.count; i++) {
        const flat_optimizer *o = VEC_AT(&v->optimizers, const flat_optimizer, i);
        if (flat_is_of_group(v, o, from, "params") && value_kind_of(from->content) == VALUE_LIST &&
            (!o->failed || (!o->has_state && v->has_flat))) {
            *taken = true;
            return o->failed ? refuse_params(v, base_object, err)
                             : rename_params(v, o, base_object, err);
        }
        if (o->failed)
            continue;
        *taken = flat_path_numbered(pool, from->path, v->by_text, &depth, &number) &&
                 depth == o->depth &&
                 value_kind_of(value_item(pool, from->path, depth + 2)) == VALUE_STR &&
                 has_prefix(v, o, from, depth) && meaning_of(v, o, number, &m);
        if (*taken)
            return spread_object(v, o, base_object, &m, err);
    }
    return FSDPCK_OK;
}
