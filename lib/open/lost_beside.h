/* lost_beside.h: warnings (WEIGHTS-LOST) of folders inside or beside a checkpoint that describe weights and have none. */
#ifndef FSDPCK_OPEN_LOST_BESIDE_H
#define FSDPCK_OPEN_LOST_BESIDE_H

#include "open/checkpoint.h"

/* Of an open checkpoint. has_adapters: it has a file of an adapter. */
void lost_beside_warn(const fsdpck_checkpoint *c, bool has_adapters, checkpoint_open_fn open);

/* Whether a checkpoint is a folder directly below another one, with a config.json. */
bool lost_beside_is_model(const char *path, const char *around);
/* Folders with the config of a model alone. Only where a folder beside them is such a model. */
void lost_beside_warn_models(const probe_input *around, const logger *log);

#endif
