/* Compares objects leaf by leaf. torch since 2.4 saves each leaf of a dict separately; earlier it
 * saved dicts without tensors as one. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "compare/diff.h"
#include "compare/digest.h"

/* Of each side in a report. */
#define SHOWN_NBYTES   120u
#define LEAF_DEPTH_MAX 64u
/* Parts of an object may be shared. An object with more leaves than this is compared as a whole. */
#define LEAVES_MAX 65536u

typedef struct object_key {
    const char *name;
    size_t name_nbytes;
    uint16_t rank;
    uint32_t object;
    value content;
} object_key;

static int compare_keys(const void *a, const void *b)
{
    const object_key *x = a, *y = b;
    const int diff = text_order(x->name, x->name_nbytes, y->name, y->name_nbytes);
    if (diff != 0)
        return diff;
    if (x->name_nbytes != y->name_nbytes)
        return x->name_nbytes > y->name_nbytes ? 1 : -1;
    return (x->rank > y->rank) - (x->rank < y->rank);
}

/* The objects of one side, under names that match those of the tensors. */
typedef struct object_list {
    vec keys; /* object_key */
    text_buf names;
} object_list;

/* Appends the name of an object's leaf to the list's; *wanted: the rules select it. */
static fsdpck_status name_leaf(const run *r, uint32_t object, const text_buf *leaf,
                               select_rules *rules, text_buf *names, bool *wanted,
                               fsdpck_error *err)
{
    const checkpoint_part part = (checkpoint_part)r->src->parts.object_part[object];
    text_buf name = {0};
    checkpoint_parts_append_name(&r->src->parts, part, (int)part == r->opt.select.part,
                                 r->opt.select.clean_names != FSDPCK_OFF, leaf->text, leaf->nbytes,
                                 &name);
    text_append(&name, "", 0);
    fsdpck_status st = text_check(&name, err);
    *wanted = st == FSDPCK_OK && select_rules_match(rules, name.text);
    if (*wanted)
        st = diff_leaf_name(r, object, rules, &name, err);
    if (st == FSDPCK_OK && *wanted)
        text_append(names, name.text, name.nbytes);
    text_release(&name);
    return st == FSDPCK_OK ? text_check(names, err) : st;
}

static fsdpck_status add_leaf(const run *r, uint32_t object, const text_buf *name, value content,
                              select_rules *rules, object_list *l, fsdpck_error *err)
{
    const size_t at = l->names.nbytes;
    bool wanted;
    RETURN_IF(name_leaf(r, object, name, rules, &l->names, &wanted, err));
    object_key *key = wanted ? vec_push(&l->keys, err) : NULL;
    if (!wanted)
        return FSDPCK_OK;
    if (key == NULL)
        return FSDPCK_LIMIT;
    *key = (object_key){.name_nbytes = l->names.nbytes - at,
                        .rank = catalogue_object(&r->src->cat, object)->rank,
                        .object = object,
                        .content = content};
    return FSDPCK_OK;
}

/* Whether v is opened, as torch's flatten_state_dict does it: dicts, and lists that hold a dict or a
 * tensor. *inside: the DICT or LIST. */
static bool is_opened(value_pool *pool, value v, value *inside)
{
    value dict;
    *inside = v;
    if (value_as_dict(pool, v, inside))
        return value_count(pool, *inside) > 0;
    for (size_t i = 0; value_kind_of(v) == VALUE_LIST && i < value_count(pool, v); i++) {
        const value item = value_item(pool, v, i);
        if (value_kind_of(item) == VALUE_TENSOR || value_as_dict(pool, item, &dict))
            return true;
    }
    return false;
}

typedef struct leaf_frame {
    value inside;
    size_t at, name_nbytes;
} leaf_frame;

static void name_item(const value_pool *pool, value inside, size_t at, text_buf *name)
{
    const value key = value_key(pool, inside, at);
    size_t nbytes;
    const char *text = value_text(pool, key, &nbytes);
    text_append(name, ".", 1);
    if (value_kind_of(inside) == VALUE_LIST)
        text_printf(name, "%zu", at);
    else if (value_kind_of(key) == VALUE_STR)
        text_append(name, text, nbytes);
    else
        value_print(pool, key, SHOWN_NBYTES, name);
}

