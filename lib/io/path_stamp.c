#include "io/path_stamp.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>

path_stamp path_stamp_from(const struct stat *st)
{
    return (path_stamp){
        .kind = S_ISREG(st->st_mode)   ? PATH_FILE
                : S_ISDIR(st->st_mode) ? PATH_FOLDER
                                       : PATH_OTHER,
        .nbytes = (uint64_t)st->st_size,
        .mtime_ns = (int64_t)st->st_mtim.tv_sec * 1000000000 + st->st_mtim.tv_nsec,
    };
}

fsdpck_status path_stamp_get(path_stamp *stamp, const folder *dir, const char *path,
                             fsdpck_error *err)
{
    struct stat st;
    *stamp = (path_stamp){.kind = PATH_ABSENT};
    if (fstatat(dir != NULL ? dir->fd : AT_FDCWD, path, &st, AT_SYMLINK_NOFOLLOW) == 0)
        *stamp = path_stamp_from(&st);
    else if (errno != ENOENT && errno != ENOTDIR)
        return error_set_errno(err, errno, "stat", path);
    return FSDPCK_OK;
}

bool path_stamp_is_same(const path_stamp *a, const path_stamp *b)
{
    if (a->kind != b->kind)
        return false;
    return a->kind == PATH_ABSENT || a->kind == PATH_FOLDER ||
           (a->nbytes == b->nbytes && a->mtime_ns == b->mtime_ns);
}

fsdpck_status path_stamp_error(const path_stamp *before, const path_stamp *now, const char *shown,
                               const char *name, fsdpck_error *err)
{
    const fsdpck_status st =
        name[0] == '\0'
            ? FAIL(err, EXISTS, NONE, "output exists: another program %s it during this run",
                   before->kind == PATH_ABSENT ? "created" : "changed")
            : FAIL(err, EXISTS, NONE,
                   "output folder exists: another program changed '%s' in it during this run",
                   name);
    error_path(err, shown);
    if (before->kind == PATH_FILE)
        error_expected(err, "%" PRIu64 " bytes, last written at %" PRId64 " ns since the epoch",
                       before->nbytes, before->mtime_ns);
    if (now->kind == PATH_FILE)
        error_found(err, "%" PRIu64 " bytes, last written at %" PRId64 " ns since the epoch",
                    now->nbytes, now->mtime_ns);
    error_next(err, "check what it wrote; run again only if this may be replaced");
    return st;
}
