/* step_folder.h: the training step in the name of a checkpoint's folder. */
#ifndef FSDPCK_FORMATS_COMMON_STEP_FOLDER_H
#define FSDPCK_FORMATS_COMMON_STEP_FOLDER_H

#include <stddef.h>
#include <stdint.h>

/* Copies the last component but `skip` of a path into `name`; empty if there is none. */
void path_component(const char *path, unsigned skip, char *name, size_t capacity_bytes);

/* The step (base/step_name.h) of "step-100", "global_step_100", "epoch=1-step=100" and the like, from
 * the last component of the path or the one before it ("global_step_100/actor"); -1 if unknown. */
int64_t step_of_folder(const char *path);

#endif
