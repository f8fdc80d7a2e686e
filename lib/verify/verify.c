/* Opens and checks a checkpoint. Its defects are findings, not failures. */
#include <inttypes.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/struct_copy.h"
#include "group/remote_folder.h"
#include "open/weights_beside.h"
#include "run/run.h"
#include "verify/verify_internal.h"
#include "verify/verify_like.h"
#include "verify/verify_peers.h"

/* Warnings of the readers: a warning, or a note if good checkpoints cause it too. */
void verify_add_warnings(fsdpck_verify *v, fsdpck_context *ctx)
{
    fsdpck_warning w = FSDPCK_INIT(fsdpck_warning);
    for (; fsdpck_context_warning(ctx, v->first_warning, &w); v->first_warning++) {
        const finding_kind *kind = finding_get(w.finding);
        fsdpck_error what;
        error_set(&what, FSDPCK_BADINPUT, w.finding, "%s", w.message);
        if (w.next[0] != '\0')
            error_next(&what, "%s", w.next);
        findings_report_as(&v->found,
                           kind != NULL && kind->severity < FINDING_WARNING ? kind->severity
                                                                            : FINDING_WARNING,
                           &what);
    }
}

/* Names that savers and downloaders give to unfinished files. */
static bool is_unfinished(const char *name)
{
    static const char *const ends[] = {".tmp", ".partial", ".incomplete"};
    const size_t n = strlen(name);
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (n > strlen(ends[i]) && strcmp(name + n - strlen(ends[i]), ends[i]) == 0)
            return true;
    return false;
}

static void note_unfinished(fsdpck_verify *v)
{
    const probe_input *in = &v->src->probe;
    const char *first = NULL;
    uint64_t count = 0;

    for (size_t i = 0; i < in->entry_count; i++)
        if (is_unfinished(in->entries[i]) && count++ == 0)
            first = in->entries[i];
    if (count == 0)
        return;
    fsdpck_error what;
    FAIL_WITH(&what, BADINPUT, SAVE_LEFTOVER,
              ("unfinished output was left in the folder of the checkpoint"),
              (path_in, in->path, first),
              (found, "%" PRIu64 " unfinished file%s or folder%s", count, text_plural(count),
               text_plural(count)),
              (next, "remove unfinished files and folders: they are not part of the checkpoint"));
    findings_report(&v->found, &what);
}

static void note_without_checksum(fsdpck_verify *v)
{
    fsdpck_error what;
    if (v->level < CHECK_CHECKSUM || v->result.unverified_nbytes == 0)
        return;
    FAIL_WITH(&what, BADINPUT, CHECKSUM_NONE, ("some tensors have no recorded checksum"),
              (found, "%" PRIu64 " tensor%s, %" PRIu64 " bytes", v->result.unsummed_tensors,
               v->result.unsummed_tensors == 1 ? "" : "s", v->result.unverified_nbytes),
              (next, v->manifest_result.there && verify_is_partial(v)
                         ? "run without --sample and --max-duration: the manifest has checksums of "
                           "whole files only"
                         : "record digests now with fsdpck digest SRC >FILE, and compare later "
                           "with fsdpck digest -c FILE SRC"));
    findings_report(&v->found, &what);
}

/* Severities from the options; --set overrides --require-checksums and --like. */
static fsdpck_status set_rules(fsdpck_verify *v, fsdpck_error *err)
{
    /* A loader would take these files for weights of the model. */
    static const char *const of_weights[] = {"IDX-EXTRA=error", "IDX-SHADOW=error"};
    finding_rules *rules = &v->found.rules;
    if (v->options.require_checksums)
        RETURN_IF(finding_rules_set(rules, "CHECKSUM-NONE=error", err));
    for (size_t i = 0; v->options.like != NULL && i < sizeof of_weights / sizeof *of_weights; i++)
        RETURN_IF(finding_rules_set(rules, of_weights[i], err));
    for (size_t i = 0; v->options.set != NULL && v->options.set[i] != NULL; i++)
        RETURN_IF(finding_rules_set(rules, v->options.set[i], err));
    return FSDPCK_OK;
}

