/* saved_order.h: tensors and objects together, in the order of the saved state.
 *
 *     saved_item items[] = {{.saved_at = cat_tensor.saved_at, .index = i}, ...};
 *     saved_order_sort(items, count);     // unchanged if no position is recorded
 */
#ifndef FSDPCK_STATE_SAVED_ORDER_H
#define FSDPCK_STATE_SAVED_ORDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct saved_item {
    uint32_t saved_at; /* cat_tensor.saved_at, cat_object.saved_at; 0: unknown, comes first */
    uint32_t at;       /* set by saved_order_sort: original position */
    uint32_t index;    /* for the caller, as is the next */
    bool is_object;
} saved_item;

/* At most 2^32-1 items. */
void saved_order_sort(saved_item *items, size_t count);

#endif
