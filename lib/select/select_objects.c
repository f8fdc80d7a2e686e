/* Names of objects, and of parameters inside them. */
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "model/fqn.h"
#include "select/select_internal.h"

/* --- their own names --- */

static fsdpck_status name_object(select_state *a, uint32_t object, text_buf *name, text_buf *marks,
                                 bool *changed, fsdpck_error *err)
{
    const cat_object *o = catalogue_object(a->from, object);
    const uint32_t id = o->name;
    const checkpoint_part part = (checkpoint_part)a->parts->object_part[object];
    name->nbytes = 0;
    checkpoint_parts_append_name(a->parts, part, false, a->request->clean,
                                 catalogue_name(a->from, id), catalogue_name_nbytes(a->from, id),
                                 name);
    text_append(name, "", 0);
    RETURN_IF(text_check(name, err));
    const bool cleaned = !text_equal(name->text, name->nbytes, catalogue_name(a->from, id),
                                     catalogue_name_nbytes(a->from, id));
    RETURN_IF(select_apply_rules(a, &(name_source){o->path, id, part}, name, marks, changed, err));
    if (!*changed) /* the path is cleaned key by key, as that of a tensor */
        marks->nbytes = 0;
    *changed = *changed || cleaned;
    return FSDPCK_OK;
}

/* An id in select_state.marks; CAT_NONE: the name has none. */
static fsdpck_status intern_marks(select_state *a, const text_buf *marks, uint32_t *id,
                                  fsdpck_error *err)
{
    *id = CAT_NONE;
    return marks->nbytes == 0 ? FSDPCK_OK
                              : strtab_intern(&a->marks, marks->text, marks->nbytes, id, err);
}

/* Whether a tensor got this name, which it does not have in the source. */
static bool is_new_name_of_tensor(const select_state *a, uint32_t name)
{
    for (size_t k = 0; k < a->picks.count; k++) {
        const select_pick *pick = VEC_AT(&a->picks, const select_pick, k);
        const uint32_t was = catalogue_tensor(a->from, pick->source)->name;
        if (pick->name == name && !strtab_is(&a->names, name, catalogue_name(a->from, was),
                                             catalogue_name_nbytes(a->from, was)))
            return true;
    }
    return false;
}

static fsdpck_status intern_object(select_state *a, uint32_t object, const text_buf *name,
                                   bool changed, uint32_t *slot, fsdpck_error *err)
{
    const size_t before = strtab_count(&a->names);
    uint32_t id;
    RETURN_IF(strtab_intern(&a->names, name->text, name->nbytes, &id, err));
    const bool of_rank = catalogue_object(a->from, object)->rank != UINT16_MAX;
    /* Ranks have one of each name. */
    if (id < before && !of_rank && (changed || is_new_name_of_tensor(a, id)))
        return FAIL(err, USAGE, KEY_DUP,
                    "an object would get the name '%s', which another item has", name->text);
    *slot = changed ? id : CAT_NONE;
    return FSDPCK_OK;
}

fsdpck_status select_objects_rename(select_state *a, fsdpck_error *err)
{
    const bool may_change = a->request->clean || a->request->trainer_keys ||
                            a->request->options.rename_count > 0 ||
                            a->request->options.strip_prefix_count > 0;
    text_buf name = {.limit_bytes = UINT32_MAX}, marks = {.limit_bytes = UINT32_MAX};
    fsdpck_status st = FSDPCK_OK;

    if (a->objects.count == 0)
        return FSDPCK_OK;
    if (vec_push_n(&a->object_names, a->objects.count, err) == NULL ||
        vec_push_n(&a->object_marks, a->objects.count, err) == NULL)
        return FSDPCK_LIMIT;
    for (size_t k = 0; k < a->objects.count; k++) {
        *VEC_AT(&a->object_names, uint32_t, k) = CAT_NONE;
        *VEC_AT(&a->object_marks, uint32_t, k) = CAT_NONE;
    }
    /* Objects that keep their names come first, so that a conflict is reported for the renamed
     * one. */
    for (int pass = 0; may_change && a->to->units == NULL && pass < 2; pass++)
        for (size_t k = 0; st == FSDPCK_OK && k < a->objects.count; k++) {
            const uint32_t object = *VEC_AT(&a->objects, uint32_t, k);
            bool changed = false;
            st = name_object(a, object, &name, &marks, &changed, err);
            if (st == FSDPCK_OK && changed == (pass == 1))
                st = intern_object(a, object, &name, changed, VEC_AT(&a->object_names, uint32_t, k),
                                   err);
            if (st == FSDPCK_OK && changed && pass == 1)
                st = intern_marks(a, &marks, VEC_AT(&a->object_marks, uint32_t, k), err);
            a->objects_renamed = a->objects_renamed || changed;
        }
    text_release(&name);
    text_release(&marks);
    return st;
}

