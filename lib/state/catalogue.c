#include "state/catalogue.h"

#include <inttypes.h>
#include <string.h>

#include "base/checked.h"

#define TENSOR_LIMIT ((size_t)1 << 22)
#define CHUNK_LIMIT  ((size_t)UINT32_MAX)

void catalogue_init(catalogue *c, budget *owner)
{
    *c = (catalogue){.owner = owner};
    strtab_init(&c->names, owner);
    strtab_init(&c->paths, owner);
    strtab_init(&c->folders, owner);
    c->files = VEC_OF(cat_file, owner);
    c->tensors = VEC_OF(cat_tensor, owner);
    c->chunks = VEC_OF(cat_chunk, owner);
    c->objects = VEC_OF(cat_object, owner);
    c->passed_over = VEC_OF(cat_skipped, owner);
    c->shapes = VEC_OF(uint64_t, owner);
    c->dims32 = VEC_OF(uint32_t, owner);
    c->dims64 = VEC_OF(uint64_t, owner);
    c->meshes = VEC_OF(mesh, owner);
    c->specs = VEC_OF(cat_spec, owner);
    c->by_name = VEC_OF(uint32_t, owner);
    value_pool_init(&c->pool, owner);
    c->origin.step = -1;
    c->origin.world_size = -1;
}

void catalogue_release(catalogue *c)
{
    VEC_RELEASE_ALL(&c->files, &c->tensors, &c->chunks, &c->objects, &c->passed_over, &c->shapes,
                    &c->dims32, &c->dims64, &c->meshes, &c->specs, &c->by_name);
    value_pool_release(&c->pool);
    strtab_release(&c->names);
    strtab_release(&c->paths);
    strtab_release(&c->folders);
    *c = (catalogue){0};
}

fsdpck_status catalogue_add_file(catalogue *c, const char *path, size_t path_nbytes,
                                 uint64_t nbytes, uint32_t rank, uint32_t *file, fsdpck_error *err)
{
    uint32_t name, id;
    RETURN_IF(strtab_intern(&c->names, path, path_nbytes, &name, err));
    if (c->files.count >= CAT_NONE)
        return FAIL(err, LIMIT, LIMIT_COUNT, "too many files");
    RETURN_IF(strtab_intern(&c->paths, path, path_nbytes, &id, err));
    for (size_t i = 1; i < path_nbytes; i++)
        if (path[i] == '/')
            RETURN_IF(strtab_intern(&c->folders, path, i, &id, err));
    RETURN_IF(vec_add(&c->files, &(cat_file){.path = name, .rank = rank, .nbytes = nbytes}, err));
    *file = (uint32_t)(c->files.count - 1);
    return FSDPCK_OK;
}

/* Elements and bytes must fit int64_t, torch's type for them. */
static fsdpck_status check_shape(const char *name, dtype d, unsigned ndim, const uint64_t *shape,
                                 fsdpck_error *err)
{
    if (ndim > NDIM_MAX)
        return FAIL_WITH(err, LIMIT, LIMIT_COUNT, ("tensor has %u dims", ndim),
                         (expected, "at most %u", NDIM_MAX), (tensor, name));
    uint64_t nelems = 0;
    uint64_t nbytes = 0;
    bool fits = checked_product(shape, ndim, &nelems) &&
                checked_mul(nelems, dtype_get(d)->itemsize_bytes, &nbytes) && nelems <= INT64_MAX &&
                nbytes <= INT64_MAX;
    for (unsigned i = 0; fits && i < ndim; i++)
        fits = shape[i] <= INT64_MAX;
    if (fits)
        return FSDPCK_OK;
    return FAIL_WITH(err, BADINPUT, CHUNK_BOUNDS, ("shape of the tensor is too large"),
                     (tensor, name));
}

