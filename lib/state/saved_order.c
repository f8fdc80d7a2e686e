#include "state/saved_order.h"

#include <stdlib.h>

static int compare(const void *left, const void *right)
{
    const saved_item *a = left, *b = right;
    if (a->saved_at != b->saved_at)
        return a->saved_at < b->saved_at ? -1 : 1;
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
