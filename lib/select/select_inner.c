/* Tensors that lie inside objects. They are written with their object. If it is not written, named
 * ones (CAT_TENSOR_NAMED) are selected like any tensor, and the others are omitted. */
#include <stdlib.h>
#include <string.h>

#include "select/select_internal.h"

typedef struct owner_visit {
    select_state *a;
    uint32_t object;
    bool is_kept;
} owner_visit;

/* Whether the tensor has its name from this object: containers alone lead from it to the tensor. */
static bool is_named_by(const catalogue *c, uint64_t tensor, uint32_t object)
{
    const cat_tensor *t = catalogue_tensor(c, tensor);
    const cat_object *o = catalogue_object(c, object);
    const size_t nbytes = catalogue_name_nbytes(c, o->name);
    const size_t own_nbytes = catalogue_name_nbytes(c, t->name);
    const char *name = catalogue_name(c, t->name);
    if (!(t->flags & CAT_TENSOR_NAMED))
        return false;
    if (!value_is_none(o->path) && value_count(&c->pool, o->path) == 0) /* the state itself */
        return true;
    return own_nbytes >= nbytes && memcmp(name, catalogue_name(c, o->name), nbytes) == 0 &&
           (own_nbytes == nbytes || name[nbytes] == '.');
}

static fsdpck_status visit_owner(void *ctx, value v, fsdpck_error *err)
{
    const owner_visit *o = ctx;
    (void)err;
    if (value_kind_of(v) != VALUE_TENSOR)
        return FSDPCK_OK;
    const uint64_t tensor = value_tensor_index(v);
    uint32_t *owner = &o->a->inner_owner[tensor];
    if (*owner == CAT_NONE || o->is_kept || is_named_by(o->a->from, tensor, o->object))
        *owner = o->object;
    return FSDPCK_OK;
}

static bool has_inner(const catalogue *c)
{
    for (size_t i = 0; i < catalogue_tensor_count(c); i++)
        if (catalogue_tensor(c, i)->flags & CAT_TENSOR_IN_OBJECT)
            return true;
    return false;
}

fsdpck_status select_inner_find(select_state *a, fsdpck_error *err)
{
    const size_t count = catalogue_tensor_count(a->from);
    const size_t objects = a->parts->object_count;
    a->inner_owner = malloc((count + 1) * sizeof *a->inner_owner);
    a->object_kept = calloc(objects + 1, 1);
    if (a->inner_owner == NULL || a->object_kept == NULL)
        return error_set_nomem(err, count * sizeof *a->inner_owner);
    memset(a->inner_owner, 0xff, (count + 1) * sizeof *a->inner_owner);
    for (size_t i = 0; has_inner(a->from) && i < objects; i++) {
        const cat_object *o = catalogue_object(a->from, i);
        owner_visit visit = {a, (uint32_t)i, false};
        if (o->loaded)
            RETURN_IF(value_walk(&a->from->pool, o->content, visit_owner, &visit, err));
    }
    return FSDPCK_OK;
}

fsdpck_status select_inner_keep(select_state *a, fsdpck_error *err)
{
    for (size_t k = 0; k < a->objects.count; k++) {
        const uint32_t object = *VEC_AT(&a->objects, const uint32_t, k);
        owner_visit visit = {a, object, true};
        RETURN_IF(value_walk(&a->from->pool, catalogue_object(a->from, object)->content,
                             visit_owner, &visit, err));
    }
    return FSDPCK_OK;
}

/* --- one object --- */

typedef struct inner_scan {
    select_state *a;
    size_t object;
    size_t named, selected;
    bool other; /* an item is neither a container nor a named tensor */
} inner_scan;

static fsdpck_status visit_scan(void *ctx, value v, fsdpck_error *err)
{
    inner_scan *s = ctx;
    (void)err;
    switch (value_kind_of(v)) {
    case VALUE_LIST:
    case VALUE_TUPLE:
        return FSDPCK_OK;
    case VALUE_TENSOR:
        break;
    default:
        s->other = true;
        return FSDPCK_OK;
    }
    if (is_named_by(s->a->from, value_tensor_index(v), (uint32_t)s->object))
        s->named++;
    else
        s->other = true;
    return FSDPCK_OK;
}

bool select_inner_has_named(const select_state *a, size_t object, bool *only)
{
    inner_scan s = {.a = (select_state *)a, .object = object};
    const cat_object *o = catalogue_object(a->from, object);
    fsdpck_error ignored = FSDPCK_ERROR_INIT;
    if (!o->loaded || value_walk(&a->from->pool, o->content, visit_scan, &s, &ignored) != FSDPCK_OK)
        return false;
    *only = !s.other;
    return s.named > 0;
}

