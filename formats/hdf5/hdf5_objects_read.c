#include <errno.h>
#include <locale.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "formats/hdf5/hdf5_objects.h"

#define NUMBER_NBYTES_MAX 128u

typedef struct taking {
    value_pool *pool;
    json_reader r;
    value stack[JSON_DEPTH_LIMIT]; /* containers that are open */
    unsigned depth;
    value key; /* of the innermost, if it is a dict */
} taking;

static fsdpck_status number(taking *s, const json_token *t, value *v, fsdpck_error *err)
{
    /* strtod expects the decimal point of the locale. */
    const char *point = localeconv()->decimal_point;
    char text[NUMBER_NBYTES_MAX];
    char *end;
    size_t n = 0;
    bool is_float = false;
    if (t->nbytes + strlen(point) >= sizeof text)
        return error_set(err, FSDPCK_BADINPUT, s->r.finding, "number in an object is too long");
    for (size_t i = 0; i < t->nbytes; i++) {
        is_float = is_float || strchr(".eE", t->text[i]) != NULL;
        if (t->text[i] != '.') {
            text[n++] = t->text[i];
            continue;
        }
        memcpy(text + n, point, strlen(point));
        n += strlen(point);
    }
    text[n] = '\0';
    if (is_float)
        return value_new_float(s->pool, strtod(text, NULL), v, err);
    errno = 0;
    const long long i = strtoll(text, &end, 10);
    if (errno != 0 || *end != '\0')
        return error_set(err, FSDPCK_BADINPUT, s->r.finding,
                         "int in an object has more than 64 bits");
    return value_new_int(s->pool, i, v, err);
}

/* A value by its first token; a container comes back empty, and is open from now on. */
static fsdpck_status value_of(taking *s, const json_token *t, value *v, fsdpck_error *err)
{
    switch (t->kind) {
    case JSON_OBJECT:
        RETURN_IF(value_new_dict(s->pool, v, err));
        break;
    case JSON_ARRAY:
        RETURN_IF(value_new_list(s->pool, v, err));
        break;
    case JSON_STRING:
        return value_new_str(s->pool, t->text, t->nbytes, v, err);
    case JSON_NUMBER:
        return number(s, t, v, err);
    case JSON_TRUE:
    case JSON_FALSE:
        *v = value_of_bool(t->kind == JSON_TRUE);
        return FSDPCK_OK;
    default:
        *v = VALUE_OF_NONE;
        return FSDPCK_OK;
    }
    if (s->depth == JSON_DEPTH_LIMIT)
        return FAIL(err, LIMIT, NONE, "object is nested too deeply");
    s->stack[s->depth++] = *v;
    return FSDPCK_OK;
}

static fsdpck_status take_item(taking *s, const json_token *t, fsdpck_error *err)
{
    const value into = s->stack[s->depth - 1];
    const value key = s->key;
    value v;
    if (t->kind == JSON_OBJECT_END || t->kind == JSON_ARRAY_END) {
        s->depth--;
        return FSDPCK_OK;
    }
    if (t->kind == JSON_KEY)
        return value_new_str(s->pool, t->text, t->nbytes, &s->key, err);
    RETURN_IF(value_of(s, t, &v, err));
    return value_kind_of(into) == VALUE_DICT ? value_dict_put(s->pool, into, key, v, err)
                                             : value_append(s->pool, into, v, err);
}

/* The value of a key of the outermost object. */
static fsdpck_status take_content(taking *s, value *content, fsdpck_error *err)
{
    json_token t;
    RETURN_IF(json_next(&s->r, &t, err));
    s->depth = 0;
    RETURN_IF(value_of(s, &t, content, err));
    while (s->depth > 0) {
        RETURN_IF(json_next(&s->r, &t, err));
        RETURN_IF(take_item(s, &t, err));
    }
    return FSDPCK_OK;
}

static fsdpck_status take_member(taking *s, catalogue *cat, strtab *seen, const json_token *key,
                                 fsdpck_error *err)
{
    const size_t count = strtab_count(seen);
    uint32_t id, object;
    RETURN_IF(strtab_intern(seen, key->text, key->nbytes, &id, err));
    if (id < count)
        return error_set(err, FSDPCK_BADINPUT, s->r.finding, "object is listed twice");
    RETURN_IF(catalogue_add_object(cat, key->text, key->nbytes, &object, err));
    value content;
    RETURN_IF(take_content(s, &content, err));
    cat_object *made = catalogue_object(cat, object);
    made->file = CAT_NONE;
    made->rank = UINT16_MAX;
    made->loaded = true;
    made->content = content;
    return FSDPCK_OK;
}

static fsdpck_status take_all(taking *s, catalogue *cat, strtab *seen, fsdpck_error *err)
{
    json_token t;
    RETURN_IF(json_expect(&s->r, JSON_OBJECT, &t, err));
    for (;;) {
        RETURN_IF(json_next(&s->r, &t, err));
        if (t.kind == JSON_OBJECT_END)
            return json_expect(&s->r, JSON_END, &t, err);
        RETURN_IF(take_member(s, cat, seen, &t, err));
    }
}

fsdpck_status hdf5_objects_read(catalogue *cat, const char *json, size_t nbytes,
                                fsdpck_finding_id finding, fsdpck_error *err)
{
    taking s = {.pool = &cat->pool};
    strtab seen;
    strtab_init(&seen, cat->owner);
    json_reader_init(&s.r, json, nbytes, finding);
    const fsdpck_status st = take_all(&s, cat, &seen, err);
    json_reader_release(&s.r);
    strtab_release(&seen);
    return st;
}
