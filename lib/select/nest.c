#include "select/nest.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Limit of list indices: larger ones would exhaust memory. */
#define LIST_INDEX_MAX ((uint64_t)1 << 24)

#define SLOT_NONE UINT32_MAX

fsdpck_status nest_init(nest *n, value_pool *pool, fsdpck_error *err)
{
    *n = (nest){.pool = pool};
    n->slots = VEC_OF(nest_slot, pool->owner);
    return value_new_dict(pool, &n->root, err);
}

static size_t bucket_of(const nest *n, value container, value element)
{
    uint64_t h = (container ^ (element << 17) ^ (element >> 47)) * UINT64_C(0x9E3779B97F4A7C15);
    h ^= h >> 32;
    return (size_t)h & (n->bucket_count - 1);
}

static fsdpck_status grow_buckets(nest *n, fsdpck_error *err)
{
    if (n->slots.count < n->bucket_count / 2)
        return FSDPCK_OK;
    const size_t count = n->bucket_count == 0 ? 64 : n->bucket_count * 2;
    uint32_t *buckets = malloc(count * sizeof *buckets);
    if (buckets == NULL)
        return error_set_nomem(err, count * sizeof *buckets);
    memset(buckets, 0xff, count * sizeof *buckets);
    free(n->buckets);
    n->buckets = buckets;
    n->bucket_count = count;
    for (size_t i = 0; i < n->slots.count; i++) {
        nest_slot *s = VEC_AT(&n->slots, nest_slot, i);
        const size_t b = bucket_of(n, s->container, s->element);
        s->next = buckets[b];
        buckets[b] = (uint32_t)i;
    }
    return FSDPCK_OK;
}

static nest_slot *find_slot(const nest *n, value container, value element)
{
    if (n->bucket_count == 0)
        return NULL;
    for (uint32_t i = n->buckets[bucket_of(n, container, element)]; i != SLOT_NONE;) {
        nest_slot *s = VEC_AT(&n->slots, nest_slot, i);
        if (s->container == container && s->element == element)
            return s;
        i = s->next;
    }
    return NULL;
}

bool nest_has(const nest *n, value container, value element)
{
    return find_slot(n, container, element) != NULL;
}

static fsdpck_status add_slot(nest *n, uint32_t parent, value container, value element, value child,
                              fsdpck_error *err)
{
    RETURN_IF(grow_buckets(n, err));
    nest_slot *s = vec_push(&n->slots, err);
    if (s == NULL)
        return FSDPCK_LIMIT;
    const size_t b = bucket_of(n, container, element);
    *s = (nest_slot){.container = container,
                     .element = element,
                     .child = child,
                     .next = n->buckets[b],
                     .parent = parent};
    n->buckets[b] = (uint32_t)(n->slots.count - 1);
    return FSDPCK_OK;
}

/* The int that the digits of a BYTES element say; other elements stay. */
static fsdpck_status int_key(nest *n, value *element, fsdpck_error *err)
{
    size_t nbytes;
    if (value_kind_of(*element) != VALUE_BYTES)
        return FSDPCK_OK;
    const char *text = value_text(n->pool, *element, &nbytes); /* NUL-terminated */
    char *end;
    errno = 0;
    const long long key = strtoll(text, &end, 10);
    if (errno != 0 || nbytes == 0 || end != text + nbytes)
        return FAIL(err, BADINPUT, KEY_NEST, "path has an invalid int key");
    return value_new_int(n->pool, key, element, err);
}

static fsdpck_status attach(nest *n, value container, value element, value child, fsdpck_error *err)
{
    if (value_kind_of(container) == VALUE_DICT) {
        RETURN_IF(int_key(n, &element, err));
        return value_dict_put(n->pool, container, element, child, err);
    }
    uint64_t index;
    if (!value_as_u64(n->pool, element, &index) || index > LIST_INDEX_MAX)
        return FAIL(err, BADINPUT, KEY_NEST, "path has an invalid list index");
    while (value_count(n->pool, container) <= index)
        RETURN_IF(value_append(n->pool, container, VALUE_OF_NONE, err));
    value_set_item(n->pool, container, (size_t)index, child);
    return FSDPCK_OK;
}

static fsdpck_status refuse_clash(fsdpck_error *err)
{
    return FAIL(err, BADINPUT, KEY_NEST, "two paths conflict at one position of the nested state");
}

/* The element's kind determines the kind of its container. */
static bool fits(value container, value element)
{
    const bool is_list = value_kind_of(container) == VALUE_LIST;
    return is_list == (value_kind_of(element) == VALUE_INT);
}

/* A leaf that is an empty container can still be filled. */
static bool may_open(const nest *n, const nest_slot *s)
{
    const value_kind kind = value_kind_of(s->child);
    return s->opens ||
           ((kind == VALUE_DICT || kind == VALUE_LIST) && value_count(n->pool, s->child) == 0);
}

fsdpck_status nest_put(nest *n, const value *elements, size_t count, value leaf, fsdpck_error *err)
{
    return nest_put_like(n, elements, count, leaf, NULL, 0, err);
}

