/* lost_components.h: warnings (WEIGHTS-LOST) about a pipeline of diffusers and a model of sentence-transformers. Their
 * `model_index.json`, `modules.json` and `router_config.json` name the folders of their parts. */
#ifndef FSDPCK_OPEN_LOST_COMPONENTS_H
#define FSDPCK_OPEN_LOST_COMPONENTS_H

#include "formats/format.h"

/* Folders that `around` lacks, empty ones, and those that should have weights and have none. */
void lost_components_warn(const probe_input *around, const logger *log);

/* Opens a folder directly below that has a config.json; then the caller releases *in. */
bool lost_components_open(const probe_input *around, const char *name, probe_input *in);

#endif
