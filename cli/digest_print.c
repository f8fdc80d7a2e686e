#include "digest_print.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "report.h"

/* Most names of omitted tensors and objects without --verbose. */
#define NAMES_SHOWN 5u

static int no_memory(const cli *c)
{
    fprintf(stderr, "fsdpck %s: out of memory\n", c->command);
    return FSDPCK_LIMIT;
}

/* Objects have no digests: with --quiet, only omitted tensors are reported. */
static void note_left_out(const cli *c, const fsdpck_digests_info *k)
{
    char a[40], b[40], n[40];
    const bool some = k->left_out_tensors > 0 || (k->left_out_objects > 0 && !c->quiet);
    if (!some)
        return;
    flockfile(stderr);
    fprintf(stderr, "fsdpck %s: %sleft out: %s", c->command, c->quiet ? "warning: " : "",
            report_count(a, sizeof a, k->left_out_tensors, "tensor"));
    if (k->left_out_tensors > 0)
        fprintf(stderr, " (%s)", report_bytes(n, sizeof n, k->left_out_nbytes));
    fprintf(stderr, ", %s\n", report_count(b, sizeof b, k->left_out_objects, "object"));
    const size_t shown = c->verbose > 0 ? SIZE_MAX : NAMES_SHOWN;
    fputs("  ", stderr);
    for (size_t i = 0; i < k->left_out_names_count && i < shown; i++)
        fprintf(stderr, "%s%s", i == 0 ? "" : ", ", k->left_out_names[i]);
    fputs(k->left_out_names_count > shown ? ", ...\n" : "\n", stderr);
    funlockfile(stderr);
}

int digest_print_text(const cli *c, const convert_request *r, const fsdpck_digests *d)
{
    fsdpck_digests_info k = FSDPCK_INIT(fsdpck_digests_info);
    fsdpck_digests_get_info(d, &k);
    if (c->quiet && r->job.output.manifest_path != NULL) {
        note_left_out(c, &k);
        return 0;
    }
    for (uint64_t i = 0; i < k.tensors; i++) {
        fsdpck_digest t = FSDPCK_INIT(fsdpck_digest);
        fsdpck_digests_get(d, i, &t);
        const size_t capacity = 4 * t.name_nbytes + 1;
        char *name = malloc(capacity);
        if (name == NULL)
            return no_memory(c);
        printf("%016" PRIx64 "  %s  %s\n", t.value, t.type,
               fsdpck_escape(name, capacity, t.name, t.name_nbytes));
        free(name);
    }
    printf("%016" PRIx64 "  whole  %" PRIu64 " tensor%s\n", k.whole, k.tensors,
           k.tensors == 1 ? "" : "s");
    note_left_out(c, &k);
    return 0;
}

static void add_hex(cJSON *object, const char *key, uint64_t value)
{
    char hex[20];
    snprintf(hex, sizeof hex, "%016" PRIx64, value);
    cJSON_AddStringToObject(object, key, hex);
}

static void add_counts(cJSON *e, const fsdpck_digests_info *k)
{
    cJSON *n = cJSON_AddObjectToObject(e, "counts");
    cJSON_AddNumberToObject(n, "tensors", (double)k->tensors);
    cJSON_AddNumberToObject(n, "bytes", (double)k->nbytes);
    cJSON_AddNumberToObject(n, "bytes_read", (double)k->bytes_read);
    cJSON *left_out = cJSON_AddObjectToObject(n, "left_out");
    cJSON_AddNumberToObject(left_out, "tensors", (double)k->left_out_tensors);
    cJSON_AddNumberToObject(left_out, "objects", (double)k->left_out_objects);
    cJSON_AddNumberToObject(left_out, "bytes", (double)k->left_out_nbytes);
    cJSON_AddNumberToObject(n, "in", (double)k->tensors_in);
    cJSON_AddNumberToObject(n, "in_bytes", (double)k->nbytes_in);
    cJSON_AddNumberToObject(n, "tied_dropped", (double)k->tied_dropped);
    cJSON_AddNumberToObject(n, "tied_dropped_bytes", (double)k->tied_dropped_nbytes);
    report_json_names(e, "left_out", k->left_out_names, k->left_out_names_count);
    add_hex(e, "digest", k->whole);
}

