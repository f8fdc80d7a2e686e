#include "open/step_evidence.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "open/copied_file.h"
#include "open/state_files.h"
#include "open/step_numbers.h"
#include "open/step_records.h"
#include "state/step_files.h"

/* How a trainer counts its steps. */
typedef enum step_rule {
    RULE_NONE,  /* not known: nothing follows from other numbers */
    RULE_EQUAL, /* one for each step of the optimizer: transformers' Trainer */
    RULE_LIMIT  /* the optimizer makes no more, and may skip some: Lightning */
} step_rule;

typedef struct found_step {
    int64_t step;   /* -1: none */
    char from[300]; /* "'optimizer.pt'" */
} found_step;

typedef struct step_evidence {
    step_rule rule;
    found_step training, scheduler;
    found_step lowest, highest; /* of the files of the optimizer, and of its part */
    bool skips; /* a scaler of gradients: the optimizer skips steps, the training counts them */
    found_step zero;  /* of the training, as DeepSpeed counts it */
    double epoch;     /* of the training; -1: unknown */
    bool may_be_more; /* steps of the optimizer: each update of the training makes several */
} step_evidence;

static void put(found_step *to, int64_t step, const char *from)
{
    to->step = step;
    snprintf(to->from, sizeof to->from, "%s", from);
}

static void add_optimizer(step_evidence *e, int64_t step, const char *from)
{
    if (step < 0)
        return;
    if (e->highest.step < step)
        put(&e->highest, step, from);
    if (e->lowest.step < 0 || e->lowest.step > step)
        put(&e->lowest, step, from);
}

/* ---- transformers ---- */

static void add_file(step_evidence *e, const found_state_file *f)
{
    char from[sizeof e->scheduler.from];
    if ((size_t)snprintf(from, sizeof from, "'%s'", f->name) >= sizeof from)
        return;
    e->skips = e->skips || f->kind == FSDPCK_STATE_SCALER || f->is_fp16;
    if (f->kind == FSDPCK_STATE_PROGRESS && f->step >= 0) {
        e->rule = RULE_EQUAL;
        put(&e->training, f->step, TRAINER_STATE_JSON);
        e->epoch = f->epoch;
        e->may_be_more = f->has_episodes;
    } else if (f->kind == FSDPCK_STATE_OPTIMIZER) {
        add_optimizer(e, f->step, from);
    } else if (f->kind == FSDPCK_STATE_SCHEDULER && strcmp(f->name, "scheduler.pt") == 0) {
        put(&e->scheduler, f->step,
            from); /* scheduler.bin of accelerate counts a step for each process */
    }
}

static void add_files(step_evidence *e, fsdpck_checkpoint *c)
{
    fsdpck_state_file f = FSDPCK_INIT(fsdpck_state_file);
    for (size_t i = 0; fsdpck_get_state_file(c, i, &f); i++)
        add_file(e, VEC_AT(&c->state_files, const found_state_file, i));
}

/* ---- Lightning ---- */

static bool find_int(const value_pool *pool, value dict, const char *const *keys, size_t count,
                     int64_t *number)
{
    for (size_t i = 0; i < count; i++)
        if (value_kind_of(dict) != VALUE_DICT || !value_dict_find(pool, dict, keys[i], &dict))
            return false;
    return value_kind_of(dict) == VALUE_INT && value_as_i64(pool, dict, number);
}

static value object_named(fsdpck_checkpoint *c, const char *name)
{
    for (uint32_t i = 0; i < catalogue_object_count(&c->cat); i++) {
        if (strcmp(catalogue_name(&c->cat, catalogue_object(&c->cat, i)->name), name) != 0)
            continue;
        const bool is_loaded =
            catalogue_object(&c->cat, i)->loaded || checkpoint_load_object(c, i, NULL) == FSDPCK_OK;
        return is_loaded ? catalogue_object(&c->cat, i)->content : VALUE_OF_NONE;
    }
    return VALUE_OF_NONE;
}

/* Its loop counts the steps of the only optimizer, unless the module steps its optimizers itself: the number is then
 * another one, as not all of these steps need be counted. */
