/* JSON report of fsdpck layout for a checkpoint. */
#include "layout_print.h"

#include <stdlib.h>

#include "next_command.h"
#include "report.h"

static void put_tensor(json_writer *w, fsdpck_layout *l, uint64_t index)
{
    fsdpck_layout_tensor t = FSDPCK_INIT(fsdpck_layout_tensor);
    fsdpck_layout_shard first = FSDPCK_INIT(fsdpck_layout_shard);
    fsdpck_layout_get_tensor(l, index, &t);
    fsdpck_layout_get_shard(l, index, 0, &first);
    json_begin_line(w);
    report_name(w, "name", t.name, t.name_nbytes);
    json_member_string(w, "dtype", t.dtype);
    json_member_u64s(w, "shape", t.shape, t.ndim);
    json_member_string(w, "part", fsdpck_part_name(t.part));
    json_member_u64(w, "bytes", t.nbytes);
    json_member_string(w, "placements", t.placements);
    json_member_u64s(w, "first_piece", first.sizes, t.ndim);
    JSON_COUNTS(w, {"pieces", t.distinct_pieces}, {"empty_pieces", t.empty_pieces});
    if (t.tied_to != NULL)
        report_name(w, "tied_to", t.tied_to, t.tied_to_nbytes);
    json_end_line(w);
}

/* Names are those of "tensors", in the same order. */
static void put_piece(json_writer *w, const fsdpck_layout *l, const fsdpck_layout_tensor *t,
                      uint64_t index, uint64_t rank)
{
    fsdpck_layout_shard piece = FSDPCK_INIT(fsdpck_layout_shard);
    fsdpck_layout_get_shard(l, index, rank, &piece);
    json_begin_object(w);
    report_name(w, "name", t->name, t->name_nbytes);
    json_member_u64s(w, "shape", piece.sizes, t->ndim);
    json_member_u64s(w, "offset", piece.offsets, t->ndim);
    JSON_COUNTS(w, {"bytes", piece.nbytes}, {"padding", piece.padding_nelems});
    json_end_object(w);
}

static void put_rank(json_report *r, const fsdpck_layout *l, const fsdpck_layout_tensor *tensors,
                     uint64_t count, uint64_t rank)
{
    json_writer *const w = &r->w;
    fsdpck_layout_rank sums = FSDPCK_INIT(fsdpck_layout_rank);
    fsdpck_layout_get_rank(l, rank, &sums);
    json_begin_line(w);
    JSON_COUNTS(w, {"rank", rank}, {"bytes", sums.nbytes}, {"padding_bytes", sums.padding_nbytes},
                {"empty_pieces", sums.empty_tensors});
    json_member_array(w, "pieces");
    for (uint64_t i = 0; i < count; i++)
        put_piece(w, l, &tensors[i], i, rank);
    json_end_array(w);
    json_end_line(w);
}

static void put_ranks(json_report *r, fsdpck_layout *l, uint64_t count, const layout_scope *scope)
{
    fsdpck_layout_tensor *tensors = layout_tensors(l);
    if (tensors == NULL)
        r->text.failed = 1;
    report_list(r, "ranks");
    for (uint64_t rank = scope->first; tensors != NULL && rank < scope->last; rank++)
        put_rank(r, l, tensors, count, rank);
    json_end_array(&r->w);
    free(tensors);
}

/* As many as a mesh has in practice; "ranks" has all. */
#define RANKS_LISTED 65536u

static void put_bytes_per_rank(json_writer *w, const fsdpck_layout *l, uint64_t world_size)
{
    if (world_size > RANKS_LISTED)
        return;
    json_member_array(w, "bytes_per_rank");
    for (uint64_t rank = 0; rank < world_size; rank++) {
        fsdpck_layout_rank sums = FSDPCK_INIT(fsdpck_layout_rank);
        fsdpck_layout_get_rank(l, rank, &sums);
        json_put_u64(w, sums.nbytes);
    }
    json_end_array(w);
}

void layout_put_sum(json_writer *w, uint64_t most, uint64_t sum, uint64_t ranks)
{
    json_member_u64(w, "sum", sum);
    if (ranks > 0)
        json_member_double(w, "mean", (double)sum / (double)ranks);
    json_member_double(w, "imbalance", layout_imbalance(most, sum, ranks));
}

static void put_totals(json_report *r, const fsdpck_layout *l, const fsdpck_layout_info *k)
{
    json_writer *const w = &r->w;
    json_member_string(w, "mesh", k->mesh);
    json_member_u64(w, "world_size", k->world_size);
    REPORT_MEMBER_COUNTS(r, REPORT_COUNTS, {"tensors", k->tensors}, {"bytes", k->nbytes},
                         {"replicated", k->replicated}, {"empty_pieces", k->empty_pieces},
                         {"padding_bytes", k->padding_nbytes}, {"tied", k->tied},
                         {"tied_bytes", k->tied_nbytes});
    json_member_object(w, "rank_nbytes");
    JSON_COUNTS(w, {"min", k->rank_nbytes_min}, {"min_rank", k->rank_min},
                {"max", k->rank_nbytes_max}, {"max_rank", k->rank_max});
    layout_put_sum(w, k->rank_nbytes_max, k->rank_nbytes_total, k->world_size);
    json_end_object(w);
    put_bytes_per_rank(w, l, k->world_size);
    json_member_object(w, "training_nbytes");
    JSON_COUNTS(w, {"parameters", k->param_nbytes}, {"gradients", k->grad_nbytes},
                {"adam", k->adam_nbytes});
    json_member_bool(w, "assumed", k->training_assumed);
    json_end_object(w);
}

static void put_next(json_report *r, const command_request *request)
{
    text_buf line = {0};
    report_begin_member(r, REPORT_NEXT);
    next_command_reshard(&line, request->given, request->src);
    next_command_put(&r->w, &line);
    json_end_array(&r->w);
}

int layout_print_json(const cli *c, const command_request *r, const convert_inputs *in,
                      fsdpck_layout *l, const layout_scope *scope)
{
    fsdpck_layout_info k = FSDPCK_INIT(fsdpck_layout_info);
    fsdpck_info info = in->info;
    json_report out;
    fsdpck_layout_get_info(l, &k);
    report_set_step(in->src, &info);
    report_begin(&out, c, 0, "none", &info);
    report_put_page_steps(c, &out.w, "steps", in->src);
    put_totals(&out, l, &k);
    put_next(&out, r);
    report_list(&out, "tensors");
    for (uint64_t i = 0; i < k.tensors; i++)
        put_tensor(&out.w, l, i);
    json_end_array(&out.w);
    if (scope->first < scope->last)
        put_ranks(&out, l, k.tensors, scope);
    return report_end(&out);
}
