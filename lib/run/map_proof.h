/* map_proof.h: whether import by a tensor map, then export, gives a model folder back.
 *
 *     fsdpck_open_options o = ...;        // o.map, maybe o.map_config and o.map_set
 *     RETURN_IF(map_prove(path, &o, &tensors, err));
 *
 * Both directions are applied to the catalogue. Each chunk of the result must be the box of the folder's
 * tensor of the same name and place, and the chunks must cover the tensor. No tensor is read.
 */
#ifndef FSDPCK_RUN_MAP_PROOF_H
#define FSDPCK_RUN_MAP_PROOF_H

#include "fsdpck.h"

/* *tensors: how many come back, without those that the map ignores. BADINPUT (MAP-PROOF) for the first one that does not come back; the
 * errors of fsdpck_open. config.json of the folder is the default of o->map_config. */
fsdpck_status map_prove(const char *path, const fsdpck_open_options *o, uint64_t *tensors,
                        fsdpck_error *err) FSDPCK_MUST_CHECK;

#endif
