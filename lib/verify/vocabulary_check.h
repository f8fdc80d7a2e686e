/* vocabulary_check.h: an output whose vocabulary has another size than that of the model folder. */
#ifndef FSDPCK_VERIFY_VOCABULARY_CHECK_H
#define FSDPCK_VERIFY_VOCABULARY_CHECK_H

#include "base/alloc.h"
#include "verify/model_facts.h"

/* Embedding, output projection and config.json of the output all have the new number of rows. */
bool vocabulary_is_resized(const model_facts *ours, const model_facts *theirs);
/* Whether tensor i of the output and k of the model folder differ as their embeddings do, in the first dim only. */
bool vocabulary_explains(const model_facts *ours, const model_facts *theirs, uint32_t i,
                         uint32_t k);
/* The next step for other shapes than in the model folder. */
void vocabulary_put_advice(const model_facts *ours, const model_facts *theirs, text_buf *next);

#endif
