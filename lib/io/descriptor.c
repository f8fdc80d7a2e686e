#include "io/descriptor.h"

#include <errno.h>
#include <fcntl.h>
#include <time.h>
#include <unistd.h>

enum { EAGAIN_TRIES = 1000 };

int descriptor_lift(int *fd)
{
    if (*fd > 2)
        return 0;
    const int higher = fcntl(*fd, F_DUPFD_CLOEXEC, 3);
    const int sys_errno = errno;
    close(*fd);
    *fd = higher;
    return higher >= 0 ? 0 : sys_errno;
}

int descriptor_open(int dirfd, const char *path, int flags, mode_t mode, int *fd)
{
    do {
        *fd = openat(dirfd, path, flags | O_CLOEXEC, mode);
    } while (*fd < 0 && errno == EINTR);
    return *fd >= 0 ? descriptor_lift(fd) : errno;
}

bool descriptor_retry(int sys_errno, unsigned *tries)
{
    if (sys_errno == EINTR)
        return true;
    if (sys_errno != EAGAIN || ++*tries > EAGAIN_TRIES)
        return false;
    const struct timespec pause = {.tv_nsec = 1000000};
    nanosleep(&pause, NULL);
    return true;
}
