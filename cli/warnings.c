#include "warnings.h"

#include <stdio.h>

#include "report.h"

void warnings_print(cli *c)
{
    fsdpck_warning w = FSDPCK_INIT(fsdpck_warning);
    flockfile(stderr);
    for (; fsdpck_context_warning(c->ctx, c->warnings_printed, &w); c->warnings_printed++) {
        fprintf(stderr, "fsdpck %s: %swarning:%s %s", c->command, paint(&c->err, PAINT_WARNING),
                paint(&c->err, PAINT_END), w.message);
        if (w.finding != FSDPCK_FINDING_NONE)
            fprintf(stderr, " [%s]", fsdpck_finding_name(w.finding));
        fputc('\n', stderr);
        const char *next = report_next(w.finding, w.next);
        if (next[0] != '\0')
            fprintf(stderr, "  next:     %s\n", next);
    }
    funlockfile(stderr);
}

/* SYS-...: not about the input. */
static bool is_of_machine(fsdpck_finding_id finding)
{
    switch (finding) {
    case FSDPCK_FINDING_SYS_BUG:
    case FSDPCK_FINDING_SYS_CHANGED:
    case FSDPCK_FINDING_SYS_DEVICE:
    case FSDPCK_FINDING_SYS_IO:
    case FSDPCK_FINDING_SYS_PEER:
    case FSDPCK_FINDING_SYS_SPACE:
    case FSDPCK_FINDING_SYS_UNSUPPORTED:
        return true;
    default:
        return false;
    }
}

bool warnings_any(const cli *c)
{
    fsdpck_warning w = FSDPCK_INIT(fsdpck_warning);
    bool any = false;
    for (size_t i = 0; !any && fsdpck_context_warning(c->ctx, i, &w) != 0; i++)
        any = !is_of_machine(w.finding);
    return any;
}

void warnings_begin_finding(json_writer *w, fsdpck_finding_id finding, const char *severity,
                            const char *message, const char *next)
{
    json_begin_object(w);
    json_member_string(w, "finding", fsdpck_finding_name(finding));
    json_member_string(w, "severity", severity);
    json_member_string(w, "message", message);
    json_member_string(w, "next", next);
}

void warnings_put_finding(json_writer *w, fsdpck_finding_id finding, const char *severity,
                          const char *message, const char *next)
{
    warnings_begin_finding(w, finding, severity, message, next);
    json_end_object(w);
}

void warnings_put(const cli *c, json_writer *json)
{
    fsdpck_warning w = FSDPCK_INIT(fsdpck_warning);
    for (size_t i = 0; fsdpck_context_warning(c->ctx, i, &w); i++)
        warnings_put_finding(json, w.finding, "warning", w.message, report_next(w.finding, w.next));
}
