#include <string.h>

#include "base/bytes.h"
#include "base/checked.h"
#include "base/text.h"
#include "base/utf8.h"
#include "formats/common/zip_records.h"

enum { EXTRA_ZIP64 = 0x0001, METHOD_STORED = 0, METHOD_DEFLATED = 8 };

/* Deflate cannot do better than 1032:1. */
enum { DEFLATE_RATIO = 1032 };
/* 6.3 in tenths, the newest version in APPNOTE; other readers refuse a higher one. */
enum { VERSION_MOST = 63 };

fsdpck_status zip_name_check(const char *name, size_t nbytes, bool utf8, fsdpck_error *err)
{
    const char *what = NULL;
    size_t part = 0;

    if (nbytes == 0)
        what = "is empty";
    else if (nbytes > ZIP_NAME_LIMIT)
        what = "is too long";
    else if (name[0] == '/')
        what = "is absolute";
    else if (nbytes >= 2 && name[1] == ':' && (nbytes == 2 || name[2] == '/'))
        what = "begins with a drive letter";
    for (size_t i = 0; i <= nbytes && what == NULL; i++) {
        if (i < nbytes && (name[i] == '\0' || name[i] == '\\'))
            what = "holds a NUL or a backslash";
        if (i < nbytes && name[i] != '/')
            continue;
        if (i == part)
            what = "has an empty part";
        else if (name[part] == '.' && (i - part == 1 || (i - part == 2 && name[part + 1] == '.')))
            what = "has a '.' or '..' part";
        part = i + 1;
    }
    for (size_t i = 0; utf8 && i < nbytes && what == NULL;) {
        uint32_t code_point;
        const unsigned n = utf8_decode((const uint8_t *)name + i, nbytes - i, &code_point);
        if (n == 0)
            what = "is not UTF-8, although its flag states UTF-8";
        i += n;
    }
    if (what == NULL)
        return FSDPCK_OK;
    char shown[160];
    return FAIL(err, BADINPUT, ZIP_NAME, "name of a zip entry %s: '%s'", what,
                escape_text(shown, sizeof(shown), name, nbytes));
}

static fsdpck_status bad_zip64(fsdpck_error *err, const char *what)
{
    return FAIL(err, BADINPUT, ZIP64, "inconsistent zip64 records: %s", what);
}

/* No end record at the end of the file: report the bytes found instead. */
static fsdpck_status end_missing(const uint8_t *tail, size_t tail_nbytes, fsdpck_error *err)
{
    for (size_t at = tail_nbytes; at-- > 0;) {
        if (tail_nbytes - at < ZIP_END_NBYTES || load_le32(tail + at) != ZIP_END_MAGIC)
            continue;
        const size_t behind = tail_nbytes - at - ZIP_END_NBYTES;
        return FAIL_WITH(err, BADINPUT, ZIP_TRAILING,
                         (load_le16(tail + at + 20) == behind
                              ? "zip has a comment after its end record"
                              : "zip is followed by other bytes"),
                         (expected, "the end record in the last %d bytes", ZIP_END_NBYTES),
                         (found, "%zu byte%s after it", behind, text_plural(behind)));
    }
    return FAIL(err, BADINPUT, ZIP_NOEND, "zip has no end record");
}

