/* status.h: filling and passing on errors inside the library (public half: fsdpck_status.h).
 *
 * Where the failure is detected:
 *
 *     return error_set(err, FSDPCK_BADINPUT, FSDPCK_FINDING_ZIP_NOEND, "zip has no end record");
 *
 * with more details:
 *
 *     st = error_set(err, FSDPCK_BADINPUT, FSDPCK_FINDING_DCP_RANGE, "blob extends past its file");
 *     error_offset(err, info->offset_bytes);
 *     error_expected(err, "at least %" PRIu64 " bytes", want);
 *     error_found(err, "%" PRIu64 " bytes", have);
 *     error_next(err, "copy the file again; its writer may have been interrupted");
 *     return st;
 *
 * Callers add error_path(err, path) or error_tensor(err, fqn) and return st. error_set returns the
 * given status; the others return nothing.
 *
 * Pass every text from a file through %s: these functions escape control characters, newlines and
 * bytes that are not UTF-8 as \xNN, so that no name can control a terminal. Texts are truncated to
 * the field, at a character boundary, with "..." at the end.
 */
#ifndef FSDPCK_BASE_STATUS_H
#define FSDPCK_BASE_STATUS_H

#include <stdarg.h>
#include <stddef.h>

#include "base/fsdpck_status.h"

#define PRINTF_LIKE(fmt, args) __attribute__((format(printf, fmt, args)))

/* Passes a failure on. */
#define RETURN_IF(expr)                       \
    do {                                      \
        const fsdpck_status status_ = (expr); \
        if (status_ != FSDPCK_OK)             \
            return status_;                   \
    } while (0)

/* The same with cleanup: the function has `fsdpck_status st` and `out:`. */
#define GOTO_IF(expr, label) \
    do {                     \
        st = (expr);         \
        if (st != FSDPCK_OK) \
            goto label;      \
    } while (0)

/* Resets *err and sets status, finding and message. Returns `status`. */
fsdpck_status error_set(fsdpck_error *err, fsdpck_status status, fsdpck_finding_id finding,
                        const char *fmt, ...) PRINTF_LIKE(4, 5);

/* A failed system call: status from errno (NOSPACE for ENOSPC, EDQUOT, EFBIG; LIMIT for ENOMEM and
 * EMFILE; EXISTS for EEXIST; else IO), message "<call> failed: <strerror>". `path` may be NULL. */
fsdpck_status error_set_errno(fsdpck_error *err, int sys_errno, const char *call, const char *path);

/* malloc or a budget failed: status LIMIT. */
fsdpck_status error_set_nomem(fsdpck_error *err, uint64_t nbytes);

/* Fill an empty field. Each is a no-op on NULL and on a filled field, so that the innermost caller,
 * with the most precise data, wins. */
void error_path(fsdpck_error *err, const char *path);
/* The same for a file in a folder, so that every error names it in one form. Either may be empty or
 * NULL. */
void error_path_in(fsdpck_error *err, const char *folder, const char *name);
void error_tensor(fsdpck_error *err, const char *fqn);
void error_offset(fsdpck_error *err, uint64_t offset_bytes);
void error_expected(fsdpck_error *err, const char *fmt, ...) PRINTF_LIKE(2, 3);
void error_found(fsdpck_error *err, const char *fmt, ...) PRINTF_LIKE(2, 3);
void error_next(fsdpck_error *err, const char *fmt, ...) PRINTF_LIKE(2, 3);

/* Escapes `nbytes` of `text` into dst (capacity_bytes, always terminated); returns dst. Printable
 * UTF-8 is unchanged, except bidirectional controls; all other bytes become \xNN. */
char *escape_text(char *dst, size_t capacity_bytes, const char *text, size_t nbytes);

#endif
