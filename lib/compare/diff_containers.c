/* Containers of two torch.save files that tensors and objects do not show: a list beside a dict with
 * the keys 0, 1, ..., and attributes of dicts, such as _metadata of a state dict. */
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "compare/diff.h"
#include "state/value_map.h"

enum {
    ROWS_MAX = 64,
    SHOWN_NBYTES = 120,
    NAME_NBYTES_MAX = 8 << 20, /* a state has at most 1,000 keys of 4,096 bytes in each other */
};

/* Containers at one place of both files. */
typedef struct place_pair {
    value a, b;
    uint32_t parent; /* in the queue; CAT_NONE: the root */
    value key;       /* in A's pool: of the parent, or an index */
} place_pair;

/* Containers of a dict, by the text of their keys. */
typedef struct key_index {
    strtab texts;
    vec places;
    bool made;
} key_index;

typedef struct container_search {
    fsdpck_diff *d;
    const select_rules *rules;
    uint64_t *zeros; /* for each tensor: they are compared elsewhere */
    value_pool *a, *b;
    value_map seen; /* containers of A: the reader gives each place a dict of its own */
    vec queue;
    size_t rows;
} container_search;

static bool is_container(value v)
{
    const value_kind kind = value_kind_of(v);
    return kind == VALUE_DICT || kind == VALUE_LIST || kind == VALUE_CALL;
}

static fsdpck_status enqueue(container_search *s, value a, value b, uint32_t parent, value key,
                             fsdpck_error *err)
{
    bool fresh;
    if (!is_container(a) || !is_container(b))
        return FSDPCK_OK;
    if (value_map_put(&s->seen, a, &fresh, err) == NULL)
        return FSDPCK_LIMIT;
    return fresh ? vec_add(&s->queue, &(place_pair){a, b, parent, key}, err) : FSDPCK_OK;
}

static fsdpck_status print_key(const value_pool *pool, value key, text_buf *text, fsdpck_error *err)
{
    text->nbytes = 0;
    value_print(pool, key, UINT32_MAX, text);
    return text_check(text, err);
}

static fsdpck_status index_keys(const value_pool *pool, value dict, key_index *x, text_buf *text,
                                fsdpck_error *err)
{
    for (size_t i = 0; i < value_count(pool, dict); i++) {
        const size_t before = strtab_count(&x->texts);
        uint32_t id;
        if (!is_container(value_item(pool, dict, i)))
            continue;
        RETURN_IF(print_key(pool, value_key(pool, dict, i), text, err));
        RETURN_IF(strtab_intern(&x->texts, text->text, text->nbytes, &id, err));
        if (id == before)
            RETURN_IF(vec_add(&x->places, &i, err));
    }
    x->made = true;
    return FSDPCK_OK;
}

/* *at: the place in dict `b` of A's key, searched first at *at; the count of `b` if it has no container there. */
static fsdpck_status find_key(const container_search *s, value key, value b, key_index *x,
                              size_t *at, fsdpck_error *err)
{
    text_buf text = {.limit_bytes = UINT32_MAX};
    bool same = false;
    uint32_t id = STRTAB_NONE;
    if (*at < value_count(s->b, b))
        RETURN_IF(value_equal(s->a, key, s->b, value_key(s->b, b, *at), &same, err));
    if (same)
        return FSDPCK_OK;
    *at = value_count(s->b, b);
    fsdpck_status st = x->made ? FSDPCK_OK : index_keys(s->b, b, x, &text, err);
    if (st == FSDPCK_OK)
        st = print_key(s->a, key, &text, err);
    if (st == FSDPCK_OK)
        id = strtab_find(&x->texts, text.text, text.nbytes);
    text_release(&text);
    if (id != STRTAB_NONE)
        *at = *VEC_AT(&x->places, const size_t, id);
    return st;
}

static fsdpck_status enqueue_dict(container_search *s, value a, value b, uint32_t parent,
                                  key_index *x, fsdpck_error *err)
{
    const size_t count = value_count(s->a, a), others = value_count(s->b, b);
    size_t next = 0;
    for (size_t i = 0; i < count; i++) {
        const value item = value_item(s->a, a, i), key = value_key(s->a, a, i);
        size_t at = next;
        if (!is_container(item)) {
            next++;
            continue;
        }
        RETURN_IF(find_key(s, key, b, x, &at, err));
        if (at == others)
            continue;
        next = at + 1;
        RETURN_IF(enqueue(s, item, value_item(s->b, b, at), parent, key, err));
    }
    return FSDPCK_OK;
}

