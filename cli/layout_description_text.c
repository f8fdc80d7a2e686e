/* Text output of fsdpck layout for a model description. */
#include "layout_description.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "report.h"
#include "table.h"

#define NAME_CAPACITY  1024u
#define SHAPE_CAPACITY 512u
/* A table keeps its rows in memory, so a long one is printed in parts. */
#define ROWS_MAX 1000u

static char *unit_name_of(char *text, size_t capacity, const fsdpck_unit *unit)
{
    if (unit->path_nbytes == 0)
        snprintf(text, capacity, "(root)");
    else
        fsdpck_escape(text, capacity, unit->path, unit->path_nbytes);
    return text;
}

static const char *text_after_forward(const fsdpck_unit *u, char *text, size_t capacity)
{
    char a[40];
    report_bytes(a, sizeof a, u->post_forward_nbytes);
    if (u->gather_nbytes == 0)
        return "";
    if (u->post_forward_nbytes == 0)
        return ", resharded after forward";
    if (u->post_forward_size == 1)
        return ", kept whole after forward";
    snprintf(text, capacity, ", keeps %s more on each of %" PRIu64 " ranks after forward", a,
             u->post_forward_size);
    return text;
}

/* "unit layers.0 (Block): fsdp FULL_SHARD on 4 ranks, original parameters" */
static void print_unit_head(const fsdpck_unit *u)
{
    char name[NAME_CAPACITY], class_name[NAME_CAPACITY], n[40];
    printf("unit %s", unit_name_of(name, sizeof name, u));
    if (u->class_name[0] != '\0')
        printf(" (%s)",
               fsdpck_escape(class_name, sizeof class_name, u->class_name, strlen(u->class_name)));
    if (u->kind == FSDPCK_SHARDING_FLAT)
        printf(": FSDP %s", u->strategy);
    else
        printf(": fully_shard");
    printf(" on %s", report_count(n, sizeof n, u->world_size, "rank"));
    if (u->kind == FSDPCK_SHARDING_FLAT) {
        printf(u->use_orig_params ? ", original parameters" : ", flat parameter");
        if (u->alignment > 0)
            printf(" aligned to %" PRIu64, u->alignment);
    }
    if (u->cpu_offload)
        printf(", on the CPU");
    putchar('\n');
}

static void print_unit_totals(const fsdpck_unit *u)
{
    char a[40], b[40], n[40], after[128];
    const uint64_t held = u->shard_nbytes * u->world_size;
    printf("  %s per rank", report_bytes(a, sizeof a, u->shard_nbytes));
    if (u->gather_nbytes > 0)
        printf(", gathers %s in %s%s", report_bytes(b, sizeof b, u->gather_nbytes), u->gather_dtype,
               text_after_forward(u, after, sizeof after));
    printf("; padding %s (%.2f %%), imbalance %.3f\n", report_bytes(n, sizeof n, u->padding_nbytes),
           held == 0 ? 0 : 100 * (double)u->padding_nbytes / (double)held,
           u->world_size == 0 ? 1
           : strcmp(u->strategy, "NO_SHARD") == 0
               ? 1
               : layout_imbalance(u->rank_nelems_max, u->nelems, u->world_size));
    if (u->kind == FSDPCK_SHARDING_FLAT)
        printf("  flat parameter of %s: padding %" PRIu64 " between parameters, %" PRIu64
               " to a multiple of the world size, %" PRIu64 " in the last shards\n",
               report_count(a, sizeof a, u->total, "element"), u->padding_inside, u->padding_world,
               u->padding_ranks);
}

static void print_shared(const model_layout *l, uint64_t index, const fsdpck_unit *u)
{
    for (uint64_t k = 0; k < u->shared; k++) {
        char name[NAME_CAPACITY], same[NAME_CAPACITY];
        fsdpck_unit_shared s = {.struct_nbytes = sizeof s};
        fsdpck_units_get_shared(l->units, index, k, &s);
        printf("  %s is %s\n", fsdpck_escape(name, sizeof name, s.fqn, s.fqn_nbytes),
               fsdpck_escape(same, sizeof same, s.same_as, s.same_as_nbytes));
    }
}

/* ---- rows ---- */

