#include "formats/hdf5/hdf5_compress.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/checked.h"
#include "formats/hdf5/hdf5_encode.h"
#include "formats/hdf5/hdf5_objects.h"
#include "formats/hdf5/hdf5_write_internal.h"

/* Aligned for elements of every dtype, for casts. */
#define IMAGE_ALIGN_NBYTES 64u

/* target.writer_state */
typedef struct packed {
    hdf5_names names;
    text_buf objects;
    hdf5_description d;
    hdf5_describe_state *describing; /* until finish */
    uint64_t *offsets;               /* of contiguous tensors, as libhdf5 gave them */
    uint64_t offsets_nbytes;
} packed;

static void free_packed(void *state)
{
    packed *p = state;
    const fsdpck_status unwanted = hdf5_describe_end(p->describing, NULL);
    (void)unwanted; /* after a failure or a dry run */
    if (p->d.fd >= 0)
        (void)close(p->d.fd);
    if (p->offsets != NULL)
        budget_free(p->d.cat->owner, p->offsets, p->offsets_nbytes);
    hdf5_names_release(&p->names);
    text_release(&p->objects);
    free(p);
}

/* --- the cells --- */

/* False if the tensor is contiguous. */
static bool cut_of(const target *t, size_t tensor, hdf5_chunk_shape *cut)
{
    const cat_tensor *ct = catalogue_tensor(&t->cat, tensor);
    return hdf5_chunk_shape_choose((dtype)ct->dtype, ct->ndim, catalogue_shape(&t->cat, tensor),
                                   cut);
}

static fsdpck_status place_cell(target *t, const filter_cell *cell, uint64_t nbytes, uint32_t how,
                                uint64_t *offset_bytes, fsdpck_error *err)
{
    const packed *p = t->writer_state;
    uint64_t corner[NDIM_MAX];
    hdf5_chunk_shape cut;
    if (!cut_of(t, cell->tensor, &cut)) {
        *offset_bytes = p->offsets[cell->tensor];
        return FSDPCK_OK;
    }
    hdf5_chunk_shape_corner(&cut, catalogue_tensor(&t->cat, cell->tensor)->ndim,
                            catalogue_shape(&t->cat, cell->tensor), cell->number, corner);
    return hdf5_describe_chunk(p->describing, cell->tensor, corner, how, nbytes, offset_bytes, err);
}

static fsdpck_status coder_new(const target *t, void **coder, fsdpck_error *err)
{
    const packed *p = t->writer_state;
    hdf5_coder *c;
    const fsdpck_status st = hdf5_coder_new(p->d.level, t->pack.cell_nbytes_max, &c, err);
    *coder = c;
    return st;
}

static void coder_free(void *coder)
{
    hdf5_coder_free(coder);
}

static fsdpck_status code_cell(const target *t, void *coder, const filter_cell *cell,
                               const uint8_t *bytes, uint8_t *coded, uint64_t *nbytes,
                               uint32_t *how, fsdpck_error *err)
{
    hdf5_chunk_shape cut;
    const dtype d = (dtype)catalogue_tensor(&t->cat, cell->tensor)->dtype;
    if (cut_of(t, cell->tensor, &cut))
        return hdf5_encode(coder, dtype_get(d)->itemsize_bytes, bytes, cell->nbytes,
                           cut.chunk_nbytes, coded, nbytes, how, err);
    memcpy(coded, bytes, cell->nbytes);
    *nbytes = cell->nbytes;
    *how = 0;
    return FSDPCK_OK;
}

/* --- the end --- */

static fsdpck_status finish(target *t, uint64_t *file_nbytes, fsdpck_error *err)
{
    packed *p = t->writer_state;
    hdf5_describe_state *s = p->describing;
    p->describing = NULL;
    RETURN_IF(hdf5_describe_end(s, err));
    return hdf5_file_nbytes(p->d.fd, file_nbytes, err);
}

