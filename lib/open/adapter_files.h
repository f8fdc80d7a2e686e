/* adapter_files.h: the two forms of an adapter's weights. */
#ifndef FSDPCK_OPEN_ADAPTER_FILES_H
#define FSDPCK_OPEN_ADAPTER_FILES_H

#include "state/catalogue.h"

/* Whether the entry is 'adapter_model.bin' beside 'adapter_model.safetensors', which is read, as by PEFT. */
bool adapter_files_is_other(const catalogue *read, const char *entry);
/* *weights: those of the adapter, if the folder also contains a base model; else NULL. Free it. */
fsdpck_status adapter_files_choose(const char *path, char **weights,
                                   fsdpck_error *err) FSDPCK_MUST_CHECK;

#endif