/* Subject of a table. */
typedef struct subject {
    const model_layout *l;
    const fsdpck_unit *unit; /* NULL: parameters in no unit */
    uint64_t index;          /* of the unit */
    uint64_t rank;
} subject;

typedef struct row_kind {
    const table_column *columns;
    size_t count;
    void (*add)(const subject *of, uint64_t k, table *rows);
} row_kind;

static bool print_rows(const row_kind *kind, const subject *of, uint64_t count)
{
    bool ok = true;
    for (uint64_t k = 0; ok && k < count;) {
        table *rows = table_new_indented(of->l->out, kind->columns, kind->count);
        for (const uint64_t end = k + ROWS_MAX; k < count && k < end; k++)
            kind->add(of, k, rows);
        ok = table_print(rows);
    }
    return ok;
}

static const table_column flat_columns[] = {{"NAME", TABLE_NAME},     {"DTYPE", TABLE_TEXT},
                                            {"SHAPE", TABLE_TEXT},    {"ELEMENTS", TABLE_NUMBER},
                                            {"OFFSET", TABLE_NUMBER}, {"PADDING", TABLE_NUMBER}};

static void add_flat_row(const subject *of, uint64_t k, table *rows)
{
    char name[NAME_CAPACITY], shape[SHAPE_CAPACITY], nelems[40], offset[40], padding[40];
    fsdpck_unit_param p = {.struct_nbytes = sizeof p};
    fsdpck_units_get_param(of->l->units, of->index, k, &p);
    const char *const cells[] = {fsdpck_escape(name, sizeof name, p.fqn, p.fqn_nbytes),
                                 p.dtype,
                                 report_shape(shape, sizeof shape, p.shape, p.ndim),
                                 report_number(nelems, sizeof nelems, p.nelems),
                                 report_number(offset, sizeof offset, p.offset),
                                 report_number(padding, sizeof padding, p.padding_before)};
    table_add(rows, cells);
}

static const row_kind flat_rows = {flat_columns, 6, add_flat_row};

static const table_column group_columns[] = {
    {"NAME", TABLE_NAME},       {"DTYPE", TABLE_TEXT},       {"SHAPE", TABLE_TEXT},
    {"ELEMENTS", TABLE_NUMBER}, {"FIRST SHARD", TABLE_TEXT}, {"GATHERED", TABLE_TEXT},
    {"PADDING", TABLE_NUMBER}};

/* "6,144 bfloat16", or for an extension "64 float8_e4m3fn + 4 float32" */
static char *gathered_text(const subject *of, uint64_t k, uint64_t inputs, char *text,
                           size_t capacity)
{
    size_t n = 0;
    text[0] = '\0';
    for (uint64_t j = 0; j < inputs && n < capacity; j++) {
        char number[40];
        fsdpck_gather_input in = {.struct_nbytes = sizeof in};
        fsdpck_units_get_input(of->l->units, of->index, k, j, &in);
        n += (size_t)snprintf(text + n, capacity - n, "%s%s %s", j > 0 ? " + " : "",
                              report_number(number, sizeof number, in.output_nelems), in.dtype);
    }
    return text;
}

static void add_group_row(const subject *of, uint64_t k, table *rows)
{
    char name[NAME_CAPACITY], shape[SHAPE_CAPACITY], first[SHAPE_CAPACITY], nelems[40];
    char padding[40], gathered[256];
    fsdpck_unit_param p = {.struct_nbytes = sizeof p};
    fsdpck_sharded_param s = {.struct_nbytes = sizeof s};
    fsdpck_units_get_param(of->l->units, of->index, k, &p);
    fsdpck_units_get_sharded(of->l->units, of->index, k, 0, &s);
    const char *const cells[] = {
        fsdpck_escape(name, sizeof name, p.fqn, p.fqn_nbytes),
        p.dtype,
        report_shape(shape, sizeof shape, p.shape, p.ndim),
        report_number(nelems, sizeof nelems, p.nelems),
        report_shape(first, sizeof first, s.sharded_size, p.ndim),
        gathered_text(of, k, s.all_gather_inputs, gathered, sizeof gathered),
        report_number(padding, sizeof padding, p.padded_nelems * of->unit->world_size - p.nelems)};
    table_add(rows, cells);
}

static const row_kind group_rows = {group_columns, 7, add_group_row};

