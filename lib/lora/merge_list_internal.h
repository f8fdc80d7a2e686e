/* merge_list_internal.h: what the files that make a merge_list share:
 *
 *     merge_list.c      tensors of the base model and of adapters under one set of names; the use of each
 *     merge_modules.c   the changes that a module of an adapter makes
 *     merge_orientation.c   whether a weight is [out, in] or [in, out]
 *     merge_steps.c     the roles of tensors; adding a step
 *     merge_pairs.c     products that the training had in two tied weights
 *     merge_ties.c      weights that share one storage
 */
#ifndef FSDPCK_LORA_MERGE_LIST_INTERNAL_H
#define FSDPCK_LORA_MERGE_LIST_INTERNAL_H

#include "lora/merge_list.h"

/* A change before those of a target are brought together. */
typedef struct pending_step {
    uint32_t target;
    merge_step step;
    bool ties_tokens; /* of the adapter's config */
} pending_step;

typedef struct list_maker {
    merge_list *list;
    const merge_checkpoint *base;
    bool safe;
    budget *owner;
    vec target_of; /* uint32_t: target plus 1, by tensor of the base checkpoint */
    vec tied_target; /* uint32_t: likewise by second name, 0 while it shares the target of its tensor */
    vec pending;     /* pending_step */

    /* Of one request. Tensors of the adapter, if it is beside, come before those of the base. */
    merge_request *request;
    uint32_t input;   /* of the adapter's tensors */
    uint32_t adapter; /* of the set */
    size_t own;       /* tensors of the adapter beside; 0: it is inside */
    catalogue joined; /* shapes and dtypes of both */
    lora_set set;
    uint8_t *used;          /* by tensor of the set */
    uint8_t *together;      /* by module of the set: merge_together of its product */
    const char *missing[4]; /* modules without weight; the first of them */
    size_t missing_count;
} list_maker;

/* Of a tensor and a module of the set. */
static inline const cat_tensor *list_maker_shape(const list_maker *k, uint32_t index,
                                                 const uint64_t **shape)
{
    const uint32_t t = lora_cat_tensor(&k->set, index);
    *shape = catalogue_shape(&k->joined, t);
    return catalogue_tensor(&k->joined, t);
}

static inline const char *list_maker_path(const list_maker *k, const lora_module *m)
{
    return lora_text(&k->set, m->path);
}

/* The role of a tensor of the set. Tensors of the base model have that role, also where the names of an adapter beside it do
 * not show that there is one. */
lora_role list_maker_role(const list_maker *k, uint32_t index);
/* The tensor of its checkpoint, by its index in the set. */
uint32_t list_maker_tensor(const list_maker *k, uint32_t index);
/* Marks a tensor of the set as used. Returns its number in its checkpoint, CAT_NONE for LORA_NONE. */
uint32_t list_maker_use(list_maker *k, uint32_t index);
/* Adds a step to the target of a tensor of the base checkpoint, an index of the set. */
fsdpck_status list_maker_add(list_maker *k, uint32_t base, const merge_step *step,
                             fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Whether a tensor of the set is a second name of a tensor of the base checkpoint. */
bool list_maker_is_tied(const list_maker *k, uint32_t index);
/* Whether a step replaces the target of a tensor of the base checkpoint, an index of the set, until now. */
bool list_maker_is_replaced(const list_maker *k, uint32_t base);
void list_maker_note_missing(list_maker *k, const char *path);

/* merge_pairs.c: fills k->together. With ensure_weight_tying, PEFT trains the factors of an embedding for the output projection
 * too, and saves them under both names. */
fsdpck_status list_maker_find_pairs(list_maker *k, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* merge_steps.c: the numbers of a module by the config. */
fsdpck_status list_maker_numbers(const list_maker *k, const lora_module *m, lora_numbers *n,
                                 fsdpck_error *err) FSDPCK_MUST_CHECK;

/* merge_orientation.c: whether the weight of a module with factors is [.., in, out]. BADINPUT (LORA-SHAPE) if they do not
 * fit, or if nothing shows it of a square one. */
fsdpck_status list_maker_orientation(const list_maker *k, const lora_module *m, bool *transposed,
                                     fsdpck_error *err) FSDPCK_MUST_CHECK;

/* merge_ties.c: repeats the steps of each weight for those that are tied to it. */
fsdpck_status list_maker_add_tied(list_maker *k, fsdpck_error *err) FSDPCK_MUST_CHECK;

/* merge_modules.c */
fsdpck_status list_maker_add_modules(list_maker *k, fsdpck_error *err) FSDPCK_MUST_CHECK;

#endif
