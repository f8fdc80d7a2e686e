/* fsdpck_adapter.h: adapters of LoRA, as PEFT saves them.
 *
 *     fsdpck_adapter_options adapter = FSDPCK_INIT(fsdpck_adapter_options);
 *     fsdpck_open_options open = FSDPCK_INIT(fsdpck_open_options);
 *     adapter.has_lora_alpha = 1;
 *     adapter.lora_alpha = 32;
 *     open.adapter = &adapter;
 *     st = fsdpck_open(ctx, "step-1000", &open, &src, &err);
 *     if (st == FSDPCK_OK)
 *         st = fsdpck_consolidate(ctx, src, "adapter", NULL, NULL, &err); // PeftModel.from_pretrained
 *
 * With open.like, the base model, the shapes of the adapter are compared with its weights. Writing it with keys, exclude,
 * rename or strip_prefix of the select options is an error (USAGE): its config lists all modules by their names.
 *
 * Merged into the weights of a base model, as merge_and_unload does:
 *
 *     const char *const folders[] = {"adapter"};
 *     fsdpck_merge_options merge = FSDPCK_INIT(fsdpck_merge_options);
 *     fsdpck_open_options open = FSDPCK_INIT(fsdpck_open_options);
 *     merge.adapters = folders;
 *     merge.adapter_count = 1;
 *     open.merge = &merge;
 *     st = fsdpck_open(ctx, "base", &open, &src, &err);
 *     if (st == FSDPCK_OK)
 *         st = fsdpck_consolidate(ctx, src, "merged", NULL, NULL, &err);
 */
#ifndef FSDPCK_ADAPTER_H
#define FSDPCK_ADAPTER_H

#include <stddef.h>
#include <stdint.h>

#include "fsdpck_status.h"

#ifdef __cplusplus
extern "C" {
#endif

struct fsdpck_checkpoint;

/* One adapter of LoRA, as PEFT saves it. The tensors contain neither lora_alpha nor the members below it:
 * they come from `config`; or else from adapter_config.json or lora_train_meta.json in the folder of the
 * checkpoint or the folder around it; or from these members, which replace those of
 * lora_train_meta.json. */
typedef struct fsdpck_adapter_options {
    size_t struct_nbytes;
    const char *name;       /* of the adapter, "default"; NULL: the only one */
    const char *config;     /* an adapter_config.json, written unchanged; NULL: none */
    int has_lora_alpha;     /* `lora_alpha` is given */
    double lora_alpha;      /* scaling times rank */
    int use_rslora;         /* scaling is lora_alpha / sqrt(rank) */
    int fan_in_fan_out;     /* weights of the base model are [in, out] */
    const char *task_type;  /* "CAUSAL_LM"; NULL: unknown */
    const char *base_model; /* base_model_name_or_path; NULL: unknown */
} fsdpck_adapter_options;

/* Adapters to merge into the weights, in this order. Then only the model part is read, under the names of
 * the base model. The arithmetic is that of merge_and_unload in PEFT. Each module of an adapter must have a
 * weight of a fitting shape in the base model, and each of its tensors a place; otherwise the call fails with
 * LORA-BASE or LORA-SHAPE. */
typedef struct fsdpck_merge_options {
    size_t struct_nbytes;
    /* "self", the only one inside the checkpoint, "self:NAME", one of several, or the path of an adapter. */
    const char *const *adapters;
    size_t adapter_count;
    int safe; /* as safe_merge: round products before they are added, and fail on NaN and infinity */
    const fsdpck_adapter_options
        *config; /* of the only adapter, where its files lack it; or NULL */
    int wide;    /* changed weights of 16 bits become float32: they are cast once, with --dtype */
} fsdpck_merge_options;

/* An adapter that was merged into the weights. */
typedef struct fsdpck_merged_adapter {
    size_t struct_nbytes;
    const char *name;  /* inside the checkpoint: its name; otherwise the path as given */
    uint64_t modules;  /* whose product of factors was added */
    uint64_t replaced; /* tensors of the base model that it replaces, or some rows of them */
    double least_scale, largest_scale; /* of the modules */
} fsdpck_merged_adapter;

/* All adapters that were merged. Borrowed from the checkpoint. */
typedef struct fsdpck_merged {
    size_t struct_nbytes;
    uint64_t tensors;                             /* that the adapters changed */
    const fsdpck_merged_adapter *const *adapters; /* in the order of the options */
    size_t adapter_count;
} fsdpck_merged;

/* An adapter of LoRA in the model part, under the names of PEFT. */
typedef struct fsdpck_adapter {
    size_t struct_nbytes;
    const char *name;         /* "" where the tensors name none, as in adapter_model.safetensors */
    uint64_t tensors, nbytes; /* its own, consolidated */
    uint64_t modules;         /* with lora_A and lora_B */
    uint64_t rank_min, rank_max; /* of them; 0: unknown */
    uint64_t saved_modules;      /* trained whole: modules_to_save */
    uint64_t token_modules;      /* with trainable tokens */
    int use_dora;                /* it has magnitude vectors */
} fsdpck_adapter;

/* Adapter number `index`. Returns 0 after the last. Examines all tensors at the first call. */
FSDPCK_API int fsdpck_get_adapter(struct fsdpck_checkpoint *ckpt, size_t index,
                                  fsdpck_adapter *adapter);

#ifdef __cplusplus
}
#endif

#endif
