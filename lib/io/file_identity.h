/* file_identity.h: whether a file is still the one that was opened. */
#ifndef FSDPCK_IO_FILE_IDENTITY_H
#define FSDPCK_IO_FILE_IDENTITY_H

#include "io/file.h"

/* CHANGED if the size, mtime, ctime, device or inode of `now` differ from those of `before`. The
 * message names what differs. */
fsdpck_status file_identity_check(const file *before, const file *now,
                                  fsdpck_error *err) FSDPCK_MUST_CHECK;

#endif
