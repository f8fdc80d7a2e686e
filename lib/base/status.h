/* status.h: filling and passing on errors inside the library (public half: fsdpck_status.h).
 *
 * Where the failure is detected, one expression of the type fsdpck_status:
 *
 *     return FAIL(err, BADINPUT, ZIP_NOEND, "zip has no end record");
 *     return FAIL_WITH(err, BADINPUT, DCP_RANGE, ("blob %" PRIu64 " extends past its file", i),
 *                      (offset, info->offset_bytes),
 *                      (expected, "at least %" PRIu64 " bytes", want),
 *                      (found, "%" PRIu64 " bytes", have),
 *                      (next, "copy the file again"));
 *
 * A detail in parentheses is a call of the function error_NAME below, without err. The compiler checks
 * all formats. Without `next` the program shows the next step of the table of findings.
 *
 * Callers add error_path(err, path) or error_tensor(err, fqn) and return the status.
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

/* FSDPCK_`status` with FSDPCK_FINDING_`finding`, which is NONE without a finding, and a message. */
#define FAIL(err, status, finding, ...) \
    error_set(err, FSDPCK_##status, FSDPCK_FINDING_##finding, __VA_ARGS__)

/* The same with the message in parentheses and 1 to 6 details. Evaluates `err` several times. */
#define FAIL_WITH(err, status, finding, message, ...) \
    FAIL_AS(err, FSDPCK_##status, FSDPCK_FINDING_##finding, message, __VA_ARGS__)

/* The same for a status and a finding that are expressions. Evaluates `status` twice. */
#define FAIL_AS(err, status, finding, message, ...)        \
    (error_set(err, status, finding, ERROR_LIST_ message), \
     ERROR_DETAILS_(__VA_ARGS__, 6, 5, 4, 3, 2, 1, 0)(err, __VA_ARGS__), error_status(status))

#define ERROR_LIST_(...)                             __VA_ARGS__
#define ERROR_DETAILS_(a, b, c, d, e, f, count, ...) ERROR_DETAILS_##count##_
#define ERROR_DETAILS_1_(err, detail)                ERROR_DETAIL_(err, ERROR_LIST_ detail)
#define ERROR_DETAILS_2_(err, detail, ...) \
    ERROR_DETAILS_1_(err, detail), ERROR_DETAILS_1_(err, __VA_ARGS__)
#define ERROR_DETAILS_3_(err, detail, ...) \
    ERROR_DETAILS_1_(err, detail), ERROR_DETAILS_2_(err, __VA_ARGS__)
#define ERROR_DETAILS_4_(err, detail, ...) \
    ERROR_DETAILS_1_(err, detail), ERROR_DETAILS_3_(err, __VA_ARGS__)
#define ERROR_DETAILS_5_(err, detail, ...) \
    ERROR_DETAILS_1_(err, detail), ERROR_DETAILS_4_(err, __VA_ARGS__)
#define ERROR_DETAILS_6_(err, detail, ...) \
    ERROR_DETAILS_1_(err, detail), ERROR_DETAILS_5_(err, __VA_ARGS__)
#define ERROR_DETAIL_(...)          ERROR_CALL_(__VA_ARGS__)
#define ERROR_CALL_(err, name, ...) error_##name(err, __VA_ARGS__)

/* Resets *err and sets status, finding and message. Returns `status`. */
fsdpck_status error_set(fsdpck_error *err, fsdpck_status status, fsdpck_finding_id finding,
                        const char *fmt, ...) PRINTF_LIKE(4, 5);

/* The value of FAIL_AS. */
static inline fsdpck_status error_status(fsdpck_status status)
{
    return status;
}

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
/* The errno of a system call whose failure has a message of its own. */
void error_sys_errno(fsdpck_error *err, int sys_errno);
void error_expected(fsdpck_error *err, const char *fmt, ...) PRINTF_LIKE(2, 3);
void error_found(fsdpck_error *err, const char *fmt, ...) PRINTF_LIKE(2, 3);
void error_next(fsdpck_error *err, const char *fmt, ...) PRINTF_LIKE(2, 3);

/* Escapes `nbytes` of `text` into dst (capacity_bytes, always terminated); returns dst. Printable
 * UTF-8 is unchanged, except bidirectional controls; all other bytes become \xNN. */
char *escape_text(char *dst, size_t capacity_bytes, const char *text, size_t nbytes);

#endif
