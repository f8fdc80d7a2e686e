/* rank_totals.h: how much each rank of a sharded target holds, without its chunks.
 *
 *     rank_totals s;
 *     RETURN_IF(rank_totals_make(&s, &to, &parts, &optim_state_map, err));
 *     s.ranks[r].nbytes ...
 *     rank_totals_release(&s);
 *
 * Tensors of one shape, dtype and spec are counted together, so that 9,000 tensors on 16,384 ranks
 * cost as many boxes as there are kinds of tensors times ranks.
 */
#ifndef FSDPCK_RUN_RANK_TOTALS_H
#define FSDPCK_RUN_RANK_TOTALS_H

#include "fsdpck.h"
#include "select/checkpoint_parts.h"
#include "select/optim_state_map.h"
#include "state/target.h"

typedef struct rank_totals {
    budget *owner;
    uint64_t world_size;
    fsdpck_layout_rank *ranks;
    uint64_t rank_min, rank_max; /* lowest ranks that hold least and most */
    uint64_t nbytes_total, padding_nbytes, empty_pieces;
    uint64_t replicated; /* tensors that every rank holds whole */
} rank_totals;

/* What training takes is counted by the optimizer state that the source has, or, where `t` does not
 * know any, as Adam's in the parameters' dtype. */
fsdpck_status rank_totals_make(rank_totals *s, const target *to, const checkpoint_parts *parts,
                               const optim_state_map *t, fsdpck_error *err) FSDPCK_MUST_CHECK;
void rank_totals_release(rank_totals *s);

/* What rank holds of target tensor `index`, and what FSDP adds to it in memory: the sharded dim
 * filled up to the size of the first piece along the FSDP mesh dims. */
fsdpck_status rank_shard(const target *to, uint64_t index, uint64_t rank, fsdpck_layout_shard *out,
                         fsdpck_error *err) FSDPCK_MUST_CHECK;

#endif
