#include "formats/common/pt_flatten.h"

#include <string.h>

#include "state/inner.h"

enum { DEPTH_LIMIT = 1000, KEY_NBYTES_LIMIT = 4096 };
/* Limit on values visited in a state with this many cells: parts may be shared, but a small file
 * must not take long. */
static const uint64_t STEPS_LEAST = (uint64_t)1 << 16, STEPS_PER_CELL = 8;

typedef struct frame {
    value items; /* DICT or LIST */
    value owner; /* the same, or the call that it belongs to */
    size_t at;
    size_t name_nbytes; /* of the name before this container's keys */
    bool is_other_key;  /* the current key is neither text nor int */
} frame;

typedef struct list_frame {
    value list;
    size_t at;
} list_frame;

enum { LIST_UNKNOWN, LIST_IN_PROGRESS, LIST_CLOSED, LIST_OPENED };
/* pt_inner.c goes on with the same map. */
enum { SEEN_NO = INNER_UNVISITED, SEEN_OPEN = INNER_VISITING, SEEN_DONE = INNER_VISITED };

void pt_flat_init(pt_flat *f, catalogue *cat, torch_archive *archive)
{
    *f = (pt_flat){.cat = cat, .archive = archive};
    strtab_init(&f->flat, cat->owner);
    f->paths = VEC_OF(value, cat->owner);
    f->names = VEC_OF(pt_name, cat->owner);
    f->frames = VEC_OF(frame, cat->owner);
    f->path = VEC_OF(value, cat->owner);
    f->list_frames = VEC_OF(list_frame, cat->owner);
    f->objects = VEC_OF(pt_object_place, cat->owner);
    f->attributes = VEC_OF(pt_attributes, cat->owner);
    f->seen = VALUE_MAP(cat->owner);
    f->lists = VALUE_MAP(cat->owner);
}

void pt_flat_release(pt_flat *f)
{
    strtab_release(&f->flat);
    VEC_RELEASE_ALL(&f->paths, &f->names, &f->frames, &f->path, &f->list_frames, &f->objects,
                    &f->attributes);
    value_map_release(&f->seen);
    value_map_release(&f->lists);
    text_release(&f->name);
}

/* --- which lists are opened --- */

static bool is_dict(const value_pool *pool, value v)
{
    if (value_kind_of(v) == VALUE_DICT)
        return true;
    const value_call *call = value_call_of(pool, v);
    if (call == NULL)
        return false;
    return value_is_symbol_named(pool, call->callee, "OrderedDict") ||
           value_is_symbol_named(pool, call->callee, "defaultdict") ||
           value_is_symbol_named(pool, call->callee, "Counter") ||
           value_is_symbol_named(pool, call->callee, "dict");
}

static fsdpck_status list_push(pt_flat *f, value list, fsdpck_error *err)
{
    uint64_t *state = value_map_put(&f->lists, list, NULL, err);
    list_frame *top = state == NULL ? NULL : vec_push(&f->list_frames, err);
    if (top == NULL)
        return FSDPCK_LIMIT;
    *state = LIST_IN_PROGRESS;
    *top = (list_frame){.list = list};
    return FSDPCK_OK;
}

/* Whether a dict has a key; one without keys is an object, if kept. */
static bool is_filled(const pt_flat *f, value v)
{
    value dict;
    return is_dict(&f->cat->pool, v) &&
           (!f->keep_empty || !value_as_dict(&f->cat->pool, v, &dict) ||
            value_count(&f->cat->pool, dict) > 0);
}

/* Whether a list holds a tensor or a dict, directly or in inner lists; each list is checked once.
 */
