/* checkpoint_parts.h: divides tensors and objects into model, optimizer and other.
 *
 * The whole checkpoint is examined, in this order:
 *   - content of a nested state under an outer key that only a model has (`model`, `module`,
 *     `state_dict`, ...; the first of the list found) is the model;
 *   - content with the shape of an optimizer's state dict is the optimizer, under any key
 *     (optimizer_roots.h); `state` beside `param_groups` at the top is a bare optimizer;
 *   - a nested outer key such as `optim`, `rng_state`, `dataloader` covers its whole subtree. Where
 *     the key only begins so (`rng_embed`), its subtree counts likewise unless it contains parameters;
 *   - everything else is other if a model key exists, and the model if not.
 * A flat name is a parameter by default. Its first word means `optimizer` only if the rest has the
 * shape of one. It means `rng` or a counter only for no parameter, in more than a bare model. Flat
 * names have no model key, as Hugging Face names begin with `model.` themselves. Only what precedes
 * `base_model.model.`, with which names of a PEFT model begin, is a key for certain.
 */
#ifndef FSDPCK_SELECT_CHECKPOINT_PARTS_H
#define FSDPCK_SELECT_CHECKPOINT_PARTS_H

#include "state/catalogue.h"

typedef enum checkpoint_part { PART_MODEL, PART_OPTIMIZER, PART_OTHER, PART_ALL } checkpoint_part;

typedef struct checkpoint_parts {
    char model_key[64];     /* "model", "app.model", "" */
    unsigned model_depth;   /* its path elements: 0, 1 or 2 */
    bool has_flat_key;      /* flat names begin with model_key, although no path has it */
    bool model_has_ddp;     /* every model tensor's name begins with `module.` */
    bool bare_optimizer;    /* the keys of an optimizer's state dict are outer keys themselves */
    char optimizer_key[96]; /* the key above the whole optimizer; "" if none */
    uint8_t *tensor_part;   /* checkpoint_part of each tensor */
    uint8_t *object_part;
    size_t tensor_count, object_count;
    char rule[256];     /* one line: the rule that separated the parts */
    bool assumes_order; /* --assume order was given */
} checkpoint_parts;

fsdpck_status checkpoint_parts_find(const catalogue *c, checkpoint_parts *parts,
                                    fsdpck_error *err) FSDPCK_MUST_CHECK;
/* For a catalogue of model tensors under names of their own. */
fsdpck_status checkpoint_parts_all_model(const catalogue *c, checkpoint_parts *parts,
                                         fsdpck_error *err) FSDPCK_MUST_CHECK;
/* The part's outer key; "" if its names have none. */
const char *checkpoint_parts_outer_key(const checkpoint_parts *parts, checkpoint_part part);
/* Length of the part's prefix in a name: its outer key and a dot. */
size_t checkpoint_parts_outer_nbytes(const checkpoint_parts *parts, checkpoint_part part);
/* Appends a name of this part before the user's rules apply: without its outer key if the part is
 * selected alone, and without wrapper prefixes if it is to be cleaned. */
void checkpoint_parts_append_name(const checkpoint_parts *parts, checkpoint_part part, bool alone,
                                  bool clean, const char *name, size_t nbytes, text_buf *out);
/* Whether cleaning also removes DDP's prefix from names of this part. Without an outer key of the
 * model, the part of an object beside the tensors is PART_OTHER. */
bool checkpoint_parts_has_ddp(const checkpoint_parts *parts, checkpoint_part part);
/* Appends a name or a key of an optimizer without wrapper prefixes. The name of a parameter after
 * 'state.' or 'param_groups.' is cleaned as in the model. */
void checkpoint_parts_clean_state(const checkpoint_parts *parts, const char *name, size_t nbytes,
                                  text_buf *out);
/* The key of trainers above a model that a flat name begins with; NULL. */
const char *checkpoint_parts_flat_key(const char *name, size_t nbytes);
void checkpoint_parts_release(checkpoint_parts *parts);

#endif