static void add_lightning(step_evidence *e, fsdpck_checkpoint *c)
{
    static const char *const counted[] = {
        "fit_loop",  "epoch_loop.automatic_optimization.optim_progress",
        "optimizer", "step",
        "total",     "completed"};
    int64_t step, of_loop;
    const value global = object_named(c, "global_step");
    if (!c->cat.origin.has_lightning || value_kind_of(global) != VALUE_INT ||
        !value_as_i64(&c->cat.pool, global, &step) || step <= 0 ||
        !find_int(&c->cat.pool, object_named(c, "loops"), counted, sizeof counted / sizeof *counted,
                  &of_loop) ||
        of_loop != step)
        return;
    e->rule = RULE_LIMIT;
    put(&e->training, step, LIGHTNING_STATE);
}

/* ---- DeepSpeed ---- */

static bool is_zero(const fsdpck_checkpoint *c)
{
    while (c->base != NULL)
        c = c->base;
    return c->format->id == FSDPCK_FORMAT_DEEPSPEED;
}

static int64_t zero_setting(fsdpck_checkpoint *c, const char *name)
{
    int64_t number;
    const value v = object_named(c, name);
    return value_kind_of(v) == VALUE_INT && value_as_i64(&c->cat.pool, v, &number) ? number : -1;
}

/* Whether each batch is a step. */
static bool accumulates_none(fsdpck_checkpoint *c)
{
    const int64_t batches = zero_setting(c, "ds_config.gradient_accumulation_steps");
    return batches == 1 || (batches < 0 && zero_setting(c, "ds_config.train_batch_size") < 0 &&
                            zero_setting(c, "ds_config.train_micro_batch_size_per_gpu") > 0);
}

/* Steps that may differ. With older releases of transformers and accelerate, only one of both begins a new step at the
 * end of an epoch, or where a run resumes: once for each epoch. */
static double zero_slack(fsdpck_checkpoint *c, const step_evidence *e)
{
    return accumulates_none(c) ? 0 : e->epoch < 0 ? INFINITY : 2 * (e->epoch + 1);
}

/* Some trainers of trl make the same number of steps for each one that they count. */
static void add_zero(step_evidence *e, fsdpck_checkpoint *c)
{
    deepspeed_steps s;
    trainer_progress around;
    int64_t ignored;
    if (e->rule == RULE_NONE && trainer_state_read_around(c, &around, &ignored)) {
        e->rule = RULE_EQUAL;
        e->epoch = around.epoch;
        e->may_be_more = around.has_episodes;
        put(&e->training, around.step, TRAINER_STATE_JSON);
    }
    if (e->rule != RULE_EQUAL)
        return;
    checkpoint_deepspeed_steps(c, &s);
    const bool is_more =
        e->may_be_more ? s.global > e->training.step
                       : e->training.step > 0 && s.global > 0 && s.global % e->training.step == 0;
    if (s.global >= 0 && !is_more &&
        fabs((double)s.global - (double)e->training.step) > zero_slack(c, e))
        put(&e->zero, s.global, "DeepSpeed's model states");
}

/* ---- comparison ---- */

/* Of the optimizer in the folder with the record. Megatron and DeepSpeed count otherwise. */
static bool has_own_optimizer(const fsdpck_checkpoint *c, const step_evidence *e)
{
    return !c->cat.origin.is_megatron && !is_zero(c) &&
           (e->rule == RULE_LIMIT || probe_has_entry(&c->probe, TRAINER_STATE_JSON));
}

static void collect(step_evidence *e, fsdpck_checkpoint *c)
{
    *e = (step_evidence){.training = {.step = -1},
                         .scheduler = {.step = -1},
                         .lowest = {.step = -1},
                         .highest = {.step = -1},
                         .zero = {.step = -1},
                         .epoch = -1};
    add_files(e, c);
    if (e->rule == RULE_NONE)
        add_lightning(e, c);
    if (e->rule != RULE_NONE && has_own_optimizer(c, e))
        add_optimizer(e, checkpoint_optimizer_step(c), "the optimizer's part");
    if (is_zero(c))
        add_zero(e, c);
}

