/* JSON report of fsdpck layout for a model description. */
#include "layout_description.h"

#include <stdlib.h>
#include <string.h>

#include "report.h"

static void put(cJSON *o, const char *key, uint64_t n)
{
    cJSON_AddNumberToObject(o, key, (double)n);
}

static cJSON *shared_json(const model_layout *l, uint64_t index, uint64_t k)
{
    fsdpck_unit_shared s = {.struct_nbytes = sizeof s};
    fsdpck_units_get_shared(l->units, index, k, &s);
    cJSON *o = cJSON_CreateObject();
    report_json_name(o, "name", s.fqn, s.fqn_nbytes);
    report_json_name(o, "same_as", s.same_as, s.same_as_nbytes);
    return o;
}

static cJSON *inputs_json(const model_layout *l, uint64_t index, uint64_t k, uint64_t count)
{
    cJSON *list = cJSON_CreateArray();
    for (uint64_t j = 0; j < count; j++) {
        fsdpck_gather_input in = {.struct_nbytes = sizeof in};
        fsdpck_units_get_input(l->units, index, k, j, &in);
        cJSON *o = cJSON_CreateObject();
        cJSON_AddStringToObject(o, "dtype", in.dtype);
        put(o, "elements", in.nelems);
        put(o, "gathered", in.output_nelems);
        cJSON_AddItemToArray(list, o);
    }
    return list;
}

static cJSON *param_json(const model_layout *l, const fsdpck_unit *u, uint64_t index, uint64_t k)
{
    fsdpck_unit_param p = {.struct_nbytes = sizeof p};
    fsdpck_units_get_param(l->units, index, k, &p);
    cJSON *o = cJSON_CreateObject();
    report_json_name(o, "name", p.fqn, p.fqn_nbytes);
    cJSON_AddStringToObject(o, "dtype", p.dtype);
    report_json_sizes(o, "shape", p.shape, p.ndim);
    put(o, "elements", p.nelems);
    if (u->kind == FSDPCK_SHARDING_FLAT) {
        uint64_t strides[64];
        fsdpck_units_get_strides(l->units, index, k, strides);
        put(o, "offset", p.offset);
        put(o, "padding_before", p.padding_before);
        if (p.permuted)
            report_json_sizes(o, "strides", strides, p.ndim);
        return o;
    }
    fsdpck_sharded_param s = {.struct_nbytes = sizeof s};
    fsdpck_units_get_sharded(l->units, index, k, 0, &s);
    put(o, "shard_dim", p.shard_dim);
    report_json_sizes(o, "padded_shape", s.padded_sharded_param_size, p.ndim);
    put(o, "padded_elements", p.padded_nelems);
    put(o, "padding", p.padded_nelems * u->world_size - p.nelems);
    if (s.param_dtype[0] != '\0')
        cJSON_AddStringToObject(o, "param_dtype", s.param_dtype);
    if (s.reduce_dtype[0] != '\0')
        cJSON_AddStringToObject(o, "reduce_dtype", s.reduce_dtype);
    cJSON_AddItemToObject(o, "all_gather", inputs_json(l, index, k, s.all_gather_inputs));
    return o;
}

static void add_flat(cJSON *o, const fsdpck_unit *u)
{
    cJSON_AddStringToObject(o, "strategy", u->strategy);
    cJSON_AddStringToObject(o, "flat_name", u->flat_name);
    cJSON_AddBoolToObject(o, "use_orig_params", u->use_orig_params);
    put(o, "alignment", u->alignment);
    put(o, "total", u->total);
    put(o, "padding_inside", u->padding_inside);
    put(o, "padding_world", u->padding_world);
}

static cJSON *unit_json(const model_layout *l, uint64_t index)
{
    fsdpck_unit u = {.struct_nbytes = sizeof u};
    fsdpck_units_get(l->units, index, &u);
    cJSON *o = cJSON_CreateObject();
    report_json_name(o, "module", u.path, u.path_nbytes);
    report_json_name(o, "class", u.class_name, strlen(u.class_name));
    cJSON_AddStringToObject(o, "sharding", fsdpck_sharding_name(u.kind));
    put(o, "world_size", u.world_size);
    if (u.kind == FSDPCK_SHARDING_FLAT)
        add_flat(o, &u);
    cJSON_AddBoolToObject(o, "cpu_offload", u.cpu_offload);
    cJSON_AddStringToObject(o, "dtype", u.dtype);
    cJSON_AddStringToObject(o, "gather_dtype", u.gather_dtype);
    cJSON_AddStringToObject(o, "reduce_dtype", u.reduce_dtype);
    put(o, "elements", u.nelems);
    put(o, "shard_elements", u.shard_nelems);
    put(o, "shard_bytes", u.shard_nbytes);
    put(o, "padding_ranks", u.padding_ranks);
    put(o, "padding_bytes", u.padding_nbytes);
    put(o, "gather_bytes", u.gather_nbytes);
    put(o, "reduce_bytes", u.reduce_nbytes);
    put(o, "post_forward_size", u.post_forward_size);
    put(o, "post_forward_bytes", u.post_forward_nbytes);
    put(o, "rank_elements_max", u.rank_nelems_max);
    cJSON *params = cJSON_AddArrayToObject(o, "params");
    for (uint64_t k = 0; params != NULL && k < u.params; k++)
        cJSON_AddItemToArray(params, param_json(l, &u, index, k));
    cJSON *shared = cJSON_AddArrayToObject(o, "shared");
    for (uint64_t k = 0; shared != NULL && k < u.shared; k++)
        cJSON_AddItemToArray(shared, shared_json(l, index, k));
    return o;
}

