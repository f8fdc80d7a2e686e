#include "formats/dcp/dcp_flattened.h"

#include <inttypes.h>
#include <string.h>

#include "base/checked.h"
#include "formats/dcp/dcp_hooks.h"
#include "state/box.h"

#define SHAPE_KEY "nd_reformulated_orig_global_shape"

void dcp_flattened_collect(const value_pool *pool, value mcore, const strtab *fqns, value *shapes)
{
    value shape;
    for (size_t i = 0, n = value_count(pool, mcore); i < n; i++) {
        const value key = value_key(pool, mcore, i);
        size_t nbytes;
        if (value_kind_of(key) != VALUE_STR ||
            !value_dict_find(pool, value_item(pool, mcore, i), SHAPE_KEY, &shape))
            continue;
        const char *text = value_text(pool, key, &nbytes);
        const uint32_t fqn = strtab_find(fqns, text, nbytes);
        if (fqn != STRTAB_NONE)
            shapes[fqn] = shape;
    }
}

/* A tuple, or a torch.Size. */
static bool read_shape(const dcp_metadata *m, const value_pool *pool, value recorded,
                       dcp_flattening *f)
{
    if (dcp_note_what(recorded) == DCP_NOTE_SIZE) {
        f->ndim = dcp_size_get(m, dcp_note_index(recorded), f->shape);
        return true;
    }
    const value_kind kind = value_kind_of(recorded);
    const size_t count = value_count(pool, recorded);
    if ((kind != VALUE_TUPLE && kind != VALUE_LIST) || count > NDIM_MAX)
        return false;
    for (size_t i = 0; i < count; i++)
        if (!value_as_u64(pool, value_item(pool, recorded, i), &f->shape[i]))
            return false;
    f->ndim = (unsigned)count;
    return true;
}

fsdpck_status dcp_flattening_read(const dcp_metadata *m, const value_pool *pool, value recorded,
                                  const uint64_t *stored, unsigned stored_ndim, dcp_flattening *f,
                                  fsdpck_error *err)
{
    *f = (dcp_flattening){.nelems = 1};
    if (value_is_none(recorded))
        return FSDPCK_OK;
    const bool is_shape = read_shape(m, pool, recorded, f);
    if (is_shape && shape_equal(f->shape, f->ndim, stored, stored_ndim)) {
        f->ndim = 0; /* of one dim, not flattened */
        return FSDPCK_OK;
    }
    bool fits = is_shape && stored_ndim == f->ndim + 1;
    for (unsigned d = 0; fits && d < f->ndim; d++) {
        f->cuts[d] = stored[d];
        fits = f->cuts[d] > 0 && f->shape[d] % f->cuts[d] == 0;
        f->shard[d] = fits ? f->shape[d] / f->cuts[d] : 0;
        fits = fits && checked_mul(f->nelems, f->shard[d], &f->nelems);
    }
    if (fits && f->nelems == stored[f->ndim])
        return FSDPCK_OK;
    text_buf found = {.limit_bytes = 4096};
    for (unsigned d = 0; d < stored_ndim; d++)
        text_printf(&found, "%s%" PRIu64, d > 0 ? ", " : "", stored[d]);
    text_buf shape = {.limit_bytes = 4096};
    value_print(pool, recorded, 200, &shape);
    FAIL_WITH(err, BADINPUT, MEGATRON_SHAPE,
              ("recorded shape of a parameter does not fit its flattened state"),
              (expected, "shards of a parameter of shape %s", shape.text == NULL ? "" : shape.text),
              (found, "a tensor of shape [%s]", found.text == NULL ? "" : found.text));
    text_release(&found);
    text_release(&shape);
    return FSDPCK_BADINPUT;
}

static fsdpck_status fail_chunk(fsdpck_error *err)
{
    return FAIL(err, BADINPUT, MEGATRON_SHAPE,
                "a chunk of flattened state is no interval of one shard");
}

static fsdpck_status add_box(catalogue *cat, uint32_t tensor, const dcp_flattening *f,
                             const uint64_t *offsets, const box_cut *cut, const cat_chunk *proto,
                             vec *boxes, fsdpck_error *err)
{
    uint64_t at[NDIM_MAX];
    for (unsigned d = 0; d < f->ndim; d++)
        at[d] = offsets[d] * f->shard[d] + cut->offsets_out[d];
    if (boxes->count > DCP_AUX_FLAT_INDEX)
        return FAIL(err, LIMIT, LIMIT_COUNT, "too many chunks of flattened state");
    const dcp_flat_box box = {.skip = cut->flat_out - offsets[f->ndim],
                              .nelems = cut->end - offsets[f->ndim],
                              .transform = proto->aux};
    cat_chunk one = *proto;
    one.aux =
        DCP_AUX_FLATTENED | (box.skip > 0 ? DCP_AUX_FLAT_FURTHER : 0) | (uint32_t)boxes->count;
    RETURN_IF(vec_add(boxes, &box, err));
    return catalogue_add_chunk(cat, tensor, at, cut->sizes_out, &one, err);
}

