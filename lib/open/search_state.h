/* search_state.h: folders of a trainer's state beside that of its weights, and names of folders of parts. */
#ifndef FSDPCK_OPEN_SEARCH_STATE_H
#define FSDPCK_OPEN_SEARCH_STATE_H

#include <stdbool.h>

/* Whether the folder `path` has only state that belongs to the weights in another folder. */
bool search_is_state_folder(const char *weights, const char *path);

/* Whether a trainer stores a part of its state in folders of this name (search_folders.c). */
bool search_is_part_name(const char *name);
/* Of these: a second model, "ema" or "critic". */
bool search_is_part_beside_model(const char *name);

/* "site-packages", "node_modules": packages of Python and JavaScript. */
bool search_is_of_packages(const char *name);

#endif
