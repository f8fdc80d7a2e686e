/* The table of findings, for callers. */
#include "findings/finding.h"
#include "fsdpck.h"

static int copy_kind(const finding_kind *k, fsdpck_finding_kind *kind)
{
    if (k == NULL)
        return 0;
    *kind = (fsdpck_finding_kind){
        .id = k->id,
        .class_name = finding_class_name(k->class),
        .severity = finding_severity_name(k->severity),
        .fixed = finding_is_fixed(k),
        .means = k->means,
        .next = k->next,
        .is_environmental = finding_is_of_machine(k),
    };
    return 1;
}

int fsdpck_finding_kind_at(size_t index, fsdpck_finding_kind *kind)
{
    return copy_kind(finding_at(index), kind);
}

int fsdpck_finding_kind_get(fsdpck_finding_id id, fsdpck_finding_kind *kind)
{
    return copy_kind(finding_get(id), kind);
}

int fsdpck_finding_kind_find(const char *id, fsdpck_finding_kind *kind)
{
    const finding_former *former = finding_former_find(id);
    if (!copy_kind(finding_find(id), kind))
        return 0;
    kind->former_id = former == NULL ? NULL : former->id;
    return 1;
}

fsdpck_finding_id fsdpck_status_finding(fsdpck_status status)
{
    return finding_of_status(status);
}
