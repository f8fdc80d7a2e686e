/* Opens a checkpoint and looks through it; what is wrong with it is no failure here. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "digest.h"
#include "exec/group_view.h"
#include "model/unflatten.h"
#include "promise.h"
#include "run.h"
#include "verify_peers.h"

struct fsdpck_verify {
    fsdpck_checkpoint *src; /* NULL: it could not be opened */
    const char *path;       /* while it is looked at */
    fsdpck_verify_options options;
    check_level level;
    size_t first_warning; /* of the context, from which on warnings are ours */
    findings found;
    findings softened; /* errors that --set makes less of, told while the checkpoint was opened */
    check_result result;
    promise_manifest *manifest; /* while it is looked through; NULL where there is none */
    check_file *files;          /* by file of the catalogue; NULL: no sums are wanted */
    manifest_result promised;
    uint64_t deadline_ns;
    char blind[512];
};

static bool is_sample(const fsdpck_verify *v)
{
    return v->options.sample_end > 0 && (v->options.sample_begin > 0 || v->options.sample_end < 1);
}

/* Not everything is looked at: a sample, or time ran out. */
static bool is_partial(const fsdpck_verify *v)
{
    return is_sample(v) || v->result.stopped;
}

static const char *blind_of_level(const fsdpck_verify *v)
{
    static const char *const texts[] = {
        [CHECK_QUICK] = "anything inside the data; holes and overlaps; payloads that are not what "
                        "the metadata say",
        [CHECK_STRUCTURE] = "anything inside the data; holes and overlaps; payloads that are not "
                            "what the metadata say",
        [CHECK_COVERAGE] = "flipped bits",
        [CHECK_CHECKSUM] = "values that were wrong when they were saved; bytes without a checksum",
        [CHECK_NUMERIC] = "most values that were wrong when they were saved (NaN is seen, a wrong "
                          "number is not); bytes without a checksum",
    };
    if (v->promised.covers)
        return v->level >= CHECK_NUMERIC ? "most values that were wrong when they were saved (NaN "
                                           "is seen, a wrong number is not)"
                                         : "values that were wrong when they were saved";
    return texts[v->level];
}

/* Files that fit each other may still not belong together. */
static const char *blind_of_files(const fsdpck_verify *v)
{
    const bool is_of_dcp = v->src != NULL && strncmp(v->src->format->name, "dcp", 3) == 0;
    if (v->src == NULL || v->promised.covers || v->level < CHECK_COVERAGE ||
        !v->src->probe.is_folder)
        return "";
    return catalogue_file_count(&v->src->cat) > 1
               ? "; files of two saves that were mixed; shards of one shape that were swapped"
           : is_of_dcp ? "; files of two saves that were mixed"
                       : "";
}

static void set_blind(fsdpck_verify *v)
{
    if (v->src == NULL) {
        snprintf(v->blind, sizeof v->blind, "%s",
                 v->promised.there
                     ? "all of it: it could not be opened, and nothing was looked at "
                       "but its files, with the manifest"
                     : "all of it: it could not be opened, and nothing else was looked "
                       "at");
        return;
    }
    const bool doubt = v->src->cat.origin.order_doubtful;
    snprintf(v->blind, sizeof v->blind, "%s%s%s%s", is_partial(v) ? "what was skipped; " : "",
             blind_of_level(v), blind_of_files(v),
             doubt ? "; whether rows are in the right order (see the notes)" : "");
}

/* What the readers warned of: a warning, or a note where good checkpoints cause it. */
static void take_warnings(fsdpck_verify *v, fsdpck_context *ctx)
{
    fsdpck_warning w;
    for (; fsdpck_context_warning(ctx, v->first_warning, &w); v->first_warning++) {
        const finding_kind *kind = finding_find(w.finding);
        fsdpck_error what;
        fsdpck_error_init(&what);
        error_set(&what, FSDPCK_BADINPUT, w.finding, "%s", w.message);
        if (w.next[0] != '\0')
            error_next(&what, "%s", w.next);
        findings_tell_as(&v->found,
                         kind != NULL && kind->severity < FINDING_WARNING ? kind->severity
                                                                          : FINDING_WARNING,
                         &what);
    }
}