/* ---- ranks ---- */

static void add_boxes(cJSON *o, const model_layout *l, uint64_t index, uint64_t k, unsigned ndim,
                      const fsdpck_param_shard *piece)
{
    size_t count;
    fsdpck_box *boxes = layout_description_boxes(l, index, k, ndim, piece, &count);
    cJSON *list = cJSON_AddArrayToObject(o, "boxes");
    for (size_t i = 0; list != NULL && i < count; i++) {
        cJSON *box = cJSON_CreateObject();
        report_json_sizes(box, "offset", boxes[i].offsets, ndim);
        report_json_sizes(box, "shape", boxes[i].sizes, ndim);
        cJSON_AddItemToArray(list, box);
    }
    free(boxes);
}

static cJSON *piece_json(const model_layout *l, const fsdpck_unit *u, uint64_t index, uint64_t k,
                         uint64_t rank)
{
    fsdpck_unit_param p = {.struct_nbytes = sizeof p};
    fsdpck_param_shard piece = {.struct_nbytes = sizeof piece};
    fsdpck_units_get_param(l->units, index, k, &p);
    fsdpck_units_get_param_shard(l->units, index, k, rank, &piece);
    cJSON *o = cJSON_CreateObject();
    report_json_name(o, "name", p.fqn, p.fqn_nbytes);
    if (u->kind == FSDPCK_SHARDING_FLAT) {
        cJSON_AddBoolToObject(o, "in_shard", piece.in_shard);
        put(o, "shard_offset", piece.shard_offset);
        put(o, "begin", piece.begin);
        put(o, "end", piece.end);
        add_boxes(o, l, index, k, p.ndim, &piece);
        return o;
    }
    uint64_t offsets[64] = {0};
    fsdpck_sharded_param s = {.struct_nbytes = sizeof s};
    fsdpck_units_get_sharded(l->units, index, k, rank, &s);
    offsets[p.shard_dim] = s.offset;
    report_json_sizes(o, "shape", s.sharded_size, p.ndim);
    report_json_sizes(o, "offset", offsets, p.ndim);
    report_json_sizes(o, "strides", s.contiguous_sharded_stride, p.ndim);
    put(o, "padding", piece.padding);
    report_json_sizes(o, "post_forward_shape", s.sharded_post_forward_size, p.ndim);
    report_json_sizes(o, "post_forward_strides", s.contiguous_sharded_post_forward_stride, p.ndim);
    put(o, "post_forward_begin", s.post_forward_begin);
    put(o, "post_forward_end", s.post_forward_end);
    const uint64_t mesh[2] = {s.post_forward_replicas, s.post_forward_size};
    report_json_sizes(o, "post_forward_mesh", mesh, 2);
    return o;
}

static cJSON *rank_unit_json(const model_layout *l, uint64_t index, uint64_t rank)
{
    fsdpck_unit u = {.struct_nbytes = sizeof u};
    fsdpck_units_get(l->units, index, &u);
    cJSON *o = cJSON_CreateObject();
    report_json_name(o, "module", u.path, u.path_nbytes);
    if (u.kind == FSDPCK_SHARDING_FLAT) {
        fsdpck_unit_shard s = {.struct_nbytes = sizeof s};
        fsdpck_units_get_shard(l->units, index, rank, &s);
        put(o, "begin", s.begin);
        put(o, "end", s.end);
        put(o, "padding", s.padding);
    }
    cJSON *list = cJSON_AddArrayToObject(o, "pieces");
    for (uint64_t k = 0; list != NULL && k < u.params; k++)
        cJSON_AddItemToArray(list, piece_json(l, &u, index, k, rank));
    return o;
}

