/* rekey_flat.h: --optim-keys of a checkpoint with flat names alone, as HDF5 has. */
#ifndef FSDPCK_OPEN_REKEY_FLAT_H
#define FSDPCK_OPEN_REKEY_FLAT_H

#include "open/checkpoint.h"
#include "statedict/rekey_paths.h"

/* Infers the paths of the optimizers. */
fsdpck_status rekey_flat_begin(fsdpck_checkpoint *c, rekey_paths *inferred,
                               fsdpck_error *err) FSDPCK_MUST_CHECK;
/* For numbers that require names. MODEL-NEEDED if a flat name begins with a key of trainers: it
 * may be a part of the parameter's name, or not. */
fsdpck_status rekey_flat_check(const fsdpck_checkpoint *c, const checkpoint_parts *parts,
                               fsdpck_error *err) FSDPCK_MUST_CHECK;

#endif
