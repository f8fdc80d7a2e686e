/* output_paths.h: refuses an output that would overwrite its input. Files are compared by identity,
 * not by name, so links, ".." and case-insensitive file systems are handled.
 *
 *     RETURN_IF(output_check_disjoint(r, err));           // DST and SRC
 *     RETURN_IF(output_check_manifest(r, err));        // --manifest FILE and both of them
 *     RETURN_IF(output_check_manifest_file(path, force, &stamp, err));   // FILE and what it replaces
 */
#ifndef FSDPCK_RUN_OUTPUT_PATHS_H
#define FSDPCK_RUN_OUTPUT_PATHS_H

#include "run/run.h"

/* USAGE if the output is inside the input, or would replace the input or a file of it; likewise for
 * --like. */
fsdpck_status output_check_disjoint(const run *r, fsdpck_error *err) FSDPCK_MUST_CHECK;

/* USAGE if the manifest of --manifest is the output, or is inside the input, the checkpoint of
 * --like or the output. */
fsdpck_status output_check_manifest(const run *r, fsdpck_error *err) FSDPCK_MUST_CHECK;

/* EXISTS if `path` exists; with `replace`, only if it is not one valid manifest. IO
 * without a parent folder. *stamp: what it found, for manifest_stage. */
fsdpck_status output_check_manifest_file(const char *path, bool replace, path_stamp *stamp,
                                         fsdpck_error *err) FSDPCK_MUST_CHECK;

/* The same after the output has begun: checks that the file to be replaced is still one. */
fsdpck_status output_check_replaced(const output *o, fsdpck_error *err) FSDPCK_MUST_CHECK;

#endif