/* The zip64 end record and its locator, which must directly precede the end record. */
static fsdpck_status end64_parse(const uint8_t *tail, size_t end_at, uint64_t archive_nbytes,
                                 zip_end *end, fsdpck_error *err)
{
    const uint64_t end_offset = archive_nbytes - ZIP_END_NBYTES;

    if (end_at < ZIP_LOCATOR_NBYTES + ZIP_END64_NBYTES)
        return bad_zip64(err, "no room for the zip64 end record");
    const uint8_t *plain = tail + end_at;
    const uint8_t *locator = plain - ZIP_LOCATOR_NBYTES;
    const uint8_t *end64 = locator - ZIP_END64_NBYTES;
    const uint64_t end64_offset = end_offset - ZIP_LOCATOR_NBYTES - ZIP_END64_NBYTES;
    if (load_le32(end64) != ZIP_END64_MAGIC || load_le64(end64 + 4) != ZIP_END64_NBYTES - 12)
        return bad_zip64(err, "no zip64 end record before its locator");
    if (load_le64(locator + 8) != end64_offset) {
        /* If all offsets are too small by the same amount, other bytes precede the zip. */
        uint64_t directory_end;
        if (checked_add(load_le64(end64 + 48), load_le64(end64 + 40), &directory_end) &&
            directory_end == load_le64(locator + 8) && directory_end < end64_offset)
            return FAIL_WITH(
                err, BADINPUT, ZIP_PREFIX, ("bytes before the zip"),
                (found, "%llu bytes", (unsigned long long)(end64_offset - directory_end)));
        return bad_zip64(err, "the locator does not point to the bytes before it");
    }
    if (load_le32(locator + 4) != 0 || load_le32(locator + 16) > 1 || load_le32(end64 + 16) != 0 ||
        load_le32(end64 + 20) != 0)
        return FAIL(err, BADINPUT, ZIP_DISK, "zip spans several disks");
    if (load_le64(end64 + 24) != load_le64(end64 + 32))
        return FAIL(err, BADINPUT, ZIP_COUNT, "zip contains two different entry counts");
    end->count = load_le64(end64 + 24);
    end->directory_nbytes = load_le64(end64 + 40);
    end->directory_offset_bytes = load_le64(end64 + 48);

    const uint16_t count16 = load_le16(plain + 10);
    const uint32_t nbytes32 = load_le32(plain + 12);
    const uint32_t offset32 = load_le32(plain + 16);
    if ((count16 != UINT16_MAX && count16 != end->count) ||
        (nbytes32 != UINT32_MAX && nbytes32 != end->directory_nbytes) ||
        (offset32 != UINT32_MAX && offset32 != end->directory_offset_bytes))
        return bad_zip64(err, "the plain and the zip64 end record differ");
    return FSDPCK_OK;
}

static fsdpck_status directory_place_check(const zip_end *end, uint64_t directory_end,
                                           const uint8_t *tail, size_t tail_nbytes,
                                           uint64_t archive_nbytes, fsdpck_error *err)
{
    uint64_t stated_end;

    if (end->count == 0 && end->directory_nbytes == 0)
        return FAIL(err, BADINPUT, ZIP_EMPTY, "zip has no entries");
    if (!checked_add(end->directory_offset_bytes, end->directory_nbytes, &stated_end) ||
        stated_end > directory_end)
        return FAIL_WITH(err, BADINPUT, ZIP_DIR, ("zip directory does not fit the archive"),
                         (expected, "an end at byte %llu", (unsigned long long)directory_end),
                         (found, "offset %llu, %llu bytes",
                          (unsigned long long)end->directory_offset_bytes,
                          (unsigned long long)end->directory_nbytes));
    if (stated_end != directory_end) {
        const uint64_t tail_offset = archive_nbytes - tail_nbytes;
        const bool second = stated_end >= tail_offset && directory_end - stated_end >= 4 &&
                            (load_le32(tail + (stated_end - tail_offset)) == ZIP_END_MAGIC ||
                             load_le32(tail + (stated_end - tail_offset)) == ZIP_END64_MAGIC);
        return FAIL_AS(err, FSDPCK_BADINPUT,
                       second ? FSDPCK_FINDING_ZIP_AMBIGUOUS_END : FSDPCK_FINDING_ZIP_DIR,
                       (second ? "zip has two end records"
                               : "zip directory ends before the end record begins"),
                       (expected, "an end at byte %llu", (unsigned long long)directory_end),
                       (found, "byte %llu", (unsigned long long)stated_end));
    }
    if (end->count == 0 || end->count > end->directory_nbytes / ZIP_CENTRAL_NBYTES)
        return FAIL_WITH(err, BADINPUT, ZIP_COUNT, ("zip entry count differs from its directory"),
                         (found, "%llu entr%s in %llu byte%s", (unsigned long long)end->count,
                          end->count == 1 ? "y" : "ies", (unsigned long long)end->directory_nbytes,
                          text_plural(end->directory_nbytes)));
    return FSDPCK_OK;
}

