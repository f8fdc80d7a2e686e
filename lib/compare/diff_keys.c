/* Types of the keys of dicts, where both sides know them: 1 and '1' are two keys that have one flat name. */
#include <inttypes.h>

#include "compare/diff.h"

/* Flat names that end in such a key. */
typedef struct key_names {
    strtab ints, texts;
} key_names;

typedef struct key_scan {
    const run *r;
    const select_rules *rules;
    key_names *names;
} key_scan;

static bool is_number(const char *text, size_t nbytes)
{
    const size_t sign = nbytes > 0 && text[0] == '-';
    for (size_t i = sign; i < nbytes; i++)
        if (text[i] < '0' || text[i] > '9')
            return false;
    return nbytes > sign;
}

static fsdpck_status take_path(key_names *names, const value_pool *pool, value path,
                               fsdpck_error *err)
{
    text_buf name = {.limit_bytes = UINT32_MAX};
    fsdpck_status st = FSDPCK_OK;
    const size_t count = value_is_none(path) ? 0 : value_count(pool, path);
    for (size_t i = 0; st == FSDPCK_OK && i < count; i++) {
        const value element = value_item(pool, path, i);
        const value_kind kind = value_kind_of(element);
        size_t nbytes = 0;
        const char *text = value_text(pool, element, &nbytes);
        uint64_t index = 0;
        uint32_t id;
        if (i > 0)
            text_append(&name, ".", 1);
        if (text != NULL)
            text_append(&name, text, nbytes);
        else if (value_as_u64(pool, element, &index)) /* of a list */
            text_printf(&name, "%" PRIu64, index);
        st = text_check(&name, err);
        if (st == FSDPCK_OK && kind == VALUE_BYTES)
            st = strtab_intern(&names->ints, name.text, name.nbytes, &id, err);
        else if (st == FSDPCK_OK && kind == VALUE_STR && is_number(text, nbytes))
            st = strtab_intern(&names->texts, name.text, name.nbytes, &id, err);
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
    if (o->select.part != FSDPCK_PART_ALL && (int)part != o->select.part)
        return FSDPCK_OK;
    checkpoint_parts_append_name(&s->r->src->parts, part, (int)part == o->select.part,
                                 o->select.clean_names != FSDPCK_OFF, catalogue_name(c, name),
                                 catalogue_name_nbytes(c, name), &text);
    text_append(&text, "", 0);
    fsdpck_status st = text_check(&text, err);
    if (st == FSDPCK_OK && select_rules_match((select_rules *)s->rules, text.text))
        st = take_path(s->names, &c->pool, path, err);
    text_release(&text);
    return st;
}

static fsdpck_status take_all(const run *r, key_names *names, fsdpck_error *err)
{
    const fsdpck_checkpoint *src = r->src;
    const select_options words = {.exclude = r->opt.select.exclude,
                                  .exclude_count = r->opt.select.exclude_count};
    select_rules rules;
    const key_scan scan = {r, &rules, names};
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

/* One row a dict: its first key that differs. */
static fsdpck_status add_row(fsdpck_diff *d, const char *name, size_t nbytes, bool int_in_a,
                             strtab *told, fsdpck_error *err)
{
    size_t at = nbytes;
    uint32_t id;
    while (at > 0 && name[at - 1] != '.')
        at--;
    const size_t before = strtab_count(told);
    RETURN_IF(strtab_intern(told, name, at, &id, err));
    if (id < before)
        return FSDPCK_OK;
    diff_row row = {
        .kind = FSDPCK_DIFF_OBJECT, .a = CAT_NONE, .b = CAT_NONE, .name_nbytes = nbytes};
    const uint64_t of_int = put_text(d, "int key ", name + at, nbytes - at, "");
    const uint64_t of_text = put_text(d, "str key '", name + at, nbytes - at, "'");
    row.text_at = int_in_a ? of_int : of_text;
    row.text_b_at = int_in_a ? of_text : of_int;
    row.name_at = put_text(d, "", name, nbytes, "");
    RETURN_IF(text_check(&d->texts, err));
    return diff_add_row(d, &row, err);
}

static fsdpck_status compare(fsdpck_diff *d, const strtab *ints, const strtab *texts, bool int_in_a,
                             strtab *told, fsdpck_error *err)
{
    for (uint32_t i = 0; i < strtab_count(ints); i++) {
        const char *name = strtab_text(ints, i);
        const size_t nbytes = strtab_nbytes(ints, i);
        if (strtab_find(texts, name, nbytes) != STRTAB_NONE)
            RETURN_IF(add_row(d, name, nbytes, int_in_a, told, err));
    }
    return FSDPCK_OK;
}

fsdpck_status diff_keys(fsdpck_diff *d, fsdpck_error *err)
{
    const run *const sides[2] = {&d->a, &d->b};
    key_names names[2];
    strtab told;
    fsdpck_status st = FSDPCK_OK;
    if (!d->a.src->cat.origin.types_keys || !d->b.src->cat.origin.types_keys)
        return FSDPCK_OK;
    strtab_init(&told, &d->a.src->metadata);
    for (int i = 0; i < 2; i++) {
        strtab_init(&names[i].ints, &sides[i]->src->metadata);
        strtab_init(&names[i].texts, &sides[i]->src->metadata);
    }
    for (int i = 0; st == FSDPCK_OK && i < 2; i++)
        st = take_all(sides[i], &names[i], err);
    if (st == FSDPCK_OK)
        st = compare(d, &names[0].ints, &names[1].texts, true, &told, err);
    if (st == FSDPCK_OK)
        st = compare(d, &names[1].ints, &names[0].texts, false, &told, err);
    for (int i = 0; i < 2; i++) {
        strtab_release(&names[i].ints);
        strtab_release(&names[i].texts);
    }
    strtab_release(&told);
    return st;
}
