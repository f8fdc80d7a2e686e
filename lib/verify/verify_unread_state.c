/* Files of a trainer's state beside the weights, such as 'optimizer.pt', and further models of a run: no conversion
 * reads them, a resume does. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/shell_word.h"
#include "base/text.h"
#include "findings/finding_kinds.h"
#include "open/pointer_file.h"
#include "open/state_files.h"
#include "verify/latest_required.h"
#include "verify/trainer_state.h"
#include "verify/verify_internal.h"

static void report_damaged(fsdpck_verify *v, const char *path, bool of_model,
                           const fsdpck_error *why)
{
    fsdpck_error what;
    FAIL_WITH(&what, BADINPUT, SIDE_UNREAD,
              ("%s beside the weights cannot be read",
               of_model ? "file of the model" : "file of the trainer's state"),
              (path, path),
              (found, "%s%s%s%s", why->message, why->finding == FSDPCK_FINDING_NONE ? "" : " [",
               why->finding == FSDPCK_FINDING_NONE ? "" : fsdpck_finding_name(why->finding),
               why->finding == FSDPCK_FINDING_NONE ? "" : "]"),
              (next, "copy the file again: %s",
               of_model ? "a loader of the model needs it"
                        : "a run that resumes from this folder needs it"));
    findings_report_as(&v->found, FINDING_ERROR, &what);
}

/* Properties that only a conversion or a model description concerns are no damage of such a file. */
static bool is_damage(const finding *f)
{
    const finding_kind *kind = finding_get(f->what.finding);
    return f->severity == FINDING_ERROR && f->what.status != FSDPCK_UNSUPPORTED &&
           f->what.finding != FSDPCK_FINDING_NO_CHECKPOINT && /* of pickle.dump */
           (kind == NULL || (kind->class != FINDING_DOUBT && kind->class != FINDING_MODEL &&
                             kind->class != FINDING_REQUEST && kind->class != FINDING_SUPPORT));
}

/* Returns the number of errors. */
static uint64_t copy_errors(fsdpck_verify *v, const fsdpck_verify *of_file, const char *path)
{
    uint64_t count = 0;
    for (size_t i = 0; i < of_file->found.kept; i++) {
        fsdpck_error what = of_file->found.list[i].what;
        if (!is_damage(&of_file->found.list[i]))
            continue;
        if (what.path[0] == '\0')
            error_path(&what, path);
        findings_report_as(&v->found, FINDING_ERROR, &what);
        count++;
    }
    return count;
}

static void add_totals(fsdpck_verify *v, const fsdpck_verify *of_file)
{
    const check_result *from = &of_file->result;
    v->result.records += from->records;
    v->result.bytes_total += from->bytes_total;
    v->result.bytes_read += from->bytes_read;
    v->result.bytes_summed += from->bytes_summed;
    v->result.unsummed_tensors += from->unsummed_tensors;
    v->result.unverified_nbytes += from->unverified_nbytes;
    v->result.unread_tensors += from->unread_tensors;
    v->result.unread_nbytes += from->unread_nbytes;
    v->result.skipped_records += from->skipped_records;
    v->result.stopped = v->result.stopped || from->stopped;
}

static double seconds_left(const fsdpck_verify *v)
{
    struct timespec now;
    if (v->deadline_ns == 0)
        return 0;
    clock_gettime(CLOCK_MONOTONIC, &now);
    const uint64_t ns = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
    return ns < v->deadline_ns ? (double)(v->deadline_ns - ns) / 1e9 : 1e-9;
}

static void note_unchecked(fsdpck_verify *v, const char *entry)
{
    if (v->state_unchecked++ == 0)
        escape_text(v->state_first, sizeof v->state_first, entry, strlen(entry));
}

typedef struct state_walk {
    fsdpck_verify *v;
    fsdpck_context *ctx;
    verify_file_fn verify_file;
} state_walk;