/* Names that savers and downloaders give to what is not finished. */
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
    fsdpck_error_init(&what);
    error_set(&what, FSDPCK_BADINPUT, "DCP-PARTIAL",
              "something that was not finished was left beside the checkpoint");
    error_path_in(&what, in->path, first);
    error_found(&what, "%" PRIu64 " such name%s", count, count == 1 ? "" : "s");
    error_next(&what, "it is no part of the checkpoint: remove it");
    findings_tell(&v->found, &what);
}

static void note_unsummed(fsdpck_verify *v)
{
    fsdpck_error what;
    if (v->level < CHECK_CHECKSUM || v->result.unsummed_nbytes == 0)
        return;
    fsdpck_error_init(&what);
    error_set(&what, FSDPCK_BADINPUT, "CHECKSUM-NONE", "no checksum is recorded for some tensors");
    error_found(&what, "%" PRIu64 " tensor%s, %" PRIu64 " bytes", v->result.unsummed_tensors,
                v->result.unsummed_tensors == 1 ? "" : "s", v->result.unsummed_nbytes);
    if (v->promised.there && is_partial(v))
        error_next(&what,
                   "the manifest has checksums of whole files alone: run it without --sample "
                   "and --max-duration");
    else
        error_next(&what,
                   "keep digests of them: fsdpck digest SRC >FILE, fsdpck digest -c FILE SRC");
    findings_tell(&v->found, &what);
}

/* What the options say of how bad things are; what --set says goes before --require-checksums. */
static fsdpck_status set_rules(fsdpck_verify *v, fsdpck_error *err)
{
    finding_rules *rules = &v->found.rules;
    if (v->options.require_checksums)
        RETURN_IF(finding_rules_set(rules, "CHECKSUM-NONE=error", err));
    for (size_t i = 0; v->options.set != NULL && v->options.set[i] != NULL; i++)
        RETURN_IF(finding_rules_set(rules, v->options.set[i], err));
    return FSDPCK_OK;
}

static promise_request promise_of(fsdpck_verify *v, fsdpck_context *ctx, const char *path)
{
    return (promise_request){
        .ctx = ctx,
        .path = path,
        .src = v->src,
        .manifest_path = v->options.manifest,
        .level = v->level,
        .nthreads = transform_threads(v->options.threads),
        .no_follow = v->options.open != NULL && v->options.open->no_follow,
        .sha256 = v->options.sha256 != 0,
        .found = &v->found,
    };
}

/* Before the bytes are read: which files are to be summed meanwhile. */
static fsdpck_status begin_promises(fsdpck_verify *v, fsdpck_context *ctx, const char *path,
                                    fsdpck_error *err)
{
    const promise_request r = promise_of(v, ctx, path);
    RETURN_IF(promise_manifest_new(&r, &v->manifest, err));
    if (v->manifest == NULL || v->src == NULL || v->level < CHECK_CHECKSUM || is_sample(v))
        return FSDPCK_OK;
    v->files = calloc(catalogue_file_count(&v->src->cat) + 1, sizeof *v->files);
    if (v->files == NULL)
        return error_set_nomem(err, catalogue_file_count(&v->src->cat) * sizeof *v->files);
    promise_manifest_wants(v->manifest, v->files);
    return FSDPCK_OK;
}

/* What the checkpoint was, or ought to be, where somebody says so. */
static fsdpck_status check_promises(fsdpck_verify *v, fsdpck_context *ctx, const char *path,
                                    fsdpck_error *err)
{
    const promise_request r = promise_of(v, ctx, path);
    RETURN_IF(promise_manifest_check(v->manifest, v->files, is_partial(v), &v->promised, err));
    if (v->promised.covers) {
        v->result.bytes_summed += v->result.unsummed_nbytes;
        v->result.unsummed_nbytes = 0;
        v->result.unsummed_tensors = 0;
    }
    return v->options.expect == NULL ? FSDPCK_OK : promise_check_expect(&r, v->options.expect, err);
}

static void take_found(void *ctx, format_severity severity, const fsdpck_error *what)
{
    static const finding_severity severities[] = {
        [FORMAT_NOTE] = FINDING_NOTE,
        [FORMAT_WARNING] = FINDING_WARNING,
        [FORMAT_ERROR] = FINDING_ERROR,
    };
    fsdpck_verify *v = ctx;
    findings_tell_as(&v->found, severities[severity], what);
}

