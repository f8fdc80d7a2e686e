/* lora_likeness.h: the module of a base model that resembles one of an adapter most, for messages.
 *
 *     lora_likeness l;
 *     lora_likeness_init(&l, "vit.layers.0.attention.q_proj");
 *     for each tensor of the base model: lora_likeness_try(&l, name, nbytes);
 *     l.best      // "vit.encoder.layer.0.attention.attention.query", or "" without tensors
 */
#ifndef FSDPCK_LORA_LIKENESS_H
#define FSDPCK_LORA_LIKENESS_H

#include "state/catalogue.h"

/* The next step where a base model lacks modules of an adapter. */
#define LORA_BASE_ADVICE                                                                    \
    "give the base model that the adapter was trained on; if it is this one, transformers " \
    "may name these modules differently in memory than in its files: merge with PEFT"

typedef struct lora_likeness {
    char path[160], best[160];
    int score;
} lora_likeness;

/* path: of a module, or the name of a tensor in the adapter. */
void lora_likeness_init(lora_likeness *l, const char *path);
/* Only weights count. */
void lora_likeness_try(lora_likeness *l, const char *name, size_t nbytes);
/* Tries all tensors. path: NULL counts as "". */
void lora_likeness_of_base(lora_likeness *l, const char *path, const catalogue *base);

#endif
