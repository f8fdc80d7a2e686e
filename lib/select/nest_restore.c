/* Restores containers of a rebuilt state: classes of dicts, their attributes (_metadata), and keys
 * that are no texts. A container corresponds to the source's container under the same keys. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "select/nest.h"
#include "state/value_map.h"

/* Properties of a container that was built. */
typedef struct restore_source {
    value from;    /* the source's, NONE: it has none */
    size_t at;     /* where the next item is looked for in it */
    size_t number; /* items met in the container that was built */
} restore_source;

typedef struct restore_job {
    nest *n;
    value_pool *from;
    value_map *kept;
    value_map places; /* container -> number in list + 1 */
    vec list;         /* restore_source */
} restore_job;

static fsdpck_status add_place(restore_job *j, value container, value from, fsdpck_error *err)
{
    uint64_t *slot = value_map_put(&j->places, container, NULL, err);
    restore_source *p = slot == NULL ? NULL : vec_push(&j->list, err);
    if (p == NULL)
        return FSDPCK_LIMIT;
    *slot = j->list.count;
    *p = (restore_source){.from = from};
    return FSDPCK_OK;
}

/* `element` is of the pool `of`: BYTES for an int key. */
static bool is_same_key(restore_job *j, value key, const value_pool *of, value element,
                        text_buf *text)
{
    size_t nbytes, own_nbytes;
    if ((value_kind_of(key) == VALUE_INT) != (value_kind_of(element) == VALUE_BYTES))
        return false;
    const char *own = value_text(of, element, &own_nbytes);
    const char *other = value_text(j->from, key, &nbytes);
    if (value_kind_of(key) != VALUE_STR) {
        text->nbytes = 0;
        value_print(j->from, key, 4096, text);
        other = text->text;
        nbytes = text->nbytes;
    } else if (value_kind_of(element) != VALUE_STR) {
        return false;
    }
    return own != NULL && other != NULL && nbytes == own_nbytes && memcmp(own, other, nbytes) == 0;
}

/* The items follow each other as in the source, so the search goes on where it ended. */
static bool find_item(restore_job *j, restore_source *p, const value_pool *of, value element,
                      value *key, value *item, text_buf *text)
{
    uint64_t index;
    value dict;
    if (value_kind_of(p->from) == VALUE_LIST) {
        const size_t count = value_count(j->from, p->from);
        if (!value_as_u64(of, element, &index) || index >= count)
            return false;
        *item = value_item(j->from, p->from, (size_t)index);
        return true;
    }
    if (value_kind_of(element) == VALUE_INT || !value_as_dict(j->from, p->from, &dict))
        return false;
    const size_t count = value_count(j->from, dict);
    for (size_t i = 0; i < count; i++) {
        const size_t at = (p->at + i) % count;
        *key = value_key(j->from, dict, at);
        if (!is_same_key(j, *key, of, element, text))
            continue;
        *item = value_item(j->from, dict, at);
        p->at = at + 1;
        return true;
    }
    return false;
}

static fsdpck_status visit_tensor(void *ctx, value v, fsdpck_error *err)
{
    bool *has_tensor = ctx;
    (void)err;
    *has_tensor = *has_tensor || value_kind_of(v) == VALUE_TENSOR;
    return FSDPCK_OK;
}

/* *made: `built`, a DICT, in a call as `from` is one; itself where that is a DICT or holds tensors besides. */
static fsdpck_status wrap(restore_job *j, value from, value built, value *made, fsdpck_error *err)
{
    const value_call *old = value_call_of(j->from, from);
    bool has_tensor = false;
    value dict;
    *made = built;
    if (old == NULL || value_kind_of(built) != VALUE_DICT || !value_as_dict(j->from, from, &dict) ||
        old->dict_items != dict)
        return FSDPCK_OK;
    value_call call = *old;
    RETURN_IF(value_walk(j->from, call.args, visit_tensor, &has_tensor, err));
    RETURN_IF(value_walk(j->from, call.kwargs, visit_tensor, &has_tensor, err));
    if (call.has_state)
        RETURN_IF(value_walk(j->from, call.state, visit_tensor, &has_tensor, err));
    if (has_tensor)
        return FSDPCK_OK;
    RETURN_IF(value_copy(j->from, call.callee, j->n->pool, NULL, &call.callee, err));
    RETURN_IF(value_copy(j->from, call.args, j->n->pool, NULL, &call.args, err));
    RETURN_IF(value_copy(j->from, call.kwargs, j->n->pool, NULL, &call.kwargs, err));
    if (call.has_state)
        RETURN_IF(value_copy(j->from, call.state, j->n->pool, NULL, &call.state, err));
    call.list_items = VALUE_OF_NONE;
    call.set_items = VALUE_OF_NONE;
    call.dict_items = built;
    if (value_map_put(j->kept, from, NULL, err) == NULL)
        return FSDPCK_LIMIT;
    return value_new_call(j->n->pool, &call, made, err);
}

