#include "verify/latest_recorded.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "open/state_files.h"
#include "verify/latest_name.h"

/* Other steps that are opened to find the unit in which the run counts. */
#define AGREEING_OPENED_MAX 4u

bool latest_recorded_is_copy(const latest_step *c, const latest_step *found)
{
    return c->is_recorded && found != NULL && step_name_compare(&c->name, &found->name) == 0;
}

/* ---- steps ---- */

int64_t latest_recorded_step(fsdpck_context *ctx, const char *path, const fsdpck_open_options *open)
{
    fsdpck_checkpoint *c = NULL;
    fsdpck_step step = FSDPCK_INIT(fsdpck_step);
    const logger log = ctx->log;
    ctx->log = (logger){0};
    const bool is_known =
        fsdpck_open(ctx, path, open, &c, NULL) == FSDPCK_OK && fsdpck_get_step(c, 0, &step);
    fsdpck_close(c);
    ctx->log = log;
    return is_known ? step.step : -1;
}

/* Of a folder whose content is not read: its files may be lost. */
static bool is_of_checkpoint(const char *name)
{
    static const char *const names[] = {"last", "latest"};
    return TEXT_IS_IN(name, strlen(name), names) ||
           (latest_name_is_newest(name) && text_ends_with(name, strlen(name), ".ckpt"));
}

static bool is_checkpoint(const char *path)
{
    path_kind kind;
    probe_input in;
    if (path_probe(NULL, path, &kind, NULL, NULL) != FSDPCK_OK || kind == PATH_FILE)
        return !trainer_state_has_name(text_file_name(path));
    if (kind != PATH_FOLDER || probe_gather(path, &in, NULL) != FSDPCK_OK)
        return latest_name_is_newest(text_file_name(path)); /* a link whose target is gone */
    const bool is = probe_readers(&in, NULL) != NULL ||
                    (in.entry_count > 0 && is_of_checkpoint(text_file_name(path)));
    probe_release(&in);
    return is;
}

bool latest_recorded_is_link(const latest_list *l, const char *path)
{
    uint64_t own = 0, other = 0;
    path_kind kind;
    if (path_identify(NULL, path, &kind, NULL, &own, NULL, NULL) != FSDPCK_OK || own == 0)
        return false;
    for (size_t i = 0; i < l->steps.count; i++)
        if (path_identify(NULL, VEC_AT(&l->steps, const latest_step, i)->path, &kind, NULL, &other,
                          NULL, NULL) == FSDPCK_OK &&
            other == own)
            return true;
    return false;
}

int64_t latest_recorded_step_of_chosen(fsdpck_context *ctx, const latest_step *chosen,
                                       const fsdpck_open_options *open)
{
    int64_t step = -1;
    if (chosen != NULL)
        step = latest_recorded_step(ctx, chosen->path, open);
    if (step < 0 && chosen != NULL && step_name_has_word(&chosen->name))
        step = chosen->name.step < INT64_MAX ? (int64_t)chosen->name.step : -1;
    return step;
}

static const latest_step *newest_of(const latest_list *l)
{
    for (size_t i = 0; i < l->steps.count; i++)
        if (latest_step_may_count(VEC_AT(&l->steps, const latest_step, i)))
            return VEC_AT(&l->steps, const latest_step, i);
    return NULL;
}

/* Whether the numbers in the names are those that the files record, as far as that is known. */
static bool counts_steps(fsdpck_context *ctx, const latest_step *newest,
                         const fsdpck_open_options *open)
{
    if (newest == NULL)
        return true;
    const int64_t recorded = latest_recorded_step(ctx, newest->path, open);
    return recorded < 0 ? newest->name.kind == STEP_STEP || newest->name.kind == STEP_CHECKPOINT
                        : (uint64_t)recorded == newest->name.step && newest->name.minor == 0;
}

/* Of l->nameless, whether the item is kept there. */
static bool take(fsdpck_context *ctx, latest_list *l, latest_step *c,
                 const fsdpck_open_options *open)
{
    if (!is_checkpoint(c->path) || latest_recorded_is_link(l, c->path)) {
        free(c->path);
        return false;
    }
    const int64_t step = latest_recorded_step(ctx, c->path, open);
    c->is_recorded = step >= 0;
    c->name = (step_name){.kind = c->is_recorded ? STEP_STEP : STEP_NONE,
                          .mark = c->name.mark,
                          .step = c->is_recorded ? (uint64_t)step : 0};
    return true;
}

