#include "statedict/rekey_paths.h"

#include <string.h>

#include "base/text.h"

static const char state_key[] = "state.", groups_key[] = "param_groups.";

/* Recorded names that are searched below a key: a search is linear. */
#define NAMES_TRIED_MAX 64u

typedef struct flat_paths {
    catalogue *c;
    strtab prefixes; /* of optimizers, with their last dot: "optim." */
    vec nested;      /* uint8_t: a group has a list of parameters, by prefix */
    strtab labels;   /* "optim.state.emb.weight" */
    vec by_number;   /* uint8_t: the label is an int, by label */
    strtab fqns;     /* recorded names of parameters */
    vec elements;    /* value: of a path */
    text_buf text;
} flat_paths;

static bool begins(const char *text, size_t nbytes, const char *with)
{
    const size_t n = strlen(with);
    return nbytes > n && memcmp(text, with, n) == 0;
}

/* Where an element with this beginning starts in the name; nbytes: nowhere. */
static size_t find_element(const char *name, size_t nbytes, const char *with)
{
    for (size_t at = 0; at < nbytes; at++)
        if ((at == 0 || name[at - 1] == '.') && begins(name + at, nbytes - at, with))
            return at;
    return nbytes;
}

static size_t count_digits(const char *text, size_t nbytes)
{
    size_t n = 0;
    while (n < nbytes && text[n] >= '0' && text[n] <= '9')
        n++;
    return n;
}

/* Of 'PREFIXparam_groups.0.lr' the position of 'lr'; 0 if the name has another form. */
static size_t key_of_group(const char *name, size_t nbytes, size_t prefix)
{
    const size_t at = prefix + strlen(groups_key);
    const size_t n = count_digits(name + at, nbytes - at);
    return n == 0 || n > 6 || at + n + 1 >= nbytes || name[at + n] != '.' ? 0 : at + n + 1;
}

static bool is_list_of_group(const catalogue *c, uint32_t object, size_t *prefix, bool *names)
{
    const cat_object *o = catalogue_object(c, object);
    const char *name = catalogue_name(c, o->name);
    const size_t nbytes = catalogue_name_nbytes(c, o->name);
    *prefix = find_element(name, nbytes, groups_key);
    const size_t at = *prefix == nbytes ? 0 : key_of_group(name, nbytes, *prefix);
    *names = at > 0 && text_is(name + at, nbytes - at, "param_names");
    return at > 0 && (*names || text_is(name + at, nbytes - at, "params"));
}

bool rekey_paths_need_object(const catalogue *c, uint32_t object)
{
    size_t prefix;
    bool names;
    return value_is_none(catalogue_object(c, object)->path) &&
           is_list_of_group(c, object, &prefix, &names);
}

static bool has_paths(const catalogue *c)
{
    for (size_t i = 0; i < catalogue_tensor_count(c); i++)
        if (!value_is_none(catalogue_tensor(c, i)->path))
            return true;
    for (size_t i = 0; i < catalogue_object_count(c); i++)
        if (!value_is_none(catalogue_object(c, i)->path))
            return true;
    return false;
}

/* --- what param_groups list --- */

static fsdpck_status add_prefix(flat_paths *f, uint32_t object, fsdpck_error *err)
{
    const uint32_t name = catalogue_object(f->c, object)->name;
    const char *text = catalogue_name(f->c, name);
    const size_t nbytes = catalogue_name_nbytes(f->c, name);
    const size_t prefix = find_element(text, nbytes, groups_key);
    size_t same;
    bool names;
    uint32_t id;
    if (prefix == nbytes)
        return FSDPCK_OK;
    RETURN_IF(strtab_intern(&f->prefixes, text, prefix, &id, err));
    if (id == f->nested.count)
        RETURN_IF(vec_add(&f->nested, &(uint8_t){0}, err));
    if (is_list_of_group(f->c, object, &same, &names) && !names)
        *VEC_AT(&f->nested, uint8_t, id) = 1;
    return FSDPCK_OK;
}