fsdpck_status select_object_path(select_state *a, size_t k, target_path *p, fsdpck_error *err)
{
    const uint32_t object = *VEC_AT(&a->objects, uint32_t, k);
    const uint32_t name = *VEC_AT(&a->object_names, uint32_t, k);
    const cat_object *o = catalogue_object(a->from, object);
    RETURN_IF(target_path_copy(a, o->path, o->name, (checkpoint_part)a->parts->object_part[object],
                               p, err));
    if (name == CAT_NONE)
        return FSDPCK_OK;
    return target_path_fit(a, strtab_text(&a->names, name), strtab_nbytes(&a->names, name),
                           *VEC_AT(&a->object_marks, uint32_t, k), p, err);
}

/* --- names of parameters --- */

/* The element of a tensor's path that names a parameter: the last one in the model; in an
 * optimizer, the one before the last after 'state'. False if none. */
static bool find_owner(const value_pool *pool, const value *path, size_t count,
                       checkpoint_part part, size_t *at)
{
    if (part == PART_MODEL)
        *at = count - 1;
    else if (part == PART_OPTIMIZER && count >= 3 && value_is_str(pool, path[count - 3], "state"))
        *at = count - 2;
    else
        return false;
    return count > 0 && value_kind_of(path[*at]) == VALUE_STR;
}

/* A tensor with its name after the rules. */
typedef struct named_owner {
    uint32_t tensor;
    const char *name;
    size_t nbytes;
    uint32_t marks; /* in select_state.marks, or CAT_NONE */
    bool is_new;    /* only a parameter that has no new name yet */
} named_owner;

static fsdpck_status add_owner(select_state *a, const named_owner *o, fsdpck_error *err)
{
    const cat_tensor *t = catalogue_tensor(a->from, o->tensor);
    const checkpoint_part part = (checkpoint_part)a->parts->tensor_part[o->tensor];
    const value_pool *pool = &a->from->pool;
    const size_t count = value_is_none(t->path) ? 0 : value_count(pool, t->path);
    value old[SELECT_PATH_MAX];
    target_path p;
    size_t at, new_at, nbytes;
    uint32_t id;

    for (size_t i = 0; i < count && i < SELECT_PATH_MAX; i++)
        old[i] = value_item(pool, t->path, i);
    if (count == 0 || count > SELECT_PATH_MAX || !find_owner(pool, old, count, part, &at))
        return FSDPCK_OK;
    RETURN_IF(target_path_copy(a, t->path, t->name, part, &p, err));
    RETURN_IF(target_path_fit(a, o->name, o->nbytes, o->marks, &p, err));
    if (!find_owner(&a->to->cat.pool, p.elements, p.count, part, &new_at))
        return FSDPCK_OK;
    const char *text = value_text(pool, old[at], &nbytes);
    const size_t before = strtab_count(&a->to->owners);
    RETURN_IF(strtab_intern(&a->to->owners, text, nbytes, &id, err));
    if (id < before && o->is_new)
        return FSDPCK_OK;
    value *slot = id < before ? VEC_AT(&a->to->new_param_names, value, id)
                              : vec_push(&a->to->new_param_names, err);
    if (slot == NULL)
        return FSDPCK_LIMIT;
    *slot = p.elements[new_at];
    return FSDPCK_OK;
}

static fsdpck_status add_left_out_owner(select_state *a, uint32_t tensor, text_buf *name,
                                        text_buf *marks, fsdpck_error *err)
{
    const cat_tensor *t = catalogue_tensor(a->from, tensor);
    const checkpoint_part part = (checkpoint_part)a->parts->tensor_part[tensor];
    bool changed = false;
    uint32_t id;
    select_original_name(a, t->name, part, name);
    RETURN_IF(text_check(name, err));
    RETURN_IF(
        select_apply_rules(a, &(name_source){t->path, t->name, part}, name, marks, &changed, err));
    if (!changed)
        marks->nbytes = 0;
    RETURN_IF(intern_marks(a, marks, &id, err));
    return add_owner(a, &(named_owner){tensor, name->text, name->nbytes, id, true}, err);
}

