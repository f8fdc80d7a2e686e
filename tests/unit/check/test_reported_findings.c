#include "check/reported_findings.h"

#include <criterion/criterion.h>

Test(reported_findings, a_failure_without_an_id_has_that_of_its_status)
{
    findings f;
    fsdpck_error what = {.status = FSDPCK_UNSUPPORTED, .message = "built without HDF5"};
    findings_init(&f);
    findings_add_new(&f, FINDING_ERROR, &what);
    findings_add_new(&f, FINDING_ERROR, &what);
    cr_assert_eq(f.kept, 1);
    cr_assert_eq(f.list[0].what.finding, FSDPCK_FINDING_SYS_UNSUPPORTED);
    what.status = FSDPCK_IO;
    findings_add_new(&f, FINDING_ERROR, &what);
    cr_assert_eq(f.kept, 2);
    cr_assert_eq(f.list[1].what.finding, FSDPCK_FINDING_SYS_IO);
    findings_remove(&f, FINDING_ERROR, &what);
    cr_assert_eq(f.kept, 1);
    findings_release(&f);
}
