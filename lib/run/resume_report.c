#include "run/resume_report.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "run/run.h"

const char resume_next_not_needed[] =
    "remove it if no run needs it: fsdpck inspect --partials lists it";

void resume_warn_fresh(const run *r, const char *partial, const char *what, const char *why,
                       const char *next)
{
    log_warn(&r->ctx->log, FSDPCK_FINDING_RESUME_FRESH, next,
             "'%s' next to '%s' %s, and the run begins from the start: %s", partial, r->dst, what,
             why);
}

void resume_report_continued(const run *r)
{
    const run_resume *p = &r->resume;
    if (!p->continues)
        return;
    log_write(&r->ctx->log, LOG_NOTE,
              "continuing '%s': %zu finished ranges, %" PRIu64 " bytes%s", r->out.partial_name,
              p->finished.ranges.count, p->finished.nbytes,
              group_size(r->ctx->group) > 1 ? " of rank 0" : "");
    if (p->finished.torn_nbytes > 0)
        log_write(&r->ctx->log, LOG_DETAIL, "the last %" PRIu64 " bytes of its journal are cut",
                  p->finished.torn_nbytes);
}

/* Unfinished outputs that the run does not use and that no other message names. */
static void report_others(const run *r, const char *first, size_t count)
{
    char more[64] = "";
    if (count > 0 && r->resume.continues) {
        log_write(&r->ctx->log, LOG_NOTE,
                  "not used, next to '%s': %zu other unfinished output%s of it, such as '%s': "
                  "fsdpck inspect --partials lists %s",
                  r->dst, count, count == 1 ? "" : "s", first, count == 1 ? "it" : "them");
        return;
    }
    if (count > 1)
        snprintf(more, sizeof more, "; neither have %zu others", count - 1);
    if (count > 0)
        log_warn(&r->ctx->log, FSDPCK_FINDING_RESUME_FRESH, resume_next_not_needed,
                 "'%s' next to '%s' was not used, and the run begins from the start: it has no journal. A run "
                 "without --resume writes none, and one with it removes it just before its end%s",
                 first, r->dst, more);
}

void resume_report_remains(const run *r, const output_remains *found)
{
    const bool continues = r->resume.continues;
    const char *first = NULL;
    size_t others = 0;
    for (size_t i = 0; i < found->list.count; i++) {
        const output_remain *o = output_remain_at(found, i);
        if (!o->has_partial && output_remove_orphans(r->dst, o->partial)) {
            if (continues)
                log_write(&r->ctx->log, LOG_NOTE, "'%s' next to '%s' is gone; its journal was removed",
                          o->partial, r->dst);
            else
                resume_warn_fresh(r, o->partial, "is gone", "its journal was removed",
                           "keep unfinished outputs and their journals between runs with --resume");
        } else if ((o->has_partial && !o->has_journal) ||
                   (continues && strcmp(o->partial, r->out.partial_name) != 0)) {
            first = first == NULL ? o->partial : first;
            others++;
        }
    }
    report_others(r, first, others);
}

/* The first unfinished output, with or without a journal. */
static void warn_refused(const run *r, const output_remains *found, const char *why)
{
    for (size_t i = 0; i < found->list.count; i++) {
        const output_remain *o = output_remain_at(found, i);
        if (!o->has_partial)
            continue;
        resume_warn_fresh(r, o->partial, "was not used", why, resume_next_not_needed);
        return;
    }
}

fsdpck_status resume_report_refused(const run *r, const char *why, fsdpck_error *err)
{
    output_remains found;
    journal_header none;
    if (why != NULL)
        log_write(&r->ctx->log, LOG_NOTE, "--resume does not apply to this run: %s", why);
    if (group_rank(r->ctx->group) != 0)
        return FSDPCK_OK;
    journal_header_init(&none, &r->src->metadata);
    const fsdpck_status st = output_remains_find(&found, r->dst, &none, err);
    if (st == FSDPCK_OK)
        warn_refused(r, &found, why != NULL ? why : "another rank of this run cannot have a journal");
    output_remains_release(&found);
    journal_header_release(&none);
    return st;
}
