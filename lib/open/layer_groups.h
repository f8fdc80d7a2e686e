/* layer_groups.h: layers of one kind, by the lists of config.json that have an item for each layer, such as "layer_types".
 *
 *     layer_groups g;
 *     RETURN_IF(layer_groups_read(&g, config, layers, err));      // releases after a failure
 *     layer_group(&g, 3) == layer_group(&g, 5)                    // no list distinguishes them
 *     layer_groups_release(&g);
 */
#ifndef FSDPCK_OPEN_LAYER_GROUPS_H
#define FSDPCK_OPEN_LAYER_GROUPS_H

#include "base/alloc.h"
#include "open/layer_words.h"

typedef struct layer_groups {
    vec ids;        /* uint64_t of each layer; empty: config.json has no such list */
    bool has_lists; /* those that the row of the type names */
} layer_groups;

/* layers: the items of such a list. type: a row, or NULL. */
fsdpck_status layer_groups_read(layer_groups *g, const model_config *config, uint64_t layers,
                                const layer_type *type, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* The same number for layers of one kind. */
uint64_t layer_group(const layer_groups *g, uint64_t layer);
void layer_groups_release(layer_groups *g);

#endif
