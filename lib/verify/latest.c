/* The newest complete checkpoint of a run. */
#include <inttypes.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/struct_copy.h"
#include "base/text.h"
#include "io/file.h"
#include "open/pointer_file.h"
#include "verify/latest_index.h"
#include "verify/latest_list.h"
#include "verify/latest_once.h"
#include "verify/latest_parts.h"
#include "verify/latest_recorded.h"
#include "verify/latest_uncertain.h"

/* ---- pointer files ---- */

/* *known: *step is the step that the file names; *empty: a file without text. */
static void read_pointer(const folder *dir, uint64_t *step, bool *known, const char **empty)
{
    *known = false;
    *step = 0;
    *empty = NULL;
    for (size_t i = 0; !*known && i < POINTER_FILES; i++) {
        char *text = pointer_file_read(dir, pointer_file_name(i));
        step_name s;
        if (text == NULL)
            continue;
        if (text[0] == '\0')
            *empty = pointer_file_name(i);
        *known = pointer_file_step(text, &s);
        *step = s.step;
        free(text);
    }
}

/* Some number that the folder's own file states, while the newest is another. */
static void compare_pointer(const fsdpck_context *ctx, const folder *dir, const latest_step *list,
                            size_t count, const latest_step *complete)
{
    uint64_t pointed;
    bool known;
    const char *empty;
    const latest_step *newest = list;
    while (newest < list + count && (!latest_step_may_count(newest) || newest->is_run))
        newest++;
    read_pointer(dir, &pointed, &known, &empty);
    if (empty != NULL && newest < list + count)
        log_warn(&ctx->log, FSDPCK_FINDING_LATEST_POINTER,
                 "write the name of the step to resume from into it",
                 "'%s', which names the latest checkpoint, is empty", empty);
    if (!known || newest == list + count || pointed == newest->name.step)
        return;
    if (complete == NULL || complete == newest)
        log_warn(&ctx->log, FSDPCK_FINDING_LATEST_POINTER, "decide which of the two to resume from",
                 "pointer to the latest checkpoint names step %" PRIu64
                 ", but the newest is %" PRIu64,
                 pointed, newest->name.step);
    else
        log_warn(&ctx->log, FSDPCK_FINDING_LATEST_POINTER, "decide which of them to resume from",
                 "pointer to the latest checkpoint names step %" PRIu64
                 ", but the newest is %" PRIu64 ", and the newest complete one is %" PRIu64,
                 pointed, newest->name.step, complete->name.step);
}

/* The command requires the folder of the run, not that of a step. Returns whether it is a step. DeepSpeed loads no step
 * of the run without its file. */
static bool warn_is_checkpoint(const fsdpck_context *ctx, const char *root, bool has_steps)
{
    fsdpck_error what = FSDPCK_ERROR_INIT;
    probe_input in;
    if (probe_gather(root, &in, NULL) != FSDPCK_OK)
        return false;
    const bool is_checkpoint = probe_readers(&in, NULL) != NULL;
    if (!is_checkpoint && pointer_file_check_deepspeed(&in, &what) != FSDPCK_OK &&
        (what.finding != FSDPCK_FINDING_LATEST_LOST || !probe_has_entry(&in, "latest")))
        log_warn(&ctx->log, what.finding, what.next, "'%s': %s", root, what.message);
    if (is_checkpoint && !has_steps)
        log_warn(&ctx->log, FSDPCK_FINDING_LATEST_ITSELF,
                 "give its parent folder, which contains the other steps",
                 "'%s' is itself a checkpoint", root);
    probe_release(&in);
    return is_checkpoint;
}

/* Another candidate of the same number may be the model. */
static void warn_no_model(const fsdpck_context *ctx, const latest_step *list, size_t count,
                          size_t at, const resume_state *state)
{
    const bool has_other =
        (at > 0 && step_name_compare(&list[at - 1].name, &list[at].name) == 0) ||
        (at + 1 < count && step_name_compare(&list[at + 1].name, &list[at].name) == 0);
    if (!has_other && !resume_state_has(state, RESUME_MODEL) &&
        resume_state_has(state, RESUME_OPTIMIZER))
        log_warn(&ctx->log, FSDPCK_FINDING_WEIGHTS_LOST,
                 "copy the files of the model from where they were saved, if they are missing",
                 "step '%s' has the state of the optimizer, but no model",
                 text_file_name(list[at].path));
}

