#include "verify/findings.h"

#include <stdlib.h>
#include <string.h>

void findings_init(findings *f)
{
    *f = (findings){0};
    pthread_mutex_init(&f->lock, NULL);
}

void findings_release(findings *f)
{
    free(f->list);
    pthread_mutex_destroy(&f->lock);
    *f = (findings){0};
}

static bool make_room(findings *f)
{
    if (f->kept < f->capacity)
        return true;
    const size_t capacity = f->capacity == 0 ? 8 : 2 * f->capacity;
    finding *more = realloc(f->list, capacity * sizeof *more);
    if (more == NULL)
        return false;
    f->list = more;
    f->capacity = capacity;
    return true;
}

void findings_add(findings *f, finding_severity severity, const fsdpck_error *what)
{
    pthread_mutex_lock(&f->lock);
    f->counts[severity]++;
    if (f->kept < FINDINGS_KEPT) {
        if (make_room(f))
            f->list[f->kept++] = (finding){severity, *what};
        else
            f->lost = true;
    }
    pthread_mutex_unlock(&f->lock);
}

finding_severity findings_severity_of(const char *id)
{
    /* What can be said of a good file too. */
    static const char *const notes[] = {
        "ST-RANKS-UNKNOWN", "DCP-LEFT-OUT", "RANK-FLAT",    "DCP-PARTIAL",   "ZIP-DEFLATE",
        "NUM-INF",          "NUM-ZERO",     "NUM-CONSTANT", "CHECKSUM-NONE", "PKL-OPAQUE",
    };
    for (size_t i = 0; i < sizeof notes / sizeof *notes; i++)
        if (strcmp(notes[i], id) == 0)
            return FINDING_NOTE;
    return FINDING_WARNING;
}
