#include <string.h>

#include "base/struct_copy.h"
#include "describe/units.h"

static const units_row *find_row(const fsdpck_units *u, uint64_t index, uint64_t k, uint64_t rank)
{
    if (index >= u->rows.count || rank >= u->info.world_size)
        return NULL;
    const units_row *row = units_row_at(u, index);
    return k < units_row_nparams(u, row) ? row : NULL;
}

void fsdpck_units_get_shard(const fsdpck_units *u, uint64_t index, uint64_t rank,
                            fsdpck_unit_shard *to)
{
    fsdpck_unit_shard of = {0};
    const units_row *row = find_row(u, index, 0, rank);
    if (row != NULL && !row->fully_shard) {
        const unit *f = units_flat_of(u, row);
        const uint32_t own = (uint32_t)(rank % row->world_size);
        uint32_t first, end;
        const unit_shard s = unit_shard_of(f, own);
        unit_params_of_rank(&u->flat, f, own, &first, &end);
        of.begin = s.begin;
        of.end = s.end;
        of.padding = s.padding;
        of.first_param = first;
        of.end_param = end;
    }
    struct_copy_out(to, &of, sizeof of);
}

void fsdpck_units_get_param_shard(const fsdpck_units *u, uint64_t index, uint64_t k, uint64_t rank,
                                  fsdpck_param_shard *to)
{
    fsdpck_param_shard of = {0};
    const units_row *row = find_row(u, index, k, rank);
    if (row != NULL && !row->fully_shard) {
        const unit_param_range p = unit_param_range_of(&u->flat, units_flat_of(u, row), (uint32_t)k,
                                                       (uint32_t)(rank % row->world_size));
        of.in_shard = p.in_shard;
        of.nelems = p.end - p.begin;
        of.shard_offset = p.shard_offset;
        of.begin = p.begin;
        of.end = p.end;
    } else if (row != NULL) {
        const uint32_t param = units_group_param(u, row, (uint32_t)k);
        const fsdp2_spec s = units_spec(u, row, param);
        fsdp2_shard shard;
        fsdp2_shard_of(&s, rank, &shard);
        of.in_shard = shard.nelems > 0;
        of.nelems = shard.nelems;
        of.padding = shard.padded_nelems - shard.nelems;
        of.offset = shard.offset;
        of.size = shard.sizes[s.shard_dim];
    }
    struct_copy_out(to, &of, sizeof of);
}

size_t fsdpck_units_get_boxes(const fsdpck_units *u, uint64_t index, uint64_t k, uint64_t begin,
                              uint64_t end, fsdpck_box *boxes, size_t capacity)
{
    fsdpck_unit_param p = {.struct_nbytes = sizeof p};
    const units_row *row = find_row(u, index, k, 0);
    fsdpck_units_get_param(u, index, k, &p);
    if (row == NULL || end > p.nelems || begin >= end)
        return 0;
    size_t count = 0;
    unit_boxes it;
    if (!row->fully_shard) {
        const unit *f = units_flat_of(u, row);
        unit_boxes_init(&it, &u->flat, unit_param_at(&u->flat, f, (uint32_t)k), begin, end);
    } else {
        memset(&it, 0, sizeof it);
        it.cut = (box_cut){.sizes = p.shape, .ndim = p.ndim, .begin = begin, .end = end};
    }
    for (; unit_boxes_next(&it); count++) {
        if (count >= capacity)
            continue;
        memset(&boxes[count], 0, sizeof boxes[count]);
        memcpy(boxes[count].offsets, it.offsets, p.ndim * sizeof *it.offsets);
        memcpy(boxes[count].sizes, it.sizes, p.ndim * sizeof *it.sizes);
        boxes[count].flat = it.flat;
    }
    return count;
}

/* ---- one parameter under fully_shard ---- */

static const char *name_or_none(uint8_t d)
{
    return d == DTYPE_NONE ? "" : dtype_get((dtype)d)->name;
}

