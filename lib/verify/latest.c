/* The newest complete checkpoint of a run. */
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/struct_copy.h"
#include "base/text.h"
#include "compare/digest.h"
#include "findings/finding_kinds.h"
#include "io/file.h"
#include "run/manifest_files.h"

/* Size limit of a pointer file: it contains a number or a name. */
#define POINTER_NBYTES_MAX 4096u

typedef struct candidate {
    char *path;
    uint64_t step;
    bool is_too_large; /* the number has more than 64 bits; step is UINT64_MAX */
    bool is_run;       /* a run's folder: it contains steps, and its number is none */
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
    static const char *const words[] = {"step", "steps", "iter", "iteration",
                                        "epoch", "ckpt", "checkpoint"};
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

/* Warnings that good checkpoints also cause are left to the command that opens the chosen one. */
static void log_warnings_only(void *arg, const log_line *line)
{
    const logger *to = arg;
    const finding_kind *kind = finding_get(line->finding);
    const bool is_of_good = line->finding == FSDPCK_FINDING_RANKS_UNKNOWN ||
                            line->finding == FSDPCK_FINDING_FILE_OF_SET;
    if (to->fn != NULL && !is_of_good && (kind == NULL || kind->severity >= FINDING_WARNING))
        to->fn(to->ctx, line);
}

/* The files in the folder's manifest exist with their sizes. */
static fsdpck_status check_manifest(const fsdpck_checkpoint *c, fsdpck_error *err)
{
    manifest m;
    manifest_init(&m, NULL);
    const fsdpck_status st = manifest_files_check(c, &m, NULL, NULL, err);
    manifest_release(&m);
    return st;
}

typedef struct rest_found {
    pthread_mutex_t lock;
    const logger *log;
    fsdpck_error first; /* status OK: nothing is wrong */
} rest_found;

static void take_rest(void *ctx, format_severity severity, const fsdpck_error *what)
{
    rest_found *f = ctx;
    pthread_mutex_lock(&f->lock);
    const bool is_wrong = severity == FORMAT_ERROR && what->status == FSDPCK_BADINPUT;
    if (is_wrong && f->first.status == FSDPCK_OK)
        f->first = *what;
    else if (!is_wrong && severity >= FORMAT_WARNING) /* a limit is no defect of the checkpoint */
        log_warn(f->log, what->finding, what->next, "'%s': %s", what->path, what->message);
    pthread_mutex_unlock(&f->lock);
}

/* Records that are not read for tensors: objects, and records beside them. They are not
 * checksummed. */
static fsdpck_status check_records(const fsdpck_context *ctx, const fsdpck_checkpoint *c,
                                   const fsdpck_latest_options *o, fsdpck_error *err)
{
    rest_found found = {.log = &ctx->log};
    record_check_result rest = {0};
    const record_check_request r = {
        .nthreads = thread_count(o->open == NULL ? 0 : o->open->threads),
        .cancel = &ctx->cancel,
        .found = take_rest,
        .found_ctx = &found,
    };
    fsdpck_error_init(&found.first);
    if (c->format->check_records == NULL)
        return FSDPCK_OK;
    pthread_mutex_init(&found.lock, NULL);
    const fsdpck_status st = c->format->check_records(c->self, &r, &rest, err);
    pthread_mutex_destroy(&found.lock);
    RETURN_IF(st);
    if (found.first.status == FSDPCK_OK)
        return FSDPCK_OK;
    if (err != NULL)
        *err = found.first;
    return found.first.status;
}

/* As in verify: an option settles it, the files are no worse. */
static bool is_doubt(const fsdpck_error *why)
{
    const finding_kind *kind = finding_get(why->finding);
    return kind != NULL && (kind->class == FINDING_DOUBT || kind->class == FINDING_MODEL ||
                            kind->class == FINDING_REQUEST);
}

/* The rule of verify at this level: copies are not compared. Part by part if one has a doubt. */
static fsdpck_status check_tensors(fsdpck_context *ctx, fsdpck_checkpoint *c, fsdpck_error *err)
{
    static const fsdpck_part parts[] = {FSDPCK_PART_MODEL, FSDPCK_PART_OPTIMIZER,
                                        FSDPCK_PART_OTHER};
    fsdpck_error why = FSDPCK_ERROR_INIT;
    fsdpck_status st = digest_check_headers(ctx, c, FSDPCK_PART_ALL, &why);
    bool bad = st != FSDPCK_OK && !is_doubt(&why);
    for (size_t i = 0; st != FSDPCK_OK && !bad && i < sizeof parts / sizeof *parts; i++) {
        const fsdpck_status of_part = digest_check_headers(ctx, c, parts[i], &why);
        bad = of_part != FSDPCK_OK && of_part != FSDPCK_USAGE && !is_doubt(&why);
    }
    if (bad && err != NULL)
        *err = why;
    return bad ? why.status : FSDPCK_OK;
}

/* Quick: metadata is valid, all files exist and are long enough; metadata of separate ranks covers
 * each tensor. Coverage: also that chunks cover each tensor, blob headers agree, and objects can be
 * read. */
static fsdpck_status check_one(fsdpck_context *ctx, const char *path,
                               const fsdpck_latest_options *o, fsdpck_error *err)
{
    fsdpck_checkpoint *c = NULL;
    const logger log = ctx->log;
    ctx->log = (logger){log_warnings_only, (void *)&log};
    fsdpck_status st = fsdpck_open(ctx, path, o->open, &c, err);
    if (st == FSDPCK_OK)
        st = check_manifest(c, err);
    if (st == FSDPCK_OK && o->level >= FSDPCK_LEVEL_COVERAGE)
        st = check_tensors(ctx, c, err);
    else if (st == FSDPCK_OK)
        st = digest_check_boxes(c, err);
    if (st == FSDPCK_OK && o->level >= FSDPCK_LEVEL_COVERAGE)
        st = check_records(ctx, c, o, err);
    fsdpck_close(c);
    ctx->log = log;
    return st;
}

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
        return FAIL_WITH(err, BADINPUT, NO_CHECKPOINT,
                         ("folder of a run, not a checkpoint: it contains '%.*s'", (int)nbytes, name),
                         (path, c->path), (next, "give this folder to find its newest checkpoint"));
    }
    return FSDPCK_OK;
}

/* A folder of several checkpoints (actor and critic) is complete when all of them are. */
static fsdpck_status check_all(fsdpck_context *ctx, candidate *c, const fsdpck_latest_options *o,
                               fsdpck_error *err)
{
    const char *path = c->path;
    const fsdpck_status st = check_one(ctx, path, o, err);
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
    for (size_t i = 0; all == FSDPCK_OK && st != FSDPCK_OK && i < found.count; i++)
        all = check_one(ctx, found.paths[i], o, err);
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