static bool print_unit(const model_layout *l, uint64_t index)
{
    fsdpck_unit u = {.struct_nbytes = sizeof u};
    fsdpck_units_get(l->units, index, &u);
    const subject of = {l, &u, index, 0};
    print_unit_head(&u);
    if (!print_rows(u.kind == FSDPCK_SHARDING_FLAT ? &flat_rows : &group_rows, &of, u.params))
        return false;
    print_shared(l, index, &u);
    print_unit_totals(&u);
    putchar('\n');
    return true;
}

/* ---- contents of a rank ---- */

static const table_column flat_piece_columns[] = {
    {"NAME", TABLE_NAME}, {"ELEMENTS", TABLE_TEXT}, {"AT", TABLE_NUMBER}, {"BOXES", TABLE_TEXT}};

/* "[0, 2]+[1, 3] [1, 0]+[2, 5]": offsets and sizes, the first few */
static char *boxes_text(const subject *of, uint64_t k, unsigned ndim,
                        const fsdpck_param_shard *piece, char *text, size_t capacity)
{
    size_t count;
    size_t n = 0;
    fsdpck_box *boxes = layout_description_boxes(of->l, of->index, k, ndim, piece, &count);
    text[0] = '\0';
    for (size_t i = 0; i < count && n < capacity; i++) {
        char offsets[SHAPE_CAPACITY], sizes[SHAPE_CAPACITY];
        n += (size_t)snprintf(text + n, capacity - n, "%s%s+%s", i > 0 ? " " : "",
                              report_shape(offsets, sizeof offsets, boxes[i].offsets, ndim),
                              report_shape(sizes, sizeof sizes, boxes[i].sizes, ndim));
    }
    free(boxes);
    return text;
}

static void add_flat_piece(const subject *of, uint64_t k, table *rows)
{
    char name[NAME_CAPACITY], boxes[2048], interval[64], at[40];
    fsdpck_unit_param p = {.struct_nbytes = sizeof p};
    fsdpck_param_shard piece = {.struct_nbytes = sizeof piece};
    fsdpck_units_get_param(of->l->units, of->index, k, &p);
    fsdpck_units_get_param_shard(of->l->units, of->index, k, of->rank, &piece);
    snprintf(interval, sizeof interval, "%" PRIu64 " to %" PRIu64, piece.begin, piece.end);
    const char *const cells[] = {
        fsdpck_escape(name, sizeof name, p.fqn, p.fqn_nbytes),
        piece.nelems == 0 ? "none" : interval,
        piece.nelems == 0 ? "" : report_number(at, sizeof at, piece.shard_offset),
        boxes_text(of, k, p.ndim, &piece, boxes, sizeof boxes)};
    table_add(rows, cells);
}

static const row_kind keep_flat_shards = {flat_piece_columns, 4, add_flat_piece};

static const table_column group_piece_columns[] = {
    {"NAME", TABLE_NAME},      {"DTYPE", TABLE_TEXT},        {"SHAPE", TABLE_TEXT},
    {"OFFSET", TABLE_TEXT},    {"OF", TABLE_TEXT},           {"BYTES", TABLE_NUMBER},
    {"PADDING", TABLE_NUMBER}, {"AFTER FORWARD", TABLE_TEXT}};

static void add_group_piece(const subject *of, uint64_t k, table *rows)
{
    char name[NAME_CAPACITY], shape[SHAPE_CAPACITY], offset[SHAPE_CAPACITY], whole[SHAPE_CAPACITY];
    char after[SHAPE_CAPACITY], nbytes[40], padding[40];
    uint64_t offsets[64] = {0};
    fsdpck_unit_param p = {.struct_nbytes = sizeof p};
    fsdpck_sharded_param s = {.struct_nbytes = sizeof s};
    fsdpck_units_get_param(of->l->units, of->index, k, &p);
    fsdpck_units_get_sharded(of->l->units, of->index, k, of->rank, &s);
    offsets[p.shard_dim] = s.offset;
    const char *const cells[] = {
        fsdpck_escape(name, sizeof name, p.fqn, p.fqn_nbytes),
        p.dtype,
        report_shape(shape, sizeof shape, s.sharded_size, p.ndim),
        report_shape(offset, sizeof offset, offsets, p.ndim),
        report_shape(whole, sizeof whole, p.shape, p.ndim),
        report_bytes(nbytes, sizeof nbytes, s.nelems * p.itemsize_nbytes),
        report_number(padding, sizeof padding, s.padded_nelems - s.nelems),
        s.post_forward_size == 1 ? "whole"
        : s.post_forward_size < of->unit->world_size
            ? report_shape(after, sizeof after, s.sharded_post_forward_size, p.ndim)
            : "as before"};
    table_add(rows, cells);
}

