/* Doubts about the source that its located chunks show. */
#include <inttypes.h>
#include <stdio.h>

#include "base/text.h"
#include "run/run.h"

typedef struct same_count {
    uint64_t count;
    fsdpck_error first;
} same_count;

static void count_same(void *ctx, const fsdpck_error *what)
{
    same_count *s = ctx;
    if (s->count++ == 0)
        s->first = *what;
}

fsdpck_status run_warn_same_files(run *r, fsdpck_error *err)
{
    same_count s = {.first = FSDPCK_ERROR_INIT};
    RETURN_IF(exec_find_same_files(r->exec, count_same, &s, err));
    char others[60] = "";
    if (s.count > 1)
        snprintf(others, sizeof others, "; and %" PRIu64 " more such file%s", s.count - 1,
                 text_plural(s.count - 1));
    if (s.count > 0)
        log_warn(&r->ctx->log, FSDPCK_FINDING_FILE_SAME, "", "'%s': %s%s", s.first.path,
                 s.first.message, others);
    return FSDPCK_OK;
}
