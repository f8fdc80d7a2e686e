#include "verify_print.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "next_command.h"
#include "warnings.h"

/* Findings of one kind about single tensors that are printed. */
#define SAME_KIND_SHOWN 10u

static const char *level_name(fsdpck_level level)
{
    static const char *const names[] = {"quick", "structure", "coverage", "checksum", "numeric"};
    return names[level];
}

static void print_field(const char *label, const char *text)
{
    if (text[0] != '\0')
        printf("  %-9s %s\n", label, text);
}

/* The general next step of a kind of finding is printed once for consecutive findings: `before` is the
 * previous finding, or FSDPCK_FINDING_NONE. */
static void print_finding(const cli *c, const fsdpck_finding *f, fsdpck_finding_id before)
{
    const fsdpck_error *e = f->what;
    char where[40], path[4 * sizeof e->path];
    printf("%s%s:%s ", paint(&c->out, paint_of_severity(f->severity)), f->severity,
           paint(&c->out, PAINT_END));
    if (e->path[0] != '\0')
        printf("'%s': ", fsdpck_escape(path, sizeof path, e->path, strlen(e->path)));
    printf("%s", e->message);
    if (e->finding != FSDPCK_FINDING_NONE)
        printf(" [%s]", fsdpck_finding_name(e->finding));
    putchar('\n');
    print_field("tensor:", e->tensor);
    if (e->has_offset) {
        snprintf(where, sizeof where, "byte %" PRIu64, e->offset_bytes);
        print_field("offset:", where);
    }
    print_field("expected:", e->expected);
    print_field("found:", e->found);
    const bool said = e->finding != FSDPCK_FINDING_NONE && before == e->finding;
    print_field("next:", said ? e->next : report_next(e->finding, e->next));
}

/* "3 errors" in the colour of errors. */
static void print_painted(const cli *c, paint_kind kind, uint64_t count, const char *noun)
{
    char text[40];
    printf("%s%s%s", paint(&c->out, kind), report_count(text, sizeof text, count, noun),
           paint(&c->out, PAINT_END));
}

/* Notes need -v, except that of other weights, which names those that were checked, and those of steps, which may show
 * files of two saves. */
static bool is_shown(const cli *c, const fsdpck_finding *f)
{
    const fsdpck_finding_id id = f->what->finding;
    return strcmp(f->severity, "note") != 0 || c->verbose != 0 ||
           (!c->quiet && (id == FSDPCK_FINDING_WEIGHTS_BESIDE || id == FSDPCK_FINDING_STEP_NAME ||
                          id == FSDPCK_FINDING_STEP_STATE));
}

static uint64_t count_hidden(const cli *c, const fsdpck_verify *v, const fsdpck_verify_info *k)
{
    uint64_t hidden = 0;
    for (uint64_t i = 0; i < k->listed; i++) {
        fsdpck_finding f = FSDPCK_INIT(fsdpck_finding);
        fsdpck_verify_get_finding(v, i, &f);
        hidden += !is_shown(c, &f);
    }
    return hidden;
}

static void print_counts(const cli *c, const fsdpck_verify *v, const fsdpck_verify_info *k)
{
    const uint64_t hidden = c->page->path != NULL ? 0 : count_hidden(c, v, k);
    const char *read = k->stopped ? "the data read until --max-duration" : "a sample";
    const bool partial = k->sampled || k->stopped;
    if (k->errors == 0 && partial)
        printf("not verified: no error in %s, at level %s", read, level_name(k->level));
    else if (k->errors == 0)
        printf("%sno error%s at level %s", paint(&c->out, PAINT_OK), paint(&c->out, PAINT_END),
               level_name(k->level));
    else
        print_painted(c, PAINT_ERROR, k->errors, "error");
    if (k->errors > 0 && partial)
        printf(" in %s", read);
    if (k->warnings > 0) {
        fputs(", ", stdout);
        print_painted(c, PAINT_WARNING, k->warnings, "warning");
    }
    if (k->notes > 0) {
        fputs(", ", stdout);
        print_painted(c, PAINT_NOTE, k->notes, "note");
        if (hidden > 0 && hidden < k->notes)
            printf(" (%" PRIu64 " shown with -v)", hidden);
        else
            fputs(hidden > 0 ? " (shown with -v)" : "", stdout);
    }
    if (k->ignored > 0)
        printf(", %" PRIu64 " ignored", k->ignored);
    putchar('\n');
}

