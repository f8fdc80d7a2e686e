#include "digest_print.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "map_print.h"
#include "report.h"
#include "warnings.h"

/* Most names of omitted tensors and objects without --verbose. */
#define NAMES_SHOWN 5u

/* Objects have no digests: with --quiet, only omitted tensors are reported. */
static void note_left_out(const cli *c, const fsdpck_digests_info *k)
{
    char a[40], b[40], n[40];
    const bool some = k->left_out_tensors > 0 || (k->left_out_objects > 0 && !c->quiet);
    if (!some)
        return;
    flockfile(stderr);
    fprintf(stderr, "fsdpck %s: ", c->command);
    if (c->quiet)
        fprintf(stderr, "%swarning:%s ", paint(&c->err, PAINT_WARNING), paint(&c->err, PAINT_END));
    fprintf(stderr, "left out: %s", report_count(a, sizeof a, k->left_out_tensors, "tensor"));
    if (k->left_out_tensors > 0)
        fprintf(stderr, " (%s)", report_bytes(n, sizeof n, k->left_out_nbytes));
    fprintf(stderr, ", %s\n", report_count(b, sizeof b, k->left_out_objects, "object"));
    const size_t shown = c->verbose > 0 ? SIZE_MAX : NAMES_SHOWN;
    fputs("  ", stderr);
    for (size_t i = 0; i < k->left_out_names_count && i < shown; i++)
        fprintf(stderr, "%s%s", i == 0 ? "" : ", ", k->left_out_names[i]);
    if (k->left_out_names_count > shown)
        fprintf(stderr, ", and %zu more (-v lists all)", k->left_out_names_count - shown);
    fputs("\n", stderr);
    funlockfile(stderr);
}

/* On stderr: stdout has the list that --check reads. */
static void print_written(const char *path)
{
    char name[1024];
    fflush(stdout);
    fprintf(stderr, "fsdpck digest: manifest '%s' is written\n",
            fsdpck_escape(name, sizeof name, path, strlen(path)));
}

int digest_print_text(const cli *c, const command_request *r, const fsdpck_digests *d)
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
            return report_no_memory(c);
        printf("%016" PRIx64 "  %s  %s\n", t.value, t.type,
               fsdpck_escape(name, capacity, t.name, t.name_nbytes));
        free(name);
    }
    printf("%016" PRIx64 "  whole  %" PRIu64 " tensor%s\n", k.whole, k.tensors,
           k.tensors == 1 ? "" : "s");
    if (r->job.output.manifest_path != NULL)
        print_written(r->job.output.manifest_path);
    note_left_out(c, &k);
    return 0;
}

static void put_hex(json_writer *w, const char *key, uint64_t value)
{
    char hex[20];
    snprintf(hex, sizeof hex, "%016" PRIx64, value);
    json_member_string(w, key, hex);
}

static void put_counts(json_report *r, const fsdpck_digests_info *k)
{
    json_writer *const w = &r->w;
    report_begin_member(r, REPORT_COUNTS);
    JSON_COUNTS(w, {"tensors", k->tensors}, {"bytes", k->nbytes}, {"bytes_read", k->bytes_read});
    JSON_MEMBER_COUNTS(w, "left_out", {"tensors", k->left_out_tensors},
                       {"objects", k->left_out_objects}, {"bytes", k->left_out_nbytes});
    JSON_COUNTS(w, {"in", k->tensors_in}, {"in_bytes", k->nbytes_in},
                {"tied_dropped", k->tied_dropped}, {"tied_dropped_bytes", k->tied_dropped_nbytes});
    json_end_object(w);
    report_texts(w, "left_out", k->left_out_names, k->left_out_names_count);
    put_hex(w, "digest", k->whole);
}

static void put_manifest(json_report *out, const command_request *r)
{
    report_begin_member(out, REPORT_OUTPUTS);
    if (r->job.output.manifest_path != NULL)
        report_put_path(&out->w, r->job.output.manifest_path);
    json_end_array(&out->w);
}