/* Python takes True, 1 and 1.0 for one key, so that one value would replace the other. */
static fsdpck_status check_number(const restore_job *j, const nest_slot *s, value key,
                                  fsdpck_error *err)
{
    char digits[32];
    value element;
    double number;
    if ((value_kind_of(key) != VALUE_BOOL && value_kind_of(key) != VALUE_FLOAT) ||
        !value_as_double(j->from, key, &number))
        return FSDPCK_OK;
    if (!(number > -9.2e18 && number < 9.2e18) || number != (double)(int64_t)number)
        return FSDPCK_OK;
    snprintf(digits, sizeof digits, "%" PRId64, (int64_t)number);
    RETURN_IF(value_new_bytes(j->n->pool, digits, strlen(digits), &element, err));
    return nest_has(j->n, s->container, element)
               ? FAIL(err, BADINPUT, KEY_NEST, "two keys of a dict are equal numbers in Python")
               : FSDPCK_OK;
}

static fsdpck_status restore_slot(restore_job *j, const nest_slot *s, text_buf *text,
                                  fsdpck_error *err)
{
    const uint64_t *slot = value_map_find(&j->places, s->container);
    const uint64_t *inner = value_map_find(&j->places, s->child);
    restore_source *p = slot == NULL ? NULL : VEC_AT(&j->list, restore_source, *slot - 1);
    value key = VALUE_OF_NONE, item = VALUE_OF_NONE, made;
    uint64_t index = 0;
    if (p == NULL)
        return FSDPCK_OK;
    const bool is_list = value_kind_of(s->container) == VALUE_LIST;
    size_t at = p->number++;
    if (is_list && value_as_u64(j->n->pool, s->element, &index))
        at = (size_t)index;
    const bool known = !value_is_none(s->like);
    if (value_is_none(p->from) || !find_item(j, p, known ? j->from : j->n->pool,
                                             known ? s->like : s->element, &key, &item, text))
        return FSDPCK_OK;
    if (!is_list && value_kind_of(key) != VALUE_STR && value_kind_of(key) != VALUE_INT &&
        is_same_key(j, key, j->n->pool, s->element, text)) {
        RETURN_IF(check_number(j, s, key, err));
        RETURN_IF(value_copy(j->from, key, j->n->pool, NULL, &key, err));
        value_set_key(j->n->pool, s->container, at, key);
    }
    if (inner == NULL)
        return FSDPCK_OK;
    VEC_AT(&j->list, restore_source, *inner - 1)->from = item;
    RETURN_IF(wrap(j, item, s->child, &made, err));
    if (made != s->child)
        value_set_item(j->n->pool, s->container, at, made);
    return FSDPCK_OK;
}

fsdpck_status nest_restore(nest *n, value_pool *from, value root, value *made, value_map *kept,
                           fsdpck_error *err)
{
    restore_job j = {.n = n,
                     .from = from,
                     .kept = kept,
                     .places = VALUE_MAP(n->pool->owner),
                     .list = VEC_OF(restore_source, n->pool->owner)};
    text_buf text = {.limit_bytes = UINT32_MAX};
    fsdpck_status st;
    GOTO_IF(add_place(&j, n->root, root, err), out);
    for (size_t i = 0; i < n->slots.count; i++) {
        const nest_slot *s = VEC_AT(&n->slots, const nest_slot, i);
        if (value_map_find(&j.places, s->container) == NULL)
            GOTO_IF(add_place(&j, s->container, VALUE_OF_NONE, err), out);
    }
    /* Items were put after their container. */
    for (size_t i = 0; i < n->slots.count; i++)
        GOTO_IF(restore_slot(&j, VEC_AT(&n->slots, const nest_slot, i), &text, err), out);
    st = wrap(&j, root, n->root, made, err);
out:
    value_map_release(&j.places);
    vec_release(&j.list);
    text_release(&text);
    return st;
}