static fsdpck_status add_shape(catalogue *c, unsigned ndim, const uint64_t *shape, uint64_t *at,
                               bool *wide, fsdpck_error *err)
{
    *at = c->shapes.count;
    *wide = false;
    uint64_t *copy = vec_push_n(&c->shapes, ndim, err);
    if (copy == NULL)
        return FSDPCK_LIMIT;
    for (unsigned i = 0; i < ndim; i++) {
        copy[i] = shape[i];
        *wide = *wide || shape[i] > UINT32_MAX;
    }
    return FSDPCK_OK;
}

static fsdpck_status add_tensor(catalogue *c, const char *name, size_t name_nbytes, dtype d,
                                unsigned ndim, const uint64_t *shape, uint32_t *tensor,
                                fsdpck_error *err)
{
    RETURN_IF(check_shape(name, d, ndim, shape, err));
    if (c->tensors.count >= TENSOR_LIMIT)
        return FAIL_WITH(err, LIMIT, LIMIT_COUNT, ("too many tensors"),
                         (expected, "at most %zu", TENSOR_LIMIT));
    uint32_t id;
    uint64_t shape_at;
    bool wide;
    RETURN_IF(strtab_intern(&c->names, name, name_nbytes, &id, err));
    RETURN_IF(add_shape(c, ndim, shape, &shape_at, &wide, err));
    RETURN_IF(vec_add(&c->tensors,
                      &(cat_tensor){
                          .name = id,
                          .dtype = (uint8_t)d,
                          .ndim = (uint8_t)ndim,
                          .wide_dims = wide,
                          .shape_at = shape_at,
                          .alias = CAT_NONE,
                          .spec = CAT_NONE,
                          .param = CAT_NONE,
                      },
                      err));
    *tensor = (uint32_t)(c->tensors.count - 1);
    return FSDPCK_OK;
}

static fsdpck_status error_sealed(fsdpck_error *err)
{
    return FAIL(err, INTERNAL, NONE, "catalogue is sealed already");
}

fsdpck_status catalogue_add_tensor(catalogue *c, const char *name, size_t name_nbytes, dtype d,
                                   unsigned ndim, const uint64_t *shape, uint32_t *tensor,
                                   fsdpck_error *err)
{
    if (c->sealed)
        return error_sealed(err);
    return add_tensor(c, name, name_nbytes, d, ndim, shape, tensor, err);
}

fsdpck_status catalogue_set_shape(catalogue *c, uint32_t tensor, dtype d, unsigned ndim,
                                  const uint64_t *shape, fsdpck_error *err)
{
    uint64_t shape_at;
    bool wide;
    if (c->sealed)
        return error_sealed(err);
    RETURN_IF(
        check_shape(catalogue_name(c, catalogue_tensor(c, tensor)->name), d, ndim, shape, err));
    RETURN_IF(add_shape(c, ndim, shape, &shape_at, &wide, err));
    cat_tensor *t = catalogue_tensor(c, tensor);
    t->dtype = (uint8_t)d;
    t->ndim = (uint8_t)ndim;
    t->wide_dims = wide;
    t->shape_at = shape_at;
    return FSDPCK_OK;
}

static fsdpck_status error_bounds(const catalogue *c, uint32_t tensor, unsigned dim,
                                  uint64_t offset, uint64_t size, fsdpck_error *err)
{
    return FAIL_WITH(err, BADINPUT, CHUNK_BOUNDS, ("chunk extends outside its tensor"),
                     (tensor, catalogue_name(c, catalogue_tensor(c, tensor)->name)),
                     (expected, "dim %u within 0..%" PRIu64, dim, catalogue_shape(c, tensor)[dim]),
                     (found, "offset %" PRIu64 ", size %" PRIu64, offset, size));
}

/* Checks a box against the shape. */
static fsdpck_status check_box(const catalogue *c, uint32_t tensor, const uint64_t *offsets,
                               const uint64_t *sizes, bool *empty, fsdpck_error *err)
{
    const uint64_t *shape = catalogue_shape(c, tensor);
    const unsigned ndim = catalogue_tensor(c, tensor)->ndim;
    *empty = false;
    for (unsigned d = 0; d < ndim; d++) {
        if (!checked_range(offsets[d], sizes[d], shape[d]))
            return error_bounds(c, tensor, d, offsets[d], sizes[d], err);
        *empty = *empty || sizes[d] == 0;
    }
    return FSDPCK_OK;
}

