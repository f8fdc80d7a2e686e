/* lora_zero.h: whether all elements of a tensor are zero, or some are not finite. Reads until that is known. */
#ifndef FSDPCK_LORA_LORA_ZERO_H
#define FSDPCK_LORA_LORA_ZERO_H

#include "state/source.h"

/* Minus zero is zero. A tensor without elements is not all zero. */
fsdpck_status lora_is_zero(const source *src, const catalogue *c, uint32_t tensor, bool *is_zero,
                           fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Whether an element is NaN or infinite. False if the tensor is no float, and for a compressed tensor whose elements
 * are not in order. */
fsdpck_status lora_has_nan(const source *src, const catalogue *c, uint32_t tensor, bool *has_nan,
                           fsdpck_error *err) FSDPCK_MUST_CHECK;

#endif
