#include "io/dead_link.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

bool dead_link_target(const folder *dir, const char *path, char *target, size_t capacity_bytes)
{
    struct stat st;
    const int fd = dir == NULL ? AT_FDCWD : dir->fd;
    if ((dir != NULL && fd < 0) || fstatat(fd, path, &st, 0) == 0 || errno != ENOENT)
        return false;
    const ssize_t n = readlinkat(fd, path, target, capacity_bytes - 1);
    target[n < 0 ? 0 : n] = '\0';
    return n >= 0;
}

fsdpck_status dead_link_error(const folder *dir, const char *path, int sys_errno, const char *shown,
                              fsdpck_error *err)
{
    char target[300];
    if (sys_errno != ENOENT || !dead_link_target(dir, path, target, sizeof target))
        return error_set_errno(err, sys_errno, "open", shown);
    return FAIL_WITH(
        err, BADINPUT, FILE_MISSING, ("file is a link to '%s', which does not exist", target),
        (path, shown), (sys_errno, ENOENT),
        (next, "restore the target of the link, or copy the file itself in its place"));
}
