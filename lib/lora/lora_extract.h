/* lora_extract.h: presents one adapter of a checkpoint as adapter_model.safetensors has it.
 *
 *     lora_choose(&set, &cat, adapter, &config, chosen);                  // which tensors
 *     catalogue_init(&seen, &budget);
 *     RETURN_IF(lora_extract_new(&cat, &src, &set, chosen, &seen, &x, err));   // seals `seen`
 *     lora_extract_source(x)
 *     lora_extract_free(x);       // before `seen`, `src` and `cat`
 *
 * Tensors get other names and nothing else. Files are the same in both catalogues.
 */
#ifndef FSDPCK_LORA_LORA_EXTRACT_H
#define FSDPCK_LORA_LORA_EXTRACT_H

#include "lora/lora.h"
#include "state/source.h"

typedef struct lora_extract lora_extract;

/* chosen[i]: whether PEFT saves tensor i of the set with this adapter: its own, trained biases, and the
 * weights of embeddings that it targets. config: NULL for none. */
void lora_choose(const lora_set *set, const catalogue *c, uint32_t adapter,
                 const lora_config *config, bool *chosen);

/* `base` must be sealed; `out` must be initialized and empty. */
fsdpck_status lora_extract_new(const catalogue *base, const source *src, const lora_set *set,
                               const bool *chosen, catalogue *out, lora_extract **extract,
                               fsdpck_error *err) FSDPCK_MUST_CHECK;
const source *lora_extract_source(const lora_extract *x);
void lora_extract_free(lora_extract *x);

#endif
