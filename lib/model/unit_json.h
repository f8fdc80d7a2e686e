/* unit_json.h: a list of units as JSON, for use without a model description (fsdpck-model(5)).
 *
 *     {"version": 1, "world_size": 4, "units": [{"prefix": "blk", "flat_param": "_flat_param",
 *       "world_size": 4, "use_orig_params": true, "dtype": "float32", "alignment_elements": 4,
 *       "params": [{"fqn": "blk.a.weight", "shape": [5, 3]}],
 *       "shared": [{"fqn": "head.weight", "same_as": "emb.weight"}], "total_unpadded": 40}]}
 *
 * A unit requires `params`, and a parameter `fqn` and `shape`. Defaults of the other keys:
 *
 *     prefix              "", the root          flat_param          "_flat_param"; "flat_param"
 *                                                                   for torch 1.13
 *     world_size          the document's        use_orig_params     false
 *     sharding_strategy   "FULL_SHARD"; only "NO_SHARD" has an effect
 *     dtype               that of the checkpoint
 *     param_dtype         of mixed precision: dtype
 *     alignment_elements  torch's for param_dtype with use_orig_params; 0 for torch 2.0
 *     row_major           false; true for torch before 2.6, whose order strides do not change
 *     strides             row-major             shared              none
 *
 * total_unpadded counts the flat parameter without the ranks' padding; if given, it must agree
 * (MODEL-TOTAL). Strict: an unknown or duplicate key is an error (MODEL-KEY), so that a misspelled
 * key is not ignored. Keys may come in any order. No tree is built.
 */
#ifndef FSDPCK_MODEL_UNIT_JSON_H
#define FSDPCK_MODEL_UNIT_JSON_H

#include "base/json.h"
#include "model/unit.h"

/* Defaults of omitted keys. */
typedef struct unit_defaults {
    uint32_t world_size; /* of the document, 0: none */
    bool flat_param;     /* "flat_param", of torch before 2.0 */
    bool no_alignment;   /* torch 2.0 */
    bool row_major;      /* torch before 2.6 */
} unit_defaults;

/* The defaults for a release. */
unit_defaults unit_defaults_of(uint32_t world_size, uint32_t torch_major, uint32_t torch_minor);

/* Reads the value of "units", whose JSON_ARRAY token was just read. Fills and seals `l`, which must
 * be initialized and empty. Errors contain the byte offset in the reader's text and the parameter. */
fsdpck_status unit_json_read(json_reader *r, const unit_defaults *defaults, unit_list *l,
                             fsdpck_error *err) FSDPCK_MUST_CHECK;

#endif
