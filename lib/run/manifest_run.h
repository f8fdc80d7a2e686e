/* manifest_run.h: the manifest of a run's output, or of an existing checkpoint.
 *
 *     manifest_run_request_checksums(r);                        // before exec_run: requests checksums
 *     RETURN_IF(manifest_run_make(r, &text, err)); // after all bytes are written
 *     RETURN_IF(manifest_run_write(r, &text, err));  // into the folder, the last file before commit
 *     output_commit(...)
 *     RETURN_IF(output_commit(...));       // --manifest FILE, by manifest_stage before the other
 */
#ifndef FSDPCK_RUN_MANIFEST_RUN_H
#define FSDPCK_RUN_MANIFEST_RUN_H

#include "run/digest_rows.h"
#include "run/run.h"

/* Whether the run makes a manifest, and whether DST contains it. */
bool manifest_run_is_made(const run *r);
bool manifest_run_is_in_output(const run *r);
void manifest_run_request_checksums(run *r);
fsdpck_status manifest_run_make(run *r, text_buf *text, fsdpck_error *err) FSDPCK_MUST_CHECK;
fsdpck_status manifest_run_write(run *r, const text_buf *text, fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Writes a manifest file that is absent until *out is committed. Release *out also after a
 * failure. `earlier`: the file to replace, from output_check_manifest_file. */
fsdpck_status manifest_stage(const char *path, const text_buf *text, unsigned output_flags,
                             const path_stamp *earlier, const logger *log, output *out,
                             fsdpck_error *err) FSDPCK_MUST_CHECK;
/* --manifest FILE, to be committed with the output. */
fsdpck_status run_stage_manifest(const run *r, const text_buf *text, output *beside,
                                 fsdpck_error *err) FSDPCK_MUST_CHECK;

struct manifest;
/* Adds all rows of the digests as tensors. */
fsdpck_status manifest_add_rows(struct manifest *m, const digest_rows *d, const target *t,
                                fsdpck_error *err) FSDPCK_MUST_CHECK;

#endif