fsdpck_status zip_end_parse(const uint8_t *tail, size_t tail_nbytes, uint64_t archive_nbytes,
                            zip_end *end, fsdpck_error *err)
{
    if (tail_nbytes < ZIP_END_NBYTES)
        return FAIL(err, BADINPUT, ZIP_EMPTY, "too short for a zip: %zu bytes", tail_nbytes);
    const size_t at = tail_nbytes - ZIP_END_NBYTES;
    const uint8_t *plain = tail + at;
    if (load_le32(plain) != ZIP_END_MAGIC || load_le16(plain + 20) != 0)
        return end_missing(tail, tail_nbytes, err);

    uint64_t directory_end = archive_nbytes - ZIP_END_NBYTES;
    if (at >= ZIP_LOCATOR_NBYTES && load_le32(plain - ZIP_LOCATOR_NBYTES) == ZIP_LOCATOR_MAGIC) {
        RETURN_IF(end64_parse(tail, at, archive_nbytes, end, err));
        directory_end -= ZIP_LOCATOR_NBYTES + ZIP_END64_NBYTES;
    } else {
        end->count = load_le16(plain + 10);
        end->directory_nbytes = load_le32(plain + 12);
        end->directory_offset_bytes = load_le32(plain + 16);
        if (end->count == UINT16_MAX || end->directory_nbytes == UINT32_MAX ||
            end->directory_offset_bytes == UINT32_MAX)
            return bad_zip64(err, "the zip64 record that the end record requires is missing");
    }
    if (load_le16(plain + 4) != 0 || load_le16(plain + 6) != 0)
        return FAIL(err, BADINPUT, ZIP_DISK, "zip spans several disks");
    if (load_le16(plain + 8) != load_le16(plain + 10))
        return FAIL(err, BADINPUT, ZIP_COUNT, "zip contains two different entry counts");
    return directory_place_check(end, directory_end, tail, tail_nbytes, archive_nbytes, err);
}

/* Finds the zip64 field among extra fields; *field NULL if none. Fields must fill the space. */
static fsdpck_status extra_find_zip64(const uint8_t *extra, size_t nbytes, const uint8_t **field,
                                      size_t *field_nbytes, fsdpck_error *err)
{
    *field = NULL;
    *field_nbytes = 0;
    for (size_t at = 0; at < nbytes;) {
        if (nbytes - at < 4 || load_le16(extra + at + 2) > nbytes - at - 4)
            return bad_zip64(err, "an extra field exceeds its space");
        const size_t n = load_le16(extra + at + 2);
        if (load_le16(extra + at) == EXTRA_ZIP64) {
            if (*field != NULL)
                return bad_zip64(err, "an entry has two zip64 fields");
            *field = extra + at + 4;
            *field_nbytes = n;
        }
        at += 4 + n;
    }
    return FSDPCK_OK;
}

/* Replaces *v by the next 8 bytes of the field where its 32-bit form is all ones. */
static bool take64(const uint8_t **field, size_t *nbytes, uint64_t *v)
{
    if (*v != UINT32_MAX)
        return true;
    if (*nbytes < 8)
        return false;
    *v = load_le64(*field);
    *field += 8;
    *nbytes -= 8;
    return true;
}

static fsdpck_status central_flags_check(const zip_central *c, fsdpck_error *err)
{
    const unsigned deflate_bits = c->method == METHOD_DEFLATED ? 0x0006u : 0;
    char shown[160];

    if ((c->flags & ~(ZIP_FLAG_DESCRIPTOR | ZIP_FLAG_UTF8 | deflate_bits)) != 0)
        return FAIL_WITH(err, BADINPUT, ZIP_FLAGS,
                         ("zip entry has encryption or reserved flags: '%s'",
                          escape_text(shown, sizeof(shown), c->name, c->name_nbytes)),
                         (found, "flags 0x%04x", c->flags));
    if (c->method != METHOD_STORED && c->method != METHOD_DEFLATED)
        return FAIL_WITH(err, UNSUPPORTED, ZIP_METHOD,
                         ("zip entry is compressed by a method that torch does not use: '%s'",
                          escape_text(shown, sizeof(shown), c->name, c->name_nbytes)),
                         (expected, "0 (stored) or 8 (deflate)"), (found, "method %u", c->method));
    return FSDPCK_OK;
}

static fsdpck_status central_sizes_check(const zip_central *c, fsdpck_error *err)
{
    char shown[160];
    const bool stored_differs = c->method == METHOD_STORED && c->nbytes != c->stored_nbytes;
    const bool impossible =
        c->method == METHOD_DEFLATED && c->nbytes / DEFLATE_RATIO > c->stored_nbytes;

    if (!stored_differs && !impossible)
        return FSDPCK_OK;
    return FAIL_WITH(err, BADINPUT, ZIP_SIZE,
                     ("sizes of a zip entry contradict each other: '%s'",
                      escape_text(shown, sizeof(shown), c->name, c->name_nbytes)),
                     (found, "%llu byte%s stored as %llu", (unsigned long long)c->nbytes,
                      text_plural(c->nbytes), (unsigned long long)c->stored_nbytes));
}

