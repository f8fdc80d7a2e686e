/* parts.h: which tensors and objects are the model, which the optimizer, which neither.
 *
 * Told by the outer key of each path (planner_data of a DCP folder, nesting of a .pt): the model is
 * the first of `model`, `module`, `state_dict`, `model_state_dict`, `app.model` that is there; else
 * every tensor that is not under `optim*`, `last_optimizer_state`, `lr_scheduler*`, `dataloader*`, `train_state*`, `rng*`,
 * `extra_state*` and no plain counter. `state` beside `param_groups` at the top is the state dict of
 * an optimizer, saved by itself. A flat name (no path) is judged by its first dotted part,
 * and no outer key is looked for: Hugging Face names begin with `model.` themselves.
 */
#ifndef FSDPCK_AIM_PARTS_H
#define FSDPCK_AIM_PARTS_H

#include "state/catalogue.h"

typedef enum aim_part { PART_MODEL, PART_OPTIMIZER, PART_OTHER, PART_ALL } aim_part;

typedef struct aim_parts {
    char model_key[32];     /* "model", "app.model", "" */
    unsigned model_depth;   /* path elements that make it: 0, 1 or 2 */
    bool model_has_ddp;     /* every model tensor's name begins with `module.` */
    bool bare_optimizer;    /* the keys of an optimizer's state dict are outer keys themselves */
    char optimizer_key[32]; /* that all of the optimizer is under; "" where there is no one such */
    uint8_t *tensor_part;   /* aim_part of each tensor */
    uint8_t *object_part;
    size_t tensor_count, object_count;
} aim_parts;

fsdpck_status aim_parts_find(const catalogue *c, aim_parts *parts,
                             fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Bytes of a name of this part up to where the part's own names begin: its outer key and a dot. */
size_t aim_parts_outer_nbytes(const aim_parts *parts, aim_part part);
/* Appends a name of this part, as it is before the user's rules: without its outer key where the
 * part stands alone, without what wrappers put into it where it is to be cleaned. */
void aim_parts_name(const aim_parts *parts, aim_part part, bool alone, bool clean, const char *name,
                    size_t nbytes, text_buf *out);
void aim_parts_release(aim_parts *parts);

#endif
