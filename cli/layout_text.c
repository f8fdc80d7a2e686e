/* Text output of fsdpck layout for a checkpoint. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "convert_report.h"
#include "layout_print.h"
#include "report.h"
#include "table.h"

#define NAME_CAPACITY  1024u
#define SHAPE_CAPACITY 512u
/* Share of padding from which on a hint is printed. */
#define PADDING_SHARE_HIGH 0.25

bool layout_choose_scope(const cli *c, const char *rank, uint64_t world_size, layout_scope *scope)
{
    *scope = (layout_scope){0, 0};
    if (rank == NULL)
        return true;
    scope->last = world_size;
    if (strcmp(rank, "all") == 0)
        return true;
    if (!opt_count(c, "--rank", rank, 0, world_size - 1, &scope->first))
        return false;
    scope->last = scope->first + 1;
    return true;
}

double layout_imbalance(uint64_t most, uint64_t sum, uint64_t ranks)
{
    return sum == 0 ? 1 : (double)most * (double)ranks / (double)sum;
}

fsdpck_layout_tensor *layout_tensors(fsdpck_layout *l)
{
    fsdpck_layout_info k = FSDPCK_INIT(fsdpck_layout_info);
    fsdpck_layout_get_info(l, &k);
    fsdpck_layout_tensor *list = calloc(k.tensors + 1, sizeof *list);
    for (uint64_t i = 0; list != NULL && i < k.tensors; i++) {
        list[i].struct_nbytes = sizeof list[i];
        fsdpck_layout_get_tensor(l, i, &list[i]);
    }
    return list;
}

static bool print_tensors(const cli *c, fsdpck_layout *l, uint64_t count)
{
    static const table_column columns[] = {{"NAME", TABLE_NAME},        {"DTYPE", TABLE_TEXT},
                                           {"SHAPE", TABLE_TEXT},       {"PLACEMENTS", TABLE_TEXT},
                                           {"FIRST SHARD", TABLE_TEXT}, {"SHARDS", TABLE_NUMBER},
                                           {"EMPTY", TABLE_NUMBER}};
    table *rows = table_new(&c->out, columns, 7);
    for (uint64_t i = 0; i < count; i++) {
        char name[NAME_CAPACITY], shape[SHAPE_CAPACITY], first[SHAPE_CAPACITY];
        char pieces[40], empty[40];
        fsdpck_layout_tensor t = FSDPCK_INIT(fsdpck_layout_tensor);
        fsdpck_layout_shard piece = FSDPCK_INIT(fsdpck_layout_shard);
        fsdpck_layout_get_tensor(l, i, &t);
        fsdpck_layout_get_shard(l, i, 0, &piece);
        const char *const cells[] = {fsdpck_escape(name, sizeof name, t.name, t.name_nbytes),
                                     t.dtype,
                                     report_shape(shape, sizeof shape, t.shape, t.ndim),
                                     t.placements,
                                     report_shape(first, sizeof first, piece.sizes, t.ndim),
                                     report_number(pieces, sizeof pieces, t.distinct_pieces),
                                     report_number(empty, sizeof empty, t.empty_pieces)};
        table_add(rows, cells);
    }
    return table_print(rows);
}

/* One table per rank, so that memory does not grow with the number of ranks. */
static bool print_rank(const cli *c, const fsdpck_layout *l, const fsdpck_layout_tensor *tensors,
                       uint64_t count, uint64_t rank)
{
    static const table_column columns[] = {{"NAME", TABLE_NAME},     {"DTYPE", TABLE_TEXT},
                                           {"SHAPE", TABLE_TEXT},    {"OFFSET", TABLE_TEXT},
                                           {"OF", TABLE_TEXT},       {"BYTES", TABLE_NUMBER},
                                           {"PADDING", TABLE_NUMBER}};
    char a[40], b[40];
    fsdpck_layout_rank sums = FSDPCK_INIT(fsdpck_layout_rank);
    fsdpck_layout_get_rank(l, rank, &sums);
    printf("rank %" PRIu64 ": %s in %s", rank, report_bytes(a, sizeof a, sums.nbytes),
           report_count(b, sizeof b, sums.tensors, "tensor"));
    if (sums.empty_tensors > 0)
        printf(", %s without elements", report_number(a, sizeof a, sums.empty_tensors));
    putchar('\n');
    table *rows = table_new(&c->out, columns, 7);
    for (uint64_t i = 0; i < count; i++) {
        char name[NAME_CAPACITY], shape[SHAPE_CAPACITY], offset[SHAPE_CAPACITY];
        char of[SHAPE_CAPACITY], nbytes[40], padding[40];
        const fsdpck_layout_tensor t = tensors[i];
        fsdpck_layout_shard piece = FSDPCK_INIT(fsdpck_layout_shard);
        fsdpck_layout_get_shard(l, i, rank, &piece);
        const char *const cells[] = {fsdpck_escape(name, sizeof name, t.name, t.name_nbytes),
                                     t.dtype,
                                     report_shape(shape, sizeof shape, piece.sizes, t.ndim),
                                     report_shape(offset, sizeof offset, piece.offsets, t.ndim),
                                     report_shape(of, sizeof of, t.shape, t.ndim),
                                     report_bytes(nbytes, sizeof nbytes, piece.nbytes),
                                     report_number(padding, sizeof padding, piece.padding_nelems)};
        table_add(rows, cells);
    }
    return table_print(rows);
}