/* An item of `params`: the key of a parameter's state. */
static fsdpck_status add_label(flat_paths *f, const char *prefix, size_t nbytes, value item,
                               fsdpck_error *err)
{
    const value_pool *pool = &f->c->pool;
    int64_t number;
    size_t n = 0;
    uint32_t id;
    const char *fqn = value_text(pool, item, &n);
    const bool by_number = value_kind_of(item) == VALUE_INT && value_as_i64(pool, item, &number);
    if (!by_number && value_kind_of(item) != VALUE_STR)
        return FSDPCK_OK;
    f->text.nbytes = 0;
    text_append(&f->text, prefix, nbytes);
    text_puts(&f->text, state_key);
    if (by_number)
        text_printf(&f->text, "%lld", (long long)number);
    else
        text_append(&f->text, fqn, n);
    RETURN_IF(text_check(&f->text, err));
    if (!by_number)
        RETURN_IF(strtab_intern(&f->fqns, fqn, n, &id, err));
    RETURN_IF(strtab_intern(&f->labels, f->text.text, f->text.nbytes, &id, err));
    return id < f->by_number.count ? FSDPCK_OK : vec_add(&f->by_number, &(uint8_t){by_number}, err);
}

/* 'PREFIXparam_groups.FQN.lr' of the flattened form. */
static fsdpck_status add_flat_name(flat_paths *f, const char *name, size_t nbytes, size_t prefix,
                                   fsdpck_error *err)
{
    const size_t at = prefix + strlen(groups_key);
    uint32_t id;
    while (nbytes > at && name[nbytes - 1] != '.')
        nbytes--;
    return nbytes <= at + 1 ? FSDPCK_OK
                            : strtab_intern(&f->fqns, name + at, nbytes - 1 - at, &id, err);
}

static fsdpck_status list_labels(flat_paths *f, uint32_t object, fsdpck_error *err)
{
    const cat_object *o = catalogue_object(f->c, object);
    const char *name = catalogue_name(f->c, o->name);
    const size_t nbytes = catalogue_name_nbytes(f->c, o->name);
    const size_t at = find_element(name, nbytes, groups_key);
    size_t prefix;
    bool names;
    if (at < nbytes && !*VEC_AT(&f->nested, uint8_t, strtab_find(&f->prefixes, name, at)))
        return add_flat_name(f, name, nbytes, at, err);
    if (!is_list_of_group(f->c, object, &prefix, &names) || !o->loaded ||
        value_kind_of(o->content) != VALUE_LIST)
        return FSDPCK_OK;
    for (size_t i = 0; i < value_count(&f->c->pool, o->content); i++) {
        const value item = value_item(&f->c->pool, o->content, i);
        size_t n = 0;
        uint32_t id;
        const char *fqn = value_text(&f->c->pool, item, &n);
        if (!names)
            RETURN_IF(add_label(f, name, prefix, item, err));
        else if (value_kind_of(item) == VALUE_STR)
            RETURN_IF(strtab_intern(&f->fqns, fqn, n, &id, err));
    }
    return FSDPCK_OK;
}

/* --- paths --- */

static fsdpck_status push_text(flat_paths *f, const char *text, size_t nbytes, fsdpck_error *err)
{
    value v;
    RETURN_IF(value_new_str(&f->c->pool, text, nbytes, &v, err));
    return vec_add(&f->elements, &v, err);
}

static fsdpck_status push_label(flat_paths *f, const char *text, size_t nbytes, bool by_number,
                                fsdpck_error *err)
{
    value v;
    if (!by_number)
        return push_text(f, text, nbytes, err);
    RETURN_IF(value_new_bytes(&f->c->pool, text, nbytes, &v, err));
    return vec_add(&f->elements, &v, err);
}

/* The longest label that the name is or continues; without one the element after 'state.'. */
static fsdpck_status push_state(flat_paths *f, const char *name, size_t nbytes, size_t prefix,
                                fsdpck_error *err)
{
    const size_t at = prefix + strlen(state_key);
    const char *dot = memchr(name + at, '.', nbytes - at);
    size_t end = nbytes;
    uint32_t id = strtab_find(&f->labels, name, end);
    while (id == STRTAB_NONE && end > at) {
        end--;
        id = name[end] == '.' ? strtab_find(&f->labels, name, end) : STRTAB_NONE;
    }
    if (id == STRTAB_NONE)
        end = dot == NULL ? nbytes : (size_t)(dot - name);
    const bool by_number = id != STRTAB_NONE && *VEC_AT(&f->by_number, uint8_t, id);
    RETURN_IF(push_text(f, state_key, strlen(state_key) - 1, err));
    RETURN_IF(push_label(f, name + at, end - at, by_number, err));
    return end < nbytes ? push_text(f, name + end + 1, nbytes - end - 1, err) : FSDPCK_OK;
}

