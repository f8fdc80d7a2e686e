/* merge_inputs.h: the base model and the adapters of a merge, with their names and configs. */
#ifndef FSDPCK_OPEN_MERGE_INPUTS_H
#define FSDPCK_OPEN_MERGE_INPUTS_H

#include "lora/merge_list.h"
#include "open/checkpoint.h"

/* An adapter of the request, with what merging reads. */
typedef struct merge_inputs {
    map_inputs inputs;
    vec names;   /* lora_input */
    strtab tied; /* texts of names that the files lack */
    merge_checkpoint tensors;
    lora_config config;
} merge_inputs;

/* The tensors of the model part of `c` by their names, for a->names and a->tensors. */
fsdpck_status merge_inputs_list(fsdpck_checkpoint *c, merge_inputs *a,
                                fsdpck_error *err) FSDPCK_MUST_CHECK;
void merge_inputs_release(merge_inputs *a);

/* The config of the adapter `name` (NULL: the only one) in `of`: a file, options, or the tensors alone. BADINPUT, USAGE
 * (LORA-CONFIG). */
fsdpck_status merge_read_config(fsdpck_checkpoint *c, fsdpck_checkpoint *of, const char *name,
                                const fsdpck_merge_options *m, lora_config *config,
                                fsdpck_error *err) FSDPCK_MUST_CHECK;
/* The layers of the base model by its config.json, for each request. */
void merge_count_layers(const fsdpck_checkpoint *base, merge_request *requests, size_t count);
/* The name of the first weight that an adapter may have lost. */
const char *merge_first_lost(const merge_list *list, const merge_request *r);
/* Likewise of a bias. */
const char *merge_first_lost_bias(const merge_list *list, const merge_request *r);

#endif
