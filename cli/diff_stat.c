#include "diff_stat.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "report.h"
#include "table.h"

const char *diff_file_prefix(const fsdpck_diff_row *r, char *out, size_t capacity)
{
    char file[DIFF_NAME_CAPACITY];
    out[0] = '\0';
    if (r->file != NULL)
        snprintf(out, capacity / 2,
                 "%s: ", fsdpck_escape(file, sizeof file, r->file, strlen(r->file)));
    return out;
}

const char *diff_largest(double largest, uint64_t not_numbers, uint64_t nans, char *out,
                         size_t capacity)
{
    snprintf(out, capacity, "%.9g", nans > 0 ? NAN : not_numbers > 0 ? INFINITY : largest);
    return out;
}

static void print_counters(const fsdpck_diff *d, uint64_t count)
{
    uint64_t counters = 0, not_numbers = 0, nans = 0;
    double largest = 0;
    char n[40], text[40];
    for (uint64_t i = 0; i < count; i++) {
        fsdpck_diff_row r = FSDPCK_INIT(fsdpck_diff_row);
        fsdpck_diff_get_row(d, i, &r);
        if (r.kind != FSDPCK_DIFF_VALUES || !r.is_counter)
            continue;
        counters++;
        largest = r.largest > largest ? r.largest : largest;
        not_numbers += r.not_numbers;
        nans += r.nans;
    }
    if (counters > 0)
        printf("%s, such as steps of the optimizer: largest difference %s\n",
               report_count(n, sizeof n, counters, "counter"),
               diff_largest(largest, not_numbers, nans, text, sizeof text));
}

static const char *relative_text(bool is_known, double relative, char *text, size_t capacity)
{
    if (!is_known || !isfinite(relative))
        return "-";
    snprintf(text, capacity, "%.3g", relative);
    return text;
}

static void add_stat(table *rows, const fsdpck_diff_row *r)
{
    char name[DIFF_NAME_CAPACITY], shape[512], differing[40], of[40], largest[40];
    char change[40];
    diff_largest(r->largest, r->not_numbers, r->nans, largest, sizeof largest);
    const size_t at = strlen(diff_file_prefix(r, name, sizeof name));
    fsdpck_escape(name + at, sizeof name - at, r->name, r->name_nbytes);
    const char *const cells[] = {
        name,
        r->dtype_a,
        report_shape(shape, sizeof shape, r->shape_a, r->ndim_a),
        r->located ? report_number(differing, sizeof differing, r->differing) : "?",
        report_number(of, sizeof of, r->nelems),
        r->located ? largest : "?",
        relative_text(r->has_norms, r->relative, change, sizeof change)};
    table_add(rows, cells);
}

/* Each part as a whole, if a tensor of it differs. */
static void add_totals(table *rows, const fsdpck_diff *d)
{
    for (int part = FSDPCK_PART_MODEL; part <= FSDPCK_PART_OTHER; part++) {
        fsdpck_diff_part all = FSDPCK_INIT(fsdpck_diff_part);
        char name[80], n[40], differing[40], of[40], largest[40], change[40];
        if (!fsdpck_diff_get_part(d, (fsdpck_part)part, &all) || all.differing_tensors == 0)
            continue;
        snprintf(name, sizeof name, "total of %s, %s", fsdpck_part_name((fsdpck_part)part),
                 report_count(n, sizeof n, all.tensors, "tensor"));
        diff_largest(all.largest, all.not_numbers, all.nans, largest, sizeof largest);
        const char *const cells[] = {
            name,
            "",
            "",
            report_number(differing, sizeof differing, all.differing),
            report_number(of, sizeof of, all.nelems),
            largest,
            relative_text(all.has_norms, all.relative, change, sizeof change)};
        table_add(rows, cells);
    }
}

/* A row of the table, and what it is sorted by. */
typedef struct stat_row {
    double change;
    uint64_t index;
} stat_row;

/* The largest change first; else as the rows of the diff. */
static int compare_stat_rows(const void *a, const void *b)
{
    const stat_row *x = a, *y = b;
    if (x->change != y->change)
        return x->change < y->change ? 1 : -1;
    return x->index < y->index ? -1 : x->index > y->index;
}

/* Rows with a relative change after those without. NULL: out of memory. */
static stat_row *sort_stat_rows(const fsdpck_diff *d, uint64_t count, uint64_t *found)
{
    stat_row *all = calloc(count + 1, sizeof *all);
    *found = 0;
    for (uint64_t i = 0; all != NULL && i < count; i++) {
        fsdpck_diff_row r = FSDPCK_INIT(fsdpck_diff_row);
        fsdpck_diff_get_row(d, i, &r);
        if (r.kind != FSDPCK_DIFF_VALUES || r.is_counter)
            continue;
        const bool is_known = r.has_norms && isfinite(r.relative);
        all[(*found)++] = (stat_row){is_known ? r.relative : INFINITY, i};
    }
    if (all != NULL)
        qsort(all, *found, sizeof *all, compare_stat_rows);
    return all;
}

bool diff_print_stat(const cli *c, const fsdpck_diff *d, uint64_t count)
{
    static const table_column columns[] = {{"NAME", TABLE_NAME},
                                           {"DTYPE", TABLE_TEXT},
                                           {"SHAPE", TABLE_TEXT},
                                           {"DIFFERING", TABLE_NUMBER},
                                           {"OF", TABLE_NUMBER},
                                           {"LARGEST DIFFERENCE", TABLE_NUMBER},
                                           {"RELATIVE CHANGE", TABLE_NUMBER}};
    uint64_t found;
    stat_row *const order = sort_stat_rows(d, count, &found);
    if (order == NULL)
        return false;
    table *rows = table_new(&c->out, columns, 7);
    table_may_omit(rows, "DTYPE");
    table_may_omit(rows, "OF");
    table_may_omit(rows, "SHAPE");
    table_may_omit(rows, "RELATIVE CHANGE");
    for (uint64_t i = 0; i < found; i++) {
        fsdpck_diff_row r = FSDPCK_INIT(fsdpck_diff_row);
        fsdpck_diff_get_row(d, order[i].index, &r);
        add_stat(rows, &r);
    }
    free(order);
    add_totals(rows, d);
    const bool ok = table_print(rows);
    print_counters(d, count);
    return ok;
}
