/* merge.h: presents a checkpoint with the changes of adapters merged into its weights.
 *
 *     merge_list list;                       // what to merge: lora/merge_list.h fills it
 *     merger *m;
 *     catalogue_init(&seen, &budget);
 *     RETURN_IF(merger_new(&list, &seen, &m, err));   // takes the list over, seals `seen`
 *     merger_source(m)
 *     merger_free(m);                        // before `seen` and the inputs
 *
 * Input 0 is the checkpoint with the weights; adapters are in it or in the other inputs. The second
 * catalogue has the targets of the list: tensors of input 0, changed by steps, or unchanged. Files are those
 * of input 0.
 *
 * Each chunk of a changed tensor is a stream of some MiB, so workers share a tensor. A stream reads its rows
 * of the weight block by block, its rows of the left factor, and the whole right factor, which all
 * streams of a step share.
 *
 * The arithmetic is PEFT's (merge_kernel.h): factors as float32 (float64 for weights of that type), the sum over
 * the rank in order, times `scale`, added to the weight, rounded once. Norms of DoRA are sums in float64.
 */
#ifndef FSDPCK_LORA_MERGE_H
#define FSDPCK_LORA_MERGE_H

#include "state/source.h"

/* Largest number of factors of one weight: of all adapters. */
#define MERGE_STEPS_MAX 64u

/* The tensors that steps read. Borrowed. */
typedef struct merge_input {
    const catalogue *cat;
    const source *src;
} merge_input;

typedef enum merge_kind {
    MERGE_PRODUCT, /* adds scale * b @ a; of a weight with 3 dims, for each index of the first: a is
                    * [E*r, in], b is [out, r*E], E the faster index */
    MERGE_ADD,     /* adds scale * a, which has the weight's shape */
    MERGE_ROWS,    /* copies the rows of a to the rows of the weight that `rows` lists */
    MERGE_REPLACE  /* a instead of the weight; only as the first step */
} merge_kind;

/* Where the training had a change, if the weight is tied to others. */
typedef enum merge_together {
    MERGE_ALONE,    /* in this weight alone */
    MERGE_TOGETHER, /* in all of them */
    /* Likewise, and another step of the adapter, which is MERGE_TOGETHER, is the same change. */
    MERGE_AGAIN
} merge_together;

/* One change of a tensor. Tensors are those of the input. */
typedef struct merge_step {
    merge_kind kind;
    uint32_t input;
    uint32_t adapter; /* for messages: merge_list.adapters */
    uint32_t a, b;
    uint32_t magnitude; /* of MERGE_PRODUCT with DoRA: one number for each output; else CAT_NONE */
    uint64_t rank;      /* of MERGE_PRODUCT */
    double scale;
    bool transposed;  /* the weight is [in, out] (of 3 dims: [E, in, out]) */
    bool round_delta; /* the product is rounded to the weight's dtype before it is added */
    bool unties;      /* of MERGE_REPLACE: by another module, with storage of its own */
    bool finite;      /* a result that is not finite is an error */
    merge_together together;
    uint64_t first_row, row_count; /* of MERGE_ROWS: in merge_list.rows */
} merge_step;

/* A tensor of the second catalogue. */
typedef struct merge_target {
    uint32_t tensor; /* of input 0; of MERGE_REPLACE: only its dtype is used */
    uint32_t name;   /* in merge_list.names */
    uint64_t first_step;
    uint32_t step_count;
} merge_target;

/* An embedding and an output projection that the config ties; compared if an adapter changes one. */
typedef enum merge_pair { MERGE_PAIR_UNKNOWN, MERGE_PAIR_EQUAL, MERGE_PAIR_DIFFERENT } merge_pair;

typedef struct merge_list {
    vec inputs;      /* merge_input */
    vec targets;     /* merge_target, in the order of the second catalogue */
    vec steps;       /* merge_step; those of a target are consecutive */
    vec rows;        /* uint64_t */
    strtab names;    /* of targets */
    strtab adapters; /* names of adapters */
    /* The first weight that products change or that another module replaces, and one that shares its storage:
     * in `names`; STRTAB_NONE: none. */
    uint32_t tied, tied_to;
    bool unties;    /* a module replaces it: both differ then */
    bool by_config; /* they are equal, and the config ties them */
    bool by_bytes;  /* they are equal, and only the first changes: see is_untold */
    /* Set by the caller: tensors of input 0 that the config of the model ties; CAT_NONE: unknown or not tied. They are
     * one weight if they hold the same bytes. PEFT trains tokens of both together. */
    uint32_t embedding, head;
    merge_pair pair;
    bool is_certain; /* no other tensor may be the embedding */
    /* No config says whether the model ties them: each has its own changes. */
    bool is_untold;
    /* Set by the caller: changed weights of 16 bits are float32 in the second catalogue. */
    bool wide;
    /* Headers of chunks are not read before the streams are: chunks that are streams are then divided too, and
     * decoded once for each part. */
    bool no_reading;
    /* The list is not merged: no bytes are compared. If the files have both of two tied weights, these stay two. */
    bool names_only;
} merge_list;

void merge_list_init(merge_list *list, budget *owner);
void merge_list_release(merge_list *list);

typedef struct merger merger;

/* `out` must be initialized and empty. Leaves *list empty, also after a failure. Errors: BADINPUT (LORA-SHAPE) for a
 * step that does not fit its tensor, UNSUPPORTED (LORA-MERGE) for a dtype or layout. */
fsdpck_status merger_new(merge_list *list, catalogue *out, merger **m,
                         fsdpck_error *err) FSDPCK_MUST_CHECK;
const source *merger_source(const merger *m);
/* Number of tensors that are changed. */
uint64_t merger_count(const merger *m);
/* The tensor of the second catalogue that equals a tensor of input 0; else CAT_NONE. */
uint32_t merger_same(const merger *m, uint32_t tensor);
void merger_free(merger *m);

#endif
