/* zip_records.h: parses the records of a zip in memory. Shared by zip.c, which reads whole
 * archives, and torch_archive_blob.c, which checks tens of thousands of tiny ones without
 * allocating.
 *
 *     zip_end end;
 *     RETURN_IF(zip_end_parse(tail, tail_nbytes, archive_nbytes, &end, err));
 *     for (at = 0, i = 0; i < end.count; i++)
 *         RETURN_IF(zip_central_parse(directory, end.directory_nbytes, &at, &central, err));
 *     RETURN_IF(zip_local_parse(bytes, nbytes, &central, &local, err));
 *
 * Callers add the offsets to errors.
 */
#ifndef FSDPCK_FORMATS_COMMON_ZIP_RECORDS_H
#define FSDPCK_FORMATS_COMMON_ZIP_RECORDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

enum {
    ZIP_LOCAL_NBYTES = 30,
    ZIP_CENTRAL_NBYTES = 46,
    ZIP_END_NBYTES = 22,
    ZIP_END64_NBYTES = 56,
    ZIP_LOCATOR_NBYTES = 20,
    ZIP_FLAG_DESCRIPTOR = 0x0008,
    ZIP_FLAG_UTF8 = 0x0800,
    ZIP_PREFIX_LIMIT = 255,
    ZIP_NAME_LIMIT = 4096, /* with its prefix */
};

#define ZIP_LOCAL_MAGIC      0x04034b50u
#define ZIP_CENTRAL_MAGIC    0x02014b50u
#define ZIP_DESCRIPTOR_MAGIC 0x08074b50u
#define ZIP_END_MAGIC        0x06054b50u
#define ZIP_END64_MAGIC      0x06064b50u
#define ZIP_LOCATOR_MAGIC    0x07064b50u

typedef struct zip_end {
    uint64_t directory_offset_bytes; /* in the archive */
    uint64_t directory_nbytes;
    uint64_t count;
} zip_end;

/* `tail` is the last tail_nbytes of an archive of archive_nbytes: 98 bytes, or all of it, suffice.
 */
fsdpck_status zip_end_parse(const uint8_t *tail, size_t tail_nbytes, uint64_t archive_nbytes,
                            zip_end *end, fsdpck_error *err) FSDPCK_MUST_CHECK;

/* One entry of the directory; name is borrowed, with its prefix. */
typedef struct zip_central {
    const char *name;
    uint16_t name_nbytes;
    uint16_t prefix_nbytes; /* up to the first '/' */
    uint16_t method;
    uint16_t flags;
    uint32_t crc32;
    uint64_t nbytes;
    uint64_t stored_nbytes;
    uint64_t header_offset_bytes;
} zip_central;

/* Parses the entry at directory[*at], checks it alone (name, flags, method, sizes) and moves *at
 * past it. */
fsdpck_status zip_central_parse(const uint8_t *directory, size_t nbytes, size_t *at, zip_central *c,
                                fsdpck_error *err) FSDPCK_MUST_CHECK;

typedef struct zip_local {
    uint64_t header_nbytes;     /* up to the data */
    unsigned descriptor_nbytes; /* 0, 16 or 24 */
} zip_local;

/* Total size of the local header, from its first ZIP_LOCAL_NBYTES; 0 if it is not one. */
uint32_t zip_local_nbytes(const uint8_t *bytes);

/* Compares the local header in bytes[0..nbytes) with its directory entry. */
fsdpck_status zip_local_parse(const uint8_t *bytes, size_t nbytes, const zip_central *c,
                              zip_local *local, fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Compares a descriptor of 16 or 24 bytes with the directory entry. */
fsdpck_status zip_descriptor_check(const uint8_t *bytes, unsigned nbytes, const zip_central *c,
                                   fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Empty, over ZIP_NAME_LIMIT, absolute, drive, backslash, NUL, "." or ".." or empty parts, bad
 * UTF-8: ZIP-NAME; no folder: ZIP-ROOT. */
fsdpck_status zip_name_check(const char *name, size_t nbytes, bool utf8,
                             fsdpck_error *err) FSDPCK_MUST_CHECK;

#endif
