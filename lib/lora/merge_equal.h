/* merge_equal.h: whether two tensors hold the same bytes. transformers 5 ties two weights of a file only then. Reads until that
 * is known. */
#ifndef FSDPCK_LORA_MERGE_EQUAL_H
#define FSDPCK_LORA_MERGE_EQUAL_H

#include "state/source.h"

/* False for different shapes or dtypes, without elements, and for dtypes of less than a byte. */
fsdpck_status merge_is_equal(const catalogue *c, const source *src, uint32_t one, uint32_t other,
                             budget *owner, bool *equal, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Likewise whether `one` is the transpose of `other`; both have two dims. */
fsdpck_status merge_is_transpose(const catalogue *c, const source *src, uint32_t one,
                                 uint32_t other, budget *owner, bool *equal,
                                 fsdpck_error *err) FSDPCK_MUST_CHECK;

#endif