/* *whole: nested too deeply or too large to be taken apart. */
static fsdpck_status add_leaves(const run *r, uint32_t object, text_buf *name, select_rules *rules,
                                object_list *l, bool *whole, fsdpck_error *err)
{
    value_pool *pool = &r->src->cat.pool;
    leaf_frame frames[LEAF_DEPTH_MAX];
    const size_t first = l->keys.count;
    size_t depth = 1, steps = 0;

    *whole = true;
    frames[0] = (leaf_frame){.name_nbytes = name->nbytes};
    if (!is_opened(pool, catalogue_object(&r->src->cat, object)->content, &frames[0].inside))
        return FSDPCK_OK;
    while (depth > 0) {
        leaf_frame *top = &frames[depth - 1];
        value inside;
        name->nbytes = top->name_nbytes;
        if (top->at == value_count(pool, top->inside)) {
            depth--;
            continue;
        }
        const value item = value_item(pool, top->inside, top->at);
        name_item(pool, top->inside, top->at++, name);
        RETURN_IF(text_check(name, err));
        const bool opened = is_opened(pool, item, &inside);
        if (++steps > LEAVES_MAX || (opened && depth == LEAF_DEPTH_MAX)) {
            name->nbytes = frames[0].name_nbytes;
            while (l->keys.count > first)
                l->names.nbytes -= VEC_AT(&l->keys, object_key, --l->keys.count)->name_nbytes;
            return FSDPCK_OK;
        }
        if (opened)
            frames[depth++] = (leaf_frame){.inside = inside, .name_nbytes = name->nbytes};
        else
            RETURN_IF(add_leaf(r, object, name, item, rules, l, err));
    }
    *whole = false;
    return FSDPCK_OK;
}

static fsdpck_status add_objects(const run *r, select_rules *rules, object_list *l,
                                 fsdpck_error *err)
{
    const catalogue *c = &r->src->cat;
    for (uint32_t i = 0; i < catalogue_object_count(c); i++) {
        const uint32_t id = catalogue_object(c, i)->name;
        text_buf name = {.limit_bytes = UINT32_MAX};
        bool whole;
        if (r->opt.select.part != FSDPCK_PART_ALL &&
            r->src->parts.object_part[i] != r->opt.select.part)
            continue;
        text_append(&name, catalogue_name(c, id), catalogue_name_nbytes(c, id));
        fsdpck_status st = text_check(&name, err);
        if (st == FSDPCK_OK)
            st = add_leaves(r, i, &name, rules, l, &whole, err);
        if (st == FSDPCK_OK && whole)
            st = add_leaf(r, i, &name, catalogue_object(c, i)->content, rules, l, err);
        text_release(&name);
        RETURN_IF(st);
    }
    return FSDPCK_OK;
}

static fsdpck_status list_objects(const run *r, object_list *l, fsdpck_error *err)
{
    const run_options *o = &r->opt;
    const select_options options = {.exclude = r->selected.forms.options.exclude,
                                    .exclude_count = o->select.exclude_count,
                                    .strip_prefix = o->select.strip_prefix,
                                    .strip_prefix_count = o->select.strip_prefix_count,
                                    .rename = o->select.rename,
                                    .rename_count = o->select.rename_count};
    select_rules rules;
    fsdpck_status st = select_rules_compile(&options, &rules, err);
    if (st == FSDPCK_OK)
        st = add_objects(r, &rules, l, err);
    select_rules_release(&rules);
    RETURN_IF(st);
    /* Names moved in memory as more were added. */
    size_t at = 0;
    for (size_t i = 0; i < l->keys.count; i++) {
        object_key *key = VEC_AT(&l->keys, object_key, i);
        key->name = l->names.text + at;
        at += key->name_nbytes;
    }
    if (l->keys.count > 1)
        qsort(l->keys.items, l->keys.count, sizeof(object_key), compare_keys);
    return FSDPCK_OK;
}

static void list_release(object_list *l)
{
    vec_release(&l->keys);
    text_release(&l->names);
}

/* For each tensor, a number for its name and one for its content. */
typedef struct tensor_maps {
    uint64_t *by_name, *by_content;
} tensor_maps;

