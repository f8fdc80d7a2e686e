/* scratch.h: a folder of its own for a test, and small files in it.
 *
 *     char dir[SCRATCH_BYTES];
 *     scratch_make(dir);
 *     scratch_write(dir, "a", "text", 4);
 *     ... scratch_path(path, dir, "a") ...
 *     scratch_remove(dir);
 *
 * Each ends the program on failure: a test without its files has nothing to say. */
#ifndef FSDPCK_TESTS_SUPPORT_SCRATCH_H
#define FSDPCK_TESTS_SUPPORT_SCRATCH_H

#include <stddef.h>

enum { SCRATCH_BYTES = 512 };

/* In $TMPDIR or /tmp. */
void scratch_make(char dir[SCRATCH_BYTES]);
const char *scratch_path(char path[SCRATCH_BYTES], const char *dir, const char *name);
void scratch_write(const char *dir, const char *name, const void *bytes, size_t nbytes);
/* Entries but "." and "..". */
size_t scratch_count(const char *dir);
/* Whether an entry's name ends so. */
size_t scratch_count_ending(const char *dir, const char *suffix);
void scratch_remove(const char *dir);

#endif