static const row_kind group_pieces = {group_piece_columns, 8, add_group_piece};

static bool print_piece(const model_layout *l, uint64_t index, uint64_t rank)
{
    char name[NAME_CAPACITY];
    fsdpck_unit u = {.struct_nbytes = sizeof u};
    fsdpck_units_get(l->units, index, &u);
    const subject of = {l, &u, index, rank};
    printf("unit %s", unit_name_of(name, sizeof name, &u));
    if (u.kind == FSDPCK_SHARDING_FLAT) {
        fsdpck_unit_shard s = {.struct_nbytes = sizeof s};
        fsdpck_units_get_shard(l->units, index, rank, &s);
        printf(": elements %" PRIu64 " to %" PRIu64 " of the flat parameter, %" PRIu64
               " of padding",
               s.begin, s.end, s.padding);
    }
    putchar('\n');
    return print_rows(u.kind == FSDPCK_SHARDING_FLAT ? &keep_flat_shards : &group_pieces, &of,
                      u.params);
}

static bool print_rank(const model_layout *l, uint64_t rank)
{
    char a[40], b[40];
    fsdpck_units_rank sums = {.struct_nbytes = sizeof sums};
    fsdpck_units_get_rank(l->units, rank, &sums);
    printf("rank %" PRIu64 ": %s of parameters, and %s of padding\n", rank,
           report_bytes(a, sizeof a, sums.nbytes), report_bytes(b, sizeof b, sums.padding_nbytes));
    bool ok = true;
    for (uint64_t i = 0; ok && i < l->all.units; i++)
        ok = print_piece(l, i, rank);
    putchar('\n');
    return ok;
}

/* ---- parameters in no unit ---- */

static const table_column whole_columns[] = {{"NAME", TABLE_NAME},
                                             {"DTYPE", TABLE_TEXT},
                                             {"SHAPE", TABLE_TEXT},
                                             {"BYTES", TABLE_NUMBER},
                                             {"WHY", TABLE_TEXT}};

static void add_whole_row(const model_layout *l, const fsdpck_param *p, table *rows)
{
    char name[NAME_CAPACITY], shape[SHAPE_CAPACITY], nbytes[40];
    const char *const cells[] = {
        fsdpck_escape(name, sizeof name, p->fqn, p->fqn_nbytes), p->dtype,
        report_shape(shape, sizeof shape, p->shape, p->ndim),
        report_bytes(nbytes, sizeof nbytes, p->nelems * p->itemsize_nbytes),
        p->ignored                                  ? "ignored"
        : l->about.sharding == FSDPCK_SHARDING_NONE ? "no FSDP"
                                                    : "outside of units"};
    table_add(rows, cells);
}

static bool print_whole(const model_layout *l)
{
    if (l->all.whole_params == 0)
        return true;
    printf("in no unit, full on every rank:\n");
    bool ok = true;
    table *rows = table_new_indented(l->out, whole_columns, 5);
    for (uint64_t i = 0; ok && i < l->about.names; i++) {
        fsdpck_param p = {.struct_nbytes = sizeof p};
        fsdpck_model_get_param(l->model, i, &p);
        if (p.first_name != i || fsdpck_units_has(l->units, i))
            continue;
        add_whole_row(l, &p, rows);
        if (table_rows(rows) < ROWS_MAX)
            continue;
        ok = table_print(rows);
        rows = table_new_indented(l->out, whole_columns, 5);
    }
    ok = table_print(rows) && ok;
    putchar('\n');
    return ok;
}

/* ---- totals ---- */

