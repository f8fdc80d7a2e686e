/* JSON report of fsdpck layout for a checkpoint. */
#include "layout_print.h"

#include <stdlib.h>

#include "report.h"

static cJSON *tensor_json(fsdpck_layout *l, uint64_t index)
{
    fsdpck_layout_tensor t = FSDPCK_INIT(fsdpck_layout_tensor);
    fsdpck_layout_shard first = FSDPCK_INIT(fsdpck_layout_shard);
    fsdpck_layout_get_tensor(l, index, &t);
    fsdpck_layout_get_shard(l, index, 0, &first);
    cJSON *o = cJSON_CreateObject();
    if (o == NULL)
        return NULL;
    report_json_name(o, "name", t.name, t.name_nbytes);
    cJSON_AddStringToObject(o, "dtype", t.dtype);
    report_json_sizes(o, "shape", t.shape, t.ndim);
    cJSON_AddStringToObject(o, "part", fsdpck_part_name(t.part));
    cJSON_AddNumberToObject(o, "bytes", (double)t.nbytes);
    cJSON_AddStringToObject(o, "placements", t.placements);
    report_json_sizes(o, "first_piece", first.sizes, t.ndim);
    cJSON_AddNumberToObject(o, "pieces", (double)t.distinct_pieces);
    cJSON_AddNumberToObject(o, "empty_pieces", (double)t.empty_pieces);
    return o;
}

/* Names are those of "tensors", in the same order. */
static cJSON *piece_json(const fsdpck_layout *l, const fsdpck_layout_tensor *t, uint64_t index,
                         uint64_t rank)
{
    fsdpck_layout_shard piece = FSDPCK_INIT(fsdpck_layout_shard);
    fsdpck_layout_get_shard(l, index, rank, &piece);
    cJSON *o = cJSON_CreateObject();
    if (o == NULL)
        return NULL;
    report_json_name(o, "name", t->name, t->name_nbytes);
    report_json_sizes(o, "shape", piece.sizes, t->ndim);
    report_json_sizes(o, "offset", piece.offsets, t->ndim);
    cJSON_AddNumberToObject(o, "bytes", (double)piece.nbytes);
    cJSON_AddNumberToObject(o, "padding", (double)piece.padding_nelems);
    return o;
}

static cJSON *rank_json(const fsdpck_layout *l, const fsdpck_layout_tensor *tensors, uint64_t count,
                        uint64_t rank)
{
    fsdpck_layout_rank sums = FSDPCK_INIT(fsdpck_layout_rank);
    fsdpck_layout_get_rank(l, rank, &sums);
    cJSON *o = cJSON_CreateObject();
    cJSON_AddNumberToObject(o, "rank", (double)rank);
    cJSON_AddNumberToObject(o, "bytes", (double)sums.nbytes);
    cJSON_AddNumberToObject(o, "padding_bytes", (double)sums.padding_nbytes);
    cJSON_AddNumberToObject(o, "empty_pieces", (double)sums.empty_tensors);
    cJSON *list = cJSON_AddArrayToObject(o, "pieces");
    for (uint64_t i = 0; list != NULL && i < count; i++)
        cJSON_AddItemToArray(list, piece_json(l, &tensors[i], i, rank));
    return o;
}

static void add_ranks(report_stream *out, fsdpck_layout *l, uint64_t count,
                      const layout_scope *scope)
{
    fsdpck_layout_tensor *tensors = layout_tensors(l);
    report_stream_list(out, "ranks");
    for (uint64_t rank = scope->first; rank < scope->last; rank++)
        report_stream_item(out, tensors == NULL ? NULL : rank_json(l, tensors, count, rank));
    report_stream_list_end(out);
    free(tensors);
}

static void add_totals(cJSON *e, const fsdpck_layout_info *k)
{
    cJSON_AddStringToObject(e, "mesh", k->mesh);
    cJSON_AddNumberToObject(e, "world_size", (double)k->world_size);
    cJSON *n = cJSON_AddObjectToObject(e, "counts");
    cJSON_AddNumberToObject(n, "tensors", (double)k->tensors);
    cJSON_AddNumberToObject(n, "bytes", (double)k->nbytes);
    cJSON_AddNumberToObject(n, "replicated", (double)k->replicated);
    cJSON_AddNumberToObject(n, "empty_pieces", (double)k->empty_pieces);
    cJSON_AddNumberToObject(n, "padding_bytes", (double)k->padding_nbytes);
    cJSON *ranks = cJSON_AddObjectToObject(e, "rank_nbytes");
    cJSON_AddNumberToObject(ranks, "min", (double)k->rank_nbytes_min);
    cJSON_AddNumberToObject(ranks, "min_rank", (double)k->rank_min);
    cJSON_AddNumberToObject(ranks, "max", (double)k->rank_nbytes_max);
    cJSON_AddNumberToObject(ranks, "max_rank", (double)k->rank_max);
    cJSON_AddNumberToObject(ranks, "sum", (double)k->rank_nbytes_total);
    if (k->world_size > 0)
        cJSON_AddNumberToObject(ranks, "mean",
                                (double)k->rank_nbytes_total / (double)k->world_size);
    cJSON_AddNumberToObject(ranks, "imbalance", layout_imbalance(k));
    cJSON *training = cJSON_AddObjectToObject(e, "training_nbytes");
    cJSON_AddNumberToObject(training, "parameters", (double)k->param_nbytes);
    cJSON_AddNumberToObject(training, "gradients", (double)k->grad_nbytes);
    cJSON_AddNumberToObject(training, "adam", (double)k->adam_nbytes);
    cJSON_AddBoolToObject(training, "assumed", k->training_assumed);
}

int layout_print_json(const cli *c, const fsdpck_info *info, fsdpck_layout *l,
                      const layout_scope *scope)
{
    fsdpck_layout_info k = FSDPCK_INIT(fsdpck_layout_info);
    fsdpck_layout_get_info(l, &k);
    cJSON *e = report_json_begin(c, 0, "none", info);
    if (e == NULL)
        return FSDPCK_LIMIT;
    add_totals(e, &k);
    report_stream out;
    report_stream_begin(&out, e);
    report_stream_list(&out, "tensors");
    for (uint64_t i = 0; i < k.tensors; i++)
        report_stream_item(&out, tensor_json(l, i));
    report_stream_list_end(&out);
    if (scope->first < scope->last)
        add_ranks(&out, l, k.tensors, scope);
    return report_stream_end(&out, 0);
}
