/* file_set.h: many files of one folder, opened at first read, a limited number open at once.
 *
 *     file_set s;
 *     file_set_init(&s, &folder, max_open, flags, &err);     // 0: from RLIMIT_NOFILE
 *     file_set_add(&s, "__0_0.distcp", &index, &err);        // no I/O
 *     file_set_read_at(&s, index, offset, dst, nbytes, &err);   // many threads
 *     file_set_check_unchanged(&s, &err);
 *     file_set_release(&s);
 *
 * Opening and reading happen outside the lock, so that slow storage serves many files at once. A
 * file that is closed and opened again must be unchanged (CHANGED).
 */
#ifndef FSDPCK_IO_FILE_SET_H
#define FSDPCK_IO_FILE_SET_H

#include "base/alloc.h"
#include "io/file.h"
#include "io/open_cache.h"

typedef struct file_set {
    const folder *dir; /* borrowed for the life of the set */
    open_cache cache;  /* its lock guards the rest */
    vec files;         /* struct file_set_entry */
    unsigned flags;
} file_set;

/* max_open 0: a quarter of RLIMIT_NOFILE (a run may hold two checkpoints and its output). flags:
 * FILE_NO_FOLLOW. `dir` may be NULL: paths are relative to the working folder. */
fsdpck_status file_set_init(file_set *s, const folder *dir, unsigned max_open, unsigned flags,
                            fsdpck_error *err) FSDPCK_MUST_CHECK;
/* `path` is copied. May be called during reads. */
fsdpck_status file_set_add(file_set *s, const char *path, uint32_t *index,
                           fsdpck_error *err) FSDPCK_MUST_CHECK;
/* What path_identify found: a file that differs when it is first opened is CHANGED. identity 0: not
 * compared. Before any read. */
void file_set_expect(file_set *s, uint32_t index, uint64_t nbytes, uint64_t identity);
/* Size at first open; opens it. */
fsdpck_status file_set_nbytes(file_set *s, uint32_t index, uint64_t *nbytes,
                              fsdpck_error *err) FSDPCK_MUST_CHECK;
/* file_identify of a file that was opened, or what file_set_expect has; 0: unknown. */
uint64_t file_set_identity(file_set *s, uint32_t index);
fsdpck_status file_set_read_at(file_set *s, uint32_t index, uint64_t offset_bytes, void *dst,
                               uint64_t nbytes, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* CRC-64 of a few blocks of the file, including the first and the last: distinguishes different
 * files of one size, not damaged copies from intact ones. */
fsdpck_status file_set_sample(file_set *s, uint32_t index, uint64_t nbytes, uint64_t *crc,
                              fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Checks every file that was read. */
fsdpck_status file_set_check_unchanged(file_set *s, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Path of an added file, borrowed for the life of the set. */
const char *file_set_path(file_set *s, uint32_t index);
/* Accepts a zeroed set. No reads may be in progress. */
void file_set_release(file_set *s);

#endif
