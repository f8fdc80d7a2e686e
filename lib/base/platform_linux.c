#define _GNU_SOURCE 1

#include "base/platform.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/cgroup.h"
#include "base/rename_link.h"

/* Some libc versions on Linux lack them. */
enum { NOREPLACE_FLAG = 1, EXCHANGE_FLAG = 2 };

int platform_rename_noreplace(int dirfd, const char *from, const char *to)
{
    if (renameat2(dirfd, from, dirfd, to, NOREPLACE_FLAG) == 0)
        return 0;
    if (errno == EINVAL || errno == ENOSYS || errno == ENOTSUP)
        return rename_by_link(dirfd, from, to);
    return errno;
}

int platform_rename_exchange(int dirfd, const char *a, const char *b)
{
    if (renameat2(dirfd, a, dirfd, b, EXCHANGE_FLAG) == 0)
        return 0;
    return errno == EINVAL || errno == ENOSYS ? ENOTSUP : errno;
}

int platform_reserve(int fd, uint64_t nbytes)
{
    if (nbytes == 0)
        return 0;
    /* The full size at once, not KEEP_SIZE: direct writes inside the file's size need no exclusive
     * lock, extending writes do. */
    while (fallocate(fd, 0, 0, (off_t)nbytes) != 0) {
        if (errno == EINTR)
            continue;
        return errno == EOPNOTSUPP || errno == ENOSYS ? ENOTSUP : errno;
    }
    return 0;
}

int platform_open_search(const char *path, int *fd)
{
    *fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    return *fd >= 0 ? 0 : errno;
}

int platform_open_direct(int dirfd, const char *name, int *fd)
{
    *fd = openat(dirfd, name, O_WRONLY | O_DIRECT | O_NOFOLLOW | O_CLOEXEC);
    return *fd >= 0 ? 0 : errno;
}

void platform_drop_cache(int fd)
{
    (void)posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
}

void platform_discard(void *memory, uint64_t nbytes)
{
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), at = (uintptr_t)memory;
    const uintptr_t skipped = (page - at % page) % page;
    if (nbytes >= skipped + page)
        (void)madvise((uint8_t *)memory + skipped, (nbytes - skipped) / page * page, MADV_DONTNEED);
}

static unsigned affinity_count(void)
{
    /* The kernel refuses a mask smaller than its own: grow until it fits. */
    for (int bits = 1024; bits <= 1 << 20; bits *= 2) {
        cpu_set_t *mask = CPU_ALLOC(bits);
        if (mask == NULL)
            return 1;
        const size_t nbytes = CPU_ALLOC_SIZE(bits);
        const int rc = sched_getaffinity(0, nbytes, mask);
        const int count = rc == 0 ? CPU_COUNT_S(nbytes, mask) : 0;
        CPU_FREE(mask);
        if (rc == 0)
            return count > 0 ? (unsigned)count : 1;
        if (errno != EINVAL)
            break;
    }
    const long online = sysconf(_SC_NPROCESSORS_ONLN);
    return online > 0 ? (unsigned)online : 1;
}

unsigned platform_cpu_count(void)
{
    const unsigned cpus = affinity_count();
    const cgroup_limits limits = cgroup_limits_read("/proc/self/cgroup", "/sys/fs/cgroup");
    return limits.cpus > 0 && limits.cpus < cpus ? limits.cpus : cpus;
}

uint64_t platform_memory_bytes(void)
{
    const long pages = sysconf(_SC_PHYS_PAGES);
    const long page_nbytes = sysconf(_SC_PAGESIZE);
    uint64_t nbytes = UINT64_MAX;
    if (pages > 0 && page_nbytes > 0)
        nbytes = (uint64_t)pages * (uint64_t)page_nbytes;
    const cgroup_limits limits = cgroup_limits_read("/proc/self/cgroup", "/sys/fs/cgroup");
    if (limits.memory_bytes > 0 && limits.memory_bytes < nbytes)
        nbytes = limits.memory_bytes;
    struct rlimit space;
    if (getrlimit(RLIMIT_AS, &space) == 0 && space.rlim_cur != RLIM_INFINITY &&
        space.rlim_cur < nbytes)
        nbytes = space.rlim_cur;
    return nbytes;
}

