/* remote_folder.h: one folder of files that lie on the hosts of several ranks.
 *
 *     RETURN_IF(remote_folder_new(g, path, &folder, &view, err));   // by all ranks; folder may be closed: not here
 *     if (view != NULL)
 *         folder.remote = remote_folder_get_remote(view);
 *     ... every rank reads any file of any rank through the functions of io/file.h ...
 *     remote_folder_free(view);                                     // once all ranks have agreed that they are done
 *
 * On a file system that all see there is nothing to be done, and *view is NULL. Where a name is on
 * several hosts, each rank reads its own, and who has none that of the lowest rank; sizes must be
 * equal. Files are looked for in the folder and one level down.
 */
#ifndef FSDPCK_GROUP_REMOTE_FOLDER_H
#define FSDPCK_GROUP_REMOTE_FOLDER_H

#include "group/group.h"
#include "io/remote.h"

typedef struct remote_folder remote_folder;

enum {
    REMOTE_FOLDER_NO_FOLLOW = 1, /* links are errors for whoever asks for them */
    REMOTE_FOLDER_BY_HOST = 2    /* files of one name on several hosts are several: "HOST:NAME" */
};

/* flags: of the above. With REMOTE_FOLDER_BY_HOST `folder` shows the names of this host without it besides, unless
 * it is closed. BADINPUT (GROUP-NAMES) where two ranks have files of one name and different sizes; IO
 * where none has the folder. */
fsdpck_status remote_folder_new(group *g, const char *path, const folder *here, unsigned flags,
                                remote_folder **out, fsdpck_error *err) FSDPCK_MUST_CHECK;
const remote *remote_folder_get_remote(const remote_folder *v);
/* The ranks that have a file, in their order; NULL and 0 where nobody has. */
const uint32_t *remote_folder_holders(const remote_folder *v, const char *path, uint32_t *count);
/* Whether a rank is among ascending ones. */
bool ranks_contain(const uint32_t *ranks, uint32_t count, unsigned rank);
/* Bytes of records that this rank had from others, all in all; NULL has none. */
uint64_t remote_folder_received_nbytes(const remote_folder *v);
/* Whether files that this rank has read for others are what they were. */
fsdpck_status remote_folder_check_unchanged(remote_folder *v, fsdpck_error *err) FSDPCK_MUST_CHECK;
void remote_folder_free(remote_folder *v);

#endif
