#include <string.h>

#include "base/bytes.h"
#include "formats/common/zip.h"
#include "formats/common/zip_records.h"

/* The bytes of torch's miniz (caffe2/serialize/inline_container.cc, the same from 1.13 to 2.15):
 * sizes and CRC only in the descriptor and the directory, data aligned by a padding field "FB",
 * zip64 fields only if required, zip64 end record always. */
enum {
    ALIGNMENT = 64,
    EXTRA_ZIP64 = 0x0001,
    EXTRA_PADDING = 0x4246,
    FIELD_NBYTES = 4,
    DESCRIPTOR64_NBYTES = 24
};

static bool is_large(uint64_t v)
{
    return v >= UINT32_MAX;
}

static unsigned zip64_nbytes(uint64_t header_offset_bytes, uint64_t record_nbytes)
{
    const unsigned n =
        (is_large(record_nbytes) ? 16u : 0u) + (is_large(header_offset_bytes) ? 8u : 0u);
    return n == 0 ? 0 : FIELD_NBYTES + n;
}

uint64_t zip_data_offset(uint64_t header_offset_bytes, size_t name_nbytes, uint64_t record_nbytes)
{
    const uint64_t at = header_offset_bytes + ZIP_LOCAL_NBYTES + name_nbytes +
                        zip64_nbytes(header_offset_bytes, record_nbytes) + FIELD_NBYTES;
    return (at + ALIGNMENT - 1) & ~(uint64_t)(ALIGNMENT - 1);
}

unsigned zip_descriptor_nbytes(uint64_t header_offset_bytes, uint64_t record_nbytes)
{
    if (record_nbytes == 0)
        return 0;
    return zip64_nbytes(header_offset_bytes, record_nbytes) > 0 ? 24 : 16;
}

static uint16_t flags_of(uint64_t record_nbytes)
{
    return ZIP_FLAG_UTF8 | (record_nbytes > 0 ? ZIP_FLAG_DESCRIPTOR : 0);
}

static uint32_t clip32(uint64_t v)
{
    return is_large(v) ? UINT32_MAX : (uint32_t)v;
}

/* stored_nbytes: torch's value for the stored size; 0 in local headers. */
static void put_zip64(text_buf *out, uint64_t header_offset_bytes, uint64_t record_nbytes,
                      uint64_t stored_nbytes)
{
    uint8_t b[FIELD_NBYTES + 24];
    size_t n = FIELD_NBYTES;

    if (is_large(record_nbytes)) {
        store_le64(b + n, record_nbytes);
        store_le64(b + n + 8, stored_nbytes);
        n += 16;
    }
    if (is_large(header_offset_bytes)) {
        store_le64(b + n, header_offset_bytes);
        n += 8;
    }
    if (n == FIELD_NBYTES)
        return;
    store_le16(b, EXTRA_ZIP64);
    store_le16(b + 2, (uint16_t)(n - FIELD_NBYTES));
    text_append(out, b, n);
}

void zip_put_local(text_buf *out, uint64_t header_offset_bytes, const char *name,
                   size_t name_nbytes, uint64_t record_nbytes)
{
    uint8_t b[ZIP_LOCAL_NBYTES] = {0};
    uint8_t padding[FIELD_NBYTES + ALIGNMENT];
    const unsigned zip64 = zip64_nbytes(header_offset_bytes, record_nbytes);
    const uint64_t fixed = ZIP_LOCAL_NBYTES + name_nbytes + zip64 + FIELD_NBYTES;
    const size_t fill = (size_t)(zip_data_offset(header_offset_bytes, name_nbytes, record_nbytes) -
                                 header_offset_bytes - fixed);

    store_le32(b, ZIP_LOCAL_MAGIC);
    store_le16(b + 6, flags_of(record_nbytes));
    store_le16(b + 26, (uint16_t)name_nbytes);
    store_le16(b + 28, (uint16_t)(zip64 + FIELD_NBYTES + fill));
    text_append(out, b, sizeof(b));
    text_append(out, name, name_nbytes);
    put_zip64(out, header_offset_bytes, record_nbytes, 0);
    store_le16(padding, EXTRA_PADDING);
    store_le16(padding + 2, (uint16_t)fill);
    memset(padding + FIELD_NBYTES, 'Z', fill);
    text_append(out, padding, FIELD_NBYTES + fill);
}

