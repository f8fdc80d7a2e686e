/* manifest_files.h: names and sizes of a checkpoint's files against the manifest in its folder.
 *
 *     manifest m;
 *     manifest_init(&m, &src->metadata);
 *     RETURN_IF(manifest_files_check(src, &m, any, NULL, err));  // MAN-MISSING, MAN-SIZE
 *     manifest_release(&m);
 */
#ifndef FSDPCK_RUN_MANIFEST_FILES_H
#define FSDPCK_RUN_MANIFEST_FILES_H

#include "manifest/manifest.h"
#include "run/run.h"

/* Whether a file that is not there, or has another size, is needed. */
typedef bool (*manifest_needed_fn)(void *arg, const manifest *m, const char *name);

/* BADINPUT for the first that is needed; `needed` NULL: all are. The others are warnings. m: empty. Without a manifest, or
 * where that cannot be read, which is a warning, nothing is known. */
fsdpck_status manifest_files_check(const fsdpck_checkpoint *src, manifest *m,
                                   manifest_needed_fn needed, void *arg,
                                   fsdpck_error *err) FSDPCK_MUST_CHECK;

/* What the run takes of its source, once it is selected. */
fsdpck_status manifest_files_check_run(run *r, fsdpck_error *err) FSDPCK_MUST_CHECK;

#endif
