/* findings.h: what verify found, and how bad it is.
 *
 *     findings f;
 *     findings_init(&f);
 *     findings_add(&f, FINDING_ERROR, &err);            // err.finding is the id; from any thread
 *     for (i = 0; i < f.kept; i++) ... f.list[i] ...
 *     findings_release(&f);
 *
 * Errors and warnings are findings; notes are not. Of very many the first are kept, all are counted.
 */
#ifndef FSDPCK_VERIFY_FINDINGS_H
#define FSDPCK_VERIFY_FINDINGS_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

typedef enum finding_severity {
    FINDING_NOTE,
    FINDING_WARNING,
    FINDING_ERROR,
    FINDING_SEVERITIES
} finding_severity;

#define FINDINGS_KEPT 1000u

typedef struct finding {
    finding_severity severity;
    fsdpck_error what; /* status BADINPUT */
} finding;

typedef struct findings {
    finding *list;
    size_t kept, capacity;
    uint64_t counts[FINDING_SEVERITIES];
    bool lost; /* memory ran out: some are counted only */
    pthread_mutex_t lock;
} findings;

void findings_init(findings *f);
void findings_release(findings *f);
void findings_add(findings *f, finding_severity severity, const fsdpck_error *what);

/* The same, unless it is among those that are kept. */
void findings_add_new(findings *f, finding_severity severity, const fsdpck_error *what);

/* Once all are there: the worst first, then by file and offset, however many threads found them. */
void findings_sort(findings *f);

/* Of a warning of a reader by its id: a note where good files have it too. */
finding_severity findings_severity_of(const char *id);

#endif
