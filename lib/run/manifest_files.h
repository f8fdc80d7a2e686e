/* manifest_files.h: compares names and sizes of a checkpoint's files with the manifest in its
 * folder, or in the folder that was given.
 *
 *     manifest m;
 *     manifest_init(&m, &src->metadata);
 *     RETURN_IF(manifest_files_check(src, &m, any, NULL, err));  // MAN-MISSING, MAN-SIZE
 *     manifest_release(&m);
 */
#ifndef FSDPCK_RUN_MANIFEST_FILES_H
#define FSDPCK_RUN_MANIFEST_FILES_H

#include "manifest/manifest.h"
#include "run/manifest_base.h"
#include "run/run.h"

/* The text of the manifest that applies by default: in the checkpoint's folder, else in the folder
 * that was given and that contains the checkpoint. *text: to be freed; NULL if there is none.
 * *from: path of the folder with it. */
fsdpck_status manifest_files_read(const fsdpck_checkpoint *src, char **text, size_t *nbytes,
                                  const char **from, fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Whether a file is needed that is missing or has a different size. */
typedef bool (*manifest_needed_fn)(void *arg, const manifest *m, const manifest_base *b,
                                   const char *name);

/* BADINPUT for the first needed file that is missing or differs; others are warnings. `needed`
 * NULL: all are needed. m: empty before; stays empty without a readable manifest. An unreadable
 * manifest is a warning. */
fsdpck_status manifest_files_check(const fsdpck_checkpoint *src, manifest *m,
                                   manifest_needed_fn needed, void *arg,
                                   fsdpck_error *err) FSDPCK_MUST_CHECK;

/* The same for the files that the run's selected tensors need. */
fsdpck_status manifest_files_check_run(run *r, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* For runs without output: only files of weights, and only if the part that is read has less than
 * the manifest records: fewer tensors, or other shapes. No warnings. */
fsdpck_status manifest_files_check_lost(run *r, fsdpck_error *err) FSDPCK_MUST_CHECK;

#endif