static void print_training(const fsdpck_units_info *k)
{
    char m[40], a[40], b[40], n[40];
    printf("training  at most %s per GPU: parameters %s, gradients %s in the parameters' dtype, "
           "Adam %s "
           "(assumed: two moments in the parameters' dtype)\n",
           report_bytes(m, sizeof m, k->rank_nbytes + k->grad_nbytes + k->adam_nbytes),
           report_bytes(a, sizeof a, k->rank_nbytes), report_bytes(b, sizeof b, k->grad_nbytes),
           report_bytes(n, sizeof n, k->adam_nbytes));
    if (k->cpu_nbytes > 0)
        printf("          %s of the parameters, with their gradients and state, on the CPU\n",
               report_bytes(a, sizeof a, k->cpu_nbytes));
}

/* Two lines: the model, then "units     4 of FSDP on 1,024 ranks, in groups of 8 (as given)". */
static void print_subject(const model_layout *l)
{
    const fsdpck_units_info *k = &l->all;
    char a[40], b[40];
    printf("model     ");
    if (!l->about.lists_units)
        printf("%s, %s, ", report_count(a, sizeof a, l->about.modules, "module"),
               report_count(b, sizeof b, l->about.params, "parameter"));
    printf("%s\n", report_bytes(a, sizeof a, k->nbytes));
    printf("units     ");
    if (k->sharding == FSDPCK_SHARDING_NONE)
        printf("none");
    else
        printf("%s of %s", report_number(a, sizeof a, k->units),
               k->sharding == FSDPCK_SHARDING_FLAT          ? "FSDP"
               : k->sharding == FSDPCK_SHARDING_FULLY_SHARD ? "fully_shard"
                                                            : "FSDP and fully_shard");
    printf(" on %s", report_count(b, sizeof b, k->world_size, "rank"));
    if (k->group_size_min > 0 && k->group_size_min < k->world_size) {
        printf(", in groups of %s", report_number(a, sizeof a, k->group_size_min));
        if (k->group_size_max > k->group_size_min)
            printf(" to %s", report_number(a, sizeof a, k->group_size_max));
    }
    printf(" (%s)\n", l->ranks_given ? "as given" : "as described");
}

static void print_totals(const model_layout *l)
{
    const fsdpck_units_info *k = &l->all;
    char a[40], b[40], n[40], name[NAME_CAPACITY];
    print_subject(l);
    layout_print_ranks(
        &(layout_ranks){k->rank_nbytes_min, k->rank_nbytes_max, k->rank_min, k->rank_max,
                        k->rank_nbytes_total / k->world_size,
                        layout_imbalance(k->rank_nbytes_max, k->rank_nbytes_total, k->world_size)});
    layout_print_padding(k->padding_nbytes, k->rank_nbytes_total);
    if (k->gather_nbytes_max > 0) {
        fsdpck_unit u = {.struct_nbytes = sizeof u};
        fsdpck_units_get(l->units, k->gather_unit, &u);
        printf("gather    at most %s at once, in %s: unit %s\n",
               report_bytes(a, sizeof a, k->gather_nbytes_max), u.gather_dtype,
               unit_name_of(name, sizeof name, &u));
    }
    if (k->whole_params > 0)
        printf("whole     %s, %s on every rank; %s ignored\n",
               report_count(a, sizeof a, k->whole_params, "parameter"),
               report_bytes(b, sizeof b, k->whole_nbytes),
               report_number(n, sizeof n, k->ignored_params));
    if (k->buffers > 0)
        printf("buffers   %s, %s on every rank\n", report_count(a, sizeof a, k->buffers, "buffer"),
               report_bytes(b, sizeof b, k->buffer_nbytes));
    print_training(k);
}

int layout_description_text(const cli *c, const model_layout *l, const layout_scope *scope)
{
    bool ok = true;
    if (l->all.units == 0)
        printf("no module of the description has 'fsdp' or 'fully_shard', so nothing is sharded\n"
               "next: choose classes with describe_model.py --fully-shard CLASS,...: "
               "fsdpck-model(5)\n\n");
    for (uint64_t r = scope->first; ok && r < scope->last; r++)
        ok = print_rank(l, r);
    for (uint64_t i = 0; ok && scope->first == scope->last && i < l->all.units; i++)
        ok = print_unit(l, i);
    if (ok)
        ok = print_whole(l);
    if (!ok)
        return report_no_memory(c);
    print_totals(l);
    return 0;
}
