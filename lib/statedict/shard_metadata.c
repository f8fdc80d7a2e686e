#include "statedict/shard_metadata.h"

#include <inttypes.h>

#include "base/checked.h"
#include "model/fqn.h"

/* Description of one flat parameter: three lists of equal length. */
typedef struct flat_entry {
    uint64_t wrapper; /* index in param_metadata */
    value key;        /* 'flat_param_0' */
    value names, shapes, numels;
} flat_entry;

/* A wrapper. */
typedef struct wrapper_entry {
    uint64_t index;
    value path, shared;
    bool alone; /* no_broadcast_optim_state */
} wrapper_entry;

typedef struct reading {
    const catalogue *c;
    const value_pool *pool;
    vec wrappers; /* wrapper_entry */
    vec flats;    /* flat_entry */
    text_buf key, name;
} reading;

static fsdpck_status bad(const char *what, const char *expected, fsdpck_error *err)
{
    return FAIL_WITH(err, BADINPUT, SHARD_METADATA, ("shard_metadata %s", what),
                     (expected, "%s", expected));
}

/* Elements of the path after 'shard_metadata', 'param_metadata', INDEX; 0 for any other path. */
static size_t read_path(const reading *r, value path, size_t *at, uint64_t *index)
{
    const size_t count = value_count(r->pool, path);
    for (size_t i = 0; i + 3 < count; i++) {
        if (!value_is_str(r->pool, value_item(r->pool, path, i), "shard_metadata") ||
            !value_is_str(r->pool, value_item(r->pool, path, i + 1), "param_metadata") ||
            !value_as_u64(r->pool, value_item(r->pool, path, i + 2), index))
            continue;
        *at = i + 3;
        return count - *at;
    }
    return 0;
}

bool shard_metadata_is(const catalogue *c)
{
    const reading r = {.c = c, .pool = &c->pool};
    for (size_t i = 0; i < catalogue_object_count(c); i++) {
        const value path = catalogue_object(c, i)->path;
        size_t at;
        uint64_t index;
        if (read_path(&r, path, &at, &index) == 3 &&
            value_is_str(r.pool, value_item(r.pool, path, at), "params") &&
            value_is_str(r.pool, value_item(r.pool, path, at + 2), "numels"))
            return true;
    }
    return false;
}

/* --- gathering --- */

static fsdpck_status wrapper_of(reading *r, uint64_t index, wrapper_entry **w, fsdpck_error *err)
{
    for (size_t i = r->wrappers.count; i-- > 0;) {
        *w = VEC_AT(&r->wrappers, wrapper_entry, i);
        if ((*w)->index == index)
            return FSDPCK_OK;
    }
    *w = vec_push(&r->wrappers, err);
    if (*w == NULL)
        return FSDPCK_LIMIT;
    **w = (wrapper_entry){.index = index};
    return FSDPCK_OK;
}

static fsdpck_status flat_of(reading *r, uint64_t index, value key, flat_entry **f,
                             fsdpck_error *err)
{
    for (size_t i = r->flats.count; i-- > 0;) {
        *f = VEC_AT(&r->flats, flat_entry, i);
        if ((*f)->wrapper == index && value_keys_equal(r->pool, (*f)->key, key))
            return FSDPCK_OK;
        if ((*f)->wrapper != index)
            break; /* entries of one wrapper are consecutive */
    }
    *f = vec_push(&r->flats, err);
    if (*f == NULL)
        return FSDPCK_LIMIT;
    **f = (flat_entry){.wrapper = index, .key = key};
    return FSDPCK_OK;
}

static fsdpck_status gather_one(reading *r, const cat_object *o, fsdpck_error *err)
{
    size_t at;
    uint64_t index;
    const size_t rest = read_path(r, o->path, &at, &index);
    wrapper_entry *w;
    flat_entry *f;

    if (rest != 1 && rest != 3)
        return FSDPCK_OK;
    const value word = value_item(r->pool, o->path, at);
    if (rest == 1) {
        RETURN_IF(wrapper_of(r, index, &w, err));
        if (value_is_str(r->pool, word, "fsdp_path"))
            w->path = o->content;
        else if (value_is_str(r->pool, word, "shared_param_info"))
            w->shared = o->content;
        else if (value_is_str(r->pool, word, "no_broadcast_optim_state"))
            w->alone = value_is_true(o->content);
        return FSDPCK_OK;
    }
    if (!value_is_str(r->pool, word, "params"))
        return FSDPCK_OK;
    RETURN_IF(flat_of(r, index, value_item(r->pool, o->path, at + 1), &f, err));
    const value what = value_item(r->pool, o->path, at + 2);
    if (value_is_str(r->pool, what, "names"))
        f->names = o->content;
    else if (value_is_str(r->pool, what, "shapes"))
        f->shapes = o->content;
    else if (value_is_str(r->pool, what, "numels"))
        f->numels = o->content;
    return FSDPCK_OK;
}

/* --- units --- */

/* Joins 'layers.0' and 'fc.weight' to one name in `out`. */
static fsdpck_status join(const reading *r, value path, value name, text_buf *out,
                          fsdpck_error *err)
{
    size_t nbytes;
    const char *text = value_text(r->pool, path, &nbytes);
    out->nbytes = 0;
    if (value_kind_of(path) != VALUE_STR || value_kind_of(name) != VALUE_STR)
        return bad("contains an invalid name", "texts in fsdp_path, params and names", err);
    fqn_clean(text, nbytes, false, out);
    if (out->nbytes > 0)
        text_puts(out, ".");
    text = value_text(r->pool, name, &nbytes);
    fqn_clean(text, nbytes, false, out);
    return text_check(out, err);
}

