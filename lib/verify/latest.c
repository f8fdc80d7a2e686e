/* The newest complete checkpoint of a run. */
#include <inttypes.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/struct_copy.h"
#include "base/text.h"
#include "io/file.h"
#include "verify/latest_step.h"

/* Size limit of a pointer file: it contains a number or a name. */
#define POINTER_NBYTES_MAX 4096u

/* ---- candidates ---- */

/* Newest first; equal steps are ordered by name, so that the result is deterministic. */
static int compare_candidates(const void *a, const void *b)
{
    const latest_step *x = a, *y = b;
    if (x->is_too_large != y->is_too_large)
        return x->is_too_large ? -1 : 1;
    ORDER_BY(y->step, x->step);
    return strcmp(x->path, y->path);
}

/* One of a checkpoint's files, by its name. */
static bool is_part_of_checkpoint(const char *name)
{
    bool known;
    return format_file_count(name) > 1 || format_is_rank_file(name, &known) ||
           format_is_safetensors_rank(name);
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

static fsdpck_status list_candidates(const char *root, const folder *dir, latest_step **list,
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
        if (!latest_step_number(names[i], &step, &is_too_large) ||
            !may_be_checkpoint(dir, names[i]))
            continue;
        char *path = folder_path_join(root, names[i]);
        if (path == NULL)
            st = error_set_nomem(err, strlen(root));
        else
            (*list)[(*count)++] =
                (latest_step){.path = path, .step = step, .is_too_large = is_too_large};
    }
    if (*count > 1)
        qsort(*list, *count, sizeof **list, compare_candidates);
    free(names);
    return st;
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
        *known = latest_step_number(word, step, &is_too_large) && !is_too_large;
        free(text);
    }
}

/* Some number that the folder's own file states, while the newest is another. */
static void compare_pointer(const fsdpck_context *ctx, const folder *dir, const latest_step *list,
                            size_t count, const latest_step *complete)
{
    uint64_t pointed;
    bool known;
    const latest_step *newest = list;
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

/* Complete in itself, and compared with older steps. */
static fsdpck_status check_step(fsdpck_context *ctx, latest_step *list, size_t count, size_t at,
                                const fsdpck_latest_options *o, fsdpck_error *err)
{
    resume_state state;
    if (list[at].is_too_large)
        return FAIL(err, UNSUPPORTED, NONE,
                    "number of the step has more than 64 bits; its order is unknown");
    if (o->allow_missing_state)
        return latest_step_check(ctx, &list[at], o, NULL, err);
    resume_state_init(&state, list[at].path);
    fsdpck_status st = latest_step_check(ctx, &list[at], o, &state, err);
    if (st == FSDPCK_OK)
        st = latest_step_compare(ctx, list, count, at, &state, o, err);
    resume_state_release(&state);
    return st;
}

/* Skips an unreadable checkpoint if a newer one was found; otherwise the newest is unknown.
 * *complete: the first complete one. */
static fsdpck_status walk(fsdpck_context *ctx, latest_step *list, size_t count,
                          const fsdpck_latest_options *o, fsdpck_latest_fn fn, void *arg,
                          uint64_t *found, const latest_step **complete, fsdpck_error *err)
{
    const uint64_t max_count = o->max_count > 0 ? o->max_count : 1;
    for (size_t i = 0; *found < max_count && i < count; i++) {
        fsdpck_error why = FSDPCK_ERROR_INIT;
        const fsdpck_status st = check_step(ctx, list, count, i, o, &why);
        const bool is_absent = st != FSDPCK_OK && path_is_dangling(NULL, list[i].path);
        if ((is_absent || latest_step_is_unknown(st, &why)) &&
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
    latest_step *list = NULL;
    size_t count = 0;
    const latest_step *complete = NULL;
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
