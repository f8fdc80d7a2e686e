/* The training steps that a checkpoint records. */
#include <inttypes.h>
#include <stdio.h>

#include "report.h"

void report_set_step(fsdpck_checkpoint *ckpt, fsdpck_info *info)
{
    fsdpck_step step = FSDPCK_INIT(fsdpck_step);
    if (fsdpck_get_step(ckpt, 0, &step)) {
        info->step = step.step;
        info->step_source = step.source;
    }
}

static void put_steps(json_writer *w, const char *key, fsdpck_checkpoint *ckpt, bool all)
{
    fsdpck_step step = FSDPCK_INIT(fsdpck_step);
    int64_t before = -1;
    json_member_array(w, key);
    for (size_t i = 0; fsdpck_get_step(ckpt, i, &step); i++) {
        if (!all && step.step == before)
            continue;
        before = step.step;
        json_begin_object(w);
        json_member_i64(w, "step", step.step);
        json_member_string(w, "source", step.source);
        json_end_object(w);
    }
    json_end_array(w);
}

void report_put_steps(json_writer *w, const char *key, fsdpck_checkpoint *ckpt)
{
    put_steps(w, key, ckpt, true);
}

void report_put_page_steps(const cli *c, json_writer *w, const char *key, fsdpck_checkpoint *ckpt)
{
    if (c->page->path != NULL)
        put_steps(w, key, ckpt, false);
}

bool report_steps_differ(fsdpck_checkpoint *ckpt)
{
    fsdpck_step first = FSDPCK_INIT(fsdpck_step), step = FSDPCK_INIT(fsdpck_step);
    bool differ = false;
    if (fsdpck_get_step(ckpt, 0, &first))
        for (size_t i = 1; fsdpck_get_step(ckpt, i, &step); i++)
            differ = differ || step.step != first.step;
    return differ;
}

void report_print_steps(fsdpck_checkpoint *ckpt, bool all)
{
    fsdpck_step step = FSDPCK_INIT(fsdpck_step);
    for (size_t i = 0; (i == 0 || all) && fsdpck_get_step(ckpt, i, &step); i++)
        printf("%s%" PRId64 " (%s)", i > 0 ? ", " : "", step.step, step.source);
}
