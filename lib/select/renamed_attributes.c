/* Finds the source's dicts whose attributes (_metadata of a state dict) the target lacks although it
 * has tensors of theirs: names changed, so that no container of the target corresponds. */
#include "base/text.h"
#include "select/select_internal.h"

enum { LOST_MAX = 64, DEPTH_MAX = 16 };

typedef struct level {
    value container;
    uint32_t parent; /* in the queue, CAT_NONE for the root */
    value key;       /* in the parent */
    uint32_t depth;  /* keys above */
} level;

typedef struct lost_search {
    select_state *a;
    const value_map *kept;
    value_map seen;
    vec queue; /* level, parents first */
    size_t found;
} lost_search;

static fsdpck_status enqueue(lost_search *x, value v, uint32_t parent, value key, uint32_t depth,
                             fsdpck_error *err)
{
    bool fresh;
    const value_kind kind = value_kind_of(v);
    if ((kind != VALUE_DICT && kind != VALUE_CALL) || depth > DEPTH_MAX)
        return FSDPCK_OK;
    if (value_map_put(&x->seen, v, &fresh, err) == NULL)
        return FSDPCK_LIMIT;
    const level next = {v, parent, key, depth};
    return fresh ? vec_add(&x->queue, &next, err) : FSDPCK_OK;
}

static bool has_attributes(const value_pool *pool, value v)
{
    const value_call *call = value_call_of(pool, v);
    return call != NULL && call->has_state && !value_is_none(call->state) &&
           !value_is_none(call->dict_items);
}

/* The keys above a container, the outermost first. */
static void path_of(const lost_search *x, size_t at, value *path)
{
    const level *l = VEC_AT(&x->queue, const level, at);
    for (uint32_t i = l->depth; i > 0; i--) {
        path[i - 1] = l->key;
        l = VEC_AT(&x->queue, const level, l->parent);
    }
}

static bool has_selected(const lost_search *x, const value *path, uint32_t depth)
{
    const select_state *a = x->a;
    bool found = false;
    for (size_t k = 0; !found && k < a->picks.count; k++) {
        const select_pick *p = VEC_AT(&a->picks, const select_pick, k);
        const value own = catalogue_tensor(a->from, p->source)->path;
        found = p->target != CAT_NONE && !value_is_none(own) &&
                value_count(&a->from->pool, own) > depth;
        for (uint32_t i = 0; found && i < depth; i++)
            found = value_item(&a->from->pool, own, i) == path[i];
    }
    return found;
}

static fsdpck_status record(lost_search *x, const value *path, uint32_t depth, fsdpck_error *err)
{
    text_buf name = {0};
    if (depth == 0)
        text_puts(&name, "the outermost dict");
    for (uint32_t i = 0; i < depth; i++) {
        size_t nbytes;
        const char *key = value_text(&x->a->from->pool, path[i], &nbytes);
        if (i > 0)
            text_puts(&name, ".");
        if (value_kind_of(path[i]) == VALUE_STR)
            text_append(&name, key, nbytes);
        else
            value_print(&x->a->from->pool, path[i], 256, &name);
    }
    fsdpck_status st = text_check(&name, err);
    if (st == FSDPCK_OK)
        st = name_list_add(&x->a->result->lost_attributes, name.text, name.nbytes, err);
    text_release(&name);
    x->found++;
    return st;
}

static fsdpck_status search(lost_search *x, fsdpck_error *err)
{
    value_pool *pool = &x->a->from->pool;
    value path[DEPTH_MAX], dict;
    for (size_t at = 0; at < x->queue.count && x->found < LOST_MAX; at++) {
        const level l = *VEC_AT(&x->queue, const level, at);
        if (!value_as_dict(pool, l.container, &dict))
            continue;
        path_of(x, at, path);
        if (has_attributes(pool, l.container) && value_map_find(x->kept, l.container) == NULL &&
            has_selected(x, path, l.depth))
            RETURN_IF(record(x, path, l.depth, err));
        for (size_t i = 0; i < value_count(pool, dict); i++)
            RETURN_IF(enqueue(x, value_item(pool, dict, i), (uint32_t)at, value_key(pool, dict, i),
                              l.depth + 1, err));
    }
    return FSDPCK_OK;
}

fsdpck_status select_find_lost_attributes(select_state *a, const value_map *kept, fsdpck_error *err)
{
    budget *owner = a->to->cat.owner;
    lost_search x = {.a = a, .kept = kept, .seen = VALUE_MAP(owner), .queue = VEC_OF(level, owner)};
    const value root = value_is_none(a->from->root) ? a->from->like : a->from->root;
    fsdpck_status st = enqueue(&x, root, CAT_NONE, VALUE_OF_NONE, 0, err);
    if (st == FSDPCK_OK)
        st = search(&x, err);
    value_map_release(&x.seen);
    vec_release(&x.queue);
    return st;
}
