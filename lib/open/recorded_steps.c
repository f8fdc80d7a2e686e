/* Training steps that a checkpoint records: in its own state, in trainer_state.json, in the optimizer's
 * state, in the name of its folder. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/step_name.h"
#include "base/struct_copy.h"
#include "base/text.h"
#include "open/checkpoint.h"
#include "open/state_files.h"
#include "open/step_numbers.h"
#include "open/step_records.h"

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

static int64_t int_object(fsdpck_checkpoint *c, uint32_t object)
{
    int64_t number = -1;
    if (!catalogue_object(&c->cat, object)->loaded &&
        checkpoint_load_object(c, object, NULL) != FSDPCK_OK)
        return -1;
    const value content = catalogue_object(&c->cat, object)->content;
    return value_kind_of(content) == VALUE_INT && value_as_i64(&c->cat.pool, content, &number)
               ? number
               : -1;
}

/* The state of an optimizer, or the param_groups of a fused one, whose step is an int. */
static bool is_optimizer_step(const fsdpck_checkpoint *c, uint32_t name, uint8_t part)
{
    return part == FSDPCK_PART_OPTIMIZER &&
           text_ends_with(catalogue_name(&c->cat, name), catalogue_name_nbytes(&c->cat, name),
                          ".step");
}

static uint32_t find_object(const fsdpck_checkpoint *c, const char *name)
{
    for (uint32_t i = 0; i < catalogue_object_count(&c->cat); i++)
        if (strcmp(catalogue_name(&c->cat, catalogue_object(&c->cat, i)->name), name) == 0)
            return i;
    return CAT_NONE;
}

int64_t checkpoint_scheduler_step(fsdpck_checkpoint *c)
{
    const uint32_t object = find_object(c, "last_epoch");
    const bool counts_evaluations = find_object(c, "num_bad_epochs") != CAT_NONE;
    return object == CAT_NONE || counts_evaluations ? -1 : int_object(c, object);
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
        widen(int_object(c, i), least, most);
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
            steps->global = int_object(c, i);
        else if (strcmp(text, "skipped_steps") == 0)
            steps->skipped = int_object(c, i);
    }
    if (steps->global >= 0)
        read_optimizer_steps(c, &steps->lowest, &steps->optimizer);
}

/* Members of the root object. */
static void read_progress(const char *text, size_t nbytes, trainer_progress *p)
{
    json_reader r;
    json_token t;
    *p = (trainer_progress){-1, -1};
    json_reader_init(&r, text, nbytes, FSDPCK_FINDING_NONE);
    fsdpck_status st = json_next(&r, &t, NULL);
    while (st == FSDPCK_OK && (p->step < 0 || p->epoch < 0) &&
           (st = json_next(&r, &t, NULL)) == FSDPCK_OK && t.kind == JSON_KEY) {
        const bool is_step = json_is(&t, "global_step"), is_epoch = json_is(&t, "epoch");
        st = json_next(&r, &t, NULL);
        if (st == FSDPCK_OK && is_step && t.is_u64 && t.u64 < INT64_MAX)
            p->step = (int64_t)t.u64;
        else if (st == FSDPCK_OK && is_epoch && t.kind == JSON_NUMBER)
            p->epoch = strtod(t.text, NULL);
        else if (st == FSDPCK_OK)
            st = json_skip(&r, &t, NULL);
    }
    json_reader_release(&r);
}

bool trainer_state_read_progress(const probe_input *in, trainer_progress *p)
{
    char *text = NULL;
    size_t nbytes;
    *p = (trainer_progress){-1, -1};
    if (trainer_state_read_json(in, TRAINER_STATE_JSON, &text, &nbytes, NULL) != FSDPCK_OK)
        return false;
    read_progress(text, nbytes, p);
    free(text);
    return true;
}

/* Of the folder with the weights; "" if it is not in the path. */
static void folder_name(const fsdpck_checkpoint *c, char *name, size_t capacity)
{
    const char *path = c->probe.path, *end = path + strlen(path);
    name[0] = '\0';
    if (!c->probe.is_folder)
        while (end > path && *--end != '/') {
        }
    const char *at = end;
    while (at > path && at[-1] != '/')
        at--;
    if ((size_t)(end - at) < capacity)
        snprintf(name, capacity, "%.*s", (int)(end - at), at);
}

