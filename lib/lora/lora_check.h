/* lora_check.h: checks of adapters from their names and shapes, and adapter_config.json from tensors.
 *
 *     RETURN_IF(lora_check(&set, &cat, adapter, &config, found, ctx, err));
 *     RETURN_IF(lora_config_make(&set, &cat, adapter, &facts, &text, err));   // without a config
 */
#ifndef FSDPCK_LORA_LORA_CHECK_H
#define FSDPCK_LORA_LORA_CHECK_H

#include "lora/lora.h"

/* Called for each fault, whose status is BADINPUT or UNSUPPORTED; a status other than OK ends the check. */
typedef fsdpck_status (*lora_found_fn)(void *ctx, const fsdpck_error *fault, fsdpck_error *err);

/* LORA-PAIR, LORA-RANK, LORA-SHAPE, LORA-CONFIG, LORA-KIND. config: NULL for none. After
 * lora_set_name_parameters. */
fsdpck_status lora_check(const lora_set *set, const catalogue *c, uint32_t adapter,
                         const lora_config *config, lora_found_fn found, void *ctx,
                         fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Modules of the base model beside the adapter that the config names and the adapter lacks, in layers for which no other
 * module shows that they belong to the trained model. */
typedef struct lora_lost {
    uint64_t layers; /* of the base model by its config: those in it are LORA-PAIR; 0: unknown */
    /* The last of these have no keys and values of their own, though files may hold weights for them. */
    uint64_t shared;
    uint64_t unproven; /* result: modules that may be lost, while `layers` is unknown */
    uint32_t first;    /* result: the weight of the first of them, in set->names */
    uint64_t biases;   /* result: biases that may be lost */
    uint32_t first_bias;
} lora_lost;

/* lora_check_config.c: LORA-CONFIG, and LORA-PAIR where the base model has a module that the config names and the
 * adapter has no tensors for it. The first `own` tensors of the set are those of the adapter, the others of a base
 * model beside it; 0: both are mixed. lost: NULL: only modules that others show to be lost. */
fsdpck_status lora_check_config(const lora_set *set, uint32_t adapter, size_t own,
                                const lora_config *config, lora_lost *lost, lora_found_fn found,
                                void *ctx, fsdpck_error *err) FSDPCK_MUST_CHECK;

/* lora_targets.c: whether PEFT loads the adapter without the factors of the module. ensure_weight_tying gives an adapter to an
 * output projection that is tied, and removes its name from target_modules. Without a name of embeddings that PEFT knows, the
 * config then does not show it. */
fsdpck_status lora_is_dropped(const lora_set *set, const lora_module *m, const lora_config *config,
                              bool *dropped, fsdpck_error *err) FSDPCK_MUST_CHECK;

/* lora_targets.c: whether modules_to_save names a module around a tensor of the base model. */
bool lora_config_saves(const lora_config *config, const char *name, size_t nbytes);
/* The first name of a list of target_modules that no module with an adapter has; NULL: none. *count: all such names. */
const char *lora_unmatched_target(const lora_set *set, const lora_config *config, uint64_t *count);

/* lora_targets.c: a name of modules_to_save for which the adapter has no tensor; NULL: none. Not one that a tensor of the base
 * model has; base: NULL if it is unknown. */
const char *lora_unsaved_name(const lora_set *set, const lora_config *config,
                              const catalogue *base);
/* lora_targets.c: a module of modules_to_save that has one of the two layers of the heads that transformers has for
 * classification, and lacks the other one, *lacks: "dense"; NULL: none. *nbytes: of its path. */
const char *lora_half_head(const lora_set *set, const lora_config *config, size_t *nbytes,
                           const char **lacks);

typedef struct lora_base_counts {
    uint64_t compared, missing; /* modules with and without a weight in the base model */
    /* Of the missing ones, those that it may have under other names: fused experts, a tied output projection. */
    uint64_t renamed;
    /* If none was compared: of the missing ones, those of experts whose layer has experts in the base model too. */
    uint64_t experts;
    const char *
        first_missing; /* path of a module, of the others if any; borrowed from the set; NULL: none */
} lora_base_counts;

/* Whether the base model may have all missing modules under other names. */
static inline bool lora_base_may_fit(const lora_base_counts *n)
{
    return n->missing == n->renamed && (n->compared > 0 || n->experts == n->missing);
}

/* Modules of fused experts whose layer has experts in the base model, under any name. */
fsdpck_status lora_count_experts(const lora_set *set, uint32_t adapter, const catalogue *base,
                                 uint64_t *count, fsdpck_error *err) FSDPCK_MUST_CHECK;

/* LORA-SHAPE against the weights of another catalogue, which has the names of the base model. tied: names of weights that it
 * lacks, as its model ties them to others; NULL: unknown. */
fsdpck_status lora_check_base(const lora_set *set, const catalogue *c, uint32_t adapter,
                              const lora_config *config, const catalogue *base, const strtab *tied,
                              lora_base_counts *counts, lora_found_fn found, void *ctx,
                              fsdpck_error *err) FSDPCK_MUST_CHECK;

/* LORA-SHAPE where a tensor of the adapter replaces one of another catalogue, which has the names of the base model, and has
 * another shape. chosen: by tensor of the set, those to compare; NULL: all. */
fsdpck_status lora_check_replaced(const lora_set *set, const catalogue *c, const bool *chosen,
                                  const catalogue *base, lora_found_fn found, void *ctx,
                                  fsdpck_error *err) FSDPCK_MUST_CHECK;

/* A shape, as of catalogue_shape. */
typedef struct lora_shape {
    const uint64_t *dims;
    unsigned ndim;
} lora_shape;

/* lora_check.c: OK if the shapes are equal, else LORA-SHAPE. tensor: of the adapter, for the message; it replaces `name` of
 * the base model. */
fsdpck_status lora_check_replacing(const char *name, const char *tensor, lora_shape base,
                                   lora_shape made, fsdpck_error *err) FSDPCK_MUST_CHECK;

/* What tensors do not contain. */
typedef struct lora_facts {
    bool has_alpha;
    double alpha;
    uint64_t r; /* of all modules without a pattern; 0: unknown */
    bool use_rslora, fan_in_fan_out;
    const char *task_type, *base_model; /* NULL: unknown */
} lora_facts;

/* Rank of a module from its lora_A; 0 without one. */
uint64_t lora_module_rank(const lora_set *set, const catalogue *c, const lora_module *m);

/* Appends an adapter_config.json. USAGE (LORA-CONFIG) where a needed fact is missing, BADINPUT (LORA-CONFIG) where
 * PEFT may have doubled lora_alpha of experts. */
fsdpck_status lora_config_make(const lora_set *set, const catalogue *c, uint32_t adapter,
                               const lora_facts *facts, text_buf *out,
                               fsdpck_error *err) FSDPCK_MUST_CHECK;

#endif
