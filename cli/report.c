#include "report.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

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
static cJSON *new_text(const char *text)
{
    const size_t nbytes = strlen(text);
    char *escaped = malloc(4 * nbytes + 1);
    if (escaped == NULL)
        return NULL;
    cJSON *string = cJSON_CreateString(fsdpck_escape(escaped, 4 * nbytes + 1, text, nbytes));
    free(escaped);
    return string;
}

static void add_text(cJSON *object, const char *key, const char *text)
{
    if (text != NULL && text[0] != '\0')
        cJSON_AddItemToObject(object, key, new_text(text));
}

static void add_source(cJSON *envelope, const fsdpck_info *source)
{
    cJSON *s = cJSON_AddObjectToObject(envelope, "source");
    if (source == NULL || s == NULL)
        return;
    add_text(s, "path", source->path);
    add_text(s, "format", source->format);
    add_text(s, "trainer", source->trainer);
    add_text(s, "torch_version", source->torch_version);
    if (source->step >= 0)
        cJSON_AddNumberToObject(s, "step", (double)source->step);
    if (source->world_size >= 0)
        cJSON_AddNumberToObject(s, "world_size", (double)source->world_size);
    add_text(s, "mesh", source->mesh);
    if (source->sharded_otherwise > 0)
        cJSON_AddNumberToObject(s, "cut_otherwise", (double)source->sharded_otherwise);
}

cJSON *report_json_begin(const cli *c, int exit_code, const char *verdict,
                         const fsdpck_info *source)
{
    cJSON *e = cJSON_CreateObject();
    if (e == NULL)
        return NULL;
    cJSON_AddStringToObject(e, "schema", "fsdpck-1");
    cJSON_AddStringToObject(e, "command", c->command);
    cJSON_AddNumberToObject(e, "exit_code", exit_code);
    const bool any = warnings_any(c);
    cJSON_AddStringToObject(e, "verdict", any ? "findings" : verdict);
    add_source(e, source);
    cJSON_AddNumberToObject(e, "seconds", report_seconds_since(c->started_seconds));
    cJSON_AddNumberToObject(e, "peak_rss", (double)peak_rss_bytes());
    warnings_add_json(c, cJSON_AddArrayToObject(e, "findings"));
    return e;
}

/* Adds the members that every envelope has, empty if the command has not set them. */
static void fill_missing(cJSON *e)
{
    static const char *const lists[] = {"outputs", "findings", "next"};
    static const char *const objects[] = {"counts", "unchecked", "error"};
    for (size_t i = 0; i < 3; i++) {
        if (!cJSON_HasObjectItem(e, lists[i]))
            cJSON_AddArrayToObject(e, lists[i]);
        if (!cJSON_HasObjectItem(e, objects[i]))
            cJSON_AddObjectToObject(e, objects[i]);
    }
}

int report_json_print(cJSON *envelope, int exit_code)
{
    fill_missing(envelope);
    char *text = cJSON_Print(envelope);
    cJSON_Delete(envelope);
    if (text == NULL) {
        fprintf(stderr, "fsdpck: out of memory for the report\n");
        return FSDPCK_LIMIT;
    }
    puts(text);
    free(text);
    return exit_code;
}

/* cJSON ends an object with "\n}"; the last two bytes are omitted so that members can follow. */
void report_stream_begin(report_stream *s, cJSON *envelope)
{
    *s = (report_stream){.first = true};
    fill_missing(envelope);
    char *text = cJSON_Print(envelope);
    cJSON_Delete(envelope);
    const size_t nbytes = text == NULL ? 0 : strlen(text);
    s->failed = nbytes < 2;
    if (!s->failed)
        fwrite(text, 1, nbytes - 2, stdout);
    free(text);
}

void report_stream_list(report_stream *s, const char *key)
{
    s->first = true;
    if (!s->failed)
        printf(",\n\t\"%s\":\t[", key);
}

void report_stream_item(report_stream *s, cJSON *item)
{
    char *text = s->failed || item == NULL ? NULL : cJSON_PrintUnformatted(item);
    cJSON_Delete(item);
    s->failed = s->failed || text == NULL;
    if (text != NULL)
        printf("%s\n\t\t%s", s->first ? "" : ",", text);
    s->first = false;
    free(text);
}

void report_stream_list_end(report_stream *s)
{
    if (!s->failed)
        fputs("]", stdout);
}

int report_stream_end(report_stream *s, int exit_code)
{
    if (s->failed) {
        fprintf(stderr, "fsdpck: out of memory for the report\n");
        return FSDPCK_LIMIT;
    }
    puts("\n}");
    return exit_code;
}

void report_json_name(cJSON *object, const char *key, const char *name, size_t nbytes)
{
    char escaped[1024];
    cJSON_AddStringToObject(object, key, fsdpck_escape(escaped, sizeof escaped, name, nbytes));
}

void report_json_sizes(cJSON *object, const char *key, const uint64_t *sizes, unsigned count)
{
    cJSON *list = cJSON_AddArrayToObject(object, key);
    for (unsigned i = 0; i < count; i++)
        cJSON_AddItemToArray(list, cJSON_CreateNumber((double)sizes[i]));
}

void report_json_names(cJSON *object, const char *key, char *const *names, size_t count)
{
    cJSON *list = cJSON_AddArrayToObject(object, key);
    for (size_t i = 0; i < count && list != NULL; i++)
        cJSON_AddItemToArray(list, new_text(names[i]));
}

void report_json_add_name(cJSON *list, const char *name)
{
    cJSON_AddItemToArray(list, new_text(name));
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

static void failure_text(const cli *c, const fsdpck_error *err)
{
    fprintf(stderr, "fsdpck%s%s: ", c->command[0] == '\0' ? "" : " ", c->command);
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

static int failure_json(const cli *c, const fsdpck_info *source, const fsdpck_error *err)
{
    const fsdpck_finding_id finding =
        err->finding != FSDPCK_FINDING_NONE ? err->finding : fsdpck_status_finding(err->status);
    const char *next_step = report_next(finding, err->next);
    cJSON *e =
        report_json_begin(c, (int)err->status, is_of_input(finding) ? "findings" : "none", source);
    if (e == NULL)
        return (int)err->status;
    if (finding != FSDPCK_FINDING_NONE)
        warnings_add_finding(cJSON_GetObjectItem(e, "findings"), finding, "error", err->message,
                             next_step);
    cJSON *o = cJSON_AddObjectToObject(e, "error");
    cJSON_AddStringToObject(o, "status", fsdpck_status_name(err->status));
    add_text(o, "finding", fsdpck_finding_name(finding));
    add_text(o, "message", err->message);
    add_text(o, "path", err->path);
    add_text(o, "tensor", err->tensor);
    if (err->has_offset)
        cJSON_AddNumberToObject(o, "offset", (double)err->offset_bytes);
    add_text(o, "expected", err->expected);
    add_text(o, "found", err->found);
    if (err->sys_errno != 0)
        cJSON_AddNumberToObject(o, "errno", err->sys_errno);
    cJSON *next = cJSON_AddArrayToObject(e, "next");
    if (next_step[0] != '\0')
        report_json_add_name(next, next_step);
    return report_json_print(e, (int)err->status);
}

int report_failure(const cli *c, const fsdpck_info *source, const fsdpck_error *err)
{
    if (c->json)
        return failure_json(c, source, err);
    failure_text(c, err);
    return (int)err->status;
}
