/* latest_once.h: prints each message about a step once: verify opens the same files a second time, and a step with cut
 * weights beside its own may be checked twice.
 *
 *     latest_once once;
 *     latest_once_begin(&once, &ctx->log);
 *     ...
 *     latest_once_end(&once, &ctx->log);
 */
#ifndef FSDPCK_VERIFY_LATEST_ONCE_H
#define FSDPCK_VERIFY_LATEST_ONCE_H

#include <pthread.h>

#include "base/alloc.h"
#include "base/log.h"

typedef struct latest_once {
    logger to;
    pthread_mutex_t lock;
    strtab printed;
} latest_once;

void latest_once_begin(latest_once *o, logger *log);
/* Restores *log. */
void latest_once_end(latest_once *o, logger *log);

#endif
