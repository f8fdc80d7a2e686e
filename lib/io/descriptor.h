/* descriptor.h: small helpers over descriptors, for the files of this folder. */
#ifndef FSDPCK_IO_DESCRIPTOR_H
#define FSDPCK_IO_DESCRIPTOR_H

#include <stdbool.h>
#include <sys/types.h>

/* openat with O_CLOEXEC, repeated after EINTR. Never returns descriptor 0, 1 or 2: a program
 * started with a closed stdout must not print into a data file. Returns 0 or an errno value. */
int descriptor_open(int dirfd, const char *path, int flags, mode_t mode, int *fd);

/* Moves a descriptor above 2. Returns 0 or an errno value; closes it on failure. */
int descriptor_lift(int *fd);

/* Whether to repeat a call that failed with sys_errno: EINTR always, EAGAIN a bounded number of
 * times after a short sleep. *tries starts at 0. */
bool descriptor_retry(int sys_errno, unsigned *tries);

#endif
