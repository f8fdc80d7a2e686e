#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "formats/pt/ranks_write_dtensor.h"
#include "formats/shared/torch_archive.h"
#include "layout/mesh_text.h"

enum { NAME_NBYTES = 24 };

static const char layout_module[] = "torch.distributed._mesh_layout";

static void put_name(pickle_writer *w, const char *text)
{
    pickle_put_str(w, text, strlen(text));
}

static void begin_tuple(pickle_writer *w, uint64_t count)
{
    if (count > 3)
        pickle_put_mark(w);
}

static void end_tuple(pickle_writer *w, uint64_t count)
{
    if (count > 3)
        pickle_put_tuple_marked(w);
    else
        pickle_put_tuple(w, (unsigned)count);
}

/* --- process groups --- */

/* Whether torch takes the default group for a mesh dim, and makes none. */
static bool is_default_group(const dtensor_writer *d, const mesh *m, unsigned dim)
{
    return d->form >= DTORCH_2_10 ? m->sizes[dim] == d->world_size : m->ndim == 1;
}

/* Groups of one mesh dim are made in the order of the other coordinates: 2.10 and newer keep the
 * order of the dims, older ones had put the last dim in the place of this one. */
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

static void put_group_names(const dtensor_writer *d, pickle_writer *w, const mesh *m,
                            const uint64_t *coord)
{
    char name[NAME_NBYTES];
    put_name(w, "_dim_group_names");
    pickle_put_empty_list(w);
    for (unsigned i = 0; i < m->ndim; i++) {
        group_name(d, m, coord, i, name);
        put_name(w, name);
        pickle_put_append(w);
    }
    pickle_put_setitem(w);
}

/* (tag, ranks, name). torch 2.7 and older look a group up by its ranks among those of a tag; the
 * empty tag stands for all groups whose tag was not the user's choice. */
static void put_group_infos(const dtensor_writer *d, pickle_writer *w, const mesh *m,
                            const uint64_t *coord)
{
    char name[NAME_NBYTES];
    put_name(w, "_dim_group_infos");
    pickle_put_empty_list(w);
    for (unsigned i = 0; i < m->ndim; i++) {
        uint64_t other[MESH_NDIM_MAX];
        memcpy(other, coord, sizeof other);
        group_name(d, m, coord, i, name);
        put_name(w, "");
        pickle_put_empty_list(w);
        for (other[i] = 0; other[i] < m->sizes[i]; other[i]++) {
            pickle_put_int(w, (int64_t)mesh_rank(m, other));
            pickle_put_append(w);
        }
        put_name(w, name);
        pickle_put_tuple(w, 3);
        pickle_put_append(w);
    }
    pickle_put_setitem(w);
}

/* --- fields --- */

static void put_dim_names(pickle_writer *w, const char *key, const mesh *m)
{
    bool named = true;
    put_name(w, key);
    for (unsigned i = 0; i < m->ndim; i++)
        named = named && m->names[i][0] != '\0';
    if (named) {
        begin_tuple(w, m->ndim);
        for (unsigned i = 0; i < m->ndim; i++)
            put_name(w, m->names[i]);
        end_tuple(w, m->ndim);
    } else {
        pickle_put_none(w);
    }
    pickle_put_setitem(w);
}

static void put_coordinate(const dtensor_writer *d, pickle_writer *w, const mesh *m,
                           const uint64_t *coord)
{
    put_name(w, "_coordinate_on_dim");
    if (d->form >= DTORCH_2_10) {
        begin_tuple(w, m->ndim);
        for (unsigned i = 0; i < m->ndim; i++)
            pickle_put_int(w, (int64_t)coord[i]);
        end_tuple(w, m->ndim);
    } else {
        pickle_put_empty_list(w);
        for (unsigned i = 0; i < m->ndim; i++) {
            pickle_put_int(w, (int64_t)coord[i]);
            pickle_put_append(w);
        }
    }
    pickle_put_setitem(w);
}

static void put_none(pickle_writer *w, const char *key)
{
    put_name(w, key);
    pickle_put_none(w);
    pickle_put_setitem(w);
}

static void put_ranks(const dtensor_writer *d, pickle_writer *w, const char *key)
{
    put_name(w, key);
    begin_tuple(w, d->world_size);
    for (uint64_t i = 0; i < d->world_size; i++)
        pickle_put_int(w, (int64_t)i);
    end_tuple(w, d->world_size);
    pickle_put_setitem(w);
}

static fsdpck_status put_rank_tensor(const dtensor_writer *d, pickle_writer *w, unsigned ndim,
                                     const uint64_t *sizes, fsdpck_error *err)
{
    uint64_t strides[MESH_NDIM_MAX];
    char key[16];
    RETURN_IF(d->mesh_key(d->ctx, key, err));
    box_row_major_strides(sizes, ndim, strides);
    torch_put_tensor(w, key, DTYPE_INT32, ndim, sizes, strides, 0, d->world_size);
    return FSDPCK_OK;
}

