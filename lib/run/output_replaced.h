/* output_replaced.h: what a folder that the output replaces consists of.
 *
 *     char *lost;
 *     RETURN_IF(output_first_lost(r, &in, &lost, err));   // in: the folder, as it was probed
 *     if (lost != NULL) ...                               // the first file that is no part of it
 *     free(lost);
 */
#ifndef FSDPCK_RUN_OUTPUT_REPLACED_H
#define FSDPCK_RUN_OUTPUT_REPLACED_H

#include "run/run.h"

/* *lost: the first name in the folder that is neither of the checkpoint there nor written again by
 * this run, to be free()d; NULL where there is none. EXISTS where there is no checkpoint, or one that
 * cannot be read, so that nobody knows which files are its own. */
fsdpck_status output_first_lost(const run *r, const probe_input *in, char **lost,
                                fsdpck_error *err) FSDPCK_MUST_CHECK;

#endif