int digest_print_json(const cli *c, const command_request *r, const fsdpck_info *info,
                      const fsdpck_digests *d)
{
    fsdpck_digests_info k = FSDPCK_INIT(fsdpck_digests_info);
    json_report out;
    fsdpck_digests_get_info(d, &k);
    json_writer *const w = report_begin(&out, c, 0, "none", info);
    map_put_json(w, info);
    put_counts(&out, &k);
    put_manifest(&out, r);
    report_list(&out, "tensors");
    for (uint64_t i = 0; i < k.tensors; i++) {
        fsdpck_digest t = FSDPCK_INIT(fsdpck_digest);
        fsdpck_digests_get(d, i, &t);
        json_begin_line(w);
        report_name(w, "name", t.name, t.name_nbytes);
        json_member_string(w, "dtype", t.dtype);
        json_member_u64s(w, "shape", t.shape, t.ndim);
        json_member_u64(w, "bytes", t.nbytes);
        put_hex(w, "digest", t.value);
        json_end_line(w);
    }
    json_end_array(w);
    return report_end(&out);
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
    json_report r;
    json_writer *const w = report_begin(&r, c, 0, "none", info);
    json_member_array(w, "files");
    for (size_t i = 0; i < fsdpck_files_count(files); i++) {
        fsdpck_file f = FSDPCK_INIT(fsdpck_file);
        char hex[65];
        fsdpck_files_get(files, i, &f);
        for (unsigned k = 0; k < 32; k++)
            snprintf(hex + 2 * k, 3, "%02x", f.sha256[k]);
        json_begin_object(w);
        report_path(w, "name", f.name);
        json_member_u64(w, "bytes", f.nbytes);
        put_hex(w, "crc64", f.crc64);
        json_member_string(w, "sha256", hex);
        json_end_object(w);
    }
    json_end_array(w);
    return report_end(&r);
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
    report_items findings; /* with --json */
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
 * outer key, and the tensors of the other parts. */
static bool is_of_part(const check_printer *v, const command_request *r, const fsdpck_info *info,
                       const fsdpck_digests *d)
{
    bool seen[MISSING_NOTED] = {false};
    size_t found = 0;
    const uint64_t missing = v->counts[FSDPCK_DIGEST_MISSING];
    fsdpck_digests_info k = FSDPCK_INIT(fsdpck_digests_info);
    if (r->job.select.part >= 0 || v->counts[FSDPCK_DIGEST_EXTRA] <= missing ||
        v->counts[FSDPCK_DIGEST_EXTRA] - missing !=
            info->part_tensors[FSDPCK_PART_OPTIMIZER] + info->part_tensors[FSDPCK_PART_OTHER] ||
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

/* As a line of the list, without the name. type NULL: that of all tensors. */
static void put_digest(json_writer *w, const char *name, uint64_t digest, const char *type)
{
    char text[512];
    snprintf(text, sizeof text, "%016" PRIx64 "%s%s", digest, type == NULL ? "" : "  ",
             type == NULL ? "" : type);
    json_member_string(w, name, text);
}

static void on_result(void *arg, const fsdpck_digest_result *r)
{
    check_printer *v = arg;
    v->counts[r->verdict]++;
    if (r->verdict == FSDPCK_DIGEST_MISSING)
        note_missing(v, r);
    const bool ok = r->verdict == FSDPCK_DIGEST_OK;
    if (!v->c->json) {
        if (ok && v->c->quiet)
            return;
        print_name(r->name, r->name_nbytes);
        const terminal *const to = &v->c->out;
        printf(": %s%s%s%s", paint(to, ok ? PAINT_OK : PAINT_ERROR),
               ok ? "OK" : "FAILED:", paint(to, PAINT_END), ok ? "" : " ");
        fputs(ok ? "" : verdicts[r->verdict].words, stdout);
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
    json_writer *const w = &v->findings.w;
    const fsdpck_finding_id finding = verdicts[r->verdict].finding;
    warnings_begin_finding(w, finding, "error", verdicts[r->verdict].words,
                           report_next(finding, ""));
    report_name(w, "tensor", r->name, r->name_nbytes);
    if (r->verdict == FSDPCK_DIGEST_DIFFERS) {
        put_digest(w, "expected", r->expected_digest, r->found);
        put_digest(w, "found", r->found_digest, r->found);
    } else {
        if (r->expected != NULL)
            report_name(w, "expected", r->expected, r->expected_nbytes);
        json_member_string(w, "found", r->found);
    }
    json_end_object(w);
}

static int finish_json(const check_printer *v, const command_request *r, const fsdpck_info *info,
                       const fsdpck_digests *d, uint64_t bad)
{
    fsdpck_digests_info k = FSDPCK_INIT(fsdpck_digests_info);
    json_report out;
    fsdpck_digests_get_info(d, &k);
    json_writer *const w = report_begin_findings(&out, v->c, bad == 0 ? 0 : FSDPCK_FINDING,
                                                 bad == 0 ? "clean" : "findings", info);
    report_put_items(w, &v->findings);
    json_end_array(w);
    put_counts(&out, &k);
    put_manifest(&out, r);
    if (is_of_part(v, r, info, d)) {
        report_begin_member(&out, REPORT_NEXT);
        json_put_cstr(w, part_next);
        json_end_array(w);
    }
    json_member_object(w, "checked");
    JSON_COUNTS(
        w, {"ok", v->counts[FSDPCK_DIGEST_OK]},
        {"differ", v->counts[FSDPCK_DIGEST_DIFFERS] + v->counts[FSDPCK_DIGEST_TYPE_DIFFERS]},
        {"missing", v->counts[FSDPCK_DIGEST_MISSING]}, {"extra", v->counts[FSDPCK_DIGEST_EXTRA]});
    json_end_object(w);
    return report_end(&out);
}

static int finish_text(const check_printer *v, const command_request *r, const fsdpck_info *info,
                       const fsdpck_digests *d, uint64_t bad)
{
    char a[40];
    fsdpck_digests_info k = FSDPCK_INIT(fsdpck_digests_info);
    fsdpck_digests_get_info(d, &k);
    fflush(stdout);
    if (!v->c->quiet) /* then only failures are printed */
        note_left_out(v->c, &k);
    if (bad == 0)
        return 0;
    fprintf(stderr, "%sfsdpck %s:%s mismatch with the list: %s\n", paint(&v->c->err, PAINT_ERROR),
            v->c->command, paint(&v->c->err, PAINT_END), report_count(a, sizeof a, bad, "tensor"));
    if (is_of_part(v, r, info, d))
        fprintf(stderr, "  next:     %s\n", part_next);
    return FSDPCK_FINDING;
}

int digest_print_check(const cli *c, const command_request *r, const fsdpck_info *info,
                       const fsdpck_digests *d, const char *list, size_t nbytes)
{
    check_printer v = {.c = c};
    fsdpck_error err = FSDPCK_ERROR_INIT;
    uint64_t bad = 0;
    report_items_init(&v.findings);
    int code;
    if (fsdpck_digests_check(d, list, nbytes, on_result, &v, &bad, &err) != FSDPCK_OK) {
        report_set_path(&err, r->given->check);
        code = report_failure(c, info, &err);
    } else if (c->json) {
        code = finish_json(&v, r, info, d, bad);
    } else {
        code = finish_text(&v, r, info, d, bad);
    }
    for (size_t i = 0; i < v.missing_count; i++)
        free(v.missing[i]);
    report_items_release(&v.findings);
    return code;
}
