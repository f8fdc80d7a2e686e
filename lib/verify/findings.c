#include "verify/findings.h"

#include <stdlib.h>

void findings_init(findings *f)
{
    *f = (findings){0};
    finding_rules_init(&f->rules);
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
    if (severity != FINDING_IGNORE && f->kept < FINDINGS_KEPT) {
        if (make_room(f))
            f->list[f->kept++] = (finding){severity, *what};
        else
            f->lost = true;
    }
    pthread_mutex_unlock(&f->lock);
}

void findings_tell(findings *f, const fsdpck_error *what)
{
    findings_add(f, finding_rules_get(&f->rules, what->finding, FINDING_ERROR), what);
}
