/* rank_copies.h: copies of one tensor or object in the files of several ranks. A reader finds the
 * facts and applies the use that a rule (statedict/per_rank.h) returns for them.
 */
#ifndef FSDPCK_STATE_RANK_COPIES_H
#define FSDPCK_STATE_RANK_COPIES_H

#include <stdbool.h>

typedef struct rank_copies {
    const char *name;
    bool is_object;
    bool differ;        /* in shape, dtype or elements, as far as compared */
    bool on_some_ranks; /* only some ranks have it, and it is not of a model */
    /* Of tensors: */
    bool in_optimizer; /* an optimizer's own numbering */
    bool in_rng;       /* state of a random generator */
    bool is_single;    /* one element, and not of a model or its optimizer: as a number */
    bool is_1dim;
    bool of_stages;    /* state of different parameters, which pipeline stages number alike */
    bool may_be_shard; /* optimizer state that may be each rank's shard of a flat parameter */
    bool is_shard;     /* likewise, as some such state differs or is on some ranks only */
    bool may_be_copy;  /* with is_shard: all such state is equal, so it may be copies instead */
    bool beside_flat;  /* differs, and is named like a shard of the flat parameter next to it */
    bool owns_records; /* with beside_flat: each rank's is a record by itself, unlike such shards */
} rank_copies;

typedef enum rank_copies_use {
    RANK_COPIES_JOIN,      /* one for all ranks; tensors must be equal when they are read */
    RANK_COPIES_EACH,      /* one of each rank: tensor 'NAME.rank3', object with its rank */
    RANK_COPIES_FOR_MODEL, /* likewise, as input of unflattening */
    RANK_COPIES_OBJECTS,   /* an object of each rank, whose tensors are only read with it */
    RANK_COPIES_FIRST,     /* that of the lowest rank */
    RANK_COPIES_FLAT,      /* the same, but reading it is an error: shards without a description */
    RANK_COPIES_OMIT,
    RANK_COPIES_OMIT_SHARD, /* may be shards of a flat parameter that is there as a whole */
    RANK_COPIES_REFUSE      /* RANK-DIFFER */
} rank_copies_use;

typedef struct rank_copies_rule {
    const void *ctx;
    bool compares; /* also elements without checksums; otherwise they are compared when read */
    rank_copies_use (*use)(const void *ctx, const rank_copies *copies);
} rank_copies_rule;

#endif
