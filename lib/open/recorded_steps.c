/* Training steps that a checkpoint records: in its own state, in trainer_state.json, in the optimizer's
 * state, in the name of its folder. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/struct_copy.h"
#include "base/text.h"
#include "open/checkpoint.h"
#include "open/state_files.h"
#include "open/step_numbers.h"
#include "open/step_rows.h"

static void add_step(fsdpck_checkpoint *c, int64_t step, const char *before, const char *name)
{
    text_buf text = {.limit_bytes = 4096};
    if (step < 0 || c->steps_count >= CHECKPOINT_STEPS_MAX)
        return;
    text_printf(&text, "%s%s%s", before, name, before[0] == '\0' ? "" : "'");
    if (text_check(&text, NULL) != FSDPCK_OK) {
        text_release(&text);
        return;
    }
    char *from = escaped_copy(text.text);
    text_release(&text);
    if (from != NULL)
        c->steps[c->steps_count++] = (recorded_step){step, from};
}

static void add_objects(fsdpck_checkpoint *c)
{
    for (uint32_t i = 0; i < catalogue_object_count(&c->cat); i++) {
        const uint32_t name = catalogue_object(&c->cat, i)->name;
        int64_t step = -1;
        if (!step_is_key(catalogue_name(&c->cat, name), catalogue_name_nbytes(&c->cat, name)))
            continue;
        if (!catalogue_object(&c->cat, i)->loaded &&
            checkpoint_load_object(c, i, NULL) != FSDPCK_OK)
            continue;
        const value content = catalogue_object(&c->cat, i)->content;
        if (value_kind_of(content) == VALUE_INT && value_as_i64(&c->cat.pool, content, &step))
            add_step(c, step, "object '", catalogue_name(&c->cat, name));
    }
}

/* Tensors of the trainer, and the first step of the optimizer's state. */
static void add_tensors(fsdpck_checkpoint *c)
{
    bool has_optimizer = false;
    for (uint64_t i = 0; i < c->parts.tensor_count; i++) {
        const uint32_t id = catalogue_tensor(&c->cat, i)->name;
        const char *name = catalogue_name(&c->cat, id);
        const size_t nbytes = catalogue_name_nbytes(&c->cat, id);
        if (step_is_key(name, nbytes)) {
            add_step(c, step_number_of(c, i), "tensor '", name);
        } else if (!has_optimizer && step_is_of_optimizer(c, i)) {
            const int64_t step = step_number_of(c, i);
            has_optimizer = step >= 0;
            add_step(c, step, "optimizer state '", name);
        }
    }
}

/* The state of an optimizer, or the param_groups of a fused one, whose step is an int. */
static bool is_optimizer_step(const fsdpck_checkpoint *c, uint32_t name, uint8_t part)
{
    return part == FSDPCK_PART_OPTIMIZER &&
           text_ends_with(catalogue_name(&c->cat, name), catalogue_name_nbytes(&c->cat, name),
                          ".step");
}

static void widen(int64_t number, int64_t *least, int64_t *most)
{
    *most = number > *most ? number : *most;
    *least = number >= 0 && (*least < 0 || number < *least) ? number : *least;
}

static void read_optimizer_steps(fsdpck_checkpoint *c, int64_t *least, int64_t *most)
{
    enum { READS_MAX = 4096 };
    *least = *most = -1;
    for (uint32_t i = 0; i < c->parts.object_count; i++) {
        if (!is_optimizer_step(c, catalogue_object(&c->cat, i)->name, c->parts.object_part[i]))
            continue;
        widen(step_object_number(c, i), least, most);
    }
    for (uint64_t i = 0, reads = 0; i < c->parts.tensor_count && reads < READS_MAX; i++) {
        if (!is_optimizer_step(c, catalogue_tensor(&c->cat, i)->name, c->parts.tensor_part[i]))
            continue;
        widen(step_number_of(c, i), least, most);
        reads++;
    }
}

int64_t checkpoint_optimizer_step(fsdpck_checkpoint *c)
{
    int64_t least, most;
    read_optimizer_steps(c, &least, &most);
    return most;
}

void checkpoint_deepspeed_steps(fsdpck_checkpoint *c, deepspeed_steps *steps)
{
    *steps = (deepspeed_steps){-1, -1, -1, -1};
    for (uint32_t i = 0; i < c->parts.object_count; i++) {
        const char *text = catalogue_name(&c->cat, catalogue_object(&c->cat, i)->name);
        if (strcmp(text, "global_steps") == 0)
            steps->global = step_object_number(c, i);
        else if (strcmp(text, "skipped_steps") == 0)
            steps->skipped = step_object_number(c, i);
    }
    if (steps->global >= 0)
        read_optimizer_steps(c, &steps->lowest, &steps->optimizer);
}

static bool add_record(void *ctx, const step_record *r)
{
    add_step(ctx, r->step, "", r->name);
    return true;
}

/* Files of other hosts are read only while all ranks serve them: there, what opening found is all. */
static void add_opened_step(fsdpck_checkpoint *c)
{
    const cat_origin *o = &c->cat.origin;
    add_step(c, o->step, "", o->step_is_recorded ? "state in the files" : "name of the folder");
}

/* An unreadable record is no error: the step is then unknown. */
int fsdpck_get_step(fsdpck_checkpoint *c, size_t index, fsdpck_step *step)
{
    if (!c->steps_known && c->remote_files != NULL) {
        c->steps_known = true;
        add_opened_step(c);
    } else if (!c->steps_known) {
        c->steps_known = true;
        add_objects(c);
        step_records_each_json(c, add_record, c);
        add_step(c, checkpoint_iteration(c), "", "common state");
        add_tensors(c);
        if (!c->cat.origin.step_is_recorded) /* in objects */
            add_step(c, c->cat.origin.step, "", "name of the folder");
    }
    if (index >= c->steps_count)
        return 0;
    const fsdpck_step all = {.struct_nbytes = sizeof all,
                             .step = c->steps[index].step,
                             .source = c->steps[index].source};
    struct_copy_out(step, &all, sizeof all);
    return 1;
}
