/* unflatten.h: presents a checkpoint of flat parameters as one of the original parameters.
 *
 * LOCAL state of FSDP1 holds `blk._flat_param`, 1-dim, in the ranks' shards. Unflattening is
 * planning: each shard is an interval of elements, and an interval of a parameter is at most
 * 2*ndim-1 boxes. Hence a second catalogue is made. Its tensors are the original parameters, and
 * each of its chunks records an element and a chunk of the first catalogue where it begins. No byte
 * moves.
 *
 *     flat_adapter *v;
 *     catalogue_init(&seen, &budget);
 *     RETURN_IF(flat_adapter_new(&cat, &src, &units, &options, &seen, &v, err));   // seals `seen`
 *     flat_adapter_source(v)      // its locate() calls the first source, then moves to the element
 *     flat_adapter_free(v);       // before `seen`, `src`, `cat` and `units`
 *
 * Handling of the tensors of `cat` (files are the same in both):
 *   - `PREFIX._flat_param`, or `flat_param`, of a unit: the unit's parameters, including shared
 *     names. Tensors next to it under those names (a LOCAL dict with use_orig_params has 1-dim
 *     shards there) are omitted, after a check that their offsets in the shards match the unit
 *     (MODEL-MISMATCH): a checkpoint has no other record of the order of its parameters.
 *   - the same as bare tensors of each rank (CAT_TENSOR_OF_RANK): likewise, without padding.
 *   - optimizer state keyed by number, 'state.N.exp_avg', each rank's 1-dim shards: 'state.FQN.exp_avg'
 *     of the parameters of flat parameter N, or (use_orig_params) of parameter N; scalars such as
 *     `step` for each of them. `params` of the param_groups hold FQNs.
 *   - tensors that each rank has of its own (description_is_local): one per rank, 'NAME.rank3'.
 *   - two names of one tensor (options.ties): the chunks of the second are also replicas of the
 *     first's; a missing name becomes a tensor with the chunks of the other.
 *   - other tensors of ranks that represent one tensor: one tensor, with the ranks' copies as
 *     replicas, or as options.ranks specifies.
 *   - all others are unchanged.
 *
 * BADINPUT (MODEL-MISMATCH) with the first difference, expected and found: a flat parameter without
 * a unit or with another length than its unit, or a unit without a flat parameter if others have
 * theirs. Ranks of hybrid sharding hold equal intervals: replicas, as everywhere.
 *
 * The parameter of an optimizer's number is not recorded (except by torch 2.6 and newer if the
 * optimizer received names). With one param_group the numbers follow the order of the module tree.
 * If options lack that order, it is inferred from the lengths of all ranks' shards, among the
 * orders that a module tree can have. If this fails or is ambiguous, locating optimizer state by
 * number fails; the model can still be read.
 */
#ifndef FSDPCK_STATEDICT_UNFLATTEN_H
#define FSDPCK_STATEDICT_UNFLATTEN_H

#include "model/optim_groups.h"
#include "model/unit.h"
#include "state/source.h"
#include "statedict/description_match.h"
#include "statedict/per_rank.h"

typedef struct flat_adapter flat_adapter;

/* An item that an optimizer counts. Texts are borrowed during construction. */
typedef struct flat_order {
    const char *fqn; /* of a parameter that is not flattened */
    size_t nbytes;
    uint32_t target; /* with use_orig_params a parameter's index in unit_list.params, else a unit's;
                        CAT_NONE: neither */
    bool requires_grad;
} flat_order;

typedef struct flat_adapter_options {
    /* Handling of tensors of ranks that are not shards. PER_RANK_DROP omits those that are known to
     * differ (CAT_TENSOR_DIFFERS). Other tensors are joined; their replicas must be equal. */
    per_rank_policy ranks;
    bool assume_order; /* numbers of an optimizer follow the order of the model */
    /* The items of model.parameters(), in order, if known; else NULL. */
    const flat_order *order;
    uint32_t order_count;
    const optim_groups *groups; /* of optimizers; NULL: unknown */
    /* Matches the description with the first catalogue's names; NULL: none. Borrowed during
     * construction. */
    const description_match *match;
    const description_tie *ties;
    size_t tie_count;
    /* The units come from `shard_metadata` in the checkpoint, which does not apply to the view:
     * omitted. */
    bool from_metadata;
} flat_adapter_options;

/* Counts the flat parameters in a catalogue, by name: 1-dim tensors whose names end in
 * `_flat_param` or `flat_param`, as whole dotted parts. *first (may be NULL) is the index of the
 * first. A `flat_param` whose module has other, unflattened parameters does not count. */
uint64_t flat_params_count(const catalogue *cat, uint32_t *first);
/* Number of ordinary parameters with the name flat_param. */
uint64_t flat_params_namesakes(const catalogue *cat);

/* Call before flat_adapter_new. Units are described for some number of ranks, `described` in all
 * (0: not stated), and the checkpoint may have another. The list is then rescaled to the number
 * that its flat parameters are sharded over, inferred from the number of its ranks
 * (origin.world_size) and groups of hybrid sharding. If no number fits, the list is unchanged, and
 * flat_adapter_new reports the error. */
fsdpck_status flat_adapter_rescale(const catalogue *base, uint32_t described, unit_list *units,
                                   fsdpck_error *err) FSDPCK_MUST_CHECK;

/* `base` must be sealed; `out` must be initialized and empty. */
fsdpck_status flat_adapter_new(catalogue *base, const source *src, const unit_list *units,
                               const flat_adapter_options *options, catalogue *out,
                               flat_adapter **view, fsdpck_error *err) FSDPCK_MUST_CHECK;
const source *flat_adapter_source(const flat_adapter *view);
/* Number of names omitted by PER_RANK_DROP. */
uint64_t flat_adapter_dropped(const flat_adapter *view);
/* The error of locating raw optimizer state whose numbers could not be mapped to parameters; NULL
 * if they could. */
const fsdpck_error *flat_adapter_order_error(const flat_adapter *v);

/* Number of ties whose names are sharded differently and hence are not replicas. */
uint64_t flat_adapter_ties_uncompared(const flat_adapter *view);
void flat_adapter_free(flat_adapter *view);

/* For objects that were not loaded at construction: load the first catalogue's object, then call
 * flat_adapter_load_object. */
uint32_t flat_adapter_object_origin(const flat_adapter *view, uint32_t object);
fsdpck_status flat_adapter_load_object(flat_adapter *view, uint32_t object,
                                       fsdpck_error *err) FSDPCK_MUST_CHECK;

#endif
