/* platform.h: the calls that Linux does better than POSIX, each with its portable twin.
 *
 * platform_linux.c and platform_posix.c define the same names; CMake picks one. What returns int
 * returns 0 or an errno value. Outside this folder only the questions about the machine
 * (processors, memory), platform_memory_file and platform_random are used.
 */
#ifndef FSDPCK_BASE_PLATFORM_H
#define FSDPCK_BASE_PLATFORM_H

#include <stdint.h>

/* Rename that fails with EEXIST where `to` exists. POSIX twin: link + unlink for files; for folders
 * a rename that refuses non-empty targets. */
int platform_rename_noreplace(int dirfd, const char *from, const char *to);
/* Swap two names. POSIX twin: ENOTSUP (caller renames the old one aside first). */
int platform_rename_exchange(int dirfd, const char *a, const char *b);
/* Reserve space without writing. ENOTSUP where the file system cannot. */
int platform_reserve(int fd, uint64_t nbytes);
/* Open a folder for names in it that are known, without the right to list it; *fd or an errno
 * (ENOTSUP: not here). */
int platform_open_search(const char *path, int *fd);
/* Open for direct writing; *fd or an errno (EINVAL, ENOTSUP: not here). */
int platform_open_direct(int dirfd, const char *name, int *fd);
/* Tell the kernel that the file will be read front to back. Advice only. */
void platform_advise_sequential(int fd);
/* Forget what the page cache holds of a file that was written back. Advice only: where it is not
 * taken, the next read is answered from the cache. */
void platform_drop_cache(int fd);
/* Processors this process may use: affinity and cgroup quota, at least 1. */
unsigned platform_cpu_count(void);
/* Least of RAM, cgroup limit and address-space limit, in bytes. */
uint64_t platform_memory_bytes(void);
/* The process's file mode creation mask. POSIX twin: by setting and resetting it. */
unsigned platform_file_mask(void);
/* An empty file without a name, for reading and writing, in memory where that can be; its descriptor
 * is closed on exec. POSIX twin: an unlinked temporary in $TMPDIR or /tmp. */
int platform_memory_file(int *fd);
/* Random bytes (names of temporaries, hash seeds). Never fails. */
void platform_random(void *dst, uint64_t nbytes);

#endif
