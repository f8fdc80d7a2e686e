/* JSON report of fsdpck layout for a model description. */
#include "layout_description.h"

#include <stdlib.h>
#include <string.h>

#include "report.h"

static void put_shared(json_writer *w, const model_layout *l, uint64_t index, uint64_t k)
{
    fsdpck_unit_shared s = {.struct_nbytes = sizeof s};
    fsdpck_units_get_shared(l->units, index, k, &s);
    json_begin_object(w);
    report_name(w, "name", s.fqn, s.fqn_nbytes);
    report_name(w, "same_as", s.same_as, s.same_as_nbytes);
    json_end_object(w);
}

static void put_inputs(json_writer *w, const model_layout *l, uint64_t index, uint64_t k,
                       uint64_t count)
{
    json_member_array(w, "all_gather");
    for (uint64_t j = 0; j < count; j++) {
        fsdpck_gather_input in = {.struct_nbytes = sizeof in};
        fsdpck_units_get_input(l->units, index, k, j, &in);
        json_begin_object(w);
        json_member_string(w, "dtype", in.dtype);
        JSON_COUNTS(w, {"elements", in.nelems}, {"gathered", in.output_nelems});
        json_end_object(w);
    }
    json_end_array(w);
}

/* The part that depends on the kind of sharding. */
static void put_param_sharding(json_writer *w, const model_layout *l, const fsdpck_unit *u,
                               const fsdpck_unit_param *p, uint64_t index, uint64_t k)
{
    fsdpck_sharded_param s = {.struct_nbytes = sizeof s};
    if (u->kind == FSDPCK_SHARDING_FLAT) {
        uint64_t strides[64];
        fsdpck_units_get_strides(l->units, index, k, strides);
        JSON_COUNTS(w, {"offset", p->offset}, {"padding_before", p->padding_before});
        if (p->permuted)
            json_member_u64s(w, "strides", strides, p->ndim);
        return;
    }
    fsdpck_units_get_sharded(l->units, index, k, 0, &s);
    json_member_u64(w, "shard_dim", p->shard_dim);
    json_member_u64s(w, "padded_shape", s.padded_sharded_param_size, p->ndim);
    JSON_COUNTS(w, {"padded_elements", p->padded_nelems},
                {"padding", p->padded_nelems * u->world_size - p->nelems});
    if (s.param_dtype[0] != '\0')
        json_member_string(w, "param_dtype", s.param_dtype);
    if (s.reduce_dtype[0] != '\0')
        json_member_string(w, "reduce_dtype", s.reduce_dtype);
    put_inputs(w, l, index, k, s.all_gather_inputs);
}

static void put_param(json_writer *w, const model_layout *l, const fsdpck_unit *u, uint64_t index,
                      uint64_t k)
{
    fsdpck_unit_param p = {.struct_nbytes = sizeof p};
    fsdpck_units_get_param(l->units, index, k, &p);
    json_begin_object(w);
    report_name(w, "name", p.fqn, p.fqn_nbytes);
    json_member_string(w, "dtype", p.dtype);
    json_member_u64s(w, "shape", p.shape, p.ndim);
    json_member_u64(w, "elements", p.nelems);
    put_param_sharding(w, l, u, &p, index, k);
    json_end_object(w);
}

static void put_flat(json_writer *w, const fsdpck_unit *u)
{
    json_member_string(w, "strategy", u->strategy);
    json_member_string(w, "flat_name", u->flat_name);
    json_member_bool(w, "use_orig_params", u->use_orig_params);
    JSON_COUNTS(w, {"alignment", u->alignment}, {"total", u->total},
                {"padding_inside", u->padding_inside}, {"padding_world", u->padding_world});
}

