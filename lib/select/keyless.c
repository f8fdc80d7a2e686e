/* Dicts without items, as torch writes them to DCP: flatten_state_dict gives them no key, at any depth, nor
 * lists that hold such dicts alone. One before an item that has a key keeps its own: torch loads a list by the
 * positions of its items. One that lies in a file has its key from the program that wrote it (torch 2.3). */
#include <inttypes.h>
#include <stdlib.h>

#include "select/select_internal.h"

typedef struct empty_dict_scan {
    value_pool *pool;
    bool has_dict, has_other;
} empty_dict_scan;

static fsdpck_status visit_empty_dict(void *ctx, value v, fsdpck_error *err)
{
    empty_dict_scan *s = ctx;
    (void)err;
    if (value_kind_of(v) == VALUE_DICT && value_count(s->pool, v) == 0)
        s->has_dict = true;
    else if (value_kind_of(v) != VALUE_LIST || value_count(s->pool, v) == 0)
        s->has_other = true;
    return FSDPCK_OK;
}

static fsdpck_status find_empty_dict(select_state *a, const cat_object *o, bool *is_empty_dict,
                                     fsdpck_error *err)
{
    empty_dict_scan s = {.pool = (value_pool *)&a->from->pool};
    value dict;
    *is_empty_dict = false;
    if (o->file != CAT_NONE || !o->loaded || o->opaque || value_is_none(o->path))
        return FSDPCK_OK;
    if (value_as_dict(s.pool, o->content, &dict)) {
        *is_empty_dict = value_count(s.pool, dict) == 0;
        return FSDPCK_OK;
    }
    if (value_kind_of(o->content) == VALUE_LIST)
        RETURN_IF(value_walk(s.pool, o->content, visit_empty_dict, &s, err));
    *is_empty_dict = s.has_dict && !s.has_other;
    return FSDPCK_OK;
}

/* The greatest index with a key in each list, by the path to the list. */
typedef struct last_items {
    strtab lists;
    vec last; /* int64_t */
} last_items;

/* note: the items on the path have keys; else *is_before: one of them is before an item that has one. */
static fsdpck_status walk_path(const catalogue *c, value path, last_items *l, bool note,
                               bool *is_before, fsdpck_error *err)
{
    const size_t count = value_is_none(path) ? 0 : value_count(&c->pool, path);
    text_buf text = {.limit_bytes = UINT32_MAX};
    fsdpck_status st = FSDPCK_OK;
    for (size_t i = 0; st == FSDPCK_OK && i < count; i++) {
        const value v = value_item(&c->pool, path, i);
        int64_t index;
        size_t nbytes;
        uint32_t id = STRTAB_NONE;
        if (!value_as_i64(&c->pool, v, &index)) {
            const char *key = value_text(&c->pool, v, &nbytes);
            text_append(&text, key, nbytes);
            text_append(&text, "", 1);
            st = text_check(&text, err);
            continue;
        }
        const size_t before = strtab_count(&l->lists);
        if (!note)
            id = strtab_find(&l->lists, text.text == NULL ? "" : text.text, text.nbytes);
        else
            st =
                strtab_intern(&l->lists, text.text == NULL ? "" : text.text, text.nbytes, &id, err);
        if (note && st == FSDPCK_OK && id == before) {
            int64_t *fresh = vec_push(&l->last, err);
            st = fresh == NULL ? FSDPCK_LIMIT : FSDPCK_OK;
            if (fresh != NULL)
                *fresh = index;
        }
        int64_t *last = st == FSDPCK_OK && id != STRTAB_NONE ? VEC_AT(&l->last, int64_t, id) : NULL;
        if (note && last != NULL && *last < index)
            *last = index;
        *is_before = *is_before || (last != NULL && *last > index);
        text_printf(&text, "%" PRId64, index);
        text_append(&text, "", 1);
    }
    text_release(&text);
    return st;
}

static fsdpck_status record_items(select_state *a, last_items *l, fsdpck_error *err)
{
    const catalogue *c = a->from;
    bool ignored = false;
    for (size_t i = 0; i < catalogue_tensor_count(c); i++)
        if ((catalogue_tensor(c, i)->flags & CAT_TENSOR_IN_OBJECT) == 0)
            RETURN_IF(walk_path(c, catalogue_tensor(c, i)->path, l, true, &ignored, err));
    for (size_t i = 0; i < a->parts->object_count; i++)
        if (!a->keyless[i])
            RETURN_IF(walk_path(c, catalogue_object(c, i)->path, l, true, &ignored, err));
    return FSDPCK_OK;
}

fsdpck_status select_find_keyless(select_state *a, fsdpck_error *err)
{
    const size_t count = a->parts->object_count;
    last_items l = {.last = VEC_OF(int64_t, a->from->owner)};
    size_t found = 0;
    fsdpck_status st = FSDPCK_OK;
    strtab_init(&l.lists, a->from->owner);
    a->keyless = calloc(count + 1, sizeof *a->keyless);
    if (a->keyless == NULL)
        GOTO_IF(error_set_nomem(err, count), out);
    for (size_t i = 0; a->request->has_paths && i < count; i++) {
        GOTO_IF(find_empty_dict(a, catalogue_object(a->from, i), &a->keyless[i], err), out);
        found += a->keyless[i];
    }
    if (found == 0)
        goto out;
    GOTO_IF(record_items(a, &l, err), out);
    for (size_t i = 0; i < count; i++) {
        bool is_before = false;
        if (a->keyless[i])
            GOTO_IF(
                walk_path(a->from, catalogue_object(a->from, i)->path, &l, false, &is_before, err),
                out);
        a->keyless[i] = a->keyless[i] && !is_before;
    }
out:
    strtab_release(&l.lists);
    vec_release(&l.last);
    return st;
}