void verify_print_verdict(const cli *c, const char *path, const fsdpck_verify *v)
{
    char name[1024];
    fsdpck_verify_info k = FSDPCK_INIT(fsdpck_verify_info);
    fsdpck_verify_get_info(v, &k);
    printf("%s: ", fsdpck_escape(name, sizeof name, path, strlen(path)));
    print_counts(c, v, &k);
}

static void print_summary(const cli *c, const char *path, const char *like, const fsdpck_verify *v,
                          const fsdpck_verify_info *k, const fsdpck_info *source)
{
    char a[40], b[40], n[40], name[1024];
    verify_print_verdict(c, path, v);
    if (k->opened)
        printf("  checked    %s, %s in %s\n", report_count(a, sizeof a, source->tensors, "tensor"),
               report_count(b, sizeof b, source->chunks, "chunk"),
               report_count(n, sizeof n, source->files, "file"));
    if (k->opened && like != NULL)
        printf("  like       %s\n", fsdpck_escape(name, sizeof name, like, strlen(like)));
    if (k->state_files > 0)
        printf("  state      %s of the trainer beside the weights checked too\n",
               report_count(a, sizeof a, k->state_files, "file"));
    const bool sizes_only = k->manifest_files > 0 && k->level < FSDPCK_LEVEL_CHECKSUM;
    if (k->manifest)
        printf("  manifest   %s, %s%s%s%s\n", report_count(a, sizeof a, k->manifest_files, "file"),
               report_count(b, sizeof b, k->manifest_tensors, "tensor"),
               k->manifest_nbytes > 0 ? "; " : "",
               k->manifest_nbytes > 0 ? report_bytes(n, sizeof n, k->manifest_nbytes) : "",
               k->manifest_nbytes > 0 ? " of files compared with its CRC-64"
               : sizes_only           ? "; only the sizes of files compared"
                                      : "");
    if (k->proved_tensors > 0) {
        printf("  map        import, then export, gives %s back",
               report_count(a, sizeof a, k->proved_tensors, "tensor"));
        if (k->proved_rounded > 0)
            printf(", %" PRIu64 " up to rounding: the map adds a constant", k->proved_rounded);
        printf("\n");
    }
    if (k->opened && k->level >= FSDPCK_LEVEL_CHECKSUM)
        printf("  read       %s of %s; %s compared with a checksum\n",
               report_bytes(a, sizeof a, k->bytes_read), report_bytes(b, sizeof b, k->bytes_total),
               report_bytes(n, sizeof n, k->bytes_summed));
    if (k->sampled || k->stopped)
        printf("  skipped    %s of %s, not read or read in part%s\n",
               report_bytes(a, sizeof a, k->skipped_nbytes),
               report_count(b, sizeof b, k->skipped_records, "record"),
               k->stopped ? ": --max-duration" : ": --sample");
    if (k->manifest_unhashed_files > 0 && !sizes_only)
        printf("  skipped    %s of the manifest, not compared with its CRC-64\n",
               report_count(a, sizeof a, k->manifest_unhashed_files, "file"));
    if (k->unchecked_nbytes > 0)
        printf("  unchecked  %s of %s have no checksum\n",
               report_bytes(a, sizeof a, k->unchecked_nbytes),
               report_count(b, sizeof b, k->unchecked_tensors, "tensor"));
    if (k->unread_tensors > 0)
        printf("  unread     %s of %s, see the findings; -v shows notes too\n",
               report_bytes(a, sizeof a, k->unread_nbytes),
               report_count(b, sizeof b, k->unread_tensors, "tensor"));
    verify_print_nearness(v);
    printf("  untested   %s\n", k->not_seen);
}

/* Errors about unsupported data alone are no verdict on the checkpoint. */
static int exit_code(const fsdpck_verify_info *k)
{
    if (k->errors == 0)
        return 0;
    return k->errors == k->unsupported ? FSDPCK_UNSUPPORTED : FSDPCK_FINDING;
}

/* Number of findings of one kind from `first` on; findings of one kind are adjacent. */
static uint64_t count_same_kind(const fsdpck_verify *v, const fsdpck_verify_info *k, uint64_t first)
{
    fsdpck_finding a = FSDPCK_INIT(fsdpck_finding), b = FSDPCK_INIT(fsdpck_finding);
    uint64_t end = first + 1;
    fsdpck_verify_get_finding(v, first, &a);
    for (; a.group != 0 && end < k->listed; end++) {
        fsdpck_verify_get_finding(v, end, &b);
        if (a.group != b.group || a.what->finding != b.what->finding ||
            strcmp(a.severity, b.severity) != 0)
            break;
    }
    return end - first;
}

