/* Types of the keys of dicts, where both sides know them: 1 and '1' are two keys that have one flat name. */
#include <inttypes.h>
#include <stdio.h>

#include "compare/diff.h"
#include "compare/key_types.h"

/* A flat name that ends in a key that is no text. */
typedef struct typed_name {
    size_t key_at; /* where the key begins in the name */
    value_kind kind;
} typed_name;

typedef struct key_names {
    strtab typed, texts;
    vec of_typed; /* typed_name, parallel to `typed` */
    key_types types;
    bool takes_all; /* texts that are no numbers, too: some dict of either side has other keys */
} key_names;

typedef struct key_scan {
    const run *r;
    const select_rules *rules;
    key_names *names;
    const char *optimizer_key; /* of both, where those of the sides differ; NULL */
} key_scan;

/* The outer key that the names of both sides have in place of their own `nbytes`. */
typedef struct outer_change {
    size_t nbytes; /* with its dot; 0: names stay */
    const char *to;
} outer_change;

static bool is_number(const char *text, size_t nbytes)
{
    const size_t sign = nbytes > 0 && text[0] == '-';
    for (size_t i = sign; i < nbytes; i++)
        if (text[i] < '0' || text[i] > '9')
            return false;
    return nbytes > sign;
}

static fsdpck_status intern_key(key_names *names, const text_buf *name, size_t key_at,
                                value_kind kind, fsdpck_error *err)
{
    uint32_t id;
    if (kind == VALUE_STR) {
        if (!names->takes_all && !is_number(name->text + key_at, name->nbytes - key_at))
            return FSDPCK_OK;
        return strtab_intern(&names->texts, name->text, name->nbytes, &id, err);
    }
    const size_t before = strtab_count(&names->typed);
    RETURN_IF(strtab_intern(&names->typed, name->text, name->nbytes, &id, err));
    return id < before ? FSDPCK_OK : vec_add(&names->of_typed, &(typed_name){key_at, kind}, err);
}

static fsdpck_status take_key(key_names *names, const text_buf *name, size_t key_at,
                              value_kind kind, const outer_change *outer, fsdpck_error *err)
{
    text_buf changed = {.limit_bytes = UINT32_MAX};
    if (outer->nbytes == 0)
        return intern_key(names, name, key_at, kind, err);
    if (key_at < outer->nbytes)
        return FSDPCK_OK; /* of the outer key itself */
    if (outer->to[0] != '\0') {
        text_puts(&changed, outer->to);
        text_append(&changed, ".", 1);
    }
    key_at = key_at - outer->nbytes + changed.nbytes;
    text_append(&changed, name->text + outer->nbytes, name->nbytes - outer->nbytes);
    text_append(&changed, "", 0);
    fsdpck_status st = text_check(&changed, err);
    if (st == FSDPCK_OK)
        st = intern_key(names, &changed, key_at, kind, err);
    text_release(&changed);
    return st;
}

static fsdpck_status take_path(key_names *names, const value_pool *pool, value path,
                               const outer_change *outer, fsdpck_error *err)
{
    text_buf name = {.limit_bytes = UINT32_MAX};
    fsdpck_status st = FSDPCK_OK;
    value at = names->types.root;
    const size_t count = value_is_none(path) ? 0 : value_count(pool, path);
    for (size_t i = 0; st == FSDPCK_OK && i < count; i++) {
        const value element = value_item(pool, path, i);
        value_kind kind = value_kind_of(element);
        uint64_t index = 0;
        if (i > 0)
            text_append(&name, ".", 1);
        const size_t key_at = name.nbytes;
        st = key_types_enter(&names->types, &at, element, &kind, err);
        size_t nbytes = 0;
        const char *text = value_text(pool, element, &nbytes);
        if (text != NULL)
            text_append(&name, text, nbytes);
        else if (value_as_u64(pool, element, &index)) /* of a list */
            text_printf(&name, "%" PRIu64, index);
        if (st == FSDPCK_OK)
            st = text_check(&name, err);
        if (st == FSDPCK_OK && text != NULL)
            st = take_key(names, &name, key_at,
                          value_kind_of(element) == VALUE_BYTES ? VALUE_INT : kind, outer, err);
    }
    text_release(&name);
    return st;
}

static fsdpck_status take(const key_scan *s, value path, uint32_t name, checkpoint_part part,
                          fsdpck_error *err)
{
    const run_options *o = &s->r->opt;
    const catalogue *c = &s->r->src->cat;
    text_buf text = {.limit_bytes = UINT32_MAX};
    outer_change outer = {0};
    if (o->select.part != FSDPCK_PART_ALL && (int)part != o->select.part)
        return FSDPCK_OK;
    if (part == PART_OPTIMIZER && s->optimizer_key != NULL)
        outer = (outer_change){checkpoint_parts_outer_nbytes(&s->r->src->parts, part),
                               s->optimizer_key};
    checkpoint_parts_append_name(&s->r->src->parts, part, (int)part == o->select.part,
                                 o->select.clean_names != FSDPCK_OFF, catalogue_name(c, name),
                                 catalogue_name_nbytes(c, name), &text);
    text_append(&text, "", 0);
    fsdpck_status st = text_check(&text, err);
    if (st == FSDPCK_OK && select_rules_match((select_rules *)s->rules, text.text))
        st = take_path(s->names, &c->pool, path, &outer, err);
    text_release(&text);
    return st;
}

