#include "run/run_options.h"

#include <stddef.h>

#include "base/status.h"
#include "base/struct_copy.h"

void run_options_init(run_options *o)
{
    *o = (run_options){.select = FSDPCK_SELECT_OPTIONS_INIT,
                       .sharding = FSDPCK_INIT(fsdpck_sharding_options),
                       .output = FSDPCK_INIT(fsdpck_output_options),
                       .work = FSDPCK_INIT(fsdpck_work_options),
                       .dry_run = FSDPCK_INIT(fsdpck_dry_run_options)};
}

static fsdpck_status check_choices(const run_options *o, fsdpck_error *err)
{
    static const struct_choice rows[] = {
        {"fsdpck_select_options.part", offsetof(run_options, select.part), -1, FSDPCK_PART_ALL},
        {"fsdpck_select_options.clean_names", offsetof(run_options, select.clean_names),
         FSDPCK_AUTO, FSDPCK_OFF},
        {"fsdpck_select_options.tied", offsetof(run_options, select.tied), FSDPCK_TIED_KEEP,
         FSDPCK_TIED_LINK},
        {"fsdpck_select_options.objects", offsetof(run_options, select.objects),
         FSDPCK_OBJECTS_KEEP, FSDPCK_OBJECTS_ERROR},
        {"fsdpck_select_options.replicas", offsetof(run_options, select.replicas),
         FSDPCK_REPLICAS_CRC, FSDPCK_REPLICAS_FIRST},
        {"fsdpck_output_options.direct", offsetof(run_options, output.direct), FSDPCK_AUTO,
         FSDPCK_OFF},
        {"fsdpck_work_options.engine", offsetof(run_options, work.engine), FSDPCK_ENGINE_AUTO,
         FSDPCK_ENGINE_GPU},
        {"fsdpck_dry_run_options.mode", offsetof(run_options, dry_run.mode), 0, 2},
    };
    return struct_check_choices(o, rows, sizeof rows / sizeof rows[0], err);
}

/* Copies the parts that a job has over defaults. */
static fsdpck_status take(run_options *o, const fsdpck_select_options *select,
                          const fsdpck_sharding_options *sharding,
                          const fsdpck_output_options *output, const fsdpck_work_options *work,
                          const fsdpck_dry_run_options *dry_run, fsdpck_error *err)
{
    run_options_init(o);
    RETURN_IF(STRUCT_COPY_IN(&o->select, select, fsdpck_select_options, err));
    RETURN_IF(STRUCT_COPY_IN(&o->sharding, sharding, fsdpck_sharding_options, err));
    RETURN_IF(STRUCT_COPY_IN(&o->output, output, fsdpck_output_options, err));
    RETURN_IF(STRUCT_COPY_IN(&o->work, work, fsdpck_work_options, err));
    RETURN_IF(STRUCT_COPY_IN(&o->dry_run, dry_run, fsdpck_dry_run_options, err));
    return check_choices(o, err);
}

fsdpck_status run_options_of_consolidate(run_options *o, const fsdpck_consolidate_options *from,
                                         fsdpck_error *err)
{
    fsdpck_consolidate_options given = FSDPCK_INIT(fsdpck_consolidate_options);
    RETURN_IF(STRUCT_COPY_IN(&given, from, fsdpck_consolidate_options, err));
    RETURN_IF(take(o, given.select, NULL, given.output, given.work, given.dry_run, err));
    o->like = given.like;
    return FSDPCK_OK;
}

fsdpck_status run_options_of_reshard(run_options *o, const fsdpck_reshard_options *from,
                                     fsdpck_error *err)
{
    fsdpck_reshard_options given = FSDPCK_INIT(fsdpck_reshard_options);
    RETURN_IF(STRUCT_COPY_IN(&given, from, fsdpck_reshard_options, err));
    return take(o, given.select, given.sharding, given.output, given.work, given.dry_run, err);
}

fsdpck_status run_options_of_layout(run_options *o, const fsdpck_layout_options *from,
                                    fsdpck_error *err)
{
    fsdpck_layout_options given = FSDPCK_INIT(fsdpck_layout_options);
    RETURN_IF(STRUCT_COPY_IN(&given, from, fsdpck_layout_options, err));
    return take(o, given.select, given.sharding, given.output, NULL, NULL, err);
}

fsdpck_status run_options_of_digest(run_options *o, const fsdpck_digest_options *from,
                                    fsdpck_error *err)
{
    fsdpck_digest_options given = FSDPCK_INIT(fsdpck_digest_options);
    RETURN_IF(STRUCT_COPY_IN(&given, from, fsdpck_digest_options, err));
    return take(o, given.select, NULL, NULL, given.work, NULL, err);
}

fsdpck_status run_options_of_diff(run_options *o, const fsdpck_diff_options *from,
                                  fsdpck_error *err)
{
    fsdpck_diff_options given = FSDPCK_INIT(fsdpck_diff_options);
    RETURN_IF(STRUCT_COPY_IN(&given, from, fsdpck_diff_options, err));
    return take(o, given.select, NULL, NULL, given.work, NULL, err);
}

fsdpck_status run_options_of_load(run_options *o, const fsdpck_load_options *from,
                                  fsdpck_error *err)
{
    static const struct_choice memory[] = {{"fsdpck_load_options.memory",
                                            offsetof(fsdpck_load_options, memory),
                                            FSDPCK_MEMORY_HOST, FSDPCK_MEMORY_GPU}};
    RETURN_IF(struct_check_choices(from, memory, 1, err));
    return take(o, from->select, NULL, NULL, from->work, NULL, err);
}