static fsdpck_status list_judge(pt_flat *f, value list, bool *opened, fsdpck_error *err)
{
    const value_pool *pool = &f->cat->pool;
    const uint64_t *known = value_map_find(&f->lists, list);

    if (known == NULL)
        RETURN_IF(list_push(f, list, err));
    while (f->list_frames.count > 0) {
        list_frame *top = VEC_AT(&f->list_frames, list_frame, f->list_frames.count - 1);
        const bool at_end = top->at == value_count(pool, top->list);
        const value item = at_end ? VALUE_OF_NONE : value_item(pool, top->list, top->at);
        bool yes = value_kind_of(item) == VALUE_TENSOR || is_filled(f, item) ||
                   (f->keep_sharded && pt_is_sharded(pool, item));
        if (value_kind_of(item) == VALUE_LIST) {
            const uint64_t *inner = value_map_find(&f->lists, item);
            if (inner == NULL) {
                RETURN_IF(list_push(f, item, err));
                continue;
            }
            yes = *inner == LIST_OPENED;
        }
        top->at++;
        if (yes || at_end) {
            *value_map_find(&f->lists, top->list) = yes ? LIST_OPENED : LIST_CLOSED;
            f->list_frames.count--;
        }
    }
    *opened = *value_map_find(&f->lists, list) == LIST_OPENED;
    return FSDPCK_OK;
}

/* --- names --- */

/* Only the length of the name is reset; this terminates it. */
static const char *name_text(const pt_flat *f)
{
    if (f->name.text == NULL)
        return "";
    f->name.text[f->name.nbytes] = '\0';
    return f->name.text;
}

/* As torch writes keys: str(key). */
static void append_key(text_buf *to, const value_pool *pool, value key)
{
    size_t nbytes;
    if (value_kind_of(key) != VALUE_STR) {
        value_print(pool, key, KEY_NBYTES_LIMIT, to);
        return;
    }
    const char *text = value_text(pool, key, &nbytes);
    text_append(to, text, nbytes);
}

static fsdpck_status name_append_key(pt_flat *f, value key, value *path_key, fsdpck_error *err)
{
    value_pool *pool = &f->cat->pool;

    if (f->frames.count > 1 || f->name.nbytes > 0)
        text_append(&f->name, ".", 1);
    const size_t begin = f->name.nbytes;
    append_key(&f->name, pool, key);
    RETURN_IF(text_check(&f->name, err));
    *path_key = key;
    if (value_kind_of(key) == VALUE_STR)
        return FSDPCK_OK;
    if (value_kind_of(key) == VALUE_INT) /* an int in a path is the index of a list */
        return value_new_bytes(pool, name_text(f) + begin, f->name.nbytes - begin, path_key, err);
    return value_new_str(pool, name_text(f) + begin, f->name.nbytes - begin, path_key, err);
}

static void print_path(const pt_flat *f, value path, char *dst, size_t capacity)
{
    text_buf b = {.limit_bytes = 4096};

    value_print(&f->cat->pool, path, capacity - 8, &b);
    const size_t n = b.nbytes < capacity - 1 ? b.nbytes : capacity - 1;
    if (n > 0)
        memcpy(dst, b.text, n);
    dst[n] = '\0';
    text_release(&b);
}

/* The flat key of the current value; KEY-DUP if another value has it. */
static fsdpck_status name_claim(pt_flat *f, uint32_t *flat, value *path, fsdpck_error *err)
{
    RETURN_IF(value_new_from(&f->cat->pool, VALUE_TUPLE, f->path.items, f->path.count, path, err));
    const size_t before = strtab_count(&f->flat);
    RETURN_IF(strtab_intern(&f->flat, name_text(f), f->name.nbytes, flat, err));
    if (*flat == before) {
        RETURN_IF(vec_add(&f->paths, path, err));
        return FSDPCK_OK;
    }
    char first[256], second[256];
    print_path(f, *VEC_AT(&f->paths, value, *flat), first, sizeof(first));
    print_path(f, *path, second, sizeof(second));
    return FAIL_WITH(
        err, BADINPUT, KEY_DUP, ("two values of the state have the same flat key"),
        (tensor, name_text(f)), (expected, "one of them: %s", first), (found, "also %s", second),
        (next, "rename one of the two keys in the state with Python, and save it again"));
}

static uint64_t other_keys(const pt_flat *f)
{
    uint64_t bits = 0;
    for (size_t i = 0; i < f->frames.count; i++)
        if (VEC_AT(&f->frames, const frame, i)->is_other_key)
            bits |= UINT64_C(1) << i % 64;
    return bits;
}