static fsdpck_status push_group(flat_paths *f, const char *name, size_t nbytes, size_t prefix,
                                fsdpck_error *err)
{
    const size_t at = prefix + strlen(groups_key), key = key_of_group(name, nbytes, prefix);
    int64_t number = 0;
    value index;
    if (key == 0)
        return push_text(f, name + prefix, nbytes - prefix, err);
    for (size_t i = at; i + 1 < key; i++)
        number = number * 10 + (name[i] - '0');
    RETURN_IF(push_text(f, groups_key, strlen(groups_key) - 1, err));
    RETURN_IF(value_new_int(&f->c->pool, number, &index, err));
    RETURN_IF(vec_add(&f->elements, &index, err));
    return push_text(f, name + key, nbytes - key, err);
}

/* Whether the name belongs to an optimizer; *prefix becomes the bytes before its key. */
static bool find_prefix(const flat_paths *f, const char *name, size_t nbytes, size_t *prefix,
                        bool *is_state, bool *nested)
{
    for (size_t at = 0; at < nbytes; at++) {
        if (at > 0 && name[at - 1] != '.')
            continue;
        *is_state = begins(name + at, nbytes - at, state_key);
        if (!*is_state && !begins(name + at, nbytes - at, groups_key))
            continue;
        const uint32_t id = strtab_find(&f->prefixes, name, at);
        if (id == STRTAB_NONE)
            continue;
        *prefix = at;
        *nested = *VEC_AT(&f->nested, const uint8_t, id);
        return true;
    }
    return false;
}

static fsdpck_status path_of(flat_paths *f, uint32_t id, value *path, fsdpck_error *err)
{
    const char *name = catalogue_name(f->c, id);
    const size_t nbytes = catalogue_name_nbytes(f->c, id);
    size_t prefix;
    bool is_state, nested;
    if (!find_prefix(f, name, nbytes, &prefix, &is_state, &nested))
        return FSDPCK_OK;
    f->elements.count = 0;
    if (prefix > 0)
        RETURN_IF(push_text(f, name, prefix - 1, err));
    if (!nested)
        RETURN_IF(push_text(f, name + prefix, nbytes - prefix, err));
    else if (is_state)
        RETURN_IF(push_state(f, name, nbytes, prefix, err));
    else
        RETURN_IF(push_group(f, name, nbytes, prefix, err));
    return value_new_from(&f->c->pool, VALUE_TUPLE, f->elements.items, f->elements.count, path,
                          err);
}

/* --- the outer key of the model --- */

/* The only tensor that has this name below a key; CAT_NONE if none or several have. */
static uint32_t find_below(const flat_paths *f, const char *fqn, size_t n)
{
    uint32_t found = CAT_NONE;
    for (uint32_t i = 0; i < catalogue_tensor_count(f->c); i++) {
        const cat_tensor *t = catalogue_tensor(f->c, i);
        const char *name = catalogue_name(f->c, t->name);
        const size_t nbytes = catalogue_name_nbytes(f->c, t->name);
        if (!value_is_none(t->path) || nbytes < n + 2 || name[nbytes - n - 1] != '.' ||
            memcmp(name + nbytes - n, fqn, n) != 0)
            continue;
        if (found != CAT_NONE)
            return CAT_NONE;
        found = i;
    }
    return found;
}

/* Bytes of the outer key; 0 if there is none, or names do not agree. */
static size_t find_outer_key(flat_paths *f, uint32_t *tensor)
{
    size_t key_nbytes = 0;
    *tensor = CAT_NONE;
    for (uint32_t i = 0, tried = 0; i < strtab_count(&f->fqns); i++) {
        const char *fqn = strtab_text(&f->fqns, i);
        const size_t n = strtab_nbytes(&f->fqns, i);
        if (catalogue_find(f->c, fqn, n) != CAT_NONE)
            return 0;
        if (*tensor != CAT_NONE || tried++ >= NAMES_TRIED_MAX)
            continue;
        *tensor = find_below(f, fqn, n);
        if (*tensor != CAT_NONE)
            key_nbytes = catalogue_name_nbytes(f->c, catalogue_tensor(f->c, *tensor)->name) - n - 1;
    }
    return key_nbytes;
}

