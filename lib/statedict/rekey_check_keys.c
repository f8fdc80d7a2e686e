/* Keys of optimizer state that no conversion would keep. */
#include <string.h>

#include "statedict/rekey_internal.h"

fsdpck_status rekey_check_strays(rekey *r, uint32_t owner, fsdpck_error *err)
{
    const rekey_optimizer *o = REKEY_OPTIMIZER(r, owner);
    bool joined = false;
    for (uint32_t i = 0; !joined && i < r->order->count; i++) {
        const uint32_t saved = r->order->params[i].saved;
        joined = saved > 0 && catalogue_tensor(r->cat, saved - 1)->joined;
    }
    for (size_t i = 0; joined && i < r->entries.count; i++) {
        const rekey_entry *e = REKEY_ENTRY(r, i);
        if (e->owner != owner || e->kind != REKEY_STATE || e->at != REKEY_NONE)
            continue;
        const value path = e->is_object ? catalogue_object(r->cat, e->index)->path
                                        : catalogue_tensor(r->cat, e->index)->path;
        char digits[24];
        size_t nbytes;
        const char *label =
            rekey_element(r->cat, value_item(&r->cat->pool, path, o->depth + 1), digits, &nbytes);
        if (strtab_find(&r->known, label, nbytes) == STRTAB_NONE)
            continue;
        const fsdpck_status st =
            rekey_fail(r, o, FSDPCK_UNSUPPORTED, FSDPCK_FINDING_MODEL_OPTIM, err,
                       "param_groups list the parameters of one rank only");
        error_found(err, "state of '%.*s', which no param_group lists",
                    nbytes < 100 ? (int)nbytes : 100, label);
        error_next(err, "omit --optim-keys, or save flattened optimizer state again");
        return st;
    }
    return FSDPCK_OK;
}

/* Whether it is part of a flattened key's value: 'param_groups.emb.weight.schedule', then more. */
static bool is_inside(const rekey *r, const rekey_optimizer *o, uint32_t name, value path)
{
    const catalogue *c = r->cat;
    const size_t outer = strtab_nbytes(&r->texts, o->prefix);
    size_t nbytes = 0;
    if (!o->flat || o->depth + 1u >= value_count(&c->pool, path) ||
        catalogue_name_nbytes(c, name) < outer ||
        memcmp(catalogue_name(c, name), strtab_text(&r->texts, o->prefix), outer) != 0)
        return false;
    const value v = value_item(&c->pool, path, o->depth);
    const char *text = value_kind_of(v) == VALUE_STR ? value_text(&c->pool, v, &nbytes) : NULL;
    return text != NULL && ((nbytes > 13 && memcmp(text, "param_groups.", 13) == 0) ||
                            (nbytes > 6 && memcmp(text, "state.", 6) == 0));
}

static fsdpck_status check_flat_item(const rekey *r, uint32_t name, value path, fsdpck_error *err)
{
    for (size_t i = 0; i < r->optimizers.count; i++) {
        const rekey_optimizer *o = REKEY_OPTIMIZER(r, i);
        if (!is_inside(r, o, name, path))
            continue;
        const fsdpck_status st = rekey_fail(
            r, o, FSDPCK_UNSUPPORTED, FSDPCK_FINDING_MODEL_OPTIM, err,
            "'%.200s' is inside a dict or list, which cannot be converted from the flattened form",
            catalogue_name(r->cat, name));
        error_next(err, "omit --optim-keys, or read only the model: --part model");
        return st;
    }
    return FSDPCK_OK;
}

fsdpck_status rekey_check_flat(const rekey *r, fsdpck_error *err)
{
    for (size_t i = 0; i < catalogue_object_count(r->cat); i++) {
        const cat_object *o = catalogue_object(r->cat, i);
        RETURN_IF(check_flat_item(r, o->name, o->path, err));
    }
    for (size_t i = 0; i < r->mine_count; i++) {
        const cat_tensor *t = catalogue_tensor(r->cat, i);
        if ((t->flags & (CAT_TENSOR_IN_OBJECT | CAT_TENSOR_STORAGE)) == 0)
            RETURN_IF(check_flat_item(r, t->name, t->path, err));
    }
    return FSDPCK_OK;
}
