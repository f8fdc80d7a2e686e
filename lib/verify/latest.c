/* The newest complete checkpoint of a run. */
#include <errno.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/struct_copy.h"
#include "base/text.h"
#include "io/file.h"
#include "verify/latest_check.h"
#include "verify/trainer_state.h"

/* Size limit of a pointer file: it contains a number or a name. */
#define POINTER_NBYTES_MAX 4096u

typedef struct candidate {
    char *path;
    uint64_t step;
    bool is_too_large; /* the number has more than 64 bits; step is UINT64_MAX */
    bool
        is_run; /* a run's folder: it contains steps, and the number in its name is not one of them */
} candidate;

/* ---- names ---- */

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* "step-1000", "global_step_1000", "checkpoint-1000", "iter_0001000", "epoch=3-step=1000.ckpt",
 * "1000": the number that the name ends in. */
static bool step_at_end(const char *name, uint64_t *step, bool *is_too_large)
{
    size_t end = weights_stem_nbytes(name);
    size_t begin = end;
    while (begin > 0 && is_digit(name[begin - 1]))
        begin--;
    if (name[0] == '.' || begin == end)
        return false;
    *step = 0;
    *is_too_large = false;
    for (size_t i = begin; i < end && !*is_too_large; i++)
        *is_too_large = !checked_mul_add(*step, 10, (uint64_t)(name[i] - '0'), step);
    if (*is_too_large)
        *step = UINT64_MAX;
    return true;
}

/* "step_100", "epoch=3-step=7.ckpt": also the word before the number is that of a step. */
static bool is_step_name(const char *name, uint64_t *step)
{
    static const char *const words[] = {"step",  "steps", "iter",      "iteration",
                                        "epoch", "ckpt",  "checkpoint"};
    bool is_too_large;
    if (!step_at_end(name, step, &is_too_large) || is_too_large)
        return false;
    size_t end = weights_stem_nbytes(name);
    while (end > 0 && (is_digit(name[end - 1]) || strchr("-_=.", name[end - 1]) != NULL))
        end--;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        const size_t nbytes = strlen(words[i]);
        if (end >= nbytes && memcmp(name + end - nbytes, words[i], nbytes) == 0)
            return true;
    }
    return false;
}

/* Newest first; equal steps are ordered by name, so that the result is deterministic. */
static int compare_candidates(const void *a, const void *b)
{
    const candidate *x = a, *y = b;
    if (x->is_too_large != y->is_too_large)
        return x->is_too_large ? -1 : 1;
    ORDER_BY(y->step, x->step);
    return strcmp(x->path, y->path);
}

/* One of a checkpoint's files, by its name. */
static bool is_part_of_checkpoint(const char *name)
{
    bool known;
    return format_file_count(name) > 1 || format_is_rank_file(name, &known);
}

/* So is an unreadable folder: opening it reports the cause. */
static bool may_be_checkpoint(const folder *dir, const char *name)
{
    path_kind kind;
    return path_probe(dir, name, &kind, NULL, NULL) != FSDPCK_OK || kind == PATH_FOLDER ||
           path_is_dangling(dir, name) ||
           (kind == PATH_FILE && name[weights_stem_nbytes(name)] != '\0' &&
            !is_part_of_checkpoint(name));
}

static fsdpck_status list_candidates(const char *root, const folder *dir, candidate **list,
                                     size_t *count, fsdpck_error *err)
{
    char **names = NULL;
    size_t nnames = 0;
    *count = 0;
    RETURN_IF(folder_list(dir, ".", &names, &nnames, err));
    fsdpck_status st = FSDPCK_OK;
    *list = calloc(nnames + 1, sizeof **list);
    if (*list == NULL)
        st = error_set_nomem(err, nnames * sizeof **list);
    for (size_t i = 0; st == FSDPCK_OK && i < nnames; i++) {
        uint64_t step;
        bool is_too_large;
        if (!step_at_end(names[i], &step, &is_too_large) || !may_be_checkpoint(dir, names[i]))
            continue;
        char *path = folder_path_join(root, names[i]);
        if (path == NULL)
            st = error_set_nomem(err, strlen(root));
        else
            (*list)[(*count)++] =
                (candidate){.path = path, .step = step, .is_too_large = is_too_large};
    }
    if (*count > 1)
        qsort(*list, *count, sizeof **list, compare_candidates);
    free(names);
    return st;
}

/* ---- complete or not ---- */

/* Whether the failure is unrelated to the checkpoint: a stale mount, a missing permission, no
 * memory. A missing file is the checkpoint's failure. */
