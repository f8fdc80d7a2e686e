#include "warnings.h"

#include <stdio.h>

#include "report.h"

void warnings_print(cli *c)
{
    fsdpck_warning w = FSDPCK_INIT(fsdpck_warning);
    flockfile(stderr);
    for (; fsdpck_context_warning(c->ctx, c->warnings_printed, &w); c->warnings_printed++) {
        fprintf(stderr, "fsdpck %s: warning: %s", c->command, w.message);
        if (w.finding != FSDPCK_FINDING_NONE)
            fprintf(stderr, " [%s]", fsdpck_finding_name(w.finding));
        fputc('\n', stderr);
        const char *next = report_next(w.finding, w.next);
        if (next[0] != '\0')
            fprintf(stderr, "  next:     %s\n", next);
    }
    funlockfile(stderr);
}

bool warnings_any(const cli *c)
{
    fsdpck_warning w = FSDPCK_INIT(fsdpck_warning);
    return fsdpck_context_warning(c->ctx, 0, &w) != 0;
}

void warnings_add_finding(cJSON *findings, fsdpck_finding_id finding, const char *severity,
                          const char *message, const char *next)
{
    cJSON *o = cJSON_CreateObject();
    cJSON_AddStringToObject(o, "finding", fsdpck_finding_name(finding));
    cJSON_AddStringToObject(o, "severity", severity);
    cJSON_AddStringToObject(o, "message", message);
    cJSON_AddStringToObject(o, "next", next);
    cJSON_AddItemToArray(findings, o);
}

void warnings_add_json(const cli *c, cJSON *findings)
{
    fsdpck_warning w = FSDPCK_INIT(fsdpck_warning);
    for (size_t i = 0; fsdpck_context_warning(c->ctx, i, &w); i++)
        warnings_add_finding(findings, w.finding, "warning", w.message,
                             report_next(w.finding, w.next));
}
