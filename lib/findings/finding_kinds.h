/* finding_kinds.h: the table of findings (findings.def) as constant data. fsdpck-findings(7) documents it
 * for users.
 *
 *     const finding_kind *k = finding_find("ZIP-CRC");   // typed by the user; NULL: unknown
 *     const finding_former *f = finding_former_find("DCP-GAP"); // an id of older releases; NULL: none
 *     for (size_t i = 0; i < FINDING_KINDS; i++)
 *         ... finding_at(i)->id ...                      // in the order of the ids
 *
 * Severities, as changed by the user:
 *
 *     finding_rules r;
 *     finding_rules_init(&r);                            // the severities of the table
 *     RETURN_IF(finding_rules_set(&r, "NUM-NAN=error", err));
 *     severity = finding_rules_get(&r, err->finding, FINDING_ERROR);
 */
#ifndef FSDPCK_FINDINGS_FINDING_KINDS_H
#define FSDPCK_FINDINGS_FINDING_KINDS_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

/* Good checkpoints can have notes, but no warnings or errors. */
typedef enum finding_severity {
    FINDING_IGNORE,
    FINDING_NOTE,
    FINDING_WARNING,
    FINDING_ERROR,
    FINDING_SEVERITIES
} finding_severity;

typedef enum finding_class {
    FINDING_AMBIGUITY, /* two programs could read different data from it */
    FINDING_PATH,      /* a name in the input leads outside it */
    FINDING_CODE,      /* would run code in Python */
    FINDING_STRUCTURE, /* malformed */
    FINDING_MISSING,   /* truncated, or does not exist */
    FINDING_COVERAGE,  /* elements that are missing, or stored twice */
    FINDING_AGREEMENT, /* parts of the checkpoint contradict each other */
    FINDING_CHECKSUM,
    FINDING_NUMERIC,
    FINDING_DOUBT, /* the files alone do not decide */
    FINDING_MODEL, /* in the model description */
    FINDING_REQUEST,
    FINDING_COMPARE, /* between two checkpoints, or one and a list */
    FINDING_SUPPORT, /* valid, but not supported */
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
    const char *next;  /* next step for the user, an imperative */
} finding_kind;

enum {
#define FINDING(name, id, class, severity, means, next) +1
    FINDING_KINDS = 0
#include "findings/findings.def"
#undef FINDING
};

/* An id of older releases: findings/former_ids.def. */
typedef struct finding_former {
    const char *id; /* "DCP-GAP" */
    fsdpck_finding_id now;
} finding_former;

/* Rows in the order of their ids. NULL for `index` >= FINDING_KINDS. */
const finding_kind *finding_at(size_t index);
/* Accepts former ids. NULL for an unknown id. */
const finding_kind *finding_find(const char *id);
/* NULL if `id` is not a former id. */
const finding_former *finding_former_find(const char *id);
/* NULL for FSDPCK_FINDING_NONE. */
const finding_kind *finding_get(fsdpck_finding_id id);

/* The finding for a failure that has none, such as a failed system call. FSDPCK_FINDING_NONE if the
 * table has no row for the status. */
fsdpck_finding_id finding_of_status(fsdpck_status status);

const char *finding_severity_name(finding_severity severity); /* "error" */
const char *finding_class_name(finding_class class);          /* "ambiguity" */
/* True for findings about the machine, the program or its limits, not the checkpoint. */
bool finding_is_of_machine(const finding_kind *kind);
/* True if the user cannot change the severity: ambiguous data and outside paths are always errors. */
bool finding_is_fixed(const finding_kind *kind);

typedef struct finding_rules {
    unsigned char severity[FINDING_KINDS]; /* finding_severity */
    unsigned char given[FINDING_KINDS];    /* nonzero: set by the user */
} finding_rules;

void finding_rules_init(finding_rules *rules);
/* `text` is "ID=error", "ID=warn", "ID=note" or "ID=ignore". Errors: USAGE, which names the nearest
 * id. */
fsdpck_status finding_rules_set(finding_rules *rules, const char *text,
                                fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Returns `otherwise` for FSDPCK_FINDING_NONE. */
finding_severity finding_rules_get(const finding_rules *rules, fsdpck_finding_id id,
                                   finding_severity otherwise);
/* Returns `otherwise` for an id that the user did not set. */
finding_severity finding_rules_given(const finding_rules *rules, fsdpck_finding_id id,
                                     finding_severity otherwise);

#endif
