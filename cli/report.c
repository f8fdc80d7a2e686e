#include "report.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "base/utf8.h"
#include "fsdpck_verify.h"
#include "report_page.h"
#include "warnings.h"

double report_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

double report_seconds_since(double started)
{
    return report_now() - started;
}

char *report_number(char *text, size_t capacity, uint64_t n)
{
    char digits[32];
    const int count = snprintf(digits, sizeof digits, "%" PRIu64, n);
    size_t at = 0;
    for (int i = 0; i < count && at + 2 < capacity; i++) {
        if (i > 0 && (count - i) % 3 == 0)
            text[at++] = ',';
        text[at++] = digits[i];
    }
    text[at] = '\0';
    return text;
}

char *report_count(char *text, size_t capacity, uint64_t n, const char *noun)
{
    char number[32];
    snprintf(text, capacity, "%s %s%s", report_number(number, sizeof number, n), noun,
             n == 1 ? "" : "s");
    return text;
}

char *report_bytes(char *text, size_t capacity, uint64_t nbytes)
{
    static const char *const units[] = {"", "kB", "MB", "GB", "TB", "PB", "EB"};
    double n = (double)nbytes;
    size_t i = 0;
    while (n >= 999.5 && i < 6) {
        n /= 1000;
        i++;
    }
    if (i == 0)
        report_count(text, capacity, nbytes, "byte");
    else
        snprintf(text, capacity, "%.*f %s", n < 9.995 ? 2 : n < 99.95 ? 1 : 0, n, units[i]);
    return text;
}

char *report_shape(char *text, size_t capacity, const uint64_t *sizes, unsigned ndim)
{
    size_t n = (size_t)snprintf(text, capacity, "[");
    for (unsigned d = 0; d < ndim && n + 24 < capacity; d++)
        n += (size_t)snprintf(text + n, capacity - n, "%s%" PRIu64, d == 0 ? "" : ", ", sizes[d]);
    snprintf(text + n, capacity - n, "]");
    return text;
}

static long peak_rss_bytes(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_maxrss * 1024;
}

/* JSON is UTF-8, and command-line arguments may contain any byte. Escaped text stays unchanged. */
void report_put_text(json_writer *w, const char *text)
{
    const size_t nbytes = strlen(text);
    char *escaped = malloc(4 * nbytes + 1);
    if (escaped == NULL)
        w->out->failed = 1;
    else
        json_put_cstr(w, fsdpck_escape(escaped, 4 * nbytes + 1, text, nbytes));
    free(escaped);
}

void report_put_path(json_writer *w, const char *path)
{
    text_buf text = {0};
    for (const char *at = path; *at != '\0';) {
        uint32_t c;
        char byte[4];
        const unsigned n = utf8_decode((const uint8_t *)at, strlen(at), &c);
        if (n == 0) {
            snprintf(byte + 1, sizeof byte - 1, "%02X", (unsigned)(uint8_t)*at);
            byte[0] = '\0';
        }
        text_append(&text, n > 0 ? at : byte, n > 0 ? n : 3);
        at += n > 0 ? n : 1;
    }
    json_put_string(w, text.text, text.nbytes);
    w->out->failed |= text.failed;
    text_release(&text);
}

void report_path(json_writer *w, const char *key, const char *path)
{
    if (path == NULL || path[0] == '\0')
        return;
    json_put_key(w, key, strlen(key));
    report_put_path(w, path);
}

void report_paths(json_writer *w, const char *key, char *const *paths, size_t count)
{
    json_member_array(w, key);
    for (size_t i = 0; i < count; i++)
        report_put_path(w, paths[i]);
    json_end_array(w);
}

void report_set_path(fsdpck_error *err, const char *path)
{
    snprintf(err->path, sizeof err->path, "%s", path);
}

/* Adds nothing for "". */
static void add_text(json_writer *w, const char *key, const char *text)
{
    if (text == NULL || text[0] == '\0')
        return;
    json_put_key(w, key, strlen(key));
    report_put_text(w, text);
}

