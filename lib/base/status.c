#include "base/status.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/utf8.h"

/* Longer than any field of fsdpck_error, so that a text truncated here is truncated there too. */
enum { RAW_BYTES = 1536 };

void fsdpck_error_init(fsdpck_error *err)
{
    if (err == NULL)
        return;
    memset(err, 0, sizeof(*err));
    err->rank = -1;
}

const char *fsdpck_status_name(fsdpck_status status)
{
    switch (status) {
    case FSDPCK_OK:
        return "done";
    case FSDPCK_FINDING:
        return "finding";
    case FSDPCK_USAGE:
        return "usage";
    case FSDPCK_BADINPUT:
        return "bad input";
    case FSDPCK_UNSUPPORTED:
        return "unsupported";
    case FSDPCK_IO:
        return "input/output error";
    case FSDPCK_NOSPACE:
        return "no space";
    case FSDPCK_LIMIT:
        return "limit";
    case FSDPCK_CHANGED:
        return "input changed";
    case FSDPCK_EXISTS:
        return "output exists";
    case FSDPCK_PEER:
        return "peer lost";
    case FSDPCK_DEVICE:
        return "device";
    case FSDPCK_INTERNAL:
        return "internal error";
    case FSDPCK_CANCELLED:
        return "cancelled";
    }
    return "unknown status";
}

/* One unit of escaped text (a character, or \xNN for one byte) and the number of bytes it
 * represents. */
static size_t escape_unit(char unit[5], const uint8_t *s, size_t nbytes, size_t *unit_nbytes)
{
    static const char hex[] = "0123456789ABCDEF";
    uint32_t c = 0;
    const unsigned n = utf8_decode(s, nbytes, &c);
    if (n > 0 && !utf8_hidden(c)) {
        memcpy(unit, s, n);
        *unit_nbytes = n;
        return n;
    }
    unit[0] = '\\';
    unit[1] = 'x';
    unit[2] = hex[s[0] >> 4];
    unit[3] = hex[s[0] & 15];
    *unit_nbytes = 4;
    return 1;
}

char *escape_text(char *dst, size_t capacity_bytes, const char *text, size_t nbytes)
{
    if (capacity_bytes == 0)
        return dst;
    const size_t room = capacity_bytes - 1;
    size_t at = 0;
    size_t cut = 0; /* last boundary that leaves room for the dots */
    for (size_t i = 0; i < nbytes;) {
        char unit[5];
        size_t unit_nbytes = 0;
        i += escape_unit(unit, (const uint8_t *)text + i, nbytes - i, &unit_nbytes);
        if (at + 3 <= room)
            cut = at;
        if (unit_nbytes > room - at) {
            if (room >= 3) {
                memcpy(dst + cut, "...", 3);
                at = cut + 3;
            }
            break;
        }
        memcpy(dst + at, unit, unit_nbytes);
        at += unit_nbytes;
    }
    dst[at] = '\0';
    return dst;
}

static void set_field(char *field, size_t capacity_bytes, const char *fmt, va_list args)
{
    char raw[RAW_BYTES];
    if (vsnprintf(raw, sizeof(raw), fmt, args) < 0)
        raw[0] = '\0';
    escape_text(field, capacity_bytes, raw, strlen(raw));
}

fsdpck_status error_set(fsdpck_error *err, fsdpck_status status, fsdpck_finding_id finding,
                        const char *fmt, ...)
{
    if (err == NULL)
        return status;
    fsdpck_error_init(err);
    err->status = status;
    err->finding = finding;
    va_list args;
    va_start(args, fmt);
    set_field(err->message, sizeof(err->message), fmt, args);
    va_end(args);
    return status;
}

static fsdpck_status status_of_errno(int sys_errno)
{
    switch (sys_errno) {
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
        return FSDPCK_NOSPACE;
    case ENOMEM:
    case EMFILE:
    case ENFILE:
        return FSDPCK_LIMIT;
    case EEXIST:
        return FSDPCK_EXISTS;
    default:
        return FSDPCK_IO;
    }
}