static expect_request expect_request_of(fsdpck_verify *v, fsdpck_context *ctx, const char *path)
{
    return (expect_request){
        .ctx = ctx,
        .path = path,
        .src = v->src,
        .manifest_path = v->options.manifest,
        .level = v->level,
        .nthreads = thread_count(v->options.threads),
        .no_follow = v->options.open != NULL && v->options.open->no_follow,
        .sha256 = v->options.sha256 != 0,
        .found = &v->found,
    };
}

/* Before the bytes are read: selects the files to checksum during the reads. */
static fsdpck_status begin_expected(fsdpck_verify *v, fsdpck_context *ctx, const char *path,
                                    fsdpck_error *err)
{
    const expect_request r = expect_request_of(v, ctx, path);
    RETURN_IF(manifest_check_new(&r, &v->manifest, err));
    if (v->manifest == NULL || v->src == NULL || v->level < CHECK_CHECKSUM || verify_is_sample(v))
        return FSDPCK_OK;
    v->files = calloc(catalogue_file_count(&v->src->cat) + 1, sizeof *v->files);
    if (v->files == NULL)
        return error_set_nomem(err, catalogue_file_count(&v->src->cat) * sizeof *v->files);
    manifest_check_select_files(v->manifest, v->files);
    return FSDPCK_OK;
}

/* Compares the checkpoint with its manifest and with --expect. */
static fsdpck_status check_expected(fsdpck_verify *v, fsdpck_context *ctx, const char *path,
                                    fsdpck_error *err)
{
    const expect_request r = expect_request_of(v, ctx, path);
    RETURN_IF(
        manifest_check_run(v->manifest, v->files, verify_is_partial(v), &v->manifest_result, err));
    if (v->manifest_result.covers) {
        v->result.bytes_summed += v->result.unverified_nbytes;
        v->result.unverified_nbytes = 0;
        v->result.unsummed_tensors = 0;
    }
    return v->options.expect == NULL ? FSDPCK_OK : expect_check(&r, v->options.expect, err);
}

static void add_finding(void *ctx, format_severity severity, const fsdpck_error *what)
{
    static const finding_severity severities[] = {
        [FORMAT_NOTE] = FINDING_NOTE,
        [FORMAT_WARNING] = FINDING_WARNING,
        [FORMAT_ERROR] = FINDING_ERROR,
    };
    fsdpck_verify *v = ctx;
    findings_report_as(&v->found, severities[severity], what);
}

/* During open: --set applies only if the checkpoint opens. */
static void add_finding_of_open(void *ctx, format_severity severity, const fsdpck_error *what)
{
    fsdpck_verify *v = ctx;
    add_finding(ctx, severity, what);
    if (severity == FORMAT_ERROR &&
        finding_rules_given(&v->found.rules, what->finding, FINDING_ERROR) != FINDING_ERROR)
        findings_add(&v->downgraded, FINDING_ERROR, what);
}

/* --set cannot change the severity of an error that prevents opening. */
static void restore_severity(fsdpck_verify *v)
{
    for (size_t i = 0; i < v->downgraded.kept; i++) {
        const fsdpck_error *what = &v->downgraded.list[i].what;
        findings_remove(&v->found,
                        finding_rules_given(&v->found.rules, what->finding, FINDING_ERROR), what);
        findings_add(&v->found, FINDING_ERROR, what);
    }
}

/* Errors in records of tensors were reported when their headers were read. */
static void add_finding_of_record(void *ctx, format_severity severity, const fsdpck_error *what)
{
    fsdpck_verify *v = ctx;
    if (!findings_contain(&v->found, what))
        add_finding(ctx, severity, what);
}