void zip_make_descriptor(uint8_t *dst, unsigned descriptor_nbytes, uint32_t crc,
                         uint64_t record_nbytes)
{
    store_le32(dst, ZIP_DESCRIPTOR_MAGIC);
    store_le32(dst + 4, crc);
    if (descriptor_nbytes == DESCRIPTOR64_NBYTES) {
        store_le64(dst + 8, record_nbytes);
        store_le64(dst + 16, record_nbytes);
    } else {
        store_le32(dst + 8, (uint32_t)record_nbytes);
        store_le32(dst + 12, (uint32_t)record_nbytes);
    }
}

void zip_put_descriptor(text_buf *out, uint64_t header_offset_bytes, uint32_t crc,
                        uint64_t record_nbytes)
{
    uint8_t b[DESCRIPTOR64_NBYTES];
    const unsigned n = zip_descriptor_nbytes(header_offset_bytes, record_nbytes);

    if (n == 0)
        return;
    zip_make_descriptor(b, n, crc, record_nbytes);
    text_append(out, b, n);
}

void zip_put_central(text_buf *out, uint64_t header_offset_bytes, const char *name,
                     size_t name_nbytes, uint32_t crc, uint64_t record_nbytes)
{
    uint8_t b[ZIP_CENTRAL_NBYTES] = {0};

    store_le32(b, ZIP_CENTRAL_MAGIC);
    store_le16(b + 8, flags_of(record_nbytes));
    store_le32(b + 16, crc);
    store_le32(b + 20, clip32(record_nbytes));
    store_le32(b + 24, clip32(record_nbytes));
    store_le16(b + 28, (uint16_t)name_nbytes);
    store_le16(b + 30, (uint16_t)zip64_nbytes(header_offset_bytes, record_nbytes));
    store_le32(b + 42, clip32(header_offset_bytes));
    text_append(out, b, sizeof(b));
    text_append(out, name, name_nbytes);
    put_zip64(out, header_offset_bytes, record_nbytes, record_nbytes);
}

void zip_put_end(text_buf *out, uint64_t directory_offset_bytes, uint64_t directory_nbytes,
                 uint64_t count)
{
    uint8_t b[ZIP_END64_NBYTES + ZIP_LOCATOR_NBYTES + ZIP_END_NBYTES] = {0};
    uint8_t *locator = b + ZIP_END64_NBYTES;
    uint8_t *end = locator + ZIP_LOCATOR_NBYTES;
    const uint16_t count16 = count >= UINT16_MAX ? UINT16_MAX : (uint16_t)count;

    store_le32(b, ZIP_END64_MAGIC);
    store_le64(b + 4, ZIP_END64_NBYTES - 12);
    store_le16(b + 12, 0x031E);
    store_le16(b + 14, 0x002D);
    store_le64(b + 24, count);
    store_le64(b + 32, count);
    store_le64(b + 40, directory_nbytes);
    store_le64(b + 48, directory_offset_bytes);
    store_le32(locator, ZIP_LOCATOR_MAGIC);
    store_le64(locator + 8, directory_offset_bytes + directory_nbytes);
    store_le32(locator + 16, 1);
    store_le32(end, ZIP_END_MAGIC);
    store_le16(end + 8, count16);
    store_le16(end + 10, count16);
    store_le32(end + 12, clip32(directory_nbytes));
    store_le32(end + 16, clip32(directory_offset_bytes));
    text_append(out, b, sizeof(b));
}