fsdpck_status dcp_flattened_add(catalogue *cat, uint32_t tensor, const dcp_flattening *f,
                                const uint64_t *offsets, const uint64_t *sizes,
                                const cat_chunk *proto, vec *boxes, fsdpck_error *err)
{
    uint64_t at[NDIM_MAX], none[NDIM_MAX] = {0};
    for (unsigned d = 0; d < f->ndim; d++) {
        if (offsets[d] >= f->cuts[d] || sizes[d] != 1)
            return fail_chunk(err);
        at[d] = offsets[d] * f->shard[d];
    }
    const uint64_t begin = offsets[f->ndim], nelems = sizes[f->ndim];
    if (!checked_range(begin, nelems, f->nelems))
        return fail_chunk(err);
    if (nelems == 0)
        return catalogue_add_chunk(cat, tensor, at, none, proto, err);
    box_cut cut = {.sizes = f->shard, .ndim = f->ndim, .begin = begin, .end = begin + nelems};
    while (box_cut_next(&cut))
        RETURN_IF(add_box(cat, tensor, f, offsets, &cut, proto, boxes, err));
    return FSDPCK_OK;
}

bool dcp_tensor_is_flattened(const catalogue *cat, uint32_t tensor)
{
    const cat_tensor *t = catalogue_tensor(cat, tensor);
    for (uint64_t i = 0; i < t->nchunks; i++)
        if (dcp_chunk_is_flattened(catalogue_chunk(cat, t->first_chunk + i)))
            return true;
    return false;
}

const dcp_flat_box *dcp_flat_box_at(const dcp_folder *d, const cat_chunk *c)
{
    return VEC_AT(&d->flat_boxes, const dcp_flat_box, c->aux &DCP_AUX_FLAT_INDEX);
}

static fsdpck_status check_payload(const cat_tensor *t, const dcp_flat_box *f, const dcp_payload *p,
                                   fsdpck_error *err)
{
    if (p->dtype != t->dtype)
        return FAIL_WITH(err, BADINPUT, DCP_PAYLOAD_DTYPE,
                         ("dtype of a blob differs from the metadata"),
                         (expected, "%s", dtype_get((dtype)t->dtype)->name),
                         (found, "%s", dtype_get(p->dtype)->name));
    if (p->ndim == t->ndim + 1u && p->sizes[t->ndim] == f->nelems &&
        box_nelems(p->sizes, p->ndim) == f->nelems)
        return FSDPCK_OK;
    text_buf found = {.limit_bytes = 4096};
    for (unsigned i = 0; i < p->ndim; i++)
        text_printf(&found, "%s%" PRIu64, i > 0 ? ", " : "", p->sizes[i]);
    FAIL_WITH(err, BADINPUT, DCP_PAYLOAD_SHAPE, ("shape of a blob differs from the metadata"),
              (expected, "%u dims of size 1 and %" PRIu64 " elements", t->ndim, f->nelems),
              (found, "[%s]", found.text == NULL ? "" : found.text),
              (next, "metadata and files are from different saves: copy both again"));
    text_release(&found);
    return FSDPCK_BADINPUT;
}

fsdpck_status dcp_flattened_place(const dcp_folder *d, uint64_t chunk, const dcp_payload *p,
                                  place *where, fsdpck_error *err)
{
    const cat_chunk *c = catalogue_chunk(d->cat, chunk);
    const cat_tensor *t = catalogue_tensor(d->cat, c->tensor);
    const dcp_flat_box *f = dcp_flat_box_at(d, c);
    uint64_t sizes[NDIM_MAX], skip;

    RETURN_IF(check_payload(t, f, p, err));
    const uint64_t step = where->rows ? 1 : where->strides[t->ndim];
    if (!checked_mul(f->skip, step, &skip) ||
        !checked_mul(skip, dtype_get((dtype)t->dtype)->itemsize_bytes, &skip) ||
        !checked_add(where->offset_bytes, skip, &where->offset_bytes))
        return FAIL(err, BADINPUT, TENSOR_BOUNDS, "tensor extends beyond its storage");
    catalogue_chunk_box(d->cat, chunk, NULL, sizes);
    box_row_major_strides(sizes, t->ndim, where->strides);
    for (unsigned i = 0; i < t->ndim; i++)
        if (!checked_mul(where->strides[i], step, &where->strides[i]))
            return FAIL(err, BADINPUT, TENSOR_BOUNDS, "tensor extends beyond its storage");
    where->rows = step == 1;
    return FSDPCK_OK;
}