static fsdpck_status check_records(void *ctx, check_is_summed_fn is_checked_elsewhere,
                                   void *checked_ctx, check_result *result, fsdpck_error *err)
{
    fsdpck_verify *v = ctx;
    fsdpck_checkpoint *c = v->src;
    const record_check_request r = {
        .sums = v->level >= CHECK_CHECKSUM,
        .nthreads = thread_count(v->options.threads),
        .cancel = &c->ctx->cancel,
        .found = add_finding_of_record,
        .found_ctx = v,
        .is_checked_elsewhere = is_checked_elsewhere,
        .checked_ctx = checked_ctx,
    };
    record_check_result other_records = {0};
    progress_phase(&c->ctx->progress, r.sums ? "reading other records" : "reading objects", 0);
    const fsdpck_status st = c->format->check_records(c->self, &r, &other_records, err);
    result->records += other_records.records;
    result->bytes_total += other_records.checked_nbytes + other_records.unverified_nbytes;
    result->bytes_read += other_records.checked_nbytes + other_records.unverified_nbytes;
    result->bytes_summed += other_records.checked_nbytes;
    result->unverified_nbytes += other_records.unverified_nbytes;
    return st;
}

/* True if this status of opening is a finding about the input. */
static bool is_finding(fsdpck_status st)
{
    return st == FSDPCK_BADINPUT || st == FSDPCK_UNSUPPORTED;
}

/* 2^64 times as much; 1 and more is 0, as 2^64 is. */
static uint64_t fraction_of(double part)
{
    return part <= 0 || part >= 1 ? 0 : (uint64_t)(part * 0x1p64);
}

static uint64_t deadline_of(double seconds)
{
    struct timespec now;
    if (!(seconds > 0))
        return 0;
    clock_gettime(CLOCK_MONOTONIC, &now);
    const uint64_t ns = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
    return ns + (seconds < 1e9 ? (uint64_t)(seconds * 1e9) : UINT64_C(1000000000000000000));
}

/* Checks that need only the checkpoint itself. */
static fsdpck_status check_all(fsdpck_verify *v, fsdpck_context *ctx, fsdpck_error *err)
{
    const check_peers peers = verify_peers(v->src);
    const check_request r = {
        .cat = &v->src->cat,
        .source = &v->src->src,
        .folder = v->src->probe.is_folder ? v->src->path : NULL,
        .path = v->src->path,
        .level = v->level,
        .nthreads = thread_count(v->options.threads),
        .memory_nbytes = v->options.memory_nbytes > 0
                             ? v->options.memory_nbytes
                             : run_memory_default_nbytes(FSDPCK_ENGINE_THREADS),
        .peers = ctx->group == NULL ? NULL : &peers,
        .cancel = &ctx->cancel,
        .progress = &ctx->progress,
        .metadata = &v->src->metadata,
        .other_records = v->src->format->check_records != NULL ? check_records : NULL,
        .other_records_ctx = v,
        .files = v->files,
        .statistics = v->options.statistics != 0,
        .sample_begin = fraction_of(v->options.sample_begin),
        .sample_end = verify_is_sample(v) ? fraction_of(v->options.sample_end) - 1 : 0,
        .deadline_ns = v->deadline_ns,
    };
    /* The tensors inside objects are in the catalogue only once these are loaded. */
    if (v->level >= CHECK_NUMERIC)
        RETURN_IF(group_agree(ctx->group, checkpoint_load_inner(v->src, err), err));
    RETURN_IF(check_run(&r, &v->found, &v->result, err));
    return group_agree(ctx->group, remote_folder_check_unchanged(v->src->remote_files, err), err);
}

/* Import by a map and export, on a checkpoint without errors. */
static fsdpck_status prove_map(fsdpck_verify *v, const char *path, fsdpck_error *err)
{
    fsdpck_open_options o;
    fsdpck_error what = FSDPCK_ERROR_INIT;
    if (v->options.prove_map == NULL || v->found.counts[FINDING_ERROR] > 0)
        return FSDPCK_OK;
    RETURN_IF(open_options_take(&o, v->options.open, err));
    o.map = v->options.prove_map;
    const fsdpck_status st = map_prove(path, &o, &v->proved, &what);
    if (v->proved.model.finding == FSDPCK_FINDING_MAP_MODEL)
        findings_report_as(&v->found, FINDING_WARNING, &v->proved.model);
    if (is_finding(st)) {
        v->proved = (map_proof_result){0};
        findings_report(&v->found, &what);
        return FSDPCK_OK;
    }
    if (st != FSDPCK_OK && err != NULL)
        *err = what;
    return st;
}

