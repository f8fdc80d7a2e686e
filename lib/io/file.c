#include "io/file.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/checked.h"
#include "base/platform.h"
#include "base/text.h"
#include "io/dead_link.h"
#include "io/descriptor.h"
#include "io/file_identity.h"
#include "io/remote.h"

static_assert(sizeof(off_t) == 8, "large files need a 64-bit off_t");

/* Linux transfers at most 2^31 - 4096 bytes a call. */
#define IO_BYTES_MOST ((uint64_t)1 << 30)

static int fd_of(const folder *dir)
{
    return dir != NULL ? dir->fd : AT_FDCWD;
}

/* False for a folder that only remote hosts have. */
static bool is_here(const folder *dir)
{
    return dir == NULL || dir->fd != -1;
}

static int64_t mtime_of(const struct stat *st)
{
    return (int64_t)st->st_mtim.tv_sec * 1000000000 + st->st_mtim.tv_nsec;
}

static int64_t ctime_of(const struct stat *st)
{
    return (int64_t)st->st_ctim.tv_sec * 1000000000 + st->st_ctim.tv_nsec;
}

static void set_identity(file *f, const struct stat *st)
{
    f->nbytes = (uint64_t)st->st_size;
    f->dev = (uint64_t)st->st_dev;
    f->ino = (uint64_t)st->st_ino;
    f->mtime_ns = mtime_of(st);
    f->ctime_ns = ctime_of(st);
    f->links = (uint64_t)st->st_nlink;
    f->mode = (uint64_t)st->st_mode;
    f->uid = (uint64_t)st->st_uid;
    f->gid = (uint64_t)st->st_gid;
}

/* "dir/path", or only `path`; NULL if out of memory. */
static char *path_join(const folder *dir, const char *path)
{
    if (dir == NULL || dir->path == NULL || path[0] == '/')
        return strdup(path);
    const size_t head = strlen(dir->path);
    const size_t tail = strlen(path);
    char *joined = malloc(head + tail + 2);
    if (joined == NULL)
        return NULL;
    memcpy(joined, dir->path, head);
    size_t at = head;
    if (head > 0 && dir->path[head - 1] != '/')
        joined[at++] = '/';
    memcpy(joined + at, path, tail + 1);
    return joined;
}

/* A failed call on `path` relative to `dir`. */
static fsdpck_status set_errno_at(fsdpck_error *err, int sys_errno, const char *call,
                                  const folder *dir, const char *path)
{
    char *joined = path_join(dir, path);
    const fsdpck_status st = error_set_errno(err, sys_errno, call, joined);
    free(joined);
    return st;
}

/* ctime: a program can write a file and set its mtime back, but not its ctime. */
static uint64_t identity_of(uint64_t ino, int64_t mtime_ns, int64_t ctime_ns)
{
    return (ino * UINT64_C(0x9E3779B97F4A7C15) ^
            (uint64_t)mtime_ns * UINT64_C(0xC2B2AE3D27D4EB4F) ^
            (uint64_t)ctime_ns * UINT64_C(0x165667B19E3779F9)) |
           1;
}

uint64_t file_identify(const file *f)
{
    return f->remote != NULL ? 0 : identity_of(f->ino, f->mtime_ns, f->ctime_ns);
}

fsdpck_status path_identify(const folder *dir, const char *path, path_kind *kind, uint64_t *nbytes,
                            uint64_t *identity, int64_t *mtime_ns, fsdpck_error *err)
{
    struct stat st;
    *kind = PATH_ABSENT;
    *identity = 0;
    if (mtime_ns != NULL)
        *mtime_ns = INT64_MIN;
    if (nbytes != NULL)
        *nbytes = 0;
    if (!is_here(dir) || fstatat(fd_of(dir), path, &st, 0) != 0) {
        uint64_t remote_nbytes;
        uint32_t id;
        if (dir != NULL && dir->remote != NULL &&
            dir->remote->find(dir->remote->ctx, path, kind,
                              nbytes != NULL ? nbytes : &remote_nbytes, &id))
            return FSDPCK_OK;
        if (!is_here(dir) || errno == ENOENT || errno == ENOTDIR)
            return FSDPCK_OK;
        return set_errno_at(err, errno, "stat", dir, path);
    }
    *kind = S_ISREG(st.st_mode) ? PATH_FILE : S_ISDIR(st.st_mode) ? PATH_FOLDER : PATH_OTHER;
    if (nbytes != NULL && *kind == PATH_FILE)
        *nbytes = (uint64_t)st.st_size;
    if (*kind != PATH_FILE)
        return FSDPCK_OK;
    *identity = identity_of((uint64_t)st.st_ino, mtime_of(&st), ctime_of(&st));
    if (mtime_ns != NULL)
        *mtime_ns = mtime_of(&st);
    return FSDPCK_OK;
}

