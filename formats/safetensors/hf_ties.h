/* hf_ties.h: tensors that only the index lists, because another name holds them.
 *
 *     hf_ties ties;
 *     hf_ties_init(&ties, request);
 *     RETURN_IF(hf_ties_fill(&ties, &ix, seen, tensor, &filled, err));   // of each that is missing
 *     RETURN_IF(hf_ties_add(&ties, files, &cat, err));                   // after all existing ones
 *     hf_ties_release(&ties);
 *
 * The description (open_request.names) or `config.json` beside the index defines tied names: with
 * "tie_word_embeddings": true, or a model type for which transformers has this default, the output head
 * `lm_head.weight` is the embedding (state/model_ties.h).
 */
#ifndef FSDPCK_HF_TIES_H
#define FSDPCK_HF_TIES_H

#include "formats/format.h"
#include "formats/safetensors/hf_index.h"
#include "formats/safetensors/st_files.h"

typedef struct hf_ties {
    const open_request *req;
    vec fills;     /* hf_fill */
    int by_config; /* -1: not checked yet */
} hf_ties;

void hf_ties_init(hf_ties *t, const open_request *req);
void hf_ties_release(hf_ties *t);
/* seen: whether each tensor of the index exists. */
fsdpck_status hf_ties_fill(hf_ties *t, const hf_index *ix, const uint8_t *seen, uint32_t tensor,
                           bool *filled, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Adds them to a catalogue that contains all others, not yet sealed. */
fsdpck_status hf_ties_add(const hf_ties *t, const st_files *s, catalogue *cat,
                          fsdpck_error *err) FSDPCK_MUST_CHECK;

#endif