/* Tensors are identified by name, those inside objects by content. Tensors inside objects that have
 * names are compared by name elsewhere; here only their positions count. */
static fsdpck_status map_tensors(run *r, strtab *names, tensor_maps *maps, fsdpck_error *err)
{
    const catalogue *c = &r->src->cat;
    const uint64_t n = catalogue_tensor_count(c);
    uint64_t *inner = calloc(n + 1, sizeof *inner);
    maps->by_name = calloc(n + 1, sizeof *inner);
    maps->by_content = calloc(n + 1, sizeof *inner);
    if (maps->by_name == NULL || maps->by_content == NULL || inner == NULL) {
        free(inner);
        return error_set_nomem(err, n * sizeof *inner);
    }
    fsdpck_status st = digest_inner(r->ctx, r->src, &r->opt, inner, err);
    for (uint64_t i = 0; st == FSDPCK_OK && i < n; i++) {
        const cat_tensor *t = catalogue_tensor(c, i);
        char digest[24];
        uint32_t id;
        const int nbytes = snprintf(digest, sizeof digest, "\n%016" PRIx64, inner[i]);
        st = strtab_intern(names, digest, (size_t)nbytes, &id, err);
        maps->by_content[i] = id;
        if (st != FSDPCK_OK)
            break;
        if (t->flags & CAT_TENSOR_NAMED)
            st = strtab_intern(names, "\nnamed", 6, &id, err);
        else if ((t->flags & CAT_TENSOR_IN_OBJECT) == 0)
            st = strtab_intern(names, catalogue_name(c, t->name), catalogue_name_nbytes(c, t->name),
                               &id, err);
        if (st == FSDPCK_OK)
            maps->by_name[i] = id;
    }
    free(inner);
    return st;
}

/* Loading objects moves names in memory and adds tensors, so all are loaded before. */
static fsdpck_status load_all(run *r, fsdpck_error *err)
{
    fsdpck_checkpoint *c = r->src;
    for (uint32_t i = 0; i < c->parts.object_count; i++) {
        if (r->opt.select.part != FSDPCK_PART_ALL && c->parts.object_part[i] != r->opt.select.part)
            continue;
        if (!catalogue_object(&c->cat, i)->loaded)
            RETURN_IF(checkpoint_load_object(c, i, err));
    }
    return FSDPCK_OK;
}

static fsdpck_status print_value(fsdpck_diff *d, const value_pool *pool, value v, uint64_t *at,
                                 fsdpck_error *err)
{
    text_buf text = {0};
    *at = d->texts.nbytes;
    value_print(pool, v, SHOWN_NBYTES, &text);
    fsdpck_status st = text_check(&text, err);
    if (st == FSDPCK_OK)
        text_append(&d->texts, text.text == NULL ? "" : text.text, text.nbytes);
    text_append(&d->texts, "", 1);
    text_release(&text);
    return st == FSDPCK_OK ? text_check(&d->texts, err) : st;
}

static fsdpck_status add_row(fsdpck_diff *d, diff_row *row, const object_key *key,
                             fsdpck_error *err)
{
    row->name_at = d->texts.nbytes;
    row->name_nbytes = key->name_nbytes;
    text_append(&d->texts, key->name, key->name_nbytes);
    text_append(&d->texts, "", 1);
    RETURN_IF(text_check(&d->texts, err));
    return diff_add_row(d, row, err);
}

static fsdpck_status add_unmatched(fsdpck_diff *d, fsdpck_diff_kind kind, const object_key *key,
                                   fsdpck_error *err)
{
    const bool in_a = kind == FSDPCK_DIFF_OBJECT_ONLY_A;
    diff_row row = {
        .kind = kind, .a = in_a ? key->object : CAT_NONE, .b = in_a ? CAT_NONE : key->object};
    return add_row(d, &row, key, err);
}

static bool ends_with(const object_key *key, const char *last)
{
    const size_t n = strlen(last);
    return key->name_nbytes >= n && memcmp(key->name + key->name_nbytes - n, last, n) == 0;
}