void report_put_source(json_writer *w, const char *key, const fsdpck_info *source)
{
    json_member_object(w, key);
    report_path(w, "path", source->path);
    add_text(w, "format", source->format);
    add_text(w, "trainer", source->trainer);
    add_text(w, "torch_version", source->torch_version);
    if (source->step >= 0) {
        json_member_i64(w, "step", source->step);
        add_text(w, "step_source", source->step_source);
    }
    if (source->world_size >= 0)
        json_member_i64(w, "world_size", source->world_size);
    if (source->recorded_world_size > 0)
        json_member_i64(w, "recorded_world_size", source->recorded_world_size);
    add_text(w, "mesh", source->mesh);
    if (source->sharded_otherwise > 0)
        json_member_u64(w, "cut_otherwise", source->sharded_otherwise);
    json_end_object(w);
}

static void add_source(const cli *c, json_writer *w, const fsdpck_info *source)
{
    if (source != NULL) {
        report_put_source(w, "source", source);
        return;
    }
    json_member_object(w, "source");
    report_path(w, "path", c->source_path);
    json_end_object(w);
}

/* The text of a json_report. */
static void print(text_buf *text)
{
    json_report *r = (json_report *)((char *)text - offsetof(json_report, text));
    if (r->page != NULL)
        report_page_put(r->page, text->text, text->nbytes);
    else
        fwrite(text->text, 1, text->nbytes, stdout);
    text->nbytes = 0;
}

/* In a page alone: a report of the same run is otherwise the same text. */
static void put_run(json_writer *w, const report_page *page)
{
    char text[32];
    const time_t now = time(NULL);
    struct tm utc;
    if (gmtime_r(&now, &utc) != NULL && strftime(text, sizeof text, "%Y-%m-%d %H:%M UTC", &utc) > 0)
        json_member_string(w, "time", text);
    json_member_string(w, "version", fsdpck_version());
    report_path(w, "destination", page->destination);
    json_member_array(w, "arguments");
    for (const char *const *word = page->words; *word != NULL; word++)
        report_put_path(w, *word);
    json_end_array(w);
    json_member_array(w, "remarks");
    for (size_t at = 0; at < page->notes_nbytes; at += strlen(page->notes + at) + 1)
        report_put_text(w, page->notes + at);
    json_end_array(w);
}

json_writer *report_begin_bare(json_report *r, const cli *c, int exit_code, const char *verdict,
                               const fsdpck_info *source)
{
    json_writer *const w = &r->w;
    *r = (json_report){.exit_code = exit_code, .page = c->page->path != NULL ? c->page : NULL};
    json_writer_init(w, &r->text, JSON_TABS);
    w->drain = print;
    json_begin_object(w);
    json_member_string(w, "schema", "fsdpck-1");
    json_member_string(w, "command", c->command);
    json_member_i64(w, "exit_code", exit_code);
    json_member_string(w, "verdict", verdict);
    add_source(c, w, source);
    if (r->page != NULL)
        put_run(w, r->page);
    json_member_double(w, "seconds", report_seconds_since(c->started_seconds));
    if (fsdpck_context_world_size(c->ctx) > 1)
        json_member_double(w, "join_seconds", c->join_seconds);
    json_member_i64(w, "peak_rss", peak_rss_bytes());
    return w;
}

json_writer *report_begin_findings(json_report *r, const cli *c, int exit_code, const char *verdict,
                                   const fsdpck_info *source)
{
    report_begin_bare(r, c, exit_code, warnings_any(c) ? "findings" : verdict, source);
    report_begin_member(r, REPORT_FINDINGS);
    warnings_put(c, &r->w);
    return &r->w;
}

json_writer *report_begin(json_report *r, const cli *c, int exit_code, const char *verdict,
                          const fsdpck_info *source)
{
    json_end_array(report_begin_findings(r, c, exit_code, verdict, source));
    return &r->w;
}

