/* file_checksums.h: checksums of whole files, each read once.
 *
 *     file_checksums s;
 *     file_checksums_init(&s, &folder, no_follow);
 *     RETURN_IF(file_checksums_add(&s, "model.safetensors", nbytes, err));      // or
 *     RETURN_IF(file_checksums_add_checkpoint(&s, src, err));
 *     RETURN_IF(file_checksums_read(&s, ctx, nthreads, CHECKSUM_CRC64 | CHECKSUM_SHA256, err));
 *     ... VEC_AT(&s.files, const file_checksum, i) ...
 *     file_checksums_release(&s);
 *
 * A file is shared by several threads, but where its SHA-256 is wanted.
 */
#ifndef FSDPCK_RUN_FILE_CHECKSUMS_H
#define FSDPCK_RUN_FILE_CHECKSUMS_H

#include "io/file_set.h"
#include "manifest/manifest.h"
#include "open/checkpoint.h"

enum { CHECKSUM_CRC64 = 1, CHECKSUM_SHA256 = 2 };

typedef struct file_checksum {
    char *name;      /* relative to the folder */
    uint64_t nbytes; /* as listed: so many are read */
    uint64_t crc64;
    uint8_t sha256[32];
} file_checksum;

typedef struct file_checksums {
    const folder *dir; /* borrowed */
    bool no_follow;
    group *group; /* whose ranks read together; NULL: this process alone */
    const struct remote_folder *source_folder; /* as exec_request has it */
    vec files;                                 /* file_checksum */
} file_checksums;

void file_checksums_init(file_checksums *s, const folder *dir, bool no_follow);
void file_checksums_release(file_checksums *s);
/* By all ranks of the group of an open checkpoint: file_checksums_read is their common work from now on. */
void file_checksums_use_group(file_checksums *s, const fsdpck_checkpoint *src);
fsdpck_status file_checksums_add(file_checksums *s, const char *name, uint64_t nbytes,
                                 fsdpck_error *err) FSDPCK_MUST_CHECK;
/* The files of a checkpoint: the one that it is, or all plain files of its folder and of the folders
 * inside that hold files of it; without what is hidden (but .metadata) and without a manifest. */
fsdpck_status file_checksums_add_checkpoint(file_checksums *s, const fsdpck_checkpoint *src,
                                            fsdpck_error *err) FSDPCK_MUST_CHECK;
/* CHANGED where a file is no longer what it was when it was opened. */
fsdpck_status file_checksums_read(file_checksums *s, fsdpck_context *ctx, unsigned nthreads,
                                  unsigned what, fsdpck_error *err) FSDPCK_MUST_CHECK;

/* The same for whatever can be read: `files` come with nbytes and leave with their sums. */
typedef struct file_checksums_request {
    file_checksum *files;
    size_t count;
    unsigned what; /* SUM_... */
    unsigned nthreads;
    fsdpck_status (*read_at)(void *arg, size_t file, uint64_t offset_bytes, void *dst,
                             uint64_t nbytes, fsdpck_error *err); /* any thread */
    void *arg;
    const cancel_token *cancel;
    progress *progress;
    const file_checksums *shared; /* whose ranks each do their jobs; NULL: all are done here */
} file_checksums_request;

fsdpck_status file_checksums_run(const file_checksums_request *r,
                                 fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Names of the plain files in `sub` ("": the folder itself) that belong to a checkpoint, as
 * "sub/name". Calls fn for each, by name. */
typedef fsdpck_status (*file_checksums_name_fn)(void *arg, const char *name, uint64_t nbytes,
                                                fsdpck_error *err);
fsdpck_status file_checksums_walk(const folder *dir, const char *sub, file_checksums_name_fn fn,
                                  void *arg, fsdpck_error *err) FSDPCK_MUST_CHECK;

#endif
