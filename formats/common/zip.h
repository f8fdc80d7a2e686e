/* zip.h: strict reading of zip archives such as torch.save writes, and their directory for writing.
 *
 * A zip may be a file or a part of one (each tensor of a DCP folder is a whole zip inside a .distcp
 * file). It is read through a positional callback, from its end record inwards. One canonical form
 * is accepted; any ambiguity between readers is an error (ZIP-* findings: ambiguous ends, duplicate
 * names, overlapping or unaccounted bytes, local header against directory, bytes before or after).
 *
 *     zip_input in = {.read = fn, .ctx = c, .base_offset_bytes = blob_at, .nbytes = blob_nbytes};
 *     zip_archive z;
 *     RETURN_IF(zip_open(&in, budget, &z, err));
 *     const zip_entry *e = zip_find(&z, "data.pkl");   // names are without the common prefix
 *     RETURN_IF(zip_read_entry(&z, e, limit_bytes, &bytes, &nbytes, err));  // checks CRC
 *     zip_release(&z);
 *
 * Accepted: zero CRCs and sizes in local headers with bit 3 and a correct descriptor; CRC 0 for all
 * records (torch's set_crc32_options(False)); unneeded zip64; deflate (any_deflated is set).
 */
#ifndef FSDPCK_FORMATS_COMMON_ZIP_H
#define FSDPCK_FORMATS_COMMON_ZIP_H

#include "base/alloc.h"
#include "base/checked.h"

typedef fsdpck_status (*zip_read_fn)(void *ctx, uint64_t offset_bytes, void *dst, uint64_t nbytes,
                                     fsdpck_error *err);

typedef struct zip_input {
    zip_read_fn read; /* offsets count from the start of the file, not of the archive */
    void *ctx;
    uint64_t base_offset_bytes; /* start of the archive in the file */
    uint64_t nbytes;            /* of the archive */
} zip_input;

typedef struct zip_entry {
    uint32_t name;   /* in zip_archive.names, without the prefix */
    uint16_t method; /* 0 stored, 8 deflated */
    uint16_t flags;
    uint32_t crc32;
    uint64_t nbytes; /* uncompressed */
    uint64_t stored_nbytes;
    uint64_t header_offset_bytes; /* local header, from the archive's start */
    uint64_t data_offset_bytes;   /* in the FILE */
    bool checked; /* local header and descriptor were compared: see zip_entry_check */
} zip_entry;

typedef struct zip_archive {
    zip_input in;
    strtab names;
    vec entries;       /* zip_entry, in the order of their data */
    uint32_t *by_name; /* entry of each name id */
    char prefix[256];  /* "archive" */
    bool no_crc;       /* all records' CRCs are 0: not recorded */
    bool any_deflated;
    uint8_t *tail; /* last bytes of the archive, kept so that small records need no read; or NULL */
    uint64_t tail_offset_bytes; /* in the archive */
    uint64_t tail_nbytes;
    budget *owner;
} zip_archive;

/* zip_open checks archives of at most this many entries completely. In larger ones with torch's own
 * layout, each entry is checked at its first use (zip_entry_check), which saves one read per
 * record. */
#define ZIP_EAGER_ENTRIES 4096u

fsdpck_status zip_open(const zip_input *in, budget *owner, zip_archive *z,
                       fsdpck_error *err) FSDPCK_MUST_CHECK;
/* NULL if none. */
const zip_entry *zip_find(const zip_archive *z, const char *name);
const char *zip_name(const zip_archive *z, const zip_entry *e);
/* The whole entry, inflated, CRC checked unless not recorded; budget_free(owner, *bytes,
 * *nbytes). */
fsdpck_status zip_read_entry(const zip_archive *z, const zip_entry *e, uint64_t limit_bytes,
                             uint8_t **bytes, uint64_t *nbytes,
                             fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Compares local header and descriptor with the directory if zip_open did not. Call it before using
 * data_offset_bytes; zip_read_entry calls it itself. Any thread. */
fsdpck_status zip_entry_check(const zip_archive *z, const zip_entry *e,
                              fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Frees the kept tail: for archives that stay open while only their records are read. */
void zip_drop_tail(zip_archive *z);
/* Also on a zeroed archive. */
void zip_release(zip_archive *z);

/* Inflates one deflated record front to back, bounded by the size that the directory states. The
 * caller has checked the entry. check_crc false: the archive records none (zip_archive.no_crc). */
typedef struct zip_inflater zip_inflater;
fsdpck_status zip_inflater_open(const zip_input *in, const zip_entry *e, bool check_crc,
                                zip_inflater **inf, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Exactly nbytes. */
fsdpck_status zip_inflater_read(zip_inflater *inf, void *dst, uint64_t nbytes,
                                fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Inflates the rest; sizes and CRC must be the directory's. */
fsdpck_status zip_inflater_finish(zip_inflater *inf, fsdpck_error *err) FSDPCK_MUST_CHECK;
void zip_inflater_close(zip_inflater *inf);

/* --- the bytes that torch's zip writer writes (the same in 1.13 to 2.15) --- */

/* Offset of the data of a record with its local header at header_offset_bytes; 64-byte aligned. */
uint64_t zip_data_offset(uint64_t header_offset_bytes, size_t name_nbytes, uint64_t record_nbytes);
/* Size of the descriptor after the data: 0 for empty records, 16, or 24 with zip64. */
unsigned zip_descriptor_nbytes(uint64_t header_offset_bytes, uint64_t record_nbytes);
/* Appends the local header, name, zip64 and padding fields: up to the data. */
void zip_put_local(text_buf *out, uint64_t header_offset_bytes, const char *name,
                   size_t name_nbytes, uint64_t record_nbytes);
void zip_put_descriptor(text_buf *out, uint64_t header_offset_bytes, uint32_t crc,
                        uint64_t record_nbytes);
/* The same in memory; descriptor_nbytes from zip_descriptor_nbytes (not 0). */
void zip_make_descriptor(uint8_t *dst, unsigned descriptor_nbytes, uint32_t crc,
                         uint64_t record_nbytes);
void zip_put_central(text_buf *out, uint64_t header_offset_bytes, const char *name,
                     size_t name_nbytes, uint32_t crc, uint64_t record_nbytes);
/* zip64 end record, locator, end record. */
void zip_put_end(text_buf *out, uint64_t directory_offset_bytes, uint64_t directory_nbytes,
                 uint64_t count);

#endif
