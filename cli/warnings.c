#include "warnings.h"

#include <stdio.h>

#include "report.h"

/* Before its message: the side of a diff, or "". */
static const char *side_of(const cli *c, size_t i)
{
    return i < c->warnings_of_a ? "A: " : i < c->warnings_of_b ? "B: " : "";
}

size_t warnings_count(const cli *c)
{
    fsdpck_warning w = FSDPCK_INIT(fsdpck_warning);
    size_t count = 0;
    while (fsdpck_context_warning(c->ctx, count, &w))
        count++;
    return count;
}

void warnings_print(cli *c)
{
    fsdpck_warning w = FSDPCK_INIT(fsdpck_warning);
    flockfile(stderr);
    for (; fsdpck_context_warning(c->ctx, c->warnings_printed, &w); c->warnings_printed++) {
        fprintf(stderr, "fsdpck %s: %swarning:%s %s%s", c->command, paint(&c->err, PAINT_WARNING),
                paint(&c->err, PAINT_END), side_of(c, c->warnings_printed), w.message);
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
    for (size_t i = 0; fsdpck_context_warning(c->ctx, i, &w); i++) {
        text_buf message = {0};
        text_printf(&message, "%s%s", side_of(c, i), w.message);
        json->out->failed |= message.failed;
        warnings_put_finding(json, w.finding, "warning", message.failed ? "" : message.text,
                             report_next(w.finding, w.next));
        text_release(&message);
    }
}
