/* JSON: values and members are deleted, doubled, exchanged and moved; keys and numbers replaced. */
#include <stdio.h>
#include <string.h>

#include "tests/fuzz/mutators/mutate.h"

enum { SPANS_MAX = 2048, DEPTH_MAX = 70 };

/* A value or a key of the text. */
typedef struct span {
    uint32_t begin, end;
    bool is_key;
} span;

typedef struct spans {
    size_t count;
    span of[SPANS_MAX];
} spans;

static const char *const words[] = {
    "null",
    "true",
    "false",
    "{}",
    "[]",
    "\"\"",
    "0",
    "-0",
    "1",
    "-1",
    "01",
    "1.5",
    "1e3",
    "1E400",
    "18446744073709551615",
    "18446744073709551616",
    "9007199254740993",
    "9223372036854775808",
    "NaN",
    "\"\\u0000\"",
    "\"\\ud800\"",
    "\"\\ud83d\\ude00\"",
    "\"\\u0061\"",
    "\"a\"",
    "[0,0]",
    "[[[[[[[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]]]]]]]",
    "{\"a\":0,\"\\u0061\":1}",
    "\"../x\"",
    "\"/x\"",
    "\"F32\"",
    "\"BF16\"",
    "\"F8_E4M3\"",
    "\"F4\"",
    "\"C64\"",
    "\"BOOL\"",
    "\"U8\"",
    "\"f32\"",
    "\"float32\"",
    "\"float8_e5m2\"",
    "\"a.safetensors\"",
    "\"b.safetensors\"",
    "\"0011223344556677\"",
};

static const char *const keys[] = {
    "dtype",   "shape",  "data_offsets", "__metadata__", "weight_map", "metadata", "total_size",
    "format",  "a",      "t0",           "t1",           "t2",         "",         "files",
    "tensors", "name",   "size",         "crc64",        "digest",     "sha256",   "version",
    "list",    "params", "units",        "prefix",       "numel",      "offsets",  "__proto__",
};

static size_t string_end(const mutation *m, size_t at)
{
    for (at++; at < m->nbytes && m->bytes[at] != '"'; at++)
        at += m->bytes[at] == '\\';
    return at < m->nbytes ? at + 1 : m->nbytes;
}

static bool is_scalar(uint8_t c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' ||
           c == '+' || c == '.';
}

/* Where strings, words and brackets are, whether or not the whole is JSON. */
static void split(const mutation *m, spans *s)
{
    uint32_t open[DEPTH_MAX];
    size_t depth = 0, at = 0;
    s->count = 0;
    while (at < m->nbytes && s->count < SPANS_MAX) {
        const uint8_t c = m->bytes[at];
        span *new = &s->of[s->count];
        *new = (span){.begin = (uint32_t)at, .end = (uint32_t)at + 1};
        if (c == '"') {
            at = string_end(m, at);
        } else if (is_scalar(c)) {
            while (at < m->nbytes && is_scalar(m->bytes[at]))
                at++;
        } else if ((c == '{' || c == '[') && depth < DEPTH_MAX) {
            open[depth++] = (uint32_t)s->count++;
            at++;
            continue;
        } else {
            at++;
            if ((c == '}' || c == ']') && depth > 0)
                s->of[open[--depth]].end = (uint32_t)at;
            continue;
        }
        size_t next = at;
        while (next < m->nbytes && (m->bytes[next] == ' ' || m->bytes[next] == '\n'))
            next++;
        new->end = (uint32_t)at;
        new->is_key = c == '"' && next < m->nbytes && m->bytes[next] == ':';
        s->count++;
    }
}

/* The span with the key before it, or the value after it, and one comma. */
static span whole_member(const mutation *m, const spans *s, size_t i)
{
    span x = s->of[i];
    if (!x.is_key && i > 0 && s->of[i - 1].is_key && s->of[i - 1].end <= x.begin)
        x.begin = s->of[i - 1].begin;
    if (x.is_key && i + 1 < s->count)
        x.end = s->of[i + 1].end;
    if (x.end < m->nbytes && m->bytes[x.end] == ',')
        x.end++;
    return x;
}

