/* file.h: positional I/O on files and folders; the only code that knows short reads, EINTR, large
 * offsets and O_DIRECT.
 *
 * Reading:
 *
 *     folder dir;
 *     RETURN_IF(folder_open(&dir, "ckpt", err));
 *     file f;
 *     RETURN_IF(file_open_read(&f, &dir, "__0_0.distcp", 0, err));
 *     st = file_read_at(&f, offset, dst, nbytes, err);        // all of it, or an error
 *     file_abandon(&f);                                       // file_close after writing
 *     folder_close(&dir);
 *
 * All functions are safe to call from many threads on one open file; open and close are not.
 * A file never blocks on open (FIFOs and devices are refused: status BADINPUT, FILE-TYPE).
 * Sources are never mapped into memory: a file cut short under us must be an error, not SIGBUS.
 */
#ifndef FSDPCK_IO_FILE_H
#define FSDPCK_IO_FILE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

struct remote;

typedef struct folder {
    int fd;                      /* -1 when closed, or only others have it */
    char *path;                  /* as given, for messages */
    const struct remote *remote; /* what others see of it (remote.h), borrowed; NULL: nobody else */
} folder;

typedef struct file {
    int fd;        /* -1 when closed; a zeroed `file` with fd 0 is not valid: use FILE_CLOSED */
    int direct_fd; /* second descriptor opened O_DIRECT, or -1 */
    char *path;
    uint64_t nbytes; /* at open */
    uint64_t dev, ino;
    int64_t mtime_ns;
    const struct remote *remote; /* where it lies elsewhere: fd is -1 then */
    uint32_t remote_id;
} file;

#define FILE_CLOSED   ((file){.fd = -1, .direct_fd = -1})
#define FOLDER_CLOSED ((folder){.fd = -1})

typedef enum path_kind { PATH_ABSENT, PATH_FILE, PATH_FOLDER, PATH_OTHER } path_kind;

/* What is at `path` relative to `dir` (NULL: the working folder), links followed. `nbytes` may be
 * NULL. An error other than absence is an error. */
fsdpck_status path_probe(const folder *dir, const char *path, path_kind *kind, uint64_t *nbytes,
                         fsdpck_error *err) FSDPCK_MUST_CHECK;

/* The same, and a number that the same file has on every host that sees it, and other files, copies of it
 * too, have not: of its inode and mtime. 0 where it is no file that is here. */
fsdpck_status path_identify(const folder *dir, const char *path, path_kind *kind, uint64_t *nbytes,
                            uint64_t *identity, fsdpck_error *err) FSDPCK_MUST_CHECK;

fsdpck_status folder_open(folder *d, const char *path, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* The same for names that are known, where the folder lets nobody list it (mode 711). */
fsdpck_status folder_open_search(folder *d, const char *path, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* The folder `name` in `dir`; a link of that name is an error. */
fsdpck_status folder_open_inside(folder *d, const folder *dir, const char *name,
                                 fsdpck_error *err) FSDPCK_MUST_CHECK;
/* The very folder that `from` is, once more; where `from` is closed, that at `path`. */
fsdpck_status folder_open_same(folder *d, const folder *from, const char *path,
                               fsdpck_error *err) FSDPCK_MUST_CHECK;
void folder_close(folder *d);

/* Names in a folder without "." and "..", bytewise sorted. *names is one allocation: free(). At
 * most 2^20 entries (LIMIT). */
fsdpck_status folder_list(const folder *d, const char *sub, char ***names, size_t *count,
                          fsdpck_error *err) FSDPCK_MUST_CHECK;

enum { FILE_NO_FOLLOW = 1 }; /* a link as last component is an error: for names found in files */

/* `dir` may be NULL. Regular files only. */
fsdpck_status file_open_read(file *f, const folder *dir, const char *path, unsigned flags,
                             fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Whether `path`, found inside an input, is a plain one below its folder: relative, no part "..",
 * "." or "", no NUL, at most 4,096 bytes; so that one file has one name. Status BADINPUT with
 * `finding` where it is not. */
fsdpck_status path_check_inside(const char *path, size_t nbytes, fsdpck_finding_id finding,
                                fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Exactly nbytes, or an error: reaching the end of the file is CHANGED ("file became shorter")
 * where offset+nbytes was inside at open, BADINPUT else. */
fsdpck_status file_read_at(const file *f, uint64_t offset, void *dst, uint64_t nbytes,
                           fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Size, mtime, device and inode are still what they were at open; else CHANGED. */
fsdpck_status file_check_unchanged(const file *f, fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Whole small file into malloc'd memory, NUL-terminated besides. LIMIT over limit_bytes. */
fsdpck_status file_read_whole(const folder *dir, const char *path, uint64_t limit_bytes,
                              char **text, size_t *nbytes, fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Buffered positional write of all bytes. */
fsdpck_status file_write_at(const file *f, uint64_t offset, const void *src, uint64_t nbytes,
                            fsdpck_error *err) FSDPCK_MUST_CHECK;

/* O_DIRECT write where the file has it: offset, nbytes and src must be multiples of
 * FILE_DIRECT_ALIGN. A refused direct write (EINVAL) is done buffered. */
#define FILE_DIRECT_ALIGN 4096u
fsdpck_status file_write_direct(file *f, uint64_t offset, const void *src, uint64_t nbytes,
                                fsdpck_error *err) FSDPCK_MUST_CHECK;

fsdpck_status file_truncate(const file *f, uint64_t nbytes, fsdpck_error *err) FSDPCK_MUST_CHECK;
fsdpck_status file_sync(const file *f, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Writes back what is dirty and drops the file from the page cache, so that the next read comes
 * from the storage. */
fsdpck_status file_drop_cache(const file *f, fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Errors of close are errors of the data (NFS): never retried, always looked at after writing. */
fsdpck_status file_close(file *f, fsdpck_error *err) FSDPCK_MUST_CHECK;
void file_abandon(file *f); /* close, errors ignored: for files that were only read */

#endif
