/* checkpoint_parts.h: which tensors and objects are the model, which the optimizer, which neither.
 *
 * Judged by what the whole checkpoint shows, in this order:
 *   - what is under an outer key of a nested state that only a model has (`model`, `module`,
 *     `state_dict`, ...; the first of the list that is there) is the model;
 *   - what has the shape of an optimizer's state dict is the optimizer, whatever its key
 *     (optimizer_roots.h); `state` beside `param_groups` at the top is one that stands alone;
 *   - a nested outer key such as `optim`, `rng_state`, `dataloader` covers its whole subtree. Where
 *     the key only begins so (`rng_embed`), its subtree counts as such unless parameters are in it;
 *   - beside a model key all else is other; without one it is the model.
 * A flat name is a parameter's: its first word says `optimizer` only where the rest has the shape of
 * one, and `rng` or a counter only where there is more than a bare model, and for no parameter.
 * No model key is looked for in flat names: Hugging Face names begin with `model.` themselves.
 */
#ifndef FSDPCK_SELECT_CHECKPOINT_PARTS_H
#define FSDPCK_SELECT_CHECKPOINT_PARTS_H

#include "state/catalogue.h"

typedef enum checkpoint_part { PART_MODEL, PART_OPTIMIZER, PART_OTHER, PART_ALL } checkpoint_part;

typedef struct checkpoint_parts {
    char model_key[64];     /* "model", "app.model", "" */
    unsigned model_depth;   /* path elements that make it: 0, 1 or 2 */
    bool model_has_ddp;     /* every model tensor's name begins with `module.` */
    bool bare_optimizer;    /* the keys of an optimizer's state dict are outer keys themselves */
    char optimizer_key[96]; /* that all of the optimizer is under; "" where there is no one such */
    uint8_t *tensor_part;   /* checkpoint_part of each tensor */
    uint8_t *object_part;
    size_t tensor_count, object_count;
    char rule[256];     /* one line: what told the parts */
    bool assumes_order; /* --assume order was given */
} checkpoint_parts;

fsdpck_status checkpoint_parts_find(const catalogue *c, checkpoint_parts *parts,
                                    fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Bytes of a name of this part up to where the part's own names begin: its outer key and a dot. */
size_t checkpoint_parts_outer_nbytes(const checkpoint_parts *parts, checkpoint_part part);
/* Appends a name of this part, as it is before the user's rules: without its outer key where the
 * part stands alone, without what wrappers put into it where it is to be cleaned. */
void checkpoint_parts_append_name(const checkpoint_parts *parts, checkpoint_part part, bool alone,
                                  bool clean, const char *name, size_t nbytes, text_buf *out);
void checkpoint_parts_release(checkpoint_parts *parts);

#endif
