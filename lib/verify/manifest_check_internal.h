/* manifest_check_internal.h: a manifest that is being compared, for manifest_check.c and
 * manifest_check_files.c. */
#ifndef FSDPCK_VERIFY_MANIFEST_CHECK_INTERNAL_H
#define FSDPCK_VERIFY_MANIFEST_CHECK_INTERNAL_H

#include "run/manifest_base.h"
#include "verify/expect_internal.h"

struct manifest_check {
    const expect_request *r;
    expect_request request; /* what r points to */
    manifest_check_result *result;
    const check_file *summed; /* by file of the catalogue; NULL */
    uint32_t *file_of;        /* by file of the manifest: that of the catalogue, or CAT_NONE */
    bool partial;
    manifest m;
    folder own;         /* where src gives none */
    manifest_base base; /* of src */
    const folder *dir;
    const char *manifest_folder; /* of the manifest that was not given */
    uint8_t *good;               /* by file of the manifest: it is there with its size */
    const char *only;            /* name of the file that the checkpoint is; NULL: a folder */
    expect_naming names;
    char outer[72]; /* names.outer */
    bool differs;   /* some file differs from the manifest */
    bool is_other;  /* none of its files exists */
    uint64_t reported_hashes;
    bool lost_are_reported; /* missing files with chunks */
};

bool manifest_check_is_folder(const manifest_check *w);
/* Of file i of src's catalogue in the manifest; SIZE_MAX if it is not listed. */
fsdpck_status manifest_check_find_own(const manifest_check *w, uint32_t i, size_t *at,
                                      fsdpck_error *err) FSDPCK_MUST_CHECK;
size_t manifest_check_find_file(const manifest_check *w, const char *name, size_t nbytes);
/* Sets the path of the error, as the user would name the file. For FAIL_WITH. */
void error_manifest_file(fsdpck_error *err, const manifest_check *w, const char *name);

/* Compares the names and sizes of the files. */
fsdpck_status manifest_check_files(manifest_check *w, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Compares every byte of the files that have the right size. */
fsdpck_status manifest_check_checksums(manifest_check *w, fsdpck_error *err) FSDPCK_MUST_CHECK;

#endif