/* While the checkpoint is opened: the user's word holds only if that works out. */
static void take_found_opening(void *ctx, format_severity severity, const fsdpck_error *what)
{
    fsdpck_verify *v = ctx;
    take_found(ctx, severity, what);
    if (severity == FORMAT_ERROR &&
        finding_rules_given(&v->found.rules, what->finding, FINDING_ERROR) != FINDING_ERROR)
        findings_add(&v->softened, FINDING_ERROR, what);
}

/* What keeps a checkpoint from being opened is no matter of taste. */
static void harden(fsdpck_verify *v)
{
    for (size_t i = 0; i < v->softened.kept; i++) {
        const fsdpck_error *what = &v->softened.list[i].what;
        findings_take_back(
            &v->found, finding_rules_given(&v->found.rules, what->finding, FINDING_ERROR), what);
        findings_add(&v->found, FINDING_ERROR, what);
    }
}

/* A record that a tensor is read by has been told of already where its head was read. */
static void take_found_in_rest(void *ctx, format_severity severity, const fsdpck_error *what)
{
    fsdpck_verify *v = ctx;
    if (!findings_knows(&v->found, what))
        take_found(ctx, severity, what);
}

static fsdpck_status check_rest(void *ctx, check_is_summed_fn is_summed, void *summed_ctx,
                                check_result *result, fsdpck_error *err)
{
    fsdpck_verify *v = ctx;
    fsdpck_checkpoint *c = v->src;
    const rest_request r = {
        .sums = v->level >= CHECK_CHECKSUM,
        .nthreads = transform_threads(v->options.threads),
        .cancel = &c->ctx->cancel,
        .found = take_found_in_rest,
        .found_ctx = v,
        .is_summed = is_summed,
        .summed_ctx = summed_ctx,
    };
    rest_result rest = {0};
    progress_phase(&c->ctx->progress, r.sums ? "reading other records" : "reading objects", 0);
    const fsdpck_status st = c->format->check_rest(c->self, &r, &rest, err);
    result->records += rest.records;
    result->bytes_total += rest.summed_nbytes + rest.unsummed_nbytes;
    result->bytes_read += rest.summed_nbytes + rest.unsummed_nbytes;
    result->bytes_summed += rest.summed_nbytes;
    result->unsummed_nbytes += rest.unsummed_nbytes;
    return st;
}

/* Raw optimizer state without a description is the same trouble in every tensor: said once. */
static void merge_flat(findings *f)
{
    size_t kept = 0;
    uint64_t same = 0;
    finding *first = NULL;
    for (size_t i = 0; i < f->kept; i++) {
        const bool flat = strcmp(f->list[i].what.finding, "RANK-FLAT") == 0;
        if (flat && same++ > 0)
            continue;
        f->list[kept] = f->list[i];
        if (flat)
            first = &f->list[kept];
        kept++;
    }
    if (same < 2)
        return;
    f->counts[first->severity] -= same - 1;
    f->kept = kept;
    error_found(&first->what, "%" PRIu64 " tensors so; this is the first", same);
}

static bool is_of_optimizer(const fsdpck_checkpoint *c, uint64_t tensor)
{
    return tensor < c->parts.tensor_count && c->parts.tensor_part[tensor] == PART_OPTIMIZER;
}

static bool names_optimizer(const fsdpck_checkpoint *c, const char *name)
{
    const uint32_t tensor = catalogue_find(&c->cat, name, strlen(name));
    return tensor != CAT_NONE && is_of_optimizer(c, tensor);
}

/* Buffers of the model may differ where nobody synchronises them; state of an optimizer has no reason
 * to, but that the files are of several saves. *any: there is some. */
