#include "verify/latest_once.h"

#include <stdbool.h>
#include <string.h>

static bool is_new(latest_once *o, const log_line *line)
{
    uint32_t id;
    if (line->level == LOG_DETAIL)
        return true;
    const size_t nbytes = strlen(line->text);
    pthread_mutex_lock(&o->lock);
    const bool was_printed = strtab_find(&o->printed, line->text, nbytes) != STRTAB_NONE;
    if (!was_printed && strtab_intern(&o->printed, line->text, nbytes, &id, NULL) != FSDPCK_OK)
        id = STRTAB_NONE; /* it may be printed again */
    pthread_mutex_unlock(&o->lock);
    return !was_printed;
}

static void log_once(void *arg, const log_line *line)
{
    latest_once *o = arg;
    if (o->to.fn != NULL && is_new(o, line))
        o->to.fn(o->to.ctx, line);
}

void latest_once_begin(latest_once *o, logger *log)
{
    o->to = *log;
    pthread_mutex_init(&o->lock, NULL);
    strtab_init(&o->printed, NULL);
    *log = (logger){log_once, o};
}

void latest_once_end(latest_once *o, logger *log)
{
    *log = o->to;
    strtab_release(&o->printed);
    pthread_mutex_destroy(&o->lock);
}