static const found_step *odd_optimizer(const step_evidence *e)
{
    const bool may_be_less = e->skips || e->rule == RULE_LIMIT;
    if (e->highest.step > e->training.step && !e->may_be_more)
        return &e->highest;
    return e->lowest.step >= 0 && e->lowest.step < e->training.step && !may_be_less ? &e->lowest
                                                                                    : NULL;
}

/* The scheduler makes no step where the optimizer skips one. Without the optimizer's steps, their number is unknown. */
static const found_step *odd_scheduler(const step_evidence *e)
{
    if (e->rule != RULE_EQUAL || e->scheduler.step < 0 || e->scheduler.step == e->training.step ||
        e->scheduler.step == e->highest.step)
        return NULL;
    return e->scheduler.step > e->training.step || e->highest.step >= 0 ? &e->scheduler : NULL;
}

bool step_evidence_differs(fsdpck_checkpoint *c, fsdpck_error *what)
{
    step_evidence e;
    while (c->base != NULL)
        c = c->base;
    if (c->remote_files != NULL)
        return false;
    collect(&e, c);
    if (e.rule == RULE_NONE)
        return false;
    const found_step *odd = e.zero.step >= 0 ? &e.zero : odd_optimizer(&e);
    odd = odd != NULL ? odd : odd_scheduler(&e);
    if (odd == NULL)
        return false;
    FAIL_WITH(what, BADINPUT, STEP_STATE,
              ("%s and %s record different steps", odd->from, e.training.from), (path, c->path),
              (expected, "%sstep %" PRId64 ", of %s", e.rule == RULE_LIMIT ? "at most " : "",
               e.training.step, e.training.from),
              (found, "step %" PRId64 " in %s", odd->step, odd->from));
    return true;
}

static int64_t scheduler_step(fsdpck_checkpoint *c)
{
    static const char key[] = ".last_epoch";
    int64_t step;
    for (uint32_t i = 0; i < catalogue_object_count(&c->cat); i++) {
        const uint32_t name = catalogue_object(&c->cat, i)->name;
        const char *text = catalogue_name(&c->cat, name);
        const value v =
            text_ends_with(text, strlen(text), key) ? object_named(c, text) : VALUE_OF_NONE;
        if (value_kind_of(v) == VALUE_INT && value_as_i64(&c->cat.pool, v, &step))
            return step;
    }
    for (size_t i = 0; i < c->state_files.count; i++) { /* that were listed for the other steps */
        const found_state_file *f = VEC_AT(&c->state_files, const found_state_file, i);
        if (f->inspected && f->scheduler >= 0)
            return f->scheduler;
    }
    return -1;
}

bool step_evidence_is_doubtful(fsdpck_checkpoint *c, fsdpck_error *what)
{
    int64_t recorded, named;
    const char *key;
    bool ignored;
    step_evidence e;
    while (c->base != NULL)
        c = c->base;
    if (c->remote_files != NULL || c->ctx->group != NULL ||
        !checkpoint_step_of_name(c, &recorded, &named, &key, &ignored) || recorded != named ||
        scheduler_step(c) != named)
        return false;
    collect(&e, c);
    if (e.rule != RULE_NONE) /* step_evidence_differs knows more */
        return false;
    const int64_t step = checkpoint_optimizer_step(c);
    if (step < 0 || step == named)
        return false;
    FAIL_WITH(what, BADINPUT, STEP_STATE,
              ("the optimizer's part and '%s' record different steps", key), (path, c->path),
              (expected, "step %" PRId64 ", of '%s', of last_epoch and of the name", named, key),
              (found, "step %" PRId64 " in the optimizer's part", step),
              (next, "compare with the settings of the run: where gradients are accumulated, the "
                     "optimizer makes fewer steps"));
    return true;
}