static fsdpck_status split_key(flat_paths *f, const char *key, size_t nbytes, fsdpck_error *err)
{
    for (size_t at = 0; at < nbytes;) {
        const char *dot = memchr(key + at, '.', nbytes - at);
        const size_t n = dot == NULL ? nbytes - at : (size_t)(dot - key) - at;
        RETURN_IF(push_text(f, key + at, n, err));
        at += n + 1;
    }
    return FSDPCK_OK;
}

static fsdpck_status add_model_paths(flat_paths *f, fsdpck_error *err)
{
    uint32_t first;
    const size_t n = find_outer_key(f, &first);
    if (n == 0)
        return FSDPCK_OK;
    const char *key = catalogue_name(f->c, catalogue_tensor(f->c, first)->name);
    for (uint32_t i = 0; i < catalogue_tensor_count(f->c); i++) {
        cat_tensor *t = catalogue_tensor(f->c, i);
        const char *name = catalogue_name(f->c, t->name);
        const size_t nbytes = catalogue_name_nbytes(f->c, t->name);
        if (!value_is_none(t->path) || nbytes < n + 2 || name[n] != '.' ||
            memcmp(name, key, n) != 0)
            continue;
        f->elements.count = 0;
        RETURN_IF(split_key(f, key, n, err));
        RETURN_IF(push_text(f, name + n + 1, nbytes - n - 1, err));
        RETURN_IF(value_new_from(&f->c->pool, VALUE_TUPLE, f->elements.items, f->elements.count,
                                 &t->path, err));
    }
    return FSDPCK_OK;
}

static fsdpck_status infer(flat_paths *f, fsdpck_error *err)
{
    catalogue *c = f->c;
    for (uint32_t i = 0; i < catalogue_object_count(c); i++)
        RETURN_IF(add_prefix(f, i, err));
    for (uint32_t i = 0; i < catalogue_object_count(c); i++)
        RETURN_IF(list_labels(f, i, err));
    for (uint32_t i = 0; strtab_count(&f->prefixes) > 0 && i < catalogue_object_count(c); i++)
        RETURN_IF(path_of(f, catalogue_object(c, i)->name, &catalogue_object(c, i)->path, err));
    for (uint32_t i = 0; strtab_count(&f->prefixes) > 0 && i < catalogue_tensor_count(c); i++)
        RETURN_IF(path_of(f, catalogue_tensor(c, i)->name, &catalogue_tensor(c, i)->path, err));
    return FSDPCK_OK;
}

fsdpck_status rekey_paths_infer(catalogue *c, bool model_too, rekey_paths *inferred,
                                fsdpck_error *err)
{
    *inferred = (rekey_paths){0};
    if (has_paths(c))
        return FSDPCK_OK;
    flat_paths f = {.c = c,
                    .nested = VEC_OF(uint8_t, c->owner),
                    .by_number = VEC_OF(uint8_t, c->owner),
                    .elements = VEC_OF(value, c->owner)};
    strtab_init(&f.prefixes, c->owner);
    strtab_init(&f.labels, c->owner);
    strtab_init(&f.fqns, c->owner);
    fsdpck_status st = infer(&f, err);
    if (st == FSDPCK_OK && model_too)
        st = add_model_paths(&f, err);
    inferred->made = strtab_count(&f.prefixes) > 0;
    inferred->has_names = strtab_count(&f.fqns) > 0;
    strtab_release(&f.prefixes);
    strtab_release(&f.labels);
    strtab_release(&f.fqns);
    VEC_RELEASE_ALL(&f.nested, &f.by_number, &f.elements);
    text_release(&f.text);
    return st;
}

void rekey_paths_clear(catalogue *c, const rekey_paths *inferred)
{
    for (size_t i = 0; inferred->made && i < catalogue_tensor_count(c); i++)
        catalogue_tensor(c, i)->path = VALUE_OF_NONE;
    for (size_t i = 0; inferred->made && i < catalogue_object_count(c); i++)
        catalogue_object(c, i)->path = VALUE_OF_NONE;
}