static bool is_no_verdict(fsdpck_status st, const fsdpck_error *why)
{
    if (st == FSDPCK_CANCELLED || st == FSDPCK_INTERNAL)
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
static const char *other_step(const candidate *c, const char *path, uint64_t *step, size_t *nbytes)
{
    const char *at = path + strlen(c->path);
    while (*at != '\0') {
        char name[256];
        at += *at == '/';
        *nbytes = strcspn(at, "/");
        snprintf(name, sizeof name, "%.*s", *nbytes < sizeof name ? (int)*nbytes : 0, at);
        if (is_step_name(name, step) && *step != c->step)
            return at;
        at += *nbytes;
    }
    return NULL;
}

/* 'big8' with step_100 and step_200 is the folder of another run. 'checkpoint-8/global_step8' is a
 * checkpoint, and so is 'epoch_8/step_100' alone. */
static fsdpck_status check_no_run(candidate *c, const search_result *found, fsdpck_error *err)
{
    uint64_t first = 0, own, step;
    size_t count = 0, nbytes;
    const size_t most = is_step_name(text_file_name(c->path), &own) ? 1 : 0;
    for (size_t i = 0; count <= most && i < found->count; i++) {
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

static fsdpck_status fail_no_weights(const candidate *c, const search_result *found,
                                     fsdpck_error *err)
{
    return FAIL_WITH(err, BADINPUT, SAVE_INCOMPLETE,
                     ("folder contains a trainer's state ('%s'), but no weights",
                      text_file_name(found->paths[0])),
                     (path, c->path), (next, "use an older checkpoint"));
}

/* Some may be without tensors, such as a file of arguments. The trainer's state is checked
 * separately. */
static fsdpck_status check_found(fsdpck_context *ctx, const search_result *found,
                                 const fsdpck_latest_options *o, fsdpck_error *err)
{
    fsdpck_error none = FSDPCK_ERROR_INIT;
    bool any = false;
    for (size_t i = 0; i < found->count; i++) {
        const fsdpck_status st = latest_check_one(ctx, found->paths[i], o, err);
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

/* Beside the checkpoints below the candidate. */
static fsdpck_status check_state_beside(fsdpck_context *ctx, const char *path,
                                        const fsdpck_latest_options *o, fsdpck_error *err)
{
    probe_input in;
    RETURN_IF(probe_gather(path, &in, err));
    const fsdpck_status st =
        trainer_state_check_folder(ctx, &in, NULL, o->level < FSDPCK_LEVEL_COVERAGE, err);
    probe_release(&in);
    return st;
}

/* A folder of several checkpoints (actor and critic) is complete when all of them are. */
static fsdpck_status check_all(fsdpck_context *ctx, candidate *c, const fsdpck_latest_options *o,
                               fsdpck_error *err)
{
    const char *path = c->path;
    const fsdpck_status st = latest_check_one(ctx, path, o, err);
    search_result found;
    if (!may_lie_deeper(path, st, err))
        return st;
    RETURN_IF(search_folders(path, &found, NULL));
    if (!found.unread && check_no_run(c, &found, err) != FSDPCK_OK) {
        search_result_release(&found);
        return err->status;
    }
    fsdpck_status all = found.count > 0 && found.more == 0 ? FSDPCK_OK : st;
    if (found.unread && is_no_verdict(found.why.status, &found.why)) {
        *err = found.why;
        all = found.why.status;
    } else if (all == FSDPCK_OK) {
        fsdpck_error_init(err);
    }
    if (all == FSDPCK_OK && trainer_state_is_all(&found))
        all = fail_no_weights(c, &found, err);
    if (all == FSDPCK_OK && st != FSDPCK_OK)
        all = check_found(ctx, &found, o, err);
    if (all == FSDPCK_OK)
        all = check_state_beside(ctx, path, o, err);
    search_result_release(&found);
    return all;
}

/* ---- pointer files ---- */

/* latest_checkpointed_iteration.txt holds "1000", DeepSpeed's latest "global_step1000". */
static void read_pointer(const folder *dir, uint64_t *step, bool *known)
{
    static const char *const names[] = {"latest_checkpointed_iteration.txt", "latest",
                                        "latest_checkpoint.txt", "latest.txt"};
    *known = false;
    for (size_t i = 0; !*known && i < sizeof names / sizeof *names; i++) {
        path_kind kind;
        char *text = NULL;
        size_t nbytes;
        if (path_probe(dir, names[i], &kind, NULL, NULL) != FSDPCK_OK || kind != PATH_FILE ||
            file_read_whole(dir, names[i], POINTER_NBYTES_MAX, &text, &nbytes, NULL) != FSDPCK_OK)
            continue;
        while (nbytes > 0 && strchr(" \r\n\t/", text[nbytes - 1]) != NULL)
            nbytes--;
        char word[POINTER_NBYTES_MAX + 1];
        memcpy(word, text, nbytes);
        word[nbytes] = '\0';
        bool is_too_large;
        *known = step_at_end(word, step, &is_too_large) && !is_too_large;
        free(text);
    }
}

/* Some number that the folder's own file states, while the newest is another. */
static void compare_pointer(const fsdpck_context *ctx, const folder *dir, const candidate *list,
                            size_t count, const candidate *complete)
{
    uint64_t pointed;
    bool known;
    const candidate *newest = list;
    while (newest < list + count && (newest->is_too_large || newest->is_run))
        newest++;
    read_pointer(dir, &pointed, &known);
    if (!known || newest == list + count || pointed == newest->step)
        return;
    if (complete == NULL || complete == newest)
        log_warn(&ctx->log, FSDPCK_FINDING_LATEST_POINTER, "decide which of the two to resume from",
                 "pointer to the latest checkpoint names step %" PRIu64
                 ", but the newest is %" PRIu64,
                 pointed, newest->step);
    else
        log_warn(&ctx->log, FSDPCK_FINDING_LATEST_POINTER, "decide which of them to resume from",
                 "pointer to the latest checkpoint names step %" PRIu64
                 ", but the newest is %" PRIu64 ", and the newest complete one is %" PRIu64,
                 pointed, newest->step, complete->step);
}

/* The command requires the folder of the run, not that of a step. */
static void warn_is_checkpoint(const fsdpck_context *ctx, const char *root)
{
    probe_input in;
    if (probe_gather(root, &in, NULL) != FSDPCK_OK)
        return;
    if (probe_readers(&in, NULL) != NULL)
        log_warn(&ctx->log, FSDPCK_FINDING_LATEST_ITSELF,
                 "give its parent folder, which contains the other steps",
                 "'%s' is itself a checkpoint", root);
    probe_release(&in);
}

/* Skips an unreadable checkpoint if a newer one was found; otherwise the newest is unknown.
 * *complete: the first complete one. */
static fsdpck_status walk(fsdpck_context *ctx, candidate *list, size_t count,
                          const fsdpck_latest_options *o, fsdpck_latest_fn fn, void *arg,
                          uint64_t *found, const candidate **complete, fsdpck_error *err)
{
    const uint64_t max_count = o->max_count > 0 ? o->max_count : 1;
    for (size_t i = 0; *found < max_count && i < count; i++) {
        fsdpck_error why = FSDPCK_ERROR_INIT;
        const fsdpck_status st =
            list[i].is_too_large
                ? FAIL(&why, UNSUPPORTED, NONE,
                       "number of the step has more than 64 bits; its order is unknown")
                : check_all(ctx, &list[i], o, &why);
        const bool is_absent = st != FSDPCK_OK && path_is_dangling(NULL, list[i].path);
        if ((is_absent || is_no_verdict(st, &why)) &&
            (*found == 0 || st == FSDPCK_CANCELLED || st == FSDPCK_INTERNAL)) {
            if (err != NULL)
                *err = why;
            error_path(err, list[i].path);
            error_next(
                err, "make it readable, or move it away: it may be the newest complete checkpoint");
            return is_absent ? FSDPCK_IO : st;
        }
        if (st == FSDPCK_OK && *found == 0)
            *complete = &list[i];
        fn(arg, list[i].path, list[i].step, st == FSDPCK_OK ? NULL : &why);
        *found += st == FSDPCK_OK;
    }
    return FSDPCK_OK;
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
    candidate *list = NULL;
    size_t count = 0;
    const candidate *complete = NULL;
    *found = 0;
    RETURN_IF(take_options(&o, options, err));
    fsdpck_status st = folder_open(&dir, root, err);
    if (st == FSDPCK_OK)
        st = list_candidates(root, &dir, &list, &count, err);
    if (st != FSDPCK_OK)
        error_path(err, root);
    else
        st = walk(ctx, list, count, &o, fn, arg, found, &complete, err);
    if (st == FSDPCK_OK)
        compare_pointer(ctx, &dir, list, count, complete);
    if (st == FSDPCK_OK && *found == 0)
        warn_is_checkpoint(ctx, root);
    for (size_t i = 0; i < count; i++)
        free(list[i].path);
    free(list);
    folder_close(&dir);
    return st;
}