fsdpck_status path_probe(const folder *dir, const char *path, path_kind *kind, uint64_t *nbytes,
                         fsdpck_error *err)
{
    uint64_t identity;
    return path_identify(dir, path, kind, nbytes, &identity, NULL, err);
}

bool path_is_dangling(const folder *dir, const char *path)
{
    struct stat st;
    return is_here(dir) && fstatat(fd_of(dir), path, &st, 0) != 0 && errno == ENOENT &&
           fstatat(fd_of(dir), path, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISLNK(st.st_mode);
}

/* Takes `path`. rc: errno of opening it, or 0. */
static fsdpck_status end_open(folder *d, int rc, char *path, fsdpck_error *err)
{
    if (rc == 0) {
        d->path = path;
        return FSDPCK_OK;
    }
    const fsdpck_status st = error_set_errno(err, rc, "opening the folder", path);
    free(path);
    *d = FOLDER_CLOSED;
    return st;
}

/* Takes `path`, which may be NULL. */
static fsdpck_status open_folder(folder *d, char *path, bool known_names, fsdpck_error *err)
{
    *d = FOLDER_CLOSED;
    if (path == NULL)
        return error_set_nomem(err, PATH_MAX);
    int rc = descriptor_open(AT_FDCWD, path, O_RDONLY | O_DIRECTORY, 0, &d->fd);
    if (rc == EACCES && known_names && platform_open_search(path, &d->fd) == 0)
        rc = 0;
    return end_open(d, rc, path, err);
}

fsdpck_status folder_open(folder *d, const char *path, fsdpck_error *err)
{
    return open_folder(d, strdup(path), false, err);
}

fsdpck_status folder_open_parent(folder *d, const char *path, fsdpck_error *err)
{
    const char *name = text_file_name(path);
    char *parent = name == path ? strdup(".") : strndup(path, (size_t)(name - path));
    return open_folder(d, parent, true, err);
}

fsdpck_status folder_open_inside(folder *d, const folder *dir, const char *name, fsdpck_error *err)
{
    *d = FOLDER_CLOSED;
    char *path = path_join(dir, name);
    if (path == NULL)
        return error_set_nomem(err, strlen(name) + 1);
    const int rc = descriptor_open(dir->fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW, 0, &d->fd);
    return end_open(d, rc, path, err);
}

fsdpck_status folder_open_same(folder *d, const folder *from, const char *path, fsdpck_error *err)
{
    if (from->path == NULL)
        return folder_open(d, path, err);
    *d = FOLDER_CLOSED;
    char *copy = strdup(from->path);
    if (copy == NULL)
        return error_set_nomem(err, strlen(from->path) + 1);
    d->remote = from->remote;
    const int rc =
        is_here(from) ? descriptor_open(from->fd, ".", O_RDONLY | O_DIRECTORY, 0, &d->fd) : 0;
    return end_open(d, rc, copy, err);
}

void folder_close(folder *d)
{
    if (d->path != NULL && d->fd >= 0)
        close(d->fd);
    free(d->path);
    *d = FOLDER_CLOSED;
}

static const char *kind_word(mode_t mode)
{
    if (S_ISDIR(mode))
        return "a folder";
    if (S_ISFIFO(mode))
        return "a FIFO";
    if (S_ISSOCK(mode))
        return "a socket";
    if (S_ISLNK(mode))
        return "a symbolic link";
    return "a device";
}

static fsdpck_status check_regular(const struct stat *st, const char *path, fsdpck_error *err)
{
    if (S_ISREG(st->st_mode))
        return FSDPCK_OK;
    return FAIL_WITH(err, BADINPUT, FILE_TYPE, ("not a regular file"), (path, path),
                     (expected, "a regular file"), (found, "%s", kind_word(st->st_mode)));
}

static fsdpck_status open_regular(int *fd, struct stat *st, const folder *dir, const char *path,
                                  unsigned flags, const char *shown, fsdpck_error *err)
{
    /* Checked before it is opened: opening a device may have effects. */
    const bool no_follow = (flags & FILE_NO_FOLLOW) != 0;
    if (no_follow)
        RETURN_IF(path_check_folders(dir, path, err));
    if (fstatat(fd_of(dir), path, st, no_follow ? AT_SYMLINK_NOFOLLOW : 0) != 0)
        return dead_link_error(dir, path, errno, shown, err);
    RETURN_IF(check_regular(st, shown, err));
    const int oflags = O_RDONLY | O_NONBLOCK | O_NOCTTY | (no_follow ? O_NOFOLLOW : 0);
    const int rc = descriptor_open(fd_of(dir), path, oflags, 0, fd);
    if (rc != 0)
        return error_set_errno(err, rc, "open", shown);
    if (fstat(*fd, st) != 0)
        return error_set_errno(err, errno, "fstat", shown);
    return check_regular(st, shown, err);
}

/* Whether the file exists only on a remote host; fills f then, except the path. */
static bool is_elsewhere(file *f, const folder *dir, const char *path)
{
    struct stat st;
    path_kind kind;
    if (dir == NULL || dir->remote == NULL ||
        (is_here(dir) &&
         (fstatat(dir->fd, path, &st, AT_SYMLINK_NOFOLLOW) == 0 || errno != ENOENT)) ||
        !dir->remote->find(dir->remote->ctx, path, &kind, &f->nbytes, &f->remote_id) ||
        kind != PATH_FILE)
        return false;
    f->remote = dir->remote;
    f->ino = f->remote_id;
    return true;
}

fsdpck_status file_open_read(file *f, const folder *dir, const char *path, unsigned flags,
                             fsdpck_error *err)
{
    *f = FILE_CLOSED;
    char *shown = path_join(dir, path);
    if (shown == NULL)
        return error_set_nomem(err, strlen(path) + 1);
    struct stat st;
    int fd = -1;
    if (is_elsewhere(f, dir, path)) {
        f->path = shown;
        return FSDPCK_OK;
    }
    const fsdpck_status status = open_regular(&fd, &st, dir, path, flags, shown, err);
    if (status != FSDPCK_OK) {
        if (fd >= 0)
            close(fd);
        free(shown);
        return status;
    }
    f->fd = fd;
    f->path = shown;
    set_identity(f, &st);
    return FSDPCK_OK;
}

static fsdpck_status short_read(const file *f, uint64_t offset, uint64_t nbytes, uint64_t at,
                                fsdpck_error *err)
{
    fsdpck_status st = FSDPCK_BADINPUT;
    if (checked_range(offset, nbytes, f->nbytes))
        st = FAIL(err, CHANGED, NONE, "file was truncated while it was read");
    else
        error_set(err, st, FSDPCK_FINDING_NONE, "file ends before the end of its data");
    error_path(err, f->path);
    error_offset(err, at);
    error_expected(err, "%" PRIu64 " bytes at offset %" PRIu64, nbytes, offset);
    error_found(err, "end of file at or before offset %" PRIu64, at);
    return st;
}

fsdpck_status file_read_at(const file *f, uint64_t offset, void *dst, uint64_t nbytes,
                           fsdpck_error *err)
{
    uint8_t *p = dst;
    uint64_t at = offset;
    uint64_t left = nbytes;
    unsigned tries = 0;
    if (!checked_range(offset, nbytes, INT64_MAX))
        return short_read(f, offset, nbytes, f->nbytes, err);
    if (f->remote != NULL) {
        if (!checked_range(offset, nbytes, f->nbytes))
            return short_read(f, offset, nbytes, f->nbytes, err);
        const fsdpck_status st =
            f->remote->read_at(f->remote->ctx, f->remote_id, offset, dst, nbytes, err);
        if (st != FSDPCK_OK)
            error_path(err, f->path);
        return st;
    }
    while (left > 0) {
        const uint64_t want = left < IO_BYTES_MOST ? left : IO_BYTES_MOST;
        const ssize_t n = pread(f->fd, p, (size_t)want, (off_t)at);
        if (n == 0)
            return short_read(f, offset, nbytes, at, err);
        if (n < 0) {
            if (descriptor_retry(errno, &tries))
                continue;
            const fsdpck_status st = error_set_errno(err, errno, "read", f->path);
            error_offset(err, at);
            return st;
        }
        p += n;
        at += (uint64_t)n;
        left -= (uint64_t)n;
    }
    return FSDPCK_OK;
}

fsdpck_status file_check_unchanged(const file *f, fsdpck_error *err)
{
    struct stat st;
    if (f->remote != NULL) /* the host that serves it checks */
        return FSDPCK_OK;
    if (fstat(f->fd, &st) != 0)
        return error_set_errno(err, errno, "fstat", f->path);
    file now = {.path = f->path};
    set_identity(&now, &st);
    return file_identity_check(f, &now, err);
}

fsdpck_status file_read_whole(const folder *dir, const char *path, uint64_t limit_bytes,
                              char **text, size_t *nbytes, fsdpck_error *err)
{
    *text = NULL;
    *nbytes = 0;
    file f;
    RETURN_IF(file_open_read(&f, dir, path, 0, err));
    fsdpck_status st = FSDPCK_OK;
    size_t size = 0;
    char *bytes = NULL;
    if (f.nbytes > limit_bytes || !checked_size(f.nbytes, &size) || size == SIZE_MAX)
        st = FAIL_WITH(err, LIMIT, LIMIT_SIZE, ("file is larger than its limit"), (path, f.path),
                       (expected, "at most %" PRIu64 " bytes", limit_bytes),
                       (found, "%" PRIu64 " bytes", f.nbytes));
    if (st == FSDPCK_OK) {
        bytes = malloc(size + 1);
        st = bytes != NULL ? file_read_at(&f, 0, bytes, f.nbytes, err)
                           : error_set_nomem(err, f.nbytes);
    }
    file_abandon(&f);
    if (st != FSDPCK_OK) {
        free(bytes);
        return st;
    }
    bytes[size] = '\0';
    *text = bytes;
    *nbytes = size;
    return FSDPCK_OK;
}

/* Writes as much as possible; *done counts the bytes even on failure. Returns 0 or an errno value.
 */
static int write_all(int fd, uint64_t offset, const uint8_t *src, uint64_t nbytes, uint64_t *done)
{
    unsigned tries = 0;
    *done = 0;
    while (*done < nbytes) {
        const uint64_t left = nbytes - *done;
        const uint64_t want = left < IO_BYTES_MOST ? left : IO_BYTES_MOST;
        const ssize_t n = pwrite(fd, src + *done, (size_t)want, (off_t)(offset + *done));
        if (n > 0)
            *done += (uint64_t)n;
        else if (n == 0)
            return EIO;
        else if (!descriptor_retry(errno, &tries))
            return errno;
    }
    return 0;
}

fsdpck_status file_write_at(const file *f, uint64_t offset, const void *src, uint64_t nbytes,
                            fsdpck_error *err)
{
    uint64_t done = 0;
    const int rc = checked_range(offset, nbytes, INT64_MAX)
                       ? write_all(f->fd, offset, src, nbytes, &done)
                       : EFBIG;
    if (rc == 0)
        return FSDPCK_OK;
    const fsdpck_status st = error_set_errno(err, rc, "write", f->path);
    error_offset(err, offset + done);
    return st;
}

fsdpck_status file_write_direct(file *f, uint64_t offset, const void *src, uint64_t nbytes,
                                fsdpck_error *err)
{
    uint64_t done = 0;
    if (f->direct_fd < 0 || !checked_range(offset, nbytes, INT64_MAX))
        return file_write_at(f, offset, src, nbytes, err);
    const int rc = write_all(f->direct_fd, offset, src, nbytes, &done);
    if (rc == 0)
        return FSDPCK_OK;
    /* Not a multiple of this device's block, or the rest after a short write. */
    if (rc == EINVAL)
        return file_write_at(f, offset + done, (const uint8_t *)src + done, nbytes - done, err);
    const fsdpck_status st = error_set_errno(err, rc, "direct write", f->path);
    error_offset(err, offset + done);
    return st;
}

fsdpck_status file_truncate(const file *f, uint64_t nbytes, fsdpck_error *err)
{
    if (nbytes > INT64_MAX)
        return error_set_errno(err, EFBIG, "ftruncate", f->path);
    unsigned tries = 0;
    while (ftruncate(f->fd, (off_t)nbytes) != 0) {
        if (!descriptor_retry(errno, &tries))
            return error_set_errno(err, errno, "ftruncate", f->path);
    }
    return FSDPCK_OK;
}

fsdpck_status file_sync(const file *f, fsdpck_error *err)
{
    /* EINTR precedes any loss; after any other failure the kernel may have dropped the pages, and a
     * second call would report a false success. */
    while (fsync(f->fd) != 0) {
        if (errno != EINTR)
            return error_set_errno(err, errno, "fsync", f->path);
    }
    return FSDPCK_OK;
}

fsdpck_status file_close(file *f, fsdpck_error *err)
{
    /* Open descriptors are always above 2 (descriptor.h), so closing a zeroed file does nothing. */
    fsdpck_status st = FSDPCK_OK;
    if (f->direct_fd > 2 && close(f->direct_fd) != 0 && errno != EINTR)
        st = error_set_errno(err, errno, "close", f->path);
    /* After EINTR the descriptor is closed; later calls (rename, fsync of the folder) still report
     * errors. */
    if (f->fd > 2 && close(f->fd) != 0 && errno != EINTR && st == FSDPCK_OK)
        st = error_set_errno(err, errno, "close", f->path);
    free(f->path);
    *f = FILE_CLOSED;
    return st;
}

void file_abandon(file *f)
{
    (void)!file_close(f, NULL);
}

fsdpck_status file_drop_cache(const file *f, fsdpck_error *err)
{
    if (fdatasync(f->fd) != 0)
        return error_set_errno(err, errno, "fdatasync", f->path);
    platform_drop_cache(f->fd);
    return FSDPCK_OK;
}
