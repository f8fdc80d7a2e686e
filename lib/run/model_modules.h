/* model_modules.h: files of a model folder that a server needs beside the weights: settings, tokenizer, and the Python files that
 * `auto_map` in these settings names, with those that they import from the folder. */
#ifndef FSDPCK_RUN_MODEL_MODULES_H
#define FSDPCK_RUN_MODEL_MODULES_H

#include "base/alloc.h"
#include "base/text.h"
#include "io/file.h"

/* Settings and files of tokenizers by their names. */
bool model_modules_is_of_model(const char *name);
/* Adds the names of the Python files without their suffix, whether they are there or not. entries: of the folder. LIMIT, IO. */
fsdpck_status model_modules_find(const folder *dir, char *const *entries, size_t count,
                                 strtab *names, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Appends the names of those that the folder lacks. */
fsdpck_status model_modules_lost(const folder *dir, text_buf *list, uint64_t *lost,
                                 fsdpck_error *err) FSDPCK_MUST_CHECK;

#endif
