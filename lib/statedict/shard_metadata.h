/* shard_metadata.h: units of a checkpoint that describes its flat parameters itself.
 *
 * fairscale's FullyShardedDataParallel, and metaseq with it, save each rank's bare 1-dim shards
 * with the result of local_metadata_dict():
 *
 *     {'model': {'layers.0.flat_param_0': shard, 'flat_param_0': shard, ...buffers},
 *      'shard_metadata': {'buffer_names': [...], 'param_metadata': [
 *          {'fsdp_path': 'layers.0', 'no_broadcast_optim_state': False,
 *           'params': {'flat_param_0': {'names': ['fc.weight', ...], 'shapes': [torch.Size, ...],
 *                                       'numels': [15, ...], 'padding': 0}},
 *           'shared_param_info': [('emb.weight', 'head.weight')]}, ...]}}
 *
 * A parameter that is sharded separately (flatten_parameters=False) has its own name, the only name
 * of its list. There is no inner padding; each rank's padding at the end is that of unit_shard.
 * no_broadcast_optim_state marks a group of one rank, which has all of it.
 *
 *     if (shard_metadata_is(&cat)) {
 *         unit_list_init(&units, &budget);
 *         RETURN_IF(shard_metadata_units(&cat, ranks, &units, err));
 *         ...                           // units are `keyed`: found by the keys of their tensors
 *     }
 *
 * Source: fairscale 0.4.13, nn/data_parallel/fully_sharded_data_parallel.py (local_metadata_dict,
 * consolidate_shard_weights); metaseq, scripts/reshard_fsdp.py.
 */
#ifndef FSDPCK_STATEDICT_SHARD_METADATA_H
#define FSDPCK_STATEDICT_SHARD_METADATA_H

#include "model/unit.h"
#include "state/catalogue.h"

bool shard_metadata_is(const catalogue *c);

/* Objects of c must be loaded. world_size: number of rank files. `units` must be initialized and
 * empty; it is sealed. BADINPUT (SHARD-METADATA) if the data contradicts itself. */
fsdpck_status shard_metadata_units(const catalogue *c, uint32_t world_size, unit_list *units,
                                   fsdpck_error *err) FSDPCK_MUST_CHECK;

#endif