/* The first that differs from the number of its folder, or else the first with one. */
typedef struct named_search {
    int64_t step, named; /* named -1: none */
    const char *name;
} named_search;

static bool take_named(void *ctx, const step_record *r)
{
    named_search *s = ctx;
    const bool fits = step_record_fits(r);
    if (r->step < 0 || r->named < 0 || (fits && s->named >= 0))
        return true;
    *s = (named_search){fits ? r->named : r->step, r->named, r->name};
    return fits;
}

int64_t checkpoint_number(fsdpck_checkpoint *c, const char *key)
{
    const uint32_t object = find_object(c, key);
    const uint32_t tensor = catalogue_find(&c->cat, key, strlen(key));
    return object != CAT_NONE   ? int_object(c, object)
           : tensor != CAT_NONE ? step_number_of(c, tensor)
                                : -1;
}

/* Of an object or a tensor with one of the keys; -1: none. *key: a constant. */
static int64_t step_of_state(fsdpck_checkpoint *c, const char **key)
{
    for (size_t i = 0; (*key = step_key_at(i)) != NULL; i++) {
        const int64_t step = checkpoint_number(c, *key);
        if (step >= 0)
            return step;
    }
    return -1;
}

/* To be freed; NULL: none. */
static char *path_around(const fsdpck_checkpoint *c)
{
    const char *path = c->entered_from != NULL ? c->entered_from : c->probe.path;
    size_t nbytes = strlen(path);
    if (c->entered_from == NULL && c->format->id != FSDPCK_FORMAT_DEEPSPEED)
        return NULL;
    while (nbytes > 0 && path[nbytes - 1] == '/')
        nbytes--;
    while (c->entered_from == NULL && nbytes > 0 && path[nbytes - 1] != '/')
        nbytes--;
    while (nbytes > 0 && path[nbytes - 1] == '/')
        nbytes--;
    return nbytes == 0 ? NULL : strndup(path, nbytes);
}

bool trainer_state_read_around(const fsdpck_checkpoint *c, trainer_progress *p, int64_t *named)
{
    probe_input around;
    step_name s;
    char *path = path_around(c);
    const char *name = path == NULL ? "" : text_file_name(path);
    step_name_read(name, strlen(name), &s);
    const bool is_step = strncmp(name, "checkpoint-", 11) == 0 && s.kind == STEP_CHECKPOINT &&
                         !s.is_too_large && s.step <= INT64_MAX &&
                         probe_gather(path, &around, NULL) == FSDPCK_OK;
    free(path);
    if (!is_step)
        return false;
    *named = (int64_t)s.step;
    const bool is_read = probe_has_entry(&around, TRAINER_STATE_JSON) &&
                         trainer_state_read_progress(&around, p) && p->step >= 0;
    probe_release(&around);
    return is_read;
}

bool checkpoint_step_of_name(fsdpck_checkpoint *c, int64_t *recorded, int64_t *named,
                             const char **recorded_in, bool *of_trainer)
{
    char name[256];
    step_name s;
    while (c->base != NULL)
        c = c->base;
    *recorded_in = TRAINER_STATE_JSON;
    trainer_progress around = {-1, -1};
    const bool is_inside = trainer_state_read_around(c, &around, named);
    *of_trainer = is_inside;
    *recorded = around.step;
    if (is_inside && *recorded != *named)
        return true;
    named_search found = {-1, -1, NULL};
    step_records_each(c, take_named, &found);
    if (found.named >= 0 && (found.step != found.named || !is_inside)) {
        *of_trainer = true;
        *recorded = found.step;
        *named = found.named;
        *recorded_in = found.name;
        return true;
    }
    folder_name(c, name, sizeof name);
    step_name_read(name, strlen(name), &s);
    if (s.is_too_large || s.step > INT64_MAX || (s.kind != STEP_STEP && s.kind != STEP_CHECKPOINT))
        return false;
    *named = (int64_t)s.step;
    *recorded = step_of_state(c, recorded_in);
    *of_trainer = is_inside; /* there, DeepSpeed names its folder by its own count */
    return *recorded >= 0;
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
