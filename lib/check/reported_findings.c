#include "check/reported_findings.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

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

/* A failure without an id of its own has that of its status, as the program's exit has: a build
 * without HDF5 is SYS-UNSUPPORTED. */
static fsdpck_finding_id id_of(const fsdpck_error *what)
{
    return what->finding != FSDPCK_FINDING_NONE ? what->finding : finding_of_status(what->status);
}

static void add(findings *f, const finding *one)
{
    const finding_severity severity = one->severity;
    pthread_mutex_lock(&f->lock);
    f->counts[severity]++;
    f->unsupported += severity == FINDING_ERROR && one->what.status == FSDPCK_UNSUPPORTED;
    if (severity != FINDING_IGNORE && f->kept < FINDINGS_MAX) {
        if (make_room(f)) {
            f->list[f->kept] = *one;
            f->list[f->kept++].what.finding = id_of(&one->what);
        } else {
            f->lost = true;
        }
    }
    pthread_mutex_unlock(&f->lock);
}

void findings_add(findings *f, finding_severity severity, const fsdpck_error *what)
{
    add(f, &(finding){.severity = severity, .what = *what});
}

void findings_append(findings *f, const uint8_t *list, uint64_t count)
{
    for (uint64_t i = 0; i < count && f->kept < FINDINGS_MAX; i++) {
        if (make_room(f))
            memcpy(&f->list[f->kept++], list + i * sizeof *f->list, sizeof *f->list);
        else
            f->lost = true;
    }
}

void findings_report(findings *f, const fsdpck_error *what)
{
    findings_add(f, finding_rules_get(&f->rules, what->finding, FINDING_ERROR), what);
}

void findings_report_in(findings *f, finding_group group, const fsdpck_error *what)
{
    add(f, &(finding){.severity = finding_rules_get(&f->rules, what->finding, FINDING_ERROR),
                      .group = group,
                      .what = *what});
}

void findings_report_as(findings *f, finding_severity severity, const fsdpck_error *what)
{
    findings_add(f, finding_rules_given(&f->rules, what->finding, severity), what);
}

static bool is_same(const fsdpck_error *a, const fsdpck_error *b)
{
    return id_of(a) == id_of(b) && strcmp(a->path, b->path) == 0 &&
           strcmp(a->tensor, b->tensor) == 0 && strcmp(a->message, b->message) == 0 &&
           a->has_offset == b->has_offset && (!a->has_offset || a->offset_bytes == b->offset_bytes);
}

bool findings_contain(findings *f, const fsdpck_error *what)
{
    bool known = false;
    pthread_mutex_lock(&f->lock);
    for (size_t i = 0; what->has_offset && !known && i < f->kept; i++) {
        const fsdpck_error *k = &f->list[i].what;
        known = k->has_offset && k->offset_bytes == what->offset_bytes &&
                k->finding == what->finding && strcmp(k->path, what->path) == 0;
    }
    pthread_mutex_unlock(&f->lock);
    return known;
}

bool findings_contain_id(findings *f, fsdpck_finding_id id, finding_severity severity)
{
    bool has = false;
    pthread_mutex_lock(&f->lock);
    for (size_t i = 0; !has && i < f->kept; i++)
        has = f->list[i].severity >= severity && f->list[i].what.finding == id;
    pthread_mutex_unlock(&f->lock);
    return has;
}

void findings_add_new(findings *f, finding_severity severity, const fsdpck_error *what)
{
    for (size_t i = 0; i < f->kept; i++)
        if (is_same(&f->list[i].what, what))
            return;
    findings_add(f, severity, what);
}

void findings_remove(findings *f, finding_severity severity, const fsdpck_error *what)
{
    f->counts[severity] -= f->counts[severity] > 0;
    for (size_t i = 0; i < f->kept; i++)
        if (f->list[i].severity == severity && is_same(&f->list[i].what, what)) {
            memmove(&f->list[i], &f->list[i + 1], (--f->kept - i) * sizeof *f->list);
            return;
        }
}

static int compare(const void *left, const void *right)
{
    const finding *x = left, *y = right;
    const fsdpck_error *a = &x->what, *b = &y->what;
    ORDER_BY(y->severity, x->severity);
    ORDER_BY(x->group, y->group);
    int order = strcmp(a->path, b->path);
    if (order == 0 && a->has_offset != b->has_offset)
        order = a->has_offset - b->has_offset;
    if (order == 0 && a->has_offset && a->offset_bytes != b->offset_bytes)
        order = a->offset_bytes < b->offset_bytes ? -1 : 1;
    if (order == 0)
        order = strcmp(a->tensor, b->tensor);
    if (order == 0)
        order = strcmp(fsdpck_finding_name(a->finding), fsdpck_finding_name(b->finding));
    return order != 0 ? order : strcmp(a->message, b->message);
}

void findings_sort(findings *f)
{
    if (f->kept > 1)
        qsort(f->list, f->kept, sizeof *f->list, compare);
}

/* Findings of this id that name a tensor. */
static uint64_t count_tensors(const findings *f, fsdpck_finding_id id)
{
    uint64_t count = 0;
    for (size_t i = 0; i < f->kept; i++)
        count += f->list[i].what.finding == id && f->list[i].what.tensor[0] != '\0';
    return count;
}

static void say_others(fsdpck_error *first, uint64_t count, const char *what)
{
    char found[sizeof first->found];
    memcpy(found, first->found, sizeof found);
    first->found[0] = '\0';
    error_found(first, "%s%s%" PRIu64 " %s affected; this is the first", found,
                found[0] == '\0' ? "" : "; ", count, what);
}

void findings_merge_tensors(findings *f, fsdpck_finding_id id)
{
    const uint64_t same = count_tensors(f, id);
    size_t kept = 0;
    finding *first = NULL;
    if (same == 0)
        return;
    for (size_t i = 0; i < f->kept; i++) {
        const bool is_one = f->list[i].what.finding == id;
        if (is_one && (first != NULL || f->list[i].what.tensor[0] == '\0')) {
            f->counts[f->list[i].severity]--;
            continue;
        }
        f->list[kept] = f->list[i];
        if (is_one)
            first = &f->list[kept];
        kept++;
    }
    f->kept = kept;
    if (same >= 2)
        say_others(&first->what, same, "tensors");
}

void findings_merge_files(findings *f, fsdpck_finding_id id)
{
    size_t kept = 0;
    finding *first = NULL; /* of the file */
    uint64_t same = 0;
    findings_sort(f);
    for (size_t i = 0; i < f->kept; i++) {
        const finding *one = &f->list[i];
        const bool is_one = one->what.finding == id && one->what.has_offset;
        if (is_one && first != NULL && first->severity == one->severity &&
            strcmp(first->what.path, one->what.path) == 0) {
            f->counts[one->severity]--;
            same++;
            continue;
        }
        if (is_one && same > 1)
            say_others(&first->what, same, "blobs of this file");
        f->list[kept] = *one;
        first = is_one ? &f->list[kept] : first;
        same = is_one ? 1 : same;
        kept++;
    }
    if (same > 1)
        say_others(&first->what, same, "blobs of this file");
    f->kept = kept;
}
