#include "state/inner.h"

enum { DEPTH_LIMIT = 1000, KEY_NBYTES_LIMIT = 4096 };
enum { JUDGED_NOT, JUDGED_OPEN, JUDGED_NO, JUDGED_YES };

typedef struct inner_frame {
    value items; /* LIST, TUPLE or DICT */
    value owner; /* the same, or the call that contains it */
    size_t at;
    size_t name_nbytes; /* of the name before this container's keys */
} inner_frame;

typedef struct inner_walk {
    inner_names *in;
    vec frames; /* inner_frame */
    vec path;   /* value */
    size_t path_base;
    text_buf name;
} inner_walk;

/* --- opened containers --- */

static bool is_class(const value_pool *pool, const value_call *call, const char *const *names,
                     size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (value_is_symbol_named(pool, call->callee, names[i]))
            return true;
    return false;
}

/* A named tuple is constructed only from its items. */
static bool is_named_tuple(const value_call *call)
{
    return call->how == CALL_NEWOBJ && value_kind_of(call->args) == VALUE_TUPLE &&
           value_kind_of(call->callee) == VALUE_SYMBOL && value_is_none(call->kwargs) &&
           !call->has_state && value_is_none(call->list_items) && value_is_none(call->dict_items) &&
           value_is_none(call->set_items);
}

/* The part of a call that has the items; NULL: it is not opened. */
static value *call_items(const value_pool *pool, value v)
{
    static const char *const dicts[] = {"OrderedDict", "defaultdict", "Counter", "dict"};
    static const char *const lists[] = {"deque"};
    value_call *call = value_call_of(pool, v);
    if (call == NULL)
        return NULL;
    if (is_class(pool, call, dicts, sizeof dicts / sizeof *dicts))
        return value_kind_of(call->dict_items) == VALUE_DICT ? &call->dict_items : NULL;
    if (is_class(pool, call, lists, sizeof lists / sizeof *lists))
        return value_kind_of(call->list_items) == VALUE_LIST ? &call->list_items : NULL;
    return is_named_tuple(call) ? &call->args : NULL;
}

static bool open_items(const value_pool *pool, value v, value *items)
{
    const value_kind kind = value_kind_of(v);
    const value *of_call;
    *items = v;
    if (kind == VALUE_LIST || kind == VALUE_TUPLE || kind == VALUE_DICT)
        return value_count(pool, v) > 0;
    of_call = call_items(pool, v);
    if (of_call == NULL)
        return false;
    *items = *of_call;
    return value_count(pool, *items) > 0;
}

/* --- containers with tensors --- */

static fsdpck_status judge_push(inner_walk *w, value v, value items, fsdpck_error *err)
{
    uint64_t *state = value_map_put(w->in->judged, v, NULL, err);
    inner_frame *top = state == NULL ? NULL : vec_push(&w->frames, err);
    if (top == NULL)
        return FSDPCK_LIMIT;
    *state = JUDGED_OPEN;
    *top = (inner_frame){.items = items, .owner = v};
    return FSDPCK_OK;
}

/* Visits each container once. Frames above `base` belong to this function. */
static fsdpck_status judge(inner_walk *w, value v, bool *holds, fsdpck_error *err)
{
    const value_pool *pool = w->in->pool;
    const size_t base = w->frames.count;
    const uint64_t *known = value_map_find(w->in->judged, v);
    value items;

    *holds = value_kind_of(v) == VALUE_TENSOR;
    if (*holds || !open_items(pool, v, &items))
        return FSDPCK_OK;
    if (known == NULL)
        RETURN_IF(judge_push(w, v, items, err));
    while (w->frames.count > base) {
        inner_frame *top = VEC_AT(&w->frames, inner_frame, w->frames.count - 1);
        const bool at_end = top->at == value_count(pool, top->items);
        const value item = at_end ? VALUE_OF_NONE : value_item(pool, top->items, top->at);
        bool yes = value_kind_of(item) == VALUE_TENSOR;
        if (!yes && open_items(pool, item, &items)) {
            const uint64_t *inner = value_map_find(w->in->judged, item);
            if (inner == NULL) {
                RETURN_IF(judge_push(w, item, items, err));
                continue;
            }
            yes = *inner == JUDGED_YES;
        }
        top->at++;
        if (yes || at_end) {
            *value_map_find(w->in->judged, top->owner) = yes ? JUDGED_YES : JUDGED_NO;
            w->frames.count--;
        }
    }
    *holds = *value_map_find(w->in->judged, v) == JUDGED_YES;
    return FSDPCK_OK;
}

