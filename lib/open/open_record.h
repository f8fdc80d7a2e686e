/* open_record.h: what a reader reports while it opens, so that ranks that do not read report the same.
 *
 *     open_record r;
 *     open_record_init(&r, found, found_ctx);
 *     ctx->record = &r;                                // log lines
 *     ... open with open_record_found, if found is not NULL, and &r ...
 *     ctx->record = NULL;
 *     if (!r.lost) ... r.bytes to another rank ...
 *     open_record_release(&r);
 *
 *     RETURN_IF(open_record_replay(&bytes, &log, found, found_ctx, err));     // there
 */
#ifndef FSDPCK_OPEN_OPEN_RECORD_H
#define FSDPCK_OPEN_OPEN_RECORD_H

#include <pthread.h>

#include "formats/format.h"

typedef struct open_record {
    pthread_mutex_t lock;
    vec bytes; /* uint8_t */
    bool lost; /* memory ran out: something is missing */
    format_found_fn found;
    void *found_ctx;
} open_record;

/* No memory for a lock: `lost`. */
void open_record_init(open_record *r, format_found_fn found, void *found_ctx);
void open_record_release(open_record *r);
/* From any thread. */
void open_record_line(open_record *r, const log_line *line);
/* A format_found_fn: also calls that of open_record_init. */
void open_record_found(void *ctx, format_severity severity, const fsdpck_error *what);

/* In order. INTERNAL if the bytes are not those of a record. */
fsdpck_status open_record_replay(const vec *bytes, const logger *log, format_found_fn found,
                                 void *found_ctx, fsdpck_error *err) FSDPCK_MUST_CHECK;

#endif
