/* json.h: strict JSON (RFC 8259) in one pass without a tree, and a writer.
 *
 * Reading: a pull parser over bytes in memory. No recursion, depth at most 64, no NaN unless
 * takes_python_numbers is set, no comments, no trailing commas; UTF-8 is checked (no surrogates, no overlong
 * forms). The caller checks for duplicate keys, because objects may be large.
 *
 *     json_reader r;
 *     json_reader_init(&r, text, nbytes, "ST-JSON");
 *     json_token t;
 *     do {
 *         RETURN_IF(json_next(&r, &t, err));
 *         ...
 *     } while (t.kind != JSON_END);
 *     json_reader_release(&r);      // also before an early return
 *
 * An object gives JSON_OBJECT, then for each member JSON_KEY and the value's tokens, then
 * JSON_OBJECT_END. Only white space may follow the root value; then every call returns JSON_END.
 * Errors: BADINPUT with the given finding and the byte offset in `text`.
 *
 * Writing: see json_writer below.
 */
#ifndef FSDPCK_BASE_JSON_H
#define FSDPCK_BASE_JSON_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/alloc.h"
#include "base/status.h"
#include "base/text.h"

typedef enum json_kind {
    JSON_END,
    JSON_OBJECT,
    JSON_OBJECT_END,
    JSON_ARRAY,
    JSON_ARRAY_END,
    JSON_KEY,
    JSON_STRING,
    JSON_NUMBER,
    JSON_TRUE,
    JSON_FALSE,
    JSON_NULL
} json_kind;

typedef struct json_token {
    json_kind kind;
    const char *text; /* KEY, STRING: unescaped (may contain NUL); NUMBER: as written. Borrowed
                       * until the next json_next */
    size_t nbytes;
    bool is_u64;  /* NUMBER without sign, fraction and exponent that fits 64 bits */
    uint64_t u64; /* its value */
    size_t offset_bytes;
} json_token;

/* Whether a KEY or STRING is `word`. */
static inline bool json_is(const json_token *t, const char *word)
{
    return text_is(t->text, t->nbytes, word);
}

#define JSON_DEPTH_LIMIT 64u

typedef struct json_reader {
    const char *text;
    size_t nbytes;
    size_t at;
    fsdpck_finding_id finding;
    uint8_t stack[JSON_DEPTH_LIMIT]; /* 'o' or 'a' */
    unsigned depth;
    int state;
    /* Set after json_reader_init: NaN, Infinity and -Infinity, which Python writes, are NUMBERs. */
    bool takes_python_numbers;
    text_buf unescaped;
} json_reader;

void json_reader_init(json_reader *r, const char *text, size_t nbytes, fsdpck_finding_id finding);
fsdpck_status json_next(json_reader *r, json_token *token, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Skips the rest of the value whose first token was just read. */
fsdpck_status json_skip(json_reader *r, const json_token *first,
                        fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Next token, which must be of `kind`. */
fsdpck_status json_expect(json_reader *r, json_kind kind, json_token *token,
                          fsdpck_error *err) FSDPCK_MUST_CHECK;
void json_reader_release(json_reader *r);

/* Writes into a text_buf, with commas and indentation. Strings are bytes: invalid UTF-8 is written as
 * U+FFFD; controls and invisible characters are written as \u escapes, so that printed JSON cannot
 * control a terminal. Check at the end with text_check(out) that everything was kept. */
typedef struct json_writer {
    text_buf *out;
    unsigned indent;
    unsigned line_indent;         /* indent outside the object that json_begin_line began */
    void (*drain)(text_buf *out); /* NULL, or empties `out` after a container if it is large */
    unsigned depth;
    bool need_comma;
    bool after_key;
} json_writer;

/* An indent: tabs, and arrays on one line. */
#define JSON_TABS UINT_MAX

/* indent: spaces per level, 0 (compact) or JSON_TABS. */
void json_writer_init(json_writer *w, text_buf *out, unsigned indent);
void json_begin_object(json_writer *w);
void json_end_object(json_writer *w);
void json_begin_array(json_writer *w);
void json_end_array(json_writer *w);
/* An object in an array, on a line of its own. */
void json_begin_line(json_writer *w);
void json_end_line(json_writer *w);
void json_put_key(json_writer *w, const char *key, size_t nbytes);
void json_put_string(json_writer *w, const char *text, size_t nbytes);
void json_put_cstr(json_writer *w, const char *text); /* NULL writes null */
void json_put_u64(json_writer *w, uint64_t v);
void json_put_i64(json_writer *w, int64_t v);
/* Shortest form that reads back exactly, as Python's without ".0". Not finite: null. */
void json_put_double(json_writer *w, double v);
/* Unchanged: a number token of the reader, or values that another writer separated by commas. The
 * caller guarantees that it is JSON. Nothing for 0 bytes. */
void json_put_raw(json_writer *w, const char *text, size_t nbytes);
void json_put_bool(json_writer *w, bool v);
void json_put_u64s(json_writer *w, const uint64_t *values, size_t count); /* an array */
void json_put_null(json_writer *w);
/* Writes a token of the reader; nothing for JSON_END. */
void json_put_token(json_writer *w, const json_token *t);

/* Members of an object: the key, and the value or its beginning. */
void json_member_object(json_writer *w, const char *key);
void json_member_array(json_writer *w, const char *key);
void json_member_text(json_writer *w, const char *key, const char *text, size_t nbytes);
void json_member_string(json_writer *w, const char *key, const char *text); /* nothing for NULL */
void json_member_u64(json_writer *w, const char *key, uint64_t v);
void json_member_i64(json_writer *w, const char *key, int64_t v);
void json_member_double(json_writer *w, const char *key, double v);
void json_member_bool(json_writer *w, const char *key, bool v);
void json_member_u64s(json_writer *w, const char *key, const uint64_t *values, size_t count);

/* Many members at once: JSON_COUNTS(w, {"tensors", 3}, {"bytes", 96}). */
typedef struct json_count {
    const char *key; /* NULL at the end */
    uint64_t value;
} json_count;

#define JSON_COUNT_LIST(...) ((const json_count[]){__VA_ARGS__, {NULL, 0}})
#define JSON_COUNTS(w, ...)  json_put_counts(w, JSON_COUNT_LIST(__VA_ARGS__))
void json_put_counts(json_writer *w, const json_count *counts);
/* An object of such members, which is the member `key`. */
#define JSON_MEMBER_COUNTS(w, key, ...) json_member_counts(w, key, JSON_COUNT_LIST(__VA_ARGS__))
void json_member_counts(json_writer *w, const char *key, const json_count *counts);

#endif
