/* file_checksums.h: checksums of whole files, each read once.
 *
 *     file_checksums s;
 *     file_checksums_init(&s, &folder, no_follow);
 *     RETURN_IF(file_checksums_add(&s, "model.safetensors", nbytes, err));      // or
 *     RETURN_IF(file_checksums_add_checkpoint(&s, &base, src, err));   // dir: that of base
 *     RETURN_IF(file_checksums_read(&s, ctx, nthreads, CHECKSUM_CRC64 | CHECKSUM_SHA256, err));
 *     ... VEC_AT(&s.files, const file_checksum, i) ...
 *     file_checksums_release(&s);
 *
 * Several threads share a file, unless its SHA-256 is wanted.
 */
#ifndef FSDPCK_RUN_FILE_CHECKSUMS_H
#define FSDPCK_RUN_FILE_CHECKSUMS_H

#include "io/file_set.h"
#include "manifest/manifest.h"
#include "open/checkpoint.h"
#include "run/manifest_base.h"

enum { CHECKSUM_CRC64 = 1, CHECKSUM_SHA256 = 2 };

typedef struct file_checksum {
    char *name;      /* relative to the folder */
    uint64_t nbytes; /* as listed: the number of bytes to read */
    uint64_t crc64;
    uint8_t sha256[32];
} file_checksum;

typedef struct file_checksums {
    const folder *dir; /* borrowed */
    bool no_follow;
    group *group;                              /* ranks that share the reads; NULL: one process */
    const struct remote_folder *source_folder; /* as exec_request has it */
    vec files;                                 /* file_checksum */
} file_checksums;

void file_checksums_init(file_checksums *s, const folder *dir, bool no_follow);
void file_checksums_release(file_checksums *s);
/* Shares file_checksums_read among the ranks of src's group; it is collective from now on. */
void file_checksums_use_group(file_checksums *s, const fsdpck_checkpoint *src);
fsdpck_status file_checksums_add(file_checksums *s, const char *name, uint64_t nbytes,
                                 fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Adds the files of a checkpoint: its single file, or all plain files of the folder that was given and of
 * the folders inside. Hidden files except .metadata, manifests, links to folders that the checkpoint does
 * not read, and other steps of the run are omitted. */
fsdpck_status file_checksums_add_checkpoint(file_checksums *s, const manifest_base *b,
                                            const fsdpck_checkpoint *src,
                                            fsdpck_error *err) FSDPCK_MUST_CHECK;
/* CHANGED if a file was modified since it was opened. */
fsdpck_status file_checksums_read(file_checksums *s, fsdpck_context *ctx, unsigned nthreads,
                                  unsigned what, fsdpck_error *err) FSDPCK_MUST_CHECK;

/* The same for any readable bytes: the caller sets nbytes of each file, and the call fills its
 * checksums. */
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
    const file_checksums *shared; /* shares jobs among its ranks; NULL: this process does all */
} file_checksums_request;

fsdpck_status file_checksums_run(const file_checksums_request *r,
                                 fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Calls fn, in name order, for each plain file in `sub` ("": the folder itself) that belongs to a
 * checkpoint. Names are "sub/name". */
typedef fsdpck_status (*file_checksums_name_fn)(void *arg, const char *name, uint64_t nbytes,
                                                fsdpck_error *err);
fsdpck_status file_checksums_walk(const folder *dir, const char *sub, file_checksums_name_fn fn,
                                  void *arg, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Adds the folders in `sub` whose files would belong to the checkpoint too: no links, hidden folders and other steps. */
fsdpck_status file_checksums_list_folders(const folder *dir, const char *sub, strtab *folders,
                                          fsdpck_error *err) FSDPCK_MUST_CHECK;

#endif