static void fill_sharded(const fsdp2_spec *s, uint64_t rank, uint32_t ninputs,
                         fsdpck_sharded_param *to)
{
    const size_t n = s->ndim * sizeof(uint64_t);
    fsdp2_shard shard;
    fsdp2_shard_of(s, rank, &shard);
    to->offset = shard.offset;
    memcpy(to->sharded_size, shard.sizes, n);
    memcpy(to->contiguous_sharded_stride, shard.strides, n);
    memcpy(to->padded_sharded_param_size, shard.padded, n);
    box_row_major_strides(s->shape, s->ndim, to->unsharded_stride);
    to->nelems = shard.nelems;
    to->padded_nelems = shard.padded_nelems;
    to->post_forward_size = fsdp2_post_forward_size(s);
    to->post_forward_replicas = s->world_size / to->post_forward_size * s->replicas;
    memcpy(to->sharded_post_forward_size, shard.post_sizes, n);
    memcpy(to->contiguous_sharded_post_forward_stride, shard.post_strides, n);
    to->post_forward_begin = shard.post_begin;
    to->post_forward_end = shard.post_end;
    to->orig_dtype = name_or_none(s->orig_dtype);
    to->param_dtype = name_or_none(fsdp2_param_dtype(s));
    to->reduce_dtype = name_or_none(fsdp2_reduce_dtype(s));
    to->all_gather_inputs = ninputs;
}

void fsdpck_units_get_sharded(const fsdpck_units *u, uint64_t index, uint64_t k, uint64_t rank,
                              fsdpck_sharded_param *to)
{
    fsdpck_sharded_param of = {.orig_dtype = "", .param_dtype = "", .reduce_dtype = ""};
    const units_row *row = find_row(u, index, k, rank);
    if (row != NULL && row->fully_shard) {
        const model *m = &u->of->m;
        const uint32_t param = units_group_param(u, row, (uint32_t)k);
        const fsdp2_spec s = units_spec(u, row, param);
        uint32_t ninputs;
        (void)model_inputs(m, model_param_first(m, param), &ninputs);
        fill_sharded(&s, rank, ninputs == 0 ? 1 : ninputs, &of);
    }
    struct_copy_out(to, &of, sizeof of);
}

void fsdpck_units_get_input(const fsdpck_units *u, uint64_t index, uint64_t k, uint64_t j,
                            fsdpck_gather_input *to)
{
    fsdpck_gather_input of = {.dtype = ""};
    const units_row *row = find_row(u, index, k, 0);
    if (row != NULL && row->fully_shard) {
        const uint32_t param = units_group_param(u, row, (uint32_t)k);
        const fsdp2_spec s = units_spec(u, row, param);
        uint32_t count;
        const fsdp2_input in = units_input_at(u, &s, param, j, &count);
        if (j < count) {
            const dtype_info *d = dtype_get((dtype)in.dtype);
            of.dtype = d->name;
            of.nelems = in.nelems;
            of.nbytes = in.nelems * d->itemsize_bytes;
            of.output_nelems = in.output_nelems;
            of.output_nbytes = in.output_nelems * d->itemsize_bytes;
        }
    }
    struct_copy_out(to, &of, sizeof of);
}

static fsdpck_status parse_dtype(const char *name, const char *what, uint8_t *d, fsdpck_error *err)
{
    *d = DTYPE_NONE;
    if (name == NULL)
        return FSDPCK_OK;
    *d = (uint8_t)dtype_from_name(name, strlen(name));
    if (*d != DTYPE_NONE)
        return FSDPCK_OK;
    return FAIL_WITH(err, USAGE, NONE, ("value of %s is not a dtype", what),
                     (expected, "a torch dtype, such as bfloat16"), (found, "'%s'", name));
}

fsdpck_status fsdpck_sharded_param_of(const fsdpck_sharded_spec *spec, uint64_t rank,
                                      fsdpck_sharded_param *to, fsdpck_error *err)
{
    fsdpck_sharded_spec of = {0};
    fsdpck_sharded_param p = {0};
    RETURN_IF(STRUCT_COPY_IN(&of, spec, fsdpck_sharded_spec, err));
    if (of.ndim > NDIM_MAX)
        return FAIL(err, USAGE, NONE, "tensor has too many dims");
    fsdp2_spec s = {
        .ndim = of.ndim,
        .shape = of.shape,
        .shard_dim = of.shard_dim,
        .world_size = of.world_size,
        .replicas = of.replicas == 0 ? 1 : of.replicas,
        .post_forward = of.post_forward,
        .torch = {2, 15},
    };
    RETURN_IF(parse_dtype(of.dtype, "dtype", &s.orig_dtype, err));
    RETURN_IF(parse_dtype(of.param_dtype, "param_dtype", &s.param_dtype, err));
    RETURN_IF(parse_dtype(of.reduce_dtype, "reduce_dtype", &s.reduce_dtype, err));
    RETURN_IF(fsdp2_check(&s, err));
    if (rank / of.world_size >= s.replicas)
        return FAIL(err, USAGE, NONE, "rank is not in the mesh");
    fill_sharded(&s, rank, 1, &p);
    struct_copy_out(to, &p, sizeof p);
    return FSDPCK_OK;
}