static void add_manifest(cJSON *e, const convert_request *r)
{
    cJSON *outputs = cJSON_AddArrayToObject(e, "outputs");
    if (r->job.output.manifest_path != NULL)
        report_json_add_name(outputs, r->job.output.manifest_path);
}

int digest_print_json(const cli *c, const convert_request *r, const fsdpck_info *info,
                      const fsdpck_digests *d)
{
    fsdpck_digests_info k = FSDPCK_INIT(fsdpck_digests_info);
    fsdpck_digests_get_info(d, &k);
    cJSON *e = report_json_begin(c, 0, "none", info);
    if (e == NULL)
        return no_memory(c);
    add_counts(e, &k);
    add_manifest(e, r);
    report_stream s;
    report_stream_begin(&s, e);
    report_stream_list(&s, "tensors");
    for (uint64_t i = 0; i < k.tensors; i++) {
        fsdpck_digest t = FSDPCK_INIT(fsdpck_digest);
        fsdpck_digests_get(d, i, &t);
        cJSON *o = cJSON_CreateObject();
        report_json_name(o, "name", t.name, t.name_nbytes);
        cJSON_AddStringToObject(o, "dtype", t.dtype);
        report_json_sizes(o, "shape", t.shape, t.ndim);
        cJSON_AddNumberToObject(o, "bytes", (double)t.nbytes);
        add_hex(o, "digest", t.value);
        report_stream_item(&s, o);
    }
    report_stream_list_end(&s);
    return report_stream_end(&s, 0);
}

/* ---- files ---- */

static void print_hex(const uint8_t *bytes)
{
    for (unsigned i = 0; i < 32; i++)
        printf("%02x", bytes[i]);
}

/* Names as sha256sum writes them: one that needs escapes has a backslash before the line. */
static void print_checksum(const fsdpck_file *f)
{
    if (strpbrk(f->name, "\\\n\r") != NULL)
        putchar('\\');
    print_hex(f->sha256);
    fputs("  ", stdout);
    for (const char *p = f->name; *p != '\0'; p++) {
        if (*p == '\\')
            fputs("\\\\", stdout);
        else if (*p == '\n')
            fputs("\\n", stdout);
        else if (*p == '\r')
            fputs("\\r", stdout);
        else
            putchar(*p);
    }
    putchar('\n');
}

static int print_files_json(const cli *c, const fsdpck_info *info, const fsdpck_files *files)
{
    cJSON *e = report_json_begin(c, 0, "none", info);
    if (e == NULL)
        return no_memory(c);
    cJSON *list = cJSON_AddArrayToObject(e, "files");
    for (size_t i = 0; i < fsdpck_files_count(files); i++) {
        fsdpck_file f = FSDPCK_INIT(fsdpck_file);
        char hex[65];
        fsdpck_files_get(files, i, &f);
        for (unsigned k = 0; k < 32; k++)
            snprintf(hex + 2 * k, 3, "%02x", f.sha256[k]);
        cJSON *o = cJSON_CreateObject();
        report_json_name(o, "name", f.name, strlen(f.name));
        cJSON_AddNumberToObject(o, "bytes", (double)f.nbytes);
        add_hex(o, "crc64", f.crc64);
        cJSON_AddStringToObject(o, "sha256", hex);
        cJSON_AddItemToArray(list, o);
    }
    return report_json_print(e, 0);
}

int digest_print_files(const cli *c, const fsdpck_info *info, const fsdpck_files *files)
{
    if (c->json)
        return print_files_json(c, info, files);
    for (size_t i = 0; i < fsdpck_files_count(files); i++) {
        fsdpck_file f = FSDPCK_INIT(fsdpck_file);
        fsdpck_files_get(files, i, &f);
        print_checksum(&f);
    }
    return 0;
}

/* ---- comparison with a list ---- */

/* Names of the list that are not in the checkpoint, to guess the reason. */
#define MISSING_NOTED 16u

