#include <string.h>

#include "base/json.h"
#include "base/utf8.h"
#include "formats/hdf5/hdf5_objects.h"

#define DEPTH_MAX 48u

typedef struct level {
    value container;
    size_t next;
} level;

typedef struct json_walk {
    const value_pool *pool;
    json_writer w;
    level stack[DEPTH_MAX];
    unsigned depth;
} json_walk;

/* A float stays one: 1.0, not 1. */
static bool put_float(json_writer *w, double d)
{
    if (d - d != 0.0)
        return false;
    text_buf digits = {0};
    json_writer scratch;
    json_writer_init(&scratch, &digits, 0);
    json_put_double(&scratch, d);
    if (digits.text != NULL && strpbrk(digits.text, ".e") == NULL)
        text_puts(&digits, ".0");
    const bool ok = !digits.failed && digits.text != NULL;
    if (ok)
        json_put_raw(w, digits.text, digits.nbytes);
    text_release(&digits);
    return ok;
}

static bool push(json_walk *s, value v)
{
    if (s->depth == DEPTH_MAX)
        return false;
    if (value_kind_of(v) == VALUE_DICT)
        json_begin_object(&s->w);
    else
        json_begin_array(&s->w);
    s->stack[s->depth++] = (level){.container = v};
    return true;
}

static bool put_value(json_walk *s, value v)
{
    const char *text;
    size_t nbytes;
    int64_t i;
    double d;
    switch (value_kind_of(v)) {
    case VALUE_NONE:
        json_put_null(&s->w);
        return true;
    case VALUE_BOOL:
        json_put_bool(&s->w, value_is_true(v));
        return true;
    case VALUE_INT:
        if (!value_as_i64(s->pool, v, &i))
            return false;
        json_put_i64(&s->w, i);
        return true;
    case VALUE_FLOAT:
        return value_as_double(s->pool, v, &d) && put_float(&s->w, d);
    case VALUE_STR:
        text = value_text(s->pool, v, &nbytes);
        if (text == NULL || !utf8_is_text(text, nbytes))
            return false;
        json_put_string(&s->w, text, nbytes);
        return true;
    case VALUE_LIST:
    case VALUE_TUPLE:
    case VALUE_DICT:
        return push(s, v);
    default:
        return false;
    }
}

/* The next item of the innermost container, or its end. */
static bool step(json_walk *s)
{
    level *top = &s->stack[s->depth - 1];
    const bool is_dict = value_kind_of(top->container) == VALUE_DICT;
    if (top->next == value_count(s->pool, top->container)) {
        s->depth--;
        if (is_dict)
            json_end_object(&s->w);
        else
            json_end_array(&s->w);
        return true;
    }
    const size_t at = top->next++;
    if (is_dict) {
        size_t nbytes;
        const value key = value_key(s->pool, top->container, at);
        const char *text = value_text(s->pool, key, &nbytes);
        if (value_kind_of(key) != VALUE_STR || text == NULL || !utf8_is_text(text, nbytes))
            return false;
        json_put_key(&s->w, text, nbytes);
    }
    return put_value(s, value_item(s->pool, top->container, at));
}

/* Shared parts are written at each occurrence. */
static bool put_object(const value_pool *pool, value v, text_buf *out)
{
    json_walk s = {.pool = pool};
    json_writer_init(&s.w, out, 0);
    bool plain = put_value(&s, v);
    while (plain && s.depth > 0 && !out->failed)
        plain = step(&s);
    return plain && !out->failed;
}

bool hdf5_holds_object(const value_pool *pool, value v)
{
    text_buf scratch = {.limit_bytes = HDF5_OBJECTS_NBYTES_MAX};
    const bool held = put_object(pool, v, &scratch);
    text_release(&scratch);
    return held;
}

static fsdpck_status check_name(uint8_t *seen, const catalogue *cat, uint32_t name,
                                fsdpck_error *err)
{
    fsdpck_status st;
    if (seen[name])
        st =
            FAIL(err, UNSUPPORTED, KEY_DUP, "HDF5 file cannot hold two objects with the same name");
    else if (!utf8_is_text(catalogue_name(cat, name), catalogue_name_nbytes(cat, name)))
        st = FAIL(err, UNSUPPORTED, NONE, "HDF5 cannot hold an object whose name is not UTF-8");
    else {
        seen[name] = 1;
        return FSDPCK_OK;
    }
    error_tensor(err, catalogue_name(cat, name));
    error_next(err, "omit objects of this name with --exclude, or all objects with --objects drop");
    return st;
}

fsdpck_status hdf5_objects_write(const catalogue *cat, text_buf *json, fsdpck_error *err)
{
    const size_t count = catalogue_object_count(cat);
    const size_t seen_nbytes = strtab_count(&cat->names);
    if (count == 0)
        return FSDPCK_OK;
    uint8_t *seen = budget_alloc(cat->owner, seen_nbytes, err);
    if (seen == NULL)
        return FSDPCK_LIMIT;
    fsdpck_status st = FSDPCK_OK;
    for (size_t i = 0; i < count && st == FSDPCK_OK; i++) {
        const cat_object *o = catalogue_object(cat, i);
        json_writer key;
        text_puts(json, i == 0 ? "{" : ",");
        json_writer_init(&key, json, 0);
        json_put_string(&key, catalogue_name(cat, o->name), catalogue_name_nbytes(cat, o->name));
        text_puts(json, ":");
        st = check_name(seen, cat, o->name, err);
        if (st == FSDPCK_OK && !put_object(&cat->pool, o->content, json) && !json->failed)
            st = FAIL(err, INTERNAL, NONE, "object cannot be expressed in JSON");
    }
    text_puts(json, "}");
    budget_free(cat->owner, seen, seen_nbytes);
    if (st != FSDPCK_OK || (!json->failed && json->nbytes <= HDF5_OBJECTS_NBYTES_MAX))
        return st;
    return FAIL_WITH(err, UNSUPPORTED, NONE, ("objects are too long for an HDF5 file"),
                     (expected, "at most %zu bytes of JSON", HDF5_OBJECTS_NBYTES_MAX),
                     (next, "omit them with --objects drop or --exclude, or write a .pt file"));
}
