/* rank_models.h: a second model in the rank files of one folder, such as 'ckpt_rank0.pt' beside 'state_rank0.pt'. */
#ifndef FSDPCK_OPEN_RANK_MODELS_H
#define FSDPCK_OPEN_RANK_MODELS_H

#include "open/checkpoint.h"

/* WEIGHTS-BESIDE if files that are not those of the model have at least half of its tensors, by their names and shapes, as
 * another part of the checkpoint. Averages of the model (ema) are no second one. */
void rank_models_warn(const fsdpck_checkpoint *c);

#endif
