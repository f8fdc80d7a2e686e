/* rank_totals.h: bytes that each rank of a sharded target holds, computed without its chunks.
 *
 *     rank_totals s;
 *     RETURN_IF(rank_totals_make(&s, &to, &parts, &optim_state_map, err));
 *     s.ranks[r].nbytes ...
 *     rank_totals_release(&s);
 *
 * Tensors of one shape, dtype and spec are counted together: the cost is kinds of tensors times
 * ranks, not 9,000 tensors times 16,384 ranks.
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
    uint64_t rank_min, rank_max; /* lowest ranks with the fewest and the most bytes */
    uint64_t nbytes_total, padding_nbytes, empty_pieces;
    uint64_t replicated; /* tensors whole on every rank */
    uint64_t tied;       /* with ties_once: tensors that are not counted in any of these */
} rank_totals;

/* Whether a tensor is a further name of another one, sharded alike. */
bool rank_totals_is_tied(const target *to, uint64_t index);

/* ties_once: a tied tensor counts under its first name alone, as in memory; else under each, as in
 * files that do not link it. Training memory is computed from the source's optimizer state, or, if
 * `t` has none, for Adam in the parameters' dtype. */
fsdpck_status rank_totals_make(rank_totals *s, const target *to, const checkpoint_parts *parts,
                               const optim_state_map *t, bool ties_once,
                               fsdpck_error *err) FSDPCK_MUST_CHECK;
void rank_totals_release(rank_totals *s);

/* The shard of target tensor `index` on `rank`, and the padding that FSDP adds in memory: it fills
 * the sharded dim up to the size of the first shard along the FSDP mesh dims. Optimizer state has none: torch
 * makes it as large as the shard without padding (torch 2.15, zeros_like of the DTensor). */
fsdpck_status rank_shard(const target *to, const checkpoint_parts *parts, uint64_t index,
                         uint64_t rank, fsdpck_layout_shard *out,
                         fsdpck_error *err) FSDPCK_MUST_CHECK;

#endif