/* --- names --- */

/* Appends the current key of a frame to the name; returns its element of the path. */
static fsdpck_status put_key(inner_walk *w, const inner_frame *f, fsdpck_error *err)
{
    value_pool *pool = w->in->pool;
    const bool is_dict = value_kind_of(f->items) == VALUE_DICT;
    value key;
    if (is_dict)
        key = value_key(pool, f->items, f->at);
    else
        RETURN_IF(value_new_int(pool, (int64_t)f->at, &key, err));
    w->name.nbytes = f->name_nbytes;
    w->path.count = w->path_base + w->frames.count - 1;
    if (w->name.nbytes > 0)
        text_append(&w->name, ".", 1);
    const size_t begin = w->name.nbytes;
    size_t nbytes;
    const char *text = value_kind_of(key) == VALUE_STR ? value_text(pool, key, &nbytes) : NULL;
    if (text != NULL)
        text_append(&w->name, text, nbytes);
    else
        value_print(pool, key, KEY_NBYTES_LIMIT, &w->name);
    text_append(&w->name, "", 1);
    RETURN_IF(text_check(&w->name, err));
    w->name.nbytes--;
    const char *printed = w->name.text + begin;
    nbytes = w->name.nbytes - begin;
    if (is_dict && value_kind_of(key) == VALUE_INT) /* an int in a path is the index of a list */
        RETURN_IF(value_new_bytes(pool, printed, nbytes, &key, err));
    else if (is_dict && text == NULL)
        RETURN_IF(value_new_str(pool, printed, nbytes, &key, err));
    return vec_add(&w->path, &(value){key}, err);
}

static fsdpck_status name_tensor(inner_walk *w, value *v, fsdpck_error *err)
{
    uint64_t index = value_tensor_index(*v);
    value path;
    RETURN_IF(value_new_from(w->in->pool, VALUE_TUPLE, w->path.items, w->path.count, &path, err));
    RETURN_IF(w->in->on_tensor(w->in->ctx, w->name.text, w->name.nbytes, path, &index, err));
    *v = value_of_tensor(index);
    return FSDPCK_OK;
}

/* --- the walk --- */

static fsdpck_status copy_items(value_pool *pool, value items, value *copy, fsdpck_error *err)
{
    const size_t count = value_count(pool, items);
    if (value_kind_of(items) == VALUE_DICT) {
        RETURN_IF(value_new_dict(pool, copy, err));
        for (size_t i = 0; i < count; i++)
            RETURN_IF(value_dict_put(pool, *copy, value_key(pool, items, i),
                                     value_item(pool, items, i), err));
        return FSDPCK_OK;
    }
    vec all = VEC_OF(value, pool->owner);
    value *to = vec_push_n(&all, count, err);
    fsdpck_status st = to == NULL ? FSDPCK_LIMIT : FSDPCK_OK;
    for (size_t i = 0; st == FSDPCK_OK && i < count; i++)
        to[i] = value_item(pool, items, i);
    if (st == FSDPCK_OK)
        st = value_new_from(pool, value_kind_of(items), to, count, copy, err);
    vec_release(&all);
    return st;
}

/* A container that is already in use elsewhere: copies its items, and the call around them. */
static fsdpck_status copy_container(value_pool *pool, value *v, value *items, fsdpck_error *err)
{
    value copy;
    RETURN_IF(copy_items(pool, *items, &copy, err));
    if (*v == *items) {
        *v = copy;
    } else {
        const value_call call = *value_call_of(pool, *v);
        RETURN_IF(value_new_call(pool, &call, v, err));
        *call_items(pool, *v) = copy;
    }
    *items = copy;
    return FSDPCK_OK;
}

