/* Containers of two torch.save files that tensors and objects do not show: a list beside a dict with
 * the keys 0, 1, ..., and attributes of dicts, such as _metadata of a state dict. */
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "compare/diff.h"
#include "state/value_map.h"

enum {
    DEPTH_MAX = 64,
    ROWS_MAX = 64,
    SHOWN_NBYTES = 120,
};

/* Limit of the keys that are compared: files with the same keys in the same order need few. */
#define KEYS_MAX ((uint64_t)1 << 26)

/* Containers at one place of both files. */
typedef struct place_pair {
    value a, b;
    uint32_t parent; /* in the queue; CAT_NONE: the root */
    value key;       /* in A's pool: of the parent, or an index */
    uint32_t depth;
} place_pair;

typedef struct container_search {
    fsdpck_diff *d;
    const select_rules *rules;
    uint64_t *zeros; /* for each tensor: they are compared elsewhere */
    value_pool *a, *b;
    value_map seen; /* containers of A */
    vec queue;
    uint64_t keys;
    size_t rows;
} container_search;

static bool is_container(value v)
{
    const value_kind kind = value_kind_of(v);
    return kind == VALUE_DICT || kind == VALUE_LIST || kind == VALUE_CALL;
}

static fsdpck_status enqueue(container_search *s, value a, value b, uint32_t parent, value key,
                             uint32_t depth, fsdpck_error *err)
{
    bool fresh;
    if (!is_container(a) || !is_container(b) || depth > DEPTH_MAX)
        return FSDPCK_OK;
    if (value_map_put(&s->seen, a, &fresh, err) == NULL)
        return FSDPCK_LIMIT;
    const place_pair next = {a, b, parent, key, depth};
    return fresh ? vec_add(&s->queue, &next, err) : FSDPCK_OK;
}

static bool same_key(const container_search *s, value a, value b)
{
    size_t a_nbytes, b_nbytes;
    int64_t x, y;
    if (value_kind_of(a) == VALUE_STR && value_kind_of(b) == VALUE_STR) {
        const char *text = value_text(s->a, a, &a_nbytes);
        const char *other = value_text(s->b, b, &b_nbytes);
        return text_equal(text, a_nbytes, other, b_nbytes);
    }
    return value_kind_of(a) == VALUE_INT && value_kind_of(b) == VALUE_INT &&
           value_as_i64(s->a, a, &x) && value_as_i64(s->b, b, &y) && x == y;
}

static fsdpck_status enqueue_items(container_search *s, value a, value b, uint32_t parent,
                                   uint32_t depth, fsdpck_error *err)
{
    const size_t count = value_count(s->a, a), others = value_count(s->b, b);
    const bool is_dict = value_kind_of(a) == VALUE_DICT;
    size_t next = 0;
    for (size_t i = 0; i < count && others > 0; i++) {
        const value item = value_item(s->a, a, i);
        value key = value_key(s->a, a, i);
        size_t k = i, steps = 0;
        if (!is_container(item) || (!is_dict && i >= others))
            continue;
        if (!is_dict)
            RETURN_IF(value_new_int(s->a, (int64_t)i, &key, err));
        for (k = is_dict ? next : i; is_dict && steps < others; steps++, k = (k + 1) % others)
            if (++s->keys > KEYS_MAX || same_key(s, key, value_key(s->b, b, k)))
                break;
        if (s->keys > KEYS_MAX || (is_dict && steps == others))
            continue;
        next = is_dict ? (k + 1) % others : 0;
        RETURN_IF(enqueue(s, item, value_item(s->b, b, k), parent, key, depth, err));
    }
    return FSDPCK_OK;
}

static void name_place(const container_search *s, size_t at, text_buf *name)
{
    value keys[DEPTH_MAX + 1];
    const place_pair *p = VEC_AT(&s->queue, const place_pair, at);
    const uint32_t depth = p->depth;
    if (depth == 0)
        text_puts(name, "the outermost dict");
    for (uint32_t i = depth; i > 0; i--) {
        keys[i - 1] = p->key;
        p = VEC_AT(&s->queue, const place_pair, p->parent);
    }
    for (uint32_t i = 0; i < depth; i++) {
        size_t nbytes;
        const char *text = value_text(s->a, keys[i], &nbytes);
        if (i > 0)
            text_append(name, ".", 1);
        if (value_kind_of(keys[i]) == VALUE_STR)
            text_append(name, text, nbytes);
        else
            value_print(s->a, keys[i], SHOWN_NBYTES, name);
    }
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
    text_buf texts[2] = {{0}, {0}}, name = {.limit_bytes = UINT32_MAX};
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
    if (st == FSDPCK_OK && !equal) {
        name_place(s, at, &name);
        text_append(&name, "", 0);
        st = text_check(&name, err);
    }
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
    text_buf name = {.limit_bytes = UINT32_MAX};
    name_place(s, at, &name);
    text_append(&name, "", 0);
    fsdpck_status st = text_check(&name, err);
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
        RETURN_IF(enqueue_items(s, a, b, (uint32_t)at, p.depth + 1, err));
    }
    return FSDPCK_OK;
}

/* Both are torch.save files whose names no option changes. */
static bool is_comparable(const fsdpck_diff *d)
{
    const fsdpck_select_options *w = &d->a.opt.select;
    const catalogue *a = &d->a.src->cat, *b = &d->b.src->cat;
    const bool renames = w->strip_prefix_count > 0 ||
                         (w->rename_count > 0 && d->optimizer_rule[0] == '\0');
    return w->part == FSDPCK_PART_ALL && !renames && a->origin.types_keys &&
           b->origin.types_keys && !value_is_none(a->root) && !value_is_none(b->root);
}

fsdpck_status diff_containers(fsdpck_diff *d, fsdpck_error *err)
{
    budget *owner = &d->a.src->metadata;
    const select_options options = {.exclude = d->a.opt.select.exclude,
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
        st = enqueue(&s, d->a.src->cat.root, d->b.src->cat.root, CAT_NONE, VALUE_OF_NONE, 0, err);
    if (st == FSDPCK_OK)
        st = search(&s, err);
    free(s.zeros);
    select_rules_release(&rules);
    value_map_release(&s.seen);
    vec_release(&s.queue);
    return st;
}
