/* search_state.h: folders of a trainer's state beside that of its weights. */
#ifndef FSDPCK_OPEN_SEARCH_STATE_H
#define FSDPCK_OPEN_SEARCH_STATE_H

#include <stdbool.h>

/* Whether the folder `path` has only state that belongs to the weights in another folder. */
bool search_is_state_folder(const char *weights, const char *path);

/* "site-packages", "node_modules": packages of Python and JavaScript. */
bool search_is_of_packages(const char *name);

#endif