static fsdpck_status put_rest(const target *t, filter_put_fn put, void *ctx, fsdpck_error *err)
{
    const packed *p = t->writer_state;
    const size_t count = t->pack.places.count;
    hdf5_range *taken = budget_alloc(t->cat.owner, count * sizeof *taken, err);
    if (taken == NULL)
        return FSDPCK_LIMIT;
    for (size_t i = 0; i < count; i++) {
        const filter_location *at = VEC_AT(&t->pack.places, const filter_location, i);
        taken[i] = (hdf5_range){at->offset_bytes, at->nbytes};
    }
    const fsdpck_status st = hdf5_put_metadata(p->d.fd, taken, count, put, ctx, err);
    budget_free(t->cat.owner, taken, count * sizeof *taken);
    return st;
}

/* --- layout --- */

static fsdpck_status add_tensor(target *t, size_t tensor, uint64_t *end, fsdpck_error *err)
{
    cat_chunk *c = catalogue_chunk(&t->cat, catalogue_tensor(&t->cat, tensor)->first_chunk);
    hdf5_chunk_shape cut;
    c->file = 0;
    c->nbytes = catalogue_tensor_nbytes(&t->cat, tensor);
    c->place = c->nbytes > 0 ? LOCATION_ROWS : LOCATION_EMPTY;
    c->offset_bytes = c->nbytes > 0 ? *end : 0;
    if (!checked_add(*end, c->nbytes, end) || !checked_align_up(*end, IMAGE_ALIGN_NBYTES, end) ||
        *end > INT64_MAX)
        return FAIL(err, UNSUPPORTED, NONE, "the output exceeds the largest possible file size");
    if (!cut_of(t, tensor, &cut))
        return filter_add_tensor(&t->pack, c->nbytes, c->nbytes, c->nbytes, err);
    return filter_add_tensor(&t->pack, cut.chunk_nbytes, cut.span_nbytes, c->nbytes, err);
}

static fsdpck_status add_image(target *t, fsdpck_error *err)
{
    uint64_t end = 0;
    uint32_t index;
    for (size_t i = 0; i < catalogue_tensor_count(&t->cat); i++)
        RETURN_IF(add_tensor(t, i, &end, err));
    return catalogue_add_file(&t->cat, "", 0, end, CAT_NONE, &index, err);
}

static fsdpck_status describe(target *t, packed *p, bool dots_too, fsdpck_error *err)
{
    RETURN_IF(hdf5_names_make(&t->cat, dots_too, &p->names, err));
    RETURN_IF(hdf5_objects_write(&t->cat, &p->objects, err));
    p->offsets_nbytes = catalogue_tensor_count(&t->cat) * sizeof *p->offsets;
    p->offsets = budget_alloc(t->cat.owner, p->offsets_nbytes, err);
    if (p->offsets == NULL)
        return FSDPCK_LIMIT;
    RETURN_IF(hdf5_memory_file(&p->d.fd, err));
    return hdf5_describe_begin(&p->d, p->offsets, &p->describing, err);
}

fsdpck_status hdf5_compress(target *t, const writer_options *opt, fsdpck_error *err)
{
    packed *p = calloc(1, sizeof *p);
    if (p == NULL)
        return error_set_nomem(err, sizeof *p);
    p->objects.limit_bytes = HDF5_OBJECTS_NBYTES_MAX;
    p->d = (hdf5_description){
        .cat = &t->cat,
        .names = &p->names,
        .objects = &p->objects,
        .fd = -1,
        .level = opt->gzip_level,
    };
    t->writer_state = p;
    t->free_writer_state = free_packed;
    RETURN_IF(describe(t, p, opt->hdf5_groups, err));
    t->pack.grids = VEC_OF(filter_grid, t->cat.owner);
    t->pack.places = VEC_OF(filter_location, t->cat.owner);
    RETURN_IF(add_image(t, err));
    t->pack.coder_nbytes = hdf5_coder_nbytes(t->pack.cell_nbytes_max);
    t->pack.coder_new = coder_new;
    t->pack.coder_free = coder_free;
    t->pack.code = code_cell;
    t->pack.place = place_cell;
    t->pack.finish = finish;
    t->pack.put_rest = put_rest;
    return FSDPCK_OK;
}
