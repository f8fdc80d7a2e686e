#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "formats/common/torch_archive.h"
#include "formats/pt/ranks_write_dtensor.h"
#include "layout/mesh_text.h"
#include "layout/slice.h"

enum { NAME_NBYTES = 24 };

static const char layout_module[] = "torch.distributed._mesh_layout";

/* --- process groups --- */

/* Whether torch uses the default group for a mesh dim and creates none. */
static bool is_default_group(const dtensor_writer *d, const mesh *m, unsigned dim)
{
    return d->form >= DTORCH_2_10 ? m->sizes[dim] == d->world_size : m->ndim == 1;
}

/* Groups of one mesh dim are created in the order of the other coordinates: 2.10 and newer keep the
 * order of the dims; older ones put the last dim in the position of this one. */
static uint64_t group_of_dim(const dtensor_writer *d, const mesh *m, const uint64_t *coord,
                             unsigned dim)
{
    uint64_t index = 0;
    for (unsigned i = 0; i < m->ndim; i++) {
        unsigned other = i;
        if (d->form < DTORCH_2_10) {
            if (i + 1 == m->ndim)
                break;
            other = i == dim ? m->ndim - 1 : i;
        } else if (i == dim) {
            continue;
        }
        index = index * m->sizes[other] + coord[other];
    }
    return index;
}

/* Groups are named by counting: "0" is the default group. */
static void group_name(const dtensor_writer *d, const mesh *m, const uint64_t *coord, unsigned dim,
                       char name[NAME_NBYTES])
{
    uint64_t number = 0;
    if (!is_default_group(d, m, dim)) {
        number = 1 + group_of_dim(d, m, coord, dim);
        for (unsigned i = 0; i < dim; i++)
            number += is_default_group(d, m, i) ? 0 : d->world_size / m->sizes[i];
    }
    snprintf(name, NAME_NBYTES, "%" PRIu64, number);
}

/* A mesh from the view of one rank. */
typedef struct own_mesh {
    const mesh *root;
    mesh_slice slice;
    uint64_t root_coord[MESH_NDIM_MAX];
    uint64_t strides[MESH_NDIM_MAX]; /* of the slice's dims, in ranks */
    uint64_t first;                  /* rank at the slice's origin */
} own_mesh;

static void own_mesh_init(own_mesh *o, const dtensor_writer *d, const cat_spec *spec)
{
    uint64_t strides[MESH_NDIM_MAX];
    o->root = catalogue_mesh(d->cat, spec->mesh);
    mesh_slice_of(o->root, spec, &o->slice);
    mesh_coord(o->root, d->rank, o->root_coord);
    box_row_major_strides(o->root->sizes, o->root->ndim, strides);
    o->first = d->rank;
    for (unsigned i = 0; i < o->slice.m.ndim; i++) {
        o->strides[i] = strides[o->slice.dims[i]];
        o->first -= o->root_coord[o->slice.dims[i]] * o->strides[i];
    }
}

static uint64_t own_coord(const own_mesh *o, unsigned i)
{
    return o->root_coord[o->slice.dims[i]];
}

static void put_group_names(const dtensor_writer *d, pickle_writer *w, const own_mesh *o)
{
    char name[NAME_NBYTES];
    pickle_put_word(w, "_dim_group_names");
    pickle_put_empty_list(w);
    for (unsigned i = 0; i < o->slice.m.ndim; i++) {
        group_name(d, o->root, o->root_coord, o->slice.dims[i], name);
        pickle_put_text(w, name, strlen(name));
        pickle_put_append(w);
    }
    pickle_put_setitem(w);
}

/* (tag, ranks, name). torch 2.7 and older look a group up by its ranks among those of a tag; the
 * empty tag stands for all groups whose tag was not the user's choice. */
static void put_group_infos(const dtensor_writer *d, pickle_writer *w, const own_mesh *o)
{
    char name[NAME_NBYTES];
    pickle_put_word(w, "_dim_group_infos");
    pickle_put_empty_list(w);
    for (unsigned i = 0; i < o->slice.m.ndim; i++) {
        const uint64_t first = d->rank - own_coord(o, i) * o->strides[i];
        group_name(d, o->root, o->root_coord, o->slice.dims[i], name);
        pickle_put_text(w, "", 0);
        pickle_put_empty_list(w);
        for (uint64_t k = 0; k < o->slice.m.sizes[i]; k++) {
            pickle_put_int(w, (int64_t)(first + k * o->strides[i]));
            pickle_put_append(w);
        }
        pickle_put_text(w, name, strlen(name));
        pickle_put_tuple(w, 3);
        pickle_put_append(w);
    }
    pickle_put_setitem(w);
}

