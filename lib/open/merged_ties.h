/* merged_ties.h: an embedding and an output projection that are one weight, when adapters are merged. */
#ifndef FSDPCK_OPEN_MERGED_TIES_H
#define FSDPCK_OPEN_MERGED_TIES_H

#include "lora/merge_list.h"
#include "open/checkpoint.h"

/* Finds the weights that config.json ties, for merge_list.embedding and head. */
void merged_find_tied(const fsdpck_checkpoint *base, merge_list *list);

/* Adds to the names of the base model those that an adapter beside it has for the embedding and for biases that the model
 * ties, where the base model's files have one of both names. names: lora_input of the base model; the texts of the added ones
 * are in `texts`. *added: their number. After merged_find_tied. */
fsdpck_status merged_add_tied(const merge_list *list, const catalogue *base,
                              const merge_request *requests, size_t count, vec *names, strtab *texts, size_t *added,
                              fsdpck_error *err) FSDPCK_MUST_CHECK;

/* After the list is complete. UNSUPPORTED (LORA-TIED) if another module replaces the embedding alone and the files lack the
 * other weight, whose name they do not show: it keeps the old values after merge_and_unload. */
fsdpck_status merged_check_tied(const merge_list *list, fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Warns (LORA-TIED), after the list is complete, where the output differs from the trained model. */
void merged_warn_tied(const fsdpck_checkpoint *c, const merge_list *list,
                      const merge_request *requests, size_t count);

#endif
