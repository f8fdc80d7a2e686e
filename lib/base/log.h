/* log.h: messages during a run, through the caller's callback; the library itself prints nothing.
 */
#ifndef FSDPCK_BASE_LOG_H
#define FSDPCK_BASE_LOG_H

#include "base/status.h"

typedef enum log_level { LOG_WARNING = 1, LOG_NOTE = 2, LOG_DETAIL = 3 } log_level;

/* Each text is one line without newline, escaped, and borrowed for the call. */
typedef struct log_line {
    log_level level;
    fsdpck_finding_id finding; /* of a warning */
    const char *text;
    const char *next;             /* of a warning: the next step; "" */
    const char *folder, *missing; /* of a missing file: its folder and name, not escaped; or NULL */
} log_line;

/* Called from any thread. */
typedef void (*log_fn)(void *ctx, const log_line *line);

typedef struct logger {
    log_fn fn; /* NULL: silent */
    void *ctx;
} logger;

void log_write(const logger *l, log_level level, const char *fmt, ...) PRINTF_LIKE(3, 4);

/* A warning: the result may differ from the user's expectation. `finding` and `next` are borrowed
 * for the call and need no escaping. `next` has the form of error_next's text; "" selects the text
 * of findings.def. */
void log_warn(const logger *l, fsdpck_finding_id finding, const char *next, const char *fmt, ...)
    PRINTF_LIKE(4, 5);

/* A file that a checkpoint requires and that `folder` lacks, at the level LOG_DETAIL: an error has
 * space for the first ones only. The caller reports the error FILE-MISSING with the path `folder`. */
void log_missing_file(const logger *l, const char *folder, const char *name);

#endif