/* With --like, the sizes are compared with those of BASE. */
static void check_sizes(fsdpck_verify *v)
{
    fsdpck_error what = FSDPCK_ERROR_INIT;
    if (checkpoint_check_lost(v->src, true, &what) != FSDPCK_OK) {
        findings_report_as(&v->found, FINDING_ERROR, &what);
        return;
    }
    checkpoint_warn_lost(v->src, checkpoint_open);
    weights_beside_warn(v->src, checkpoint_open);
    if (v->like == NULL && checkpoint_check_sizes(v->src, &what) != FSDPCK_OK)
        findings_report_as(&v->found, FINDING_ERROR, &what);
}

static fsdpck_status look(fsdpck_verify *v, fsdpck_context *ctx, const char *path,
                          fsdpck_error *err)
{
    fsdpck_error what = FSDPCK_ERROR_INIT;
    fsdpck_status st =
        checkpoint_open(ctx, path, v->options.open, add_finding_of_open, v, &v->src, &what);
    if (is_finding(st)) {
        restore_severity(v);
        findings_add_new(&v->found, FINDING_ERROR, &what);
        st = group_rank(ctx->group) == 0 ? begin_expected(v, ctx, path, err) : FSDPCK_OK;
        if (st == FSDPCK_OK)
            st = check_expected(v, ctx, path, err);
        return group_agree(ctx->group, st, err);
    }
    if (st != FSDPCK_OK) {
        if (err != NULL)
            *err = what;
        return st;
    }
    RETURN_IF(group_agree(ctx->group, begin_expected(v, ctx, path, err), err));
    note_unfinished(v);
    check_sizes(v);
    st = check_all(v, ctx, err);
    if (st == FSDPCK_OK)
        st = verify_modules(v, err);
    if (st == FSDPCK_OK)
        st = verify_ties(v, err);
    if (st == FSDPCK_OK)
        st = verify_copies(v, err);
    if (st == FSDPCK_OK)
        st = verify_unread_state(v, ctx, fsdpck_verify_new, err);
    if (st == FSDPCK_OK)
        st = verify_megatron(v, ctx, err);
    if (st == FSDPCK_OK)
        st = group_agree(ctx->group, verify_adapters(v, err), err);
    if (st == FSDPCK_OK)
        verify_steps(v);
    verify_add_warnings(v, ctx); /* first: the conversions may add many */
    findings_merge_tensors(&v->found, FSDPCK_FINDING_RANK_FLAT);
    findings_merge_tensors(&v->found, FSDPCK_FINDING_MODEL_NEEDED);
    findings_merge_files(&v->found, FSDPCK_FINDING_PT_CONTAINER);
    if (st == FSDPCK_OK)
        st = verify_conversions(v, err);
    if (st == FSDPCK_OK)
        st = verify_like_check(v->like, v, err);
    if (st == FSDPCK_OK)
        st = group_agree(ctx->group, prove_map(v, path, err), err);
    if (st == FSDPCK_OK)
        st = group_agree(ctx->group, check_expected(v, ctx, path, err), err);
    note_without_checksum(v);
    return st;
}

/* Unsupported content ends the check with a finding, in every stage. */
static fsdpck_status look_or_report(fsdpck_verify *v, fsdpck_context *ctx, const char *path,
                                    fsdpck_error *err)
{
    fsdpck_error what = FSDPCK_ERROR_INIT;
    const fsdpck_status st = look(v, ctx, path, &what);
    if (st == FSDPCK_UNSUPPORTED) {
        findings_add_new(&v->found, FINDING_ERROR, &what);
        return FSDPCK_OK;
    }
    if (st != FSDPCK_OK && err != NULL)
        *err = what;
    return st;
}