static bool print_ranks(const cli *c, fsdpck_layout *l, uint64_t count, const layout_scope *scope)
{
    fsdpck_layout_tensor *tensors = layout_tensors(l);
    bool ok = tensors != NULL;
    for (uint64_t rank = scope->first; ok && rank < scope->last; rank++) {
        if (rank > scope->first)
            putchar('\n');
        ok = print_rank(c, l, tensors, count, rank);
    }
    free(tensors);
    return ok;
}

void layout_print_ranks(const layout_ranks *r)
{
    char a[40], b[40], n[40];
    report_bytes(a, sizeof a, r->min);
    report_bytes(b, sizeof b, r->max);
    if (r->min == r->max) {
        printf("per rank  %s on every rank, imbalance %.3f\n", a, r->imbalance);
        return;
    }
    if (strcmp(a, b) == 0) {
        snprintf(a, sizeof a, "%" PRIu64, r->min);
        snprintf(b, sizeof b, "%" PRIu64 " bytes", r->max);
    }
    printf("per rank  %s (rank %" PRIu64 ") to %s (rank %" PRIu64 "), mean %s, imbalance %.3f\n", a,
           r->min_rank, b, r->max_rank, report_bytes(n, sizeof n, r->mean), r->imbalance);
}

void layout_print_padding(uint64_t padding_nbytes, uint64_t held_nbytes)
{
    char a[40];
    const double held = (double)held_nbytes + (double)padding_nbytes;
    const double share = held > 0 ? (double)padding_nbytes / held : 0;
    printf("padding   %s in the memory of all ranks (%.2f %% of their bytes)\n",
           report_bytes(a, sizeof a, padding_nbytes), 100 * share);
    if (share >= PADDING_SHARE_HIGH)
        printf("          shards are small: sharding each tensor over fewer ranks reduces the "
               "padding, for example with "
               "--mesh "
               "dp_replicate=R,dp_shard=S\n");
}

static void print_totals(const command_request *r, const fsdpck_info *info,
                         const fsdpck_layout_info *k)
{
    char a[40], b[40], n[40], m[40], reason[512];
    printf("mesh      %s, %s (%s)\n", k->mesh, report_count(a, sizeof a, k->world_size, "rank"),
           convert_mesh_reason(r, info, k->mesh, reason, sizeof reason));
    printf("tensors   %s, %s; %s replicated\n", report_number(a, sizeof a, k->tensors),
           report_bytes(b, sizeof b, k->nbytes), report_number(n, sizeof n, k->replicated));
    if (k->tied > 0)
        printf("tied      %s of another tensor, %s, counted once\n",
               report_count(a, sizeof a, k->tied, "further name"),
               report_bytes(b, sizeof b, k->tied_nbytes));
    layout_print_ranks(
        &(layout_ranks){k->rank_nbytes_min, k->rank_nbytes_max, k->rank_min, k->rank_max,
                        k->world_size == 0 ? 0 : k->rank_nbytes_total / k->world_size,
                        layout_imbalance(k->rank_nbytes_max, k->rank_nbytes_total, k->world_size)});
    printf("empty     %s without elements\n", report_count(a, sizeof a, k->empty_pieces, "shard"));
    layout_print_padding(k->padding_nbytes, k->rank_nbytes_total);
    if (k->param_nbytes == 0)
        return;
    printf("training  at most %s per GPU: parameters %s, gradients %s in the parameters' dtype, ",
           report_bytes(m, sizeof m, k->param_nbytes + k->grad_nbytes + k->adam_nbytes),
           report_bytes(a, sizeof a, k->param_nbytes), report_bytes(b, sizeof b, k->grad_nbytes));
    report_bytes(n, sizeof n, k->adam_nbytes);
    if (k->training_assumed)
        printf("Adam %s (assumed: two moments in the parameters' dtype)\n", n);
    else
        printf("optimizer state %s as in the source\n", n);
}

int layout_print_text(const cli *c, const command_request *r, const fsdpck_info *info,
                      fsdpck_layout *l, const layout_scope *scope)
{
    fsdpck_layout_info k = FSDPCK_INIT(fsdpck_layout_info);
    fsdpck_layout_get_info(l, &k);
    const bool ok = scope->first < scope->last ? print_ranks(c, l, k.tensors, scope)
                                               : print_tensors(c, l, k.tensors);
    if (!ok)
        return report_no_memory(c);
    putchar('\n');
    print_totals(r, info, &k);
    return 0;
}