/* Optimizers list parameters under the names of their state, after the rules. */
static fsdpck_status rename_params(const target *to, const object_key *key, value_pool *pool,
                                   value v, fsdpck_error *err)
{
    if (!ends_with(key, ".params") && !ends_with(key, ".param_names"))
        return FSDPCK_OK;
    for (size_t i = 0; value_kind_of(v) == VALUE_LIST && i < value_count(pool, v); i++) {
        size_t nbytes;
        const char *text = value_text(pool, value_item(pool, v, i), &nbytes);
        value now = text == NULL ? VALUE_OF_NONE : target_param_name(to, text, nbytes);
        if (value_is_none(now))
            continue;
        text = value_text(&to->cat.pool, now, &nbytes);
        RETURN_IF(value_new_str(pool, text, nbytes, &now, err));
        value_set_item(pool, v, i, now);
    }
    return FSDPCK_OK;
}

/* both: copies of both in the pool, with the numbers of their tensors. */
static fsdpck_status compare_by(fsdpck_diff *d, const object_key *a, const object_key *b,
                                uint64_t *const maps[2], value_pool *pool, value both[2],
                                bool *equal, fsdpck_error *err)
{
    const catalogue *from = &d->a.src->cat, *to = &d->b.src->cat;
    RETURN_IF(value_copy(&from->pool, a->content, pool, maps[0], &both[0], err));
    RETURN_IF(value_copy(&to->pool, b->content, pool, maps[1], &both[1], err));
    RETURN_IF(rename_params(&d->a.to, a, pool, both[0], err));
    RETURN_IF(rename_params(&d->b.to, b, pool, both[1], err));
    /* JSON cannot tell a tuple from a list. */
    if (d->a.src->format->objects_as_json || d->b.src->format->objects_as_json)
        return value_equal_in_json(pool, both[0], pool, both[1], equal, err);
    return value_equal(pool, both[0], pool, both[1], equal, err);
}

/* Formats without sharing store a copy of a shared tensor, so contents are compared. */
static fsdpck_status compare_pair(fsdpck_diff *d, const object_key *a, const object_key *b,
                                  const tensor_maps maps[2], fsdpck_error *err)
{
    uint64_t *const by_name[2] = {maps[0].by_name, maps[1].by_name};
    uint64_t *const by_content[2] = {maps[0].by_content, maps[1].by_content};
    value_pool pool;
    value both[2], again[2];
    bool equal = false;
    diff_row row = {.kind = FSDPCK_DIFF_OBJECT, .a = a->object, .b = b->object};
    value_pool_init(&pool, &d->a.src->metadata);
    fsdpck_status st = compare_by(d, a, b, by_name, &pool, both, &equal, err);
    if (st == FSDPCK_OK && !equal)
        st = compare_by(d, a, b, by_content, &pool, again, &equal, err);
    if (st == FSDPCK_OK && !equal)
        st = print_value(d, &pool, both[0], &row.text_at, err);
    if (st == FSDPCK_OK && !equal)
        st = print_value(d, &pool, both[1], &row.text_b_at, err);
    value_pool_release(&pool);
    d->objects_compared++;
    return st == FSDPCK_OK && !equal ? add_row(d, &row, a, err) : st;
}

/* *bad: it contains items that have their own key if leaves are saved. */
static fsdpck_status visit_nothing(void *ctx, value v, fsdpck_error *err)
{
    bool *bad = ctx;
    (void)err;
    *bad = *bad || (value_kind_of(v) != VALUE_LIST && value_kind_of(v) != VALUE_DICT);
    return FSDPCK_OK;
}

/* Dicts without items, and lists of such, leave no trace in some formats, such as DCP: `other` lacks them for that reason. */
static bool is_nothing(const run *r, const run *other, const object_key *key)
{
    value_pool *pool = &r->src->cat.pool;
    value dict;
    bool bad = false;
    fsdpck_error ignored = FSDPCK_ERROR_INIT;
    if (!other->src->format->drops_empty)
        return false;
    if (value_as_dict(pool, key->content, &dict))
        return value_count(pool, dict) == 0;
    return value_kind_of(key->content) == VALUE_LIST && value_count(pool, key->content) > 0 &&
           value_walk(pool, key->content, visit_nothing, &bad, &ignored) == FSDPCK_OK && !bad;
}

