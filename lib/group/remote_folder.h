/* remote_folder.h: one folder of files that lie on the hosts of several ranks.
 *
 *     RETURN_IF(group_view_new(g, path, &folder, &view, err));   // by all ranks; folder may be closed: not here
 *     if (view != NULL)
 *         folder.remote = group_view_remote(view);
 *     ... every rank reads any file of any rank through the functions of io/file.h ...
 *     group_view_free(view);                                     // once all ranks have agreed that they are done
 *
 * On a file system that all see there is nothing to be done, and *view is NULL. Where a name is on
 * several hosts, each rank reads its own, and who has none that of the lowest rank; sizes must be
 * equal. Files are looked for in the folder and one level down.
 */
#ifndef FSDPCK_GROUP_REMOTE_FOLDER_H
#define FSDPCK_GROUP_REMOTE_FOLDER_H

#include "group/group.h"
#include "io/remote.h"

typedef struct group_view group_view;

enum {
    VIEW_NO_FOLLOW = 1, /* links are errors for whoever asks for them */
    VIEW_BY_HOST = 2    /* files of one name on several hosts are several: "HOST:NAME" */
};

/* flags: of the above. With VIEW_BY_HOST `folder` shows the names of this host without it besides, unless
 * it is closed. BADINPUT (GROUP-NAMES) where two ranks have files of one name and different sizes; IO
 * where none has the folder. */
fsdpck_status group_view_new(group *g, const char *path, const folder *here, unsigned flags,
                             group_view **out, fsdpck_error *err) FSDPCK_MUST_CHECK;
const remote *group_view_remote(const group_view *v);
/* The ranks that have a file, in their order; NULL and 0 where nobody has. */
const uint32_t *group_view_holders(const group_view *v, const char *path, uint32_t *count);
/* Whether a rank is among ascending ones. */
bool group_view_is_among(const uint32_t *ranks, uint32_t count, unsigned rank);
/* Bytes of records that this rank had from others, all in all; NULL has none. */
uint64_t group_view_travelled(const group_view *v);
/* Whether files that this rank has read for others are what they were. */
fsdpck_status group_view_check_unchanged(group_view *v, fsdpck_error *err) FSDPCK_MUST_CHECK;
void group_view_free(group_view *v);

#endif
