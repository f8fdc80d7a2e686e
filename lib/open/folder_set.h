/* folder_set.h: folders that a search has seen; links may lead to the same folder again, or in a circle. */
#ifndef FSDPCK_OPEN_FOLDER_SET_H
#define FSDPCK_OPEN_FOLDER_SET_H

#include "base/alloc.h"
#include "io/file.h"

typedef struct folder_set {
    strtab ids; /* bytes of a folder_id */
} folder_set;

void folder_set_init(folder_set *s);
/* *is_new: it was not in the set. */
fsdpck_status folder_set_add(folder_set *s, const folder_id *id, bool *is_new,
                             fsdpck_error *err) FSDPCK_MUST_CHECK;
void folder_set_release(folder_set *s);

#endif
