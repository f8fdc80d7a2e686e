/* verify_stats.c: statistics of tensors, as a table or as a list in the JSON report. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "table.h"
#include "verify_print.h"

/* Most bins of a drawn histogram; its shades go from empty to full. */
#define PICTURE_BINS 24u
static const char shades[] = " .:-=+*#%@";

/* "2^-21 |.:=*@%.| 2^-2": from the smallest exponent to the largest, several exponents per bin where
 * needed. A bin with any count is not blank. */
static void draw_exponents(char *text, size_t capacity, const fsdpck_tensor_statistics *s)
{
    const unsigned step = (s->exponents + PICTURE_BINS - 1) / PICTURE_BINS;
    const unsigned levels = (unsigned)sizeof shades - 2;
    uint64_t bins[PICTURE_BINS] = {0}, most = 0;
    char picture[PICTURE_BINS + 1];
    unsigned n = 0;

    text[0] = '\0';
    if (s->exponents == 0)
        return;
    for (unsigned i = 0; i < s->exponents; i++) {
        n = i / step;
        bins[n] += s->exponent_counts[i];
        most = bins[n] > most ? bins[n] : most;
    }
    for (unsigned i = 0; i <= n; i++) {
        const double share = (double)bins[i] / (double)most;
        picture[i] = shades[bins[i] == 0 ? 0 : 1 + (unsigned)(share * (levels - 1))];
    }
    picture[n + 1] = '\0';
    snprintf(text, capacity, "2^%d |%s| 2^%d", s->exponent_least, picture,
             s->exponent_least + (int)s->exponents - 1);
}

static bool add_row(table *rows, const fsdpck_tensor *t, const fsdpck_tensor_statistics *s)
{
    char shape[256], numbers[4][32] = {"-", "-", "-", "-"}, counts[3][24] = {"-", "-", "-"},
                     picture[80];
    const size_t capacity = 4 * t->name_nbytes + 1;
    const double values[] = {s->mean, sqrt(s->variance), s->minimum, s->maximum};
    const uint64_t found[] = {s->zeros, s->nan, s->inf};
    char *name = malloc(capacity);
    if (name == NULL)
        return false;
    for (unsigned i = 0; i < 4 && s->finite > 0; i++)
        snprintf(numbers[i], sizeof numbers[i], "%.4g", values[i]);
    for (unsigned i = 0; i < 3 && s->nelems > 0; i++)
        snprintf(counts[i], sizeof counts[i], "%" PRIu64, found[i]);
    draw_exponents(picture, sizeof picture, s);
    table_add(rows,
              (const char *const[]){fsdpck_escape(name, capacity, t->name, t->name_nbytes),
                                    t->dtype, report_shape(shape, sizeof shape, t->shape, t->ndim),
                                    numbers[0], numbers[1], numbers[2], numbers[3], counts[0],
                                    counts[1], counts[2], picture});
    free(name);
    return true;
}

bool verify_print_statistics(const cli *c, const fsdpck_verify *v)
{
    static const table_column columns[] = {
        {"TENSOR", TABLE_NAME}, {"DTYPE", TABLE_TEXT},     {"SHAPE", TABLE_TEXT},
        {"MEAN", TABLE_NUMBER}, {"STD", TABLE_NUMBER},     {"MIN", TABLE_NUMBER},
        {"MAX", TABLE_NUMBER},  {"ZEROS", TABLE_NUMBER},   {"NAN", TABLE_NUMBER},
        {"INF", TABLE_NUMBER},  {"EXPONENTS", TABLE_TEXT},
    };
    fsdpck_tensor t = FSDPCK_INIT(fsdpck_tensor);
    fsdpck_tensor_statistics s = FSDPCK_INIT(fsdpck_tensor_statistics);
    table *rows = table_new(&c->out, columns, sizeof columns / sizeof *columns);
    bool whole = true;
    for (uint64_t i = 0;
         fsdpck_verify_get_statistics(v, i, &s) && fsdpck_verify_get_tensor(v, i, &t); i++)
        whole = add_row(rows, &t, &s) && whole;
    return table_print(rows) && whole;
}

static void put_row(json_writer *w, const fsdpck_tensor *t, const fsdpck_tensor_statistics *s)
{
    json_begin_line(w);
    report_name(w, "name", t->name, t->name_nbytes);
    json_member_string(w, "dtype", t->dtype);
    json_member_u64s(w, "shape", t->shape, t->ndim);
    JSON_COUNTS(w, {"looked_at", s->nelems}, {"finite", s->finite}, {"nan", s->nan},
                {"inf", s->inf}, {"zeros", s->zeros});
    if (s->finite > 0) {
        json_member_double(w, "mean", s->mean);
        json_member_double(w, "variance", s->variance);
        json_member_double(w, "min", s->minimum);
        json_member_double(w, "max", s->maximum);
        json_member_i64(w, "exponent_least", s->exponent_least);
        json_member_u64s(w, "exponents", s->exponent_counts, s->exponents);
    }
    json_end_line(w);
}

void verify_put_statistics(json_report *r, const fsdpck_verify *v)
{
    fsdpck_tensor t = FSDPCK_INIT(fsdpck_tensor);
    fsdpck_tensor_statistics s = FSDPCK_INIT(fsdpck_tensor_statistics);
    report_list(r, "statistics");
    for (uint64_t i = 0;
         fsdpck_verify_get_statistics(v, i, &s) && fsdpck_verify_get_tensor(v, i, &t); i++)
        put_row(&r->w, &t, &s);
    json_end_array(&r->w);
}