static void print_findings(const cli *c, const fsdpck_verify *v, const fsdpck_verify_info *k)
{
    fsdpck_finding_id before = FSDPCK_FINDING_NONE;
    for (uint64_t i = 0; i < k->listed;) {
        fsdpck_finding f = FSDPCK_INIT(fsdpck_finding);
        const uint64_t alike = count_same_kind(v, k, i);
        const uint64_t told = alike > SAME_KIND_SHOWN ? SAME_KIND_SHOWN : alike;
        for (uint64_t n = 0; n < told; n++) {
            fsdpck_verify_get_finding(v, i + n, &f);
            if (!is_shown(c, &f))
                continue;
            print_finding(c, &f, before);
            before = f.what->finding;
        }
        if (alike > told && is_shown(c, &f))
            printf("... and %" PRIu64 " more such tensor%s [%s]; --json lists all\n", alike - told,
                   text_plural(alike - told), fsdpck_finding_name(f.what->finding));
        i += alike;
    }
    if (k->listed < k->errors + k->warnings + k->notes)
        printf("... and %" PRIu64 " more\n", k->errors + k->warnings + k->notes - k->listed);
}

/* Files of two saves may be mixed: then the model is of both too, whichever part shows it. */
static bool shows_two_saves(const fsdpck_finding *f, bool is_error)
{
    switch (f->what->finding) {
    case FSDPCK_FINDING_DCP_NEWER:
    case FSDPCK_FINDING_RANK_MIXED:
        return true;
    case FSDPCK_FINDING_CHUNK_OVERLAP:
    case FSDPCK_FINDING_DCP_MIXED:
    case FSDPCK_FINDING_RANK_DIFFER:
    case FSDPCK_FINDING_REPLICA_DIFFER:
        return is_error;
    default:
        return false;
    }
}

/* All errors are listed, and each is in the optimizer or another part than the model. */
static bool spares_model(const fsdpck_verify *v, const fsdpck_verify_info *k,
                         const fsdpck_info *source)
{
    uint64_t spared = 0;
    for (uint64_t i = 0; i < k->listed; i++) {
        fsdpck_finding f = FSDPCK_INIT(fsdpck_finding);
        fsdpck_verify_get_finding(v, i, &f);
        const bool is_error = strcmp(f.severity, "error") == 0;
        if (shows_two_saves(&f, is_error))
            return false;
        spared += is_error && f.part > (int)FSDPCK_PART_MODEL;
    }
    return k->opened && k->errors > 0 && spared == k->errors &&
           source->part_tensors[FSDPCK_PART_MODEL] > 0;
}

/* "" if there is none. */
static text_buf next_of(const command_options *given, const fsdpck_verify *v,
                        const fsdpck_verify_info *k, const fsdpck_info *source)
{
    text_buf text = {0};
    if (spares_model(v, k, source))
        next_command_model(&text, given, source->path);
    return text;
}

static void print_next(const command_options *given, const fsdpck_verify *v,
                       const fsdpck_verify_info *k, const fsdpck_info *source)
{
    text_buf next = next_of(given, v, k, source);
    if (next.nbytes > 0 && !next.failed)
        printf("  model      no error; save it alone: %.*s\n", (int)next.nbytes, next.text);
    text_release(&next);
}

int verify_print_text(const cli *c, const command_options *given, const char *path,
                      const char *like, const fsdpck_verify *v)
{
    fsdpck_verify_info k = FSDPCK_INIT(fsdpck_verify_info);
    fsdpck_info source = FSDPCK_INIT(fsdpck_info);
    fsdpck_verify_get_info(v, &k);
    fsdpck_verify_get_source(v, &source);
    print_findings(c, v, &k);
    if (k.statistics > 0 && !verify_print_statistics(c, v))
        return report_no_memory(c);
    if (!c->quiet && !verify_print_roles(c, v))
        return report_no_memory(c);
    if (!c->quiet)
        print_summary(c, path, like, v, &k, &source);
    if (!c->quiet)
        print_next(given, v, &k, &source);
    return exit_code(&k);
}

static void put_field(json_writer *w, const char *key, const char *text)
{
    json_member_string(w, key, text[0] == '\0' ? NULL : text);
}

static void put_finding(const cli *c, json_writer *w, const fsdpck_finding *f)
{
    const fsdpck_error *e = f->what;
    warnings_begin_finding(w, e->finding, f->severity, e->message,
                           report_next(e->finding, e->next));
    report_path(w, "path", e->path);
    put_field(w, "tensor", e->tensor);
    if (e->has_offset)
        json_member_u64(w, "offset", e->offset_bytes);
    put_field(w, "expected", e->expected);
    put_field(w, "found", e->found);
    put_field(w, "part", f->part < 0 ? "" : fsdpck_part_name((fsdpck_part)f->part));
    report_all_names(c, w, e);
    json_end_object(w);
}

