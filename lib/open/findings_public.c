/* The table of findings, for callers. */
#include "base/struct_copy.h"
#include "findings/finding_kinds.h"
#include "fsdpck.h"

static int copy_kind(const finding_kind *k, const finding_former *former, fsdpck_finding_kind *kind)
{
    if (k == NULL)
        return 0;
    const fsdpck_finding_kind all = {
        .struct_nbytes = sizeof all,
        .id = k->id,
        .class_name = finding_class_name(k->class),
        .severity = finding_severity_name(k->severity),
        .fixed = finding_is_fixed(k),
        .means = k->means,
        .next = k->next,
        .is_environmental = finding_is_of_machine(k),
        .former_id = former == NULL ? NULL : former->id,
    };
    struct_copy_out(kind, &all, sizeof all);
    return 1;
}

int fsdpck_finding_kind_at(size_t index, fsdpck_finding_kind *kind)
{
    return copy_kind(finding_at(index), NULL, kind);
}

int fsdpck_finding_kind_get(fsdpck_finding_id id, fsdpck_finding_kind *kind)
{
    return copy_kind(finding_get(id), NULL, kind);
}

int fsdpck_finding_kind_find(const char *id, fsdpck_finding_kind *kind)
{
    return copy_kind(finding_find(id), finding_former_find(id), kind);
}

fsdpck_finding_id fsdpck_status_finding(fsdpck_status status)
{
    return finding_of_status(status);
}
