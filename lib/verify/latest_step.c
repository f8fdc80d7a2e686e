#include "verify/latest_step.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "open/lost_beside.h"
#include "open/lost_components.h"
#include "open/numbered_files.h"
#include "open/open_fail.h"
#include "open/pointer_file.h"
#include "open/stated_files.h"
#include "open/weights_beside.h"
#include "verify/latest_check.h"
#include "verify/latest_required.h"
#include "verify/trainer_state.h"

/* "step_100", "epoch=3-step=7.ckpt": a word of the name is that of a step. */
static bool is_step_name(const char *name, uint64_t *step)
{
    step_name s;
    step_name_read(name, weights_stem_nbytes(name), &s);
    *step = s.step;
    return step_name_has_word(&s) && !s.is_too_large;
}

bool latest_step_may_count(const latest_step *c)
{
    return !c->name.is_too_large && c->name.mark == STEP_UNMARKED;
}

/* ---- complete or not ---- */

bool latest_step_is_unknown(fsdpck_status st, const fsdpck_error *why)
{
    if (st == FSDPCK_CANCELLED || st == FSDPCK_INTERNAL ||
        (st != FSDPCK_OK && why->finding == FSDPCK_FINDING_SEARCH_LIMIT))
        return true;
    if (why->finding != FSDPCK_FINDING_NONE)
        return false;
    return st == FSDPCK_LIMIT || (st == FSDPCK_IO && why->sys_errno != 0 &&
                                  why->sys_errno != ENOENT && why->sys_errno != ENOTDIR);
}

/* Whether the checkpoint may be in a folder below. */
static bool may_lie_deeper(const char *path, fsdpck_status st, const fsdpck_error *why)
{
    probe_input in;
    if (st != FSDPCK_OK)
        return st == FSDPCK_USAGE || why->finding == FSDPCK_FINDING_NO_CHECKPOINT;
    if (probe_gather(path, &in, NULL) != FSDPCK_OK)
        return false;
    const bool above = in.is_folder && probe_readers(&in, NULL) == NULL;
    probe_release(&in);
    return above;
}

/* A component of a path below the candidate that is a step of another number; NULL if none. */
static const char *other_step(const latest_step *c, const char *path, uint64_t *step,
                              size_t *nbytes)
{
    const char *at = path + strlen(c->path);
    while (*at != '\0') {
        char name[256];
        at += *at == '/';
        *nbytes = strcspn(at, "/");
        snprintf(name, sizeof name, "%.*s", *nbytes < sizeof name ? (int)*nbytes : 0, at);
        if (is_step_name(name, step) && *step != c->name.step)
            return at;
        at += *nbytes;
    }
    return NULL;
}

/* 'big8' with step_100 and step_200 is the folder of another run. 'checkpoint-8/global_step8' is a
 * checkpoint, and so is 'epoch_8/step_100' alone. */
static fsdpck_status check_no_run(latest_step *c, const search_result *found, fsdpck_error *err)
{
    uint64_t first = 0, own, step;
    size_t count = 0, nbytes;
    const size_t most = is_step_name(text_file_name(c->path), &own) ? 1 : 0;
    for (size_t i = 0; i < found->count; i++) {
        const char *name = other_step(c, found->paths[i], &step, &nbytes);
        if (name == NULL || (count > 0 && step == first))
            continue;
        first = step;
        if (++count <= most)
            continue;
        c->is_run = true;
        return FAIL_WITH(
            err, BADINPUT, NO_CHECKPOINT,
            ("folder of a run, not a checkpoint: it contains '%.*s'", (int)nbytes, name),
            (path, c->path), (next, "give this folder to find its newest checkpoint"));
    }
    return FSDPCK_OK;
}

/* Some may be without tensors, such as a file of arguments. The trainer's state is checked
 * separately. */