static fsdpck_status take_all(const run *r, key_names *names, const char *optimizer_key,
                              fsdpck_error *err)
{
    const fsdpck_checkpoint *src = r->src;
    const select_options words = {.exclude = r->selected.forms.options.exclude,
                                  .exclude_count = r->opt.select.exclude_count};
    select_rules rules;
    const key_scan scan = {r, &rules, names, optimizer_key};
    fsdpck_status st = select_rules_compile(&words, &rules, err);
    for (size_t i = 0; st == FSDPCK_OK && i < src->parts.tensor_count; i++) {
        const cat_tensor *t = catalogue_tensor(&src->cat, i);
        st = take(&scan, t->path, t->name, (checkpoint_part)src->parts.tensor_part[i], err);
    }
    for (size_t i = 0; st == FSDPCK_OK && i < src->parts.object_count; i++) {
        const cat_object *o = catalogue_object(&src->cat, i);
        st = take(&scan, o->path, o->name, (checkpoint_part)src->parts.object_part[i], err);
    }
    select_rules_release(&rules);
    return st;
}

static uint64_t put_text(fsdpck_diff *d, const char *before, const char *key, size_t nbytes,
                         const char *after)
{
    const uint64_t at = d->texts.nbytes;
    text_puts(&d->texts, before);
    text_append(&d->texts, key, nbytes);
    text_puts(&d->texts, after);
    text_append(&d->texts, "", 1);
    return at;
}

static const char *name_of_type(value_kind kind)
{
    switch (kind) {
    case VALUE_NONE:
        return "NoneType";
    case VALUE_BOOL:
        return "bool";
    case VALUE_INT:
    case VALUE_BIGINT:
        return "int";
    case VALUE_FLOAT:
        return "float";
    case VALUE_BYTES:
        return "bytes";
    case VALUE_TUPLE:
        return "tuple";
    case VALUE_FROZENSET:
        return "frozenset";
    default:
        return "object";
    }
}

/* One row a dict: its first key that differs. */
static fsdpck_status add_row(fsdpck_diff *d, const char *name, size_t nbytes, const typed_name *t,
                             bool typed_in_a, strtab *told, fsdpck_error *err)
{
    const char *key = name + t->key_at;
    const size_t key_nbytes = nbytes - t->key_at;
    char before[32];
    uint32_t id;
    const size_t told_before = strtab_count(told);
    RETURN_IF(strtab_intern(told, name, t->key_at, &id, err));
    if (id < told_before)
        return FSDPCK_OK;
    diff_row row = {
        .kind = FSDPCK_DIFF_OBJECT, .a = CAT_NONE, .b = CAT_NONE, .name_nbytes = nbytes};
    snprintf(before, sizeof before, "%s key ", name_of_type(t->kind));
    const uint64_t of_typed = put_text(d, before, key, key_nbytes, "");
    const uint64_t of_text = put_text(d, "str key '", key, key_nbytes, "'");
    row.text_at = typed_in_a ? of_typed : of_text;
    row.text_b_at = typed_in_a ? of_text : of_typed;
    row.name_at = put_text(d, "", name, nbytes, "");
    RETURN_IF(text_check(&d->texts, err));
    return diff_add_row(d, &row, err);
}

static fsdpck_status compare(fsdpck_diff *d, const key_names *typed, const key_names *texts,
                             bool typed_in_a, strtab *told, fsdpck_error *err)
{
    for (uint32_t i = 0; i < strtab_count(&typed->typed); i++) {
        const char *name = strtab_text(&typed->typed, i);
        const size_t nbytes = strtab_nbytes(&typed->typed, i);
        if (strtab_find(&texts->texts, name, nbytes) != STRTAB_NONE)
            RETURN_IF(add_row(d, name, nbytes, VEC_AT(&typed->of_typed, const typed_name, i),
                              typed_in_a, told, err));
    }
    return FSDPCK_OK;
}

static void names_init(key_names *n, const run *side)
{
    *n = (key_names){.of_typed = VEC_OF(typed_name, &side->src->metadata)};
    strtab_init(&n->typed, &side->src->metadata);
    strtab_init(&n->texts, &side->src->metadata);
}

static void names_release(key_names *n)
{
    strtab_release(&n->typed);
    strtab_release(&n->texts);
    vec_release(&n->of_typed);
    key_types_release(&n->types);
}

fsdpck_status diff_keys(fsdpck_diff *d, fsdpck_error *err)
{
    const run *const sides[2] = {&d->a, &d->b};
    key_names names[2];
    strtab told;
    fsdpck_status st = FSDPCK_OK;
    const char *optimizer_key = d->optimizer_rule[0] != '\0' ? d->b.src->parts.optimizer_key
                                : d->a.opt.select.part == FSDPCK_PART_OPTIMIZER ? ""
                                                                                : NULL;
    if (!d->a.src->cat.origin.types_keys || !d->b.src->cat.origin.types_keys)
        return FSDPCK_OK;
    strtab_init(&told, &d->a.src->metadata);
    for (int i = 0; i < 2; i++)
        names_init(&names[i], sides[i]);
    for (int i = 0; st == FSDPCK_OK && i < 2; i++)
        st = key_types_init(&names[i].types, &sides[i]->src->cat, err);
    const bool takes_all = names[0].types.has_other || names[1].types.has_other;
    names[0].takes_all = names[1].takes_all = takes_all;
    for (int i = 0; st == FSDPCK_OK && i < 2; i++)
        st = take_all(sides[i], &names[i], optimizer_key, err);
    if (st == FSDPCK_OK)
        st = compare(d, &names[0], &names[1], true, &told, err);
    if (st == FSDPCK_OK)
        st = compare(d, &names[1], &names[0], false, &told, err);
    for (int i = 0; i < 2; i++)
        names_release(&names[i]);
    strtab_release(&told);
    return st;
}
