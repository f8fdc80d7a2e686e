#include "base/platform.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/rename_link.h"

int platform_rename_noreplace(int dirfd, const char *from, const char *to)
{
    return rename_by_link(dirfd, from, to);
}

int platform_rename_exchange(int dirfd, const char *a, const char *b)
{
    (void)dirfd;
    (void)a;
    (void)b;
    return ENOTSUP;
}

int platform_reserve(int fd, uint64_t nbytes)
{
    /* posix_fallocate may write zeros, which costs as much as the output itself. */
    (void)fd;
    return nbytes == 0 ? 0 : ENOTSUP;
}

int platform_open_search(const char *path, int *fd)
{
    (void)path;
    *fd = -1;
    return ENOTSUP;
}

int platform_open_direct(int dirfd, const char *name, int *fd)
{
    (void)dirfd;
    (void)name;
    *fd = -1;
    return ENOTSUP;
}

void platform_drop_cache(int fd)
{
    (void)fd;
}

void platform_discard(void *memory, uint64_t nbytes)
{
    (void)memory, (void)nbytes;
}

unsigned platform_cpu_count(void)
{
    const long online = sysconf(_SC_NPROCESSORS_ONLN);
    return online > 0 ? (unsigned)online : 1;
}

uint64_t platform_memory_bytes(void)
{
    uint64_t nbytes = UINT64_C(4) << 30;
    const long pages = sysconf(_SC_PHYS_PAGES);
    const long page_nbytes = sysconf(_SC_PAGESIZE);
    if (pages > 0 && page_nbytes > 0)
        nbytes = (uint64_t)pages * (uint64_t)page_nbytes;
    struct rlimit space;
    if (getrlimit(RLIMIT_AS, &space) == 0 && space.rlim_cur != RLIM_INFINITY &&
        space.rlim_cur < nbytes)
        nbytes = space.rlim_cur;
    return nbytes;
}

void *platform_pages_new(uint64_t nbytes, int node)
{
    (void)node;
    const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    return nbytes > UINT64_MAX - page ? NULL
                                      : aligned_alloc(page, (nbytes + page - 1) / page * page);
}

void platform_pages_free(void *pages, uint64_t nbytes)
{
    (void)nbytes;
    free(pages);
}

int platform_device_node(const char *pci_address)
{
    (void)pci_address;
    return -1;
}

unsigned platform_file_mask(void)
{
    const mode_t old = umask(077);
    (void)umask(old);
    return (unsigned)old;
}

int platform_memory_file(int *fd)
{
    char path[4096];
    const char *dir = getenv("TMPDIR");
    const int n = snprintf(path, sizeof path, "%s/fsdpck.XXXXXX",
                           dir != NULL && dir[0] != '\0' ? dir : "/tmp");
    *fd = -1;
    if (n < 0 || (size_t)n >= sizeof path)
        return ENAMETOOLONG;
    *fd = mkstemp(path);
    if (*fd < 0)
        return errno;
    (void)fcntl(*fd, F_SETFD, FD_CLOEXEC);
    (void)unlink(path);
    return 0;
}

int platform_open_memory_file(uint64_t process, int of, int *fd)
{
    (void)process;
    (void)of;
    *fd = -1;
    return ENOTSUP;
}

void platform_random(void *dst, uint64_t nbytes)
{
    uint8_t *p = dst;
    const int fd = open("/dev/urandom", O_RDONLY | O_CLOEXEC);
    while (fd >= 0 && nbytes > 0) {
        const ssize_t n = read(fd, p, nbytes < 256 ? (size_t)nbytes : 256);
        if (n > 0) {
            p += n;
            nbytes -= (uint64_t)n;
        } else if (n == 0 || errno != EINTR) {
            break;
        }
    }
    if (fd >= 0)
        close(fd);
    /* Names are created exclusively and tables are correct with any seed: the clock suffices. */
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    uint64_t x = (uint64_t)now.tv_nsec * 0x9E3779B97F4A7C15u ^ (uint64_t)now.tv_sec ^
                 ((uint64_t)getpid() << 32) ^ (uintptr_t)&now;
    for (; nbytes > 0; nbytes--) {
        x = x * 6364136223846793005u + 1442695040888963407u;
        *p++ = (uint8_t)(x >> 56);
    }
}