static const struct {
    const char *key;
    bool is_list;
} members[REPORT_MEMBERS] = {
    [REPORT_OUTPUTS] = {"outputs", true},   [REPORT_COUNTS] = {"counts", false},
    [REPORT_FINDINGS] = {"findings", true}, [REPORT_UNCHECKED] = {"unchecked", false},
    [REPORT_NEXT] = {"next", true},         [REPORT_ERROR] = {"error", false},
};

void report_begin_member(json_report *r, report_member member)
{
    r->written |= 1u << member;
    if (members[member].is_list)
        json_member_array(&r->w, members[member].key);
    else
        json_member_object(&r->w, members[member].key);
}

void report_member_counts(json_report *r, report_member member, const json_count *counts)
{
    report_begin_member(r, member);
    json_put_counts(&r->w, counts);
    json_end_object(&r->w);
}

/* Adds the members that every envelope has, empty if the command has not set them. */
static void fill_missing(json_report *r)
{
    for (unsigned i = 0; i < REPORT_MEMBERS; i++) {
        if (r->written & 1u << i)
            continue;
        report_begin_member(r, (report_member)i);
        if (members[i].is_list)
            json_end_array(&r->w);
        else
            json_end_object(&r->w);
    }
}

void report_list(json_report *r, const char *key)
{
    fill_missing(r);
    json_member_array(&r->w, key);
}

int report_end(json_report *r)
{
    fill_missing(r);
    json_end_object(&r->w);
    text_puts(&r->text, "\n");
    if (r->text.failed) {
        fprintf(stderr, "fsdpck: out of memory for the report\n");
        r->exit_code = FSDPCK_LIMIT;
    } else {
        print(&r->text);
    }
    if (r->page != NULL && !report_page_finish(r->page, !r->text.failed) && !r->text.failed)
        r->exit_code = FSDPCK_IO;
    text_release(&r->text);
    return r->exit_code;
}

void report_items_init(report_items *items)
{
    *items = (report_items){0};
    json_writer_init(&items->w, &items->text, JSON_TABS);
    items->w.depth = 2; /* in a member of the envelope */
}

void report_put_items(json_writer *w, const report_items *items)
{
    json_put_raw(w, items->text.text, items->text.nbytes);
    w->out->failed |= items->text.failed;
}

void report_items_release(report_items *items)
{
    text_release(&items->text);
}

void report_name(json_writer *w, const char *key, const char *name, size_t nbytes)
{
    char escaped[1024];
    json_member_string(w, key, fsdpck_escape(escaped, sizeof escaped, name, nbytes));
}

void report_texts(json_writer *w, const char *key, char *const *texts, size_t count)
{
    json_member_array(w, key);
    for (size_t i = 0; i < count; i++)
        report_put_text(w, texts[i]);
    json_end_array(w);
}

typedef const char *next_name(fsdpck_context *ctx, const fsdpck_error *what, size_t *cursor);

static void put_names(const cli *c, json_writer *w, const char *key, const fsdpck_error *what,
                      next_name *next, void (*put)(json_writer *w, const char *name))
{
    size_t cursor = 0;
    const char *name = next(c->ctx, what, &cursor);
    if (name == NULL)
        return;
    json_member_array(w, key);
    for (; name != NULL; name = next(c->ctx, what, &cursor))
        put(w, name);
    json_end_array(w);
}

void report_all_names(const cli *c, json_writer *w, const fsdpck_error *what)
{
    put_names(c, w, "files", what, fsdpck_context_missing_file, report_put_path);
    put_names(c, w, "tensors", what, fsdpck_context_named_tensor, report_put_text);
}

const char *report_next(fsdpck_finding_id finding, const char *next)
{
    fsdpck_finding_kind kind = FSDPCK_INIT(fsdpck_finding_kind);
    return next[0] == '\0' && fsdpck_finding_kind_get(finding, &kind) ? kind.next : next;
}

