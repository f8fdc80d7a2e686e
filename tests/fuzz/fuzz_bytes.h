/* fuzz_bytes.h: the input as a sequence of choices, zeros after its end. */
#ifndef FSDPCK_TESTS_FUZZ_FUZZ_BYTES_H
#define FSDPCK_TESTS_FUZZ_FUZZ_BYTES_H

#include <stddef.h>
#include <stdint.h>

typedef struct reader {
    const uint8_t *data;
    size_t nbytes;
} reader;

static uint8_t take(reader *r)
{
    if (r->nbytes == 0)
        return 0;
    r->nbytes--;
    return *r->data++;
}

#endif