bool step_evidence_disagrees(fsdpck_checkpoint *c, fsdpck_error *what)
{
    text_buf all = {.limit_bytes = 1 << 16};
    fsdpck_step step = FSDPCK_INIT(fsdpck_step);
    int64_t first = -1;
    bool differ = false;
    for (size_t i = 0; fsdpck_get_step(c, i, &step); i++) {
        first = i == 0 ? step.step : first;
        differ = differ || step.step != first;
        text_printf(&all, "%s%" PRId64 " (%s)", i == 0 ? "" : ", ", step.step, step.source);
    }
    if (differ)
        FAIL_WITH(what, BADINPUT, STEP_STATE, ("the recorded steps differ"), (path, c->path),
                  (found, "%s", all.failed ? "" : all.text),
                  (next, "check that all files are of one save; a new optimizer, or one that "
                         "accumulates gradients, made fewer steps"));
    text_release(&all);
    return differ;
}

static void put_warning(const fsdpck_checkpoint *c, const fsdpck_error *what)
{
    log_warn(&c->ctx->log, what->finding, what->next, "'%s': %s (%s; %s)", what->path,
             what->message, what->expected, what->found);
}

bool step_evidence_of_name(fsdpck_checkpoint *c, bool *of_trainer, fsdpck_error *what)
{
    int64_t recorded, named;
    const char *recorded_in;
    if (c->remote_files != NULL || c->ctx->group != NULL ||
        !checkpoint_step_of_name(c, &recorded, &named, &recorded_in, of_trainer) ||
        recorded == named)
        return false;
    FAIL_WITH(what, BADINPUT, STEP_NAME,
              ("'%s'%s records another step than the name of the folder", recorded_in,
               *of_trainer ? "" : " in the checkpoint"),
              (path, c->path), (expected, "step %" PRId64, named),
              (found, "step %" PRId64, recorded));
    return true;
}

bool step_evidence_warn(fsdpck_checkpoint *c)
{
    bool of_trainer = false;
    fsdpck_error what = FSDPCK_ERROR_INIT;
    const bool is_other = step_evidence_of_name(c, &of_trainer, &what) && of_trainer;
    if (is_other)
        put_warning(c, &what);
    if (step_records_differ(c, &what))
        put_warning(c, &what);
    if (!is_zero(c) && step_evidence_differs(c, &what))
        put_warning(c, &what);
    return is_other;
}

/* ---- files of two saves ---- */

typedef struct step_sample {
    const fsdpck_checkpoint *c;
    uint64_t count, every; /* each `every`th is read */
} step_sample;

static bool read_step(void *ctx, uint64_t tensor, double *step)
{
    step_sample *s = ctx;
    const int64_t number = s->count++ % s->every == 0 ? step_number_of(s->c, tensor) : -1;
    *step = (double)number;
    return number >= 0;
}

/* Whether files begin with different steps. In a mixture each file has one step only, so the first one of each file
 * shows it, and no other is read from a good checkpoint. */
static bool files_differ(const fsdpck_checkpoint *c)
{
    const catalogue *cat = &c->cat;
    const uint64_t files = catalogue_file_count(cat);
    uint8_t *is_read = calloc(files + 1, 1);
    int64_t first = -1;
    bool differ = false;
    for (uint64_t i = 0; is_read != NULL && !differ && i < catalogue_tensor_count(cat); i++) {
        const cat_tensor *t = catalogue_tensor(cat, i);
        if (t->nchunks != 1 || !step_files_is_step(cat, i))
            continue;
        const uint32_t holder = catalogue_chunk(cat, t->first_chunk)->file;
        if (holder >= files || is_read[holder])
            continue;
        const int64_t step = step_number_of(c, i);
        is_read[holder] = step >= 0;
        differ = step >= 0 && first >= 0 && step != first;
        first = step >= 0 ? step : first;
    }
    free(is_read);
    return differ;
}

static bool is_in_files(const fsdpck_checkpoint *c)
{
    return c->remote_files == NULL &&
           (c->format->id == FSDPCK_FORMAT_DCP || c->format->id == FSDPCK_FORMAT_DCP_SAFETENSORS);
}

