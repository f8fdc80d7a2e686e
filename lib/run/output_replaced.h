/* output_replaced.h: files of a folder that the output would replace.
 *
 *     char *lost;
 *     RETURN_IF(output_first_lost(r, &in, &lost, err));   // in: the folder, as it was probed
 *     if (lost != NULL) ...                               // the first file that is no part of it
 *     free(lost);
 */
#ifndef FSDPCK_RUN_OUTPUT_REPLACED_H
#define FSDPCK_RUN_OUTPUT_REPLACED_H

#include "run/run.h"

/* *lost: the first name in the folder that neither belongs to its checkpoint nor is written again
 * by this run, to be freed; NULL if none. EXISTS without a readable checkpoint, as its files are
 * then unknown. r->replaced and r->replaced_stamps: the names and files that were checked. */
fsdpck_status output_first_lost(run *r, const probe_input *in, char **lost,
                                fsdpck_error *err) FSDPCK_MUST_CHECK;
/* EXISTS, for a name of output_first_lost. */
fsdpck_status output_error_lost(const char *path, fsdpck_error *err);
/* For r->out, after it has begun: compares what it replaces with the start of the run, at the commit.
 * EXISTS, then or already here, if another program changed or created a file; the old output stays. */
fsdpck_status output_guard_replaced(run *r, fsdpck_error *err) FSDPCK_MUST_CHECK;

#endif
