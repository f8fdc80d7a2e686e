/* remote_folder.h: one folder whose files are on the hosts of several ranks.
 *
 *     RETURN_IF(remote_folder_new(g, path, &folder, &view, err));   // by all ranks; folder is closed if this host does not have it
 *     if (view != NULL)
 *         folder.remote = remote_folder_get_remote(view);
 *     ... every rank reads any file of any rank through the functions of io/file.h ...
 *     remote_folder_free(view);                                     // once all ranks have agreed that they are done
 *
 * On a shared file system *view is NULL. If several hosts have a name, each rank reads its own
 * file, and ranks without one read that of the lowest rank; sizes must be equal. The folder and the
 * folders directly inside it are searched.
 */
#ifndef FSDPCK_GROUP_REMOTE_FOLDER_H
#define FSDPCK_GROUP_REMOTE_FOLDER_H

#include "group/group.h"
#include "io/remote.h"

typedef struct remote_folder remote_folder;

enum {
    REMOTE_FOLDER_NO_FOLLOW = 1, /* requests for links are errors */
    REMOTE_FOLDER_BY_HOST = 2    /* files of one name on several hosts are distinct: "HOST:NAME" */
};

/* flags: as above. With REMOTE_FOLDER_BY_HOST, `folder` also lists this host's files by plain name,
 * unless it is closed. BADINPUT (GROUP-NAMES) if two ranks have files of one name and different
 * sizes. IO if no rank has the folder. */
fsdpck_status remote_folder_new(group *g, const char *path, const folder *here, unsigned flags,
                                remote_folder **out, fsdpck_error *err) FSDPCK_MUST_CHECK;
const remote *remote_folder_get_remote(const remote_folder *v);
/* The ranks that have a file, in ascending order; NULL and 0 if none. */
const uint32_t *remote_folder_holders(const remote_folder *v, const char *path, uint32_t *count);
/* Whether a rank is among ascending ones. */
bool ranks_contain(const uint32_t *ranks, uint32_t count, unsigned rank);
/* Total bytes of records received from other ranks; 0 for NULL. */
uint64_t remote_folder_received_nbytes(const remote_folder *v);
/* Whether the files that this rank has read for others are unchanged. */
fsdpck_status remote_folder_check_unchanged(remote_folder *v, fsdpck_error *err) FSDPCK_MUST_CHECK;
void remote_folder_free(remote_folder *v);

#endif