static void put_unit(json_writer *w, const model_layout *l, uint64_t index)
{
    fsdpck_unit u = {.struct_nbytes = sizeof u};
    fsdpck_units_get(l->units, index, &u);
    json_begin_line(w);
    report_name(w, "module", u.path, u.path_nbytes);
    report_name(w, "class", u.class_name, strlen(u.class_name));
    json_member_string(w, "sharding", fsdpck_sharding_name(u.kind));
    json_member_u64(w, "world_size", u.world_size);
    if (u.kind == FSDPCK_SHARDING_FLAT)
        put_flat(w, &u);
    json_member_bool(w, "cpu_offload", u.cpu_offload);
    json_member_string(w, "dtype", u.dtype);
    json_member_string(w, "gather_dtype", u.gather_dtype);
    json_member_string(w, "reduce_dtype", u.reduce_dtype);
    JSON_COUNTS(w, {"elements", u.nelems}, {"shard_elements", u.shard_nelems},
                {"shard_bytes", u.shard_nbytes}, {"padding_ranks", u.padding_ranks},
                {"padding_bytes", u.padding_nbytes}, {"gather_bytes", u.gather_nbytes},
                {"reduce_bytes", u.reduce_nbytes}, {"post_forward_size", u.post_forward_size},
                {"post_forward_bytes", u.post_forward_nbytes},
                {"rank_elements_max", u.rank_nelems_max});
    json_member_array(w, "params");
    for (uint64_t k = 0; k < u.params; k++)
        put_param(w, l, &u, index, k);
    json_end_array(w);
    json_member_array(w, "shared");
    for (uint64_t k = 0; k < u.shared; k++)
        put_shared(w, l, index, k);
    json_end_array(w);
    json_end_line(w);
}

/* ---- ranks ---- */

static void put_boxes(json_writer *w, const model_layout *l, uint64_t index, uint64_t k,
                      unsigned ndim, const fsdpck_param_shard *piece)
{
    size_t count;
    fsdpck_box *boxes = layout_description_boxes(l, index, k, ndim, piece, &count);
    json_member_array(w, "boxes");
    for (size_t i = 0; i < count; i++) {
        json_begin_object(w);
        json_member_u64s(w, "offset", boxes[i].offsets, ndim);
        json_member_u64s(w, "shape", boxes[i].sizes, ndim);
        json_end_object(w);
    }
    json_end_array(w);
    free(boxes);
}

static void put_piece(json_writer *w, const model_layout *l, const fsdpck_unit *u, uint64_t index,
                      uint64_t k, uint64_t rank)
{
    fsdpck_unit_param p = {.struct_nbytes = sizeof p};
    fsdpck_param_shard piece = {.struct_nbytes = sizeof piece};
    fsdpck_units_get_param(l->units, index, k, &p);
    fsdpck_units_get_param_shard(l->units, index, k, rank, &piece);
    json_begin_object(w);
    report_name(w, "name", p.fqn, p.fqn_nbytes);
    if (u->kind == FSDPCK_SHARDING_FLAT) {
        json_member_bool(w, "in_shard", piece.in_shard);
        JSON_COUNTS(w, {"shard_offset", piece.shard_offset}, {"begin", piece.begin},
                    {"end", piece.end});
        put_boxes(w, l, index, k, p.ndim, &piece);
        json_end_object(w);
        return;
    }
    uint64_t offsets[64] = {0};
    fsdpck_sharded_param s = {.struct_nbytes = sizeof s};
    fsdpck_units_get_sharded(l->units, index, k, rank, &s);
    offsets[p.shard_dim] = s.offset;
    json_member_u64s(w, "shape", s.sharded_size, p.ndim);
    json_member_u64s(w, "offset", offsets, p.ndim);
    json_member_u64s(w, "strides", s.contiguous_sharded_stride, p.ndim);
    json_member_u64(w, "padding", piece.padding);
    json_member_u64s(w, "post_forward_shape", s.sharded_post_forward_size, p.ndim);
    json_member_u64s(w, "post_forward_strides", s.contiguous_sharded_post_forward_stride, p.ndim);
    JSON_COUNTS(w, {"post_forward_begin", s.post_forward_begin},
                {"post_forward_end", s.post_forward_end});
    const uint64_t mesh[2] = {s.post_forward_replicas, s.post_forward_size};
    json_member_u64s(w, "post_forward_mesh", mesh, 2);
    json_end_object(w);
}

