/* config_edit.h: the config.json of a model whose weights have another dtype, or are no longer quantized.
 * All other bytes stay as they are.
 *
 *     config_change change = {.dtype = "bfloat16", .was = "float16", .unquantized = false};
 *     RETURN_IF(config_edit(text, nbytes, &change, &out, err));   // out: a zeroed text_buf
 */
#ifndef FSDPCK_RUN_CONFIG_EDIT_H
#define FSDPCK_RUN_CONFIG_EDIT_H

#include <stdbool.h>

#include "base/alloc.h"

typedef struct config_change {
    /* torch's name, for the keys `dtype` and `torch_dtype`; `dtype` is added to a config without them.
     * NULL: they stay. */
    const char *dtype;
    /* Of the original weights: in text_config and other *_config objects, only such a dtype is replaced. */
    const char *was;
    bool unquantized; /* omit quantization_config */
} config_change;

/* BADINPUT (MAP-CONFIG) if the text is no JSON object. */
fsdpck_status config_edit(const char *text, size_t nbytes, const config_change *change,
                          text_buf *out, fsdpck_error *err) FSDPCK_MUST_CHECK;

#endif
