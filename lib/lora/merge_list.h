/* merge_list.h: what the adapters of a request change, as the list of a merger (lora/merge.h).
 *
 *     merge_list list;
 *     merge_list_init(&list, &budget);
 *     RETURN_IF(merge_list_make(&list, &base, requests, count, safe, err));
 *     merge_list_release(&list);                    // unless merger_new took it over
 *
 * Each module of an adapter must find its weight, with a shape that fits, and each tensor of a requested
 * adapter is used exactly once. Targets have the base model's names.
 */
#ifndef FSDPCK_LORA_MERGE_LIST_H
#define FSDPCK_LORA_MERGE_LIST_H

#include "lora/lora.h"
#include "lora/merge.h"

/* A checkpoint whose tensors have the names of `inputs`; borrowed. */
typedef struct merge_checkpoint {
    const catalogue *cat;
    const source *src;
    const lora_input *inputs;
    size_t count;
    /* Of these, the last are second names, which the checkpoint lacks, of weights that its model ties to them. */
    size_t tied;
} merge_checkpoint;

typedef struct merge_request {
    /* NULL: inside the base checkpoint. Otherwise it contains only this adapter. */
    const merge_checkpoint *beside;
    const char *adapter; /* inside: its name; NULL: the only one */
    const char *name;    /* for messages: the folder of `beside`; else unused */
    const lora_config *config;
    uint64_t layers; /* of the base model by its config; 0: unknown */
    uint64_t shared; /* the last of these use keys and values of others */
    /* Results. */
    uint32_t adapter_name; /* in merge_list.adapters */
    uint64_t modules,
        replaced; /* modules with factors; tensors of the adapter that replace others */
    double least_scale, largest_scale;
    uint64_t lost;        /* modules that the adapter may have lost, as `layers` is unknown */
    uint32_t first_lost;  /* the weight of the first, in merge_list.names; STRTAB_NONE: unknown */
    uint64_t lost_biases; /* trained biases that the adapter may have lost */
    uint32_t first_lost_bias;
} merge_request;

/* `list` must be initialized and empty; its input 0 becomes `base`. `safe`: products are rounded before they are added,
 * and results must be finite. Errors: BADINPUT and UNSUPPORTED (LORA-...), USAGE (an unknown adapter). */
fsdpck_status merge_list_make(merge_list *list, const merge_checkpoint *base,
                              merge_request *requests, size_t count, bool safe,
                              fsdpck_error *err) FSDPCK_MUST_CHECK;

#endif