/* Parameters that are left out keep their place in param_groups, so the rules rename them too. A
 * rule that changes only these is still an unused one. */
static fsdpck_status add_left_out_owners(select_state *a, checkpoint_part part, fsdpck_error *err)
{
    text_buf name = {.limit_bytes = UINT32_MAX}, marks = {.limit_bytes = UINT32_MAX};
    unsigned char *used = malloc(a->rules.hint_count + 1);
    fsdpck_status st = used == NULL ? error_set_nomem(err, a->rules.hint_count + 1) : FSDPCK_OK;
    if (used != NULL)
        memcpy(used, a->rules.used, a->rules.hint_count);
    for (uint32_t i = 0; st == FSDPCK_OK && i < a->parts->tensor_count; i++)
        if ((checkpoint_part)a->parts->tensor_part[i] == part &&
            (catalogue_tensor(a->from, i)->flags & CAT_TENSOR_IN_OBJECT) == 0)
            st = add_left_out_owner(a, i, &name, &marks, err);
    if (used != NULL)
        memcpy(a->rules.used, used, a->rules.hint_count);
    free(used);
    text_release(&name);
    text_release(&marks);
    return st;
}

fsdpck_status select_objects_find_owners(select_state *a, fsdpck_error *err)
{
    static const checkpoint_part order[] = {PART_MODEL, PART_OPTIMIZER}; /* the latter decides */
    const bool has_rules =
        a->request->options.rename_count + a->request->options.strip_prefix_count > 0;
    if (!(has_rules || a->request->clean) || (a->objects.count == 0 && !a->request->names_objects))
        return FSDPCK_OK;
    for (size_t i = 0; i < 2; i++)
        for (size_t k = 0; k < a->picks.count; k++) {
            const select_pick *pick = VEC_AT(&a->picks, const select_pick, k);
            const named_owner o = {pick->source, strtab_text(&a->names, pick->name),
                                   strtab_nbytes(&a->names, pick->name), pick->marks, false};
            if ((checkpoint_part)a->parts->tensor_part[pick->source] == order[i])
                RETURN_IF(add_owner(a, &o, err));
        }
    /* Here the model decides. A selected tensor has its new name already. */
    for (size_t i = 0; i < 2 && a->result->left_out_tensors > 0; i++)
        RETURN_IF(add_left_out_owners(a, order[i], err));
    return FSDPCK_OK;
}

/* param_names may have wrapper prefixes, which the model's names do not have. */
static value owner_of(const select_state *a, const char *text, size_t nbytes)
{
    value now = target_param_name(a->to, text, nbytes);
    text_buf clean = {0};
    if (!value_is_none(now))
        return now;
    fqn_clean(text, nbytes, a->parts->model_has_ddp, &clean);
    if (clean.text != NULL && clean.nbytes < nbytes)
        now = target_param_name(a->to, clean.text, clean.nbytes);
    if (value_is_none(now) && !a->parts->model_has_ddp && fqn_has_ddp_prefix(text, nbytes)) {
        clean.nbytes = 0;
        fqn_clean(text, nbytes, true, &clean);
        now = target_param_name(a->to, clean.text, clean.nbytes);
    }
    text_release(&clean);
    return now;
}

/* The object that is copied into the target. */
typedef struct group_visit {
    select_state *a;
    uint32_t object;
} group_visit;

/* An optimizer has each parameter once, in 'params' and in 'param_names': two names of the source
 * must not become one. */