static fsdpck_status check_found(fsdpck_context *ctx, const search_result *found, bool takes_cut,
                                 const fsdpck_latest_options *o, resume_state *state,
                                 fsdpck_error *err)
{
    fsdpck_error none = FSDPCK_ERROR_INIT;
    bool any = false;
    for (size_t i = 0; i < found->count; i++) {
        RETURN_IF(stated_file_check(found->paths[i], err));
        const fsdpck_status st = latest_check_one(ctx, found->paths[i], takes_cut, o, state, err);
        if (st != FSDPCK_OK && err->finding == FSDPCK_FINDING_KEY_NONE) {
            none = *err;
            continue;
        }
        RETURN_IF(st);
        any = true;
    }
    if (any)
        fsdpck_error_init(err);
    else
        *err = none;
    return any ? FSDPCK_OK : none.status;
}

static void warn_lost_models(const probe_input *in, const search_result *found, const logger *log)
{
    bool has_model = false;
    for (size_t i = 0; !has_model && i < found->count; i++)
        has_model = lost_beside_is_model(found->paths[i], in->path);
    if (has_model)
        lost_beside_warn_models(in, log);
}

/* Beside the checkpoints below the candidate. is_several: otherwise the one was opened with the folder. */
static fsdpck_status check_state_beside(fsdpck_context *ctx, const char *path,
                                        const search_result *found, bool is_several,
                                        const fsdpck_latest_options *o, fsdpck_error *err)
{
    probe_input in;
    RETURN_IF(probe_gather(path, &in, err));
    if (is_several) {
        numbered_files_warn_folder(&in, &ctx->log);
        warn_lost_models(&in, found, &ctx->log);
        lost_components_warn(&in, ctx, checkpoint_open);
    }
    fsdpck_status st =
        trainer_state_check_folder(ctx, &in, NULL, o->level < FSDPCK_LEVEL_COVERAGE, err);
    if (st == FSDPCK_OK)
        st = latest_required_check_folder(&in, o->allow_missing_state != 0, err);
    probe_release(&in);
    return st;
}

/* A file that names a step, around the checkpoints: one of them may be that step. */
static fsdpck_status check_pointer(const char *path, const search_result *found, fsdpck_error *err)
{
    fsdpck_status st = FSDPCK_OK;
    for (size_t i = 0; i < found->count; i++) {
        st = pointer_file_check_around(path, found->paths[i], err);
        if (st != FSDPCK_BADINPUT)
            break;
    }
    if (st == FSDPCK_OK)
        fsdpck_error_init(err);
    return st;
}

/* st: of the candidate itself, with *err. */
static fsdpck_status check_folders(fsdpck_context *ctx, latest_step *c, fsdpck_status st,
                                   const search_result *found, const fsdpck_latest_options *o,
                                   resume_state *state, fsdpck_error *err)
{
    if (!found->unread)
        RETURN_IF(check_no_run(c, found, err));
    else if (latest_step_is_unknown(found->why.status, &found->why)) {
        *err = found->why;
        return found->why.status;
    }
    if (found->is_limited)
        return open_fail_limited(c->path, err);
    if (st != FSDPCK_OK && (found->count == 0 || found->more > 0))
        return st;
    fsdpck_error_init(err);
    if (search_has_state_only(found))
        return search_fail_state_only(found, c->path, err);
    if (st != FSDPCK_OK)
        RETURN_IF(check_found(ctx, found, c->takes_cut, o, state, err));
    RETURN_IF(check_state_beside(ctx, c->path, found, st != FSDPCK_OK, o, err));
    return check_pointer(c->path, found, err);
}

static fsdpck_status check_below(fsdpck_context *ctx, latest_step *c, fsdpck_status st,
                                 const fsdpck_latest_options *o, resume_state *state,
                                 fsdpck_error *err)
{
    search_result found;
    RETURN_IF(search_folders(c->path, &found, NULL));
    st = check_folders(ctx, c, st, &found, o, state, err);
    search_result_release(&found);
    return st;
}

/* More files beside an optimizer's are no models. */
enum { MODELS_MAX = 32 };

