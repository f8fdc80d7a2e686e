#include <string.h>

#include "base/bytes.h"
#include "base/json.h"
#include "base/utf8.h"

enum state {
    STATE_VALUE,        /* a value must follow */
    STATE_VALUE_OR_END, /* after '[' */
    STATE_KEY,          /* after ',' in an object */
    STATE_KEY_OR_END,   /* after '{' */
    STATE_AFTER,        /* after a value in an object or array */
    STATE_DONE,         /* after the root value */
    STATE_FAILED
};

void json_reader_init(json_reader *r, const char *text, size_t nbytes, fsdpck_finding_id finding)
{
    memset(r, 0, sizeof(*r));
    r->text = text;
    r->nbytes = nbytes;
    r->finding = finding;
    r->state = STATE_VALUE;
    r->unescaped.limit_bytes = nbytes; /* unescaped text is never longer */
}

void json_reader_release(json_reader *r)
{
    text_release(&r->unescaped);
}

static fsdpck_status fail(json_reader *r, size_t at, const char *expected, fsdpck_error *err)
{
    r->state = STATE_FAILED;
    FAIL_AS(err, FSDPCK_BADINPUT, r->finding, ("text is not strict JSON"), (offset, at),
            (expected, "%s", expected));
    if (at >= r->nbytes) {
        error_found(err, "the end of the text");
    } else {
        char shown[64];
        const size_t left = r->nbytes - at;
        error_found(err, "'%s'",
                    escape_text(shown, sizeof(shown), r->text + at, left < 16 ? left : 16));
    }
    return FSDPCK_BADINPUT;
}