static fsdpck_status enqueue_items(container_search *s, value a, value b, uint32_t parent,
                                   fsdpck_error *err)
{
    const size_t count = value_count(s->a, a), others = value_count(s->b, b);
    budget *owner = &s->d->a.src->metadata;
    fsdpck_status st = FSDPCK_OK;
    value index;
    if (value_kind_of(a) == VALUE_DICT) {
        key_index x = {.places = VEC_OF(size_t, owner)};
        strtab_init(&x.texts, owner);
        st = enqueue_dict(s, a, b, parent, &x, err);
        strtab_release(&x.texts);
        vec_release(&x.places);
        return st;
    }
    for (size_t i = 0; st == FSDPCK_OK && i < count && i < others; i++) {
        if (!is_container(value_item(s->a, a, i)))
            continue;
        RETURN_IF(value_new_int(s->a, (int64_t)i, &index, err));
        st = enqueue(s, value_item(s->a, a, i), value_item(s->b, b, i), parent, index, err);
    }
    return st;
}

static fsdpck_status name_place(const container_search *s, size_t at, text_buf *name,
                                fsdpck_error *err)
{
    vec keys = VEC_OF(value, &s->d->a.src->metadata);
    fsdpck_status st = FSDPCK_OK;
    const place_pair *p = VEC_AT(&s->queue, const place_pair, at);
    for (; st == FSDPCK_OK && p->parent != CAT_NONE;
         p = VEC_AT(&s->queue, const place_pair, p->parent))
        st = vec_add(&keys, &p->key, err);
    if (keys.count == 0)
        text_puts(name, "the outermost dict");
    for (size_t i = keys.count; i > 0; i--) {
        const value key = *VEC_AT(&keys, const value, i - 1);
        size_t nbytes;
        const char *text = value_text(s->a, key, &nbytes);
        if (i < keys.count)
            text_append(name, ".", 1);
        if (value_kind_of(key) == VALUE_STR)
            text_append(name, text, nbytes);
        else
            value_print(s->a, key, SHOWN_NBYTES, name);
    }
    text_append(name, "", 0);
    vec_release(&keys);
    return st == FSDPCK_OK ? text_check(name, err) : st;
}

static fsdpck_status add_row(container_search *s, const text_buf *name, const char *a,
                             const char *b, fsdpck_error *err)
{
    fsdpck_diff *d = s->d;
    diff_row row = {.kind = FSDPCK_DIFF_OBJECT, .a = CAT_NONE, .b = CAT_NONE};
    if (!select_rules_match((select_rules *)s->rules, name->text))
        return FSDPCK_OK;
    row.text_at = d->texts.nbytes;
    text_append(&d->texts, a, strlen(a) + 1);
    row.text_b_at = d->texts.nbytes;
    text_append(&d->texts, b, strlen(b) + 1);
    row.name_at = d->texts.nbytes;
    row.name_nbytes = name->nbytes;
    text_append(&d->texts, name->text, name->nbytes + 1);
    RETURN_IF(text_check(&d->texts, err));
    s->rows++;
    return diff_add_row(d, &row, err);
}

/* The attributes of a dict; None if it has none. */
static value attributes_of(const value_pool *pool, value v)
{
    const value_call *call = value_call_of(pool, v);
    if (call == NULL || !call->has_state ||
        (value_kind_of(call->state) == VALUE_DICT && value_count(pool, call->state) == 0))
        return VALUE_OF_NONE;
    return call->state;
}

static fsdpck_status print_attributes(const value_pool *pool, value v, text_buf *text,
                                      fsdpck_error *err)
{
    if (value_is_none(v))
        text_puts(text, "no attributes");
    else
        text_puts(text, "attributes ");
    if (!value_is_none(v))
        value_print(pool, v, SHOWN_NBYTES, text);
    return text_check(text, err);
}

static fsdpck_status compare_attributes(container_search *s, const place_pair *p, size_t at,
                                        fsdpck_error *err)
{
    const value a = attributes_of(s->a, p->a), b = attributes_of(s->b, p->b);
    value_pool pool;
    value both[2];
    text_buf texts[2] = {{0}, {0}}, name = {.limit_bytes = NAME_NBYTES_MAX};
    bool equal = true;
    if (value_is_none(a) && value_is_none(b))
        return FSDPCK_OK;
    value_pool_init(&pool, &s->d->a.src->metadata);
    fsdpck_status st = value_copy(s->a, a, &pool, s->zeros, &both[0], err);
    if (st == FSDPCK_OK)
        st = value_copy(s->b, b, &pool, s->zeros, &both[1], err);
    if (st == FSDPCK_OK)
        st = value_equal(&pool, both[0], &pool, both[1], &equal, err);
    for (int i = 0; st == FSDPCK_OK && !equal && i < 2; i++)
        st = print_attributes(&pool, both[i], &texts[i], err);
    if (st == FSDPCK_OK && !equal)
        st = name_place(s, at, &name, err);
    if (st == FSDPCK_OK && !equal)
        st = add_row(s, &name, texts[0].text, texts[1].text, err);
    text_release(&texts[0]);
    text_release(&texts[1]);
    text_release(&name);
    value_pool_release(&pool);
    return st;
}

