/* nested_folders.h: folders directly below a checkpoint that it does not read, and that are checkpoints of their
 * own or should be by their names, such as 'optimizer_0'. Steps of a run are omitted. */
#ifndef FSDPCK_OPEN_NESTED_FOLDERS_H
#define FSDPCK_OPEN_NESTED_FOLDERS_H

#include <stdbool.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/status.h"
#include "fsdpck.h"
#include "state/catalogue.h"

typedef struct nested_folder {
    char *path;
    bool has_reader; /* otherwise it contains no checkpoint */
    bool is_state;   /* only files of a trainer's state that state_list.h lists */
    bool of_trainer; /* search_is_state_folder: kept apart from the weights */
    bool of_consolidation;
} nested_folder;
typedef struct nested_folders {
    vec list;                  /* nested_folder */
    uint64_t unread;           /* entries that cannot be read, and may be such folders */
    fsdpck_error first_unread; /* the cause, with the path */
} nested_folders;

/* By its name, a step of a run: 'checkpoint-500' beside the final weights is no part of them. */
bool nested_folder_is_step(const char *name);
/* By its name, the same weights before torch consolidated them (HuggingFaceStorageWriter): WEIGHTS-BESIDE names it. */
bool nested_folder_is_of_consolidation(const char *name);
void nested_folders_init(nested_folders *l);
fsdpck_status nested_folders_add(nested_folders *l, const fsdpck_checkpoint *c,
                                 fsdpck_error *err) FSDPCK_MUST_CHECK;
/* SIDE-UNREAD if entries cannot be read. */
void nested_folders_warn_unread(const nested_folders *l, const logger *log);
void nested_folders_release(nested_folders *l);

#endif