/* --- fields --- */

static void put_dim_names(pickle_writer *w, const char *key, const mesh *m)
{
    bool named = true;
    pickle_put_word(w, key);
    for (unsigned i = 0; i < m->ndim; i++)
        named = named && m->names[i][0] != '\0';
    if (named) {
        pickle_put_tuple_begin(w, m->ndim);
        for (unsigned i = 0; i < m->ndim; i++)
            pickle_put_word(w, m->names[i]);
        pickle_put_tuple_end(w, m->ndim);
    } else {
        pickle_put_none(w);
    }
    pickle_put_setitem(w);
}

static void put_coordinate(const dtensor_writer *d, pickle_writer *w, const own_mesh *o)
{
    const unsigned ndim = o->slice.m.ndim;
    const bool in_tuple = d->form >= DTORCH_2_10;
    pickle_put_word(w, "_coordinate_on_dim");
    if (in_tuple)
        pickle_put_tuple_begin(w, ndim);
    else
        pickle_put_empty_list(w);
    for (unsigned i = 0; i < ndim; i++) {
        pickle_put_int(w, (int64_t)own_coord(o, i));
        if (!in_tuple)
            pickle_put_append(w);
    }
    if (in_tuple)
        pickle_put_tuple_end(w, ndim);
    pickle_put_setitem(w);
}

static void put_none(pickle_writer *w, const char *key)
{
    pickle_put_word(w, key);
    pickle_put_none(w);
    pickle_put_setitem(w);
}

/* The ranks of a mesh, in its order. */
static void put_ranks(pickle_writer *w, const char *key, const mesh *m, const uint64_t *strides,
                      uint64_t first)
{
    const uint64_t count = mesh_size(m);
    const uint64_t step = strides[m->ndim - 1];
    uint64_t run = 1; /* number of consecutive ranks at this step */
    uint64_t coord[MESH_NDIM_MAX];
    for (unsigned i = m->ndim; i-- > 0 && strides[i] == run * step;)
        run *= m->sizes[i];
    pickle_put_word(w, key);
    pickle_put_tuple_begin(w, count);
    for (uint64_t k = 0; k < count; k += run) {
        uint64_t rank = first;
        mesh_coord(m, k, coord);
        for (unsigned i = 0; i < m->ndim; i++)
            rank += coord[i] * strides[i];
        pickle_put_ints(w, rank, run, step);
    }
    pickle_put_tuple_end(w, count);
    pickle_put_setitem(w);
}

/* A view of all ranks. */
static fsdpck_status put_rank_tensor(const dtensor_writer *d, pickle_writer *w, unsigned ndim,
                                     const uint64_t *sizes, const uint64_t *strides, uint64_t first,
                                     fsdpck_error *err)
{
    char key[16];
    RETURN_IF(d->mesh_key(d->ctx, key, err));
    torch_put_tensor(w, key, DTYPE_INT32, ndim, sizes, strides, first, d->world_size);
    return FSDPCK_OK;
}

static void put_item_dims(pickle_writer *w, const char *key, unsigned ndim, const uint64_t *dims)
{
    pickle_put_word(w, key);
    pickle_put_dims(w, ndim, dims);
    pickle_put_setitem(w);
}

/* One _FlatLayout an axis; torch drops sizes of 1 from them. */
static void put_axes(pickle_writer *w, const mesh *m, const uint64_t *strides)
{
    pickle_put_word(w, "axes");
    pickle_put_tuple_begin(w, m->ndim);
    for (unsigned i = 0; i < m->ndim; i++) {
        const unsigned ndim = m->sizes[i] > 1 ? 1 : 0;
        pickle_put_global(w, layout_module, "_FlatLayout");
        pickle_put_tuple(w, 0);
        pickle_put_newobj(w);
        pickle_put_empty_dict(w);
        put_item_dims(w, "shape", ndim, &m->sizes[i]);
        put_item_dims(w, "stride", ndim, &strides[i]);
        pickle_put_build(w);
    }
    pickle_put_tuple_end(w, m->ndim);
    pickle_put_setitem(w);
}

static void put_layout(const dtensor_writer *d, pickle_writer *w, const own_mesh *o)
{
    const mesh *m = &o->slice.m;
    pickle_put_word(w, "_layout");
    pickle_put_global(w, layout_module, "_MeshLayout");
    pickle_put_tuple(w, 0);
    pickle_put_newobj(w);
    pickle_put_empty_dict(w);
    if (d->form < DTORCH_2_15) {
        put_item_dims(w, "shape", m->ndim, m->sizes);
        put_item_dims(w, "stride", m->ndim, o->strides);
    } else {
        put_axes(w, m, o->strides);
    }
    pickle_put_build(w);
    pickle_put_setitem(w);
}