/* Stores offsets and sizes of a chunk; both were checked. */
static void put_box(const catalogue *c, const cat_tensor *t, uint64_t dims_at,
                    const uint64_t *offsets, const uint64_t *sizes)
{
    const unsigned ndim = t->ndim;
    if (ndim == 0)
        return;
    if (t->wide_dims) {
        uint64_t *wide = VEC_AT(&c->dims64, uint64_t, dims_at);
        memcpy(wide, offsets, ndim * sizeof *wide);
        memcpy(wide + ndim, sizes, ndim * sizeof *wide);
        return;
    }
    uint32_t *narrow = VEC_AT(&c->dims32, uint32_t, dims_at);
    for (unsigned d = 0; d < ndim; d++) {
        narrow[d] = (uint32_t)offsets[d];
        narrow[ndim + d] = (uint32_t)sizes[d];
    }
}

static fsdpck_status add_chunks(catalogue *c, uint32_t tensor, uint32_t n, cat_new_chunks *made,
                                fsdpck_error *err)
{
    cat_tensor *t = catalogue_tensor(c, tensor);
    vec *dims = t->wide_dims ? &c->dims64 : &c->dims32;
    const uint64_t ndims = 2 * (uint64_t)t->ndim * n;
    if (n > CHUNK_LIMIT - c->chunks.count)
        return FAIL(err, LIMIT, LIMIT_COUNT, "too many chunks");
    RETURN_IF(vec_reserve(dims, ndims, err));
    RETURN_IF(vec_reserve(&c->chunks, n, err));
    *made = (cat_new_chunks){.tensor = tensor, .first = c->chunks.count, .dims_at = dims->count};
    dims->count += ndims;
    c->chunks.count += n;
    c->ungrouped = c->ungrouped || tensor < c->last_tensor;
    c->last_tensor = tensor;
    t->nchunks += n;
    return FSDPCK_OK;
}

/* The box was checked. */
static void put_chunk(const catalogue *c, const cat_new_chunks *of, uint32_t i,
                      const uint64_t *offsets, const uint64_t *sizes, bool empty,
                      const cat_chunk *proto)
{
    const cat_tensor *t = catalogue_tensor(c, of->tensor);
    cat_chunk *chunk = catalogue_chunk(c, of->first + i);
    *chunk = *proto;
    chunk->tensor = of->tensor;
    chunk->dims_at = of->dims_at + 2 * (uint64_t)t->ndim * i;
    if (empty)
        chunk->place = LOCATION_EMPTY;
    put_box(c, t, chunk->dims_at, offsets, sizes);
}

static fsdpck_status add_chunk(catalogue *c, uint32_t tensor, const uint64_t *offsets,
                               const uint64_t *sizes, const cat_chunk *proto, fsdpck_error *err)
{
    cat_new_chunks made;
    bool empty;
    RETURN_IF(check_box(c, tensor, offsets, sizes, &empty, err));
    RETURN_IF(add_chunks(c, tensor, 1, &made, err));
    put_chunk(c, &made, 0, offsets, sizes, empty, proto);
    return FSDPCK_OK;
}

fsdpck_status catalogue_add_chunks(catalogue *c, uint32_t tensor, uint32_t n, cat_new_chunks *made,
                                   fsdpck_error *err)
{
    if (c->sealed)
        return error_sealed(err);
    return add_chunks(c, tensor, n, made, err);
}

fsdpck_status catalogue_put_chunk(catalogue *c, const cat_new_chunks *of, uint32_t i,
                                  const uint64_t *offsets, const uint64_t *sizes,
                                  const cat_chunk *proto, fsdpck_error *err)
{
    bool empty;
    RETURN_IF(check_box(c, of->tensor, offsets, sizes, &empty, err));
    put_chunk(c, of, i, offsets, sizes, empty, proto);
    return FSDPCK_OK;
}

