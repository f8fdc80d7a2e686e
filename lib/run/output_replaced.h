/* output_replaced.h: files of a folder that the output would replace.
 *
 *     RETURN_IF(output_check_lost(r, &in, err));   // in: the folder, as it was probed
 */
#ifndef FSDPCK_RUN_OUTPUT_REPLACED_H
#define FSDPCK_RUN_OUTPUT_REPLACED_H

#include "run/run.h"

/* EXISTS if the folder contains anything that neither belongs to its checkpoint nor is written again by
 * this run, or no readable checkpoint, as its files are then unknown. Files that are read for their suffix
 * alone belong to it only if its manifest names them. r->replaced and r->replaced_stamps: the names and
 * files that were checked. */
fsdpck_status output_check_lost(run *r, const probe_input *in, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* For r->out, after it has begun: compares what it replaces with the start of the run, at the commit.
 * EXISTS, then or already here, if another program changed or created a file; the old output stays. */
fsdpck_status output_guard_replaced(run *r, fsdpck_error *err) FSDPCK_MUST_CHECK;

#endif
