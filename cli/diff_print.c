#include "diff_print.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "diff_cast.h"
#include "diff_stat.h"
#include "html_option.h"
#include "next_command.h"
#include "report.h"
#include "warnings.h"

#define SHAPE_CAPACITY 512u
#define NAME_CAPACITY  DIFF_NAME_CAPACITY
#define WORDS_WIDTH    9u /* of most kinds of differences */

static const struct {
    fsdpck_finding_id finding;
    const char *words;
    paint_kind color;
} kinds[] = {
    [FSDPCK_DIFF_ONLY_A] = {FSDPCK_FINDING_DIFF_ONLY_A, "only in A", PAINT_REMOVED},
    [FSDPCK_DIFF_ONLY_B] = {FSDPCK_FINDING_DIFF_ONLY_B, "only in B", PAINT_ADDED},
    [FSDPCK_DIFF_TYPE] = {FSDPCK_FINDING_DIFF_TYPE, "different dtype or shape", PAINT_CHANGED},
    [FSDPCK_DIFF_VALUES] = {FSDPCK_FINDING_DIFF_VALUES, "values", PAINT_CHANGED},
    [FSDPCK_DIFF_OBJECT_ONLY_A] = {FSDPCK_FINDING_DIFF_OBJECT, "object only in A", PAINT_REMOVED},
    [FSDPCK_DIFF_OBJECT_ONLY_B] = {FSDPCK_FINDING_DIFF_OBJECT, "object only in B", PAINT_ADDED},
    [FSDPCK_DIFF_OBJECT] = {FSDPCK_FINDING_DIFF_OBJECT, "object", PAINT_CHANGED},
};

static void print_type(const char *dtype, const uint64_t *shape, unsigned ndim)
{
    char text[SHAPE_CAPACITY];
    printf("%s%s", dtype, report_shape(text, sizeof text, shape, ndim));
}

static void print_values(const fsdpck_diff_row *r)
{
    char shape[SHAPE_CAPACITY], a[40], b[40];
    if (!r->located) {
        printf(": compressed, digests differ");
        return;
    }
    printf(": %s of %s differ%s, first at %s: %s in A, %s in B",
           report_number(a, sizeof a, r->differing),
           report_count(b, sizeof b, r->nelems, "element"), r->differing == 1 ? "s" : "",
           report_shape(shape, sizeof shape, r->first, r->ndim_a), r->first_a, r->first_b);
    if (r->largest > 0)
        printf("; largest difference %.9g", r->largest);
    if (r->not_numbers > 0)
        printf("; NaN or infinite in A or B: %s", report_number(a, sizeof a, r->not_numbers));
}

static void print_row(const cli *c, const fsdpck_diff_row *r)
{
    char name[NAME_CAPACITY];
    const size_t width = strlen(kinds[r->kind].words);
    printf("%s%s%s%*s", paint(&c->out, kinds[r->kind].color), kinds[r->kind].words,
           paint(&c->out, PAINT_END), width < WORDS_WIDTH ? (int)(WORDS_WIDTH - width) + 2 : 2, "");
    fputs(diff_file_prefix(r, name, sizeof name), stdout);
    fputs(fsdpck_escape(name, sizeof name, r->name, r->name_nbytes), stdout);
    if (r->kind >= FSDPCK_DIFF_OBJECT_ONLY_A && r->rank >= 0)
        printf(" of rank %" PRId64, r->rank);
    switch (r->kind) {
    case FSDPCK_DIFF_ONLY_A:
        printf("  ");
        print_type(r->dtype_a, r->shape_a, r->ndim_a);
        break;
    case FSDPCK_DIFF_ONLY_B:
        printf("  ");
        print_type(r->dtype_b, r->shape_b, r->ndim_b);
        break;
    case FSDPCK_DIFF_TYPE:
        printf(": ");
        print_type(r->dtype_a, r->shape_a, r->ndim_a);
        printf(" in A, ");
        print_type(r->dtype_b, r->shape_b, r->ndim_b);
        printf(" in B");
        break;
    case FSDPCK_DIFF_VALUES:
        print_values(r);
        break;
    case FSDPCK_DIFF_OBJECT:
        printf(": %s in A, %s in B", r->text_a, r->text_b);
        break;
    default:
        break;
    }
    putchar('\n');
}