static fsdpck_status tell_optimizer_differs(fsdpck_verify *v, const fsdpck_checkpoint *apart,
                                            const fsdpck_error *first, bool *any, fsdpck_error *err)
{
    const bool is_first = names_optimizer(v->src, first->tensor);
    fsdpck_error what;
    strtab names;
    uint32_t id;
    fsdpck_status st = FSDPCK_OK;
    strtab_init(&names, NULL);
    for (uint64_t i = 0; st == FSDPCK_OK && i < catalogue_tensor_count(&apart->cat); i++) {
        const cat_tensor *t = catalogue_tensor(&apart->cat, i);
        const char *name = catalogue_name(&apart->cat, t->name);
        const size_t nbytes = catalogue_name_nbytes(&apart->cat, t->name);
        if ((t->flags & CAT_TENSOR_DIFFERS) && is_of_optimizer(apart, i))
            st = strtab_intern(&names, name, flat_name_without_rank(name, nbytes), &id, err);
    }
    const size_t count = strtab_count(&names);
    *any = st == FSDPCK_OK && count > 0;
    if (*any) {
        fsdpck_error_init(&what);
        error_set(&what, FSDPCK_BADINPUT, "RANK-DIFFER", "optimizer state differs between ranks");
        error_path(&what, is_first ? first->path : v->src->path);
        error_tensor(&what, is_first ? first->tensor : strtab_text(&names, 0));
        if (count > 1)
            error_found(&what, "%s%s%zu tensors so", is_first ? first->found : "",
                        is_first ? "; " : "", count);
        else if (is_first)
            error_found(&what, "%s", first->found);
        error_next(&what,
                   "see whether all files are of one save; else say what becomes of it where "
                   "it is read: --per-rank keep, first or drop");
        findings_tell_as(&v->found, FINDING_WARNING, &what);
    }
    strtab_release(&names);
    return st;
}

/* One tensor of each rank, so that those that differ do not hide copies that must not. */
static fsdpck_status check_copies_apart(fsdpck_verify *v, const fsdpck_error *first, bool *any,
                                        fsdpck_error *err)
{
    fsdpck_context *ctx = v->src->ctx;
    const fsdpck_open_options *given = v->options.open;
    fsdpck_open_options o = FSDPCK_OPEN_OPTIONS_INIT;
    fsdpck_checkpoint *apart = NULL;
    fsdpck_warning w;

    if (given != NULL)
        memcpy(&o, given, given->struct_nbytes < sizeof o ? given->struct_nbytes : sizeof o);
    o.struct_nbytes = sizeof o;
    o.per_rank = FSDPCK_PER_RANK_KEEP;
    take_warnings(v, ctx);
    fsdpck_status st = transform_open(ctx, v->path, &o, NULL, NULL, &apart, err);
    if (st == FSDPCK_OK)
        st = tell_optimizer_differs(v, apart, first, any, err);
    if (st == FSDPCK_OK)
        st = digest_check_coverage(ctx, apart, true, err);
    fsdpck_close(apart);
    while (fsdpck_context_warning(ctx, v->first_warning, &w)) /* have been told */
        v->first_warning++;
    return st;
}

/* Whoever puts the ranks together refuses both; a note is only what good files have too. */
static void raise_optimizer(fsdpck_verify *v)
{
    findings *f = &v->found;
    for (size_t i = 0; i < f->kept; i++) {
        finding *k = &f->list[i];
        if (strcmp(k->what.finding, "RANK-DIFFER") != 0 || k->severity != FINDING_NOTE ||
            finding_rules_given(&f->rules, k->what.finding, FINDING_WARNING) != FINDING_WARNING ||
            !names_optimizer(v->src, k->what.tensor))
            continue;
        k->severity = FINDING_WARNING;
        f->counts[FINDING_NOTE]--;
        f->counts[FINDING_WARNING]++;
    }
}

/* What a merge would refuse: copies of a chunk that differ. What else may be wrong has been told. */
static fsdpck_status check_replicas(fsdpck_verify *v, fsdpck_error *err)
{
    static const char *const ids[] = {"RANK-DIFFER", "REPLICA-DIFFER", "TIE-DIFFERS"};
    fsdpck_error what;
    if (v->level < CHECK_CHECKSUM || v->found.counts[FINDING_ERROR] > 0 || is_partial(v))
        return FSDPCK_OK;
    fsdpck_error_init(&what);
    fsdpck_status st = digest_check_coverage(v->src->ctx, v->src, true, &what);
    if (strcmp(what.finding, "RANK-DIFFER") == 0) {
        const fsdpck_error first = what;
        bool any = false;
        fsdpck_error_init(&what);
        st = check_copies_apart(v, &first, &any, &what);
        if (!any || !names_optimizer(v->src, first.tensor))
            findings_tell(&v->found, &first);
    }
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++)
        if (strcmp(what.finding, ids[i]) == 0)
            findings_tell(&v->found, &what);
    if (st == FSDPCK_OK || st == FSDPCK_BADINPUT || st == FSDPCK_UNSUPPORTED || st == FSDPCK_USAGE)
        return FSDPCK_OK; /* not to be merged as it is, which is no fault of the files */
    if (err != NULL)
        *err = what;
    return st;
}

