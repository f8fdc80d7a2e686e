/* log.h: words on the way, through the caller's callback; the library itself prints nothing. */
#ifndef FSDPCK_BASE_LOG_H
#define FSDPCK_BASE_LOG_H

#include "base/status.h"

typedef enum log_level { LOG_WARNING = 1, LOG_NOTE = 2, LOG_DETAIL = 3 } log_level;

/* `text` is one line without newline, escaped; borrowed for the call. Called from any thread. */
typedef void (*log_fn)(void *ctx, log_level level, const char *text);

typedef struct logger {
    log_fn fn; /* NULL: silent */
    void *ctx;
} logger;

void log_write(const logger *l, log_level level, const char *fmt, ...) PRINTF_LIKE(3, 4);

#endif
