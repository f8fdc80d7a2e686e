/* reported_findings.h: the findings of verify, with severities.
 *
 *     findings f;
 *     findings_init(&f);
 *     RETURN_IF(finding_rules_set(&f.rules, "NUM-NAN=error", err));   // the user's severities
 *     findings_report(&f, &err);                          // err.finding is the id; from any thread
 *     for (i = 0; i < f.kept; i++) ... f.list[i] ...
 *     findings_release(&f);
 *
 * Errors and warnings make the result a failure; notes do not. Only the first ones are kept, all are counted.
 */
#ifndef FSDPCK_CHECK_REPORTED_FINDINGS_H
#define FSDPCK_CHECK_REPORTED_FINDINGS_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "findings/finding_kinds.h"

#define FINDINGS_MAX 1000u

/* Order within a severity: files before the tensors that they damage. */
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
    uint64_t counts[FINDING_SEVERITIES]; /* ignored ones are counted, not kept */
    uint64_t unsupported;                /* of the errors: legal, but not read */
    bool lost;                           /* memory ran out: some are counted only */
    pthread_mutex_t lock;
} findings;

void findings_init(findings *f);
void findings_release(findings *f);
/* Adds a finding with the severity that the rules give its id; error if they do not list it. */
void findings_report(findings *f, const fsdpck_error *what);
void findings_report_in(findings *f, finding_group group, const fsdpck_error *what);
/* The same for ids whose severity depends on the context: the caller's severity, unless the user
 * has set one. */
void findings_report_as(findings *f, finding_severity severity, const fsdpck_error *what);
/* Adds a finding with the caller's severity, which the user cannot change. For defects that prevent
 * the check. */
void findings_add(findings *f, finding_severity severity, const fsdpck_error *what);

/* Adds findings of another process: its `list`, of any alignment. The caller counts them. */
void findings_append(findings *f, const uint8_t *list, uint64_t count);

/* Whether a kept finding has this id, file and offset. From any thread. */
bool findings_contain(findings *f, const fsdpck_error *what);

/* Whether a kept finding has this id and at least this severity. */
bool findings_contain_id(findings *f, fsdpck_finding_id id, finding_severity severity);

/* Like findings_add, unless an equal finding is kept. */
void findings_add_new(findings *f, finding_severity severity, const fsdpck_error *what);

/* Removes one that was added with this severity. */
void findings_remove(findings *f, finding_severity severity, const fsdpck_error *what);

/* Keeps the first finding of this id that names a tensor, with the number of the others, which have the same
 * cause. */
void findings_merge_tensors(findings *f, fsdpck_finding_id id);

/* Keeps, of each file, the finding of this id with the lowest offset, with the number of the others. Sorts. */
void findings_merge_files(findings *f, fsdpck_finding_id id);

/* Sorts the findings: the worst first, then by group, file and offset. The order does not depend on
 * threads. */
void findings_sort(findings *f);

#endif
