/* rank_sums.h: how much each rank of a sharded target holds, without its chunks.
 *
 *     rank_sums s;
 *     RETURN_IF(rank_sums_make(&s, &to, &parts, &trained, err));
 *     s.ranks[r].nbytes ...
 *     rank_sums_release(&s);
 *
 * Tensors of one shape, dtype and spec are counted together, so that 9,000 tensors on 16,384 ranks
 * cost as many boxes as there are kinds of tensors times ranks.
 */
#ifndef FSDPCK_RUN_RANK_SUMS_H
#define FSDPCK_RUN_RANK_SUMS_H

#include "fsdpck.h"
#include "select/parts.h"
#include "select/trained.h"
#include "state/target.h"

typedef struct rank_sums {
    budget *owner;
    uint64_t world_size;
    fsdpck_layout_rank *ranks;
    uint64_t rank_min, rank_max; /* lowest ranks that hold least and most */
    uint64_t nbytes_sum, padding_nbytes, empty_pieces;
    uint64_t replicated; /* tensors that every rank holds whole */
} rank_sums;

/* What training takes is counted by the optimizer state that the source has, or, where `t` does not
 * know any, as Adam's in the parameters' dtype. */
fsdpck_status rank_sums_make(rank_sums *s, const target *to, const aim_parts *parts,
                             const trained *t, fsdpck_error *err) FSDPCK_MUST_CHECK;
void rank_sums_release(rank_sums *s);

/* What rank holds of target tensor `index`, and what FSDP adds to it in memory: the sharded dim
 * filled up to the size of the first piece along the FSDP mesh dims. */
fsdpck_status rank_piece(const target *to, uint64_t index, uint64_t rank, fsdpck_layout_piece *out,
                         fsdpck_error *err) FSDPCK_MUST_CHECK;

#endif