static void print_text(const char *lead, const char *text, const char *tail)
{
    char escaped[4200];
    if (text[0] != '\0')
        fprintf(stderr, "%s%s%s", lead, fsdpck_escape(escaped, sizeof escaped, text, strlen(text)),
                tail);
}

void report_failure_text(const cli *c, const fsdpck_error *err)
{
    if (c->json && c->page->path == NULL)
        return;
    fprintf(stderr, "%sfsdpck%s%s:%s ", paint(&c->err, PAINT_ERROR),
            c->command[0] == '\0' ? "" : " ", c->command, paint(&c->err, PAINT_END));
    print_text("'", err->path, "': ");
    print_text("", err->message, "");
    print_text(" [", fsdpck_finding_name(err->finding), "]");
    fputc('\n', stderr);
    print_text("  tensor:   ", err->tensor, "\n");
    if (err->has_offset)
        fprintf(stderr, "  offset:   byte %" PRIu64 "\n", err->offset_bytes);
    print_text("  expected: ", err->expected, "\n");
    print_text("  found:    ", err->found, "\n");
    print_text("  next:     ", report_next(err->finding, err->next), "\n");
}

/* Whether the finding is a defect of the input, not of the machine or its limits. */
static bool is_of_input(fsdpck_finding_id finding)
{
    fsdpck_finding_kind kind = FSDPCK_INIT(fsdpck_finding_kind);
    return fsdpck_finding_kind_get(finding, &kind) && !kind.is_environmental;
}

static fsdpck_finding_id finding_of(const fsdpck_error *err)
{
    return err->finding != FSDPCK_FINDING_NONE ? err->finding : fsdpck_status_finding(err->status);
}

void report_put_error(json_report *r, const fsdpck_error *err)
{
    const fsdpck_finding_id finding = finding_of(err);
    const char *next_step = report_next(finding, err->next);
    json_writer *const w = &r->w;
    report_begin_member(r, REPORT_ERROR);
    json_member_string(w, "status", fsdpck_status_name(err->status));
    add_text(w, "finding", fsdpck_finding_name(finding));
    add_text(w, "message", err->message);
    report_path(w, "path", err->path);
    add_text(w, "tensor", err->tensor);
    if (err->has_offset)
        json_member_u64(w, "offset", err->offset_bytes);
    add_text(w, "expected", err->expected);
    add_text(w, "found", err->found);
    if (err->sys_errno != 0)
        json_member_i64(w, "errno", err->sys_errno);
    json_end_object(w);
    report_begin_member(r, REPORT_NEXT);
    if (next_step[0] != '\0')
        report_put_text(w, next_step);
    json_end_array(w);
}

json_writer *report_begin_failure(json_report *r, const cli *c, const fsdpck_info *source,
                                  const fsdpck_error *err)
{
    const fsdpck_finding_id finding = finding_of(err);
    json_writer *const w = report_begin_findings(
        r, c, (int)err->status, is_of_input(finding) ? "findings" : "none", source);
    if (finding != FSDPCK_FINDING_NONE) {
        warnings_begin_finding(w, finding, "error", err->message, report_next(finding, err->next));
        report_path(w, "path", err->path);
        report_all_names(c, w, err);
        json_end_object(w);
    }
    json_end_array(w);
    report_put_error(r, err);
    return w;
}

int report_no_memory(const cli *c)
{
    fprintf(stderr, "%sfsdpck %s:%s out of memory\n", paint(&c->err, PAINT_ERROR), c->command,
            paint(&c->err, PAINT_END));
    return FSDPCK_LIMIT;
}

int report_failure(const cli *c, const fsdpck_info *source, const fsdpck_error *err)
{
    json_report r;
    report_failure_text(c, err);
    if (!c->json)
        return (int)err->status;
    report_begin_failure(&r, c, source, err);
    return report_end(&r);
}
