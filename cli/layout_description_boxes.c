/* layout_description_boxes.c: figures that the text and the JSON of a layout share. */
#include <stdlib.h>

#include "layout_description.h"

fsdpck_box *layout_description_boxes(const model_layout *l, uint64_t unit, uint64_t k,
                                     unsigned ndim, const fsdpck_param_shard *piece, size_t *count)
{
    const size_t most = ndim == 0 ? 1 : 2 * (size_t)ndim - 1;
    *count = 0;
    if (piece->begin == piece->end)
        return NULL;
    fsdpck_box *boxes = calloc(most, sizeof *boxes);
    if (boxes != NULL)
        *count = fsdpck_units_get_boxes(l->units, unit, k, piece->begin, piece->end, boxes, most);
    return boxes;
}
