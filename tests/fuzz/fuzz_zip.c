/* Any bytes as a zip: an accepted zip has every record inside the archive, without overlaps, and no
 * byte outside all records: local headers, data and descriptors follow each other from the first
 * byte to the directory. The directory's entries, one per record, end where the end records begin.
 */
#include <stdint.h>
#include <string.h>

#include "base/bytes.h"
#include "formats/common/zip.h"
#include "tests/support/memory_bytes.h"
#include "tests/support/must.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t nbytes);

/* Whether extra fields, u16 kind, u16 size and as many bytes, fill their space. */
static bool extras_fit(const uint8_t *extra, size_t nbytes)
{
    size_t at = 0;
    while (nbytes - at >= 4 && load_le16(extra + at + 2) <= nbytes - at - 4)
        at += 4u + load_le16(extra + at + 2);
    return at == nbytes;
}

/* Bytes of the records, from the first byte on, told by the local headers and what `z` says of
 * sizes. */
static size_t walk_records(const zip_archive *z, const uint8_t *data, size_t nbytes)
{
    size_t at = 0;
    for (size_t i = 0; i < z->entries.count; i++) {
        const zip_entry *e = VEC_AT(&z->entries, const zip_entry, i);
        const char *name = zip_name(z, e);
        const size_t prefix = strlen(z->prefix) + 1, n = strlen(name);
        MUST(nbytes - at >= 30 && memcmp(data + at, "PK\3\4", 4) == 0);
        MUST(e->header_offset_bytes == at && load_le16(data + at + 6) == e->flags &&
             load_le16(data + at + 8) == e->method && load_le16(data + at + 26) == prefix + n);
        MUST(nbytes - at >= 30 + prefix + n && memcmp(data + at + 30, z->prefix, prefix - 1) == 0 &&
             data[at + 29 + prefix] == '/' && memcmp(data + at + 30 + prefix, name, n) == 0);
        const size_t extra = load_le16(data + at + 28);
        at += 30 + prefix + n;
        MUST(extra <= nbytes - at && extras_fit(data + at, extra));
        at += extra;
        MUST(at == e->data_offset_bytes && e->stored_nbytes <= nbytes - at);
        at += (size_t)e->stored_nbytes;
        if ((e->flags & 8) == 0)
            continue;
        MUST(nbytes - at >= 16 && memcmp(data + at, "PK\7\10", 4) == 0 &&
             load_le32(data + at + 4) == e->crc32);
        const bool narrow = load_le32(data + at + 8) == e->stored_nbytes &&
                            load_le32(data + at + 12) == e->nbytes &&
                            memcmp(data + at + 16, "PK", 2) == 0;
        MUST(narrow || (nbytes - at >= 24 && load_le64(data + at + 8) == e->stored_nbytes &&
                        load_le64(data + at + 16) == e->nbytes));
        at += narrow ? 16 : 24;
    }
    return at;
}

/* Every byte of an archive that was checked whole. */
static void check_tiling(const zip_archive *z, const uint8_t *data, size_t nbytes)
{
    size_t at = walk_records(z, data, nbytes), count = 0;
    const size_t directory = at;
    for (; nbytes - at >= 46 && memcmp(data + at, "PK\1\2", 4) == 0; count++)
        at +=
            46u + load_le16(data + at + 28) + load_le16(data + at + 30) + load_le16(data + at + 32);
    MUST(count == z->entries.count && at <= nbytes);
    const size_t end = at;
    if (nbytes - at == 56 + 20 + 22) {
        MUST(memcmp(data + at, "PK\6\6", 4) == 0 && load_le64(data + at + 32) == count &&
             load_le64(data + at + 40) == end - directory &&
             load_le64(data + at + 48) == directory);
        MUST(memcmp(data + at + 56, "PK\6\7", 4) == 0 && load_le64(data + at + 64) == end);
        at += 76;
    }
    MUST(nbytes - at == 22 && memcmp(data + at, "PK\5\6", 4) == 0 &&
         load_le16(data + at + 20) == 0);
    MUST(load_le16(data + at + 10) == count || load_le16(data + at + 10) == UINT16_MAX);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t nbytes)
{
    memory_bytes m = {data, nbytes};
    const zip_input in = {.read = memory_bytes_read, .ctx = &m, .nbytes = nbytes};
    budget b;
    zip_archive z;
    fsdpck_error err;
    uint64_t end = 0;

    budget_init(&b, 16 << 20, "zip", NULL);
    fsdpck_error_init(&err);
    const fsdpck_status st = zip_open(&in, &b, &z, &err);
    if (st != FSDPCK_OK && err.message[0] == '\0')
        abort();
    if (st == FSDPCK_OK && z.entries.count <= ZIP_EAGER_ENTRIES)
        check_tiling(&z, data, nbytes);
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