fsdpck_status nest_put_like(nest *n, const value *elements, size_t count, value leaf,
                            const value *like, size_t like_count, fsdpck_error *err)
{
    if (like_count != count)
        like = NULL;
    if (n->slots.count == 0 && value_kind_of(elements[0]) == VALUE_INT)
        RETURN_IF(value_new_list(n->pool, &n->root, err));
    value at = n->root;
    uint32_t parent = SLOT_NONE;
    for (size_t i = 0; i < count; i++) {
        n->has_lists = n->has_lists || value_kind_of(elements[i]) == VALUE_INT;
        if (!fits(at, elements[i]))
            return refuse_clash(err);
        nest_slot *s = find_slot(n, at, elements[i]);
        const bool last = i + 1 == count;
        if (s != NULL) {
            if (last || !may_open(n, s))
                return refuse_clash(err);
            s->opens = true;
            if (like == NULL || like[i] != s->like) /* two containers of the source became one */
                s->like = VALUE_OF_NONE;
            at = s->child;
            parent = (uint32_t)(s - (const nest_slot *)n->slots.items);
            continue;
        }
        value child = leaf;
        if (!last && value_kind_of(elements[i + 1]) == VALUE_INT)
            RETURN_IF(value_new_list(n->pool, &child, err));
        else if (!last)
            RETURN_IF(value_new_dict(n->pool, &child, err));
        RETURN_IF(attach(n, at, elements[i], child, err));
        RETURN_IF(add_slot(n, parent, at, elements[i], child, err));
        at = child;
        parent = (uint32_t)(n->slots.count - 1);
        nest_slot *fresh = VEC_AT(&n->slots, nest_slot, parent);
        fresh->opens = !last;
        fresh->like = like == NULL ? VALUE_OF_NONE : like[i];
    }
    return FSDPCK_OK;
}

/* The other key of the same text: an int's for a text and the reverse. VALUE_OF_NONE: there is none. */
static fsdpck_status twin_of(nest *n, value element, value *twin, fsdpck_error *err)
{
    const value_kind kind = value_kind_of(element);
    size_t nbytes = 0;
    const char *text =
        kind == VALUE_BYTES || kind == VALUE_STR ? value_text(n->pool, element, &nbytes) : NULL;
    *twin = VALUE_OF_NONE;
    if (nbytes == 0 || !(text[0] == '-' || (text[0] >= '0' && text[0] <= '9')))
        return FSDPCK_OK;
    char digits[32];
    if (nbytes > sizeof digits)
        return FSDPCK_OK;
    memcpy(digits, text, nbytes); /* the pool may move */
    return kind == VALUE_STR ? value_new_bytes(n->pool, digits, nbytes, twin, err)
                             : value_new_str(n->pool, digits, nbytes, twin, err);
}

fsdpck_status nest_find_twin(nest *n, const value *elements, size_t count, bool *found,
                             fsdpck_error *err)
{
    value at = n->root;
    *found = false;
    for (size_t i = 0; i < count; i++)
        n->has_int_keys = n->has_int_keys || value_kind_of(elements[i]) == VALUE_BYTES;
    for (size_t i = 0; n->has_int_keys && i < count && !*found; i++) {
        value twin;
        const nest_slot *s = find_slot(n, at, elements[i]);
        RETURN_IF(twin_of(n, elements[i], &twin, err));
        *found = !value_is_none(twin) && find_slot(n, at, twin) != NULL;
        if (s == NULL)
            break;
        at = s->child;
    }
    return FSDPCK_OK;
}

void nest_forget_likes(nest *n)
{
    for (size_t i = 0; i < n->slots.count; i++)
        VEC_AT(&n->slots, nest_slot, i)->like = VALUE_OF_NONE;
}

void nest_find_opened(nest *n)
{
    /* Items were put after their container. */
    for (size_t i = n->slots.count; i-- > 0;) {
        const nest_slot *s = VEC_AT(&n->slots, const nest_slot, i);
        const value_kind kind = value_kind_of(s->child);
        if (s->parent != SLOT_NONE &&
            (kind == VALUE_TENSOR || kind == VALUE_DICT || (kind == VALUE_LIST && s->is_opened)))
            VEC_AT(&n->slots, nest_slot, s->parent)->is_opened = true;
    }
    n->has_opened = true;
}

nest_gap nest_find_gap(const nest *n, const value *elements, size_t count)
{
    value at = n->root;
    bool closed = false;
    for (size_t i = 0; i < count; i++) {
        const value_kind kind = value_kind_of(at);
        uint64_t index;
        if ((kind != VALUE_DICT && kind != VALUE_LIST) || !fits(at, elements[i]))
            return NEST_GAP_NONE;
        const nest_slot *s = find_slot(n, at, elements[i]);
        if (s == NULL && kind == VALUE_LIST && value_as_u64(n->pool, elements[i], &index) &&
            index < value_count(n->pool, at))
            return NEST_GAP_ITEM;
        if (s == NULL)
            return closed ? NEST_GAP_TENSOR : NEST_GAP_NONE;
        at = s->child;
        closed = closed || (n->has_opened && value_kind_of(at) == VALUE_LIST && !s->is_opened);
    }
    return NEST_GAP_NONE;
}

static fsdpck_status fill_list(nest *n, value list, fsdpck_error *err)
{
    for (size_t i = 0; i < value_count(n->pool, list); i++) {
        value index, dict;
        if (!value_is_none(value_item(n->pool, list, i)))
            continue;
        RETURN_IF(value_new_int(n->pool, (int64_t)i, &index, err));
        if (find_slot(n, list, index) != NULL)
            continue;
        RETURN_IF(value_new_dict(n->pool, &dict, err));
        value_set_item(n->pool, list, i, dict);
    }
    return FSDPCK_OK;
}

fsdpck_status nest_fill_holes(nest *n, fsdpck_error *err)
{
    if (value_kind_of(n->root) == VALUE_LIST)
        RETURN_IF(fill_list(n, n->root, err));
    for (size_t i = 0; n->has_lists && i < n->slots.count; i++) {
        const nest_slot *s = VEC_AT(&n->slots, const nest_slot, i);
        if (s->opens && value_kind_of(s->child) == VALUE_LIST)
            RETURN_IF(fill_list(n, s->child, err));
    }
    return FSDPCK_OK;
}

void nest_release(nest *n)
{
    vec_release(&n->slots);
    free(n->buckets);
    *n = (nest){0};
}
