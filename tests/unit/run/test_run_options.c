/* Options of a job, from callers of the same and of an older version. */
#include <criterion/criterion.h>
#include <stddef.h>
#include <string.h>

#include "run/run_options.h"

Test(run_options, no_options_are_the_defaults)
{
    run_options o;
    cr_assert_eq(run_options_of_reshard(&o, NULL, NULL), FSDPCK_OK);
    cr_assert_eq(o.select.part, -1);
    cr_assert_eq(o.sharding.world_size, 0);
    cr_assert_null(o.output.format);
    cr_assert_eq(o.dry_run.mode, 0);
}

Test(run_options, a_part_that_is_null_has_its_defaults)
{
    fsdpck_output_options output = FSDPCK_INIT(fsdpck_output_options);
    fsdpck_consolidate_options given = FSDPCK_INIT(fsdpck_consolidate_options);
    output.format = "hdf5";
    output.gzip_level = 4;
    given.output = &output;
    run_options o;
    cr_assert_eq(run_options_of_consolidate(&o, &given, NULL), FSDPCK_OK);
    cr_assert_str_eq(o.output.format, "hdf5");
    cr_assert_eq(o.output.gzip_level, 4);
    cr_assert_eq(o.select.part, -1);
    cr_assert_eq(o.work.threads, 0);
}

/* Members after the caller's size are not read. */
Test(run_options, shorter_structs_leave_the_defaults)
{
    fsdpck_sharding_options sharding = FSDPCK_INIT(fsdpck_sharding_options);
    fsdpck_work_options work = FSDPCK_INIT(fsdpck_work_options);
    fsdpck_reshard_options given = FSDPCK_INIT(fsdpck_reshard_options);
    sharding.world_size = 8;
    sharding.mesh = "fsdp=4";
    sharding.struct_nbytes = offsetof(fsdpck_sharding_options, mesh);
    work.threads = 3;
    given.sharding = &sharding;
    given.work = &work;
    given.struct_nbytes = offsetof(fsdpck_reshard_options, work);
    run_options o;
    cr_assert_eq(run_options_of_reshard(&o, &given, NULL), FSDPCK_OK);
    cr_assert_eq(o.sharding.world_size, 8);
    cr_assert_null(o.sharding.mesh);
    cr_assert_eq(o.work.threads, 0);
}

Test(run_options, each_job_takes_the_parts_that_it_has)
{
    fsdpck_select_options select = FSDPCK_SELECT_OPTIONS_INIT;
    fsdpck_work_options work = FSDPCK_INIT(fsdpck_work_options);
    fsdpck_digest_options digest = FSDPCK_INIT(fsdpck_digest_options);
    fsdpck_diff_options diff = FSDPCK_INIT(fsdpck_diff_options);
    fsdpck_layout_options layout = FSDPCK_INIT(fsdpck_layout_options);
    run_options o;
    select.part = FSDPCK_PART_MODEL;
    work.threads = 3;
    digest.select = diff.select = layout.select = &select;
    digest.work = diff.work = &work;
    cr_assert_eq(run_options_of_digest(&o, &digest, NULL), FSDPCK_OK);
    cr_assert(o.select.part == FSDPCK_PART_MODEL && o.work.threads == 3);
    cr_assert_eq(run_options_of_diff(&o, &diff, NULL), FSDPCK_OK);
    cr_assert(o.select.part == FSDPCK_PART_MODEL && o.work.threads == 3);
    cr_assert_eq(run_options_of_layout(&o, &layout, NULL), FSDPCK_OK);
    cr_assert(o.select.part == FSDPCK_PART_MODEL && o.work.threads == 0);
}

/* Not a job without the option: a dry run that writes would be worse than an error. */
Test(run_options, a_part_without_its_size_is_an_error)
{
    fsdpck_dry_run_options dry_run = {.mode = 1};
    fsdpck_consolidate_options given = FSDPCK_INIT(fsdpck_consolidate_options);
    run_options o;
    fsdpck_error err;
    fsdpck_error_init(&err);
    given.dry_run = &dry_run;
    cr_assert_eq(run_options_of_consolidate(&o, &given, &err), FSDPCK_USAGE);
    cr_expect_str_eq(err.message, "fsdpck_dry_run_options was not initialized");
    cr_expect_not_null(strstr(err.next, "FSDPCK_INIT"));
    dry_run.struct_nbytes = sizeof(size_t) - 1;
    cr_expect_eq(run_options_of_consolidate(&o, &given, NULL), FSDPCK_USAGE);
    dry_run.struct_nbytes = sizeof dry_run;
    cr_expect_eq(run_options_of_consolidate(&o, &given, NULL), FSDPCK_OK);
    given.struct_nbytes = 0;
    cr_expect_eq(run_options_of_consolidate(&o, &given, NULL), FSDPCK_USAGE);
}
