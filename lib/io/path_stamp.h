/* path_stamp.h: whether another program wrote a file in place, under the same name and inode.
 *
 *     path_stamp before, now;
 *     RETURN_IF(path_stamp_get(&before, &dir, name, err));
 *     ...
 *     RETURN_IF(path_stamp_get(&now, &dir, new_name, err));    // a rename changes nothing
 *     if (now.kind != PATH_ABSENT && !path_stamp_is_same(&before, &now))
 *         return path_stamp_error(...);
 *
 * Links are not followed: a stamp is that of the object which a removal removes. ctime is not compared, as
 * renames and links change it. Of folders only the kind is compared, as mtime changes with their names.
 *
 * Limits: file systems count mtime in steps, such as a clock tick (1 to 10 ms) on ext4 and XFS. A
 * write that keeps the size and is in the step of the write before it is not seen. Network file
 * systems may show writes of other hosts late, and writes through a memory map may change the mtime
 * late. A program that sets the mtime back is not seen.
 */
#ifndef FSDPCK_IO_PATH_STAMP_H
#define FSDPCK_IO_PATH_STAMP_H

#include <sys/stat.h>

#include "io/file.h"

/* Zeroed: absent. */
typedef struct path_stamp {
    path_kind kind; /* a link is PATH_OTHER */
    uint64_t nbytes;
    int64_t mtime_ns;
} path_stamp;

/* From lstat. */
path_stamp path_stamp_from(const struct stat *st);

/* `path` relative to `dir` (NULL: the working folder). */
fsdpck_status path_stamp_get(path_stamp *stamp, const folder *dir, const char *path,
                             fsdpck_error *err) FSDPCK_MUST_CHECK;

bool path_stamp_is_same(const path_stamp *a, const path_stamp *b);

/* EXISTS: `name` in the output `shown`, or "" for the output itself, is no longer what it was. */
fsdpck_status path_stamp_error(const path_stamp *before, const path_stamp *now, const char *shown,
                               const char *name, fsdpck_error *err);

#endif