/* Rank 0's counts win. */
static fsdpck_status broadcast_counts(fsdpck_verify *v, group *g, fsdpck_error *err)
{
    return group_broadcast(g, 0, v->found.counts, sizeof v->found.counts, err);
}

/* A sample that only begins goes to the end. */
static fsdpck_status check_sample(fsdpck_verify_options *o, fsdpck_error *err)
{
    RETURN_IF(struct_check_number("fsdpck_verify_options.sample_begin", o->sample_begin, 1, err));
    RETURN_IF(struct_check_number("fsdpck_verify_options.sample_end", o->sample_end, 1, err));
    if (o->sample_begin > 0 && !(o->sample_end > 0))
        o->sample_end = 1;
    if (o->sample_end > 0 && o->sample_begin >= o->sample_end)
        return FAIL_WITH(err, USAGE, NONE, ("sample is empty"),
                         (expected, "sample_begin below sample_end"),
                         (found, "%g to %g", o->sample_begin, o->sample_end));
    return FSDPCK_OK;
}

static fsdpck_status take_options(fsdpck_verify_options *o, const fsdpck_verify_options *from,
                                  fsdpck_error *err)
{
    static const struct_choice level = {"fsdpck_verify_options.level",
                                        offsetof(fsdpck_verify_options, level), -1,
                                        FSDPCK_LEVEL_NUMERIC};
    fsdpck_open_options open;
    *o = (fsdpck_verify_options){.struct_nbytes = sizeof *o, .level = -1};
    RETURN_IF(STRUCT_COPY_IN(o, from, fsdpck_verify_options, err));
    RETURN_IF(struct_check_choices(o, &level, 1, err));
    RETURN_IF(
        struct_check_number("fsdpck_verify_options.max_seconds", o->max_seconds, INFINITY, err));
    RETURN_IF(check_sample(o, err));
    if (o->like != NULL && o->open != NULL && o->open->source_local)
        return FAIL_WITH(err, USAGE, NONE, ("--source-local and --like contradict each other"),
                         (next,
                          "copy the files of all hosts into one folder: --like checks it as a "
                          "loader reads it"));
    if (o->prove_map != NULL && o->open != NULL && o->open->source_local)
        return FAIL(err, USAGE, NONE, "--source-local and --prove-map contradict each other");
    return open_options_take(&open, o->open, err);
}

fsdpck_status fsdpck_verify_new(fsdpck_context *ctx, const char *path,
                                const fsdpck_verify_options *options, fsdpck_verify **out,
                                fsdpck_error *err)
{
    fsdpck_warning w = FSDPCK_INIT(fsdpck_warning);
    fsdpck_verify_options o;
    *out = NULL;
    RETURN_IF(take_options(&o, options, err));
    fsdpck_verify *v = calloc(1, sizeof *v);
    if (v == NULL)
        return error_set_nomem(err, sizeof *v);
    v->options = o;
    v->deadline_ns = deadline_of(v->options.max_seconds);
    v->level = v->options.level < 0 ? CHECK_COVERAGE : (check_level)v->options.level;
    findings_init(&v->found);
    findings_init(&v->downgraded);
    while (fsdpck_context_warning(ctx, v->first_warning, &w))
        v->first_warning++;
    v->path = path;
    fsdpck_status st = set_rules(v, err);
    if (st == FSDPCK_OK)
        st = group_agree(ctx->group, verify_like_open(&v->like, &o, err), err);
    if (st == FSDPCK_OK)
        st = look_or_report(v, ctx, path, err);
    verify_like_close(v->like);
    v->like = NULL;
    progress_phase(&ctx->progress, NULL, 0);
    verify_add_warnings(v, ctx);
    if (st == FSDPCK_OK)
        st = broadcast_counts(v, ctx->group, err);
    v->path = NULL;
    findings_sort(&v->found);
    verify_set_not_seen(v);
    if (st != FSDPCK_OK)
        fsdpck_verify_free(v);
    else
        *out = v;
    return st;
}