static void count_rows(const fsdpck_diff *d, uint64_t rows, uint64_t *of_kind)
{
    for (uint64_t i = 0; i < rows; i++) {
        fsdpck_diff_row r = FSDPCK_INIT(fsdpck_diff_row);
        fsdpck_diff_get_row(d, i, &r);
        of_kind[r.kind]++;
    }
}

static void print_totals(const cli *c, const fsdpck_diff *d, const fsdpck_diff_info *k)
{
    char a[40], b[40], n[40];
    uint64_t counts[FSDPCK_DIFF_OBJECT + 1] = {0};
    count_rows(d, k->rows, counts);
    printf("compared %s (%s", report_count(a, sizeof a, k->tensors_compared, "tensor"),
           report_bytes(b, sizeof b, k->nbytes_compared));
    if (k->by_digest > 0)
        printf(", %s compressed: by digest", report_number(a, sizeof a, k->by_digest));
    putchar(')');
    if (k->objects_compared > 0)
        printf(" and %s", report_count(n, sizeof n, k->objects_compared, "object"));
    if (k->has_checksums && k->tensors_compared > 0)
        printf(", without checksums");
    if (k->rows == 0) {
        printf(": %sequal%s\n", paint(&c->out, PAINT_OK), paint(&c->out, PAINT_END));
    } else {
        printf(": %s differ", report_number(a, sizeof a, counts[FSDPCK_DIFF_VALUES]));
        printf("; %s only in A", report_number(a, sizeof a, counts[FSDPCK_DIFF_ONLY_A]));
        printf(", %s only in B", report_number(a, sizeof a, counts[FSDPCK_DIFF_ONLY_B]));
        printf(", %s of different dtype or shape",
               report_number(a, sizeof a, counts[FSDPCK_DIFF_TYPE]));
        const uint64_t objects = counts[FSDPCK_DIFF_OBJECT] + counts[FSDPCK_DIFF_OBJECT_ONLY_A] +
                                 counts[FSDPCK_DIFF_OBJECT_ONLY_B];
        if (objects > 0)
            printf("; differences in %s", report_count(a, sizeof a, objects, "object"));
        puts(k->stopped ? "; there may be more" : "");
    }
}

int diff_print_text(const cli *c, const command_request *r, const fsdpck_diff *d)
{
    fsdpck_diff_info k = FSDPCK_INIT(fsdpck_diff_info);
    fsdpck_diff_get_info(d, &k);
    const int code = k.rows == 0 ? 0 : FSDPCK_FINDING;
    if (c->quiet) {
        if (code != 0)
            printf("%s and %s differ\n", r->src, r->dst);
        return code;
    }
    if (r->given->stat && !diff_print_stat(c, d, k.rows))
        return report_no_memory(c);
    for (uint64_t i = 0; !r->given->stat && i < k.rows; i++) {
        fsdpck_diff_row row = FSDPCK_INIT(fsdpck_diff_row);
        fsdpck_diff_get_row(d, i, &row);
        print_row(c, &row);
    }
    print_totals(c, d, &k);
    text_buf next = {0};
    if (diff_cast_next(r, d, &next))
        printf("next: %s\n", next.text);
    text_release(&next);
    return next.failed ? report_no_memory(c) : code;
}

/* ---- JSON ---- */

static void put_type(json_writer *w, const char *key, const char *dtype, const uint64_t *shape,
                     unsigned ndim)
{
    if (dtype == NULL)
        return;
    json_member_object(w, key);
    json_member_string(w, "dtype", dtype);
    json_member_u64s(w, "shape", shape, ndim);
    json_end_object(w);
}

/* Without a bound: null, and that of the finite numbers beside it. */
static void put_largest(json_writer *w, double largest, uint64_t not_numbers)
{
    json_member_double(w, "largest", not_numbers > 0 ? INFINITY : largest);
    if (not_numbers > 0)
        json_member_double(w, "largest_finite", largest);
    json_member_u64(w, "not_numbers", not_numbers);
}

