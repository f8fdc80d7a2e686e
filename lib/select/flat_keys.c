#include <string.h>

#include "select/nest.h"
#include "select/select_internal.h"

/* Formats with flat keys require the path of each tensor and object. */

/* Dict keys become texts, ints too, as in torch's own flattening. */
static fsdpck_status path_tuple(select_state *a, target_path *p, value *tuple, fsdpck_error *err)
{
    value_pool *pool = &a->to->cat.pool;
    for (size_t i = 0; i < p->count; i++) {
        if (value_kind_of(p->elements[i]) != VALUE_BYTES)
            continue;
        char digits[32];
        size_t nbytes;
        const char *text = value_text(pool, p->elements[i], &nbytes);
        nbytes = nbytes < sizeof digits ? nbytes : sizeof digits;
        memcpy(digits, text, nbytes);
        RETURN_IF(value_new_str(pool, digits, nbytes, &p->elements[i], err));
    }
    return value_new_from(&a->to->cat.pool, VALUE_TUPLE, p->elements, p->count, tuple, err);
}

static fsdpck_status refuse_root(const select_state *a, const char *what, const char *next,
                                 fsdpck_error *err)
{
    return FAIL_WITH(err, UNSUPPORTED, KEY_LIST,
                     ("the state is %s, but format '%s' requires a dict", what, a->request->format),
                     (next, "%s", next));
}

static fsdpck_status refuse_twin(const select_state *a, fsdpck_error *err)
{
    return FAIL_WITH(
        err, UNSUPPORTED, KEY_DUP,
        ("two keys of a dict, an int and a text, are one key in format '%s'", a->request->format),
        (expected, "one of them: paths in this format have texts as keys"),
        (next, "omit one of them with --exclude, or write a .pt file"));
}

/* A reader rebuilds a dict from the paths. They must not conflict; `places` shows gaps in lists. */
static fsdpck_status record_path(const select_state *a, nest *places, const target_path *p,
                                 value leaf, uint32_t name, fsdpck_error *err)
{
    fsdpck_status st;
    bool twin = false;
    if (!a->request->has_paths)
        return FSDPCK_OK;
    if (p->count == 0)
        st = refuse_root(a, "not a dict", "give it a key with --rename, or write a .pt file", err);
    else if (value_kind_of(p->elements[0]) == VALUE_INT)
        st = refuse_root(
            a, "a list",
            "give the items keys, for example with --rename 's/^/item./', or write a .pt file",
            err);
    else
        st = nest_put(places, p->elements, p->count, leaf, err);
    if (st == FSDPCK_OK)
        st = nest_find_twin(places, p->elements, p->count, &twin, err);
    if (twin)
        st = refuse_twin(a, err);
    if (st != FSDPCK_OK)
        error_tensor(err, catalogue_name(a->from, name));
    return st;
}

static fsdpck_status set_path(select_state *a, const select_pick *pick, nest *places,
                              fsdpck_error *err)
{
    if (pick->target == CAT_NONE)
        return FSDPCK_OK;
    const cat_tensor *t = catalogue_tensor(a->from, pick->source);
    target_path p;
    RETURN_IF(target_path_copy(a, t->path, t->name,
                               (checkpoint_part)a->parts->tensor_part[pick->source], &p, err));
    RETURN_IF(target_path_fit(a, strtab_text(&a->names, pick->name),
                              strtab_nbytes(&a->names, pick->name), pick->marks, &p, err));
    RETURN_IF(record_path(a, places, &p, value_of_tensor(pick->target), t->name, err));
    catalogue_tensor(&a->to->cat, pick->target)->saved_at = t->saved_at;
    return path_tuple(a, &p, &catalogue_tensor(&a->to->cat, pick->target)->path, err);
}

static fsdpck_status add_object(select_state *a, size_t k, nest *places, fsdpck_error *err)
{
    const cat_object *o = catalogue_object(a->from, *VEC_AT(&a->objects, uint32_t, k));
    const uint32_t renamed = *VEC_AT(&a->object_names, uint32_t, k);
    const char *name = catalogue_name(a->from, o->name);
    size_t nbytes = catalogue_name_nbytes(a->from, o->name);
    catalogue *cat = &a->to->cat;
    uint32_t index;
    target_path p;
    value path, content;
    if (renamed != CAT_NONE) {
        name = strtab_text(&a->names, renamed);
        nbytes = strtab_nbytes(&a->names, renamed);
    }
    RETURN_IF(catalogue_add_object(cat, name, nbytes, &index, err));
    RETURN_IF(select_object_path(a, k, &p, err));
    RETURN_IF(record_path(a, places, &p, VALUE_OF_NONE, o->name, err));
    RETURN_IF(path_tuple(a, &p, &path, err));
    RETURN_IF(select_object_content(a, k, &content, err));
    cat_object *made = catalogue_object(cat, index);
    made->path = path;
    made->content = content;
    made->loaded = true;
    made->opaque = o->opaque;
    made->saved_at = o->saved_at;
    return FSDPCK_OK;
}

fsdpck_status select_build_flat_keys(select_state *a, fsdpck_error *err)
{
    nest places;
    fsdpck_status st;
    GOTO_IF(nest_init(&places, &a->to->cat.pool, err), out);
    for (size_t k = 0; k < a->picks.count; k++)
        GOTO_IF(set_path(a, VEC_AT(&a->picks, select_pick, k), &places, err), out);
    for (size_t k = 0; k < a->objects.count; k++)
        GOTO_IF(add_object(a, k, &places, err), out);
    nest_find_opened(&places);
    st = select_check_lists(a, &places, UINT64_MAX, err);
out:
    nest_release(&places);
    return st;
}
