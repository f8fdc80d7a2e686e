#include "formats/pt/ranks_write_dtensor.h"

#include "formats/common/torch_archive.h"
#include "layout/mesh_text.h"
#include "layout/shard_box.h"
#include "layout/slice.h"

/* torch 2.5 to 2.15. */
static const char tensor_module[] = "torch.distributed.tensor";
static const char spec_module[] = "torch.distributed.tensor._dtensor_spec";
static const char placement_module[] = "torch.distributed.tensor.placement_types";

static fsdpck_status choose_form(dtensor_form *form, unsigned torch_minor, fsdpck_error *err)
{
    if (torch_minor == 0 || (torch_minor >= 13 && torch_minor <= 15)) {
        *form = DTORCH_2_15;
    } else if (torch_minor >= 5 && torch_minor <= 7) {
        *form = DTORCH_2_6;
    } else if (torch_minor == 8 || torch_minor == 9) {
        *form = DTORCH_2_8;
    } else if (torch_minor == 10) {
        *form = DTORCH_2_10;
    } else if (torch_minor == 11 || torch_minor == 12) {
        *form = DTORCH_2_11;
    } else {
        return FAIL_WITH(
            err, UNSUPPORTED, NONE, ("rank files cannot be written for this torch release"),
            (found, "2.%u", torch_minor), (expected, "2.5 to 2.15"),
            (next, "write a DCP folder (--format dcp), which every torch version reads"));
    }
    return FSDPCK_OK;
}

static bool is_word(const char *text)
{
    if (text[0] == '\0')
        return false;
    for (; *text != '\0'; text++) {
        if (!(*text >= 'a' && *text <= 'z') && !(*text >= '0' && *text <= '9'))
            return false;
    }
    return true;
}

fsdpck_status dtensor_writer_init(dtensor_writer *d, const target *t, const writer_options *opt,
                                  fsdpck_error *err)
{
    *d = (dtensor_writer){.cat = &t->cat, .world_size = t->world_size, .device_type = "cuda"};
    if (opt != NULL && opt->device_type != NULL)
        d->device_type = opt->device_type;
    if (!is_word(d->device_type))
        return FAIL_WITH(err, USAGE, NONE, ("unknown device type"), (found, "%s", d->device_type),
                         (expected, "cuda, cpu, xpu, ..."));
    for (uint32_t i = 0; i < t->cat.meshes.count; i++) {
        if (mesh_size(catalogue_mesh(&t->cat, i)) != t->world_size)
            return FAIL(err, INTERNAL, NONE, "mesh has a different number of ranks");
    }
    return choose_form(&d->form, opt != NULL ? opt->torch_minor : 0, err);
}

static void put_item_int(pickle_writer *w, const char *key, uint64_t number)
{
    pickle_put_word(w, key);
    pickle_put_int(w, (int64_t)number);
    pickle_put_setitem(w);
}

static fsdpck_status put_placement(const dtensor_writer *d, pickle_writer *w, const placement *p,
                                   fsdpck_error *err)
{
    static const char *const names[] = {"Replicate", "Shard", "_StridedShard"};
    if (p->kind > PLACEMENT_STRIDED_SHARD)
        return FAIL(err, INTERNAL, NONE, "target cannot be Partial");
    pickle_put_global(w, placement_module, names[p->kind]);
    pickle_put_tuple(w, 0);
    pickle_put_newobj(w);
    if (p->kind == PLACEMENT_REPLICATE && d->form < DTORCH_2_10)
        return FSDPCK_OK;
    pickle_put_empty_dict(w);
    if (p->kind != PLACEMENT_REPLICATE)
        put_item_int(w, "dim", p->dim);
    if (p->kind == PLACEMENT_STRIDED_SHARD)
        put_item_int(w, "split_factor", p->split_factor);
    pickle_put_build(w);
    return FSDPCK_OK;
}

static fsdpck_status put_placements(const dtensor_writer *d, pickle_writer *w, uint32_t spec,
                                    const mesh_slice *s, fsdpck_error *err)
{
    if (pickle_put_from_memo(w, DTENSOR_SPECS + spec))
        return FSDPCK_OK;
    pickle_put_mark(w);
    for (unsigned i = 0; i < s->m.ndim; i++)
        RETURN_IF(put_placement(d, w, &s->placements[i], err));
    pickle_put_tuple_marked(w);
    pickle_put_to_memo(w, DTENSOR_SPECS + spec);
    return FSDPCK_OK;
}

static bool has_strided(const mesh_slice *s)
{
    for (unsigned i = 0; i < s->m.ndim; i++)
        if (s->placements[i].kind == PLACEMENT_STRIDED_SHARD)
            return true;
    return false;
}

/* One ShardOrderEntry for each tensor dim that is sharded, with its mesh dims in the order of the
 * cuts. */
static fsdpck_status put_order(pickle_writer *w, const mesh_slice *s, unsigned tensor_ndim,
                               fsdpck_error *err)
{
    unsigned order[MESH_NDIM_MAX], count;
    pickle_put_mark(w);
    for (unsigned dim = 0; dim < tensor_ndim; dim++) {
        if (!shard_cut_order(&s->m, s->placements, dim, order, &count))
            return FAIL(err, INTERNAL, NONE, "placements of a target have no valid order");
        if (count == 0)
            continue;
        pickle_put_global(w, spec_module, "ShardOrderEntry");
        pickle_put_int(w, dim);
        pickle_put_mark(w);
        for (unsigned i = 0; i < count; i++)
            pickle_put_int(w, order[i]);
        pickle_put_tuple_marked(w);
        pickle_put_tuple(w, 2);
        pickle_put_newobj(w);
    }
    pickle_put_tuple_marked(w);
    return FSDPCK_OK;
}

