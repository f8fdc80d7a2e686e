#include "compare/key_types.h"

#include "base/text.h"

enum { KEY_NBYTES_LIMIT = 4096 }; /* as the reader of torch.save files prints keys */

typedef struct key_search {
    const value_pool *pool;
    bool found;
} key_search;

static bool is_other(value key)
{
    const value_kind kind = value_kind_of(key);
    return kind != VALUE_STR && kind != VALUE_INT;
}

static fsdpck_status visit(void *ctx, value v, fsdpck_error *err)
{
    key_search *s = ctx;
    (void)err;
    const size_t count = value_kind_of(v) == VALUE_DICT && !s->found ? value_count(s->pool, v) : 0;
    for (size_t i = 0; i < count && !s->found; i++)
        s->found = is_other(value_key(s->pool, v, i));
    return FSDPCK_OK;
}

fsdpck_status key_types_init(key_types *t, catalogue *c, fsdpck_error *err)
{
    *t = (key_types){.pool = &c->pool,
                     .root = value_is_none(c->root) ? c->like : c->root,
                     .next = VALUE_MAP(c->owner)};
    key_search s = {.pool = t->pool};
    RETURN_IF(value_walk(t->pool, t->root, visit, &s, err));
    t->has_other = s.found;
    return FSDPCK_OK;
}

/* Equal texts of one pool have equal handles. An int key is a BYTES element of a path. */
static bool is_key(key_types *t, value key, value element)
{
    size_t nbytes;
    if (value_kind_of(key) == VALUE_STR)
        return key == element;
    if ((value_kind_of(key) == VALUE_INT) != (value_kind_of(element) == VALUE_BYTES))
        return false;
    t->text.nbytes = 0;
    value_print(t->pool, key, KEY_NBYTES_LIMIT, &t->text);
    const char *text = value_text(t->pool, element, &nbytes);
    return text != NULL && text_equal(t->text.text, t->text.nbytes, text, nbytes);
}

static fsdpck_status enter_dict(key_types *t, value dict, value *at, value element,
                                value_kind *kind, fsdpck_error *err)
{
    uint64_t *next = value_map_put(&t->next, dict, NULL, err);
    if (next == NULL)
        return FSDPCK_LIMIT;
    const size_t count = value_count(t->pool, dict);
    for (size_t i = 0; i < count; i++) {
        const size_t k = (*next + i) % count;
        const value key = value_key(t->pool, dict, k);
        if (!is_key(t, key, element))
            continue;
        *kind = value_kind_of(key);
        *at = value_item(t->pool, dict, k);
        *next = k;
        break;
    }
    return text_check(&t->text, err);
}

fsdpck_status key_types_enter(key_types *t, value *at, value element, value_kind *kind,
                              fsdpck_error *err)
{
    const value container = *at;
    uint64_t index;
    value dict;
    *at = VALUE_OF_NONE;
    *kind = value_kind_of(element);
    if (!t->has_other || value_is_none(container))
        return FSDPCK_OK;
    if (value_as_u64(t->pool, element, &index)) {
        if (value_kind_of(container) == VALUE_LIST && index < value_count(t->pool, container))
            *at = value_item(t->pool, container, (size_t)index);
        return FSDPCK_OK;
    }
    if (!value_as_dict(t->pool, container, &dict))
        return FSDPCK_OK;
    return enter_dict(t, dict, at, element, kind, err);
}

void key_types_release(key_types *t)
{
    value_map_release(&t->next);
    text_release(&t->text);
}