/* As a checkpoint of its own, at the same level. */
static fsdpck_status check_content(const state_walk *w, const char *path, const char *entry,
                                   fsdpck_error *err)
{
    fsdpck_verify *v = w->v;
    const fsdpck_verify_options o = {
        .struct_nbytes = sizeof o,
        .level = (int)v->level,
        .threads = v->options.threads,
        .require_checksums = v->options.require_checksums,
        .set = v->options.set,
        .sample_begin = v->options.sample_begin,
        .sample_end = v->options.sample_end,
        .max_seconds = seconds_left(v),
        .memory_nbytes = v->options.memory_nbytes,
    };
    fsdpck_context *ctx = w->ctx;
    const logger log = ctx->log;
    fsdpck_verify *of_file = NULL;
    ctx->log = (logger){0};
    const fsdpck_status st = w->verify_file(ctx, path, &o, &of_file, err);
    ctx->log = log;
    if (st != FSDPCK_OK)
        return st;
    if (copy_errors(v, of_file, path) == 0 && of_file->src == NULL)
        note_unchecked(v, entry);
    else
        v->state_checked++;
    add_totals(v, of_file);
    fsdpck_verify_free(of_file);
    return FSDPCK_OK;
}

static fsdpck_status check_path_beside(const state_walk *w, const probe_input *in, const char *path,
                                       const char *entry, fsdpck_error *err)
{
    fsdpck_verify *v = w->v;
    fsdpck_error why = FSDPCK_ERROR_INIT;
    fsdpck_status st = trainer_state_check(w->ctx, in, entry, false, &why);
    const bool of_model = trainer_state_is_of_model(entry);
    if (st == FSDPCK_BADINPUT)
        report_damaged(v, path, of_model, &why);
    if (st == FSDPCK_BADINPUT || (st == FSDPCK_OK && (trainer_state_is_json(entry) || of_model))) {
        v->state_checked += !of_model;
        return FSDPCK_OK;
    }
    if (st == FSDPCK_OK)
        st = check_content(w, path, entry, &why);
    if (st == FSDPCK_CANCELLED && err != NULL)
        *err = why;
    if (st == FSDPCK_CANCELLED)
        return st;
    if (st != FSDPCK_OK)
        note_unchecked(v, entry);
    return FSDPCK_OK;
}

static fsdpck_status check_file_beside(const state_walk *w, const probe_input *in,
                                       const char *entry, fsdpck_error *err)
{
    path_kind kind;
    if (trainer_state_broken(in, entry) == NULL &&
        path_probe(&in->dir, entry, &kind, NULL, NULL) == FSDPCK_OK && kind != PATH_FILE)
        return FSDPCK_OK;
    /* verify_like reports it. */
    if (w->v->like != NULL && strcmp(entry, "config.json") == 0)
        return FSDPCK_OK;
    char *path = folder_path_join(in->path, entry);
    if (path == NULL)
        return error_set_nomem(err, strlen(entry));
    const fsdpck_status st = check_path_beside(w, in, path, entry, err);
    free(path);
    return st;
}

/* `read`: the files of the checkpoint itself, NULL if it is below this folder. */
static fsdpck_status check_folder(const state_walk *w, const probe_input *in, const catalogue *read,
                                  fsdpck_error *err)
{
    strtab names;
    strtab_init(&names, NULL);
    fsdpck_status st = trainer_state_names(in, read, &names, err);
    for (size_t i = 0; st == FSDPCK_OK && i < in->entry_count; i++) {
        uint32_t id;
        const bool is_read = read != NULL && catalogue_has_file(read, in->entries[i]);
        if (!is_read && read != NULL && trainer_state_is_saved(w->ctx, in, in->entries[i]))
            st = strtab_intern(&names, in->entries[i], strlen(in->entries[i]), &id, err);
    }
    for (uint32_t i = 0; st == FSDPCK_OK && i < strtab_count(&names); i++)
        st = check_file_beside(w, in, strtab_text(&names, i), err);
    if (st == FSDPCK_OK)
        st = trainer_state_warn_exchanged(in, read, &names, &w->ctx->log, err);
    strtab_release(&names);
    return st;
}