/* Complete in itself, and compared with older steps. */
static fsdpck_status check_step(fsdpck_context *ctx, latest_step *list, size_t count, size_t at,
                                const fsdpck_latest_options *o, fsdpck_error *err)
{
    resume_state state;
    if (list[at].name.mark == STEP_UNFINISHED)
        return FAIL(err, BADINPUT, SAVE_INCOMPLETE,
                    "name marks it as unfinished, replaced or to be deleted");
    if (list[at].name.is_too_large)
        return FAIL(err, UNSUPPORTED, NONE,
                    "number of the step has more than 64 bits; its order is unknown");
    resume_state_init(&state, list[at].path);
    fsdpck_status st = latest_step_check(ctx, &list[at], o, &state, err);
    if (st == FSDPCK_OK)
        st = latest_index_check(list, count, at, &ctx->log, err);
    if (st == FSDPCK_OK && !o->allow_missing_state)
        st = latest_step_compare(ctx, list, count, at, &state, o, err);
    if (st == FSDPCK_OK)
        warn_no_model(ctx, list, count, at, &state);
    list[at].recorded_step = st == FSDPCK_OK && !state.name_is_other ? state.step : -1;
    resume_state_release(&state);
    return st;
}

/* Another of these steps is complete. */
static bool has_complete(fsdpck_context *ctx, latest_step *list, size_t count,
                         const fsdpck_latest_options *o)
{
    const logger log = ctx->log;
    bool has = false;
    ctx->log = (logger){0};
    for (size_t i = 0; !has && i < count; i++) {
        fsdpck_error why = FSDPCK_ERROR_INIT;
        has = latest_step_may_count(&list[i]) &&
              latest_step_check(ctx, &list[i], o, NULL, &why) == FSDPCK_OK;
    }
    ctx->log = log;
    return has;
}

/* Weights that are not read may be damaged, if there is no better step: verify only warns of them. */
static fsdpck_status check_or_warn(fsdpck_context *ctx, latest_step *list, size_t count, size_t at,
                                   const fsdpck_latest_options *o, bool is_first, fsdpck_error *why)
{
    latest_once once;
    latest_once_begin(&once, &ctx->log);
    fsdpck_status st = check_step(ctx, list, count, at, o, why);
    if (is_first && st == FSDPCK_BADINPUT && why->finding == FSDPCK_FINDING_WEIGHTS_CUT &&
        !has_complete(ctx, list + at + 1, count - at - 1, o)) {
        fsdpck_error_init(why);
        list[at].takes_cut = true;
        st = check_step(ctx, list, count, at, o, why);
    }
    latest_once_end(&once, &ctx->log);
    return st;
}

/* Skips an unreadable checkpoint if a newer one was found; otherwise the newest is unknown.
 * *complete: the first complete one. */
