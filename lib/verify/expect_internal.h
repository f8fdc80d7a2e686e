/* expect_internal.h: what a checkpoint ought to be, held against what it is: verify's --manifest and --expect.
 *
 *     const expect_request r = {.ctx = ctx, .path = path, .src = src, .found = &found, ...};
 *     RETURN_IF(manifest_check_new(&r, &m, err));             // names and sizes of files
 *     manifest_check_select_files(m, files);
 *     ... the bytes are read, and so files get their CRC-64 ...
 *     RETURN_IF(manifest_check_run(m, files, &result, err));
 *     manifest_check_free(m);
 *     RETURN_IF(expect_check(&r, "model.safetensors.index.json", err));
 *
 * What is wrong with the checkpoint, or with its manifest, is a finding; what keeps it from being
 * judged is the status: I/O, a manifest of a newer version, a list that cannot be read.
 */
#ifndef FSDPCK_VERIFY_EXPECT_INTERNAL_H
#define FSDPCK_VERIFY_EXPECT_INTERNAL_H

#include "check/check.h"
#include "check/findings.h"
#include "manifest/manifest.h"
#include "open/checkpoint.h"

typedef struct expect_request {
    fsdpck_context *ctx;
    const char *path;          /* of the checkpoint as the user named it */
    fsdpck_checkpoint *src;    /* NULL: it could not be opened */
    const char *manifest_path; /* NULL: that in the checkpoint's folder, where there is one */
    check_level level;
    unsigned nthreads;
    bool no_follow;
    bool sha256;
    findings *found;
} expect_request;

typedef struct manifest_check_result {
    bool there;
    uint64_t files, tensors; /* that it lists */
    uint64_t bytes_summed;   /* of files, at level checksum */
    uint64_t unhashed_files; /* partial: they were not compared */
    bool covers; /* each file that the checkpoint's chunks lie in was compared with its CRC-64 */
} manifest_check_result;

/* Copies *r. NULL where there is no manifest, or none that can be read, which is a finding. */
typedef struct manifest_check manifest_check;
fsdpck_status manifest_check_new(const expect_request *r, manifest_check **out,
                                 fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Says which of the catalogue's files are to be summed while they are read: `files` has one for each.
 * Those that cannot be are read by manifest_check_run. m may be NULL. */
void manifest_check_select_files(const manifest_check *m, check_file *files);
/* `files` NULL: nothing was read. `partial`: not everything is to be, so nothing is read for its sum
 * alone but what is small. m may be NULL: the result is empty then. */
fsdpck_status manifest_check_run(manifest_check *m, const check_file *files, bool partial,
                                 manifest_check_result *result,
                                 fsdpck_error *err) FSDPCK_MUST_CHECK;
void manifest_check_free(manifest_check *m);

/* `expect`: a list of names, `fsdpck digest`'s lines, a manifest, an index of safetensors, or a
 * checkpoint. */
fsdpck_status expect_check(const expect_request *r, const char *expect,
                           fsdpck_error *err) FSDPCK_MUST_CHECK;

/* What a list of tensors says against a catalogue. */
typedef struct expect_ids {
    fsdpck_finding_id missing, extra, type;
    const char *list; /* for messages: "the manifest" */
} expect_ids;

/* How names of the list are found. */
typedef struct expect_naming {
    const char
        *outer; /* what may stand before the model's names in the catalogue: "model."; NULL */
    bool ignore_extra;   /* tensors that the list does not have are no difference */
    bool ignore_missing; /* nor are those that it has alone */
} expect_naming;

/* Index in the list of a tensor of the catalogue, SIZE_MAX where it is not there. */
size_t expect_find(const manifest *list, const expect_naming *names, const char *name,
                   size_t nbytes);
/* How many differ. dtype NONE in the list: dtype and shape are not stated. */
uint64_t expect_compare(const manifest *list, const expect_naming *names, const catalogue *cat,
                        const expect_ids *ids, findings *found);
/* Whether a tensor is one that a checkpoint lists. */
bool expect_is_listed(const cat_tensor *t);

#endif