/* From torch 2.11 on the order is None if _StridedShard expresses it. */
static fsdpck_status put_shard_order(const dtensor_writer *d, pickle_writer *w, const mesh_slice *s,
                                     unsigned tensor_ndim, fsdpck_error *err)
{
    const bool strided = has_strided(s);
    pickle_put_word(w, "shard_order");
    if (strided && d->form != DTORCH_2_10)
        pickle_put_none(w);
    else
        RETURN_IF(put_order(w, s, tensor_ndim, err));
    pickle_put_setitem(w);
    if (d->form == DTORCH_2_10)
        return FSDPCK_OK;
    pickle_put_word(w, "use_strided_shard_as_shard_order");
    pickle_put_bool(w, strided);
    pickle_put_setitem(w);
    return FSDPCK_OK;
}

static fsdpck_status put_spec(const dtensor_writer *d, pickle_writer *w, const cat_tensor *t,
                              const uint64_t *shape, const uint64_t *strides, fsdpck_error *err)
{
    const cat_spec *spec = VEC_AT(&d->cat->specs, const cat_spec, t->spec);
    mesh_slice s;

    mesh_slice_of(catalogue_mesh(d->cat, spec->mesh), spec, &s);
    pickle_put_global(w, spec_module, "DTensorSpec");
    pickle_put_tuple(w, 0);
    pickle_put_newobj(w);
    pickle_put_empty_dict(w);
    pickle_put_word(w, "mesh");
    RETURN_IF(dtensor_put_mesh(d, w, spec, err));
    pickle_put_setitem(w);
    pickle_put_word(w, "placements");
    RETURN_IF(put_placements(d, w, t->spec, &s, err));
    pickle_put_setitem(w);
    pickle_put_word(w, "tensor_meta");
    pickle_put_global(w, spec_module, "TensorMeta");
    pickle_put_global(w, "torch", "Size");
    pickle_put_dims(w, t->ndim, shape);
    pickle_put_tuple(w, 1);
    pickle_put_reduce(w);
    pickle_put_dims(w, t->ndim, strides);
    pickle_put_global(w, "torch", dtype_get((dtype)t->dtype)->name);
    pickle_put_tuple(w, 3);
    pickle_put_newobj(w);
    pickle_put_setitem(w);
    if (d->form >= DTORCH_2_10)
        RETURN_IF(put_shard_order(d, w, &s, t->ndim, err));
    pickle_put_word(w, "_hash");
    pickle_put_none(w);
    pickle_put_setitem(w);
    pickle_put_build(w);
    return FSDPCK_OK;
}

/* (DTensor, dtype, sizes, strides, 0, layout, device, requires_grad) */
static void put_wrapper(pickle_writer *w, const cat_tensor *t, const uint64_t *shape,
                        const uint64_t *strides)
{
    pickle_put_mark(w);
    pickle_put_global(w, tensor_module, "DTensor");
    pickle_put_global(w, "torch", dtype_get((dtype)t->dtype)->name);
    pickle_put_dims(w, t->ndim, shape);
    pickle_put_dims(w, t->ndim, strides);
    pickle_put_int(w, 0);
    if (!pickle_put_from_memo(w, DTENSOR_LAYOUT)) {
        pickle_put_global(w, "torch.serialization", "_get_layout");
        pickle_put_word(w, "torch.strided");
        pickle_put_tuple(w, 1);
        pickle_put_reduce(w);
        pickle_put_to_memo(w, DTENSOR_LAYOUT);
    }
    if (!pickle_put_from_memo(w, DTENSOR_DEVICE)) {
        pickle_put_global(w, "torch", "device");
        pickle_put_word(w, "cpu");
        pickle_put_tuple(w, 1);
        pickle_put_reduce(w);
        pickle_put_to_memo(w, DTENSOR_DEVICE);
    }
    pickle_put_bool(w, !(t->python & CAT_PYTHON_PARAMETER) &&
                           (t->flags & CAT_TENSOR_REQUIRES_GRAD) != 0);
    pickle_put_tuple_marked(w);
}

fsdpck_status dtensor_put(const dtensor_writer *d, pickle_writer *w, size_t tensor,
                          const uint64_t *local_sizes, const char *key, fsdpck_error *err)
{
    const cat_tensor *t = catalogue_tensor(d->cat, tensor);
    const uint64_t *shape = catalogue_shape(d->cat, tensor);
    uint64_t strides[NDIM_MAX], local_strides[NDIM_MAX];

    box_row_major_strides(shape, t->ndim, strides);
    box_row_major_strides(local_sizes, t->ndim, local_strides);
    torch_put_parameter_begin(w, t);
    pickle_put_global(w, "torch._tensor", "_rebuild_from_type_v2");
    pickle_put_mark(w);
    pickle_put_global(w, "torch._utils", "_rebuild_wrapper_subclass");
    pickle_put_global(w, tensor_module, "DTensor");
    put_wrapper(w, t, shape, strides);
    pickle_put_none(w);
    pickle_put_empty_dict(w);
    pickle_put_word(w, "_local_tensor");
    torch_put_tensor(w, key, (dtype)t->dtype, t->ndim, local_sizes, local_strides, 0,
                     box_nelems(local_sizes, t->ndim));
    pickle_put_setitem(w);
    pickle_put_word(w, "_spec");
    RETURN_IF(put_spec(d, w, t, shape, strides, err));
    pickle_put_setitem(w);
    pickle_put_tuple(w, 2);
    pickle_put_tuple_marked(w);
    pickle_put_reduce(w);
    torch_put_parameter_end(w, t);
    return FSDPCK_OK;
}