static fsdpck_status put_mesh(const dtensor_writer *d, pickle_writer *w, const cat_spec *spec,
                              const cat_spec *root, fsdpck_error *err);

static fsdpck_status put_new_fields(const dtensor_writer *d, pickle_writer *w, const own_mesh *o,
                                    const cat_spec *root, fsdpck_error *err)
{
    static const uint64_t one = 1;
    pickle_put_word(w, "_device_type");
    pickle_put_word(w, d->device_type);
    pickle_put_setitem(w);
    put_layout(d, w, o);
    pickle_put_word(w, "_rank_map");
    if (!pickle_put_from_memo(w, DTENSOR_MESH_RANKS)) {
        RETURN_IF(put_rank_tensor(d, w, 1, &d->world_size, &one, 0, err));
        pickle_put_to_memo(w, DTENSOR_MESH_RANKS);
    }
    pickle_put_setitem(w);
    put_dim_names(w, "_mesh_dim_names", &o->slice.m);
    pickle_put_word(w, "_root_mesh");
    if (root != NULL)
        RETURN_IF(put_mesh(d, w, root, NULL, err));
    else
        pickle_put_none(w);
    pickle_put_setitem(w);
    pickle_put_word(w, "_preserve_rank_order");
    pickle_put_bool(w, false);
    pickle_put_setitem(w);
    const mesh all = {.ndim = 1, .sizes = {d->world_size}};
    put_ranks(w, "_flatten_rank_map", &all, &one, 0);
    pickle_put_word(w, "_flatten_mapping");
    pickle_put_empty_dict(w);
    pickle_put_setitem(w);
    return FSDPCK_OK;
}

static fsdpck_status put_old_fields(const dtensor_writer *d, pickle_writer *w, const own_mesh *o,
                                    fsdpck_error *err)
{
    const mesh *m = &o->slice.m;
    pickle_put_word(w, "device_type");
    pickle_put_word(w, d->device_type);
    pickle_put_setitem(w);
    pickle_put_word(w, "mesh");
    RETURN_IF(put_rank_tensor(d, w, m->ndim, m->sizes, o->strides, o->first, err));
    pickle_put_setitem(w);
    put_dim_names(w, "mesh_dim_names", m);
    put_ranks(w, "_flatten_mesh_list", m, o->strides, o->first);
    return FSDPCK_OK;
}

/* root: of a slice, for the forms that keep it; NULL: none. */
static fsdpck_status put_mesh(const dtensor_writer *d, pickle_writer *w, const cat_spec *spec,
                              const cat_spec *root, fsdpck_error *err)
{
    const uint64_t number = DTENSOR_MESHES + ((uint64_t)spec->mesh << 8) + spec->absent_dims;
    own_mesh o;

    if (pickle_put_from_memo(w, number))
        return FSDPCK_OK;
    RETURN_IF(d->mesh_boundary(d->ctx, err));
    own_mesh_init(&o, d, spec);
    pickle_put_global(w, "torch.distributed.device_mesh", "DeviceMesh");
    pickle_put_tuple(w, 0);
    pickle_put_newobj(w);
    pickle_put_to_memo(w, number);
    pickle_put_empty_dict(w);
    /* Parts that differ between ranks come first, so that the rest of their pickles is equal. */
    if (d->form >= DTORCH_2_10) {
        pickle_put_word(w, "_rank");
        pickle_put_int(w, (int64_t)d->rank);
        pickle_put_setitem(w);
    }
    put_coordinate(d, w, &o);
    if (d->form == DTORCH_2_6)
        put_group_infos(d, w, &o);
    else
        put_group_names(d, w, &o);
    if (d->form >= DTORCH_2_10)
        RETURN_IF(put_new_fields(d, w, &o, root, err));
    else
        RETURN_IF(put_old_fields(d, w, &o, err));
    put_none(w, "_thread_id");
    put_none(w, "_hash");
    pickle_put_build(w);
    return d->mesh_boundary(d->ctx, err);
}

fsdpck_status dtensor_put_mesh(const dtensor_writer *d, pickle_writer *w, const cat_spec *spec,
                               fsdpck_error *err)
{
    const cat_spec root = {.mesh = spec->mesh};
    return put_mesh(d, w, spec, spec->absent_dims != 0 ? &root : NULL, err);
}
