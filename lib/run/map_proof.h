/* map_proof.h: whether import by a tensor map, then export, gives a model folder back.
 *
 *     fsdpck_open_options o = ...;        // o.map, maybe o.map_config and o.map_set
 *     map_proof_result found;
 *     RETURN_IF(map_prove(path, &o, &found, err));
 *
 * Both directions are applied to the catalogue. Each chunk of the result must be the box of the folder's
 * tensor of the same name and place, and the chunks must cover the tensor. No tensor is read.
 *
 * `add` changes the elements: import rounds each of them, and so does export. Such tensors come back to
 * their place, but their values only up to rounding; they are counted.
 */
#ifndef FSDPCK_RUN_MAP_PROOF_H
#define FSDPCK_RUN_MAP_PROOF_H

#include "fsdpck.h"

typedef struct map_proof_result {
    uint64_t tensors;   /* that come back, without those that the map ignores */
    uint64_t rounded;   /* those of them whose values come back only up to rounding */
    fsdpck_error model; /* the warning MAP-MODEL; no finding: none */
} map_proof_result;

/* BADINPUT (MAP-PROOF) for the first one that does not come back; the
 * errors of fsdpck_open. config.json of the folder is the default of o->map_config. */
fsdpck_status map_prove(const char *path, const fsdpck_open_options *o, map_proof_result *found,
                        fsdpck_error *err) FSDPCK_MUST_CHECK;

#endif