fsdpck_status zip_central_parse(const uint8_t *directory, size_t nbytes, size_t *at, zip_central *c,
                                fsdpck_error *err)
{
    const uint8_t *p = directory + *at;
    const size_t left = nbytes - *at;
    const uint8_t *field;
    size_t field_nbytes;

    if (left < ZIP_CENTRAL_NBYTES)
        return FAIL(err, BADINPUT, ZIP_COUNT,
                    "zip directory has fewer entries than the end record states");
    if (load_le32(p) != ZIP_CENTRAL_MAGIC)
        return FAIL(err, BADINPUT, ZIP_DIR, "no directory entry where one must begin");
    const size_t extra_nbytes = load_le16(p + 30);
    const size_t comment_nbytes = load_le16(p + 32);
    c->name_nbytes = load_le16(p + 28);
    if (left - ZIP_CENTRAL_NBYTES < c->name_nbytes + extra_nbytes + comment_nbytes)
        return FAIL(err, BADINPUT, ZIP_DIR, "directory entry reaches past the directory");
    c->name = (const char *)p + ZIP_CENTRAL_NBYTES;
    c->flags = load_le16(p + 8);
    c->method = load_le16(p + 10);
    c->crc32 = load_le32(p + 16);
    c->stored_nbytes = load_le32(p + 20);
    c->nbytes = load_le32(p + 24);
    c->header_offset_bytes = load_le32(p + 42);

    RETURN_IF(zip_name_check(c->name, c->name_nbytes, (c->flags & ZIP_FLAG_UTF8) != 0, err));
    const char *slash = memchr(c->name, '/', c->name_nbytes);
    if (slash == NULL || slash - c->name > ZIP_PREFIX_LIMIT) {
        char shown[160];
        const fsdpck_status st =
            FAIL(err, BADINPUT, ZIP_ROOT,
                 "zip entry is not in a folder with a name of at most %d bytes: '%s'",
                 ZIP_PREFIX_LIMIT, escape_text(shown, sizeof(shown), c->name, c->name_nbytes));
        if (c->name_nbytes > 4 && memcmp(c->name + c->name_nbytes - 4, ".npy", 4) == 0)
            error_next(err, "this is a NumPy .npz file: save its arrays with torch.save");
        return st;
    }
    c->prefix_nbytes = (uint16_t)(slash - c->name);
    RETURN_IF(central_flags_check(c, err));
    if (p[6] > VERSION_MOST)
        return FAIL_WITH(err, UNSUPPORTED, ZIP_METHOD,
                         ("zip entry requires an unknown zip version"),
                         (found, "%u.%u", p[6] / 10u, p[6] % 10u));
    if (load_le16(p + 34) != 0)
        return FAIL(err, BADINPUT, ZIP_DISK, "zip entry is on another disk");
    RETURN_IF(extra_find_zip64(p + ZIP_CENTRAL_NBYTES + c->name_nbytes, extra_nbytes, &field,
                               &field_nbytes, err));
    if (!take64(&field, &field_nbytes, &c->nbytes) ||
        !take64(&field, &field_nbytes, &c->stored_nbytes) ||
        !take64(&field, &field_nbytes, &c->header_offset_bytes))
        return bad_zip64(err, "a directory entry lacks a required zip64 field");
    RETURN_IF(central_sizes_check(c, err));
    *at += ZIP_CENTRAL_NBYTES + c->name_nbytes + extra_nbytes + comment_nbytes;
    return FSDPCK_OK;
}

uint32_t zip_local_nbytes(const uint8_t *bytes)
{
    if (load_le32(bytes) != ZIP_LOCAL_MAGIC)
        return 0;
    return ZIP_LOCAL_NBYTES + (uint32_t)load_le16(bytes + 26) + load_le16(bytes + 28);
}

static fsdpck_status local_bad(const zip_central *c, fsdpck_finding_id finding, const char *what,
                               fsdpck_error *err)
{
    char shown[160];
    return error_set(err, FSDPCK_BADINPUT, finding, "%s: '%s'", what,
                     escape_text(shown, sizeof(shown), c->name, c->name_nbytes));
}

