/* lost_components.h: warnings (WEIGHTS-LOST) about a pipeline of diffusers and a model of sentence-transformers. Their
 * `model_index.json`, `modules.json` and `router_config.json` name the folders of their parts. */
#ifndef FSDPCK_OPEN_LOST_COMPONENTS_H
#define FSDPCK_OPEN_LOST_COMPONENTS_H

#include "open/checkpoint.h"

/* Folders that `around` lacks, empty ones, those that should have weights and have none, and modules Dense whose weight is lost
 * or of another shape than their config.json states (EXPORT-KEYS, EXPORT-CONFIG). */
void lost_components_warn(const probe_input *around, fsdpck_context *ctx, checkpoint_open_fn open);

/* Opens a folder directly below that has a config.json; then the caller releases *in. */
bool lost_components_open(const probe_input *around, const char *name, probe_input *in);

#endif
