/* lost_attributes.h: Python attributes of tensors that the output does not keep. */
#ifndef FSDPCK_RUN_LOST_ATTRIBUTES_H
#define FSDPCK_RUN_LOST_ATTRIBUTES_H

#include <stdbool.h>

#include "state/target.h"

typedef struct attributes_lost {
    uint64_t tensors;
    uint32_t first; /* in the target */
} attributes_lost;

/* Tensors of the target that are written without attributes, hooks or a class of their own.
 * has_buffers: the format stores Python objects and distinguishes a Buffer from a tensor. */
attributes_lost lost_attributes_count(const target *to, bool has_buffers);

#endif
