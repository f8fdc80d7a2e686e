/* model_facts.h: numbers of a model that both its tensors and its config.json state.
 *
 *     const model_facts theirs = model_facts_of(&base->cat, &base_config, NULL);
 *     const model_facts ours = model_facts_of(&output->cat, &output_config, &theirs);
 */
#ifndef FSDPCK_VERIFY_MODEL_FACTS_H
#define FSDPCK_VERIFY_MODEL_FACTS_H

#include "open/model_config.h"
#include "run/like_output.h"

typedef struct model_facts {
    const catalogue *cat;
    const model_config *config;
    uint32_t embedding, head;        /* CAT_NONE: none */
    bool is_certain;                 /* no other tensor may be the embedding */
    uint64_t numbers[MODEL_NUMBERS]; /* of the tensors; 0: unknown */
    dtype usual;                     /* DTYPE_NONE: no castable tensor */
} model_facts;

/* base: facts of the model folder, whose embedding the output has by the same name; NULL: this is the model
 * folder. There, open/model_embedding.h finds the embedding. */
model_facts model_facts_of(const catalogue *c, const model_config *config, const model_facts *base);

#endif
