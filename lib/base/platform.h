/* platform.h: calls for which Linux has more than POSIX, each with a portable version.
 *
 * platform_linux.c and platform_posix.c define the same names; CMake selects one. Functions of type
 * int return 0 or an errno value. Other folders use only the questions about the machine
 * (processors, memory), pages, platform_memory_file and platform_random.
 */
#ifndef FSDPCK_BASE_PLATFORM_H
#define FSDPCK_BASE_PLATFORM_H

#include <stdint.h>

/* Rename that fails with EEXIST if `to` exists. POSIX: link + unlink for files; for folders a
 * rename that refuses non-empty targets. */
int platform_rename_noreplace(int dirfd, const char *from, const char *to);
/* Swaps two names. POSIX: ENOTSUP (the caller renames the old one first). */
int platform_rename_exchange(int dirfd, const char *a, const char *b);
/* Reserves space without writing. ENOTSUP if the file system cannot. */
int platform_reserve(int fd, uint64_t nbytes);
/* Opens a folder for access to known names, without the right to list it; *fd or an errno (ENOTSUP:
 * not supported). */
int platform_open_search(const char *path, int *fd);
/* Opens for direct writing; *fd or an errno (EINVAL, ENOTSUP: not supported). */
int platform_open_direct(int dirfd, const char *name, int *fd);
/* Drops a written-back file from the page cache. Advice only: if ignored, the next read comes from
 * the cache. */
void platform_drop_cache(int fd);
/* Processors that this process may use: affinity and cgroup quota, at least 1. */
unsigned platform_cpu_count(void);
/* Smallest of RAM, cgroup limit and address-space limit, in bytes. */
uint64_t platform_memory_bytes(void);
/* Gives memory back to the system until it is written again: its contents are then undefined. Advice
 * only; POSIX: nothing. */
void platform_discard(void *memory, uint64_t nbytes);
/* Whole pages, large ones if possible, in memory of this NUMA node if possible (-1: of any). NULL: none
 * left. POSIX: pages of any kind. */
void *platform_pages_new(uint64_t nbytes, int node);
void platform_pages_free(void *pages, uint64_t nbytes);
/* NUMA node of a device, by its PCI address "0000:3B:00.0"; -1: unknown. POSIX: unknown. */
int platform_device_node(const char *pci_address);
/* The process's file mode creation mask. POSIX: by setting and restoring it. */
unsigned platform_file_mask(void);
/* An empty nameless file for reading and writing, in memory if possible; its descriptor is closed
 * on exec. POSIX: an unlinked temporary in $TMPDIR or /tmp. */
int platform_memory_file(int *fd);
/* Opens for reading what platform_memory_file made in another process of this host and user: its
 * process id and descriptor. Any errno if that is impossible, as between containers; maybe such a file
 * of another process of that id, so check the contents. POSIX: ENOTSUP. */
int platform_open_memory_file(uint64_t process, int of, int *fd);
/* Random bytes (names of temporaries, hash seeds). Never fails. */
void platform_random(void *dst, uint64_t nbytes);

#endif