/* Whether tensors and objects are named through a list. */
static bool is_opened_list(value_pool *pool, value v)
{
    value dict;
    for (size_t i = 0; value_kind_of(v) == VALUE_LIST && i < value_count(pool, v); i++) {
        const value item = value_item(pool, v, i);
        if (value_kind_of(item) == VALUE_TENSOR || value_as_dict(pool, item, &dict))
            return true;
    }
    return false;
}

static fsdpck_status compare_kinds(container_search *s, size_t at, bool list_in_a,
                                   fsdpck_error *err)
{
    text_buf name = {.limit_bytes = NAME_NBYTES_MAX};
    fsdpck_status st = name_place(s, at, &name, err);
    if (st == FSDPCK_OK)
        st = add_row(s, &name, list_in_a ? "list" : "dict", list_in_a ? "dict" : "list", err);
    text_release(&name);
    return st;
}

static fsdpck_status search(container_search *s, fsdpck_error *err)
{
    for (size_t at = 0; at < s->queue.count && s->rows < ROWS_MAX; at++) {
        const place_pair p = *VEC_AT(&s->queue, const place_pair, at);
        const bool lists[2] = {value_kind_of(p.a) == VALUE_LIST, value_kind_of(p.b) == VALUE_LIST};
        value a = p.a, b = p.b;
        if ((!lists[0] && !value_as_dict(s->a, p.a, &a)) ||
            (!lists[1] && !value_as_dict(s->b, p.b, &b)))
            continue;
        if (lists[0] != lists[1]) {
            if (value_count(s->a, a) > 0 && value_count(s->b, b) > 0 &&
                is_opened_list(lists[0] ? s->a : s->b, lists[0] ? a : b))
                RETURN_IF(compare_kinds(s, at, lists[0], err));
            continue;
        }
        RETURN_IF(compare_attributes(s, &p, at, err));
        RETURN_IF(enqueue_items(s, a, b, (uint32_t)at, err));
    }
    s->d->may_have_more = s->rows == ROWS_MAX;
    return FSDPCK_OK;
}

/* Both are torch.save files whose names no option changes. */
static bool is_comparable(const fsdpck_diff *d)
{
    const fsdpck_select_options *w = &d->a.opt.select;
    const catalogue *a = &d->a.src->cat, *b = &d->b.src->cat;
    const bool renames =
        w->strip_prefix_count > 0 || (w->rename_count > 0 && d->optimizer_rule[0] == '\0');
    return w->part == FSDPCK_PART_ALL && !renames && a->origin.types_keys && b->origin.types_keys &&
           !value_is_none(a->root) && !value_is_none(b->root);
}

fsdpck_status diff_containers(fsdpck_diff *d, fsdpck_error *err)
{
    budget *owner = &d->a.src->metadata;
    const select_options options = {.exclude = d->a.selected.forms.options.exclude,
                                    .exclude_count = d->a.opt.select.exclude_count};
    select_rules rules;
    container_search s = {.d = d,
                          .rules = &rules,
                          .a = &d->a.src->cat.pool,
                          .b = &d->b.src->cat.pool,
                          .seen = VALUE_MAP(owner),
                          .queue = VEC_OF(place_pair, owner)};
    if (!is_comparable(d))
        return FSDPCK_OK;
    const uint64_t na = catalogue_tensor_count(&d->a.src->cat);
    const uint64_t nb = catalogue_tensor_count(&d->b.src->cat);
    const uint64_t nbytes = ((na > nb ? na : nb) + 1) * sizeof *s.zeros;
    fsdpck_status st = select_rules_compile(&options, &rules, err);
    if (st == FSDPCK_OK && (s.zeros = calloc(1, nbytes)) == NULL)
        st = error_set_nomem(err, nbytes);
    if (st == FSDPCK_OK)
        st = enqueue(&s, d->a.src->cat.root, d->b.src->cat.root, CAT_NONE, VALUE_OF_NONE, err);
    if (st == FSDPCK_OK)
        st = search(&s, err);
    free(s.zeros);
    select_rules_release(&rules);
    value_map_release(&s.seen);
    vec_release(&s.queue);
    return st;
}