/* --- leaves --- */

static void container_set(const value_pool *pool, const frame *top, value item)
{
    value_set_item((value_pool *)pool, top->items, top->at, item);
}

/* The tensor of this value; one that already has a path is added again. */
static fsdpck_status tensor_leaf(pt_flat *f, const frame *top, value item, fsdpck_error *err)
{
    torch_archive *a = f->archive;
    uint64_t index = value_tensor_index(item);
    pt_name claimed = {.other_keys = other_keys(f)};

    RETURN_IF(name_claim(f, &claimed.flat, &claimed.path, err));
    if (VEC_AT(&f->names, pt_name, index)->flat != STRTAB_NONE) {
        torch_tensor *t = vec_push(&a->tensors, err);
        if (t == NULL || vec_push(&f->names, err) == NULL)
            return FSDPCK_LIMIT;
        *t = *VEC_AT(&a->tensors, torch_tensor, index);
        index = a->tensors.count - 1;
        if (top != NULL)
            container_set(&f->cat->pool, top, value_of_tensor(index));
    }
    *VEC_AT(&f->names, pt_name, index) = claimed;
    return FSDPCK_OK;
}

static fsdpck_status object_leaf(pt_flat *f, const frame *top, value item, fsdpck_error *err)
{
    uint32_t flat, object;
    value path;

    RETURN_IF(name_claim(f, &flat, &path, err));
    if (!f->keep_sharded && pt_is_sharded(&f->cat->pool, item))
        return FAIL_WITH(err, UNSUPPORTED, PT_TENSOR_KIND,
                         ("a DTensor or ShardedTensor holds only one rank's shard of a tensor"),
                         (tensor, name_text(f)),
                         (next, "give the folder with the files of all ranks; add --source-format "
                                "pt-ranks if the folder also holds other files"));
    RETURN_IF(catalogue_add_object(f->cat, name_text(f), f->name.nbytes, &object, err));
    cat_object *o = catalogue_object(f->cat, object);
    o->path = path;
    o->content = item;
    o->loaded = 1;
    pt_object_place *kept = vec_push(&f->objects, err);
    if (kept == NULL)
        return FSDPCK_LIMIT;
    *kept =
        (pt_object_place){.object = object, .is_root = top == NULL, .other_keys = other_keys(f)};
    if (top != NULL) {
        kept->items = top->items;
        kept->at = top->at;
    }
    return FSDPCK_OK;
}

/* --- containers --- */

/* A dict-like call keeps its pairs in dict_items from here on, wherever the pickle had them. */
static fsdpck_status dict_of(pt_flat *f, value v, value *dict, fsdpck_error *err)
{
    value_pool *pool = &f->cat->pool;

    if (value_kind_of(v) == VALUE_DICT) {
        *dict = v;
        return FSDPCK_OK;
    }
    if (!value_as_dict(pool, v, dict))
        return error_set_nomem(err, 0);
    if (value_call_of(pool, v)->dict_items == *dict)
        return FSDPCK_OK;
    const value first = value_item(pool, value_call_of(pool, v)->args, 0);
    if (value_kind_of(first) == VALUE_LIST || value_kind_of(first) == VALUE_DICT) {
        value none;
        RETURN_IF(value_new_from(pool, VALUE_TUPLE, NULL, 0, &none, err));
        value_call_of(pool, v)->args = none;
    }
    value_call_of(pool, v)->dict_items = *dict;
    return FSDPCK_OK;
}

static fsdpck_status fail_key(const pt_flat *f, value first, value second, fsdpck_error *err)
{
    char a[256], b[256];
    print_path(f, first, a, sizeof(a));
    print_path(f, second, b, sizeof(b));
    return FAIL_WITH(
        err, BADINPUT, KEY_DUP, ("two keys of a dict in the state have the same text"),
        (tensor, name_text(f)), (expected, "one of them: %s", a), (found, "also %s", b),
        (next, "rename one of the two keys in the state with Python, and save it again"));
}

