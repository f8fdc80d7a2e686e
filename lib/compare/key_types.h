/* key_types.h: types of the keys of dicts that paths show as text: 1.5, None, True, tuples, bytes.
 *
 *     key_types t;
 *     RETURN_IF(key_types_init(&t, cat, err));
 *     value at = t.root;
 *     for each element of a path:
 *         RETURN_IF(key_types_enter(&t, &at, element, &kind, err));
 *     key_types_release(&t);
 */
#ifndef FSDPCK_COMPARE_KEY_TYPES_H
#define FSDPCK_COMPARE_KEY_TYPES_H

#include "state/catalogue.h"
#include "state/value_map.h"

typedef struct key_types {
    value_pool *pool;
    value root;     /* None: no nested state is known */
    bool has_other; /* a dict has a key that is neither a str nor an int */
    value_map next; /* of each dict: where the next search begins */
    text_buf text;
} key_types;

fsdpck_status key_types_init(key_types *t, catalogue *c, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Goes from the container *at to its item under an element of a path, None if it has no such item.
 * *kind: of the dict's key; that of the element if the key is unknown. */
fsdpck_status key_types_enter(key_types *t, value *at, value element, value_kind *kind,
                              fsdpck_error *err) FSDPCK_MUST_CHECK;
void key_types_release(key_types *t);

#endif
