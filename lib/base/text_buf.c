#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

#define TEXT_LIMIT_DEFAULT ((size_t)1 << 30)

static size_t limit_of(const text_buf *b)
{
    return b->limit_bytes > 0 ? b->limit_bytes : TEXT_LIMIT_DEFAULT;
}

/* Reserves space for `extra` more bytes and the NUL. */
static int text_reserve(text_buf *b, size_t extra)
{
    if (b->failed)
        return 0;
    const size_t limit = limit_of(b);
    if (extra > limit || b->nbytes > limit - extra) {
        b->failed = 1;
        return 0;
    }
    const size_t want = b->nbytes + extra + 1;
    if (want <= b->capacity)
        return 1;
    size_t capacity = b->capacity < 64 ? 64 : b->capacity * 2;
    if (capacity > limit + 1)
        capacity = limit + 1;
    if (capacity < want)
        capacity = want;
    char *text = realloc(b->text, capacity);
    if (text == NULL) {
        b->failed = 1;
        b->refused_nbytes = capacity;
        return 0;
    }
    b->text = text;
    b->capacity = capacity;
    return 1;
}

void text_append(text_buf *b, const void *bytes, size_t nbytes)
{
    if (!text_reserve(b, nbytes))
        return;
    if (nbytes > 0)
        memcpy(b->text + b->nbytes, bytes, nbytes);
    b->nbytes += nbytes;
    b->text[b->nbytes] = '\0';
}

void text_puts(text_buf *b, const char *s)
{
    text_append(b, s, strlen(s));
}

void text_printf(text_buf *b, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    va_list again;
    va_copy(again, args);
    const int n = vsnprintf(NULL, 0, fmt, args);
    va_end(args);
    if (n < 0) {
        b->failed = 1;
    } else if (text_reserve(b, (size_t)n)) {
        vsnprintf(b->text + b->nbytes, (size_t)n + 1, fmt, again);
        b->nbytes += (size_t)n;
    }
    va_end(again);
}

fsdpck_status text_check(const text_buf *b, fsdpck_error *err)
{
    if (!b->failed)
        return FSDPCK_OK;
    if (b->refused_nbytes > 0)
        return error_set_nomem(err, b->refused_nbytes);
    return FAIL(err, LIMIT, LIMIT_SIZE, "text exceeds its limit of %zu bytes", limit_of(b));
}

void text_release(text_buf *b)
{
    free(b->text);
    b->text = NULL;
    b->nbytes = 0;
    b->capacity = 0;
    b->failed = 0;
    b->refused_nbytes = 0;
}
