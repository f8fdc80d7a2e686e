/* rekey_flat.h: optimizer state of a checkpoint with flat names alone, as HDF5 has. */
#ifndef FSDPCK_OPEN_REKEY_FLAT_H
#define FSDPCK_OPEN_REKEY_FLAT_H

#include "open/checkpoint.h"
#include "statedict/rekey_paths.h"

/* Infers the paths of the optimizers, and the outer key of the model. */
fsdpck_status rekey_flat_begin(fsdpck_checkpoint *c, bool model_too, rekey_paths *inferred,
                               fsdpck_error *err) FSDPCK_MUST_CHECK;
/* For numbers that require names. MODEL-NEEDED if a flat name begins with a key of trainers: it
 * may be a part of the parameter's name, or not. */
fsdpck_status rekey_flat_check(const fsdpck_checkpoint *c, const checkpoint_parts *parts,
                               fsdpck_error *err) FSDPCK_MUST_CHECK;

/* For an output that requires the paths: c->cat and c->parts have them until rekey_flat_leave(). */
fsdpck_status rekey_flat_enter(fsdpck_checkpoint *c, bool model_too, rekey_paths *inferred,
                               fsdpck_error *err) FSDPCK_MUST_CHECK;
fsdpck_status rekey_flat_leave(fsdpck_checkpoint *c, const rekey_paths *inferred,
                               fsdpck_error *err) FSDPCK_MUST_CHECK;

#endif
