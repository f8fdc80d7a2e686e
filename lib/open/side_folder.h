/* side_folder.h: the folder with the model's small files, such as config.json: the trainer's own for them
 * (cat_origin.side_folder), else the folder beside whose files the checkpoint is, else the checkpoint's. */
#ifndef FSDPCK_OPEN_SIDE_FOLDER_H
#define FSDPCK_OPEN_SIDE_FOLDER_H

#include "open/checkpoint.h"
#include "open/model_config.h"

/* If the given folder is no checkpoint, but the only one inside was entered: the folder beside whose files
 * it is, to be freed. NULL: none, or the source is a model folder itself. */
char *side_folder_above(const fsdpck_checkpoint *c);
fsdpck_status side_folder_open(const fsdpck_checkpoint *c, folder *dir,
                               fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Its config.json. None of a file that was given itself, or of files on several hosts. Release it also after a failure. */
fsdpck_status side_folder_config(const fsdpck_checkpoint *c, model_config *config,
                                 fsdpck_error *err) FSDPCK_MUST_CHECK;

#endif