fsdpck_status catalogue_add_chunk(catalogue *c, uint32_t tensor, const uint64_t *offsets,
                                  const uint64_t *sizes, const cat_chunk *proto, fsdpck_error *err)
{
    if (c->sealed)
        return error_sealed(err);
    return add_chunk(c, tensor, offsets, sizes, proto, err);
}

fsdpck_status catalogue_add_object(catalogue *c, const char *name, size_t name_nbytes,
                                   uint32_t *object, fsdpck_error *err)
{
    if (c->objects.count >= CAT_NONE)
        return FAIL(err, LIMIT, LIMIT_COUNT, "too many objects");
    uint32_t id;
    RETURN_IF(strtab_intern(&c->names, name, name_nbytes, &id, err));
    *object = (uint32_t)c->objects.count;
    return vec_add(
        &c->objects,
        &(cat_object){.name = id, .file = CAT_NONE, .rank = UINT16_MAX, .number = *object}, err);
}

fsdpck_status catalogue_add_mesh(catalogue *c, const mesh *m, uint32_t *index, fsdpck_error *err)
{
    for (*index = 0; *index < c->meshes.count; ++*index)
        if (mesh_equal(catalogue_mesh(c, *index), m))
            return FSDPCK_OK;
    return vec_add(&c->meshes, m, err);
}

static bool same_spec(const cat_spec *a, const cat_spec *b)
{
    if (a->mesh != b->mesh || a->absent_dims != b->absent_dims)
        return false;
    for (unsigned i = 0; i < MESH_NDIM_MAX; i++) {
        const placement *p = &a->placements[i];
        const placement *q = &b->placements[i];
        if (p->kind != q->kind || p->dim != q->dim || p->split_factor != q->split_factor)
            return false;
    }
    return true;
}

fsdpck_status catalogue_add_spec(catalogue *c, const cat_spec *spec, uint32_t *index,
                                 fsdpck_error *err)
{
    for (*index = 0; *index < c->specs.count; ++*index)
        if (same_spec(VEC_AT(&c->specs, const cat_spec, *index), spec))
            return FSDPCK_OK;
    return vec_add(&c->specs, spec, err);
}

const cat_spec *catalogue_spec(const catalogue *c, size_t tensor)
{
    const uint32_t spec = catalogue_tensor(c, tensor)->spec;
    return spec == CAT_NONE ? NULL : VEC_AT(&c->specs, const cat_spec, spec);
}

const mesh *catalogue_mesh(const catalogue *c, uint32_t index)
{
    return VEC_AT(&c->meshes, const mesh, index);
}

/* Names are interned, so the hash over tensors is an array over name ids. */
static fsdpck_status index_names(catalogue *c, fsdpck_error *err)
{
    const size_t count = strtab_count(&c->names);
    RETURN_IF(vec_reserve(&c->by_name, count, err));
    c->by_name.count = count;
    uint32_t *by_name = c->by_name.items;
    if (count > 0)
        memset(by_name, 0xFF, count * sizeof *by_name); /* CAT_NONE everywhere */
    for (size_t i = 0; i < c->tensors.count; i++) {
        const uint32_t name = catalogue_tensor(c, i)->name;
        if (by_name[name] != CAT_NONE)
            return FAIL_WITH(err, BADINPUT, KEY_DUP, ("two tensors have the same name"),
                             (tensor, catalogue_name(c, name)));
        by_name[name] = (uint32_t)i;
    }
    return FSDPCK_OK;
}

/* Counting sort: stable, so that a tensor's chunks keep the order in which they were added. */
static fsdpck_status sort_chunks(catalogue *c, fsdpck_error *err)
{
    vec sorted = VEC_OF(cat_chunk, c->owner);
    RETURN_IF(vec_reserve(&sorted, c->chunks.count, err));
    cat_chunk *to = sorted.items;
    const cat_chunk *from = c->chunks.items;
    for (size_t i = 0; i < c->chunks.count; i++)
        to[catalogue_tensor(c, from[i].tensor)->first_chunk++] = from[i];
    for (size_t i = 0; i < c->tensors.count; i++) {
        cat_tensor *t = catalogue_tensor(c, i);
        t->first_chunk -= t->nchunks;
    }
    sorted.count = c->chunks.count;
    vec_release(&c->chunks);
    c->chunks = sorted;
    return FSDPCK_OK;
}

