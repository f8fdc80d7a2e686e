#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/utf8.h"

#define DRAIN_NBYTES ((size_t)1 << 16)

void json_writer_init(json_writer *w, text_buf *out, unsigned indent)
{
    *w = (json_writer){.out = out, .indent = indent};
}

static void new_line(json_writer *w)
{
    const bool tabs = w->indent == JSON_TABS;
    const char *const blanks = tabs ? "\t\t\t\t\t\t\t\t" : "        ";
    if (w->indent == 0)
        return;
    text_append(w->out, "\n", 1);
    for (size_t left = (size_t)(tabs ? 1 : w->indent) * w->depth; left > 0;) {
        const size_t n = left < 8 ? left : 8;
        text_append(w->out, blanks, n);
        left -= n;
    }
}

/* Writes the comma, and the indentation of a key or value at the beginning of a line. */
static void begin_item(json_writer *w, bool on_line)
{
    if (w->after_key) {
        w->after_key = false;
        return;
    }
    if (w->need_comma)
        text_append(w->out, ",", 1);
    if (w->depth > 0 && on_line)
        new_line(w);
    else if (w->need_comma)
        text_append(w->out, " ", 1);
}

/* Before a value. */
static void begin_value(json_writer *w)
{
    begin_item(w, w->indent != JSON_TABS);
    w->need_comma = true;
}

static void begin_container(json_writer *w, const char *bracket)
{
    begin_value(w);
    text_append(w->out, bracket, 1);
    w->depth++;
    w->need_comma = false;
}

static void end_container(json_writer *w, const char *bracket, bool on_line)
{
    w->depth--;
    if (on_line)
        new_line(w);
    text_append(w->out, bracket, 1);
    w->need_comma = true;
    if (w->drain != NULL && w->out->nbytes > DRAIN_NBYTES && !w->out->failed)
        w->drain(w->out);
}

void json_begin_object(json_writer *w)
{
    begin_container(w, "{");
}

void json_end_object(json_writer *w)
{
    end_container(w, "}", w->need_comma || w->indent == JSON_TABS);
}

void json_begin_array(json_writer *w)
{
    begin_container(w, "[");
}

void json_end_array(json_writer *w)
{
    end_container(w, "]", w->need_comma && w->indent != JSON_TABS);
}

void json_begin_line(json_writer *w)
{
    begin_item(w, true);
    w->after_key = true; /* the line has begun */
    w->line_indent = w->indent;
    w->indent = 0;
    json_begin_object(w);
}

void json_end_line(json_writer *w)
{
    json_end_object(w);
    w->indent = w->line_indent;
}

static void put_escape(text_buf *out, uint32_t c)
{
    static const char letters[] = "btnvfr"; /* from 0x08 on; JSON has no \v */
    if (c == '"' || c == '\\')
        text_append(out, c == '"' ? "\\\"" : "\\\\", 2);
    else if (c >= 0x08 && c <= 0x0D && c != 0x0B)
        text_printf(out, "\\%c", letters[c - 0x08]);
    else if (c < 0x10000)
        text_printf(out, "\\u%04" PRIx32, c);
    else
        text_printf(out, "\\u%04" PRIx32 "\\u%04" PRIx32, 0xD800 + ((c - 0x10000) >> 10),
                    0xDC00 + ((c - 0x10000) & 0x3FF));
}

/* Index of the first byte from `at` on that may need an escape. */
static size_t skip_plain(const uint8_t *s, size_t nbytes, size_t at)
{
    while (at < nbytes && s[at] >= 0x20 && s[at] < 0x7F && s[at] != '"' && s[at] != '\\')
        at++;
    return at;
}

static void put_quoted(text_buf *out, const char *text, size_t nbytes)
{
    const uint8_t *s = (const uint8_t *)text;
    size_t kept = 0, at = 0;
    text_append(out, "\"", 1);
    for (;;) {
        uint32_t c = 0;
        at = skip_plain(s, nbytes, at);
        if (at == nbytes)
            break;
        const unsigned n = utf8_decode(s + at, nbytes - at, &c);
        if (n > 0 && c != '"' && c != '\\' && !utf8_hidden(c)) {
            at += n;
            continue;
        }
        text_append(out, s + kept, at - kept);
        if (n == 0)
            text_append(out, "\xEF\xBF\xBD", 3);
        else
            put_escape(out, c);
        at += n > 0 ? n : 1;
        kept = at;
    }
    text_append(out, s + kept, nbytes - kept);
    text_append(out, "\"", 1);
}

void json_put_key(json_writer *w, const char *key, size_t nbytes)
{
    begin_item(w, true);
    put_quoted(w->out, nbytes > 0 ? key : "", nbytes);
    text_puts(w->out, w->indent == 0 ? ":" : w->indent == JSON_TABS ? ":\t" : ": ");
    w->after_key = true;
}

void json_put_string(json_writer *w, const char *text, size_t nbytes)
{
    begin_value(w);
    put_quoted(w->out, nbytes > 0 ? text : "", nbytes);
}