static void put_norms(json_writer *w, const fsdpck_diff_row *r)
{
    if (!r->has_norms)
        return;
    json_member_double(w, "norm_a", r->norm_a);
    json_member_double(w, "distance", r->distance);
    json_member_double(w, "relative", r->relative);
}

static void put_row(json_writer *w, const fsdpck_diff_row *r)
{
    json_begin_line(w);
    json_member_string(w, "finding", fsdpck_finding_name(kinds[r->kind].finding));
    json_member_string(w, "message", kinds[r->kind].words);
    report_name(w, r->kind < FSDPCK_DIFF_OBJECT_ONLY_A ? "tensor" : "object", r->name,
                r->name_nbytes);
    json_member_string(w, "part", fsdpck_part_name(r->part));
    if (r->is_counter)
        json_member_bool(w, "counter", true);
    if (r->file != NULL)
        report_path(w, "file", r->file);
    put_type(w, "a", r->dtype_a, r->shape_a, r->ndim_a);
    put_type(w, "b", r->dtype_b, r->shape_b, r->ndim_b);
    if (r->kind == FSDPCK_DIFF_VALUES) {
        json_member_u64(w, "elements", r->nelems);
        if (r->located) {
            json_member_u64(w, "differing", r->differing);
            json_member_u64s(w, "first", r->first, r->ndim_a);
            json_member_string(w, "first_a", r->first_a);
            json_member_string(w, "first_b", r->first_b);
            put_largest(w, r->largest, r->not_numbers);
            put_norms(w, r);
        }
    }
    if (r->kind == FSDPCK_DIFF_OBJECT) {
        json_member_string(w, "value_a", r->text_a);
        json_member_string(w, "value_b", r->text_b);
    }
    if (r->kind >= FSDPCK_DIFF_OBJECT_ONLY_A && r->rank >= 0)
        json_member_i64(w, "rank", r->rank);
    json_end_line(w);
}

/* Each part as a whole. */
static void put_parts(json_report *out, const fsdpck_diff *d)
{
    report_list(out, "part_totals");
    for (int part = FSDPCK_PART_MODEL; part <= FSDPCK_PART_OTHER; part++) {
        fsdpck_diff_part all = FSDPCK_INIT(fsdpck_diff_part);
        json_writer *const w = &out->w;
        if (!fsdpck_diff_get_part(d, (fsdpck_part)part, &all))
            continue;
        json_begin_line(w);
        json_member_string(w, "part", fsdpck_part_name((fsdpck_part)part));
        json_member_u64(w, "tensors", all.tensors);
        json_member_u64(w, "differing_tensors", all.differing_tensors);
        json_member_u64(w, "elements", all.nelems);
        json_member_u64(w, "differing", all.differing);
        put_largest(w, all.largest, all.not_numbers);
        if (all.has_norms) {
            json_member_double(w, "norm_a", all.norm_a);
            json_member_double(w, "distance", all.distance);
            json_member_double(w, "relative", all.relative);
        }
        json_end_line(w);
    }
    json_end_array(&out->w);
}

/* One finding per kind with its count; the list "differences" has the details. */
static void put_findings(json_writer *w, const fsdpck_diff *d, uint64_t rows)
{
    uint64_t counts[FSDPCK_DIFF_OBJECT + 1] = {0};
    count_rows(d, rows, counts);
    for (size_t k = 0; k <= FSDPCK_DIFF_OBJECT; k++) {
        char message[120], a[40];
        if (counts[k] == 0)
            continue;
        snprintf(message, sizeof message, "%s: %s", kinds[k].words,
                 report_count(a, sizeof a, counts[k],
                              k < FSDPCK_DIFF_OBJECT_ONLY_A ? "tensor" : "object"));
        warnings_put_finding(w, kinds[k].finding, "error", message,
                             report_next(kinds[k].finding, ""));
    }
}

static void put_b(const cli *c, json_writer *w, const command_request *r, const diff_sides *s)
{
    fsdpck_info of_b = FSDPCK_INIT(fsdpck_info);
    report_path(w, "against", r->dst);
    if (s->b == NULL)
        return;
    fsdpck_get_info(s->b, &of_b);
    report_set_step(s->b, &of_b);
    report_put_source(w, "against_source", &of_b);
    report_put_page_steps(c, w, "steps", s->a);
    report_put_page_steps(c, w, "against_steps", s->b);
}

