/* inner.h: names for the tensors inside an object. A tensor inside tuples, lists, dicts, deques and
 * named tuples gets the name that it would have if each of these were a list or dict of the state.
 *
 *     value_map judged = VALUE_MAP(owner), seen = VALUE_MAP(owner);
 *     inner_names in = {.pool = &cat->pool, .judged = &judged, .seen = &seen, .steps_limit = n,
 *                       .on_tensor = fn, .ctx = ctx};
 *     RETURN_IF(inner_name_tensors(&in, "model.pair", 10, path, &content, err));  // "model.pair.0"
 *
 * A container or tensor that is met a second time is copied, so that each location has its own
 * tensor. A content that is itself a tensor has the object's name. Values deeper than 1000 levels,
 * or beyond the limit of steps, are skipped.
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
    value_map *judged; /* whether a container holds a tensor: shared by all objects of the pool */
    value_map *seen;   /* containers that are in use already: likewise */
    uint64_t steps, steps_limit;
    inner_tensor_fn on_tensor;
    void *ctx;
} inner_names;

/* `name` and `path` are the object's; with an empty name its keys begin the names. *content: the
 * object, changed in place; a different handle if it was in use already. */
fsdpck_status inner_name_tensors(inner_names *in, const char *name, size_t nbytes, value path,
                                 value *content, fsdpck_error *err) FSDPCK_MUST_CHECK;

#endif