static fsdpck_status claim_name(const group_visit *g, bool is_list_of_names, value was, value now,
                                fsdpck_error *err)
{
    select_state *a = g->a;
    const cat_object *o = catalogue_object(a->from, g->object);
    const char *object = catalogue_name(a->from, o->name);
    const char *groups = strstr(object, "param_groups");
    size_t nbytes, was_nbytes;
    const char *text = value_text(&a->to->cat.pool, now, &nbytes);
    const char *old = value_text(&a->to->cat.pool, was, &was_nbytes);
    text_buf key = {.limit_bytes = UINT32_MAX};
    text_printf(&key, "%u %d ", o->rank, is_list_of_names);
    text_append(&key, object, groups == NULL ? strlen(object) : (size_t)(groups - object));
    text_append(&key, "\n", 1);
    text_append(&key, text, nbytes);
    const size_t before = strtab_count(&a->listed);
    uint32_t id = 0, old_id = 0;
    fsdpck_status st = text_check(&key, err);
    if (st == FSDPCK_OK)
        st = strtab_intern(&a->listed, key.text, key.nbytes, &id, err);
    if (st == FSDPCK_OK)
        st = strtab_intern(&a->listed_texts, old, was_nbytes, &old_id, err);
    text_release(&key);
    RETURN_IF(st);
    if (id >= before)
        return vec_add(&a->listed_was, &old_id, err);
    const uint32_t other = *VEC_AT(&a->listed_was, const uint32_t, id);
    if (other == old_id)
        return FSDPCK_OK;
    return FAIL_WITH(
        err, USAGE, KEY_DUP,
        ("two parameters in param_groups would get the name '%.*s'", (int)nbytes, text),
        (tensor, object), (expected, "a unique name for each parameter"),
        (found, "'%s' and '%s'", strtab_text(&a->listed_texts, other),
         strtab_text(&a->listed_texts, old_id)),
        (next, "use another --rename; an omitted parameter keeps its place in "
               "param_groups"));
}

static fsdpck_status rename_owners(const group_visit *g, value list, bool is_list_of_names,
                                   fsdpck_error *err)
{
    value_pool *pool = &g->a->to->cat.pool;
    for (size_t i = 0; value_kind_of(list) == VALUE_LIST && i < value_count(pool, list); i++) {
        size_t nbytes;
        const value item = value_item(pool, list, i);
        if (value_kind_of(item) != VALUE_STR)
            continue;
        const char *text = value_text(pool, item, &nbytes);
        const value now = owner_of(g->a, text, nbytes);
        RETURN_IF(claim_name(g, is_list_of_names, item, value_is_none(now) ? item : now, err));
        if (!value_is_none(now))
            value_set_item(pool, list, i, now);
    }
    return FSDPCK_OK;
}

/* A dict is a param_group if it has 'params'. */
static fsdpck_status visit_group(void *ctx, value v, fsdpck_error *err)
{
    const group_visit *g = ctx;
    const value_pool *pool = &g->a->to->cat.pool;
    value params, names;
    if (value_kind_of(v) != VALUE_DICT || !value_dict_find(pool, v, "params", &params))
        return FSDPCK_OK;
    RETURN_IF(rename_owners(g, params, false, err));
    if (value_dict_find(pool, v, "param_names", &names) && names != params)
        RETURN_IF(rename_owners(g, names, true, err));
    return FSDPCK_OK;
}

/* 'param_names', or flattened 'param_groups.FQN.param_names'. */
static bool ends_with_names(const value_pool *pool, value last)
{
    static const char names[] = "param_names";
    const size_t n = sizeof names - 1;
    size_t nbytes = 0;
    const char *text = value_kind_of(last) == VALUE_STR ? value_text(pool, last, &nbytes) : NULL;
    return text != NULL && nbytes >= n && memcmp(text + nbytes - n, names, n) == 0 &&
           (nbytes == n || text[nbytes - n - 1] == '.');
}

fsdpck_status select_object_content(select_state *a, size_t k, value *content, fsdpck_error *err)
{
    const uint32_t object = *VEC_AT(&a->objects, uint32_t, k);
    const cat_object *o = catalogue_object(a->from, object);
    const value_pool *pool = &a->from->pool;
    RETURN_IF(select_inner_add(a, k, err));
    RETURN_IF(value_copy(pool, o->content, &a->to->cat.pool, a->inner_map, content, err));
    if (strtab_count(&a->to->owners) == 0 || a->parts->object_part[object] != PART_OPTIMIZER)
        return FSDPCK_OK;
    const size_t count = value_is_none(o->path) ? 0 : value_count(pool, o->path);
    const value last = count == 0 ? VALUE_OF_NONE : value_item(pool, o->path, count - 1);
    group_visit g = {a, object};
    const bool is_list_of_names = ends_with_names(pool, last);
    if (value_is_str(pool, last, "params") || is_list_of_names)
        RETURN_IF(rename_owners(&g, *content, is_list_of_names, err));
    return value_walk(&a->to->cat.pool, *content, visit_group, &g, err);
}