/* In a page alone: names of equal tensors. With -q, they are not known. */
static void put_equal(const cli *c, json_report *out, const fsdpck_diff *d, uint64_t compared)
{
    char name[2 * NAME_CAPACITY];
    if (c->page->path == NULL || c->quiet)
        return;
    report_list(out, "equal");
    for (uint64_t i = 0; i < compared; i++) {
        fsdpck_diff_row row = FSDPCK_INIT(fsdpck_diff_row);
        if (!fsdpck_diff_get_compared(d, i, &row))
            continue;
        const size_t at = strlen(diff_file_prefix(&row, name, sizeof name));
        fsdpck_escape(name + at, sizeof name - at, row.name, row.name_nbytes);
        report_put_text(&out->w, name);
    }
    json_end_array(&out->w);
}

/* Whether the file is the checkpoint or in it. */
static bool is_in(const char *file, const char *path)
{
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/')
        n--;
    return strncmp(file, path, n) == 0 && (file[n] == '/' || file[n] == '\0');
}

/* NULL if neither or both may have caused it. */
static const char *failed_side(const command_request *r, const diff_sides *s,
                               const fsdpck_error *err)
{
    const bool in_a = is_in(err->path, r->src), in_b = is_in(err->path, r->dst);
    if (s->a == NULL || (s->b != NULL && in_a && !in_b))
        return "A";
    return s->b == NULL || (in_b && !in_a) ? "B" : NULL;
}

int diff_report_failure(const cli *c, const command_request *r, const diff_sides *s,
                        const fsdpck_error *err)
{
    json_report out;
    report_failure_text(c, err);
    if (!c->json)
        return (int)err->status;
    json_writer *const w = report_begin_failure(&out, c, s->of_a, err);
    put_b(c, w, r, s);
    if (err->status != FSDPCK_USAGE)
        json_member_string(w, "failed_side", failed_side(r, s, err));
    return report_end(&out);
}

int diff_print_json(const cli *c, const command_request *r, const diff_sides *s,
                    const fsdpck_diff *d)
{
    fsdpck_diff_info k = FSDPCK_INIT(fsdpck_diff_info);
    fsdpck_diff_get_info(d, &k);
    const int code = k.rows == 0 ? 0 : FSDPCK_FINDING;
    json_report out;
    if (html_option_wants_verdict(c))
        print_totals(c, d, &k);
    json_writer *const w =
        report_begin_findings(&out, c, code, k.rows == 0 ? "clean" : "findings", s->of_a);
    put_findings(w, d, k.rows);
    json_end_array(w);
    put_b(c, w, r, s);
    json_member_string(w, "part", k.part);
    REPORT_MEMBER_COUNTS(&out, REPORT_COUNTS, {"tensors_a", k.tensors_a},
                         {"tensors_b", k.tensors_b}, {"tensors_compared", k.tensors_compared},
                         {"objects_compared", k.objects_compared}, {"by_digest", k.by_digest},
                         {"state_files", k.state_files}, {"bytes_compared", k.nbytes_compared},
                         {"bytes_read", k.bytes_read}, {"differences", k.rows});
    report_begin_member(&out, REPORT_UNCHECKED);
    json_member_bool(w, "has_checksums", k.has_checksums != 0);
    json_end_object(w);
    json_member_bool(w, "stopped", k.stopped);
    if (k.atol > 0)
        json_member_double(w, "atol", k.atol);
    if (k.rtol > 0)
        json_member_double(w, "rtol", k.rtol);
    text_buf next = {0};
    if (diff_cast_next(r, d, &next)) {
        report_begin_member(&out, REPORT_NEXT);
        next_command_put(w, &next);
        json_end_array(w);
    }
    put_parts(&out, d);
    report_list(&out, "differences");
    for (uint64_t i = 0; i < k.rows; i++) {
        fsdpck_diff_row row = FSDPCK_INIT(fsdpck_diff_row);
        fsdpck_diff_get_row(d, i, &row);
        put_row(w, &row);
    }
    json_end_array(w);
    put_equal(c, &out, d, k.tensors_compared);
    return report_end(&out);
}
