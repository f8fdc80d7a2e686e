/* inner.h: names for the tensors inside an object: through tuples, lists, dicts, deques and named
 * tuples a tensor gets the name that it would have if each of these were a list or dict of the state.
 *
 *     value_map judged = VALUE_MAP(owner), seen = VALUE_MAP(owner);
 *     inner_names in = {.pool = &cat->pool, .judged = &judged, .seen = &seen, .steps_limit = n,
 *                       .on_tensor = fn, .ctx = ctx};
 *     RETURN_IF(inner_name_tensors(&in, "model.pair", 10, path, &content, err));   // "model.pair.0"
 *
 * A container or tensor that is met at a second place gets a copy there, so that each place has a
 * tensor of its own. A content that is a tensor goes by the object's name. What is deeper than 1000 levels, or past the limit of steps, is passed over.
 */
#ifndef FSDPCK_STATE_INNER_H
#define FSDPCK_STATE_INNER_H

#include "state/value.h"
#include "state/value_map.h"

/* Values of inner_names.seen. */
enum { INNER_UNVISITED, INNER_VISITING, INNER_VISITED };

/* *tensor: the index in the content; may be replaced by that of a copy. `name` is borrowed for the
 * call; `path` is a TUPLE as in cat_tensor.path. */
typedef fsdpck_status (*inner_tensor_fn)(void *ctx, const char *name, size_t nbytes, value path,
                                         uint64_t *tensor, fsdpck_error *err);

typedef struct inner_names {
    value_pool *pool;
    value_map *judged; /* whether a container holds a tensor: kept for all objects of the pool */
    value_map *seen;   /* containers that have a place already: likewise */
    uint64_t steps, steps_limit;
    inner_tensor_fn on_tensor;
    void *ctx;
} inner_names;

/* `name` and `path` are the object's; an empty name: its keys begin the names. *content: the object,
 * changed in place; another handle where it had a place already. */
fsdpck_status inner_name_tensors(inner_names *in, const char *name, size_t nbytes, value path,
                                 value *content, fsdpck_error *err) FSDPCK_MUST_CHECK;

#endif