/* Of what is of another kind the verdict is none, but there is one. */
static bool is_verdict(fsdpck_status st, const fsdpck_error *what)
{
    return st == FSDPCK_BADINPUT ||
           (st == FSDPCK_UNSUPPORTED && strcmp(what->finding, "NO-CHECKPOINT") == 0);
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

/* What can be told from the checkpoint itself. */
static fsdpck_status check_all(fsdpck_verify *v, fsdpck_context *ctx, fsdpck_error *err)
{
    const check_peers peers = verify_peers(v->src);
    const check_request r = {
        .cat = &v->src->cat,
        .source = &v->src->src,
        .folder = v->src->probe.is_folder ? v->src->path : NULL,
        .path = v->src->path,
        .level = v->level,
        .nthreads = transform_threads(v->options.threads),
        .memory_nbytes = run_memory_default(),
        .peers = ctx->group == NULL ? NULL : &peers,
        .cancel = &ctx->cancel,
        .progress = &ctx->progress,
        .metadata = &v->src->metadata,
        .rest = v->src->format->check_rest != NULL ? check_rest : NULL,
        .rest_ctx = v,
        .files = v->files,
        .statistics = v->options.statistics != 0,
        .sample_begin = fraction_of(v->options.sample_begin),
        .sample_end = is_sample(v) ? fraction_of(v->options.sample_end) - 1 : 0,
        .deadline_ns = v->deadline_ns,
    };
    RETURN_IF(check_run(&r, &v->found, &v->result, err));
    return group_agree(ctx->group, group_view_check_unchanged(v->src->view_of_ranks, err), err);
}

static fsdpck_status look(fsdpck_verify *v, fsdpck_context *ctx, const char *path,
                          fsdpck_error *err)
{
    fsdpck_error what;
    fsdpck_error_init(&what);
    fsdpck_status st =
        transform_open(ctx, path, v->options.open, take_found_opening, v, &v->src, &what);
    if (is_verdict(st, &what)) {
        harden(v);
        findings_add_new(&v->found, FINDING_ERROR, &what);
        st = group_rank(ctx->group) == 0 ? begin_promises(v, ctx, path, err) : FSDPCK_OK;
        if (st == FSDPCK_OK)
            st = check_promises(v, ctx, path, err);
        return group_agree(ctx->group, st, err);
    }
    if (st != FSDPCK_OK) {
        if (err != NULL)
            *err = what;
        return st;
    }
    RETURN_IF(group_agree(ctx->group, begin_promises(v, ctx, path, err), err));
    note_unfinished(v);
    st = check_all(v, ctx, err);
    if (st == FSDPCK_OK)
        st = check_replicas(v, err);
    raise_optimizer(v);
    merge_flat(&v->found);
    take_warnings(v, ctx); /* before what may be very many */
    if (st == FSDPCK_OK)
        st = group_agree(ctx->group, check_promises(v, ctx, path, err), err);
    note_unsummed(v);
    return st;
}

/* Of all ranks the first speaks: what it alone was told counts for all. */
static fsdpck_status share_counts(fsdpck_verify *v, group *g, fsdpck_error *err)
{
    return group_broadcast(g, 0, v->found.counts, sizeof v->found.counts, err);
}

fsdpck_status fsdpck_verify_new(fsdpck_context *ctx, const char *path,
                                const fsdpck_verify_options *options, fsdpck_verify **out,
                                fsdpck_error *err)
{
    fsdpck_warning w;
    *out = NULL;
    fsdpck_verify *v = calloc(1, sizeof *v);
    if (v == NULL)
        return error_set_nomem(err, sizeof *v);
    v->options.level = -1;
    if (options != NULL)
        memcpy(&v->options, options,
               options->struct_nbytes < sizeof v->options ? options->struct_nbytes
                                                          : sizeof v->options);
    v->deadline_ns = deadline_of(v->options.max_seconds);
    v->level = v->options.level < 0 ? CHECK_COVERAGE : (check_level)v->options.level;
    findings_init(&v->found);
    findings_init(&v->softened);
    while (fsdpck_context_warning(ctx, v->first_warning, &w))
        v->first_warning++;
    v->path = path;
    fsdpck_status st = set_rules(v, err);
    if (st == FSDPCK_OK)
        st = look(v, ctx, path, err);
    progress_phase(&ctx->progress, NULL, 0);
    take_warnings(v, ctx);
    if (st == FSDPCK_OK)
        st = share_counts(v, ctx->group, err);
    v->path = NULL;
    findings_sort(&v->found);
    set_blind(v);
    if (st != FSDPCK_OK)
        fsdpck_verify_free(v);
    else
        *out = v;
    return st;
}

/* Without storages, which come last. */
static uint64_t statistics_count(const fsdpck_verify *v)
{
    return v->result.numbers == NULL ? 0 : v->src->parts.tensor_count;
}

void fsdpck_verify_get_info(const fsdpck_verify *v, fsdpck_verify_info *info)
{
    *info = (fsdpck_verify_info){
        .level = (fsdpck_level)v->level,
        .opened = v->src != NULL,
        .errors = v->found.counts[FINDING_ERROR],
        .warnings = v->found.counts[FINDING_WARNING],
        .notes = v->found.counts[FINDING_NOTE],
        .ignored = v->found.counts[FINDING_IGNORE],
        .listed = v->found.kept,
        .chunks = v->result.chunks,
        .records = v->result.records,
        .bytes_total = v->result.bytes_total,
        .bytes_read = v->result.bytes_read,
        .bytes_summed = v->result.bytes_summed,
        .unchecked_tensors = v->result.unsummed_tensors,
        .unchecked_nbytes = v->result.unsummed_nbytes,
        .unread_tensors = v->result.unread_tensors,
        .unread_nbytes = v->result.unread_nbytes,
        .unsupported = v->found.unsupported,
        .manifest = v->promised.there,
        .manifest_files = v->promised.files,
        .manifest_nbytes = v->promised.bytes_summed,
        .manifest_tensors = v->promised.tensors,
        .manifest_unsummed_files = v->promised.unsummed_files,
        .sampled = is_sample(v),
        .stopped = v->result.stopped,
        .skipped_records = v->result.skipped_records,
        .skipped_nbytes = is_partial(v) ? v->result.bytes_total - v->result.bytes_read : 0,
        .statistics = statistics_count(v),
        .blind = v->blind,
    };
    if (v->options.strict) {
        info->errors += info->warnings;
        info->warnings = 0;
    }
    if (v->src != NULL)
        fsdpck_get_info(v->src, &info->source);
}

void fsdpck_verify_get_finding(const fsdpck_verify *v, uint64_t index, fsdpck_finding *f)
{
    const finding *k = &v->found.list[index];
    const finding_severity severity =
        v->options.strict && k->severity == FINDING_WARNING ? FINDING_ERROR : k->severity;
    *f = (fsdpck_finding){
        .id = k->what.finding, .severity = finding_severity_name(severity), .what = &k->what};
}

int fsdpck_verify_get_statistics(const fsdpck_verify *v, uint64_t index,
                                 fsdpck_tensor_statistics *statistics)
{
    fsdpck_tensor_statistics all = {.struct_nbytes = statistics->struct_nbytes};
    if (index >= statistics_count(v))
        return 0;
    const check_statistics *s = &v->result.numbers[index];
    fsdpck_get_tensor(v->src, index, &all.tensor);
    all.nelems = s->nelems;
    all.nan = s->nan;
    all.inf = s->inf;
    all.zeros = s->m.zeros;
    all.finite = s->m.numbers;
    all.mean = s->m.mean;
    all.variance = s->m.numbers > 0 ? s->m.squares / (double)s->m.numbers : 0;
    all.minimum = s->m.least;
    all.maximum = s->m.most;
    all.exponent_least = s->exponent_least;
    all.exponents = s->exponents;
    all.exponent_counts = s->counts;
    memcpy(statistics, &all,
           statistics->struct_nbytes < sizeof all ? statistics->struct_nbytes : sizeof all);
    return 1;
}

void fsdpck_verify_free(fsdpck_verify *v)
{
    if (v == NULL)
        return;
    promise_manifest_free(v->manifest);
    free(v->files);
    check_result_release(&v->result);
    fsdpck_close(v->src);
    findings_release(&v->found);
    findings_release(&v->softened);
    free(v);
}
