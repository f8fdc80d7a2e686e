/* expect_internal.h: compares a checkpoint with a manifest or a list of tensors: verify's
 * --manifest and --expect.
 *
 *     const expect_request r = {.ctx = ctx, .path = path, .src = src, .found = &found, ...};
 *     RETURN_IF(manifest_check_new(&r, &m, err));             // names and sizes of files
 *     manifest_check_select_files(m, files);
 *     ... reading the bytes gives files their CRC-64 ...
 *     RETURN_IF(manifest_check_run(m, files, &result, err));
 *     manifest_check_free(m);
 *     RETURN_IF(expect_check(&r, "model.safetensors.index.json", err));
 *
 * Defects of the checkpoint or its manifest are findings. A status is returned only if the check
 * cannot be made: I/O errors, a newer manifest version, an unreadable list.
 */
#ifndef FSDPCK_VERIFY_EXPECT_INTERNAL_H
#define FSDPCK_VERIFY_EXPECT_INTERNAL_H

#include "check/check.h"
#include "check/reported_findings.h"
#include "manifest/manifest.h"
#include "open/checkpoint.h"

typedef struct expect_request {
    fsdpck_context *ctx;
    const char *path;          /* the checkpoint, as the user named it */
    fsdpck_checkpoint *src;    /* NULL: it could not be opened */
    const char *manifest_path; /* NULL: the manifest in the checkpoint's folder, if any */
    check_level level;
    unsigned nthreads;
    bool no_follow;
    bool sha256;
    findings *found;
} expect_request;

typedef struct manifest_check_result {
    bool there;
    uint64_t files, tensors; /* listed in the manifest */
    uint64_t bytes_summed;   /* of files, at level checksum */
    uint64_t unhashed_files; /* not compared, because of the level, or the check is partial */
    bool covers;             /* each file with chunks was compared with its CRC-64 */
} manifest_check_result;

/* Copies *r. *out is NULL without a readable manifest; an unreadable one is a finding. */
typedef struct manifest_check manifest_check;
fsdpck_status manifest_check_new(const expect_request *r, manifest_check **out,
                                 fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Marks the catalogue's files whose CRC-64 is to be computed while they are read; `files` has one
 * entry for each. manifest_check_run reads the others. m may be NULL. */
void manifest_check_select_files(const manifest_check *m, check_file *files);
/* `files` NULL: nothing was read. `partial`: the check is partial, so only small files are read
 * just for their checksum. m may be NULL; the result is then empty. */
fsdpck_status manifest_check_run(manifest_check *m, const check_file *files, bool partial,
                                 manifest_check_result *result,
                                 fsdpck_error *err) FSDPCK_MUST_CHECK;
void manifest_check_free(manifest_check *m);

/* `expect`: a list of names, `fsdpck digest`'s lines, a manifest, a safetensors index, or a
 * checkpoint. */
fsdpck_status expect_check(const expect_request *r, const char *expect,
                           fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Compares a list of tensors with a catalogue. */
typedef struct expect_ids {
    fsdpck_finding_id missing, extra, type;
    const char *list; /* for messages: "the manifest" */
} expect_ids;

/* How names of the list are found. */
typedef struct expect_naming {
    const char
        *outer; /* optional prefix of the model's names in the catalogue, such as "model."; NULL */
    bool ignore_extra;   /* ignore tensors that are missing from the list */
    bool ignore_missing; /* ignore tensors that only the list has */
} expect_naming;

/* Index of a catalogue tensor in the list; SIZE_MAX if missing. */
size_t expect_find(const manifest *list, const expect_naming *names, const char *name,
                   size_t nbytes);
/* Number of differences. dtype NONE in the list: dtype and shape are not given. */
uint64_t expect_compare(const manifest *list, const expect_naming *names, const catalogue *cat,
                        const expect_ids *ids, findings *found);
/* Whether a tensor is one that a checkpoint lists. */
bool expect_is_listed(const cat_tensor *t);

#endif