/* Chunks by tensor. */
static fsdpck_status group_chunks(catalogue *c, fsdpck_error *err)
{
    uint64_t first = 0;
    for (size_t i = 0; i < c->tensors.count; i++) {
        cat_tensor *t = catalogue_tensor(c, i);
        t->first_chunk = first;
        first += t->nchunks;
    }
    if (c->ungrouped)
        RETURN_IF(sort_chunks(c, err));
    vec *const tables[] = {&c->files,  &c->tensors, &c->chunks, &c->objects,
                           &c->shapes, &c->dims32,  &c->dims64};
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++)
        vec_trim(tables[i]);
    c->sealed = 1;
    return FSDPCK_OK;
}

fsdpck_status catalogue_seal(catalogue *c, fsdpck_error *err)
{
    if (c->sealed)
        return error_sealed(err);
    RETURN_IF(index_names(c, err));
    return group_chunks(c, err);
}

fsdpck_status catalogue_seal_as(catalogue *c, const catalogue *from, fsdpck_error *err)
{
    if (c->sealed)
        return error_sealed(err);
    RETURN_IF(vec_add_n(&c->by_name, from->by_name.items, from->by_name.count, err));
    return group_chunks(c, err);
}

fsdpck_status catalogue_add_object_tensor(catalogue *c, const char *name, size_t name_nbytes,
                                          dtype d, unsigned ndim, const uint64_t *shape,
                                          const cat_chunk *proto, uint32_t *tensor,
                                          fsdpck_error *err)
{
    static const uint64_t zeros[NDIM_MAX];
    const uint64_t first = c->chunks.count;
    RETURN_IF(add_tensor(c, name, name_nbytes, d, ndim, shape, tensor, err));
    cat_tensor *t = catalogue_tensor(c, *tensor);
    t->flags |= CAT_TENSOR_IN_OBJECT;
    t->first_chunk = first;
    const fsdpck_status st = add_chunk(c, *tensor, zeros, catalogue_shape(c, *tensor), proto, err);
    if (st != FSDPCK_OK)
        c->tensors.count--; /* a sealed catalogue has no tensor without its chunk */
    return st;
}

fsdpck_status catalogue_set_box(catalogue *c, uint64_t chunk, const uint64_t *offsets,
                                const uint64_t *sizes, location_kind place, fsdpck_error *err)
{
    cat_chunk *k = catalogue_chunk(c, chunk);
    bool empty;
    RETURN_IF(check_box(c, k->tensor, offsets, sizes, &empty, err));
    put_box(c, catalogue_tensor(c, k->tensor), k->dims_at, offsets, sizes);
    k->place = (uint16_t)(empty ? LOCATION_EMPTY : k->place == LOCATION_EMPTY ? place : k->place);
    return FSDPCK_OK;
}

fsdpck_status catalogue_add_skipped(catalogue *c, const char *name, size_t name_nbytes,
                                    bool is_object, uint64_t nbytes, value path, fsdpck_error *err)
{
    const cat_skipped skipped = {.is_object = is_object, .nbytes = nbytes, .path = path};
    RETURN_IF(vec_add(&c->passed_over, &skipped, err));
    return strtab_intern(&c->names, name, name_nbytes,
                         &VEC_AT(&c->passed_over, cat_skipped, c->passed_over.count - 1)->name,
                         err);
}

fsdpck_status catalogue_rename(catalogue *c, uint32_t tensor, const char *name, size_t name_nbytes,
                               fsdpck_error *err)
{
    return strtab_intern(&c->names, name, name_nbytes, &catalogue_tensor(c, tensor)->name, err);
}

fsdpck_status catalogue_reindex(catalogue *c, fsdpck_error *err)
{
    vec_release(&c->by_name);
    return index_names(c, err);
}