static fsdpck_status walk(fsdpck_context *ctx, latest_step *list, size_t count,
                          const fsdpck_latest_options *o, fsdpck_latest_fn fn, void *arg,
                          uint64_t *found, const latest_step **complete, fsdpck_error *err)
{
    const uint64_t max_count = o->max_count > 0 ? o->max_count : 1;
    const latest_step *last = NULL; /* that was found */
    for (size_t i = 0; *found < max_count && i < count; i++) {
        fsdpck_error why = FSDPCK_ERROR_INIT;
        if (latest_recorded_is_copy(&list[i], last) ||
            (last != NULL && list[i].copy_of == last->path))
            continue;
        const fsdpck_status st = check_or_warn(ctx, list, count, i, o, *found == 0, &why);
        const bool is_absent = st != FSDPCK_OK && path_is_dangling(NULL, list[i].path);
        if ((is_absent || latest_step_is_unknown(st, &why)) &&
            (*found == 0 || st == FSDPCK_CANCELLED || st == FSDPCK_INTERNAL)) {
            const bool is_limited = why.finding == FSDPCK_FINDING_SEARCH_LIMIT;
            if (is_limited)
                why.next[0] = '\0';
            if (err != NULL)
                *err = why;
            error_path(err, list[i].path);
            error_next(err, "%s, or move it away: it may be the newest complete checkpoint",
                       is_limited ? "remove other folders from it" : "make it readable");
            return is_absent ? FSDPCK_IO : st;
        }
        if (st == FSDPCK_OK && *found == 0)
            *complete = &list[i];
        fn(arg, list[i].path, list[i].name.step, st == FSDPCK_OK ? NULL : &why);
        *found += st == FSDPCK_OK;
        last = st == FSDPCK_OK ? &list[i] : last;
    }
    return FSDPCK_OK;
}

/* Names that tell no order, and other runs inside. */
static fsdpck_status warn_runs(fsdpck_context *ctx, const char *root, const latest_list *l,
                               const latest_step *complete, const fsdpck_open_options *open,
                               fsdpck_error *err)
{
    latest_runs runs;
    const fsdpck_status st = latest_runs_find(&runs, root, err);
    if (st == FSDPCK_OK) {
        latest_runs_warn(&runs, root, complete, &ctx->log);
        latest_uncertain_warn(ctx, l, &runs, complete, open);
    }
    latest_runs_release(&runs);
    return st;
}

static fsdpck_status take_options(fsdpck_latest_options *o, const fsdpck_latest_options *from,
                                  fsdpck_error *err)
{
    static const struct_choice level = {"fsdpck_latest_options.level",
                                        offsetof(fsdpck_latest_options, level), FSDPCK_LEVEL_QUICK,
                                        FSDPCK_LEVEL_NUMERIC};
    fsdpck_open_options open;
    *o = (fsdpck_latest_options)FSDPCK_INIT(fsdpck_latest_options);
    RETURN_IF(STRUCT_COPY_IN(o, from, fsdpck_latest_options, err));
    RETURN_IF(struct_check_choices(o, &level, 1, err));
    return open_options_take(&open, o->open, err);
}

fsdpck_status fsdpck_latest(fsdpck_context *ctx, const char *root,
                            const fsdpck_latest_options *options, fsdpck_latest_fn fn, void *arg,
                            uint64_t *found, fsdpck_error *err)
{
    fsdpck_latest_options o;
    folder dir = FOLDER_CLOSED;
    latest_list l;
    const latest_step *complete = NULL;
    *found = 0;
    RETURN_IF(take_options(&o, options, err));
    latest_list_init(&l);
    fsdpck_status st = folder_open(&dir, root, err);
    if (st == FSDPCK_OK)
        st = latest_list_read(&l, root, &dir, err);
    if (st == FSDPCK_OK)
        st = latest_recorded_add(ctx, &l, o.open, err);
    latest_step *const list = l.steps.items;
    const size_t count = l.steps.count;
    if (st != FSDPCK_OK)
        error_path(err, root);
    else
        st = walk(ctx, list, count, &o, fn, arg, found, &complete, err);
    if (st == FSDPCK_OK)
        compare_pointer(ctx, &dir, list, count, complete);
    if (st == FSDPCK_OK && complete != NULL)
        latest_parts_warn(list, count, (size_t)(complete - list), o.allow_missing_state != 0,
                          &ctx->log);
    if (st == FSDPCK_OK && !warn_is_checkpoint(ctx, root, *found > 0)) {
        st = warn_runs(ctx, root, &l, complete, o.open, err);
        latest_list_warn(&l, complete, &ctx->log);
    }
    if (st == FSDPCK_OK)
        latest_recorded_warn(ctx, &l, complete, o.open);
    if (st == FSDPCK_OK)
        latest_recorded_warn_name(ctx, &l, complete, o.open);
    latest_list_release(&l);
    folder_close(&dir);
    return st;
}
