/* Values of options that no caller may give, through the public calls. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fsdpck.h"

static fsdpck_context *ctx;
static char path[4096];
static fsdpck_error err;

static void setup(void)
{
    ctx = fsdpck_context_new();
    cr_assert_not_null(ctx);
    snprintf(path, sizeof path, "%s/torch-2.15.0/dcp-fsdp2", getenv("FIXTURES"));
    fsdpck_error_init(&err);
}

static void teardown(void)
{
    fsdpck_context_free(ctx);
}

TestSuite(option_values, .init = setup, .fini = teardown);

static void expect_usage(fsdpck_status st, const char *message, const char *expected,
                         const char *found)
{
    cr_expect_eq(st, FSDPCK_USAGE, "%s: status %d", message, (int)st);
    cr_expect_str_eq(err.message, message);
    cr_expect_str_eq(err.expected, expected);
    cr_expect_str_eq(err.found, found);
    fsdpck_error_init(&err);
}

static fsdpck_status verify(const fsdpck_verify_options *o, fsdpck_verify_info *info)
{
    fsdpck_verify *v = NULL;
    const fsdpck_status st = fsdpck_verify_new(ctx, path, o, &v, &err);
    cr_expect_eq(st == FSDPCK_OK, v != NULL);
    if (v != NULL)
        fsdpck_verify_get_info(v, info);
    fsdpck_verify_free(v);
    return st;
}

Test(option_values, verify_names_the_member_and_its_range)
{
    static const int levels[] = {5, 100, 100000, -2};
    static const char *const found[] = {"5", "100", "100000", "-2"};
    fsdpck_verify_options o = FSDPCK_INIT(fsdpck_verify_options);
    fsdpck_open_options open = FSDPCK_INIT(fsdpck_open_options);
    fsdpck_verify_info info = FSDPCK_INIT(fsdpck_verify_info);
    for (size_t i = 0; i < 4; i++) {
        o.level = levels[i];
        expect_usage(verify(&o, &info), "fsdpck_verify_options.level is out of range", "-1 to 4",
                     found[i]);
    }
    o.level = -1;
    o.max_seconds = -1;
    expect_usage(verify(&o, &info), "fsdpck_verify_options.max_seconds is out of range", "0 to inf",
                 "-1");
    o.max_seconds = 0;
    o.open = &open;
    open.per_rank = (fsdpck_per_rank)55;
    expect_usage(verify(&o, &info), "fsdpck_open_options.per_rank is out of range", "0 to 4", "55");
    open.per_rank = FSDPCK_PER_RANK_ERROR;
    cr_expect_eq(verify(&o, &info), FSDPCK_OK);
    open.struct_nbytes = 0;
    expect_usage(verify(&o, &info), "fsdpck_open_options was not initialized",
                 "its size in struct_nbytes", "0");
}

Test(option_values, a_sample_is_a_range_within_0_to_1)
{
    static const struct {
        double begin, end;
        const char *message;
    } bad[] = {
        {0.7, 0.2, "sample is empty"},
        {0.5, 0.5, "sample is empty"},
        {1, 0, "sample is empty"},
        {-1, 0.5, "fsdpck_verify_options.sample_begin is out of range"},
        {0, 2, "fsdpck_verify_options.sample_end is out of range"},
        {0, NAN, "fsdpck_verify_options.sample_end is out of range"},
    };
    fsdpck_verify_options o = FSDPCK_INIT(fsdpck_verify_options);
    fsdpck_verify_info info = FSDPCK_INIT(fsdpck_verify_info);
    o.level = FSDPCK_LEVEL_CHECKSUM;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        o.sample_begin = bad[i].begin;
        o.sample_end = bad[i].end;
        cr_expect_eq(verify(&o, &info), FSDPCK_USAGE, "%g to %g", o.sample_begin, o.sample_end);
        cr_expect_str_eq(err.message, bad[i].message);
    }
}

/* 0.9 without an end and 0.9 to 1 are the same sample; both 0 is everything. */
Test(option_values, a_sample_without_an_end_goes_to_the_end)
{
    fsdpck_verify_options o = FSDPCK_INIT(fsdpck_verify_options);
    fsdpck_verify_info open_end = FSDPCK_INIT(fsdpck_verify_info);
    fsdpck_verify_info to_one = FSDPCK_INIT(fsdpck_verify_info);
    fsdpck_verify_info all = FSDPCK_INIT(fsdpck_verify_info);
    o.level = FSDPCK_LEVEL_CHECKSUM;
    cr_assert_eq(verify(&o, &all), FSDPCK_OK);
    cr_expect_eq(all.sampled, 0);
    cr_expect_eq(all.bytes_read, all.bytes_total);
    o.sample_begin = 0.5;
    cr_assert_eq(verify(&o, &open_end), FSDPCK_OK);
    o.sample_end = 1;
    cr_assert_eq(verify(&o, &to_one), FSDPCK_OK);
    cr_expect_eq(open_end.sampled, 1);
    cr_expect_gt(open_end.bytes_read, 0);
    cr_expect_lt(open_end.bytes_read, open_end.bytes_total);
    cr_expect_eq(open_end.bytes_read, to_one.bytes_read);
    cr_expect_eq(open_end.skipped_nbytes, open_end.bytes_total - open_end.bytes_read);
}