static void put_rank_unit(json_writer *w, const model_layout *l, uint64_t index, uint64_t rank)
{
    fsdpck_unit u = {.struct_nbytes = sizeof u};
    fsdpck_units_get(l->units, index, &u);
    json_begin_object(w);
    report_name(w, "module", u.path, u.path_nbytes);
    if (u.kind == FSDPCK_SHARDING_FLAT) {
        fsdpck_unit_shard s = {.struct_nbytes = sizeof s};
        fsdpck_units_get_shard(l->units, index, rank, &s);
        JSON_COUNTS(w, {"begin", s.begin}, {"end", s.end}, {"padding", s.padding});
    }
    json_member_array(w, "pieces");
    for (uint64_t k = 0; k < u.params; k++)
        put_piece(w, l, &u, index, k, rank);
    json_end_array(w);
    json_end_object(w);
}

static void put_rank(json_report *r, const model_layout *l, uint64_t rank)
{
    json_writer *const w = &r->w;
    fsdpck_units_rank sums = {.struct_nbytes = sizeof sums};
    fsdpck_units_get_rank(l->units, rank, &sums);
    json_begin_line(w);
    JSON_COUNTS(w, {"rank", rank}, {"bytes", sums.nbytes}, {"padding_bytes", sums.padding_nbytes});
    json_member_array(w, "units");
    for (uint64_t i = 0; i < l->all.units; i++)
        put_rank_unit(w, l, i, rank);
    json_end_array(w);
    json_end_line(w);
}

/* ---- report ---- */

static void put_whole(json_writer *w, const fsdpck_param *p)
{
    json_begin_line(w);
    report_name(w, "name", p->fqn, p->fqn_nbytes);
    json_member_string(w, "dtype", p->dtype);
    json_member_u64s(w, "shape", p->shape, p->ndim);
    json_member_u64(w, "bytes", p->nelems * p->itemsize_nbytes);
    json_member_bool(w, "ignored", p->ignored);
    json_end_line(w);
}

static void put_totals(json_report *r, const model_layout *l)
{
    json_writer *const w = &r->w;
    const fsdpck_units_info *k = &l->all;
    json_member_string(w, "sharding", fsdpck_sharding_name(k->sharding));
    json_member_u64(w, "world_size", k->world_size);
    REPORT_MEMBER_COUNTS(r, REPORT_COUNTS, {"modules", l->about.modules},
                         {"tensors", l->about.lists_units ? k->params : l->about.params},
                         {"elements", k->nelems}, {"bytes", k->nbytes}, {"units", k->units},
                         {"whole", k->whole_params}, {"whole_bytes", k->whole_nbytes},
                         {"ignored", k->ignored_params}, {"buffers", k->buffers},
                         {"buffer_bytes", k->buffer_nbytes}, {"padding_bytes", k->padding_nbytes});
    json_member_object(w, "rank_nbytes");
    JSON_COUNTS(w, {"min", k->rank_nbytes_min}, {"min_rank", k->rank_min},
                {"max", k->rank_nbytes_max}, {"max_rank", k->rank_max});
    layout_put_sum(w, k->rank_nbytes_max, k->rank_nbytes_total, k->world_size);
    json_end_object(w);
    json_member_object(w, "training_nbytes");
    JSON_COUNTS(w, {"parameters", k->rank_nbytes}, {"gradients", k->grad_nbytes},
                {"adam", k->adam_nbytes});
    json_member_bool(w, "assumed", 1);
    JSON_COUNTS(w, {"cpu", k->cpu_nbytes}, {"largest_gather", k->gather_nbytes_max});
    json_end_object(w);
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
    json_report r;
    json_writer *const w = report_begin(&r, c, 0, "none", &source);
    put_totals(&r, l);
    report_list(&r, "units");
    for (uint64_t i = 0; i < l->all.units; i++)
        put_unit(w, l, i);
    json_end_array(w);
    report_list(&r, "whole");
    for (uint64_t i = 0; i < l->about.names; i++) {
        fsdpck_param p = {.struct_nbytes = sizeof p};
        fsdpck_model_get_param(l->model, i, &p);
        if (p.first_name == i && !fsdpck_units_has(l->units, i))
            put_whole(w, &p);
    }
    json_end_array(w);
    if (scope->first < scope->last) {
        report_list(&r, "ranks");
        for (uint64_t rank = scope->first; rank < scope->last; rank++)
            put_rank(&r, l, rank);
        json_end_array(w);
    }
    return report_end(&r);
}
