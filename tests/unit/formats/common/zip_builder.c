#include "zip_builder.h"

#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "base/bytes.h"
#include "base/crc.h"
#include "formats/common/zip.h"

void zip_builder_begin(zip_builder *z)
{
    memset(z, 0, sizeof(*z));
}

static void note(zip_builder *z)
{
    z->header_at[z->count] = z->bytes.nbytes;
    z->central_at[z->count] = z->directory.nbytes;
}

void zip_builder_add(zip_builder *z, const char *name, const void *bytes, size_t nbytes)
{
    const size_t at = z->bytes.nbytes;
    const uint32_t crc = crc32_update(0, bytes, nbytes);

    note(z);
    zip_put_local(&z->bytes, at, name, strlen(name), nbytes);
    z->data_at[z->count++] = z->bytes.nbytes;
    text_append(&z->bytes, bytes, nbytes);
    zip_put_descriptor(&z->bytes, at, crc, nbytes);
    zip_put_central(&z->directory, at, name, strlen(name), crc, nbytes);
}

static size_t deflate_raw(const void *bytes, size_t nbytes, uint8_t *out, size_t capacity)
{
    z_stream s = {0};

    if (deflateInit2(&s, 9, Z_DEFLATED, -MAX_WBITS, 9, Z_DEFAULT_STRATEGY) != Z_OK)
        abort();
    s.next_in = (Bytef *)(uintptr_t)bytes;
    s.avail_in = (uInt)nbytes;
    s.next_out = out;
    s.avail_out = (uInt)capacity;
    if (deflate(&s, Z_FINISH) != Z_STREAM_END)
        abort();
    const size_t n = capacity - s.avail_out;
    deflateEnd(&s);
    return n;
}

void zip_builder_add_deflated(zip_builder *z, const char *name, const void *bytes, size_t nbytes,
                              size_t claimed_nbytes)
{
    const size_t capacity = nbytes + 1024;
    uint8_t *packed = malloc(capacity);
    const size_t n = deflate_raw(bytes, nbytes, packed, capacity);
    const size_t at = z->bytes.nbytes;

    note(z);
    zip_put_local(&z->bytes, at, name, strlen(name), n);
    z->data_at[z->count] = z->bytes.nbytes;
    text_append(&z->bytes, packed, n);
    zip_put_descriptor(&z->bytes, at, crc32_update(0, bytes, nbytes), n);
    store_le32((uint8_t *)z->bytes.text + z->bytes.nbytes - 4, (uint32_t)claimed_nbytes);
    store_le16((uint8_t *)z->bytes.text + at + 8, 8);
    const size_t central = z->directory.nbytes;
    zip_put_central(&z->directory, at, name, strlen(name), crc32_update(0, bytes, nbytes), n);
    store_le16((uint8_t *)z->directory.text + central + 10, 8);
    store_le32((uint8_t *)z->directory.text + central + 24, (uint32_t)claimed_nbytes);
    z->count++;
    free(packed);
}

void zip_builder_end(zip_builder *z)
{
    z->directory_at = z->bytes.nbytes;
    for (size_t i = 0; i < z->count; i++)
        z->central_at[i] += z->directory_at;
    text_append(&z->bytes, z->directory.text, z->directory.nbytes);
    zip_put_end(&z->bytes, z->directory_at, z->directory.nbytes, z->count);
}

static fsdpck_status read_made(void *ctx, uint64_t offset, void *dst, uint64_t nbytes,
                               fsdpck_error *err)
{
    zip_builder *z = ctx;

    z->nreads++;
    if (!checked_range(offset, nbytes, z->bytes.nbytes))
        return error_set(err, FSDPCK_INTERNAL, FSDPCK_FINDING_NONE, "read outside of the archive");
    memcpy(dst, z->bytes.text + offset, nbytes);
    return FSDPCK_OK;
}

zip_input zip_builder_input(zip_builder *z)
{
    z->nreads = 0;
    return (zip_input){.read = read_made, .ctx = z, .nbytes = z->bytes.nbytes};
}

uint8_t *zip_builder_at(zip_builder *z, size_t offset)
{
    return (uint8_t *)z->bytes.text + offset;
}

void zip_builder_insert(zip_builder *z, size_t offset, size_t nbytes, uint8_t with)
{
    const size_t before = z->bytes.nbytes;

    for (size_t i = 0; i < nbytes; i++)
        text_append(&z->bytes, &with, 1);
    memmove(z->bytes.text + offset + nbytes, z->bytes.text + offset, before - offset);
    memset(z->bytes.text + offset, with, nbytes);
}

void zip_builder_release(zip_builder *z)
{
    text_release(&z->bytes);
    text_release(&z->directory);
}
