/* dcp_item_tensor.h: tensors inside byte items (a tuple that holds tensors is one byte item).
 */
#ifndef FSDPCK_DCP_ITEM_TENSOR_H
#define FSDPCK_DCP_ITEM_TENSOR_H

#include "formats/dcp/dcp_internal.h"

typedef struct dcp_item_tensor {
    place where;
} dcp_item_tensor;

/* By the aux note of its chunk. */
static inline const dcp_item_tensor *dcp_item_tensor_at(const dcp_folder *d, uint32_t aux)
{
    return VEC_AT(&d->inside, dcp_item_tensor, aux & ~DCP_AUX_ITEM_TENSOR);
}

#endif