/* In paths, ints differ from texts; other keys are their texts. */
static bool is_other_key(value key)
{
    return value_kind_of(key) != VALUE_STR && value_kind_of(key) != VALUE_INT;
}

static fsdpck_status check_key(const pt_flat *f, value key, strtab *texts, vec *first,
                               text_buf *text, fsdpck_error *err)
{
    uint32_t id;
    text->nbytes = 0;
    append_key(text, &f->cat->pool, key);
    RETURN_IF(text_check(text, err));
    RETURN_IF(strtab_intern(texts, text->text == NULL ? "" : text->text, text->nbytes, &id, err));
    if (id == first->count)
        return vec_add(first, &key, err);
    const value known = *VEC_AT(first, const value, id);
    return is_other_key(known) || is_other_key(key) ? fail_key(f, known, key, err) : FSDPCK_OK;
}

/* Keys such as None and 'None' would have one path. Those of rank files are compared across the ranks. */
static fsdpck_status check_keys(const pt_flat *f, value dict, fsdpck_error *err)
{
    const value_pool *pool = &f->cat->pool;
    const size_t count = value_count(pool, dict);
    size_t plain = 0;
    while (plain < count && !is_other_key(value_key(pool, dict, plain)))
        plain++;
    if (plain == count)
        return FSDPCK_OK;
    strtab texts;
    vec first = VEC_OF(value, f->cat->owner);
    text_buf text = {0};
    fsdpck_status st = FSDPCK_OK;
    strtab_init(&texts, f->cat->owner);
    for (size_t i = 0; i < count && st == FSDPCK_OK; i++)
        st = check_key(f, value_key(pool, dict, i), &texts, &first, &text, err);
    text_release(&text);
    vec_release(&first);
    strtab_release(&texts);
    return st;
}

/* A container's copy for its second path: same keys and items. */
static fsdpck_status unshare(pt_flat *f, const frame *top, value *owner, value *items,
                             fsdpck_error *err)
{
    value_pool *pool = &f->cat->pool;
    const bool dict = value_kind_of(*items) == VALUE_DICT;
    value copy;

    RETURN_IF(dict ? value_new_dict(pool, &copy, err) : value_new_list(pool, &copy, err));
    for (size_t i = 0; i < value_count(pool, *items); i++) {
        const value item = value_item(pool, *items, i);
        RETURN_IF(dict ? value_dict_put(pool, copy, value_key(pool, *items, i), item, err)
                       : value_append(pool, copy, item, err));
    }
    if (*owner == *items) {
        *owner = copy;
    } else {
        value_call call = *value_call_of(pool, *owner);
        call.dict_items = copy;
        RETURN_IF(value_new_call(pool, &call, owner, err));
    }
    *items = copy;
    if (top != NULL)
        container_set(pool, top, *owner);
    return FSDPCK_OK;
}

static fsdpck_status keep_attributes(pt_flat *f, value owner, fsdpck_error *err)
{
    const value_call *call = value_call_of(&f->cat->pool, owner);
    if (call == NULL || !call->has_state)
        return FSDPCK_OK;
    pt_attributes a = {.state = call->state};
    const bool is_root = f->name.nbytes == 0;
    RETURN_IF(value_new_str(&f->cat->pool, is_root ? "object" : name_text(f),
                            is_root ? strlen("object") : f->name.nbytes, &a.name, err));
    return vec_add(&f->attributes, &a, err);
}