static fsdpck_status move_known(latest_list *l, fsdpck_error *err)
{
    size_t kept = 0;
    fsdpck_status st = FSDPCK_OK;
    for (size_t i = 0; i < l->nameless.count; i++) {
        latest_step *c = VEC_AT(&l->nameless, latest_step, i);
        const bool moves = st == FSDPCK_OK && c->is_recorded && latest_step_may_count(c) &&
                           latest_name_is_newest(text_file_name(c->path));
        if (moves)
            st = vec_add(&l->steps, c, err);
        if (!moves || st != FSDPCK_OK)
            *VEC_AT(&l->nameless, latest_step, kept++) = *c;
    }
    l->nameless.count = kept;
    latest_list_sort(l);
    return st;
}

fsdpck_status latest_recorded_add(fsdpck_context *ctx, latest_list *l,
                                  const fsdpck_open_options *open, fsdpck_error *err)
{
    size_t kept = 0;
    bool any = false;
    for (size_t i = 0; i < l->nameless.count; i++) {
        latest_step c = *VEC_AT(&l->nameless, latest_step, i);
        if (!take(ctx, l, &c, open))
            continue;
        any = any || c.is_recorded;
        *VEC_AT(&l->nameless, latest_step, kept++) = c;
    }
    l->nameless.count = kept;
    return any && counts_steps(ctx, newest_of(l), open) ? move_known(l, err) : FSDPCK_OK;
}

/* ---- warnings ---- */

static void warn_one(const latest_step *c, const latest_step *chosen, const logger *log)
{
    static const char next[] =
        "decide which of the two to resume from, or rename it to a name such as step-1000";
    const char *name = text_file_name(c->path);
    if (!c->is_recorded)
        log_warn(log, FSDPCK_FINDING_LATEST_NAME, next,
                 "'%s' was not considered: its name has no step, and none can be read from it",
                 name);
    else if (chosen == NULL)
        log_warn(log, FSDPCK_FINDING_LATEST_NAME, next,
                 "'%s' was not considered: its name has no step, but it records step %" PRIu64,
                 name, c->name.step);
    else
        log_warn(log, FSDPCK_FINDING_LATEST_NAME, next,
                 "'%s' was not considered: its name has no step, but it records step %" PRIu64
                 ", which may be later than '%s'",
                 name, c->name.step, text_file_name(chosen->path));
}

void latest_recorded_warn(fsdpck_context *ctx, const latest_list *l, const latest_step *chosen,
                          const fsdpck_open_options *open)
{
    const int64_t step =
        l->nameless.count > 0 ? latest_recorded_step_of_chosen(ctx, chosen, open) : -1;
    for (size_t i = 0; i < l->nameless.count; i++) {
        const latest_step *c = VEC_AT(&l->nameless, const latest_step, i);
        const bool is_newest = latest_name_is_newest(text_file_name(c->path));
        if (!latest_step_may_count(c) || (!is_newest && (chosen == NULL || !c->is_recorded)) ||
            (c->is_recorded && step >= 0 && c->name.step <= (uint64_t)step))
            continue;
        warn_one(c, chosen, &ctx->log);
    }
}

/* Trainers count in names as in their state, or in another unit, such as epochs or micro-steps. */
static const latest_step *find_agreeing(fsdpck_context *ctx, const latest_list *l,
                                        const latest_step *chosen, const fsdpck_open_options *open)
{
    for (size_t i = 0, opened = 0; i < l->steps.count && opened < AGREEING_OPENED_MAX; i++) {
        const latest_step *c = VEC_AT(&l->steps, const latest_step, i);
        if (c == chosen || !latest_step_may_count(c) || c->is_recorded || c->name.minor != 0 ||
            c->name.step == chosen->name.step)
            continue;
        opened++;
        const int64_t recorded = latest_recorded_step(ctx, c->path, open);
        if (recorded >= 0 && (uint64_t)recorded == c->name.step)
            return c;
    }
    return NULL;
}

void latest_recorded_warn_name(fsdpck_context *ctx, const latest_list *l, const latest_step *chosen,
                               const fsdpck_open_options *open)
{
    if (chosen == NULL || chosen->is_recorded || chosen->name.minor != 0 ||
        chosen->recorded_step < 0 || (uint64_t)chosen->recorded_step == chosen->name.step)
        return;
    const latest_step *agreeing = find_agreeing(ctx, l, chosen, open);
    if (agreeing != NULL)
        log_warn(&ctx->log, FSDPCK_FINDING_STEP_NAME,
                 "check where the folder comes from: it may be a copy of another step, or have "
                 "files of one",
                 "'%s' records step %" PRId64 ", not the step of its name, as '%s' does",
                 text_file_name(chosen->path), chosen->recorded_step,
                 text_file_name(agreeing->path));
}
