#include "tests/support/st_reference.h"

#include <setjmp.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { ENTRIES_MAX = 1000, KEYS_MAX = 100, DEPTH_MAX = 64 };

typedef struct text {
    char *bytes;
    size_t nbytes;
} text;

typedef struct entry {
    text name;
    uint64_t begin, end;
} entry;

typedef struct reader {
    const uint8_t *at, *end;
    unsigned depth;
    entry entries[ENTRIES_MAX];
    size_t count;
    text keys[KEYS_MAX];
    size_t key_count;
    char *scratch; /* of all strings; as long as the text */
    size_t used;
    jmp_buf bad;
    st_answer answer;
} reader;

static _Noreturn void stop(reader *r, st_answer answer)
{
    r->answer = answer;
    longjmp(r->bad, 1);
}

static void need(reader *r, bool holds)
{
    if (!holds)
        stop(r, ST_BAD);
}

static int peek(const reader *r)
{
    return r->at < r->end ? *r->at : -1;
}

static void space(reader *r)
{
    while (r->at < r->end && memchr(" \t\r\n", *r->at, 4) != NULL)
        r->at++;
}

static void expect(reader *r, int c)
{
    space(r);
    need(r, peek(r) == c);
    r->at++;
}

static bool accept(reader *r, int c)
{
    space(r);
    if (peek(r) != c)
        return false;
    r->at++;
    return true;
}

/* UTF-8 without overlong forms, surrogates and NUL. */
static bool is_utf8(const uint8_t *s, const uint8_t *end)
{
    while (s < end) {
        const unsigned n = *s < 0x80   ? 0
                           : *s < 0xC2 ? 9
                           : *s < 0xE0 ? 1
                           : *s < 0xF0 ? 2
                           : *s < 0xF5 ? 3
                                       : 9;
        uint32_t c = n == 0 ? *s : n == 1 ? *s & 31 : n == 2 ? *s & 15 : *s & 7;
        if (n == 9 || c + n == 0 || (size_t)(end - s) <= n)
            return false;
        for (unsigned i = 1; i <= n; i++) {
            if ((s[i] & 0xC0) != 0x80)
                return false;
            c = c << 6 | (s[i] & 63);
        }
        if ((n == 2 && (c < 0x800 || (c >= 0xD800 && c < 0xE000))) ||
            (n == 3 && (c < 0x10000 || c > 0x10FFFF)))
            return false;
        s += n + 1;
    }
    return true;
}

static uint32_t hex4(reader *r)
{
    uint32_t c = 0;
    for (int i = 0; i < 4; i++, r->at++) {
        const char *digits = "0123456789abcdefABCDEF";
        const char *d = peek(r) > 0 ? strchr(digits, peek(r)) : NULL;
        need(r, d != NULL);
        const uint32_t v = (uint32_t)(d - digits);
        c = c * 16 + (v < 16 ? v : v - 6);
    }
    return c;
}

static void put(reader *r, uint32_t c)
{
    char *p = r->scratch + r->used;
    if (c < 0x80) {
        r->used += 1;
        p[0] = (char)c;
    } else if (c < 0x800) {
        r->used += 2;
        p[0] = (char)(0xC0 | c >> 6);
        p[1] = (char)(0x80 | (c & 63));
    } else if (c < 0x10000) {
        r->used += 3;
        p[0] = (char)(0xE0 | c >> 12);
        p[1] = (char)(0x80 | (c >> 6 & 63));
        p[2] = (char)(0x80 | (c & 63));
    } else {
        r->used += 4;
        p[0] = (char)(0xF0 | c >> 18);
        p[1] = (char)(0x80 | (c >> 12 & 63));
        p[2] = (char)(0x80 | (c >> 6 & 63));
        p[3] = (char)(0x80 | (c & 63));
    }
}

static void escape(reader *r)
{
    static const char letters[] = "\"\\/bfnrtu", meanings[] = "\"\\/\b\f\n\r\t";
    const char *found = peek(r) > 0 ? strchr(letters, peek(r)) : NULL;
    need(r, found != NULL);
    r->at++;
    if (*found != 'u') {
        r->scratch[r->used++] = meanings[found - letters];
        return;
    }
    uint32_t c = hex4(r);
    need(r, c < 0xDC00 || c > 0xDFFF);
    if (c >= 0xD800 && c < 0xDC00) {
        need(r, r->end - r->at >= 2 && r->at[0] == '\\' && r->at[1] == 'u');
        r->at += 2;
        const uint32_t low = hex4(r);
        need(r, low >= 0xDC00 && low < 0xE000);
        c = 0x10000 + ((c - 0xD800) << 10) + (low - 0xDC00);
    }
    put(r, c);
}