fsdpck_status error_set_errno(fsdpck_error *err, int sys_errno, const char *call, const char *path)
{
    const fsdpck_status st = status_of_errno(sys_errno);
    if (err == NULL)
        return st;
    /* strerror, not strerror_r, which has two forms: for errno values of system calls libc returns
     * constant text, which threads may share. */
    const fsdpck_finding_id finding = st != FSDPCK_LIMIT    ? FSDPCK_FINDING_NONE
                                      : sys_errno == ENOMEM ? FSDPCK_FINDING_LIMIT_MEMORY
                                                            : FSDPCK_FINDING_LIMIT_OPEN;
    error_set(err, st, finding, "%s failed: %s", call, strerror(sys_errno));
    err->sys_errno = sys_errno;
    if (path != NULL)
        error_path(err, path);
    if (sys_errno == EFBIG)
        error_next(err, "raise the limit on file sizes (ulimit -f), or choose another file system");
    else if (st == FSDPCK_NOSPACE)
        error_next(err, "free some space or choose another file system");
    else if (sys_errno == EMFILE)
        error_next(err, "raise the number of open files (ulimit -n)");
    return st;
}

fsdpck_status error_set_nomem(fsdpck_error *err, uint64_t nbytes)
{
    return error_set(err, FSDPCK_LIMIT, FSDPCK_FINDING_LIMIT_MEMORY,
                     "out of memory: cannot allocate %" PRIu64 " bytes", nbytes);
}

/* A longer path ends with "...", after a whole character. */
void error_path(fsdpck_error *err, const char *path)
{
    if (err == NULL || path == NULL || err->path[0] != '\0')
        return;
    size_t n = strlen(path);
    const bool fits = n < sizeof err->path;
    if (!fits) {
        n = sizeof err->path - sizeof "...";
        while (n > 0 && ((uint8_t)path[n] & 0xC0) == 0x80)
            n--;
    }
    memcpy(err->path, path, n);
    memcpy(err->path + n, "...", fits ? 0 : 3);
    err->path[n + (fits ? 0 : 3)] = '\0';
}

void error_path_in(fsdpck_error *err, const char *folder, const char *name)
{
    char path[4 * sizeof err->path];
    if (err == NULL || err->path[0] != '\0')
        return;
    const bool both = folder != NULL && folder[0] != '\0' && name != NULL && name[0] != '\0';
    const bool slash = both && folder[strlen(folder) - 1] != '/';
    snprintf(path, sizeof path, "%s%s%s", folder == NULL ? "" : folder, slash ? "/" : "",
             name == NULL ? "" : name);
    error_path(err, path);
}

void error_tensor(fsdpck_error *err, const char *fqn)
{
    if (err != NULL && fqn != NULL && err->tensor[0] == '\0')
        escape_text(err->tensor, sizeof(err->tensor), fqn, strlen(fqn));
}

void error_offset(fsdpck_error *err, uint64_t offset_bytes)
{
    if (err == NULL || err->has_offset)
        return;
    err->has_offset = 1;
    err->offset_bytes = offset_bytes;
}

void error_sys_errno(fsdpck_error *err, int sys_errno)
{
    if (err != NULL && err->sys_errno == 0)
        err->sys_errno = sys_errno;
}

void error_expected(fsdpck_error *err, const char *fmt, ...)
{
    if (err == NULL || err->expected[0] != '\0')
        return;
    va_list args;
    va_start(args, fmt);
    set_field(err->expected, sizeof(err->expected), fmt, args);
    va_end(args);
}

void error_found(fsdpck_error *err, const char *fmt, ...)
{
    if (err == NULL || err->found[0] != '\0')
        return;
    va_list args;
    va_start(args, fmt);
    set_field(err->found, sizeof(err->found), fmt, args);
    va_end(args);
}

void error_next(fsdpck_error *err, const char *fmt, ...)
{
    if (err == NULL || err->next[0] != '\0')
        return;
    va_list args;
    va_start(args, fmt);
    set_field(err->next, sizeof(err->next), fmt, args);
    va_end(args);
}
