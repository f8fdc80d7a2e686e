/* catalogue_get.c: counts, items and boxes of a catalogue; finding a tensor by its name. */
#include "state/catalogue.h"

#include <string.h>

size_t catalogue_tensor_count(const catalogue *c)
{
    return c->tensors.count;
}

size_t catalogue_object_count(const catalogue *c)
{
    return c->objects.count;
}

size_t catalogue_file_count(const catalogue *c)
{
    return c->files.count;
}

uint64_t catalogue_chunk_count(const catalogue *c)
{
    return c->chunks.count;
}

cat_object *catalogue_object(const catalogue *c, size_t i)
{
    return VEC_AT(&c->objects, cat_object, i);
}

const char *catalogue_name(const catalogue *c, uint32_t name_id)
{
    return strtab_text(&c->names, name_id);
}

size_t catalogue_name_nbytes(const catalogue *c, uint32_t name_id)
{
    return strtab_nbytes(&c->names, name_id);
}

const uint64_t *catalogue_shape(const catalogue *c, size_t tensor)
{
    static const uint64_t none[1];
    if (c->shapes.items == NULL)
        return none; /* only 0-dim tensors */
    return VEC_AT(&c->shapes, const uint64_t, catalogue_tensor(c, tensor)->shape_at);
}

uint64_t catalogue_tensor_nelems(const catalogue *c, size_t tensor)
{
    return box_nelems(catalogue_shape(c, tensor), catalogue_tensor(c, tensor)->ndim);
}

uint64_t catalogue_tensor_nbytes(const catalogue *c, size_t tensor)
{
    const dtype d = (dtype)catalogue_tensor(c, tensor)->dtype;
    return catalogue_tensor_nelems(c, tensor) * dtype_get(d)->itemsize_bytes;
}

/* Fewer chunks take less time than a thread takes to start. */
#define THREAD_CHUNKS 8192u

unsigned catalogue_threads(const catalogue *c, unsigned nthreads)
{
    const uint64_t most = catalogue_chunk_count(c) / THREAD_CHUNKS;
    if (most < 2 || nthreads < 2)
        return 1;
    return most < nthreads ? (unsigned)most : nthreads;
}

void catalogue_chunk_box(const catalogue *c, uint64_t chunk, uint64_t *offsets, uint64_t *sizes)
{
    const cat_chunk *k = catalogue_chunk(c, chunk);
    const cat_tensor *t = catalogue_tensor(c, k->tensor);
    const unsigned ndim = t->ndim;
    if (ndim == 0)
        return;
    if (!t->wide_dims) {
        const uint32_t *narrow = VEC_AT(&c->dims32, const uint32_t, k->dims_at);
        for (unsigned d = 0; offsets != NULL && d < ndim; d++)
            offsets[d] = narrow[d];
        for (unsigned d = 0; sizes != NULL && d < ndim; d++)
            sizes[d] = narrow[ndim + d];
        return;
    }
    const uint64_t *wide = VEC_AT(&c->dims64, const uint64_t, k->dims_at);
    if (offsets != NULL)
        memcpy(offsets, wide, ndim * sizeof *wide);
    if (sizes != NULL)
        memcpy(sizes, wide + ndim, ndim * sizeof *wide);
}

bool catalogue_chunk_is_same(const catalogue *c, uint64_t a, uint64_t b)
{
    uint64_t offsets[2][NDIM_MAX], sizes[2][NDIM_MAX];
    catalogue_chunk_box(c, a, offsets[0], sizes[0]);
    catalogue_chunk_box(c, b, offsets[1], sizes[1]);
    return box_equal(offsets[0], sizes[0], offsets[1], sizes[1],
                     catalogue_tensor(c, catalogue_chunk(c, a)->tensor)->ndim);
}

uint64_t catalogue_chunk_hash(const catalogue *c, uint64_t chunk)
{
    const unsigned ndim = catalogue_tensor(c, catalogue_chunk(c, chunk)->tensor)->ndim;
    uint64_t offsets[NDIM_MAX], sizes[NDIM_MAX], h = UINT64_C(0x9E3779B97F4A7C15);
    catalogue_chunk_box(c, chunk, offsets, sizes);
    for (unsigned d = 0; d < ndim; d++) {
        h = (h ^ offsets[d]) * UINT64_C(0xFF51AFD7ED558CCD);
        h = (h ^ sizes[d] ^ h >> 29) * UINT64_C(0xC4CEB9FE1A85EC53);
    }
    return h ^ h >> 32;
}

uint32_t catalogue_find(const catalogue *c, const char *name, size_t nbytes)
{
    const uint32_t id = strtab_find(&c->names, name, nbytes);
    return id < c->by_name.count ? *VEC_AT(&c->by_name, const uint32_t, id) : CAT_NONE;
}

bool catalogue_has_file(const catalogue *c, const char *path)
{
    return strtab_find(&c->paths, path, strlen(path)) != STRTAB_NONE;
}

bool catalogue_has_folder(const catalogue *c, const char *path)
{
    return strtab_find(&c->folders, path, strlen(path)) != STRTAB_NONE;
}

bool catalogue_has_path(const catalogue *c, const char *path)
{
    return catalogue_has_file(c, path) || catalogue_has_folder(c, path);
}