static void put_totals(json_report *r, const fsdpck_verify_info *k, const fsdpck_info *source)
{
    REPORT_MEMBER_COUNTS(r, REPORT_COUNTS, {"errors", k->errors}, {"warnings", k->warnings},
                         {"notes", k->notes}, {"ignored", k->ignored}, {"tensors", source->tensors},
                         {"chunks", source->chunks}, {"files", source->files},
                         {"tensor_bytes", source->nbytes}, {"file_bytes", source->file_nbytes},
                         {"state_files", k->state_files}, {"records", k->records},
                         {"bytes", k->bytes_total}, {"bytes_read", k->bytes_read},
                         {"bytes_summed", k->bytes_summed});
    if (k->proved_tensors > 0)
        JSON_MEMBER_COUNTS(&r->w, "map_proof", {"tensors", k->proved_tensors},
                           {"rounded", k->proved_rounded});
    if (k->manifest)
        JSON_MEMBER_COUNTS(&r->w, "manifest", {"files", k->manifest_files},
                           {"tensors", k->manifest_tensors}, {"bytes_summed", k->manifest_nbytes},
                           {"skipped_files", k->manifest_unhashed_files});
    REPORT_MEMBER_COUNTS(
        r, REPORT_UNCHECKED, {"tensors", k->unchecked_tensors}, {"bytes", k->unchecked_nbytes},
        {"unread_tensors", k->unread_tensors}, {"unread_bytes", k->unread_nbytes},
        {"skipped_records", k->skipped_records}, {"skipped_bytes", k->skipped_nbytes},
        {"state_files", k->unchecked_state_files});
}

/* A sample is never "clean". */
static const char *verdict_of(const fsdpck_verify_info *k)
{
    if (k->errors > 0 && k->errors == k->unsupported)
        return "none";
    if (k->errors + k->warnings > 0)
        return "findings";
    return k->sampled || k->stopped ? "unfinished" : "clean";
}

/* No verdict, because of the first error: the report is that of a failed run too. */
static void put_failure(json_report *r, const fsdpck_verify *v)
{
    fsdpck_finding f = FSDPCK_INIT(fsdpck_finding);
    fsdpck_verify_get_finding(v, 0, &f);
    report_put_error(r, f.what);
}

static void put_next(json_report *r, text_buf next)
{
    if (next.nbytes == 0)
        return;
    report_begin_member(r, REPORT_NEXT);
    next_command_put(&r->w, &next);
    json_end_array(&r->w);
}

int verify_print_json(const cli *c, const command_options *given, const char *like,
                      const fsdpck_verify *v)
{
    fsdpck_info source = FSDPCK_INIT(fsdpck_info);
    fsdpck_verify_info k = FSDPCK_INIT(fsdpck_verify_info);
    fsdpck_verify_get_info(v, &k);
    const int code = exit_code(&k);
    const bool opened = fsdpck_verify_get_source(v, &source) != 0;
    /* Without any finding, a reader's warning is only a note here. */
    const bool warned = k.errors + k.warnings > 0 && warnings_any(c);
    json_report r;
    json_writer *const w = report_begin_bare(&r, c, code, warned ? "findings" : verdict_of(&k),
                                             opened ? &source : NULL);
    json_member_string(w, "level", level_name(k.level));
    json_member_bool(w, "sampled", k.sampled);
    json_member_bool(w, "out_of_time", k.stopped);
    json_member_string(w, "not_seen", k.not_seen);
    put_totals(&r, &k, &source);
    report_path(w, "like", like);
    verify_put_nearness(w, v);
    report_begin_member(&r, REPORT_FINDINGS); /* with the warnings */
    for (uint64_t i = 0; i < k.listed; i++) {
        fsdpck_finding f = FSDPCK_INIT(fsdpck_finding);
        fsdpck_verify_get_finding(v, i, &f);
        put_finding(c, w, &f);
    }
    json_end_array(w);
    if (code == FSDPCK_UNSUPPORTED && k.listed > 0)
        put_failure(&r, v);
    else
        put_next(&r, next_of(given, v, &k, &source));
    if (k.statistics > 0)
        verify_put_statistics(&r, v);
    verify_put_near_lists(&r, v);
    return report_end(&r);
}
