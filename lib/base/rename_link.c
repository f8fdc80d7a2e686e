#include "base/rename_link.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

int rename_by_link(int dirfd, const char *from, const char *to)
{
    struct stat st;
    if (fstatat(dirfd, to, &st, AT_SYMLINK_NOFOLLOW) == 0)
        return EEXIST;
    if (errno != ENOENT)
        return errno;
    if (linkat(dirfd, from, dirfd, to, 0) == 0) {
        /* The data has its name; a remaining second name is harmless. */
        (void)unlinkat(dirfd, from, 0);
        return 0;
    }
    if (errno == EEXIST)
        return EEXIST;
    /* A folder, or a file system without links. A folder never replaces a non-empty one. */
    if (renameat(dirfd, from, dirfd, to) == 0)
        return 0;
    return errno == ENOTEMPTY || errno == ENOTDIR || errno == EISDIR ? EEXIST : errno;
}
