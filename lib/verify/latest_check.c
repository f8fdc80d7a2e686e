#include "verify/latest_check.h"

#include <stdlib.h>
#include <string.h>

#include "compare/digest.h"
#include "findings/finding_kinds.h"
#include "open/adapter_check.h"
#include "open/pointer_file.h"
#include "open/rank_models.h"
#include "open/step_evidence.h"
#include "open/weights_beside.h"
#include "run/manifest_files.h"
#include "verify/latest_required.h"
#include "verify/state_steps.h"
#include "verify/trainer_state.h"
#include "verify/verify_internal.h"

typedef struct warning_filter {
    logger to;
    bool is_file;
    bool has_no_ranks; /* in a folder of a trainer's state, or of shards that were consolidated */
    bool takes_cut;    /* of latest_check_one */
    bool takes_beside; /* a second model in the rank files: either may be that of the step */
} warning_filter;

/* Notes are left to the command that opens the chosen one. A file of a set is checked together with the others. A
 * trainer's state does not tell the number of ranks, the weights do; beside consolidated ones, it is not needed. Others
 * are checked after the open. */
static void log_warnings_only(void *arg, const log_line *line)
{
    warning_filter *f = arg;
    const finding_kind *kind = finding_get(line->finding);
    const bool is_of_set = f->is_file && line->finding == FSDPCK_FINDING_FILE_OF_SET;
    const bool is_of_weights = f->has_no_ranks && line->finding == FSDPCK_FINDING_RANKS_UNKNOWN;
    const bool is_checked = line->finding == FSDPCK_FINDING_LATEST_TARGET ||
                            line->finding == FSDPCK_FINDING_LATEST_LOST ||
                            (line->finding == FSDPCK_FINDING_WEIGHTS_CUT && !f->takes_cut);
    const bool is_second = line->finding == FSDPCK_FINDING_WEIGHTS_BESIDE && f->takes_beside;
    const bool is_mixed = line->finding == FSDPCK_FINDING_NUM_STEP;
    if (f->to.fn != NULL && !is_of_set && !is_of_weights && !is_checked &&
        (kind == NULL || kind->severity >= FINDING_WARNING || is_second || is_mixed))
        f->to.fn(f->to.ctx, line);
}

/* Written last: one that is empty, or was cut, is of a copy that did not end. */
static fsdpck_status check_manifest_text(const fsdpck_checkpoint *c, fsdpck_error *err)
{
    char *text = NULL;
    size_t nbytes;
    fsdpck_error why = FSDPCK_ERROR_INIT;
    manifest m;
    if (!c->probe.is_folder || c->remote_files != NULL ||
        !probe_has_entry(&c->probe, MANIFEST_NAME) ||
        file_read_whole(&c->probe.dir, MANIFEST_NAME, MANIFEST_NBYTES_MAX, &text, &nbytes, NULL) !=
            FSDPCK_OK)
        return FSDPCK_OK;
    manifest_init(&m, NULL);
    const fsdpck_status st = manifest_read(&m, text, nbytes, &why);
    manifest_release(&m);
    free(text);
    if (st != FSDPCK_BADINPUT)
        return FSDPCK_OK;
    if (err != NULL)
        *err = why;
    error_path_in(err, c->probe.path, MANIFEST_NAME);
    return st;
}

