/* trainer_keys.h: what Lightning requires of an output: the outer keys of one file, and meta.pt in a folder. */
#ifndef FSDPCK_RUN_TRAINER_KEYS_H
#define FSDPCK_RUN_TRAINER_KEYS_H

#include "run/run.h"

/* Whether the output gets the keys that lightning.pytorch.utilities.consolidate_checkpoint gives a folder of FSDPStrategy
 * (select_request.trainer_keys): the whole state in one .pt file, without an option for names.
 * A note says which keys a folder of FSDPStrategy gets. */
bool trainer_keys_apply(const run *r, checkpoint_part part);

/* Copies meta.pt, which Lightning requires, from a folder of Lightning into an output in the same format with the whole
 * state. After run_select. */
fsdpck_status trainer_file_add(run *r, fsdpck_error *err) FSDPCK_MUST_CHECK;

#endif
