#include "run/config_edit.h"

#include <stdio.h>
#include <string.h>

#include "base/json.h"

typedef struct edit_state {
    const config_change *change;
    const char *text;
    json_reader r;
    text_buf *out;
    size_t copied;    /* bytes of the text that are in `out`, or omitted */
    size_t value_end; /* of the last member at the top that stays */
    size_t omitted;   /* where an omitted member begins; SIZE_MAX: none is open */
    size_t omitted_end;
    bool has_dtype;
    bool has_members; /* at the top */
} edit_state;

/* Copies up to `begin` and continues at `end`. */
static void splice(edit_state *e, size_t begin, size_t end, const char *text)
{
    text_append(e->out, e->text + e->copied, begin - e->copied);
    text_puts(e->out, text);
    e->copied = end;
}

static bool is_dtype_key(const char *key)
{
    return strcmp(key, "dtype") == 0 || strcmp(key, "torch_dtype") == 0;
}

static void put_dtype(edit_state *e, const json_token *value, size_t end)
{
    char quoted[64];
    snprintf(quoted, sizeof quoted, "\"%s\"", e->change->dtype);
    splice(e, value->offset_bytes, end, quoted);
}

static bool is_old_dtype(const edit_state *e, const json_token *value)
{
    return value->kind == JSON_STRING && json_is(value, e->change->was);
}

/* A key that is longer than all that matter reads as "". */
static void copy_key(const json_token *t, char *key, size_t capacity)
{
    snprintf(key, capacity, "%.*s", (int)(t->nbytes < capacity ? t->nbytes : 0), t->text);
}

/* The members of text_config and its like. */
static fsdpck_status edit_inner(edit_state *e, fsdpck_error *err)
{
    json_token t;
    char key[32];
    for (;;) {
        RETURN_IF(json_next(&e->r, &t, err));
        if (t.kind == JSON_OBJECT_END)
            return FSDPCK_OK;
        copy_key(&t, key, sizeof key);
        RETURN_IF(json_next(&e->r, &t, err));
        if (e->change->dtype != NULL && is_dtype_key(key) && is_old_dtype(e, &t))
            put_dtype(e, &t, e->r.at);
        RETURN_IF(json_skip(&e->r, &t, err));
    }
}

/* A member at the top, after its key. */
static fsdpck_status edit_member(edit_state *e, const char *key, size_t key_at, fsdpck_error *err)
{
    json_token value;
    const bool omits = e->change->unquantized && strcmp(key, "quantization_config") == 0;
    if (e->omitted != SIZE_MAX && !omits) {
        splice(e, e->omitted, key_at, "");
        e->omitted = SIZE_MAX;
    }
    if (omits && e->omitted == SIZE_MAX)
        e->omitted = key_at;
    RETURN_IF(json_next(&e->r, &value, err));
    if (e->change->dtype != NULL && is_dtype_key(key)) {
        e->has_dtype = true;
        RETURN_IF(json_skip(&e->r, &value, err));
        put_dtype(e, &value, e->r.at);
    } else if (!omits && value.kind == JSON_OBJECT && text_ends_with(key, strlen(key), "_config")) {
        RETURN_IF(edit_inner(e, err));
    } else {
        RETURN_IF(json_skip(&e->r, &value, err));
    }
    if (omits) {
        e->omitted_end = e->r.at;
    } else {
        e->value_end = e->r.at;
        e->has_members = true;
    }
    return FSDPCK_OK;
}

static fsdpck_status edit_top(edit_state *e, fsdpck_error *err)
{
    json_token t;
    char key[64];
    RETURN_IF(json_expect(&e->r, JSON_OBJECT, &t, err));
    e->value_end = e->r.at;
    for (;;) {
        RETURN_IF(json_next(&e->r, &t, err));
        if (t.kind == JSON_OBJECT_END)
            break;
        copy_key(&t, key, sizeof key);
        RETURN_IF(edit_member(e, key, t.offset_bytes, err));
    }
    RETURN_IF(json_expect(&e->r, JSON_END, &t, err));
    char added[96] = "";
    if (e->change->dtype != NULL && !e->has_dtype)
        snprintf(added, sizeof added, "%s\n  \"dtype\": \"%s\"", e->has_members ? "," : "",
                 e->change->dtype);
    /* An omitted last member goes with the comma before it. */
    splice(e, e->value_end, e->omitted == SIZE_MAX ? e->value_end : e->omitted_end, added);
    splice(e, e->r.nbytes, e->r.nbytes, "");
    return FSDPCK_OK;
}

fsdpck_status config_edit(const char *text, size_t nbytes, const config_change *change,
                          text_buf *out, fsdpck_error *err)
{
    edit_state e = {.change = change, .text = text, .out = out, .omitted = SIZE_MAX};
    json_reader_init(&e.r, text, nbytes, FSDPCK_FINDING_MAP_CONFIG);
    e.r.takes_python_numbers = true;
    fsdpck_status st = edit_top(&e, err);
    json_reader_release(&e.r);
    return st == FSDPCK_OK ? text_check(out, err) : st;
}
