/* unflatten_walk.c: one walk over the first catalogue, which makes all of the second. */
#include <string.h>

#include "model/fqn.h"
#include "statedict/unflatten_internal.h"

/* One rank's tensor of a name: all ranks' together are one again. */
static fsdpck_status join_ranks(flat_adapter *v, uint32_t base_tensor, const flat_name *n,
                                fsdpck_error *err)
{
    const cat_tensor *t = catalogue_tensor(v->base, base_tensor);
    const size_t depth = value_count(&v->base->pool, t->path);
    const char *key = n->text + n->key_at;
    value path;

    RETURN_IF(
        flat_path(v, t->path, depth == 0 ? 0 : depth - 1, &key, &n->key_nbytes, 1, &path, err));
    return flat_join_tensor(v, base_tensor, n->text, n->key_at + n->key_nbytes, path, err);
}

static fsdpck_status beside_and_whole(const flat_adapter *v, uint32_t base_tensor,
                                      fsdpck_error *err)
{
    const cat_tensor *t = catalogue_tensor(v->base, base_tensor);
    return FAIL_WITH(err, BADINPUT, MODEL_MISMATCH,
                     ("tensor is stored separately, although the model lists it in the flat "
                      "parameter of a unit"),
                     (tensor, catalogue_name(v->base, t->name)),
                     (next, "remove it from the unit's list, if it was in ignored_modules"));
}

/* A parameter that a unit has, though the state has it whole (FULL): it is cut as the others. */
static void give_spec(flat_adapter *v, uint32_t base_tensor, const flat_name *n)
{
    const unit *u = NULL;
    const unit_param *p = unit_list_find_param(v->units, n->text + n->key_at, n->key_nbytes, &u);
    const uint64_t made = *VEC_AT(&v->map, const uint64_t, base_tensor);
    cat_tensor *m = catalogue_tensor(v->out, made);
    if (p != NULL && m->spec == CAT_NONE && p->ndim > 0 && u->world_size > 1 &&
        shape_equal(unit_param_shape(v->units, p), p->ndim, catalogue_shape(v->out, made), m->ndim))
        m->spec = v->spec;
}

/* Whether flat parameters give a tensor of this name. torch leaves what compile puts into names, the
 * description does not. */
static fsdpck_status is_covered(const flat_adapter *v, const flat_name *n, text_buf *clean,
                                bool *covered, fsdpck_error *err)
{
    *covered = strtab_find(&v->covered, n->text, n->key_at + n->key_nbytes) != STRTAB_NONE;
    if (*covered || strtab_count(&v->covered) == 0)
        return FSDPCK_OK;
    clean->nbytes = 0;
    text_append(clean, n->text, n->key_at);
    fqn_clean(n->text + n->key_at, n->key_nbytes, false, clean);
    RETURN_IF(text_check(clean, err));
    *covered = strtab_find(&v->covered, clean->text, clean->nbytes) != STRTAB_NONE;
    return FSDPCK_OK;
}

static fsdpck_status see_tensor(flat_adapter *v, uint32_t i, text_buf *outer, fsdpck_error *err)
{
    const cat_tensor *t = catalogue_tensor(v->base, i);
    const unit *u;
    bool is_flat, covered, taken;
    flat_name n;

    flat_name_read(v->base, i, &n);
    RETURN_IF(flat_name_unit(v, &n, &u, &is_flat, outer, err));
    if (is_flat && u != NULL)
        return flat_expand(v, i, &n, u, outer, err);
    RETURN_IF(is_covered(v, &n, outer, &covered, err));
    if (covered)
        return t->ndim == 1 ? flat_check_order(v, i, &n, outer, err) : beside_and_whole(v, i, err);
    RETURN_IF(flat_optim_add(v, i, &taken, err));
    if (taken)
        return FSDPCK_OK;
    if (n.rank != CAT_NONE && v->options.ranks != PER_RANK_KEEP &&
        !flat_is_local(v, n.text, n.key_at + n.key_nbytes))
        return join_ranks(v, i, &n, err);
    RETURN_IF(flat_keep_tensor(v, i, FLAT_CHUNK_AS_IS, err));
    give_spec(v, i, &n);
    return FSDPCK_OK;
}

static bool is_metadata(const flat_adapter *v, const cat_object *o)
{
    const value_pool *pool = &v->base->pool;
    for (size_t i = 0; v->options.from_metadata && i < value_count(pool, o->path); i++)
        if (value_is_str(pool, value_item(pool, o->path, i), "shard_metadata"))
            return true;
    return false;
}

static fsdpck_status copy_objects(flat_adapter *v, fsdpck_error *err)
{
    for (uint32_t i = 0; i < catalogue_object_count(v->base); i++) {
        const cat_object *o = catalogue_object(v->base, i);
        uint32_t made;
        bool taken;
        value path;
        RETURN_IF(flat_optim_object(v, i, &taken, err));
        if (taken || is_metadata(v, o))
            continue;
        RETURN_IF(value_copy(&v->base->pool, o->path, &v->out->pool, NULL, &path, err));
        RETURN_IF(flat_add_object(v, catalogue_name(v->base, o->name),
                                  catalogue_name_nbytes(v->base, o->name), path, i, &made, err));
    }
    return FSDPCK_OK;
}

/* Storages come last; those that view them are told the new numbers. */
static fsdpck_status copy_storages(flat_adapter *v, fsdpck_error *err)
{
    for (uint32_t i = 0; i < catalogue_tensor_count(v->base); i++)
        if (catalogue_tensor(v->base, i)->flags & CAT_TENSOR_STORAGE)
            RETURN_IF(flat_keep_tensor(v, i, FLAT_CHUNK_AS_IS, err));
    for (size_t i = 0; i < catalogue_tensor_count(v->out); i++) {
        cat_tensor *t = catalogue_tensor(v->out, i);
        if (t->alias != CAT_NONE)
            t->alias = (uint32_t)*VEC_AT(&v->map, const uint64_t, t->alias);
    }
    return FSDPCK_OK;
}

fsdpck_status flat_make_tensors(flat_adapter *v, fsdpck_error *err)
{
    const size_t units = unit_count(v->units), count = catalogue_tensor_count(v->base);
    text_buf outer = {0};
    fsdpck_status st = FSDPCK_OK;
    uint8_t *seen = budget_alloc(v->owner, units, err);
    uint64_t *map = seen == NULL ? NULL : vec_push_n(&v->map, count, err);

    if (seen == NULL || (map == NULL && count > 0)) {
        st = FSDPCK_LIMIT;
        goto out;
    }
    for (size_t i = 0; i < count; i++)
        map[i] = UINT64_MAX;
    GOTO_IF(flat_cover_all(v, seen, &outer, err), out);
    for (uint32_t i = 0; i < count; i++)
        if (!(catalogue_tensor(v->base, i)->flags & CAT_TENSOR_STORAGE))
            GOTO_IF(see_tensor(v, i, &outer, err), out);
    GOTO_IF(flat_optim_add_groups(v, err), out);
    GOTO_IF(flat_optim_find(v, err), out);
    GOTO_IF(flat_optim_make(v, err), out);
    GOTO_IF(flat_add_ties(v, err), out);
    GOTO_IF(copy_storages(v, err), out);
    st = copy_objects(v, err);
out:
    if (seen != NULL)
        budget_free(v->owner, seen, units);
    text_release(&outer);
    return st;
}