static const char part_next[] = "give --part model: the list seems to contain the model part only";

typedef struct check_printer {
    const cli *c;
    cJSON *findings; /* with --json */
    uint64_t counts[FSDPCK_DIGEST_EXTRA + 1];
    char *missing[MISSING_NOTED];
    size_t missing_count;
} check_printer;

static const struct {
    fsdpck_finding_id finding;
    const char *words;
} verdicts[] = {
    [FSDPCK_DIGEST_OK] = {FSDPCK_FINDING_NONE, "OK"},
    [FSDPCK_DIGEST_DIFFERS] = {FSDPCK_FINDING_DIGEST_DIFFERS, "digest differs"},
    [FSDPCK_DIGEST_TYPE_DIFFERS] = {FSDPCK_FINDING_DIGEST_TYPE, "different dtype or shape"},
    [FSDPCK_DIGEST_MISSING] = {FSDPCK_FINDING_DIGEST_MISSING, "not in the checkpoint"},
    [FSDPCK_DIGEST_EXTRA] = {FSDPCK_FINDING_DIGEST_EXTRA, "not in the list"},
};

/* Names come from the untrusted list; escaped text stays unchanged. */
static void print_name(const char *name, size_t nbytes)
{
    const size_t capacity = 4 * nbytes + 1;
    char *escaped = malloc(capacity);
    fputs(escaped == NULL ? "?" : fsdpck_escape(escaped, capacity, name, nbytes), stdout);
    free(escaped);
}

static void note_missing(check_printer *v, const fsdpck_digest_result *r)
{
    if (v->missing_count == MISSING_NOTED)
        return;
    char *copy = malloc(r->name_nbytes + 1);
    if (copy == NULL)
        return;
    memcpy(copy, r->name, r->name_nbytes);
    copy[r->name_nbytes] = '\0';
    v->missing[v->missing_count++] = copy;
}

static bool has_suffix(const char *name, size_t nbytes, const char *tail)
{
    const size_t n = strlen(tail);
    return nbytes > n && name[nbytes - n - 1] == '.' && memcmp(name + nbytes - n, tail, n) == 0;
}

/* Whether the list seems to be of the model part: the checkpoint contains its names, possibly below an
 * outer key, and further tensors. */
static bool is_of_part(const check_printer *v, const convert_request *r, const fsdpck_digests *d)
{
    bool seen[MISSING_NOTED] = {false};
    size_t found = 0;
    const uint64_t missing = v->counts[FSDPCK_DIGEST_MISSING];
    fsdpck_digests_info k = FSDPCK_INIT(fsdpck_digests_info);
    if (r->job.select.part >= 0 || v->counts[FSDPCK_DIGEST_EXTRA] <= missing ||
        v->counts[FSDPCK_DIGEST_OK] + missing == 0)
        return false;
    fsdpck_digests_get_info(d, &k);
    for (uint64_t i = 0; missing > 0 && i < k.tensors; i++) {
        fsdpck_digest t = FSDPCK_INIT(fsdpck_digest);
        fsdpck_digests_get(d, i, &t);
        for (size_t j = 0; j < v->missing_count; j++)
            if (!seen[j] && has_suffix(t.name, t.name_nbytes, v->missing[j])) {
                seen[j] = true;
                found++;
            }
    }
    return found == v->missing_count;
}