/* The files in the folder's manifest exist with their sizes. */
static fsdpck_status check_manifest(const fsdpck_checkpoint *c, fsdpck_error *err)
{
    manifest m;
    RETURN_IF(check_manifest_text(c, err));
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

static fsdpck_status check_has_tensors(fsdpck_checkpoint *c, fsdpck_error *err)
{
    if (catalogue_tensor_count(&c->cat) == 0)
        RETURN_IF(checkpoint_load_inner(c, err));
    if (catalogue_tensor_count(&c->cat) > 0)
        return FSDPCK_OK;
    return FAIL_WITH(err, BADINPUT, KEY_NONE, ("no tensors in this checkpoint"), (path, c->path),
                     (next, "list the contents with: fsdpck inspect SRC"));
}

/* Levels at which verify checks the step, and warns too. */
static bool is_as_verify(const fsdpck_latest_options *o)
{
    return o->level != FSDPCK_LEVEL_QUICK && o->level != FSDPCK_LEVEL_COVERAGE;
}

/* Whether the name was warned of. */
static bool warn_beside(const fsdpck_context *ctx, fsdpck_checkpoint *c,
                        const fsdpck_latest_options *o)
{
    fsdpck_error what = FSDPCK_ERROR_INIT;
    const bool is_other = step_evidence_warn(c);
    step_evidence_warn_mixed(c, o->level >= FSDPCK_LEVEL_COVERAGE);
    if (state_pair_is_lost(c, &what))
        log_warn(&ctx->log, what.finding, "", "'%s': %s (expected %s)", what.path, what.message,
                 what.expected);
    for (size_t i = 0; state_kind_differs(c, &i, &what) != NULL;)
        log_warn(&ctx->log, what.finding, what.next, "'%s': %s (found %s)", what.path, what.message,
                 what.found);
    if (!is_as_verify(o))
        checkpoint_warn_lost(c, checkpoint_open);
    return is_other;
}

/* A file of another content is not the part of the state that its name promises. */
static fsdpck_status add_checkpoint(resume_state *state, fsdpck_checkpoint *c, fsdpck_error *err)
{
    fsdpck_error what = FSDPCK_ERROR_INIT;
    const char *path;
    for (size_t i = 0; (path = state_kind_differs(c, &i, &what)) != NULL;)
        RETURN_IF(resume_state_omit(state, path, err));
    return resume_state_add_checkpoint(state, c, err);
}

/* nested: receives the folders below; NULL: not needed. */
static fsdpck_status check_opened(fsdpck_context *ctx, const char *path, warning_filter *filter,
                                  const fsdpck_latest_options *o, resume_state *state,
                                  nested_folders *nested, fsdpck_error *err)
{
    fsdpck_checkpoint *c = NULL;
    fsdpck_step step = FSDPCK_INIT(fsdpck_step);
    fsdpck_status st = checkpoint_open_converted(ctx, path, o->open, &c, err);
    if (st == FSDPCK_OK)
        st = checkpoint_check_lost(c, false, err);
    if (st == FSDPCK_OK)
        st = checkpoint_check_sizes(c, err);
    if (st == FSDPCK_OK)
        st = check_manifest(c, err);
    if (st == FSDPCK_OK && o->level >= FSDPCK_LEVEL_COVERAGE)
        st = check_tensors(ctx, c, err);
    else if (st == FSDPCK_OK)
        st = digest_check_boxes(c, err);
    if (st == FSDPCK_OK && o->level >= FSDPCK_LEVEL_COVERAGE)
        st = check_records(ctx, c, o, err);
    if (st == FSDPCK_OK && o->level >= FSDPCK_LEVEL_COVERAGE)
        st = adapter_check_errors(c, err);
    if (st == FSDPCK_OK && c->probe.is_folder)
        st = trainer_state_check_folder(ctx, &c->probe, c->adapter == NULL ? &c->cat : &c->read,
                                        o->level < FSDPCK_LEVEL_COVERAGE, err);
    if (st == FSDPCK_OK && !filter->takes_cut)
        st = weights_beside_check(c, c->adapter == NULL ? &c->cat : &c->read, checkpoint_open, NULL,
                                  err);
    if (st == FSDPCK_OK)
        st = latest_required_check(c, o->allow_missing_state != 0, err);
    if (st == FSDPCK_OK)
        st = pointer_file_check(&c->probe, err);
    if (st == FSDPCK_OK)
        st = check_has_tensors(c, err);
    if (c != NULL && state != NULL &&
        (st == FSDPCK_OK || err->finding == FSDPCK_FINDING_KEY_NONE)) {
        const fsdpck_status added = add_checkpoint(state, c, st == FSDPCK_OK ? err : NULL);
        if (state->step < 0 && fsdpck_get_step(c, 0, &step))
            state->step = step.step;
        st = st == FSDPCK_OK ? added : st;
    }
    if (st == FSDPCK_OK) {
        if (warn_beside(ctx, c, o) && state != NULL)
            state->name_is_other = true;
        filter->takes_beside = true;
        if (c->adapter == NULL)
            rank_models_warn(c);
        filter->takes_beside = false;
    }
    if (st == FSDPCK_OK && nested != NULL)
        st = nested_folders_add(nested, c, err);
    fsdpck_close(c);
    return st;
}

/* Warnings of verify about data. Those of files beside it have been printed. */
static void warn_as_verify(const fsdpck_context *ctx, const fsdpck_error *what)
{
    const bool has_tensor = what->tensor[0] != '\0';
    if (what->finding == FSDPCK_FINDING_RANK_DIFFER && what->path[0] != '\0')
        log_warn(&ctx->log, what->finding, what->next, "'%s': %s%s%s%s", what->path, what->message,
                 has_tensor ? ": '" : "", what->tensor, has_tensor ? "'" : "");
}

/* The other levels, as verify checks them: the first error that no option settles. */
static fsdpck_status check_as_verify(fsdpck_context *ctx, const char *path,
                                     const fsdpck_latest_options *o, fsdpck_error *err)
{
    fsdpck_verify *v = NULL;
    fsdpck_status st = FSDPCK_OK;
    fsdpck_verify_info info = FSDPCK_INIT(fsdpck_verify_info);
    fsdpck_finding f = FSDPCK_INIT(fsdpck_finding);
    fsdpck_verify_options with = FSDPCK_INIT(fsdpck_verify_options);
    if (!is_as_verify(o))
        return FSDPCK_OK;
    with.level = (int)o->level;
    with.open = o->open;
    with.threads = o->open == NULL ? 0 : o->open->threads;
    RETURN_IF(fsdpck_verify_new(ctx, path, &with, &v, err));
    fsdpck_verify_get_info(v, &info);
    for (uint64_t i = 0; st == FSDPCK_OK && i < info.errors + info.warnings && i < info.listed;
         i++) {
        fsdpck_verify_get_finding(v, i, &f);
        if (i >= info.errors)
            warn_as_verify(ctx, f.what);
        if (i >= info.errors || is_doubt(f.what) || f.what->status != FSDPCK_BADINPUT)
            continue;
        st = f.what->status;
        if (err != NULL)
            *err = *f.what;
    }
    fsdpck_verify_free(v);
    return st;
}

/* The weights that are read are whole, as beside a damaged file: *why becomes WEIGHTS-CUT. Whether that is a warning. */
static bool warn_cut(const fsdpck_context *ctx, const warning_filter *filter, fsdpck_error *why)
{
    why->finding = FSDPCK_FINDING_WEIGHTS_CUT;
    if (filter->takes_cut)
        log_warn(&ctx->log, why->finding,
                 "copy the folder again from where it was saved, or remove it", "'%s': %s",
                 why->path, why->message);
    return filter->takes_cut;
}

/* A folder that is not read, or without tensors, is no defect of the step. */
static fsdpck_status check_nested(fsdpck_context *ctx, const nested_folder *f,
                                  warning_filter *filter, const fsdpck_latest_options *o,
                                  resume_state *state, fsdpck_error *err)
{
    fsdpck_error why = FSDPCK_ERROR_INIT;
    if (!f->has_reader)
        return FAIL_WITH(err, BADINPUT, SAVE_INCOMPLETE,
                         ("folder of one part contains no checkpoint: the save did not complete, "
                          "or its files were lost"),
                         (path, f->path), (next, "use an older checkpoint"));
    fsdpck_status st = check_opened(ctx, f->path, filter, o, state, NULL, &why);
    if (st == FSDPCK_OK)
        st = check_as_verify(ctx, f->path, o, &why);
    if (st == FSDPCK_OK || st == FSDPCK_UNSUPPORTED || st == FSDPCK_USAGE ||
        why.finding == FSDPCK_FINDING_KEY_NONE || is_doubt(&why))
        return FSDPCK_OK;
    error_path(&why, f->path);
    if (f->of_consolidation && st == FSDPCK_BADINPUT && warn_cut(ctx, filter, &why))
        return FSDPCK_OK;
    if (err != NULL)
        *err = why;
    return st;
}

fsdpck_status latest_check_one(fsdpck_context *ctx, const char *path, bool takes_cut,
                               const fsdpck_latest_options *o, resume_state *state,
                               fsdpck_error *err)
{
    nested_folders nested;
    const logger log = ctx->log;
    path_kind kind;
    warning_filter filter = {.to = log, .takes_cut = takes_cut};
    filter.is_file = path_probe(NULL, path, &kind, NULL, NULL) == FSDPCK_OK && kind == PATH_FILE;
    ctx->log = (logger){log_warnings_only, &filter};
    nested_folders_init(&nested);
    fsdpck_status st = check_opened(ctx, path, &filter, o, state, &nested, err);
    nested_folders_warn_unread(&nested, &ctx->log);
    if (st == FSDPCK_OK)
        st = check_as_verify(ctx, path, o, err);
    for (size_t i = 0; st == FSDPCK_OK && i < nested.list.count; i++) {
        const nested_folder *f = VEC_AT(&nested.list, const nested_folder, i);
        filter.has_no_ranks = f->is_state || f->of_consolidation;
        st = check_nested(ctx, f, &filter, o, state, err);
    }
    nested_folders_release(&nested);
    ctx->log = log;
    return st;
}
