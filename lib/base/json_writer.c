#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/utf8.h"

void json_writer_init(json_writer *w, text_buf *out, unsigned indent)
{
    *w = (json_writer){.out = out, .indent = indent};
}

static void new_line(json_writer *w)
{
    static const char spaces[] = "                ";
    if (w->indent == 0)
        return;
    text_append(w->out, "\n", 1);
    size_t left = (size_t)w->indent * w->depth;
    while (left > 0) {
        const size_t n = left < sizeof(spaces) - 1 ? left : sizeof(spaces) - 1;
        text_append(w->out, spaces, n);
        left -= n;
    }
}

/* Writes the separator and indentation before a key or a value. */
static void begin_item(json_writer *w)
{
    if (w->after_key) {
        w->after_key = false;
        return;
    }
    if (w->need_comma)
        text_append(w->out, ",", 1);
    if (w->depth > 0)
        new_line(w);
}

static void begin_container(json_writer *w, const char *bracket)
{
    begin_item(w);
    text_append(w->out, bracket, 1);
    w->depth++;
    w->need_comma = false;
}

static void end_container(json_writer *w, const char *bracket)
{
    w->depth--;
    if (w->need_comma)
        new_line(w);
    text_append(w->out, bracket, 1);
    w->need_comma = true;
}

void json_begin_object(json_writer *w)
{
    begin_container(w, "{");
}

void json_end_object(json_writer *w)
{
    end_container(w, "}");
}

void json_begin_array(json_writer *w)
{
    begin_container(w, "[");
}

void json_end_array(json_writer *w)
{
    end_container(w, "]");
}

static void put_escape(text_buf *out, uint32_t c)
{
    static const char letters[] = "btnvfr"; /* from 0x08 on; JSON has no \v */
    if (c == '"' || c == '\\')
        text_printf(out, "\\%c", (int)c);
    else if (c >= 0x08 && c <= 0x0D && c != 0x0B)
        text_printf(out, "\\%c", letters[c - 0x08]);
    else if (c < 0x10000)
        text_printf(out, "\\u%04" PRIx32, c);
    else
        text_printf(out, "\\u%04" PRIx32 "\\u%04" PRIx32, 0xD800 + ((c - 0x10000) >> 10),
                    0xDC00 + ((c - 0x10000) & 0x3FF));
}

static void put_quoted(text_buf *out, const char *text, size_t nbytes)
{
    const uint8_t *s = (const uint8_t *)text;
    size_t kept = 0;
    text_append(out, "\"", 1);
    for (size_t at = 0; at < nbytes;) {
        uint32_t c = 0;
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
    begin_item(w);
    put_quoted(w->out, nbytes > 0 ? key : "", nbytes);
    text_append(w->out, ": ", w->indent > 0 ? 2 : 1);
    w->after_key = true;
}

void json_put_string(json_writer *w, const char *text, size_t nbytes)
{
    begin_item(w);
    put_quoted(w->out, nbytes > 0 ? text : "", nbytes);
    w->need_comma = true;
}

static void put_word(json_writer *w, const char *word)
{
    begin_item(w);
    text_puts(w->out, word);
    w->need_comma = true;
}

void json_put_cstr(json_writer *w, const char *text)
{
    if (text == NULL)
        put_word(w, "null");
    else
        json_put_string(w, text, strlen(text));
}

void json_put_number(json_writer *w, const char *text, size_t nbytes)
{
    begin_item(w);
    text_append(w->out, text, nbytes);
    w->need_comma = true;
}

void json_put_u64(json_writer *w, uint64_t v)
{
    char text[24];
    snprintf(text, sizeof(text), "%" PRIu64, v);
    put_word(w, text);
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
        json_put_number(w, t->text, t->nbytes);
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