static void on_result(void *arg, const fsdpck_digest_result *r)
{
    check_printer *v = arg;
    v->counts[r->verdict]++;
    if (r->verdict == FSDPCK_DIGEST_MISSING)
        note_missing(v, r);
    const bool ok = r->verdict == FSDPCK_DIGEST_OK;
    if (v->findings == NULL) {
        if (ok && v->c->quiet)
            return;
        print_name(r->name, r->name_nbytes);
        printf(": %s%s", ok ? "" : "FAILED: ", verdicts[r->verdict].words);
        if (r->verdict == FSDPCK_DIGEST_TYPE_DIFFERS) {
            fputs(": expected ", stdout);
            print_name(r->expected, r->expected_nbytes);
            printf(", found %s", r->found);
        }
        putchar('\n');
        return;
    }
    if (ok)
        return;
    cJSON *o = cJSON_CreateObject();
    cJSON_AddStringToObject(o, "finding", fsdpck_finding_name(verdicts[r->verdict].finding));
    cJSON_AddStringToObject(o, "severity", "error");
    cJSON_AddStringToObject(o, "message", verdicts[r->verdict].words);
    cJSON_AddStringToObject(o, "next", report_next(verdicts[r->verdict].finding, ""));
    report_json_name(o, "tensor", r->name, r->name_nbytes);
    if (r->expected != NULL)
        report_json_name(o, "expected", r->expected, r->expected_nbytes);
    if (r->found != NULL)
        cJSON_AddStringToObject(o, "found", r->found);
    cJSON_AddItemToArray(v->findings, o);
}

static int finish_json(check_printer *v, const convert_request *r, const fsdpck_info *info,
                       const fsdpck_digests *d, uint64_t bad)
{
    fsdpck_digests_info k = FSDPCK_INIT(fsdpck_digests_info);
    fsdpck_digests_get_info(d, &k);
    const int code = bad == 0 ? 0 : FSDPCK_FINDING;
    cJSON *e = report_json_begin(v->c, code, bad == 0 ? "clean" : "findings", info);
    if (e == NULL) {
        cJSON_Delete(v->findings);
        return no_memory(v->c);
    }
    add_counts(e, &k);
    add_manifest(e, r);
    if (is_of_part(v, r, d))
        cJSON_AddItemToArray(cJSON_AddArrayToObject(e, "next"), cJSON_CreateString(part_next));
    cJSON *n = cJSON_AddObjectToObject(e, "checked");
    cJSON_AddNumberToObject(n, "ok", (double)v->counts[FSDPCK_DIGEST_OK]);
    cJSON_AddNumberToObject(
        n, "differ",
        (double)(v->counts[FSDPCK_DIGEST_DIFFERS] + v->counts[FSDPCK_DIGEST_TYPE_DIFFERS]));
    cJSON_AddNumberToObject(n, "missing", (double)v->counts[FSDPCK_DIGEST_MISSING]);
    cJSON_AddNumberToObject(n, "extra", (double)v->counts[FSDPCK_DIGEST_EXTRA]);
    cJSON *findings = cJSON_GetObjectItem(e, "findings"); /* contains the warnings */
    for (cJSON *o; (o = cJSON_DetachItemFromArray(v->findings, 0)) != NULL;)
        cJSON_AddItemToArray(findings, o);
    cJSON_Delete(v->findings);
    return report_json_print(e, code);
}

static int finish_text(const check_printer *v, const convert_request *r, const fsdpck_digests *d,
                       uint64_t bad)
{
    char a[40];
    if (bad == 0)
        return 0;
    fprintf(stderr, "fsdpck %s: mismatch with the list: %s\n", v->c->command,
            report_count(a, sizeof a, bad, "tensor"));
    if (is_of_part(v, r, d))
        fprintf(stderr, "  next:     %s\n", part_next);
    return FSDPCK_FINDING;
}

int digest_print_check(const cli *c, const convert_request *r, const fsdpck_info *info,
                       const fsdpck_digests *d, const char *list, size_t nbytes)
{
    check_printer v = {.c = c, .findings = c->json ? cJSON_CreateArray() : NULL};
    fsdpck_error err;
    uint64_t bad = 0;
    fsdpck_error_init(&err);
    if (c->json && v.findings == NULL)
        return no_memory(c);
    int code;
    if (fsdpck_digests_check(d, list, nbytes, on_result, &v, &bad, &err) != FSDPCK_OK) {
        cJSON_Delete(v.findings);
        fsdpck_escape(err.path, sizeof err.path, r->check_add_path, strlen(r->check_add_path));
        code = report_failure(c, info, &err);
    } else if (c->json) {
        code = finish_json(&v, r, info, d, bad);
    } else {
        code = finish_text(&v, r, d, bad);
    }
    for (size_t i = 0; i < v.missing_count; i++)
        free(v.missing[i]);
    return code;
}
