/* weights_beside.h: weights in the folder of a checkpoint that are not read: under any name, of the same model, or empty
 * and cut ones under the names of other_weights.c.
 *
 *     weights_beside_warn(c, checkpoint_open);                                     // WEIGHTS-BESIDE: 'final.pt', 'dcp'
 *     RETURN_IF(weights_beside_check(c, &c->cat, checkpoint_open, NULL, err));     // WEIGHTS-CUT: an empty 'pytorch_model.bin'
 */
#ifndef FSDPCK_OPEN_WEIGHTS_BESIDE_H
#define FSDPCK_OPEN_WEIGHTS_BESIDE_H

#include "open/checkpoint.h"

/* One of the files that were read, or that the safetensors reader reports itself. */
bool weights_beside_is_read(const catalogue *read, const char *entry);
/* A name of what torch.save or safetensors may have written, except a trainer's state, files of ranks, and further models of a
 * run. */
bool weights_beside_has_name(const char *name);
/* WEIGHTS-BESIDE: `count` entries of the folder are not read, such as `first`. */
void weights_beside_report(const fsdpck_checkpoint *c, const catalogue *read, const char *first,
                           uint64_t count);
/* WEIGHTS-BESIDE for files and folders under other names than those of other_weights.c that have at least half of the
 * model's tensors by their names. Opens the first 32 that may be weights. Not with ranks of a group, which may have
 * other files on their hosts. */
void weights_beside_warn(fsdpck_checkpoint *c, checkpoint_open_fn open);
/* BADINPUT (WEIGHTS-CUT) if files that checkpoint_is_weights_name knows, other safetensors files, or weights of
 * TensorFlow, Keras, Flax and others are not read, and empty or cut, or if one of a numbered set is missing: adds the names of
 * those that are there to `cut` (NULL: not needed). Of ranks of a group, only the sizes are compared. */
fsdpck_status weights_beside_check(const fsdpck_checkpoint *c, const catalogue *read,
                                   checkpoint_open_fn open, strtab *cut,
                                   fsdpck_error *err) FSDPCK_MUST_CHECK;

#endif