/* Of the system call, in case its header is missing. */
enum { MEMORY_PREFERRED = 1, NODES_MAX = 1024, WORD_BITS = 8 * sizeof(unsigned long) };

/* Large pages are also registered with devices faster. Both are advice: a container may forbid mbind. */
void *platform_pages_new(uint64_t nbytes, int node)
{
    unsigned long nodes[NODES_MAX / WORD_BITS] = {0};
    void *p = mmap(NULL, nbytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        return NULL;
    (void)madvise(p, nbytes, MADV_HUGEPAGE);
    if (node >= 0 && node < NODES_MAX) {
        nodes[(unsigned)node / WORD_BITS] = 1ul << (unsigned)node % WORD_BITS;
        (void)syscall(SYS_mbind, p, nbytes, MEMORY_PREFERRED, nodes, NODES_MAX + 1ul, 0u);
    }
    return p;
}

void platform_pages_free(void *pages, uint64_t nbytes)
{
    if (pages != NULL)
        (void)munmap(pages, nbytes);
}

int platform_device_node(const char *pci_address)
{
    char path[128] = "/sys/bus/pci/devices/";
    size_t at = strlen(path);
    int node = -1;
    for (; *pci_address != '\0' && at < sizeof path - 16; pci_address++)
        path[at++] = (char)tolower((unsigned char)*pci_address);
    (void)snprintf(path + at, sizeof path - at, "/numa_node");
    FILE *f = fopen(path, "re");
    if (f == NULL)
        return -1;
    if (fscanf(f, "%d", &node) != 1)
        node = -1;
    fclose(f);
    return node;
}

unsigned platform_file_mask(void)
{
    /* Read from /proc if possible: setting it, even briefly, affects other threads. */
    FILE *f = fopen("/proc/self/status", "re");
    char line[256];
    unsigned mask = 0;
    int known = 0;
    while (f != NULL && !known && fgets(line, sizeof(line), f) != NULL) {
        if (strncmp(line, "Umask:", 6) == 0) {
            mask = (unsigned)strtoul(line + 6, NULL, 8) & 0777;
            known = 1;
        }
    }
    if (f != NULL)
        fclose(f);
    if (known)
        return mask;
    const mode_t old = umask(077);
    (void)umask(old);
    return old;
}

#define MEMORY_FILE "fsdpck"

int platform_memory_file(int *fd)
{
    *fd = memfd_create(MEMORY_FILE, MFD_CLOEXEC);
    return *fd < 0 ? errno : 0;
}

/* Nothing else is opened: on another host the process may be any, and opening a device has effects. */
int platform_open_memory_file(uint64_t process, int of, int *fd)
{
    static const char target[] = "/memfd:" MEMORY_FILE " ";
    char path[64], link[64];
    *fd = -1;
    (void)snprintf(path, sizeof path, "/proc/%llu/fd/%d", (unsigned long long)process, of);
    const ssize_t n = readlink(path, link, sizeof link);
    if (n < 0)
        return errno;
    if ((size_t)n < sizeof target - 1 || memcmp(link, target, sizeof target - 1) != 0)
        return ENOENT;
    *fd = openat(AT_FDCWD, path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    return *fd < 0 ? errno : 0;
}

void platform_random(void *dst, uint64_t nbytes)
{
    uint8_t *p = dst;
    while (nbytes > 0) {
        const ssize_t n = getrandom(p, nbytes < 256 ? (size_t)nbytes : 256, GRND_NONBLOCK);
        if (n > 0) {
            p += n;
            nbytes -= (uint64_t)n;
        } else if (errno != EINTR) {
            break;
        }
    }
    /* Refused (a sandbox) or too early after boot. Names are created exclusively and tables are
     * correct with any seed, so the clock suffices. */
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    uint64_t x = (uint64_t)now.tv_nsec * 0x9E3779B97F4A7C15u ^ (uint64_t)now.tv_sec ^
                 ((uint64_t)getpid() << 32) ^ (uintptr_t)&now;
    for (; nbytes > 0; nbytes--) {
        x = x * 6364136223846793005u + 1442695040888963407u;
        *p++ = (uint8_t)(x >> 56);
    }
}