/* Of files that differ. */
static bool judge_files(fsdpck_checkpoint *c, step_files *f)
{
    uint64_t count = 0;
    if (!is_in_files(c) || !files_differ(c))
        return false;
    for (uint64_t i = 0; i < catalogue_tensor_count(&c->cat); i++)
        count += step_files_is_step(&c->cat, i);
    step_sample s = {.c = c, .every = count / STEP_READS_MAX + 1};
    return count > 0 &&
           step_files_judge(&c->cat, read_step, &s, &c->metadata, f, NULL) == FSDPCK_OK &&
           f->steps > 1;
}

bool step_evidence_is_mixed(fsdpck_checkpoint *c, fsdpck_error *what)
{
    step_files f;
    while (c->base != NULL)
        c = c->base;
    if (!judge_files(c, &f) || !f.is_mixture)
        return false;
    const catalogue *cat = &c->cat;
    step_files_describe(cat, &f, what);
    const uint64_t chunk = catalogue_tensor(cat, f.odd.first)->first_chunk;
    const uint32_t path = catalogue_file(cat, catalogue_chunk(cat, chunk)->file)->path;
    error_path_in(what, c->path, catalogue_name(cat, path));
    return true;
}

/* Whether the training, or the name of the folder, has another step than the first one of the optimizer. */
static bool has_other_step(fsdpck_checkpoint *c)
{
    int64_t recorded, named = c->cat.origin.step, step = -1;
    const char *recorded_in;
    bool of_trainer;
    for (uint64_t i = 0; step < 0 && i < catalogue_tensor_count(&c->cat); i++)
        if (step_files_is_step(&c->cat, i))
            step = step_number_of(c, i);
    if (step < 0 || (named >= 0 && named != step))
        return step >= 0;
    return checkpoint_step_of_name(c, &recorded, &named, &recorded_in, &of_trainer) &&
           (recorded != step || named != step);
}

bool step_evidence_is_copied(fsdpck_checkpoint *c, fsdpck_error *what)
{
    step_files f;
    while (c->base != NULL)
        c = c->base;
    if (c->ctx->group != NULL || !is_in_files(c) || (!has_other_step(c) && !files_differ(c)))
        return false;
    return !(judge_files(c, &f) && f.is_mixture) && copied_file_is_mixed(c, what);
}

/* Not of a converted folder whose trainer has a key of this name only. */
static bool steps_of_zero_differ(const deepspeed_steps *s)
{
    const int64_t steps = s->global - s->skipped;
    return s->optimizer >= 0 && s->skipped >= 0 && s->skipped <= s->global &&
           (steps != s->optimizer || steps != s->lowest);
}

bool step_evidence_of_zero(fsdpck_checkpoint *c, fsdpck_error *what)
{
    deepspeed_steps s;
    while (c->base != NULL)
        c = c->base;
    /* Files of other hosts are read only while all ranks serve them. */
    if (c->remote_files != NULL || c->ctx->group != NULL)
        return false;
    checkpoint_deepspeed_steps(c, &s);
    if (!steps_of_zero_differ(&s))
        return false;
    FAIL_WITH(what, BADINPUT, ZERO_STEP, ("the optimizer is at another step than the training"),
              (path, c->path),
              (expected, "step %" PRId64 ", of global_steps %" PRId64 " and skipped_steps %" PRId64,
               s.global - s.skipped, s.global, s.skipped),
              (found, "step %" PRId64 " in the optimizer's state",
               s.optimizer != s.global - s.skipped ? s.optimizer : s.lowest),
              (next, "check that model states and optimizer states are from one save"));
    return true;
}

static void warn_mixed(fsdpck_checkpoint *c, bool reads_values)
{
    fsdpck_error what = FSDPCK_ERROR_INIT;
    if (reads_values && (step_evidence_is_mixed(c, &what) || step_evidence_is_copied(c, &what)))
        put_warning(c, &what);
    if (step_evidence_of_zero(c, &what))
        put_warning(c, &what);
    if (is_zero(c) && step_evidence_differs(c, &what))
        put_warning(c, &what);
}

void step_evidence_warn_mixed(fsdpck_checkpoint *c, bool reads_values)
{
    for (size_t i = 0; c->average != NULL && i < c->input_count; i++)
        warn_mixed(c->inputs[i], reads_values);
    if (c->average == NULL)
        warn_mixed(c, reads_values);
}
