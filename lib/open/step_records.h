/* step_records.h: the steps that files of trainers record (step_rows.h), against the folder's name and each other.
 *
 *     step_records_each(c, fn, ctx);   // "train/rank0.pt" of OLMo-core: step 3, ranks 2, in the folder "step3"
 */
#ifndef FSDPCK_OPEN_STEP_RECORDS_H
#define FSDPCK_OPEN_STEP_RECORDS_H

#include "open/step_rows.h"

/* Of the folder of the checkpoint and of the one that was given. None if other hosts have files, or ranks of a group. */
void step_records_each(fsdpck_checkpoint *c, step_record_fn fn, void *ctx);

/* Whether files of two ranks record different steps, or numbers of ranks. *what: RANK-MIXED. */
bool step_records_differ(fsdpck_checkpoint *c, fsdpck_error *what);

#endif
