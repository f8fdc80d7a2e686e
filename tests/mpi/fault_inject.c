/* Loaded before the C library into the ranks of a run (LD_PRELOAD), so that one of them fails:
 *
 *     FAULT_RANK=2 FAULT_CALL=pwrite FAULT_AT=3 FAULT_DO=kill
 *
 * At the third pwrite to a file whose path has FAULT_PATH in it, rank 2 does FAULT_DO: kill and stop
 * (signals to itself), exit (leaves as if all were well), slow (each such call takes 0.2 s), or an errno by its name, with which that call
 * and all later ones of the kind fail. Calls: open, pread, pwrite, fsync, rename.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

static atomic_int seen;

static const char *word(const char *name)
{
    const char *value = getenv(name);
    return value == NULL ? "" : value;
}

static int is_this_rank(void)
{
    const char *rank = getenv("OMPI_COMM_WORLD_RANK");
    if (rank == NULL)
        rank = word("PMI_RANK");
    return rank[0] != '\0' && strcmp(rank, word("FAULT_RANK")) == 0;
}

static int errno_named(const char *name)
{
    static const struct {
        const char *name;
        int number;
    } all[] = {{"ENOSPC", ENOSPC}, {"EIO", EIO}, {"EACCES", EACCES}};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        if (strcmp(all[i].name, name) == 0)
            return all[i].number;
    abort();
}

/* 0, or the errno with which this call fails. */
static int fault(const char *call, const char *path)
{
    if (strcmp(call, word("FAULT_CALL")) != 0 || strstr(path, word("FAULT_PATH")) == NULL ||
        !is_this_rank())
        return 0;
    const int at = atoi(word("FAULT_AT")), now = atomic_fetch_add(&seen, 1) + 1;
    const char *what = word("FAULT_DO");
    if (now < at)
        return 0;
    if (strcmp(what, "kill") == 0)
        raise(SIGKILL);
    else if (strcmp(what, "stop") == 0)
        kill(getpid(), now == at ? SIGSTOP : 0);
    else if (strcmp(what, "exit") == 0)
        _exit(0);
    else if (strcmp(what, "slow") == 0)
        usleep(200000);
    else
        return errno_named(what);
    return 0;
}

static int fault_fd(const char *call, int fd)
{
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    const ssize_t n = readlink(link, path, sizeof path - 1);
    path[n > 0 ? n : 0] = '\0';
    return fault(call, path);
}

/* Of the next library in line. */
static void *next(const char *name)
{
    void *f = dlsym(RTLD_NEXT, name);
    if (f == NULL)
        abort();
    return f;
}

/* The whole of a function that stands before another: that one's result, or error -1. */
#define PASS_ON(function, fault, ...)          \
    do {                                       \
        static __typeof__(&function) real;     \
        const int e = (fault);                 \
        if (real == NULL)                      \
            *(void **)&real = next(#function); \
        if (e == 0)                            \
            return real(__VA_ARGS__);          \
        errno = e;                             \
        return -1;                             \
    } while (0)

int openat64(int dirfd, const char *path, int flags, ...)
{
    mode_t mode = 0;
    if (flags & (O_CREAT | O_TMPFILE)) {
        va_list list;
        va_start(list, flags);
        mode = va_arg(list, mode_t);
        va_end(list);
    }
    PASS_ON(openat64, fault("open", path), dirfd, path, flags, mode);
}

ssize_t pread64(int fd, void *bytes, size_t nbytes, off64_t at)
{
    PASS_ON(pread64, fault_fd("pread", fd), fd, bytes, nbytes, at);
}

ssize_t pwrite64(int fd, const void *bytes, size_t nbytes, off64_t at)
{
    PASS_ON(pwrite64, fault_fd("pwrite", fd), fd, bytes, nbytes, at);
}

int fsync(int fd)
{
    PASS_ON(fsync, fault_fd("fsync", fd), fd);
}

int fdatasync(int fd)
{
    PASS_ON(fdatasync, fault_fd("fsync", fd), fd);
}

int renameat2(int fromfd, const char *from, int tofd, const char *to, unsigned flags)
{
    PASS_ON(renameat2, fault("rename", from), fromfd, from, tofd, to, flags);
}

int renameat(int fromfd, const char *from, int tofd, const char *to)
{
    PASS_ON(renameat, fault("rename", from), fromfd, from, tofd, to);
}
