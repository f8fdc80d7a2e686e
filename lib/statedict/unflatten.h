/* unflatten.h: a checkpoint of flat parameters seen as one of the original ones.
 *
 * State of FSDP1's LOCAL kind holds `blk._flat_param`, 1-dim, in pieces of the ranks. Unflattening
 * is planning: each piece is an interval of elements, and an interval of a parameter is at most
 * 2*ndim-1 boxes. So a second catalogue is made whose tensors are the original parameters and whose
 * chunks say which element of which chunk of the first they begin at; no byte moves.
 *
 *     flat_adapter *v;
 *     catalogue_init(&seen, &budget);
 *     RETURN_IF(flat_adapter_new(&cat, &src, &units, &options, &seen, &v, err));   // seals `seen`
 *     flat_adapter_source(v)      // locate() asks the first source, then moves to the element
 *     flat_adapter_free(v);       // before `seen`, `src`, `cat` and `units` go
 *
 * What becomes of the tensors of `cat` (files are the same in both):
 *   - `PREFIX._flat_param`, or `flat_param`, of a unit: the unit's parameters, shared names as well.
 *     Tensors that lie beside it under those names (a LOCAL dict with use_orig_params has 1-dim
 *     pieces there: defect D9) are left out, once they are seen to lie in the shards where the unit
 *     has them (MODEL-MISMATCH): that is all a checkpoint says of the order of its parameters.
 *   - the same as bare tensors of each rank (CAT_TENSOR_OF_RANK): likewise, padding cut off.
 *   - optimizer state by number, 'state.N.exp_avg', each rank's 1-dim pieces: 'state.FQN.exp_avg'
 *     of the parameters of flat parameter N, or (use_orig_params) of parameter N; scalars such as
 *     `step` for each of them. `params` of the param_groups hold FQNs.
 *   - tensors that each rank has of its own (description_is_local): one of each rank, 'NAME.rank3'.
 *   - two names of one tensor (options.ties): the chunks of the second are replicas of the first's,
 *     too; a name that is not there becomes a tensor with the chunks of the other.
 *   - other tensors of ranks that stand for one: one again, its ranks' copies replicas, or what
 *     options.ranks says.
 *   - everything else as it is.
 *
 * A flat parameter that no unit names or whose length is not its unit's, a unit without one where
 * others have theirs: BADINPUT (MODEL-MISMATCH) with the first difference, expected and found. Ranks
 * of hybrid sharding hold equal intervals: replicas, as everywhere.
 *
 * Which parameter a number of the optimizer means is not written down (but for torch 2.6 and newer
 * if the optimizer was given names). With one param_group it is the order of the module tree; where
 * options do not have that, it is found by the lengths of all ranks' pieces, in an order that a
 * module tree can have. Where this fails or is ambiguous, locating optimizer state by number
 * is the error; the model can still be read.
 */
#ifndef FSDPCK_STATEDICT_UNFLATTEN_H
#define FSDPCK_STATEDICT_UNFLATTEN_H

#include "model/optim_groups.h"
#include "model/unit.h"
#include "state/source.h"
#include "statedict/description_match.h"

typedef struct flat_adapter flat_adapter;

/* Something that an optimizer counts. Texts are borrowed while the view is made. */
typedef struct flat_order {
    const char *fqn; /* of a parameter that is in no flat parameter */
    size_t nbytes;
    uint32_t target; /* with use_orig_params a parameter's index in unit_list.params, else a unit's;
                        CAT_NONE: neither */
    bool requires_grad;
} flat_order;

/* What becomes of tensors of ranks that are no pieces. */
typedef enum flat_ranks {
    FLAT_RANKS_JOIN,  /* one: replicas, which must be equal */
    FLAT_RANKS_KEEP,  /* they stay apart, as 'NAME.rank3' */
    FLAT_RANKS_FIRST, /* that of the lowest rank */
    FLAT_RANKS_DROP   /* left out where they are known to differ (CAT_TENSOR_DIFFERS), else one */
} flat_ranks;

typedef struct flat_adapter_options {
    flat_ranks ranks;
    bool assume_order; /* numbers of an optimizer follow the order of the model */
    /* What model.parameters() gives, in its order, where that is known; else NULL. */
    const flat_order *order;
    uint32_t order_count;
    const optim_groups *groups; /* of optimizers; NULL: not known */
    /* What the description says of the first catalogue's names; NULL: nothing. Borrowed while the
     * view is made. */
    const agree *agree;
    const description_tie *ties;
    size_t tie_count;
    /* The units are from `shard_metadata` in the checkpoint, which is not true of the view: left
     * out. */
    bool from_metadata;
} flat_adapter_options;

/* Flat parameters in a catalogue, by their names: those of one dim that end in `_flat_param` or
 * `flat_param`, as whole dotted parts. Returns how many; *first (may be NULL) is the number of the
 * first. A `flat_param` whose module has other parameters, held as it is, is a namesake. */
uint64_t flat_params_count(const catalogue *cat, uint32_t *first);
/* Parameters that are only called flat_param. */
uint64_t flat_params_namesakes(const catalogue *cat);

/* Units are described over some number of ranks, `described` in all (0: not said); those of a
 * checkpoint may be others: then the list becomes the same over the number that its flat parameters
 * are cut for, found by the number of its ranks (origin.world_size), groups of hybrid sharding
 * considered. Where nothing fits it stays, and making the view says what is wrong. Before it. */
fsdpck_status flat_adapter_rescale(const catalogue *base, uint32_t described, unit_list *units,
                                   fsdpck_error *err) FSDPCK_MUST_CHECK;

/* `base` is sealed; `out` is initialised and empty. */
fsdpck_status flat_adapter_new(catalogue *base, const source *src, const unit_list *units,
                               const flat_adapter_options *options, catalogue *out,
                               flat_adapter **view, fsdpck_error *err) FSDPCK_MUST_CHECK;
const source *flat_adapter_source(const flat_adapter *view);
/* Names that were left out by FLAT_RANKS_DROP. */
uint64_t flat_adapter_dropped(const flat_adapter *view);
/* Why numbers of raw optimizer state could not be given to parameters, which reading their tensors
 * fails with; NULL where they could. */
const fsdpck_error *flat_adapter_order_error(const flat_adapter *v);

/* Ties whose names are cut otherwise, so that they are no replicas. */
uint64_t flat_adapter_ties_uncompared(const flat_adapter *view);
void flat_adapter_free(flat_adapter *view);

/* Objects that were not loaded when the view was made: load the first catalogue's, then take it. */
uint32_t flat_adapter_object_origin(const flat_adapter *view, uint32_t object);
fsdpck_status flat_adapter_load_object(flat_adapter *view, uint32_t object,
                                       fsdpck_error *err) FSDPCK_MUST_CHECK;

#endif
