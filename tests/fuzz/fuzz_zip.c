/* Any bytes as a zip: what is accepted has every record inside of the archive, none on another. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "formats/shared/zip.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t nbytes);

typedef struct memory {
    const uint8_t *bytes;
    size_t nbytes;
} memory;

static fsdpck_status read_memory(void *ctx, uint64_t offset, void *dst, uint64_t nbytes,
                                 fsdpck_error *err)
{
    const memory *m = ctx;

    (void)err;
    if (!checked_range(offset, nbytes, m->nbytes))
        abort();
    if (nbytes > 0)
        memcpy(dst, m->bytes + offset, nbytes);
    return FSDPCK_OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t nbytes)
{
    memory m = {data, nbytes};
    const zip_input in = {.read = read_memory, .ctx = &m, .nbytes = nbytes};
    budget b;
    zip_archive z;
    fsdpck_error err;
    uint64_t end = 0;

    budget_init(&b, 16 << 20, "zip", NULL);
    fsdpck_error_init(&err);
    const fsdpck_status st = zip_open(&in, &b, &z, &err);
    if (st != FSDPCK_OK && err.message[0] == '\0')
        abort();
    for (size_t i = 0; st == FSDPCK_OK && i < z.entries.count; i++) {
        const zip_entry *e = VEC_AT(&z.entries, const zip_entry, i);
        uint8_t *bytes;
        uint64_t n;
        if (zip_entry_check(&z, e, NULL) != FSDPCK_OK)
            continue;
        if (e->data_offset_bytes < end ||
            !checked_range(e->data_offset_bytes, e->stored_nbytes, nbytes))
            abort();
        end = e->data_offset_bytes + e->stored_nbytes;
        if (zip_find(&z, zip_name(&z, e)) != e)
            abort();
        if (zip_read_entry(&z, e, 1 << 20, &bytes, &n, NULL) != FSDPCK_OK)
            continue;
        if (n != e->nbytes)
            abort();
        budget_free(&b, bytes, n);
    }
    if (st == FSDPCK_OK)
        zip_release(&z);
    if (b.used_bytes != 0)
        abort();
    return 0;
}
