/* merged_ties.h: an embedding and an output projection that are one weight, when adapters are merged. */
#ifndef FSDPCK_OPEN_MERGED_TIES_H
#define FSDPCK_OPEN_MERGED_TIES_H

#include "lora/merge_list.h"
#include "open/checkpoint.h"

/* Finds the weights that config.json ties, for merge_list.embedding and head. */
void merged_find_tied(const fsdpck_checkpoint *base, merge_list *list);

/* Warns (LORA-TIED), after the list is complete, where the output differs from the trained model. */
void merged_warn_tied(const fsdpck_checkpoint *c, const merge_list *list,
                      const merge_request *requests, size_t count);

#endif
