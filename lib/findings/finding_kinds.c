#include "findings/finding_kinds.h"

#include <string.h>

/* Ids that need more edits are not suggested. */
#define EDITS_MOST  4u
#define ID_CAPACITY 32u

static const finding_kind kinds[FINDING_KINDS] = {
#define FINDING(name, id, class, severity, means, next) \
    {FSDPCK_FINDING_##name, id, FINDING_##class, FINDING_##severity, means, next},
#include "findings/findings.def"
#undef FINDING
};

static const finding_former formers[] = {
#define FORMER(id, name) {id, FSDPCK_FINDING_##name},
#include "findings/former_ids.def"
#undef FORMER
};

#define FORMER_IDS (sizeof formers / sizeof *formers)

/* Indexes into `kinds`. */
enum {
#define FINDING(name, id, class, severity, means, next) ROW_##name,
#include "findings/findings.def"
#undef FINDING
};

/* Finding number -> index into `kinds` plus 1; 0 for a number without a row. */
static const uint16_t rows[] = {
#define FINDING(name, id, class, severity, means, next) [FSDPCK_FINDING_##name] = ROW_##name + 1,
#include "findings/findings.def"
#undef FINDING
};

static const char *const severity_names[FINDING_SEVERITIES] = {
    [FINDING_IGNORE] = "ignore",
    [FINDING_NOTE] = "note",
    [FINDING_WARNING] = "warning",
    [FINDING_ERROR] = "error",
};

const finding_kind *finding_at(size_t index)
{
    return index < FINDING_KINDS ? &kinds[index] : NULL;
}

const finding_kind *finding_get(fsdpck_finding_id id)
{
    const size_t number = (size_t)id;
    return number < sizeof rows / sizeof *rows && rows[number] > 0 ? &kinds[rows[number] - 1]
                                                                   : NULL;
}

const char *fsdpck_finding_name(fsdpck_finding_id id)
{
    const finding_kind *kind = finding_get(id);
    return kind == NULL ? "" : kind->id;
}

const finding_kind *finding_find(const char *id)
{
    size_t low = 0, high = FINDING_KINDS;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        const int order = strcmp(id, kinds[middle].id);
        if (order == 0)
            return &kinds[middle];
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    const finding_former *former = finding_former_find(id);
    return former == NULL ? NULL : finding_get(former->now);
}

const finding_former *finding_former_find(const char *id)
{
    for (size_t i = 0; i < FORMER_IDS; i++)
        if (strcmp(id, formers[i].id) == 0)
            return &formers[i];
    return NULL;
}

const char *finding_severity_name(finding_severity severity)
{
    return severity_names[severity];
}

const char *finding_class_name(finding_class class)
{
    static const char *const names[FINDING_CLASSES] = {
        [FINDING_AMBIGUITY] = "ambiguity", [FINDING_PATH] = "path",
        [FINDING_CODE] = "code",           [FINDING_STRUCTURE] = "structure",
        [FINDING_MISSING] = "missing",     [FINDING_COVERAGE] = "coverage",
        [FINDING_AGREEMENT] = "agreement", [FINDING_CHECKSUM] = "checksum",
        [FINDING_NUMERIC] = "numeric",     [FINDING_DOUBT] = "doubt",
        [FINDING_MODEL] = "model",         [FINDING_REQUEST] = "request",
        [FINDING_COMPARE] = "compare",     [FINDING_SUPPORT] = "support",
        [FINDING_LIMIT] = "limit",         [FINDING_SYSTEM] = "system",
    };
    return names[class];
}

fsdpck_finding_id finding_of_status(fsdpck_status status)
{
    switch (status) {
    case FSDPCK_UNSUPPORTED:
        return FSDPCK_FINDING_SYS_UNSUPPORTED;
    case FSDPCK_IO:
        return FSDPCK_FINDING_SYS_IO;
    case FSDPCK_NOSPACE:
        return FSDPCK_FINDING_SYS_SPACE;
    case FSDPCK_CHANGED:
        return FSDPCK_FINDING_SYS_CHANGED;
    case FSDPCK_PEER:
        return FSDPCK_FINDING_SYS_PEER;
    case FSDPCK_DEVICE:
        return FSDPCK_FINDING_SYS_DEVICE;
    case FSDPCK_INTERNAL:
        return FSDPCK_FINDING_SYS_BUG;
    default:
        return FSDPCK_FINDING_NONE;
    }
}

bool finding_is_of_machine(const finding_kind *kind)
{
    switch (kind->number) {
    case FSDPCK_FINDING_LIMIT_COUNT:
    case FSDPCK_FINDING_LIMIT_MEMORY:
    case FSDPCK_FINDING_LIMIT_OPEN:
    case FSDPCK_FINDING_LIMIT_SIZE:
    case FSDPCK_FINDING_LIMIT_WARNINGS:
        return true;
    default:
        return kind->class == FINDING_SYSTEM;
    }
}

bool finding_is_fixed(const finding_kind *kind)
{
    return kind->class == FINDING_AMBIGUITY || kind->class == FINDING_PATH;
}

/* ---- severities that the user sets ---- */

static char upper(char c)
{
    return c >= 'a' && c <= 'z' ? (char)(c - 'a' + 'A') : c == '_' ? '-' : c;
}

/* Edit distance, ignoring case. Both strings are shorter than ID_CAPACITY. */
static unsigned edits_between(const char *a, const char *b)
{
    unsigned row[ID_CAPACITY];
    const size_t n = strlen(b);
    for (size_t k = 0; k <= n; k++)
        row[k] = (unsigned)k;
    for (size_t i = 0; a[i] != '\0'; i++) {
        unsigned diagonal = row[0];
        row[0] = (unsigned)i + 1;
        for (size_t k = 0; k < n; k++) {
            const unsigned exchanged = diagonal + (upper(a[i]) != b[k]);
            diagonal = row[k + 1];
            unsigned least = exchanged < diagonal + 1 ? exchanged : diagonal + 1;
            if (row[k] + 1 < least)
                least = row[k] + 1;
            row[k + 1] = least;
        }
    }
    return row[n];
}

static const finding_kind *nearest(const char *id)
{
    const finding_kind *best = NULL;
    /* At most half of its letters. */
    const unsigned half = (unsigned)strlen(id) / 2;
    unsigned best_edits = (half < EDITS_MOST ? half : EDITS_MOST) + 1;
    for (size_t i = 0; i < FINDING_KINDS + FORMER_IDS; i++) {
        const bool former = i >= FINDING_KINDS;
        const char *candidate = former ? formers[i - FINDING_KINDS].id : kinds[i].id;
        const unsigned edits = edits_between(id, candidate);
        if (edits < best_edits) {
            best_edits = edits;
            best = former ? finding_get(formers[i - FINDING_KINDS].now) : &kinds[i];
        }
    }
    return best;
}

static fsdpck_status refuse_id(const char *id, fsdpck_error *err)
{
    const finding_kind *meant = strlen(id) < ID_CAPACITY ? nearest(id) : NULL;
    FAIL(err, USAGE, NONE, "unknown finding '%s'", id);
    if (meant != NULL)
        error_next(err, "use '%s' if you mean that finding: fsdpck-findings(7) lists all ids",
                   meant->id);
    else
        error_next(err, "choose an id from fsdpck-findings(7)");
    return FSDPCK_USAGE;
}

static fsdpck_status refuse_fixed(const finding_kind *kind, fsdpck_error *err)
{
    return FAIL_WITH(
        err, USAGE, NONE,
        ("severity of '%s' cannot be changed: %s", kind->id,
         kind->class == FINDING_PATH
             ? "an unsafe name, link or file type is always an error"
             : "data that readers interpret differently is always an error"),
        (next, "omit this --set: findings of the classes ambiguity and path remain errors"));
}

static bool severity_of(const char *word, finding_severity *severity)
{
    for (int i = 0; i < FINDING_SEVERITIES; i++)
        if (strcmp(word, severity_names[i]) == 0 ||
            (i == FINDING_WARNING && strcmp(word, "warn") == 0)) {
            *severity = (finding_severity)i;
            return true;
        }
    return false;
}

void finding_rules_init(finding_rules *rules)
{
    memset(rules->given, 0, sizeof rules->given);
    for (size_t i = 0; i < FINDING_KINDS; i++)
        rules->severity[i] = (unsigned char)kinds[i].severity;
}

fsdpck_status finding_rules_set(finding_rules *rules, const char *text, fsdpck_error *err)
{
    char id[256];
    finding_severity severity;
    const char *equals = strchr(text, '=');
    const size_t nbytes = equals == NULL ? 0 : (size_t)(equals - text);
    if (nbytes == 0 || nbytes >= sizeof id || !severity_of(equals + 1, &severity))
        return FAIL_WITH(
            err, USAGE, NONE, ("'%s' is not a finding with a severity", text),
            (expected, "ID=error, ID=warn, ID=note or ID=ignore, such as NUM-NAN=error"),
            (next, "choose an id from fsdpck-findings(7)"));
    memcpy(id, text, nbytes);
    id[nbytes] = '\0';
    const finding_kind *kind = finding_find(id);
    if (kind == NULL)
        return refuse_id(id, err);
    if (finding_is_fixed(kind))
        return refuse_fixed(kind, err);
    rules->severity[kind - kinds] = (unsigned char)severity;
    rules->given[kind - kinds] = 1;
    return FSDPCK_OK;
}

finding_severity finding_rules_get(const finding_rules *rules, fsdpck_finding_id id,
                                   finding_severity otherwise)
{
    const finding_kind *kind = finding_get(id);
    return kind == NULL ? otherwise : (finding_severity)rules->severity[kind - kinds];
}

finding_severity finding_rules_given(const finding_rules *rules, fsdpck_finding_id id,
                                     finding_severity otherwise)
{
    const finding_kind *kind = finding_get(id);
    return kind == NULL || !rules->given[kind - kinds]
               ? otherwise
               : (finding_severity)rules->severity[kind - kinds];
}