fsdpck_status select_inner_is_selected(select_state *a, size_t i, const char *name, bool *wanted,
                                       fsdpck_error *err)
{
    const uint32_t object = a->inner_owner[i];
    const cat_tensor *t = catalogue_tensor(a->from, i);
    const name_source where = {t->path, t->name, (checkpoint_part)a->parts->tensor_part[i]};
    bool in_groups;
    if (a->request->only != NULL) {
        *wanted = a->request->only->tensors[i] != 0;
        return FSDPCK_OK;
    }
    RETURN_IF(select_groups_match(a, &where, &in_groups, wanted, err));
    if (in_groups)
        return FSDPCK_OK;
    if (object == CAT_NONE || !(t->flags & CAT_TENSOR_IN_OBJECT)) {
        *wanted = select_rules_match(&a->rules, name);
        return FSDPCK_OK;
    }
    text_buf outer = {.limit_bytes = UINT32_MAX};
    select_original_name(a, catalogue_object(a->from, object)->name,
                         (checkpoint_part)a->parts->object_part[object], &outer);
    const fsdpck_status st = text_check(&outer, err);
    if (st == FSDPCK_OK)
        *wanted = select_rules_match_either(&a->rules, name, outer.text);
    text_release(&outer);
    return st;
}

static fsdpck_status visit_select(void *ctx, value v, fsdpck_error *err)
{
    inner_scan *s = ctx;
    if (value_kind_of(v) != VALUE_TENSOR)
        return FSDPCK_OK;
    const uint64_t i = value_tensor_index(v);
    const cat_tensor *t = catalogue_tensor(s->a->from, i);
    bool wanted;
    if (!is_named_by(s->a->from, i, (uint32_t)s->object))
        return FSDPCK_OK;
    RETURN_IF(select_inner_is_selected(s->a, i, catalogue_name(s->a->from, t->name), &wanted, err));
    s->named++;
    s->selected += wanted;
    return FSDPCK_OK;
}

/* By the name before the rules, cleaned like that of a tensor. */
static fsdpck_status match_name(select_state *a, size_t object, bool *wanted, fsdpck_error *err)
{
    text_buf name = {.limit_bytes = UINT32_MAX};
    select_original_name(a, catalogue_object(a->from, object)->name,
                         (checkpoint_part)a->parts->object_part[object], &name);
    const fsdpck_status st = text_check(&name, err);
    if (st == FSDPCK_OK)
        *wanted = select_rules_match(&a->rules, name.text);
    text_release(&name);
    return st;
}

fsdpck_status select_inner_match(select_state *a, size_t object, bool *wanted, fsdpck_error *err)
{
    const cat_object *o = catalogue_object(a->from, object);
    const char *name = catalogue_name(a->from, o->name);
    const name_source where = {o->path, o->name, (checkpoint_part)a->parts->object_part[object]};
    inner_scan s = {.a = a, .object = object};
    bool in_groups;
    if (a->request->only != NULL) {
        *wanted = a->request->only->objects[object] != 0;
        return FSDPCK_OK;
    }
    RETURN_IF(select_groups_match(a, &where, &in_groups, wanted, err));
    if (in_groups)
        return FSDPCK_OK;
    if (o->loaded && a->request->options.keys_count + a->request->options.exclude_count > 0)
        RETURN_IF(value_walk(&a->from->pool, o->content, visit_select, &s, err));
    if (s.named == 0)
        return match_name(a, object, wanted, err);
    *wanted = s.selected == s.named;
    if (s.selected == 0 || s.selected == s.named)
        return FSDPCK_OK;
    return FAIL_WITH(
        err, USAGE, NONE, ("object '%s' contains tensors: it is written whole or not at all", name),
        (expected, "all or none of its %zu tensors selected", s.named), (found, "%zu", s.selected),
        (next,
         "select all of them ('%s.*') or none; with --format safetensors they can be selected one "
         "by one",
         name));
}

/* --- in the target --- */

fsdpck_status select_inner_name(const select_state *a, size_t k, uint64_t from_index,
                                text_buf *name, fsdpck_error *err)
{
    const cat_object *o = catalogue_object(a->from, *VEC_AT(&a->objects, const uint32_t, k));
    const uint32_t renamed =
        a->object_names.count > 0 ? *VEC_AT(&a->object_names, const uint32_t, k) : CAT_NONE;
    const uint32_t id = catalogue_tensor(a->from, from_index)->name;
    const char *was = catalogue_name(a->from, id), *outer = catalogue_name(a->from, o->name);
    size_t nbytes = catalogue_name_nbytes(a->from, id);
    const size_t n = catalogue_name_nbytes(a->from, o->name);
    name->nbytes = 0;
    if (renamed != CAT_NONE && nbytes >= n && memcmp(was, outer, n) == 0) {
        text_append(name, strtab_text(&a->names, renamed), strtab_nbytes(&a->names, renamed));
        was += n;
        nbytes -= n;
    }
    text_append(name, was, nbytes);
    text_append(name, "", 0);
    return text_check(name, err);
}