static text string(reader *r)
{
    const size_t begin = r->used;
    expect(r, '"');
    while (peek(r) != '"') {
        need(r, peek(r) >= 0x20);
        if (*r->at == '\\') {
            r->at++;
            escape(r);
        } else {
            r->scratch[r->used++] = (char)*r->at++;
        }
    }
    r->at++;
    return (text){r->scratch + begin, r->used - begin};
}

static bool is(text t, const char *what)
{
    return t.nbytes == strlen(what) && memcmp(t.bytes, what, t.nbytes) == 0;
}

static bool same(text a, text b)
{
    return a.nbytes == b.nbytes && memcmp(a.bytes, b.bytes, a.nbytes) == 0;
}

static size_t digits(reader *r)
{
    const uint8_t *begin = r->at;
    while (peek(r) >= '0' && peek(r) <= '9')
        r->at++;
    return (size_t)(r->at - begin);
}

static void number(reader *r)
{
    if (peek(r) == '-')
        r->at++;
    const bool zero = peek(r) == '0';
    const size_t n = digits(r);
    need(r, n > 0 && (!zero || n == 1));
    if (peek(r) == '.') {
        r->at++;
        need(r, digits(r) > 0);
    }
    if (peek(r) == 'e' || peek(r) == 'E') {
        r->at++;
        if (peek(r) == '+' || peek(r) == '-')
            r->at++;
        need(r, digits(r) > 0);
    }
}

/* Any value; its depth is bounded. */
static void skip(reader *r)
{
    space(r);
    const int c = peek(r);
    if (c == '{' || c == '[') {
        need(r, ++r->depth <= DEPTH_MAX);
        r->at++;
        const int close = c == '{' ? '}' : ']';
        for (bool more = !accept(r, close); more;
             more = !accept(r, close) && (expect(r, ','), true)) {
            if (c == '{') {
                (void)string(r);
                expect(r, ':');
            }
            skip(r);
        }
        r->depth--;
    } else if (c == '"') {
        (void)string(r);
    } else if (c == '-' || (c >= '0' && c <= '9')) {
        number(r);
    } else {
        const char *word = c == 't' ? "true" : c == 'f' ? "false" : "null";
        need(r, (size_t)(r->end - r->at) >= strlen(word) && memcmp(r->at, word, strlen(word)) == 0);
        r->at += strlen(word);
    }
}

/* Without sign, fraction, exponent; at most 2^64 - 1. */
static uint64_t natural(reader *r)
{
    uint64_t v = 0;
    space(r);
    const uint8_t *begin = r->at;
    const size_t n = digits(r);
    need(r, n > 0 && (n == 1 || *begin != '0') && (peek(r) < 0 || strchr(".eE", peek(r)) == NULL));
    for (size_t i = 0; i < n; i++)
        need(r, !__builtin_mul_overflow(v, 10, &v) &&
                    !__builtin_add_overflow(v, (uint64_t)(begin[i] - '0'), &v));
    return v;
}

static void metadata(reader *r)
{
    expect(r, '{');
    for (bool more = !accept(r, '}'); more; more = !accept(r, '}') && (expect(r, ','), true)) {
        space(r);
        const text key = string(r);
        expect(r, ':');
        space(r);
        (void)string(r);
        for (size_t i = 0; i < r->key_count; i++)
            need(r, !same(r->keys[i], key));
        if (r->key_count == KEYS_MAX)
            stop(r, ST_UNSURE);
        r->keys[r->key_count++] = key;
    }
}

static unsigned bits_of(reader *r)
{
    static const struct {
        const char *code;
        unsigned bits;
    } codes[] = {{"BOOL", 8},        {"U8", 8},          {"I8", 8},      {"U16", 16},
                 {"I16", 16},        {"U32", 32},        {"I32", 32},    {"U64", 64},
                 {"I64", 64},        {"F16", 16},        {"BF16", 16},   {"F32", 32},
                 {"F64", 64},        {"C64", 64},        {"F8_E4M3", 8}, {"F8_E5M2", 8},
                 {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8}, {"F8_E8M0", 8}, {"F4", 4}};
    space(r);
    const text t = string(r);
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++)
        if (is(t, codes[i].code))
            return codes[i].bits;
    stop(r, ST_BAD);
}

/* Elements of the shape; *last: its last size. */
static uint64_t shape(reader *r, uint64_t *last)
{
    uint64_t nelems = 1;
    unsigned ndim = 0;
    bool overflows = false, empty = false;
    *last = 1;
    expect(r, '[');
    for (bool more = !accept(r, ']'); more; more = !accept(r, ']') && (expect(r, ','), true)) {
        *last = natural(r);
        need(r, ++ndim <= 64 && *last <= INT64_MAX);
        empty = empty || *last == 0;
        overflows = __builtin_mul_overflow(nelems, *last == 0 ? 1 : *last, &nelems) || overflows;
    }
    need(r, empty || !overflows);
    return empty ? 0 : nelems;
}