/* One item per unit and rank, so that memory grows with neither number. */
static cJSON *rank_json(const model_layout *l, uint64_t rank)
{
    fsdpck_units_rank sums = {.struct_nbytes = sizeof sums};
    fsdpck_units_get_rank(l->units, rank, &sums);
    cJSON *o = cJSON_CreateObject();
    put(o, "rank", rank);
    put(o, "bytes", sums.nbytes);
    put(o, "padding_bytes", sums.padding_nbytes);
    cJSON *list = cJSON_AddArrayToObject(o, "units");
    for (uint64_t i = 0; list != NULL && i < l->all.units; i++)
        cJSON_AddItemToArray(list, rank_unit_json(l, i, rank));
    return o;
}

/* ---- report ---- */

static cJSON *whole_json(const fsdpck_param *p)
{
    cJSON *o = cJSON_CreateObject();
    report_json_name(o, "name", p->fqn, p->fqn_nbytes);
    cJSON_AddStringToObject(o, "dtype", p->dtype);
    report_json_sizes(o, "shape", p->shape, p->ndim);
    put(o, "bytes", p->nelems * p->itemsize_nbytes);
    cJSON_AddBoolToObject(o, "ignored", p->ignored);
    return o;
}

static void add_totals(cJSON *e, const model_layout *l)
{
    const fsdpck_units_info *k = &l->all;
    cJSON_AddStringToObject(e, "sharding", fsdpck_sharding_name(k->sharding));
    put(e, "world_size", k->world_size);
    cJSON *n = cJSON_AddObjectToObject(e, "counts");
    put(n, "modules", l->about.modules);
    put(n, "tensors", l->about.lists_units ? k->params : l->about.params);
    put(n, "elements", k->nelems);
    put(n, "bytes", k->nbytes);
    put(n, "units", k->units);
    put(n, "whole", k->whole_params);
    put(n, "whole_bytes", k->whole_nbytes);
    put(n, "ignored", k->ignored_params);
    put(n, "buffers", k->buffers);
    put(n, "buffer_bytes", k->buffer_nbytes);
    put(n, "padding_bytes", k->padding_nbytes);
    cJSON *ranks = cJSON_AddObjectToObject(e, "rank_nbytes");
    put(ranks, "min", k->rank_nbytes_min);
    put(ranks, "min_rank", k->rank_min);
    put(ranks, "max", k->rank_nbytes_max);
    put(ranks, "max_rank", k->rank_max);
    put(ranks, "sum", k->rank_nbytes_total);
    cJSON_AddNumberToObject(ranks, "mean", (double)k->rank_nbytes_total / (double)k->world_size);
    cJSON_AddNumberToObject(
        ranks, "imbalance",
        layout_description_imbalance(k->rank_nbytes_max, k->rank_nbytes_total, k->world_size));
    cJSON *training = cJSON_AddObjectToObject(e, "training_nbytes");
    put(training, "parameters", k->rank_nbytes);
    put(training, "gradients", k->grad_nbytes);
    put(training, "adam", k->adam_nbytes);
    cJSON_AddBoolToObject(training, "assumed", 1);
    put(training, "cpu", k->cpu_nbytes);
    put(training, "largest_gather", k->gather_nbytes_max);
}

int layout_description_json(const cli *c, const model_layout *l, const layout_scope *scope)
{
    const fsdpck_info source = {
        .struct_nbytes = sizeof source,
        .path = l->path,
        .format = "model",
        .trainer = "",
        .torch_version = "",
        .step = -1,
        .world_size = l->about.world_size == 0 ? -1 : (int64_t)l->about.world_size,
        .mesh = "",
    };
    cJSON *e = report_json_begin(c, 0, "none", &source);
    if (e == NULL)
        return FSDPCK_LIMIT;
    add_totals(e, l);
    report_stream out;
    report_stream_begin(&out, e);
    report_stream_list(&out, "units");
    for (uint64_t i = 0; i < l->all.units; i++)
        report_stream_item(&out, unit_json(l, i));
    report_stream_list_end(&out);
    report_stream_list(&out, "whole");
    for (uint64_t i = 0; i < l->about.names; i++) {
        fsdpck_param p = {.struct_nbytes = sizeof p};
        fsdpck_model_get_param(l->model, i, &p);
        if (p.first_name == i && !fsdpck_units_has(l->units, i))
            report_stream_item(&out, whole_json(&p));
    }
    report_stream_list_end(&out);
    if (scope->first < scope->last) {
        report_stream_list(&out, "ranks");
        for (uint64_t rank = scope->first; rank < scope->last; rank++)
            report_stream_item(&out, rank_json(l, rank));
        report_stream_list_end(&out);
    }
    return report_stream_end(&out, 0);
}
