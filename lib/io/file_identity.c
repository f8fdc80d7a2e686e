#include "io/file_identity.h"

#include <inttypes.h>
#include <stdbool.h>

/* Only the ctime differs: the bytes may have been written and the mtime set back, or not. */
static fsdpck_status ctime_changed(const file *before, const file *now, fsdpck_error *err)
{
    const bool links = before->links != now->links, mode = before->mode != now->mode,
               owner = before->uid != now->uid || before->gid != now->gid;
    const char *what = links && !mode && !owner   ? "its links"
                       : mode && !links && !owner ? "its mode"
                       : owner && !links && !mode ? "its owner"
                       : links || mode || owner   ? "its links, mode or owner"
                                                  : "its content or attributes";
    return FAIL_WITH(
        err, CHANGED, NONE,
        ("%s changed while the file was read, though size and mtime are the same", what),
        (path, now->path),
        (expected,
         "ctime %" PRId64 " ns since the epoch, %" PRIu64 " link%s, mode %04" PRIo64
         ", owner %" PRIu64 ":%" PRIu64,
         before->ctime_ns, before->links, before->links == 1 ? "" : "s", before->mode & 07777,
         before->uid, before->gid),
        (found,
         "ctime %" PRId64 " ns since the epoch, %" PRIu64 " link%s, mode %04" PRIo64
         ", owner %" PRIu64 ":%" PRIu64,
         now->ctime_ns, now->links, now->links == 1 ? "" : "s", now->mode & 07777, now->uid,
         now->gid),
        (next, "run again when no program writes, links or renames the input"));
}

fsdpck_status file_identity_check(const file *before, const file *now, fsdpck_error *err)
{
    const bool is_same_file = before->dev == now->dev && before->ino == now->ino;
    if (is_same_file && before->nbytes == now->nbytes && before->mtime_ns == now->mtime_ns)
        return before->ctime_ns == now->ctime_ns ? FSDPCK_OK : ctime_changed(before, now, err);
    if (!is_same_file)
        return FAIL_WITH(
            err, CHANGED, NONE, ("file was replaced while it was read"), (path, now->path),
            (expected, "%" PRIu64 " bytes, inode %" PRIu64, before->nbytes, before->ino),
            (found, "%" PRIu64 " bytes, inode %" PRIu64, now->nbytes, now->ino),
            (next, "run again when no program writes to the input"));
    return FAIL_WITH(err, CHANGED, NONE, ("file changed while it was read"), (path, now->path),
                     (expected, "%" PRIu64 " bytes, last written at %" PRId64 " ns since the epoch",
                      before->nbytes, before->mtime_ns),
                     (found, "%" PRIu64 " bytes, last written at %" PRId64 " ns since the epoch",
                      now->nbytes, now->mtime_ns),
                     (next, "run again when no program writes to the input"));
}
