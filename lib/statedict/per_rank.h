/* per_rank.h: the rule for tensors and objects that several ranks have (state/rank_copies.h), from
 * --per-rank and the flat parameters of a model.
 *
 *     const per_rank_rule rule = {.policy = PER_RANK_KEEP};
 *     request.copies = per_rank_copies(&rule); // rule outlives the request
 */
#ifndef FSDPCK_STATEDICT_PER_RANK_H
#define FSDPCK_STATEDICT_PER_RANK_H

#include "state/rank_copies.h"

/* Handling of plain tensors and objects that differ between the files of ranks. */
typedef enum per_rank_policy {
    PER_RANK_AUTO,  /* tensors: an error; objects: one of each rank (cat_object.rank) */
    PER_RANK_KEEP,  /* tensors too: one of each rank, 'NAME.rank3' */
    PER_RANK_FIRST, /* that of the lowest rank */
    PER_RANK_DROP,  /* left out */
    PER_RANK_ERROR
} per_rank_policy;

typedef struct per_rank_rule {
    per_rank_policy policy;
    bool unflattens;                       /* possible shards of flat parameters stay separate */
    const struct description_match *match; /* NULL: no model description */
    const struct unit_list *units;         /* that the checkpoint itself describes; NULL: none */
} per_rank_rule;

rank_copies_rule per_rank_copies(const per_rank_rule *rule);

#endif
