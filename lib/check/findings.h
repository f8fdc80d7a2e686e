/* findings.h: what verify found, and how bad it is.
 *
 *     findings f;
 *     findings_init(&f);
 *     RETURN_IF(finding_rules_set(&f.rules, "NUM-NAN=error", err));   // what the user says
 *     findings_report(&f, &err);                          // err.finding is the id; from any thread
 *     for (i = 0; i < f.kept; i++) ... f.list[i] ...
 *     findings_release(&f);
 *
 * Errors and warnings are findings; notes are not. Of very many the first are kept, all are counted.
 */
#ifndef FSDPCK_CHECK_FINDINGS_H
#define FSDPCK_CHECK_FINDINGS_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "findings/finding.h"

#define FINDINGS_MAX 1000u

/* Of one severity, in this order: files before the tensors that are hurt by them. */
typedef enum finding_group {
    FINDINGS_ALL,
    FINDINGS_LIST_MISSING, /* tensors of a list */
    FINDINGS_LIST_EXTRA,
    FINDINGS_LIST_TYPE,
    FINDINGS_TENSOR_SUM
} finding_group;

typedef struct finding {
    finding_severity severity;
    finding_group group;
    fsdpck_error what; /* status BADINPUT */
} finding;

typedef struct findings {
    finding_rules rules;
    finding *list;
    size_t kept, capacity;
    uint64_t counts[FINDING_SEVERITIES]; /* those to be ignored are counted, not kept */
    uint64_t unsupported;                /* of the errors: legal, but not read */
    bool lost;                           /* memory ran out: some are counted only */
    pthread_mutex_t lock;
} findings;

void findings_init(findings *f);
void findings_release(findings *f);
/* As bad as the rules say of its id; an error where they do not know it. */
void findings_report(findings *f, const fsdpck_error *what);
void findings_report_in(findings *f, finding_group group, const fsdpck_error *what);
/* The same, where one id may be worse in one place than in another: as bad as the caller says, unless
 * the user has set it otherwise. */
void findings_report_as(findings *f, finding_severity severity, const fsdpck_error *what);
/* As bad as the caller says: of what keeps the checkpoint from being looked at, which is no matter of
 * taste. */
void findings_add(findings *f, finding_severity severity, const fsdpck_error *what);

/* What another process found: its `list` of findings, of any alignment. Counting them is the caller's. */
void findings_append(findings *f, const uint8_t *list, uint64_t count);

/* Whether one of this id at this byte of this file is among those that are kept. From any thread. */
bool findings_contain(findings *f, const fsdpck_error *what);

/* Whether one of this id, at least so bad, is among those that are kept. */
bool findings_contain_id(findings *f, fsdpck_finding_id id, finding_severity severity);

/* As findings_add, unless it is among those that are kept. */
void findings_add_new(findings *f, finding_severity severity, const fsdpck_error *what);

/* One that was added with this severity is told no longer. */
void findings_remove(findings *f, finding_severity severity, const fsdpck_error *what);

/* Once all are there: the worst first, then by group, file and offset, however many threads found them. */
void findings_sort(findings *f);

#endif