static void report_nested(fsdpck_verify *v, const nested_folder *f)
{
    fsdpck_error what;
    char word[sizeof what.next - 40];
    if (shell_word(word, sizeof word, f->path)[0] == '\0')
        memcpy(word, "FOLDER", sizeof "FOLDER");
    FAIL_WITH(&what, BADINPUT, STATE_BESIDE,
              (f->has_reader ? "folder is a checkpoint of its own: not checked"
                             : "folder is named as a part of the checkpoint, but contains no "
                               "checkpoint"),
              (path, f->path), (next, "check it with: fsdpck verify %s", word));
    if (!f->has_reader)
        error_next(&what, "copy the folder again, or use an older checkpoint");
    findings_report_as(&v->found, f->has_reader ? FINDING_NOTE : FINDING_WARNING, &what);
    const char *name = text_file_name(f->path);
    if (v->nested_unchecked++ == 0)
        escape_text(v->nested_first, sizeof v->nested_first, name, strlen(name));
}

/* As for the folder itself: a loader of PEFT stops at an adapter without its config. */
static void report_lost_config(fsdpck_verify *v, const char *path)
{
    probe_input in;
    fsdpck_error what = FSDPCK_ERROR_INIT;
    if (probe_gather(path, &in, NULL) != FSDPCK_OK)
        return; /* nested_folders_warn_unread */
    if (latest_required_check_adapter(&in, &what) != FSDPCK_OK)
        findings_report_as(&v->found, FINDING_WARNING, &what);
    probe_release(&in);
}

/* The files of a folder that is_state are checked. One that the trainer itself keeps apart from the weights is checked
 * as they are. */
static fsdpck_status note_nested(const state_walk *w, fsdpck_error *err)
{
    fsdpck_verify *v = w->v;
    nested_folders nested;
    nested_folders_init(&nested);
    fsdpck_status st = nested_folders_add(&nested, v->src, err);
    for (size_t i = 0; st == FSDPCK_OK && i < nested.list.count; i++) {
        const nested_folder *f = VEC_AT(&nested.list, const nested_folder, i);
        if (f->is_state || f->of_consolidation)
            continue;
        if (f->of_trainer && f->has_reader)
            st = check_content(w, f->path, text_file_name(f->path), err);
        else
            report_nested(v, f);
        report_lost_config(v, f->path);
    }
    nested_folders_warn_unread(&nested, &v->src->ctx->log);
    nested_folders_release(&nested);
    return st;
}

/* The weights can be read without it, but the training does not continue. */
static void report_lacking(fsdpck_verify *v)
{
    fsdpck_error what = FSDPCK_ERROR_INIT;
    if (latest_required_check_beside(v->src, &what) != FSDPCK_OK)
        findings_report_as(&v->found, FINDING_WARNING, &what);
    if (pointer_file_check(&v->src->probe, &what) != FSDPCK_OK)
        findings_report_as(&v->found, FINDING_WARNING, &what);
}

fsdpck_status verify_unread_state(fsdpck_verify *v, fsdpck_context *ctx, verify_file_fn verify_file,
                                  fsdpck_error *err)
{
    const state_walk w = {v, ctx, verify_file};
    const probe_input *in = &v->src->probe;
    const catalogue *read = v->src->adapter == NULL ? &v->src->cat : &v->src->read;
    probe_input above;
    if (ctx->group != NULL || v->src->remote_files != NULL)
        return FSDPCK_OK;
    report_lacking(v);
    if (in->is_folder)
        RETURN_IF(check_folder(&w, in, read, err));
    RETURN_IF(note_nested(&w, err));
    if (v->src->entered_from == NULL)
        return FSDPCK_OK;
    RETURN_IF(probe_gather(v->src->entered_from, &above, err));
    const fsdpck_status st = check_folder(&w, &above, NULL, err);
    probe_release(&above);
    return st;
}
