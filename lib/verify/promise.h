/* promise.h: what a checkpoint ought to be, held against what it is: verify's --manifest and --expect.
 *
 *     const promise_request r = {.ctx = ctx, .path = path, .src = src, .found = &found, ...};
 *     RETURN_IF(promise_manifest_new(&r, &m, err));             // names and sizes of files
 *     promise_manifest_wants(m, files);
 *     ... the bytes are read, and so files get their CRC-64 ...
 *     RETURN_IF(promise_manifest_check(m, files, &result, err));
 *     promise_manifest_free(m);
 *     RETURN_IF(promise_check_expect(&r, "model.safetensors.index.json", err));
 *
 * What is wrong with the checkpoint, or with its manifest, is a finding; what keeps it from being
 * judged is the status: I/O, a manifest of a newer version, a list that cannot be read.
 */
#ifndef FSDPCK_VERIFY_PROMISE_H
#define FSDPCK_VERIFY_PROMISE_H

#include "check/check.h"
#include "check/findings.h"
#include "manifest/manifest.h"
#include "open/transform.h"

typedef struct promise_request {
    fsdpck_context *ctx;
    const char *path;          /* of the checkpoint as the user named it */
    fsdpck_checkpoint *src;    /* NULL: it could not be opened */
    const char *manifest_path; /* NULL: that in the checkpoint's folder, where there is one */
    check_level level;
    unsigned nthreads;
    bool no_follow;
    bool sha256;
    findings *found;
} promise_request;

typedef struct manifest_result {
    bool there;
    uint64_t files, tensors; /* that it lists */
    uint64_t bytes_summed;   /* of files, at level checksum */
    uint64_t unsummed_files; /* partial: they were not compared */
    bool covers; /* each file that the checkpoint's chunks lie in was compared with its CRC-64 */
} manifest_result;

/* Copies *r. NULL where there is no manifest, or none that can be read, which is a finding. */
typedef struct promise_manifest promise_manifest;
fsdpck_status promise_manifest_new(const promise_request *r, promise_manifest **out,
                                   fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Says which of the catalogue's files are to be summed while they are read: `files` has one for each.
 * Those that cannot be are read by promise_manifest_check. m may be NULL. */
void promise_manifest_wants(const promise_manifest *m, check_file *files);
/* `files` NULL: nothing was read. `partial`: not everything is to be, so nothing is read for its sum
 * alone but what is small. m may be NULL: the result is empty then. */
fsdpck_status promise_manifest_check(promise_manifest *m, const check_file *files, bool partial,
                                     manifest_result *result, fsdpck_error *err) FSDPCK_MUST_CHECK;
void promise_manifest_free(promise_manifest *m);

/* `expect`: a list of names, `fsdpck digest`'s lines, a manifest, an index of safetensors, or a
 * checkpoint. */
fsdpck_status promise_check_expect(const promise_request *r, const char *expect,
                                   fsdpck_error *err) FSDPCK_MUST_CHECK;

/* What a list of tensors says against a catalogue. */
typedef struct list_ids {
    fsdpck_finding_id missing, extra, type;
    const char *list; /* for messages: "the manifest" */
} list_ids;

/* How names of the list are found. */
typedef struct list_names {
    const char
        *outer;    /* what may stand before the model's names in the catalogue: "model."; NULL */
    bool any_more; /* tensors that the list does not have are no difference */
    bool any_less; /* nor are those that it has alone */
} list_names;

/* Index in the list of a tensor of the catalogue, SIZE_MAX where it is not there. */
size_t promise_find(const manifest *list, const list_names *names, const char *name, size_t nbytes);
/* How many differ. dtype NONE in the list: dtype and shape are not stated. */
uint64_t promise_compare(const manifest *list, const list_names *names, const catalogue *cat,
                         const list_ids *ids, findings *found);
/* Whether a tensor is one that a checkpoint lists. */
bool promise_is_listed(const cat_tensor *t);

#endif
