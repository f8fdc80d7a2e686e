/* st_reference.h: an independent judge of safetensors streams: recursive, with fixed arrays, using
 * only the text. For tests of formats/common/st_header.h.
 *
 * Accepted are streams of the format whose tensors torch supports: known dtypes, at most 64 dims of
 * at most 2^63 - 1, an even last dim for F4. Beyond 1,000 entries or 100 keys of metadata it gives
 * no verdict. */
#ifndef FSDPCK_TESTS_ST_REFERENCE_H
#define FSDPCK_TESTS_ST_REFERENCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum st_answer { ST_GOOD, ST_BAD, ST_UNSURE } st_answer;

/* Whether a text is JSON: one value of at most 64 levels, white space around it; UTF-8. */
bool json_reference(const uint8_t *bytes, size_t nbytes);

st_answer st_reference(const uint8_t *bytes, size_t nbytes);

#endif