static void put_again(mutation *m, const spans *s, size_t i)
{
    const span x = whole_member(m, s, i);
    uint8_t copy[512];
    size_t n = x.end - x.begin;
    if (n + 1 > sizeof copy)
        return;
    memcpy(copy, m->bytes + x.begin, n);
    if (n > 0 && copy[n - 1] != ',')
        copy[n++] = ',';
    mutate_replace(m, whole_member(m, s, mutate_below(m, s->count)).begin, 0, copy, n);
}

static void put_member(mutation *m, const spans *s, size_t i)
{
    char text[128];
    const int n =
        snprintf(text, sizeof text, "\"%s\":%s,", keys[mutate_below(m, sizeof keys / sizeof *keys)],
                 words[mutate_below(m, sizeof words / sizeof *words)]);
    mutate_replace(m, s->of[i].begin + (m->bytes[s->of[i].begin] == '{'), 0, text, (size_t)n);
}

static void change_number(mutation *m, const spans *s, size_t from)
{
    for (size_t k = 0; k < s->count; k++) {
        const span *x = &s->of[(from + k) % s->count];
        char text[32];
        uint64_t v = 0;
        if (m->bytes[x->begin] < '0' || m->bytes[x->begin] > '9')
            continue;
        for (uint32_t i = x->begin; i < x->end && i < x->begin + 19; i++)
            v = v * 10 + (uint64_t)(m->bytes[i] & 15);
        const int n = snprintf(text, sizeof text, "%llu", (unsigned long long)mutate_number(m, v));
        mutate_replace(m, x->begin, x->end - x->begin, text, (size_t)n);
        return;
    }
}

/* The inside of a string, by bytes; or one of its letters as an escape. */
static void change_text(mutation *m, const spans *s, size_t i)
{
    const span x = s->of[i];
    size_t n = x.end - x.begin;
    if (m->bytes[x.begin] != '"' || n < 3)
        return;
    const size_t at = x.begin + 1 + mutate_below(m, n - 2);
    char text[8];
    n -= 2;
    if (mutate_once_in(m, 2)) {
        snprintf(text, sizeof text, "\\u%04x", m->bytes[at]);
        mutate_replace(m, at, 1, text, 6);
    } else {
        mutate_part(m, x.begin + 1, &n, mutate_bytes);
    }
}

static void exchange(mutation *m, const spans *s, size_t i)
{
    const span x = s->of[i], y = s->of[mutate_below(m, s->count)];
    const char *word = words[mutate_below(m, sizeof words / sizeof *words)];
    char key[40];
    if (x.is_key) {
        const int n =
            snprintf(key, sizeof key, "\"%s\"", keys[mutate_below(m, sizeof keys / sizeof *keys)]);
        mutate_replace(m, x.begin, x.end - x.begin, key, (size_t)n);
    } else if (mutate_once_in(m, 2)) {
        mutate_replace(m, x.begin, x.end - x.begin, m->bytes + y.begin, y.end - y.begin);
    } else {
        mutate_replace(m, x.begin, x.end - x.begin, word, strlen(word));
    }
}

void mutate_json(mutation *m)
{
    static spans s;
    split(m, &s);
    if (s.count == 0) {
        mutate_bytes(m);
        return;
    }
    const size_t i = mutate_below(m, s.count);
    const span x = whole_member(m, &s, i);
    switch (mutate_below(m, 8)) {
    case 0:
        mutate_replace(m, x.begin, x.end - x.begin, "", 0);
        break;
    case 1:
        put_again(m, &s, i);
        break;
    case 2:
        put_member(m, &s, i);
        break;
    case 3:
    case 4:
        change_number(m, &s, i);
        break;
    case 5:
        change_text(m, &s, i);
        break;
    case 6:
        mutate_replace(m, s.of[i].end, 0, mutate_once_in(m, 2) ? " " : "\n", 1);
        break;
    default:
        exchange(m, &s, i);
        break;
    }
}