static void tensor(reader *r, entry *e)
{
    bool has_dtype = false, has_shape = false, has_offsets = false;
    uint64_t nelems = 0, last = 0, bits;
    unsigned each = 0;
    expect(r, '{');
    for (bool more = !accept(r, '}'); more; more = !accept(r, '}') && (expect(r, ','), true)) {
        space(r);
        const text key = string(r);
        bool *has = is(key, "dtype")          ? &has_dtype
                    : is(key, "shape")        ? &has_shape
                    : is(key, "data_offsets") ? &has_offsets
                                              : NULL;
        expect(r, ':');
        need(r, has == NULL || !*has);
        if (has != NULL)
            *has = true;
        if (has == &has_dtype) {
            each = bits_of(r);
        } else if (has == &has_shape) {
            nelems = shape(r, &last);
        } else if (has == &has_offsets) {
            expect(r, '[');
            e->begin = natural(r);
            expect(r, ',');
            e->end = natural(r);
            expect(r, ']');
        } else {
            r->depth = 2;
            skip(r);
            r->depth = 0;
        }
    }
    need(r, has_dtype && has_shape && has_offsets);
    need(r, !__builtin_mul_overflow(nelems, (uint64_t)each, &bits) && bits % 8 == 0);
    need(r, each != 4 || last % 2 == 0);
    need(r, e->begin <= e->end && e->end - e->begin == bits / 8);
}

static int by_begin(const void *a, const void *b)
{
    const entry *x = a, *y = b;
    return x->begin != y->begin ? (x->begin > y->begin) - (x->begin < y->begin)
                                : (x->end > y->end) - (x->end < y->end);
}

static void header(reader *r, uint64_t data_nbytes)
{
    bool has_metadata = false;
    uint64_t at = 0;
    need(r, peek(r) == '{');
    expect(r, '{');
    for (bool more = !accept(r, '}'); more; more = !accept(r, '}') && (expect(r, ','), true)) {
        space(r);
        const text key = string(r);
        expect(r, ':');
        if (is(key, "__metadata__")) {
            need(r, !has_metadata);
            has_metadata = true;
            metadata(r);
            continue;
        }
        for (size_t i = 0; i < r->count; i++)
            need(r, !same(r->entries[i].name, key));
        if (r->count == ENTRIES_MAX)
            stop(r, ST_UNSURE);
        r->entries[r->count].name = key;
        tensor(r, &r->entries[r->count++]);
    }
    while (peek(r) == ' ')
        r->at++;
    need(r, r->at == r->end);
    qsort(r->entries, r->count, sizeof(entry), by_begin);
    for (size_t i = 0; i < r->count; i++) {
        need(r, r->entries[i].begin == at);
        at = r->entries[i].end;
    }
    need(r, at == data_nbytes);
}

/* Functions of their own, so that longjmp finds no changed variable of its caller. */
static st_answer judge(reader *r, uint64_t data_nbytes)
{
    r->answer = ST_GOOD;
    if (setjmp(r->bad) == 0)
        header(r, data_nbytes);
    return r->answer;
}

static st_answer judge_json(reader *r)
{
    r->answer = ST_GOOD;
    if (setjmp(r->bad) == 0) {
        skip(r);
        space(r);
        need(r, r->at == r->end);
    }
    return r->answer;
}

static reader *new_reader(const uint8_t *bytes, size_t nbytes)
{
    reader *r = calloc(1, sizeof *r);
    if (r == NULL || (r->scratch = malloc(nbytes + 1)) == NULL)
        abort();
    r->at = bytes;
    r->end = bytes + nbytes;
    return r;
}

bool json_reference(const uint8_t *bytes, size_t nbytes)
{
    if (!is_utf8(bytes, bytes + nbytes))
        return false;
    reader *r = new_reader(bytes, nbytes);
    const st_answer answer = judge_json(r);
    free(r->scratch);
    free(r);
    return answer == ST_GOOD;
}

st_answer st_reference(const uint8_t *bytes, size_t nbytes)
{
    uint64_t n = 0;
    if (nbytes < 8)
        return ST_BAD;
    for (unsigned i = 8; i-- > 0;)
        n = n << 8 | bytes[i];
    if (n < 2 || n > 100000000 || n > nbytes - 8 || !is_utf8(bytes + 8, bytes + 8 + n))
        return ST_BAD;
    reader *r = new_reader(bytes + 8, (size_t)n);
    const st_answer answer = judge(r, nbytes - 8 - n);
    free(r->scratch);
    free(r);
    return answer;
}