/* Sizes and CRC of a local header: the directory's, or zeros if a descriptor follows. torch's zip64
 * field holds a zero for the stored size, and the header's offset if only that is large. */
static fsdpck_status local_sizes_check(const uint8_t *p, const zip_central *c, const uint8_t *field,
                                       size_t field_nbytes, fsdpck_error *err)
{
    const bool descriptor = (c->flags & ZIP_FLAG_DESCRIPTOR) != 0;
    const uint32_t crc = load_le32(p + 14);
    uint64_t stored = load_le32(p + 18);
    uint64_t nbytes = load_le32(p + 22);

    if (descriptor && crc == 0 && stored == 0 && nbytes == 0) {
        for (size_t at = 0; at + 8 <= field_nbytes; at += 8) {
            const uint64_t v = load_le64(field + at);
            if (v != 0 && v != c->nbytes && v != c->stored_nbytes && v != c->header_offset_bytes)
                return local_bad(c, FSDPCK_FINDING_ZIP64,
                                 "zip64 field of a local header contradicts the directory", err);
        }
        return FSDPCK_OK;
    }
    if (!take64(&field, &field_nbytes, &nbytes) || !take64(&field, &field_nbytes, &stored))
        return local_bad(c, FSDPCK_FINDING_ZIP64, "local header lacks a required zip64 field", err);
    if ((crc != c->crc32 && !(descriptor && crc == 0)) || stored != c->stored_nbytes ||
        nbytes != c->nbytes)
        return local_bad(c, FSDPCK_FINDING_ZIP_LOCAL,
                         "sizes or CRC of a local header differ from the directory", err);
    return FSDPCK_OK;
}

fsdpck_status zip_local_parse(const uint8_t *bytes, size_t nbytes, const zip_central *c,
                              zip_local *local, fsdpck_error *err)
{
    const uint8_t *field;
    size_t field_nbytes;

    const uint32_t header_nbytes = nbytes < ZIP_LOCAL_NBYTES ? 0 : zip_local_nbytes(bytes);
    if (header_nbytes == 0)
        return local_bad(c, FSDPCK_FINDING_ZIP_LOCAL, "no local header where the directory points",
                         err);
    if (header_nbytes > nbytes)
        return local_bad(c, FSDPCK_FINDING_ZIP_OVERLAP,
                         "local header is longer than the bytes available for it", err);
    const size_t name_nbytes = load_le16(bytes + 26);
    if (name_nbytes != c->name_nbytes ||
        memcmp(bytes + ZIP_LOCAL_NBYTES, c->name, name_nbytes) != 0)
        return local_bad(c, FSDPCK_FINDING_ZIP_LOCAL_NAME,
                         "name in a local header differs from the directory", err);
    if (load_le16(bytes + 6) != c->flags)
        return local_bad(c, FSDPCK_FINDING_ZIP_FLAGS,
                         "flags in a local header differ from the directory", err);
    if (load_le16(bytes + 8) != c->method)
        return local_bad(c, FSDPCK_FINDING_ZIP_LOCAL,
                         "method in a local header differs from the directory", err);
    RETURN_IF(extra_find_zip64(bytes + ZIP_LOCAL_NBYTES + name_nbytes, load_le16(bytes + 28),
                               &field, &field_nbytes, err));
    RETURN_IF(local_sizes_check(bytes, c, field, field_nbytes, err));
    local->header_nbytes = header_nbytes;
    local->descriptor_nbytes = (c->flags & ZIP_FLAG_DESCRIPTOR) == 0 ? 0 : field != NULL ? 24 : 16;
    return FSDPCK_OK;
}

fsdpck_status zip_descriptor_check(const uint8_t *bytes, unsigned nbytes, const zip_central *c,
                                   fsdpck_error *err)
{
    const bool wide = nbytes == 24;
    const uint64_t stored = wide ? load_le64(bytes + 8) : load_le32(bytes + 8);
    const uint64_t whole = wide ? load_le64(bytes + 16) : load_le32(bytes + 12);

    if (load_le32(bytes) != ZIP_DESCRIPTOR_MAGIC || load_le32(bytes + 4) != c->crc32 ||
        stored != c->stored_nbytes || whole != c->nbytes)
        return local_bad(c, FSDPCK_FINDING_ZIP_DESCRIPTOR,
                         "data descriptor of a record is missing or differs from the directory",
                         err);
    return FSDPCK_OK;
}
