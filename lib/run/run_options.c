#include "run/run_options.h"

#include "base/struct_copy.h"

/* Copies the parts over defaults. */
static void take(run_options *o, const fsdpck_select_options *select,
                 const fsdpck_sharding_options *sharding, const fsdpck_output_options *output,
                 const fsdpck_work_options *work, const fsdpck_dry_run_options *dry_run)
{
    run_options_init(o);
    struct_copy_in(&o->select, sizeof o->select, select);
    struct_copy_in(&o->sharding, sizeof o->sharding, sharding);
    struct_copy_in(&o->output, sizeof o->output, output);
    struct_copy_in(&o->work, sizeof o->work, work);
    struct_copy_in(&o->dry_run, sizeof o->dry_run, dry_run);
}

void run_options_init(run_options *o)
{
    *o = (run_options){.select = FSDPCK_SELECT_OPTIONS_INIT,
                       .sharding = FSDPCK_INIT(fsdpck_sharding_options),
                       .output = FSDPCK_INIT(fsdpck_output_options),
                       .work = FSDPCK_INIT(fsdpck_work_options),
                       .dry_run = FSDPCK_INIT(fsdpck_dry_run_options)};
}

void run_options_of_consolidate(run_options *o, const fsdpck_consolidate_options *from)
{
    fsdpck_consolidate_options given = FSDPCK_INIT(fsdpck_consolidate_options);
    struct_copy_in(&given, sizeof given, from);
    take(o, given.select, NULL, given.output, given.work, given.dry_run);
}

void run_options_of_reshard(run_options *o, const fsdpck_reshard_options *from)
{
    fsdpck_reshard_options given = FSDPCK_INIT(fsdpck_reshard_options);
    struct_copy_in(&given, sizeof given, from);
    take(o, given.select, given.sharding, given.output, given.work, given.dry_run);
}

void run_options_of_layout(run_options *o, const fsdpck_layout_options *from)
{
    fsdpck_layout_options given = FSDPCK_INIT(fsdpck_layout_options);
    struct_copy_in(&given, sizeof given, from);
    take(o, given.select, given.sharding, given.output, NULL, NULL);
}

void run_options_of_digest(run_options *o, const fsdpck_digest_options *from)
{
    fsdpck_digest_options given = FSDPCK_INIT(fsdpck_digest_options);
    struct_copy_in(&given, sizeof given, from);
    take(o, given.select, NULL, NULL, given.work, NULL);
}

void run_options_of_diff(run_options *o, const fsdpck_diff_options *from)
{
    fsdpck_diff_options given = FSDPCK_INIT(fsdpck_diff_options);
    struct_copy_in(&given, sizeof given, from);
    take(o, given.select, NULL, NULL, given.work, NULL);
}