/* One file. It does not count if it is unreadable, or has no model. */
static fsdpck_status add_model(fsdpck_context *ctx, const latest_step *c, const char *name,
                               const fsdpck_latest_options *o, resume_state *state,
                               fsdpck_error *err)
{
    fsdpck_error why = FSDPCK_ERROR_INIT;
    const logger log = ctx->log;
    resume_state of_file;
    char *path = folder_path_join(c->path, name);
    if (path == NULL)
        return error_set_nomem(err, strlen(name));
    resume_state_init(&of_file, c->path);
    ctx->log = (logger){0};
    fsdpck_status st = latest_check_one(ctx, path, c->takes_cut, o, &of_file, &why);
    ctx->log = log;
    if (st == FSDPCK_OK && resume_state_has(&of_file, RESUME_MODEL))
        st = resume_state_merge(state, &of_file, err);
    else if (!latest_step_is_unknown(st, &why))
        st = FSDPCK_OK;
    else if (err != NULL)
        *err = why;
    resume_state_release(&of_file);
    free(path);
    return st;
}

/* Beside files with the optimizer of each rank: the model in a file that is not read with them, such as 'model.pt'. */
static fsdpck_status add_models(fsdpck_context *ctx, const latest_step *c,
                                const fsdpck_latest_options *o, resume_state *state,
                                fsdpck_error *err)
{
    probe_input in;
    size_t opened = 0;
    if (resume_state_has(state, RESUME_MODEL) || !resume_state_has(state, RESUME_OPTIMIZER))
        return FSDPCK_OK;
    RETURN_IF(probe_gather(c->path, &in, err));
    fsdpck_status st = FSDPCK_OK;
    for (size_t i = 0; in.is_folder && st == FSDPCK_OK && i < in.entry_count; i++)
        if (weights_beside_has_name(in.entries[i]) && opened++ < MODELS_MAX)
            st = add_model(ctx, c, in.entries[i], o, state, err);
    probe_release(&in);
    return st;
}

fsdpck_status latest_step_check(fsdpck_context *ctx, latest_step *c, const fsdpck_latest_options *o,
                                resume_state *state, fsdpck_error *err)
{
    fsdpck_status st = latest_check_one(ctx, c->path, c->takes_cut, o, state, err);
    if (may_lie_deeper(c->path, st, err))
        st = check_below(ctx, c, st, o, state, err);
    if (st == FSDPCK_OK && state != NULL)
        st = add_models(ctx, c, o, state, err);
    if (st == FSDPCK_OK && state != NULL)
        st = resume_state_add_files(state, err);
    return st;
}

/* ---- comparison with older steps ---- */

static fsdpck_status fail_lacks(const latest_step *c, const latest_step *older,
                                const resume_state *state, const resume_state *of_older,
                                fsdpck_error *err)
{
    text_buf kinds = {.limit_bytes = 1024};
    resume_state_print(state, of_older, &kinds);
    fsdpck_status st = text_check(&kinds, err);
    if (st == FSDPCK_OK)
        st = FAIL_WITH(err, BADINPUT, LATEST_STATE,
                       ("step lacks state that '%s' contains: %s", older->path, kinds.text),
                       (path, c->path),
                       (next, "to accept a step without this state, give --allow-missing-state"));
    text_release(&kinds);
    return st;
}

static bool is_stopped(fsdpck_status st)
{
    return st == FSDPCK_CANCELLED || st == FSDPCK_INTERNAL;
}

/* Without warnings: they are for the step that is printed. */
static fsdpck_status check_silently(fsdpck_context *ctx, latest_step *c,
                                    const fsdpck_latest_options *o, fsdpck_level level,
                                    resume_state *state, fsdpck_error *err)
{
    fsdpck_latest_options with = *o;
    const logger log = ctx->log;
    with.level = level;
    ctx->log = (logger){0};
    const fsdpck_status st = latest_step_check(ctx, c, &with, state, err);
    ctx->log = log;
    return st;
}

/* An older step whose files show more, without opening it. */
static bool has_more_files(const latest_step *older, const resume_state *state)
{
    resume_state files;
    bool more = false;
    resume_state_init(&files, older->path);
    if (resume_state_add_files(&files, NULL) == FSDPCK_OK)
        for (unsigned k = RESUME_OPTIMIZER; k < RESUME_KINDS; k++)
            more = more || (resume_state_has(&files, (resume_kind)k) &&
                            !resume_state_has(state, (resume_kind)k));
    resume_state_release(&files);
    return more;
}

