/* same_files.h: files with the same records, which the metadata gives to different tensors or boxes: one is probably a
 * copy of the other.
 *
 *     RETURN_IF(same_files_find(&(same_files){.cat = cat, .source = src, .count = n, .record_at = record_at,
 *                                             .ctx = ctx, .report = report}, err));
 */
#ifndef FSDPCK_STATE_SAME_FILES_H
#define FSDPCK_STATE_SAME_FILES_H

#include "state/source.h"

/* A range of a file with its stored checksum. */
typedef struct file_record {
    uint64_t offset_bytes, nbytes;
    uint64_t chunk;
    uint64_t at_bytes; /* offset of the chunk's elements in it */
    uint32_t file, crc32;
    bool has_crc; /* else its file is not compared */
} file_record;

/* metadata may be NULL. */
typedef struct same_files {
    const catalogue *cat;
    const source *source; /* samples of the records are read */
    budget *metadata;
    uint64_t count; /* of records */
    /* In the order of the files; the records of one file are neighbours. */
    file_record (*record_at)(const void *ctx, uint64_t index);
    /* Two files by their first records; each has `count` records. */
    void (*report)(void *ctx, const file_record *a, const file_record *b, uint64_t count);
    void *ctx;
} same_files;

fsdpck_status same_files_find(const same_files *s, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* FILE-SAME, as an error without its path: the file of b has the data of a's. */
void same_files_describe(const catalogue *cat, const file_record *a, uint64_t count,
                         fsdpck_error *what);

#endif
