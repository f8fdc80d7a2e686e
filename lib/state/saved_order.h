/* saved_order.h: tensors and objects together, in the order of the state that was saved.
 *
 *     saved_item items[] = {{.saved_at = cat_tensor.saved_at, .index = i}, ...};
 *     saved_order_sort(items, count);     // as given, where nothing says otherwise
 */
#ifndef FSDPCK_STATE_SAVED_ORDER_H
#define FSDPCK_STATE_SAVED_ORDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct saved_item {
    uint32_t saved_at; /* cat_tensor.saved_at, cat_object.saved_at; 0: not known, comes first */
    uint32_t at;       /* set by saved_order_sort: its place as given */
    uint32_t index;    /* the caller's, as is the next */
    bool is_object;
} saved_item;

/* At most 2^32-1 items. */
void saved_order_sort(saved_item *items, size_t count);

#endif
