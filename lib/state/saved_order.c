#include "state/saved_order.h"

#include <stdlib.h>

#include "base/alloc.h"

static int compare(const void *left, const void *right)
{
    const saved_item *a = left, *b = right;
    ORDER_BY(a->saved_at, b->saved_at);
    return a->at < b->at ? -1 : a->at > b->at;
}

void saved_order_sort(saved_item *items, size_t count)
{
    bool known = false;
    for (size_t i = 0; i < count; i++) {
        items[i].at = (uint32_t)i;
        known = known || items[i].saved_at > 0;
    }
    if (known)
        qsort(items, count, sizeof *items, compare);
}
