#include "verify/latest_uncertain.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "verify/latest_recorded.h"

#define WARNINGS_MAX 4u /* of single checkpoints; further ones are counted */
#define NAMED_MAX    4u /* in the warning that counts */

/* Names that are counted in one warning, the first ones by name. */
typedef struct counted {
    uint64_t count, named_count;
    char named[300];
} counted;

static void count_name(counted *c, const char *name)
{
    const size_t used = strlen(c->named);
    const bool fits = used + strlen(name) + sizeof ", ''" <= sizeof c->named;
    if (c->named_count < NAMED_MAX && fits)
        c->named_count += snprintf(c->named + used, sizeof c->named - used, "%s'%s'",
                                   used > 0 ? ", " : "", name) > 0;
    c->count++;
}

static void warn_counted(const counted *c, const logger *log)
{
    const bool one = c->count == 1;
    if (c->count > 0)
        log_warn(log, FSDPCK_FINDING_LATEST_NAME,
                 "check these by hand, or rename them to names such as step-1000",
                 "%" PRIu64 " name%s numbers, but no certain step, and %s not considered%s%s",
                 c->count, one ? " contains" : "s contain", one ? "was" : "were",
                 c->named_count < c->count ? ", such as " : ": ", c->named);
}

static void warn_later(const char *name, int64_t recorded, int64_t step, const latest_step *chosen,
                       const logger *log)
{
    log_warn(log, FSDPCK_FINDING_LATEST_NAME,
             "decide which of the two to resume from, or rename it to a name such as step-1000",
             "'%s' was not considered: its name has no certain step, but it records step %" PRId64
             ", %slater than '%s'",
             name, recorded, step >= 0 ? "" : "which may be ", text_file_name(chosen->path));
}

void latest_uncertain_warn(fsdpck_context *ctx, const latest_list *l, const latest_runs *runs,
                           const latest_step *chosen, const fsdpck_open_options *open)
{
    counted others = {0};
    const bool any = l->unnumbered.count > 0;
    const int64_t step = any ? latest_recorded_step_of_chosen(ctx, chosen, open) : -1;
    unsigned warned = 0;
    for (size_t i = 0; i < l->unnumbered.count; i++) {
        const char *path = VEC_AT(&l->unnumbered, const latest_step, i)->path;
        if (latest_runs_has(runs, path) || !latest_runs_is_checkpoint(path) ||
            latest_recorded_is_link(l, path))
            continue;
        const int64_t recorded = chosen != NULL ? latest_recorded_step(ctx, path, open) : -1;
        const bool is_later = recorded >= 0 && (step < 0 || recorded > step);
        if (is_later && warned < WARNINGS_MAX)
            warn_later(text_file_name(path), recorded, step, chosen, &ctx->log);
        else if (is_later || recorded < 0)
            count_name(&others, text_file_name(path));
        warned += is_later;
    }
    warn_counted(&others, &ctx->log);
}
