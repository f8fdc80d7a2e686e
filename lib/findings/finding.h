/* finding.h: the kinds of findings, as constant data: findings.def is the table, fsdpck-findings(7)
 * the same for users.
 *
 *     const finding_kind *k = finding_find("ZIP-CRC");   // what a user typed; NULL: no such id
 *     const finding_former *f = finding_former_find("DCP-GAP"); // an id of older releases; NULL: none
 *     for (size_t i = 0; i < FINDING_KINDS; i++)
 *         ... finding_at(i)->id ...                      // in the order of the ids
 *
 * How bad each is, as the user has set it:
 *
 *     finding_rules r;
 *     finding_rules_init(&r);                            // what the table says
 *     RETURN_IF(finding_rules_set(&r, "NUM-NAN=error", err));
 *     severity = finding_rules_get(&r, err->finding, FINDING_ERROR);
 */
#ifndef FSDPCK_FINDINGS_FINDING_H
#define FSDPCK_FINDINGS_FINDING_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

/* Errors and warnings are findings; notes are told of good checkpoints too. */
typedef enum finding_severity {
    FINDING_IGNORE,
    FINDING_NOTE,
    FINDING_WARNING,
    FINDING_ERROR,
    FINDING_SEVERITIES
} finding_severity;

typedef enum finding_class {
    FINDING_AMBIGUITY, /* two readers could see different data in it */
    FINDING_PATH,      /* a name in the input leads out of it */
    FINDING_CODE,      /* would run code in Python */
    FINDING_STRUCTURE, /* malformed */
    FINDING_MISSING,   /* cut short, or not there */
    FINDING_COVERAGE,  /* elements that are nowhere, or twice */
    FINDING_AGREEMENT, /* parts of the checkpoint contradict each other */
    FINDING_CHECKSUM,
    FINDING_NUMERIC,
    FINDING_DOUBT, /* what the files alone do not tell */
    FINDING_MODEL, /* about the description of the model */
    FINDING_REQUEST,
    FINDING_COMPARE, /* between two checkpoints, or one and a list */
    FINDING_SUPPORT, /* legal, but not read */
    FINDING_LIMIT,
    FINDING_SYSTEM, /* of the machine or the program, not of the input */
    FINDING_CLASSES
} finding_class;

typedef struct finding_kind {
    fsdpck_finding_id number;
    const char *id; /* "ZIP-CRC" */
    finding_class class;
    finding_severity severity;
    const char *means; /* one line */
    const char *next;  /* what to do */
} finding_kind;

enum {
#define FINDING(name, id, class, severity, means, next) +1
    FINDING_KINDS = 0
#include "findings/findings.def"
#undef FINDING
};

/* An id that findings had in older releases: findings/former_ids.def. */
typedef struct finding_former {
    const char *id; /* "DCP-GAP" */
    fsdpck_finding_id now;
} finding_former;

/* NULL from FINDING_KINDS on. */
const finding_kind *finding_at(size_t index);
/* By its id, or by a former one. */
const finding_kind *finding_find(const char *id);
/* NULL where `id` is not a former one. */
const finding_former *finding_former_find(const char *id);
/* NULL for FSDPCK_FINDING_NONE. */
const finding_kind *finding_get(fsdpck_finding_id id);

/* For a failure without a finding, such as that of a system call. FSDPCK_FINDING_NONE where the table
 * has no row for the status. */
fsdpck_finding_id finding_of_status(fsdpck_status status);

const char *finding_severity_name(finding_severity severity); /* "error" */
const char *finding_class_name(finding_class class);          /* "ambiguity" */
/* About the machine, the program or its limits, not about the checkpoint. */
bool finding_is_of_machine(const finding_kind *kind);
/* Users may not set it: what is ambiguous or leads elsewhere is never good. */
bool finding_is_fixed(const finding_kind *kind);

typedef struct finding_rules {
    unsigned char severity[FINDING_KINDS]; /* finding_severity */
    unsigned char given[FINDING_KINDS];    /* whether it was set */
} finding_rules;

void finding_rules_init(finding_rules *rules);
/* "ID=error", "=warn", "=note" or "=ignore". Errors: USAGE, with the nearest id. */
fsdpck_status finding_rules_set(finding_rules *rules, const char *text,
                                fsdpck_error *err) FSDPCK_MUST_CHECK;
/* `otherwise` for FSDPCK_FINDING_NONE. */
finding_severity finding_rules_get(const finding_rules *rules, fsdpck_finding_id id,
                                   finding_severity otherwise);
/* `otherwise` of an id that was not set. */
finding_severity finding_rules_given(const finding_rules *rules, fsdpck_finding_id id,
                                     finding_severity otherwise);

#endif
