/* output_paths.h: what is written is none of what is read. Whether two names are one file is told by
 * the files, not by the names: links, "..", and file systems that ignore case do not matter.
 *
 *     RETURN_IF(output_check_disjoint(r, err));           // DST and SRC
 *     RETURN_IF(output_check_manifest(r, err));        // --manifest FILE and both of them
 *     RETURN_IF(output_check_manifest_file(path, force, err));   // FILE and what it replaces
 */
#ifndef FSDPCK_RUN_OUTPUT_PATHS_H
#define FSDPCK_RUN_OUTPUT_PATHS_H

#include "run/run.h"

/* The folder that `path` lies in, as realpath gives it: free(). NULL where there is none: errno. */
char *output_real_parent(const char *path);

/* USAGE where the output would lie in the input, or replace the input or a file of it; or those of --like. */
fsdpck_status output_check_disjoint(const run *r, fsdpck_error *err) FSDPCK_MUST_CHECK;

/* USAGE where the manifest beside the output would lie in the input, in the checkpoint of --like or in the output,
 * or be it. */
fsdpck_status output_check_manifest(const run *r, fsdpck_error *err) FSDPCK_MUST_CHECK;

/* EXISTS where something is at `path`; with `replace` a manifest may be there. IO without a folder. */
fsdpck_status output_check_manifest_file(const char *path, bool replace,
                                         fsdpck_error *err) FSDPCK_MUST_CHECK;

/* The same once the output is begun: that which it will replace holds a manifest. */
fsdpck_status output_check_replaced(const output *o, fsdpck_error *err) FSDPCK_MUST_CHECK;

#endif
