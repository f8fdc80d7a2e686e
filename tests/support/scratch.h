/* scratch.h: a temporary folder for a test, and small files in it.
 *
 *     char dir[SCRATCH_BYTES];
 *     scratch_make(dir);
 *     scratch_write(dir, "a", "text", 4);
 *     ... scratch_path(path, dir, "a") ...
 *     scratch_remove(dir);
 *
 * Each function ends the program on failure. */
#ifndef FSDPCK_TESTS_SUPPORT_SCRATCH_H
#define FSDPCK_TESTS_SUPPORT_SCRATCH_H

#include <stddef.h>

enum { SCRATCH_BYTES = 512 };

/* In $TMPDIR or /tmp. */
void scratch_make(char dir[SCRATCH_BYTES]);
const char *scratch_path(char path[SCRATCH_BYTES], const char *dir, const char *name);
void scratch_write(const char *dir, const char *name, const void *bytes, size_t nbytes);
/* Entries except "." and "..". */
size_t scratch_count(const char *dir);
/* Number of entries whose names end in `suffix`. */
size_t scratch_count_ending(const char *dir, const char *suffix);
void scratch_remove(const char *dir);

#endif