static bool is_space(char c)
{
    return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

/* Between most tokens is no space, or one. */
static inline void skip_space(json_reader *r)
{
    while (r->at < r->nbytes && (uint8_t)r->text[r->at] <= ' ' && is_space(r->text[r->at]))
        r->at++;
}

static int peek(const json_reader *r)
{
    return r->at < r->nbytes ? (uint8_t)r->text[r->at] : -1;
}

static bool in_object(const json_reader *r)
{
    return r->depth > 0 && r->stack[r->depth - 1] == 'o';
}

static void value_done(json_reader *r)
{
    r->state = r->depth > 0 ? STATE_AFTER : STATE_DONE;
}

#define EVERY_BYTE UINT64_C(0x0101010101010101)
#define HIGH_BITS  UINT64_C(0x8080808080808080)

/* Index of the first byte from `at` on that is not plain: a quote, a backslash, a control or the
 * start of a longer character. Tests eight bytes at a time. Only after a true alarm may a false one
 * follow, because a byte borrows from the next one only if it is not plain: the first is true. */
static size_t skip_plain(const json_reader *r, size_t at)
{
    while (r->nbytes - at >= 8) {
        const uint64_t x = load_le64((const uint8_t *)r->text + at);
        const uint64_t quote = x ^ (EVERY_BYTE * '"');
        const uint64_t slash = x ^ (EVERY_BYTE * '\\');
        const uint64_t low = x - EVERY_BYTE * 0x20;
        const uint64_t alarms = ((quote - EVERY_BYTE) | (slash - EVERY_BYTE) | low | x) & HIGH_BITS;
        if (alarms != 0)
            return at + (unsigned)__builtin_ctzll(alarms) / 8;
        at += 8;
    }
    while (at < r->nbytes) {
        const uint8_t c = (uint8_t)r->text[at];
        if (c == '"' || c == '\\' || c < 0x20 || c >= 0x80)
            break;
        at++;
    }
    return at;
}

static bool read_hex4(const json_reader *r, size_t at, uint32_t *value)
{
    if (r->nbytes - at < 4)
        return false;
    uint32_t v = 0;
    for (size_t i = 0; i < 4; i++) {
        const uint8_t c = (uint8_t)r->text[at + i];
        uint32_t digit;
        if (c >= '0' && c <= '9')
            digit = c - '0';
        else if ((c | 0x20) >= 'a' && (c | 0x20) <= 'f')
            digit = (uint32_t)(c | 0x20) - 'a' + 10;
        else
            return false;
        v = v << 4 | digit;
    }
    *value = v;
    return true;
}

static void append_code_point(text_buf *b, uint32_t c)
{
    uint8_t u[4];
    size_t n;
    if (c < 0x80) {
        u[0] = (uint8_t)c;
        n = 1;
    } else if (c < 0x800) {
        u[0] = (uint8_t)(0xC0 | c >> 6);
        n = 2;
    } else if (c < 0x10000) {
        u[0] = (uint8_t)(0xE0 | c >> 12);
        n = 3;
    } else {
        u[0] = (uint8_t)(0xF0 | c >> 18);
        n = 4;
    }
    for (size_t i = 1; i < n; i++)
        u[i] = (uint8_t)(0x80 | (c >> 6 * (n - 1 - i) & 0x3F));
    text_append(b, u, n);
}

/* \uXXXX at `at` (after the u), or a pair of surrogates. Returns the index after it, or 0. */
static size_t read_u_escape(json_reader *r, size_t at)
{
    uint32_t c;
    uint32_t low;
    if (!read_hex4(r, at, &c))
        return 0;
    at += 4;
    if (c >= 0xD800 && c <= 0xDFFF) {
        if (c > 0xDBFF || r->nbytes - at < 6 || r->text[at] != '\\' || r->text[at + 1] != 'u' ||
            !read_hex4(r, at + 2, &low) || low < 0xDC00 || low > 0xDFFF)
            return 0;
        c = 0x10000 + ((c - 0xD800) << 10) + (low - 0xDC00);
        at += 6;
    }
    append_code_point(&r->unescaped, c);
    return at;
}

/* What a letter after a backslash stands for; '\0': nothing. */
static char meaning_of(char letter)
{
    switch (letter) {
    case '"':
    case '\\':
    case '/':
        return letter;
    case 'b':
        return '\b';
    case 'f':
        return '\f';
    case 'n':
        return '\n';
    case 'r':
        return '\r';
    case 't':
        return '\t';
    default:
        return '\0';
    }
}

/* Appends the text from `kept` on and the escape whose backslash is at `at`. Returns the index after it, or 0. */
static size_t read_escape(json_reader *r, size_t kept, size_t at)
{
    text_buf *b = &r->unescaped;
    if (r->nbytes - at < 2)
        return 0;
    if (r->text[at + 1] == 'u') {
        text_append(b, r->text + kept, at - kept);
        return read_u_escape(r, at + 2);
    }
    const char meaning = meaning_of(r->text[at + 1]);
    if (meaning == '\0')
        return 0;
    /* Texts within texts have an escape every few bytes: one call for both. */
    text_append(b, r->text + kept, at - kept + 1);
    if (!b->failed)
        b->text[b->nbytes - 1] = meaning;
    return at + 2;
}

/* The string whose opening quote is at r->at; sets r->at after the closing quote. */
static fsdpck_status read_string(json_reader *r, json_token *token, fsdpck_error *err)
{
    size_t at = r->at + 1;
    size_t kept = at; /* text from here on is not yet in `unescaped` */
    bool escaped = false;
    for (;;) {
        at = skip_plain(r, at);
        if (at >= r->nbytes)
            return fail(r, at, "the end of the string", err);
        const uint8_t c = (uint8_t)r->text[at];
        if (c == '"')
            break;
        if (c < 0x20)
            return fail(r, at, "no control character in a string", err);
        if (c >= 0x80) {
            uint32_t code_point;
            const unsigned n =
                utf8_decode((const uint8_t *)r->text + at, r->nbytes - at, &code_point);
            if (n == 0)
                return fail(r, at, "well-formed UTF-8", err);
            at += n;
            continue;
        }
        if (!escaped)
            r->unescaped.nbytes = 0;
        escaped = true;
        const size_t behind = read_escape(r, kept, at);
        if (behind == 0)
            return fail(r, at, "an escape sequence of JSON, surrogates in pairs", err);
        at = behind;
        kept = at;
    }
    r->at = at + 1;
    token->text = r->text + kept;
    token->nbytes = at - kept;
    if (escaped) {
        text_append(&r->unescaped, r->text + kept, at - kept);
        token->text = r->unescaped.text;
        token->nbytes = r->unescaped.nbytes;
    }
    return text_check(&r->unescaped, err);
}

static size_t skip_digits(const json_reader *r, size_t at)
{
    while (at < r->nbytes && r->text[at] >= '0' && r->text[at] <= '9')
        at++;
    return at;
}

static bool parse_u64(const char *text, size_t nbytes, uint64_t *value)
{
    uint64_t v = 0;
    for (size_t i = 0; i < nbytes; i++) {
        if (__builtin_mul_overflow(v, UINT64_C(10), &v) ||
            __builtin_add_overflow(v, (uint64_t)(text[i] - '0'), &v))
            return false;
    }
    *value = v;
    return true;
}

static fsdpck_status read_number(json_reader *r, json_token *token, fsdpck_error *err)
{
    const size_t begin = r->at;
    size_t at = begin + (r->text[begin] == '-');
    const size_t whole = at;
    at = skip_digits(r, at);
    if (at == whole)
        return fail(r, at, "a digit", err);
    if (r->text[whole] == '0' && at > whole + 1)
        return fail(r, whole, "a number without leading zeros", err);
    bool plain = whole == begin;
    if (at < r->nbytes && r->text[at] == '.') {
        plain = false;
        const size_t fraction = at + 1;
        at = skip_digits(r, fraction);
        if (at == fraction)
            return fail(r, at, "a digit after the decimal point", err);
    }
    if (at < r->nbytes && (r->text[at] | 0x20) == 'e') {
        plain = false;
        size_t exponent = at + 1;
        if (exponent < r->nbytes && (r->text[exponent] == '+' || r->text[exponent] == '-'))
            exponent++;
        at = skip_digits(r, exponent);
        if (at == exponent)
            return fail(r, at, "a digit in the exponent", err);
    }
    token->kind = JSON_NUMBER;
    token->text = r->text + begin;
    token->nbytes = at - begin;
    token->is_u64 = plain && parse_u64(token->text, token->nbytes, &token->u64);
    r->at = at;
    return FSDPCK_OK;
}

static fsdpck_status read_word(json_reader *r, json_token *token, const char *word, json_kind kind,
                               fsdpck_error *err)
{
    const size_t n = strlen(word);
    if (r->nbytes - r->at < n || memcmp(r->text + r->at, word, n) != 0)
        return fail(r, r->at, "a value", err);
    r->at += n;
    token->kind = kind;
    return FSDPCK_OK;
}

/* One of Python's numbers at r->at. */
static bool read_python_number(json_reader *r, json_token *token)
{
    static const char *const words[] = {"NaN", "Infinity", "-Infinity"};
    for (size_t i = 0; r->takes_python_numbers && i < sizeof words / sizeof *words; i++) {
        const size_t n = strlen(words[i]);
        if (r->nbytes - r->at < n || memcmp(r->text + r->at, words[i], n) != 0)
            continue;
        token->kind = JSON_NUMBER;
        token->text = r->text + r->at;
        token->nbytes = n;
        r->at += n;
        return true;
    }
    return false;
}

static fsdpck_status open_container(json_reader *r, json_token *token, int c, fsdpck_error *err)
{
    if (r->depth >= JSON_DEPTH_LIMIT)
        return fail(r, r->at, "at most 64 levels of nesting", err);
    r->stack[r->depth++] = c == '{' ? 'o' : 'a';
    r->at++;
    token->kind = c == '{' ? JSON_OBJECT : JSON_ARRAY;
    r->state = c == '{' ? STATE_KEY_OR_END : STATE_VALUE_OR_END;
    return FSDPCK_OK;
}

static fsdpck_status close_container(json_reader *r, json_token *token)
{
    token->kind = in_object(r) ? JSON_OBJECT_END : JSON_ARRAY_END;
    r->at++;
    r->depth--;
    value_done(r);
    return FSDPCK_OK;
}

static fsdpck_status read_value(json_reader *r, json_token *token, fsdpck_error *err)
{
    const int c = peek(r);
    if (c == '{' || c == '[')
        return open_container(r, token, c, err);
    if (read_python_number(r, token)) {
        value_done(r);
        return FSDPCK_OK;
    }
    fsdpck_status st;
    if (c == '"') {
        token->kind = JSON_STRING;
        st = read_string(r, token, err);
    } else if (c == '-' || (c >= '0' && c <= '9')) {
        st = read_number(r, token, err);
    } else if (c == 't') {
        st = read_word(r, token, "true", JSON_TRUE, err);
    } else if (c == 'f') {
        st = read_word(r, token, "false", JSON_FALSE, err);
    } else if (c == 'n') {
        st = read_word(r, token, "null", JSON_NULL, err);
    } else {
        return fail(r, r->at, "a value", err);
    }
    if (st == FSDPCK_OK)
        value_done(r);
    return st;
}

static fsdpck_status read_key(json_reader *r, json_token *token, fsdpck_error *err)
{
    if (peek(r) != '"')
        return fail(r, r->at, "a key in double quotes", err);
    token->kind = JSON_KEY;
    RETURN_IF(read_string(r, token, err));
    skip_space(r);
    if (peek(r) != ':')
        return fail(r, r->at, "':'", err);
    r->at++;
    r->state = STATE_VALUE;
    return FSDPCK_OK;
}

fsdpck_status json_next(json_reader *r, json_token *token, fsdpck_error *err)
{
    *token = (json_token){.kind = JSON_END};
    if (r->state == STATE_FAILED)
        return fail(r, r->at, "a text without an earlier error", err);
    skip_space(r);
    if (r->state == STATE_DONE) {
        token->offset_bytes = r->at;
        return r->at == r->nbytes ? FSDPCK_OK : fail(r, r->at, "the end of the text", err);
    }
    const int c = peek(r);
    const bool closes = c == (in_object(r) ? '}' : ']');
    token->offset_bytes = r->at;
    if (r->state == STATE_AFTER) {
        if (closes)
            return close_container(r, token);
        if (c != ',')
            return fail(r, r->at, in_object(r) ? "',' or '}'" : "',' or ']'", err);
        r->at++;
        skip_space(r);
        token->offset_bytes = r->at;
        r->state = in_object(r) ? STATE_KEY : STATE_VALUE;
    } else if (closes && (r->state == STATE_KEY_OR_END || r->state == STATE_VALUE_OR_END)) {
        return close_container(r, token);
    }
    if (r->state == STATE_KEY || r->state == STATE_KEY_OR_END)
        return read_key(r, token, err);
    return read_value(r, token, err);
}

fsdpck_status json_skip(json_reader *r, const json_token *first, fsdpck_error *err)
{
    if (first->kind != JSON_OBJECT && first->kind != JSON_ARRAY)
        return FSDPCK_OK;
    const unsigned outside = r->depth - 1;
    json_token token;
    while (r->depth > outside)
        RETURN_IF(json_next(r, &token, err));
    return FSDPCK_OK;
}

static const char *kind_word(json_kind kind)
{
    switch (kind) {
    case JSON_END:
        return "the end of the text";
    case JSON_OBJECT:
        return "an object";
    case JSON_OBJECT_END:
        return "the end of an object";
    case JSON_ARRAY:
        return "an array";
    case JSON_ARRAY_END:
        return "the end of an array";
    case JSON_KEY:
        return "a key";
    case JSON_STRING:
        return "a string";
    case JSON_NUMBER:
        return "a number";
    case JSON_TRUE:
        return "true";
    case JSON_FALSE:
        return "false";
    case JSON_NULL:
        return "null";
    }
    return "a value";
}

fsdpck_status json_expect(json_reader *r, json_kind kind, json_token *token, fsdpck_error *err)
{
    RETURN_IF(json_next(r, token, err));
    if (token->kind == kind)
        return FSDPCK_OK;
    r->state = STATE_FAILED;
    return FAIL_AS(err, FSDPCK_BADINPUT, r->finding, ("unexpected JSON structure"),
                   (offset, token->offset_bytes), (expected, "%s", kind_word(kind)),
                   (found, "%s", kind_word(token->kind)));
}