static fsdpck_status enter(pt_flat *f, const frame *top, value v, fsdpck_error *err)
{
    const value_pool *pool = &f->cat->pool;
    value items = v;

    if (f->frames.count >= DEPTH_LIMIT)
        return FAIL(err, LIMIT, PKL_DEPTH, "state is nested more than %d deep", DEPTH_LIMIT);
    if (value_kind_of(v) != VALUE_LIST)
        RETURN_IF(dict_of(f, v, &items, err));
    if (f->keep_empty && top != NULL && value_count(&f->cat->pool, items) == 0)
        return object_leaf(f, top, v, err);
    if (f->on_dict != NULL && value_kind_of(v) != VALUE_LIST && value_count(pool, items) > 0)
        RETURN_IF(f->on_dict(f->ctx, name_text(f), f->name.nbytes, v, err));
    if (value_kind_of(items) == VALUE_DICT && !f->keep_sharded)
        RETURN_IF(check_keys(f, items, err));
    uint64_t *seen = value_map_put(&f->seen, v, NULL, err);
    if (seen == NULL)
        return FSDPCK_LIMIT;
    if (*seen == SEEN_OPEN)
        return FAIL_WITH(err, BADINPUT, PKL_CYCLE, ("state contains itself"),
                         (tensor, name_text(f)));
    if (*seen == SEEN_DONE) {
        RETURN_IF(unshare(f, top, &v, &items, err));
        seen = value_map_put(&f->seen, v, NULL, err);
        if (seen == NULL)
            return FSDPCK_LIMIT;
    }
    *seen = SEEN_OPEN;
    RETURN_IF(vec_add(&f->frames,
                      &(frame){.items = items, .owner = v, .name_nbytes = f->name.nbytes}, err));
    return keep_attributes(f, v, err);
}

/* `top` is a copy of the frame that holds v, or NULL for the root. */
static fsdpck_status place_visit(pt_flat *f, const frame *top, value v, fsdpck_error *err)
{
    bool opened = is_dict(&f->cat->pool, v);

    if (++f->steps > f->steps_limit)
        return FAIL(err, LIMIT, PKL_EXPAND,
                    "state is too large: too many references to shared values");
    if (value_kind_of(v) == VALUE_LIST)
        RETURN_IF(list_judge(f, v, &opened, err));
    if (opened)
        return enter(f, top, v, err);
    /* A root without keys has no name. */
    if (top == NULL)
        text_puts(&f->name, value_kind_of(v) == VALUE_TENSOR ? "tensor" : "object");
    RETURN_IF(text_check(&f->name, err));
    return value_kind_of(v) == VALUE_TENSOR ? tensor_leaf(f, top, v, err)
                                            : object_leaf(f, top, v, err);
}

static fsdpck_status walk(pt_flat *f, fsdpck_error *err)
{
    value_pool *pool = &f->cat->pool;

    while (f->frames.count > 0) {
        frame *in_place = VEC_AT(&f->frames, frame, f->frames.count - 1);
        const frame top = *in_place;
        f->name.nbytes = top.name_nbytes;
        f->path.count = f->frames.count - 1;
        if (top.at == value_count(pool, top.items)) {
            uint64_t *seen = value_map_find(&f->seen, top.owner);
            *seen = SEEN_DONE;
            f->frames.count--;
            continue;
        }
        in_place->at++;
        const bool dict = value_kind_of(top.items) == VALUE_DICT;
        value key, path_key;
        if (dict)
            key = value_key(pool, top.items, top.at);
        else
            RETURN_IF(value_new_int(pool, (int64_t)top.at, &key, err));
        in_place->is_other_key = is_other_key(key);
        RETURN_IF(name_append_key(f, key, &path_key, err));
        RETURN_IF(vec_add(&f->path, &(value){dict ? path_key : key}, err));
        RETURN_IF(place_visit(f, &top, value_item(pool, top.items, top.at), err));
    }
    return FSDPCK_OK;
}

fsdpck_status pt_flatten(pt_flat *f, fsdpck_error *err)
{
    const size_t count = f->archive->tensors.count;

    if (count > 0 && vec_push_n(&f->names, count, err) == NULL)
        return FSDPCK_LIMIT;
    for (size_t i = 0; i < count; i++)
        *VEC_AT(&f->names, pt_name, i) = (pt_name){.flat = STRTAB_NONE};
    f->steps_limit = STEPS_LEAST + STEPS_PER_CELL * f->cat->pool.cells.count;
    RETURN_IF(place_visit(f, NULL, f->archive->root, err));
    return walk(f, err);
}
