/* unit_json.h: a list of units as JSON, for those who have no model to describe (fsdpck-model(5)).
 *
 *     {"version": 1, "world_size": 4, "units": [{"prefix": "blk", "flat_param": "_flat_param",
 *       "world_size": 4, "use_orig_params": true, "dtype": "float32", "alignment_elements": 4,
 *       "params": [{"fqn": "blk.a.weight", "shape": [5, 3]}],
 *       "shared": [{"fqn": "head.weight", "same_as": "emb.weight"}], "total_unpadded": 40}]}
 *
 * What can be computed may be left out; what is given must agree (MODEL-TOTAL). Strict: an unknown
 * key is an error, so that a misspelt one is not passed over. Read in one pass without a tree.
 */
#ifndef FSDPCK_MODEL_UNIT_JSON_H
#define FSDPCK_MODEL_UNIT_JSON_H

#include "base/json.h"
#include "model/unit.h"

/* The value of "units", whose JSON_ARRAY token was just read; world_size is that of the document, 0
 * where it has none. Fills and seals `l`. */
fsdpck_status unit_json_read(json_reader *r, uint32_t world_size, unit_list *l,
                             fsdpck_error *err) FSDPCK_MUST_CHECK;

#endif