static fsdpck_status compare_one(fsdpck_context *ctx, const latest_step *c, latest_step *older,
                                 const resume_state *state, const fsdpck_latest_options *o,
                                 bool *has_optimizer, fsdpck_error *err)
{
    resume_state of_older;
    fsdpck_error why = FSDPCK_ERROR_INIT;
    resume_state_init(&of_older, older->path);
    fsdpck_status st = check_silently(ctx, older, o, FSDPCK_LEVEL_QUICK, &of_older, &why);
    const bool lacks = st == FSDPCK_OK && resume_state_lacks(state, &of_older);
    if (lacks && o->level > FSDPCK_LEVEL_QUICK)
        st = check_silently(ctx, older, o, o->level, NULL, &why);
    *has_optimizer = st == FSDPCK_OK && resume_state_has(&of_older, RESUME_OPTIMIZER);
    if (st == FSDPCK_OK && lacks)
        st = fail_lacks(c, older, state, &of_older, err);
    else if (!is_stopped(st))
        st = FSDPCK_OK;
    else if (err != NULL)
        *err = why;
    resume_state_release(&of_older);
    return st;
}

/* *has_model: it is not a part, but a model of its own. */
static fsdpck_status add_part(fsdpck_context *ctx, latest_step *part,
                              const fsdpck_latest_options *o, resume_state *state, bool *has_model,
                              fsdpck_error *err)
{
    resume_state of_part;
    resume_state_init(&of_part, part->path);
    fsdpck_status st = check_silently(ctx, part, o, FSDPCK_LEVEL_QUICK, &of_part, err);
    *has_model = st == FSDPCK_OK && resume_state_has(&of_part, RESUME_MODEL);
    if (st == FSDPCK_OK && !*has_model)
        st = resume_state_merge(state, &of_part, err);
    resume_state_release(&of_part);
    if (st == FSDPCK_OK || is_stopped(st))
        return st;
    fsdpck_error_init(err);
    return FSDPCK_OK;
}

static bool is_same_number(const latest_step *a, const latest_step *b)
{
    return step_name_compare(&a->name, &b->name) == 0;
}

/* Steps with the same number are beside each other: the first of them. */
static size_t first_of_number(const latest_step *list, size_t at)
{
    while (at > 0 && is_same_number(&list[at - 1], &list[at]))
        at--;
    return at;
}

static fsdpck_status add_parts(fsdpck_context *ctx, latest_step *list, size_t count, size_t at,
                               const fsdpck_latest_options *o, resume_state *state,
                               fsdpck_error *err)
{
    for (size_t i = first_of_number(list, at); i < count && is_same_number(&list[i], &list[at]);
         i++) {
        bool has_model = false;
        if (i == at || !latest_step_may_count(&list[i]))
            continue;
        RETURN_IF(add_part(ctx, &list[i], o, state, &has_model, err));
        if (has_model && i > at && list[at].other_model == NULL && /* before it: incomplete */
            !list[i].is_recorded && list[i].copy_of == NULL)
            list[at].other_model = list[i].path;
    }
    return FSDPCK_OK;
}

/* Opens older steps until one has an optimizer, which is the last kind to be missing where steps
 * without it are usual. After it, only those that contain more files. */
fsdpck_status latest_step_compare(fsdpck_context *ctx, latest_step *list, size_t count, size_t at,
                                  resume_state *state, const fsdpck_latest_options *o,
                                  fsdpck_error *err)
{
    bool has_peer = false;
    if (resume_state_has(state, RESUME_MODEL))
        RETURN_IF(add_parts(ctx, list, count, at, o, state, err));
    for (size_t i = first_of_number(list, at); i < count; i++) {
        bool has_optimizer = false;
        const bool is_other = !is_same_number(&list[i], &list[at]);
        if (i == at || !latest_step_may_count(&list[i]) ||
            (is_other && has_peer && !has_more_files(&list[i], state)))
            continue;
        RETURN_IF(compare_one(ctx, &list[at], &list[i], state, o, &has_optimizer, err));
        has_peer = has_peer || (is_other && has_optimizer);
    }
    return FSDPCK_OK;
}