/* has_other: items that are no list, no tuple and no named tensor. */
typedef struct named_scan {
    const catalogue *from;
    bool has_tensor, has_other;
} named_scan;

static fsdpck_status visit_named(void *ctx, value v, fsdpck_error *err)
{
    named_scan *s = ctx;
    const value_kind kind = value_kind_of(v);
    (void)err;
    if (kind == VALUE_TENSOR &&
        (catalogue_tensor(s->from, value_tensor_index(v))->flags & CAT_TENSOR_NAMED))
        s->has_tensor = true;
    else if (kind != VALUE_LIST && kind != VALUE_TUPLE)
        s->has_other = true;
    return FSDPCK_OK;
}

/* A tuple of tensors is datasets of their names in an HDF5 file, as a list of them is. */
static bool is_of_datasets(const run *r, const run *other, const object_key *key)
{
    named_scan s = {.from = &r->src->cat};
    fsdpck_error ignored = FSDPCK_ERROR_INIT;
    return other->src->format->objects_as_json &&
           value_walk(&r->src->cat.pool, key->content, visit_named, &s, &ignored) == FSDPCK_OK &&
           s.has_tensor && !s.has_other;
}

static bool is_ignored(const run *r, const run *other, const object_key *key)
{
    return is_nothing(r, other, key) || is_of_datasets(r, other, key);
}

static fsdpck_status merge(fsdpck_diff *d, const object_list *a, const object_list *b,
                           const tensor_maps maps[2], fsdpck_error *err)
{
    size_t i = 0, k = 0;
    while (i < a->keys.count || k < b->keys.count) {
        const object_key *x = i < a->keys.count ? VEC_AT(&a->keys, const object_key, i) : NULL;
        const object_key *y = k < b->keys.count ? VEC_AT(&b->keys, const object_key, k) : NULL;
        const int order = x == NULL ? 1 : y == NULL ? -1 : compare_keys(x, y);
        if (order == 0)
            RETURN_IF(compare_pair(d, x, y, maps, err));
        else if (order < 0 && !is_ignored(&d->a, &d->b, x))
            RETURN_IF(add_unmatched(d, FSDPCK_DIFF_OBJECT_ONLY_A, x, err));
        else if (order > 0 && !is_ignored(&d->b, &d->a, y))
            RETURN_IF(add_unmatched(d, FSDPCK_DIFF_OBJECT_ONLY_B, y, err));
        i += order <= 0;
        k += order >= 0;
    }
    return FSDPCK_OK;
}

fsdpck_status diff_objects(fsdpck_diff *d, fsdpck_error *err)
{
    object_list a = {VEC_OF(object_key, &d->a.src->metadata), {.limit_bytes = SIZE_MAX / 2}};
    object_list b = {VEC_OF(object_key, &d->b.src->metadata), {.limit_bytes = SIZE_MAX / 2}};
    tensor_maps maps[2] = {{NULL, NULL}, {NULL, NULL}};
    group *g = d->a.ctx->group;
    strtab names;
    strtab_init(&names, &d->a.src->metadata);
    fsdpck_status st = load_all(&d->a, err);
    if (st == FSDPCK_OK)
        st = load_all(&d->b, err);
    if (st == FSDPCK_OK)
        st = list_objects(&d->a, &a, err);
    if (st == FSDPCK_OK)
        st = list_objects(&d->b, &b, err);
    st = group_agree(g, st, err);
    if (st == FSDPCK_OK)
        st = group_agree(g, map_tensors(&d->a, &names, &maps[0], err), err);
    if (st == FSDPCK_OK)
        st = group_agree(g, map_tensors(&d->b, &names, &maps[1], err), err);
    if (st == FSDPCK_OK)
        st = merge(d, &a, &b, maps, err);
    if (st == FSDPCK_OK)
        st = diff_keys(d, err);
    if (st == FSDPCK_OK)
        st = diff_containers(d, err);
    strtab_release(&names);
    list_release(&a);
    list_release(&b);
    for (int side = 0; side < 2; side++) {
        free(maps[side].by_name);
        free(maps[side].by_content);
    }
    return st;
}
