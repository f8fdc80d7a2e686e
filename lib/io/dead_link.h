/* dead_link.h: links whose target is absent, as after an unmount or in a copied cache of links. */
#ifndef FSDPCK_IO_DEAD_LINK_H
#define FSDPCK_IO_DEAD_LINK_H

#include "io/file.h"

/* Its target, cut to the capacity with its NUL. False if `path` relative to `dir` (NULL: the current folder) is no such
 * link. */
bool dead_link_target(const folder *dir, const char *path, char *target, size_t capacity_bytes);

/* The error of a file that could not be opened: FILE-MISSING for a dead link, else that of the errno. `shown` is its
 * path in the message. */
fsdpck_status dead_link_error(const folder *dir, const char *path, int sys_errno, const char *shown,
                              fsdpck_error *err);

#endif
