/* like_ties.h: tied copies that a model folder (--like) lacks: another name has their elements. save_pretrained
 * writes only one name of tensors that a model ties, such as `proj_out.weight` of Whisper.
 *
 *     vec pairs = VEC_OF(tied_pair, NULL);
 *     RETURN_IF(like_ties_find(src, &options, &like, &to.cat, VEC_AT(&to.from, ...), &pairs, err));  // collective
 *     ... pairs: `alias` is omitted, because `first` has equal bytes ...
 *
 * No names are assumed: a copy is a tensor that only the source has, with the bytes of one that both have. Vectors,
 * which are often all zeros or ones, are copies only if they share a storage, or their module has another copy.
 */
#ifndef FSDPCK_RUN_LIKE_TIES_H
#define FSDPCK_RUN_LIKE_TIES_H

#include "run/like_output.h"

struct run;

/* `to`: names of the output; `from`: the source tensor of each, NULL: the same. *pairs gets tensors of the source.
 * Reads the data of candidates with equal dtypes and shapes. Collective. */
fsdpck_status like_ties_find(fsdpck_checkpoint *src, const run_options *options,
                             const like_output *l, const catalogue *to, const uint32_t *from,
                             vec *pairs, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Whether a tensor of the source is a copy. */
bool like_ties_has(const vec *pairs, uint32_t alias);

/* Fills r->like_ties for consolidate --like, before the selection. An invalid request finds none: the run reports its
 * error. Collective. */
fsdpck_status like_ties_prepare(struct run *r, fsdpck_error *err) FSDPCK_MUST_CHECK;

#endif
