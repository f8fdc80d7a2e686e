/* parts.h: which tensors and objects are the model, which the optimizer, which neither.
 *
 * Told by the outer key of each path (planner_data of a DCP folder, nesting of a .pt): the model is
 * the first of `model`, `module`, `state_dict`, `model_state_dict`, `app.model` that is there; else
 * every tensor that is not under `optim*`, `last_optimizer_state`, `lr_scheduler*`, `dataloader*`, `train_state*`, `rng*`,
 * `extra_state*` and no plain counter. A flat name (no path) is judged by its first dotted part,
 * and no outer key is looked for: Hugging Face names begin with `model.` themselves.
 */
#ifndef FSDPCK_AIM_PARTS_H
#define FSDPCK_AIM_PARTS_H

#include "state/catalogue.h"

typedef enum aim_part { PART_MODEL, PART_OPTIMIZER, PART_OTHER, PART_ALL } aim_part;

typedef struct aim_parts {
    char model_key[32];   /* "model", "app.model", "" */
    unsigned model_depth; /* path elements that make it: 0, 1 or 2 */
    bool model_has_ddp;   /* every model tensor's name begins with `module.` */
    uint8_t *tensor_part; /* aim_part of each tensor */
    uint8_t *object_part;
    size_t tensor_count, object_count;
} aim_parts;

fsdpck_status aim_parts_find(const catalogue *c, aim_parts *parts,
                             fsdpck_error *err) FSDPCK_MUST_CHECK;
void aim_parts_release(aim_parts *parts);

#endif
