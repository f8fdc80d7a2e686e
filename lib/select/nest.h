/* nest.h: rebuilds the nested state from paths, as torch's set_element does (dcp_to_torch_save).
 *
 *     nest n;
 *     RETURN_IF(nest_init(&n, &pool, err));
 *     RETURN_IF(nest_put(&n, elements, count, leaf, err));     // in the order to keep
 *     root = n.root;
 *     nest_release(&n);
 *
 * A str element opens a dict. An int element opens a list, padded with None up to it. The root is a
 * list if the first path begins with an int. Lookups are hashed, so building is linear in the
 * number of leaves. Conflicting paths (a leaf in the position of a container) are BADINPUT,
 * KEY-NEST.
 */
#ifndef FSDPCK_SELECT_NEST_H
#define FSDPCK_SELECT_NEST_H

#include "state/value.h"
#include "state/value_map.h"

typedef struct nest_slot {
    value container;
    value element; /* strings are interned, so equal elements are equal handles */
    value child;
    uint32_t next;
    uint32_t parent; /* the slot that has the container as child, SLOT_NONE for the root */
    value like;      /* the source's key in place of `element`, of its pool; NONE: unknown */
    bool opens;      /* the child is a container of the nest, not a leaf */
    bool is_opened;  /* the child is a list that holds a tensor, a dict or such a list */
} nest_slot;

typedef struct nest {
    value_pool *pool;
    value root;
    vec slots; /* struct nest_slot: (container, element) -> child */
    uint32_t *buckets;
    size_t bucket_count;
    bool has_lists, has_opened, has_int_keys;
} nest;

fsdpck_status nest_init(nest *n, value_pool *pool, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Elements are STR or INT values of the nest's pool. count >= 1. */
fsdpck_status nest_put(nest *n, const value *elements, size_t count, value leaf,
                       fsdpck_error *err) FSDPCK_MUST_CHECK;
/* The same for a leaf whose path in the source is `like`, elements of another pool. If it has as many
 * elements, its containers are those of nest_restore. */
fsdpck_status nest_put_like(nest *n, const value *elements, size_t count, value leaf,
                            const value *like, size_t like_count,
                            fsdpck_error *err) FSDPCK_MUST_CHECK;
/* From here on, containers correspond by equal keys only. */
void nest_forget_likes(nest *n);
/* Finds the lists that torch opens on load: those that contain a tensor, a dict or such a list. */
void nest_find_opened(nest *n);

/* Why an incomplete list cannot be read back. */
typedef enum nest_gap {
    NEST_GAP_NONE,
    NEST_GAP_ITEM,  /* the list was padded at this index, because later items exist */
    NEST_GAP_TENSOR /* after nest_find_opened: a list on the path is not opened */
} nest_gap;
/* The gap of a leaf that may not have been put. */
nest_gap nest_find_gap(const nest *n, const value *elements, size_t count);
/* Whether a container of the nest has an item at an element. */
bool nest_has(const nest *n, value container, value element);
/* Whether a dict on the path of a leaf that was just put has an int and a text as keys that are one text, 0 and
 * "0". */
fsdpck_status nest_find_twin(nest *n, const value *elements, size_t count, bool *found,
                             fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Puts an empty dict at each list index without an item. */
fsdpck_status nest_fill_holes(nest *n, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* *made: the root, whose containers get the classes, attributes and non-text keys of those under
 * the same keys of `root` in the pool `from`, or of the containers that their leaves had there
 * (nest_put_like), see nest_restore.c. Keys of `kept` become the containers of `from` whose classes
 * and attributes the root has. Call it last, before nest_release. */
fsdpck_status nest_restore(nest *n, value_pool *from, value root, value *made, value_map *kept,
                           fsdpck_error *err) FSDPCK_MUST_CHECK;
void nest_release(nest *n);

#endif
