/* Headers of safetensors: dtypes and shapes change, and all offsets, the length of the header and
 * of the data follow them; then, now and then, one number does not. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "state/dtype.h"
#include "tests/fuzz/mutators/mutate.h"

enum { SHAPE_MAX = 8 };

/* Begin of the text after `key` and colons, or NULL. */
static char *value_of(char *text, const char *key)
{
    char *at = strstr(text, key);
    if (at == NULL)
        return NULL;
    at += strlen(key);
    while (*at == ' ' || *at == ':' || *at == '[')
        at++;
    return at;
}

static uint64_t bits_of(const char *code)
{
    const char *end = strchr(code + 1, '"');
    const dtype d = *code == '"' && end != NULL
                        ? dtype_from_safetensors(code + 1, (size_t)(end - code - 1))
                        : DTYPE_NONE;
    return dtype_get(d)->itemsize_bytes * 8u / dtype_get(d)->packing;
}

/* Bytes of the entry's dtype and shape; sizes of the shape may be changed on the way. */
static uint64_t read_shape(mutation *m, char *at, bool change, char *shape, size_t capacity)
{
    uint64_t sizes[SHAPE_MAX], nelems = 1;
    size_t ndim = 0, n = 0;
    for (; ndim < SHAPE_MAX && *at >= '0' && *at <= '9'; ndim++) {
        sizes[ndim] = strtoull(at, &at, 10);
        while (*at == ',' || *at == ' ')
            at++;
    }
    if (change) {
        static const uint64_t few[] = {0, 1, 2, 3, 5, 8};
        const size_t which = mutate_below(m, ndim + 1);
        if (which < ndim && mutate_once_in(m, 6))
            ndim--;
        else if (which < ndim)
            sizes[which] =
                mutate_once_in(m, 4) ? mutate_number(m, sizes[which]) : few[mutate_below(m, 6)];
        else if (ndim < SHAPE_MAX)
            sizes[ndim++] = few[mutate_below(m, 6)];
    }
    shape[0] = '\0';
    for (size_t d = 0; d < ndim; d++) {
        nelems *= sizes[d];
        n += (size_t)snprintf(shape + n, capacity - n, "%s%llu", d > 0 ? "," : "",
                              (unsigned long long)sizes[d]);
    }
    return nelems;
}

static size_t count_entries(const char *text)
{
    size_t n = 0;
    for (const char *at = text; (at = strstr(at, "\"data_offsets\"")) != NULL; at++)
        n++;
    return n;
}

static void replace_text(char *at, size_t old_nbytes, const char *with)
{
    memmove(at + strlen(with), at + old_nbytes, strlen(at + old_nbytes) + 1);
    memcpy(at, with, strlen(with));
}

static void change_dtype(mutation *m, char *code)
{
    static const char *const codes[] = {"\"F32\"",  "\"BF16\"",    "\"F4\"",  "\"I64\"", "\"U8\"",
                                        "\"BOOL\"", "\"F8_E5M2\"", "\"C64\"", "\"F16\""};
    const char *end = *code == '"' ? strchr(code + 1, '"') : NULL;
    if (end != NULL)
        replace_text(code, (size_t)(end + 1 - code), codes[mutate_below(m, 9)]);
}

/* Each entry in the order of the text; `chosen` changes. The text has room. Returns the data's
 * size. */
static uint64_t lay_out(mutation *m, char *text, size_t chosen)
{
    uint64_t at = 0;
    char *entry = text;
    for (size_t i = 0; (entry = strstr(entry, "\"dtype\"")) != NULL; i++) {
        char shape[256], pair[64];
        char *code = value_of(entry, "\"dtype\"");
        if (i == chosen && mutate_once_in(m, 3))
            change_dtype(m, code);
        char *dims = value_of(entry, "\"shape\"");
        if (dims == NULL)
            return at;
        const uint64_t nelems = read_shape(m, dims, i == chosen, shape, sizeof shape);
        replace_text(dims, strspn(dims, "0123456789, "), shape);
        char *offsets = value_of(entry, "\"data_offsets\"");
        if (offsets == NULL)
            return at;
        const uint64_t end = at + nelems * bits_of(code) / 8;
        uint64_t first = at, last = end;
        if (i == chosen && mutate_once_in(m, 6))
            first = mutate_number(m, first);
        if (i == chosen && mutate_once_in(m, 6))
            last = mutate_number(m, last);
        snprintf(pair, sizeof pair, "%llu,%llu", (unsigned long long)first,
                 (unsigned long long)last);
        replace_text(offsets, strspn(offsets, "0123456789, "), pair);
        at = end;
        entry = offsets;
    }
    return at;
}

static void assemble(mutation *m, const char *text, size_t nbytes, uint64_t data_nbytes)
{
    uint64_t n = nbytes;
    if (8 + nbytes > m->capacity)
        return;
    if (data_nbytes > m->capacity - 8 - nbytes || data_nbytes > 4096)
        data_nbytes = mutate_below(m, 16);
    if (8 + nbytes + data_nbytes > m->capacity)
        return;
    if (mutate_once_in(m, 20))
        data_nbytes -= data_nbytes > 0;
    memcpy(m->bytes + 8, text, nbytes);
    memset(m->bytes + 8 + nbytes, 0x5A, (size_t)data_nbytes);
    m->nbytes = (size_t)(8 + nbytes + data_nbytes);
    if (mutate_once_in(m, 30))
        n = mutate_number(m, n);
    memcpy(m->bytes, &n, 8);
}

void mutate_st_header(mutation *m)
{
    uint64_t n = 0;
    if (m->nbytes > 8)
        memcpy(&n, m->bytes, 8);
    if (m->nbytes <= 8 || n > m->nbytes - 8 || n > 1 << 16) {
        mutate_bytes(m);
        return;
    }
    size_t nbytes = (size_t)n;
    if (mutate_once_in(m, 2)) { /* the text as such, its length repaired */
        mutate_part(m, 8, &nbytes, mutate_json);
        n = nbytes;
        memcpy(m->bytes, &n, 8);
        if (mutate_once_in(m, 2))
            return;
    }
    char *text = calloc(1, nbytes * 12 + 1024);
    if (text == NULL)
        return;
    memcpy(text, m->bytes + 8, nbytes);
    const size_t entries = count_entries(text);
    if (entries == 0 || entries > 200 || strlen(text) != nbytes) {
        mutate_bytes(m);
    } else {
        const uint64_t data_nbytes = lay_out(m, text, mutate_below(m, entries));
        assemble(m, text, strlen(text), data_nbytes);
    }
    free(text);
}
