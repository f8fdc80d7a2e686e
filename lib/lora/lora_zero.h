/* lora_zero.h: whether all elements of a tensor are zero. Reads until the first that is not. */
#ifndef FSDPCK_LORA_LORA_ZERO_H
#define FSDPCK_LORA_LORA_ZERO_H

#include "state/source.h"

/* Minus zero is zero. A tensor without elements is not all zero. */
fsdpck_status lora_is_zero(const source *src, const catalogue *c, uint32_t tensor, bool *is_zero,
                           fsdpck_error *err) FSDPCK_MUST_CHECK;

#endif