static void count_step(void *arg, const char *step, uint64_t number, const fsdpck_error *why)
{
    (void)step;
    (void)number;
    (void)why;
    ++*(unsigned *)arg;
}

Test(option_values, latest_checks_its_level_first)
{
    fsdpck_latest_options o = FSDPCK_INIT(fsdpck_latest_options);
    uint64_t found = 7;
    unsigned calls = 0;
    o.level = (fsdpck_level)77;
    expect_usage(fsdpck_latest(ctx, path, &o, count_step, &calls, &found, &err),
                 "fsdpck_latest_options.level is out of range", "0 to 4", "77");
    o.level = (fsdpck_level)-5;
    expect_usage(fsdpck_latest(ctx, path, &o, count_step, &calls, &found, &err),
                 "fsdpck_latest_options.level is out of range", "0 to 4", "-5");
    cr_expect_eq(found, 0);
    cr_expect_eq(calls, 0);
}

Test(option_values, the_parts_of_a_job_are_checked)
{
    fsdpck_checkpoint *src = NULL;
    fsdpck_open_options open = FSDPCK_INIT(fsdpck_open_options);
    fsdpck_select_options select = FSDPCK_SELECT_OPTIONS_INIT;
    fsdpck_work_options work = FSDPCK_INIT(fsdpck_work_options);
    fsdpck_dry_run_options dry_run = FSDPCK_INIT(fsdpck_dry_run_options);
    fsdpck_consolidate_options job = FSDPCK_INIT(fsdpck_consolidate_options);
    fsdpck_diff_options differ = FSDPCK_INIT(fsdpck_diff_options);
    fsdpck_report *report = NULL;
    fsdpck_diff *d = NULL;
    open.optim_keys = (fsdpck_optim_keys)66;
    expect_usage(fsdpck_open(ctx, path, &open, &src, &err),
                 "fsdpck_open_options.optim_keys is out of range", "0 to 3", "66");
    cr_assert_null(src);
    cr_assert_eq(fsdpck_open(ctx, path, NULL, &src, &err), FSDPCK_OK);
    job.select = &select;
    job.work = &work;
    job.dry_run = &dry_run;
    select.part = 99;
    expect_usage(fsdpck_consolidate(ctx, src, "x.pt", &job, &report, &err),
                 "fsdpck_select_options.part is out of range", "-1 to 3", "99");
    select.part = -1;
    select.tied = (fsdpck_tied)77;
    expect_usage(fsdpck_consolidate(ctx, src, "x.pt", &job, &report, &err),
                 "fsdpck_select_options.tied is out of range", "0 to 2", "77");
    select.tied = FSDPCK_TIED_KEEP;
    work.engine = (fsdpck_engine)50;
    expect_usage(fsdpck_consolidate(ctx, src, "x.pt", &job, &report, &err),
                 "fsdpck_work_options.engine is out of range", "0 to 2", "50");
    work.engine = FSDPCK_ENGINE_AUTO;
    dry_run.mode = 7;
    expect_usage(fsdpck_consolidate(ctx, src, "x.pt", &job, &report, &err),
                 "fsdpck_dry_run_options.mode is out of range", "0 to 2", "7");
    differ.atol = -1;
    expect_usage(fsdpck_diff_new(ctx, src, src, &differ, &d, &err),
                 "fsdpck_diff_options.atol is out of range", "0 to inf", "-1");
    differ.atol = 0;
    differ.rtol = -5;
    expect_usage(fsdpck_diff_new(ctx, src, src, &differ, &d, &err),
                 "fsdpck_diff_options.rtol is out of range", "0 to inf", "-5");
    fsdpck_close(src);
}
