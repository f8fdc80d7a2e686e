/* unflatten.h: a checkpoint of flat parameters seen as one of the original ones.
 *
 * State of FSDP1's LOCAL kind holds `blk._flat_param`, 1-dim, in pieces of the ranks. Unflattening
 * is planning: each piece is an interval of elements, and an interval of a parameter is at most
 * 2*ndim-1 boxes. So a second catalogue is made whose tensors are the original parameters and whose
 * chunks say which element of which chunk of the first they begin at; no byte moves.
 *
 *     flat_view *v;
 *     RETURN_IF(flat_view_new(&cat, &src, &units, &options, &budget, &v, err));
 *     flat_view_catalogue(v)   // sealed; files are those of `cat`
 *     flat_view_source(v)      // locate() asks the first source, then moves to the element
 *     flat_view_free(v);       // before `src` and `cat` go
 *
 * What becomes of the tensors of `cat`:
 *   - `PREFIX._flat_param`, or `flat_param`, of a unit: the unit's parameters, shared names as well;
 *     where a LOCAL dict beside it has 1-dim pieces under the original names (use_orig_params), those
 *     are left out (defect D9).
 *   - the same as bare tensors of each rank (`PREFIX._flat_param.rank3`, opened with per_rank KEEP):
 *     likewise, padding cut off.
 *   - flat optimizer state by id or by name of the flat parameter: 'state.N.exp_avg' of 1-dim
 *     shards: 'state.FQN.exp_avg' for each parameter; scalars such as `step` for each parameter.
 *   - everything else as it is.
 *
 * A unit that has no flat parameter in `cat`, one whose length is not the unit's total, a flat
 * parameter that no unit names: BADINPUT (MODEL-MISMATCH) with the first difference, expected and
 * found. Ranks of hybrid sharding hold equal intervals: replicas, as everywhere.
 */
#ifndef FSDPCK_MODEL_UNFLATTEN_H
#define FSDPCK_MODEL_UNFLATTEN_H

#include "model/unit.h"
#include "state/source.h"

typedef struct flat_view flat_view;

/* Whether a catalogue holds what needs unflattening: names that end in `_flat_param` or
 * `flat_param`. */
bool flat_view_needed(const catalogue *cat);

fsdpck_status flat_view_new(catalogue *cat, const source *src, const unit_list *units,
                            budget *owner, flat_view **view, fsdpck_error *err) FSDPCK_MUST_CHECK;
catalogue *flat_view_catalogue(flat_view *view);
const source *flat_view_source(flat_view *view);
void flat_view_free(flat_view *view);

#endif
