/* latest_index.h: the index of numbered files, which is written after them. */
#ifndef FSDPCK_VERIFY_LATEST_INDEX_H
#define FSDPCK_VERIFY_LATEST_INDEX_H

#include "verify/latest_step.h"

/* For a folder of 'model-00001-of-00002.safetensors' without the index: BADINPUT (SAVE-INCOMPLETE) if an older step has
 * one, otherwise a warning (IDX-NONE) if it has a config.json. list[at]: complete without it; older steps follow.
 * The same of models in folders inside, such as unet/ of diffusers. */
fsdpck_status latest_index_check(const latest_step *list, size_t count, size_t at,
                                 const logger *log, fsdpck_error *err) FSDPCK_MUST_CHECK;

#endif
