/* unflatten_collect.c: optimizer state by number: its tensors, and the lists of its groups. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "statedict/unflatten_internal.h"

size_t flat_prefix_nbytes(const catalogue *c, value path, uint32_t name, size_t depth)
{
    size_t nbytes = catalogue_name_nbytes(c, name), tail = 0;
    for (size_t i = depth; i < value_count(&c->pool, path); i++) {
        size_t n = 0;
        (void)value_text(&c->pool, value_item(&c->pool, path, i), &n);
        tail += n + (i > depth);
    }
    return nbytes > tail ? nbytes - tail : 0;
}

static fsdpck_status optimizer_of(flat_adapter *v, const char *prefix, size_t nbytes, size_t depth,
                                  uint32_t *index, fsdpck_error *err)
{
    uint32_t id;
    RETURN_IF(strtab_intern(&v->texts, prefix, nbytes, &id, err));
    for (*index = 0; *index < v->optimizers.count; ++*index)
        if (VEC_AT(&v->optimizers, const flat_optimizer, *index)->prefix == id)
            return FSDPCK_OK;
    return vec_add(&v->optimizers, &(flat_optimizer){.prefix = id, .depth = (uint32_t)depth}, err);
}

fsdpck_status flat_optim_add(flat_adapter *v, uint32_t base_tensor, bool *taken, fsdpck_error *err)
{
    const catalogue *c = v->base;
    const cat_tensor *t = catalogue_tensor(c, base_tensor);
    size_t depth, key_nbytes;
    uint32_t number, owner, key;
    flat_name n;

    *taken = !v->whole && (t->flags & CAT_TENSOR_IN_OBJECT) == 0 &&
             flat_path_numbered(&c->pool, t->path, v->by_text, &depth, &number);
    if (!*taken)
        return FSDPCK_OK;
    flat_name_read(c, base_tensor, &n);
    const char *text = value_text(
        &c->pool, value_item(&c->pool, t->path, value_count(&c->pool, t->path) - 1), &key_nbytes);
    if (text == NULL) {
        *taken = false;
        return FSDPCK_OK;
    }
    RETURN_IF(optimizer_of(v, n.text, flat_prefix_nbytes(c, t->path, t->name, depth), depth, &owner,
                           err));
    VEC_AT(&v->optimizers, flat_optimizer, owner)->has_state = true;
    RETURN_IF(
        strtab_intern(&v->texts, text, n.rank == CAT_NONE ? key_nbytes : n.key_nbytes, &key, err));
    return vec_add(
        &v->pieces,
        &(flat_state_tensor){
            .owner = owner, .number = number, .key = key, .tensor = base_tensor, .rank = n.rank},
        err);
}

/* path: .., "param_groups", index, "params". *nbytes: of the name before "param_groups". */
static bool is_params(const catalogue *c, const cat_object *o, size_t *depth, size_t *nbytes)
{
    const size_t count = value_count(&c->pool, o->path);
    uint64_t index;
    if (count < 3 ||
        !value_is_str(&c->pool, value_item(&c->pool, o->path, count - 3), "param_groups") ||
        !value_is_str(&c->pool, value_item(&c->pool, o->path, count - 1), "params") ||
        !value_as_u64(&c->pool, value_item(&c->pool, o->path, count - 2), &index))
        return false;
    const size_t tail = (size_t)snprintf(NULL, 0, "param_groups.%" PRIu64 ".params", index);
    *depth = count - 3;
    *nbytes = catalogue_name_nbytes(c, o->name);
    *nbytes = *nbytes > tail ? *nbytes - tail : 0;
    return true;
}

/* The same, and its items are numbers. */
static bool is_numbers(const flat_adapter *v, const cat_object *o, size_t *depth, size_t *nbytes)
{
    return o->rank == UINT16_MAX && is_params(v->base, o, depth, nbytes) &&
           value_kind_of(o->content) == VALUE_LIST && flat_number_at(v, o->content, 0) != CAT_NONE;
}

bool flat_lists_numbers(const flat_adapter *v)
{
    size_t depth, nbytes;
    for (uint32_t i = 0; i < catalogue_object_count(v->base); i++)
        if (is_numbers(v, catalogue_object(v->base, i), &depth, &nbytes))
            return true;
    return false;
}

fsdpck_status flat_optim_add_groups(flat_adapter *v, fsdpck_error *err)
{
    for (uint32_t i = 0; !v->whole && i < catalogue_object_count(v->base); i++) {
        const cat_object *o = catalogue_object(v->base, i);
        size_t depth, nbytes;
        uint32_t owner;
        if (is_numbers(v, o, &depth, &nbytes))
            RETURN_IF(
                optimizer_of(v, catalogue_name(v->base, o->name), nbytes, depth, &owner, err));
    }
    return FSDPCK_OK;
}

bool flat_is_of_group(const flat_adapter *v, const flat_optimizer *o, const cat_object *from,
                      const char *what)
{
    const value_pool *pool = &v->base->pool;
    const size_t count = value_count(pool, from->path);
    const size_t skip = strtab_nbytes(&v->texts, o->prefix);
    return count == o->depth + 3u && catalogue_name_nbytes(v->base, from->name) >= skip &&
           memcmp(catalogue_name(v->base, from->name), strtab_text(&v->texts, o->prefix), skip) ==
               0 &&
           value_is_str(pool, value_item(pool, from->path, o->depth), "param_groups") &&
           value_is_str(pool, value_item(pool, from->path, count - 1), what);
}

uint32_t flat_number_at(const flat_adapter *v, value list, size_t i)
{
    uint64_t n;
    if (!value_as_u64(&v->base->pool, value_item(&v->base->pool, list, i), &n) ||
        n >= FLAT_NUMBERS_MAX)
        return CAT_NONE;
    return (uint32_t)n;
}