/* *v becomes the value for this location. */
static fsdpck_status enter(inner_walk *w, value *v, fsdpck_error *err)
{
    inner_names *in = w->in;
    bool fresh = false, holds = false;
    value items;
    if (++in->steps > in->steps_limit || w->frames.count >= DEPTH_LIMIT)
        return FSDPCK_OK;
    if (value_kind_of(*v) == VALUE_TENSOR)
        return name_tensor(w, v, err);
    RETURN_IF(judge(w, *v, &holds, err));
    if (!holds || !open_items(in->pool, *v, &items))
        return FSDPCK_OK;
    uint64_t *seen = value_map_put(in->seen, *v, &fresh, err);
    if (seen == NULL)
        return FSDPCK_LIMIT;
    if (*seen == INNER_VISITING) /* it contains itself */
        return FSDPCK_OK;
    if (*seen == INNER_VISITED) {
        RETURN_IF(copy_container(in->pool, v, &items, err));
        seen = value_map_put(in->seen, *v, &fresh, err);
        if (seen == NULL)
            return FSDPCK_LIMIT;
    }
    *seen = INNER_VISITING;
    return vec_add(&w->frames,
                   &(inner_frame){.items = items, .owner = *v, .name_nbytes = w->name.nbytes}, err);
}

static fsdpck_status walk(inner_walk *w, fsdpck_error *err)
{
    while (w->frames.count > 0) {
        inner_frame *in_place = VEC_AT(&w->frames, inner_frame, w->frames.count - 1);
        const inner_frame top = *in_place;
        if (top.at == value_count(w->in->pool, top.items)) {
            *value_map_find(w->in->seen, top.owner) = INNER_VISITED;
            w->frames.count--;
            continue;
        }
        in_place->at++;
        const value was = value_item(w->in->pool, top.items, top.at);
        value now = was, items;
        if (value_kind_of(was) != VALUE_TENSOR && !open_items(w->in->pool, was, &items))
            continue;
        RETURN_IF(put_key(w, &top, err));
        RETURN_IF(enter(w, &now, err));
        if (now != was)
            value_set_item(w->in->pool, top.items, top.at, now);
    }
    return FSDPCK_OK;
}

static fsdpck_status name_as_path(value_pool *pool, const char *name, size_t nbytes, value *path,
                                  fsdpck_error *err)
{
    value key;
    RETURN_IF(value_new_str(pool, name, nbytes, &key, err));
    return value_new_from(pool, VALUE_TUPLE, &key, 1, path, err);
}

fsdpck_status inner_name_tensors(inner_names *in, const char *name, size_t nbytes, value path,
                                 value *content, fsdpck_error *err)
{
    inner_walk w = {.in = in, .name.limit_bytes = UINT32_MAX};
    w.frames = VEC_OF(inner_frame, in->pool->owner);
    w.path = VEC_OF(value, in->pool->owner);
    fsdpck_status st = FSDPCK_OK;
    if (value_is_none(path)) /* the name is the only key */
        st = name_as_path(in->pool, name, nbytes, &path, err);
    w.path_base = value_count(in->pool, path);
    text_append(&w.name, name, nbytes);
    for (size_t i = 0; st == FSDPCK_OK && i < w.path_base; i++) {
        value *slot = vec_push(&w.path, err);
        if (slot == NULL)
            st = FSDPCK_LIMIT;
        else
            *slot = value_item(in->pool, path, i);
    }
    if (st == FSDPCK_OK)
        st = text_check(&w.name, err);
    if (st == FSDPCK_OK)
        st = enter(&w, content, err);
    if (st == FSDPCK_OK)
        st = walk(&w, err);
    VEC_RELEASE_ALL(&w.frames, &w.path);
    text_release(&w.name);
    return st;
}
