/* file.h: positional I/O on files and folders; the only code that handles short reads, EINTR, large
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
 * Many threads may call these functions on one open file; open and close are not thread-safe.
 * Opening never blocks (FIFOs and devices are refused: status BADINPUT, FILE-TYPE). Sources are
 * never mapped into memory: a file truncated during the run must be an error, not SIGBUS.
 */
#ifndef FSDPCK_IO_FILE_H
#define FSDPCK_IO_FILE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

struct remote;

typedef struct folder {
    int fd;                      /* -1 if closed, or only on remote hosts */
    char *path;                  /* as given, for messages */
    const struct remote *remote; /* the remote view of the folder (remote.h), borrowed; NULL:
                                  * none */
} folder;

typedef struct file {
    int fd;        /* -1 if closed; a zeroed `file` with fd 0 is not valid: use FILE_CLOSED */
    int direct_fd; /* second descriptor opened O_DIRECT, or -1 */
    char *path;
    uint64_t nbytes; /* at open */
    uint64_t dev, ino;
    int64_t mtime_ns, ctime_ns;
    uint64_t links, mode, uid, gid; /* they explain a changed ctime */
    const struct remote *remote;    /* set for a remote file: fd is -1 then */
    uint32_t remote_id;
} file;

#define FILE_CLOSED   ((file){.fd = -1, .direct_fd = -1})
#define FOLDER_CLOSED ((folder){.fd = -1})

typedef enum path_kind { PATH_ABSENT, PATH_FILE, PATH_FOLDER, PATH_OTHER } path_kind;

/* Kind and size of `path` relative to `dir` (NULL: the working folder), following links. `nbytes`
 * may be NULL. An error other than absence is an error. */
fsdpck_status path_probe(const folder *dir, const char *path, path_kind *kind, uint64_t *nbytes,
                         fsdpck_error *err) FSDPCK_MUST_CHECK;

/* The same, and a number made from inode, mtime and ctime: equal for one file on every host that shares
 * it, different for other files, including copies. 0 if it is not a local file. `mtime_ns` may be NULL;
 * INT64_MIN if it is not a local file. */
fsdpck_status path_identify(const folder *dir, const char *path, path_kind *kind, uint64_t *nbytes,
                            uint64_t *identity, int64_t *mtime_ns,
                            fsdpck_error *err) FSDPCK_MUST_CHECK;

/* The same number of an open file; 0 if it is remote. */
uint64_t file_identify(const file *f);

/* Whether `path` relative to `dir` is a link whose target is absent, as after an unmount. */
bool path_is_dangling(const folder *dir, const char *path);

fsdpck_status folder_open(folder *d, const char *path, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* The folder that contains `path`, for access to known names: it may forbid listing (mode 711). */
fsdpck_status folder_open_parent(folder *d, const char *path, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* The folder `name` in `dir`; a link of that name is an error. */
fsdpck_status folder_open_inside(folder *d, const folder *dir, const char *name,
                                 fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Opens the folder `from` again; if `from` is closed, the folder at `path`. */
fsdpck_status folder_open_same(folder *d, const folder *from, const char *path,
                               fsdpck_error *err) FSDPCK_MUST_CHECK;
void folder_close(folder *d);

/* Equal for two paths to one folder. */
typedef struct folder_id {
    uint64_t dev, ino;
} folder_id;
/* False for a folder that is not local. */
bool folder_identify(const folder *d, folder_id *id);

/* Names in a folder without "." and "..", bytewise sorted. *names is one allocation: free(). At
 * most 2^20 entries (LIMIT). */
fsdpck_status folder_list(const folder *d, const char *sub, char ***names, size_t *count,
                          fsdpck_error *err) FSDPCK_MUST_CHECK;

enum { FILE_NO_FOLLOW = 1 }; /* links below `dir` are errors: for names found in files */

/* `dir` may be NULL. Regular files only. */
fsdpck_status file_open_read(file *f, const folder *dir, const char *path, unsigned flags,
                             fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Checks that `path`, read from an input, is a plain path inside its folder: relative, no part
 * "..", "." or "", no NUL, at most 4,096 bytes. Hence one file has one name. Otherwise BADINPUT
 * with `finding`. */
fsdpck_status path_check_inside(const char *path, size_t nbytes, fsdpck_finding_id finding,
                                fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Folders between `dir`, which may be NULL, and the file. BADINPUT (FILE-TYPE) if one is a symbolic link. */
fsdpck_status path_check_folders(const folder *dir, const char *path,
                                 fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Reads exactly nbytes, or fails. Reaching the end of the file is CHANGED ("file was truncated") if
 * offset+nbytes was inside at open, otherwise BADINPUT. */
fsdpck_status file_read_at(const file *f, uint64_t offset, void *dst, uint64_t nbytes,
                           fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Whether two files have the same bytes; false if one of them cannot be read. Reads up to the first difference. */
bool file_has_same_bytes(const file *a, const file *b);

/* CHANGED if it is no longer the file that was opened (file_identity.h). */
fsdpck_status file_check_unchanged(const file *f, fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Reads a whole small file into malloc'd memory, also NUL-terminated. LIMIT over limit_bytes. */
fsdpck_status file_read_whole(const folder *dir, const char *path, uint64_t limit_bytes,
                              char **text, size_t *nbytes, fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Buffered positional write of all bytes. */
fsdpck_status file_write_at(const file *f, uint64_t offset, const void *src, uint64_t nbytes,
                            fsdpck_error *err) FSDPCK_MUST_CHECK;

/* O_DIRECT write if the file supports it: offset, nbytes and src must be multiples of
 * FILE_DIRECT_ALIGN. A refused direct write (EINVAL) is repeated buffered. */
#define FILE_DIRECT_ALIGN 4096u
fsdpck_status file_write_direct(file *f, uint64_t offset, const void *src, uint64_t nbytes,
                                fsdpck_error *err) FSDPCK_MUST_CHECK;

fsdpck_status file_truncate(const file *f, uint64_t nbytes, fsdpck_error *err) FSDPCK_MUST_CHECK;
fsdpck_status file_sync(const file *f, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Writes dirty pages back and drops the file from the page cache, so that the next read comes from
 * the storage. */
fsdpck_status file_drop_cache(const file *f, fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Errors of close are errors of the data (NFS): never repeated, always checked after writing. */
fsdpck_status file_close(file *f, fsdpck_error *err) FSDPCK_MUST_CHECK;
void file_abandon(file *f); /* close, errors ignored: for files that were only read */

#endif