static void put_word(json_writer *w, const char *word)
{
    begin_value(w);
    text_puts(w->out, word);
}

void json_put_cstr(json_writer *w, const char *text)
{
    if (text == NULL)
        put_word(w, "null");
    else
        json_put_string(w, text, strlen(text));
}

void json_put_raw(json_writer *w, const char *text, size_t nbytes)
{
    if (nbytes == 0)
        return;
    begin_value(w);
    text_append(w->out, text, nbytes);
}

void json_put_u64(json_writer *w, uint64_t v)
{
    char text[20]; /* 2^64-1 has 20 digits */
    size_t at = sizeof text;
    do {
        text[--at] = (char)('0' + v % 10);
        v /= 10;
    } while (v > 0);
    begin_value(w);
    text_append(w->out, text + at, sizeof text - at);
}

void json_put_i64(json_writer *w, int64_t v)
{
    char text[24];
    snprintf(text, sizeof(text), "%" PRId64, v);
    put_word(w, text);
}

void json_put_double(json_writer *w, double v)
{
    if (v - v != 0.0) { /* infinite or not a number */
        put_word(w, "null");
        return;
    }
    char text[64];
    if (v > -1e16 && v < 1e16 && v == (double)(int64_t)v) {
        snprintf(text, sizeof(text), "%.0f", v);
        put_word(w, text);
        return;
    }
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(text, sizeof(text), "%.*g", digits, v);
        if (strtod(text, NULL) == v)
            break;
    }
    /* The locale may use another decimal point, possibly of several bytes. */
    char json[64];
    size_t n = 0;
    bool foreign = false;
    for (const char *p = text; *p != '\0'; p++) {
        const bool own = strchr("0123456789+-e", *p) != NULL;
        if (own || !foreign)
            json[n++] = own ? *p : '.';
        foreign = !own;
    }
    json[n] = '\0';
    put_word(w, json);
}

void json_put_bool(json_writer *w, bool v)
{
    put_word(w, v ? "true" : "false");
}

void json_put_u64s(json_writer *w, const uint64_t *values, size_t count)
{
    json_begin_array(w);
    for (size_t i = 0; i < count; i++)
        json_put_u64(w, values[i]);
    json_end_array(w);
}

void json_put_null(json_writer *w)
{
    put_word(w, "null");
}

void json_put_token(json_writer *w, const json_token *t)
{
    switch (t->kind) {
    case JSON_OBJECT:
        json_begin_object(w);
        break;
    case JSON_OBJECT_END:
        json_end_object(w);
        break;
    case JSON_ARRAY:
        json_begin_array(w);
        break;
    case JSON_ARRAY_END:
        json_end_array(w);
        break;
    case JSON_KEY:
        json_put_key(w, t->text, t->nbytes);
        break;
    case JSON_STRING:
        json_put_string(w, t->text, t->nbytes);
        break;
    case JSON_NUMBER:
        json_put_raw(w, t->text, t->nbytes);
        break;
    case JSON_TRUE:
        json_put_bool(w, true);
        break;
    case JSON_FALSE:
        json_put_bool(w, false);
        break;
    case JSON_NULL:
        json_put_null(w);
        break;
    case JSON_END:
        break;
    }
}

static void put_name(json_writer *w, const char *key)
{
    json_put_key(w, key, strlen(key));
}

void json_member_object(json_writer *w, const char *key)
{
    put_name(w, key);
    json_begin_object(w);
}

void json_member_array(json_writer *w, const char *key)
{
    put_name(w, key);
    json_begin_array(w);
}

void json_member_text(json_writer *w, const char *key, const char *text, size_t nbytes)
{
    put_name(w, key);
    json_put_string(w, text, nbytes);
}

void json_member_string(json_writer *w, const char *key, const char *text)
{
    if (text != NULL)
        json_member_text(w, key, text, strlen(text));
}

void json_member_u64(json_writer *w, const char *key, uint64_t v)
{
    put_name(w, key);
    json_put_u64(w, v);
}

void json_member_i64(json_writer *w, const char *key, int64_t v)
{
    put_name(w, key);
    json_put_i64(w, v);
}

void json_member_double(json_writer *w, const char *key, double v)
{
    put_name(w, key);
    json_put_double(w, v);
}

void json_member_bool(json_writer *w, const char *key, bool v)
{
    put_name(w, key);
    json_put_bool(w, v);
}

void json_member_u64s(json_writer *w, const char *key, const uint64_t *values, size_t count)
{
    put_name(w, key);
    json_put_u64s(w, values, count);
}

void json_put_counts(json_writer *w, const json_count *counts)
{
    for (; counts->key != NULL; counts++)
        json_member_u64(w, counts->key, counts->value);
}

void json_member_counts(json_writer *w, const char *key, const json_count *counts)
{
    json_member_object(w, key);
    json_put_counts(w, counts);
    json_end_object(w);
}