static void put_item_dims(pickle_writer *w, const char *key, unsigned ndim, const uint64_t *dims)
{
    put_name(w, key);
    begin_tuple(w, ndim);
    for (unsigned i = 0; i < ndim; i++)
        pickle_put_int(w, (int64_t)dims[i]);
    end_tuple(w, ndim);
    pickle_put_setitem(w);
}

/* One _FlatLayout an axis; torch drops sizes of 1 from them. */
static void put_axes(pickle_writer *w, const mesh *m, const uint64_t *strides)
{
    put_name(w, "axes");
    begin_tuple(w, m->ndim);
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
    end_tuple(w, m->ndim);
    pickle_put_setitem(w);
}

static void put_layout(const dtensor_writer *d, pickle_writer *w, const mesh *m)
{
    uint64_t strides[MESH_NDIM_MAX];
    box_row_major_strides(m->sizes, m->ndim, strides);
    put_name(w, "_layout");
    pickle_put_global(w, layout_module, "_MeshLayout");
    pickle_put_tuple(w, 0);
    pickle_put_newobj(w);
    pickle_put_empty_dict(w);
    if (d->form < DTORCH_2_15) {
        put_item_dims(w, "shape", m->ndim, m->sizes);
        put_item_dims(w, "stride", m->ndim, strides);
    } else {
        put_axes(w, m, strides);
    }
    pickle_put_build(w);
    pickle_put_setitem(w);
}

static fsdpck_status put_new_fields(const dtensor_writer *d, pickle_writer *w, const mesh *m,
                                    fsdpck_error *err)
{
    put_name(w, "_device_type");
    put_name(w, d->device_type);
    pickle_put_setitem(w);
    put_layout(d, w, m);
    put_name(w, "_rank_map");
    if (!pickle_put_again(w, DTENSOR_MESH_RANKS)) {
        RETURN_IF(put_rank_tensor(d, w, 1, &d->world_size, err));
        pickle_put_remember(w, DTENSOR_MESH_RANKS);
    }
    pickle_put_setitem(w);
    put_dim_names(w, "_mesh_dim_names", m);
    put_none(w, "_root_mesh");
    put_name(w, "_preserve_rank_order");
    pickle_put_bool(w, false);
    pickle_put_setitem(w);
    put_ranks(d, w, "_flatten_rank_map");
    put_name(w, "_flatten_mapping");
    pickle_put_empty_dict(w);
    pickle_put_setitem(w);
    return FSDPCK_OK;
}

static fsdpck_status put_old_fields(const dtensor_writer *d, pickle_writer *w, const mesh *m,
                                    fsdpck_error *err)
{
    put_name(w, "device_type");
    put_name(w, d->device_type);
    pickle_put_setitem(w);
    put_name(w, "mesh");
    RETURN_IF(put_rank_tensor(d, w, m->ndim, m->sizes, err));
    pickle_put_setitem(w);
    put_dim_names(w, "mesh_dim_names", m);
    put_ranks(d, w, "_flatten_mesh_list");
    return FSDPCK_OK;
}

fsdpck_status dtensor_put_mesh(const dtensor_writer *d, pickle_writer *w, uint32_t index,
                               fsdpck_error *err)
{
    const mesh *m = catalogue_mesh(d->cat, index);
    uint64_t coord[MESH_NDIM_MAX] = {0};

    if (pickle_put_again(w, DTENSOR_MESHES + (uint64_t)index))
        return FSDPCK_OK;
    mesh_coord(m, d->rank, coord);
    pickle_put_global(w, "torch.distributed.device_mesh", "DeviceMesh");
    pickle_put_tuple(w, 0);
    pickle_put_newobj(w);
    pickle_put_remember(w, DTENSOR_MESHES + (uint64_t)index);
    pickle_put_empty_dict(w);
    /* What differs between ranks comes first: the rest of their pickles is the same then. */
    if (d->form >= DTORCH_2_10) {
        put_name(w, "_rank");
        pickle_put_int(w, (int64_t)d->rank);
        pickle_put_setitem(w);
    }
    put_coordinate(d, w, m, coord);
    if (d->form == DTORCH_2_6)
        put_group_infos(d, w, m, coord);
    else
        put_group_names(d, w, m, coord);
    if (d->form >= DTORCH_2_10)
        RETURN_IF(put_new_fields(d, w, m, err));
    else
        RETURN_IF(put_old_fields(d, w, m, err));
    put_none(w, "_thread_id");
    put_none(w, "_hash");
    pickle_put_build(w);
    return FSDPCK_OK;
}