/* A torch.Size: a call of it with one tuple, or a tuple. */
static fsdpck_status read_shape(const reading *r, value v, uint64_t *shape, unsigned *ndim,
                                fsdpck_error *err)
{
    const value_call *call = value_call_of(r->pool, v);
    if (call != NULL && value_is_symbol_named(r->pool, call->callee, "Size"))
        v = value_item(r->pool, call->args, 0);
    const value_kind kind = value_kind_of(v);
    const size_t count = value_count(r->pool, v);
    if ((kind != VALUE_TUPLE && kind != VALUE_LIST) || count > NDIM_MAX)
        return bad("contains an invalid shape", "tuples of sizes in shapes", err);
    for (size_t i = 0; i < count; i++)
        if (!value_as_u64(r->pool, value_item(r->pool, v, i), &shape[i]))
            return bad("contains an invalid shape", "tuples of sizes in shapes", err);
    *ndim = (unsigned)count;
    return FSDPCK_OK;
}

static fsdpck_status add_params(reading *r, const wrapper_entry *w, const flat_entry *f,
                                unit_list *l, fsdpck_error *err)
{
    const size_t count = value_count(r->pool, f->names);
    if (value_count(r->pool, f->shapes) != count || value_count(r->pool, f->numels) != count)
        return bad("lists different numbers of names, shapes and numels",
                   "one of each per parameter", err);
    for (size_t i = 0; i < count; i++) {
        uint64_t shape[NDIM_MAX], numel, nelems = 1;
        unsigned ndim = 0;
        RETURN_IF(join(r, w->path, value_item(r->pool, f->names, i), &r->name, err));
        RETURN_IF(read_shape(r, value_item(r->pool, f->shapes, i), shape, &ndim, err));
        for (unsigned d = 0; d < ndim; d++)
            if (!checked_mul(nelems, shape[d], &nelems))
                return bad("has a shape that is too large", "sizes that fit 63 bits", err);
        if (!value_as_u64(r->pool, value_item(r->pool, f->numels, i), &numel) || numel != nelems) {
            const fsdpck_status st =
                bad("contradicts itself", "numels that are the products of the shapes", err);
            error_tensor(err, r->name.text);
            return st;
        }
        RETURN_IF(unit_list_add_param(l, r->name.text, r->name.nbytes, ndim, shape, NULL, err));
    }
    return FSDPCK_OK;
}

/* Pairs of names, the flattened one first; paths begin at the wrapper. */
static fsdpck_status add_shared(reading *r, const wrapper_entry *w, unit_list *l, fsdpck_error *err)
{
    for (size_t i = 0; i < value_count(r->pool, w->shared); i++) {
        const value pair = value_item(r->pool, w->shared, i);
        if (value_count(r->pool, pair) != 2)
            return bad("has a shared parameter without two names", "pairs in shared_param_info",
                       err);
        RETURN_IF(join(r, w->path, value_item(r->pool, pair, 0), &r->key, err));
        RETURN_IF(join(r, w->path, value_item(r->pool, pair, 1), &r->name, err));
        RETURN_IF(
            unit_list_add_shared(l, r->name.text, r->name.nbytes, r->key.text, r->key.nbytes, err));
    }
    return FSDPCK_OK;
}

static fsdpck_status add_unit(reading *r, const flat_entry *f, uint32_t world_size, unit_list *l,
                              fsdpck_error *err)
{
    wrapper_entry *w;
    RETURN_IF(wrapper_of(r, f->wrapper, &w, err));
    const unit proto = {.keyed = true,
                        .unsharded = w->alone,
                        .row_major = true,
                        .world_size = w->alone ? 1 : world_size};
    RETURN_IF(join(r, w->path, f->key, &r->key, err));
    RETURN_IF(unit_list_add(l, &proto, r->key.text, r->key.nbytes, "", 0, err));
    RETURN_IF(add_params(r, w, f, l, err));
    const bool last =
        f + 1 == VEC_AT(&r->flats, const flat_entry, r->flats.count) || f[1].wrapper != f->wrapper;
    if (last)
        RETURN_IF(add_shared(r, w, l, err));
    return unit_list_close(l, err);
}

fsdpck_status shard_metadata_units(const catalogue *c, uint32_t world_size, unit_list *units,
                                   fsdpck_error *err)
{
    budget *owner = units->owner;
    reading r = {.c = c,
                 .pool = &c->pool,
                 .wrappers = VEC_OF(wrapper_entry, owner),
                 .flats = VEC_OF(flat_entry, owner)};
    fsdpck_status st = FSDPCK_OK;
    for (size_t i = 0; st == FSDPCK_OK && i < catalogue_object_count(c); i++) {
        const cat_object *o = catalogue_object(c, i);
        if (o->rank == UINT16_MAX || o->rank == 0)
            st = gather_one(&r, o, err);
    }
    for (size_t i = 0; st == FSDPCK_OK && i < r.flats.count; i++)
        st = add_unit(&r, VEC_AT(&r.flats, const flat_entry, i), world_size, units, err);
    if (st == FSDPCK_OK)
        st = unit_list_seal(units, err);
    text_release(&r.key);
    text_release(&r.name);
    VEC_RELEASE_ALL(&r.wrappers, &r.flats);
    return st;
}
