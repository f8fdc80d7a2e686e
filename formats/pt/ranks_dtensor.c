/* A DTensor as pickled by torch 2.1 to 2.15: the names of its classes are stable, their modules and
 * members are not.
 *
 *     DeviceMesh    2.1 to 2.9    `mesh`, an int64 (2.1 to 2.3) or int32 tensor of the mesh's shape
 *                   2.10 to 2.12  `_layout` {shape, stride}, ints or nested tuples, one a mesh dim
 *                   2.13 to 2.15  `_layout` {axes: tuple of {shape, stride}}
 *     own place     `_coordinate_on_dim` in all; a list to 2.10, then a tuple; None outside the mesh
 *     DTensorSpec   `mesh`, `placements`; 2.10 adds `shard_order`
 *     own rank      the mesh tensor's element there; `_rank` from 2.11 on
 *
 * Sliced meshes carry the root's `_rank_map`; only the coordinate is needed here, not the ranks. No
 * other fields are read, so cycles through `_flatten_mapping` do not matter.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "formats/pt/ranks_internal.h"
#include "layout/mesh_text.h"
#include "layout/shard_box.h"

enum { MESHES_PER_FILE = 4096, LAYOUT_STEPS = 64 };

static fsdpck_status bad(fsdpck_error *err, const char *what)
{
    return FAIL(err, BADINPUT, RANK_DTENSOR, "DTensor's %s", what);
}

/* --- ints of a small tensor --- */

static uint64_t load_int(const uint8_t *p, size_t nbytes, bool big_endian)
{
    uint64_t n = 0;
    for (size_t i = 0; i < nbytes; i++)
        n |= (uint64_t)p[big_endian ? nbytes - 1 - i : i] << (8 * i);
    return n;
}

static fsdpck_status storage_bytes(ranks_parse *p, const torch_storage *s, uint8_t **bytes,
                                   fsdpck_error *err)
{
    const torch_archive *a = &p->archive;
    uint64_t nbytes = s->nbytes;

    if (s->entry != UINT32_MAX)
        return zip_read_entry(&a->zip, VEC_AT(&a->zip.entries, const zip_entry, s->entry),
                              (uint64_t)MESH_RANKS_MAX * 8, bytes, &nbytes, err);
    *bytes = budget_alloc(a->owner, nbytes, err);
    if (*bytes == NULL)
        return FSDPCK_LIMIT;
    const fsdpck_status st = file_set_read_at(&p->s->reader->files, p->file->index,
                                              s->data_offset_bytes, *bytes, nbytes, err);
    if (st != FSDPCK_OK)
        budget_free(a->owner, *bytes, nbytes);
    return st;
}

fsdpck_status ranks_read_ints(ranks_parse *p, const torch_tensor *t, uint64_t **ints,
                              uint64_t *count, fsdpck_error *err)
{
    const torch_archive *a = &p->archive;
    const size_t itemsize = dtype_get((dtype)t->dtype)->itemsize_bytes;
    uint64_t sizes[MESH_NDIM_MAX], strides[MESH_NDIM_MAX], at[MESH_NDIM_MAX] = {0};
    uint8_t *bytes;

    if ((t->dtype != DTYPE_INT64 && t->dtype != DTYPE_INT32) || t->meta || t->ndim == 0 ||
        t->ndim > MESH_NDIM_MAX)
        return bad(err, "mesh is not a tensor of ints");
    memcpy(sizes, torch_tensor_sizes(a, t), t->ndim * sizeof *sizes);
    memcpy(strides, torch_tensor_strides(a, t), t->ndim * sizeof *strides);
    const torch_storage *s = VEC_AT(&a->storages, const torch_storage, t->storage);
    *count = box_nelems(sizes, t->ndim);
    if (*count == 0 || *count > MESH_RANKS_MAX || s->nbytes > (uint64_t)MESH_RANKS_MAX * 8)
        return bad(err, "mesh has no ranks, or too many");
    RETURN_IF(storage_bytes(p, s, &bytes, err));
    *ints = budget_alloc(a->owner, *count * sizeof **ints, err);
    for (uint64_t i = 0; *ints != NULL && i < *count; i++) {
        uint64_t from = t->offset_nelems; /* inside the storage: torch_archive_open checked it */
        for (unsigned d = 0; d < t->ndim; d++)
            from += at[d] * strides[d];
        (*ints)[i] = load_int(bytes + from * itemsize, itemsize, a->big_endian);
        for (unsigned d = t->ndim; d-- > 0 && ++at[d] == sizes[d];)
            at[d] = 0;
    }
    budget_free(a->owner, bytes, s->nbytes);
    return *ints == NULL ? FSDPCK_LIMIT : FSDPCK_OK;
}

/* --- meshes --- */

/* Product of an int or of a nest of tuples of ints: the size of one mesh dim. */
static bool axis_size(const value_pool *pool, value v, uint64_t *size)
{
    value stack[LAYOUT_STEPS] = {ranks_unwrap_size(pool, v)};
    unsigned depth = 1;
    *size = 1;
    for (unsigned steps = 0; depth > 0; steps++) {
        const value top = stack[--depth];
        uint64_t factor;
        if (steps == LAYOUT_STEPS)
            return false;
        if (value_as_u64(pool, top, &factor)) {
            if (!checked_mul(*size, factor, size))
                return false;
            continue;
        }
        if (!ranks_is_sequence(top) || depth + value_count(pool, top) > LAYOUT_STEPS)
            return false;
        for (size_t i = 0; i < value_count(pool, top); i++)
            stack[depth++] = ranks_unwrap_size(pool, value_item(pool, top, i));
    }
    return true;
}

static bool layout_sizes(const value_pool *pool, value layout, mesh *m, const char **form)
{
    value axes, shape;
    const bool by_axis = ranks_attribute(pool, layout, "axes", &axes);

    *form = by_axis ? "2.13 or 2.14" : "2.11 or 2.12";
    if (!by_axis) {
        if (!ranks_attribute(pool, layout, "shape", &axes))
            return false;
        axes = ranks_unwrap_size(pool, axes);
        if (value_kind_of(axes) == VALUE_INT) { /* a flattened mesh */
            m->ndim = 1;
            return value_as_u64(pool, axes, &m->sizes[0]);
        }
    }
    if (!ranks_is_sequence(axes) || value_count(pool, axes) > MESH_NDIM_MAX)
        return false;
    m->ndim = (unsigned)value_count(pool, axes);
    for (unsigned i = 0; i < m->ndim; i++) {
        const value axis = value_item(pool, axes, i);
        shape = axis;
        if (by_axis && !ranks_attribute(pool, axis, "shape", &shape))
            return false;
        if (!axis_size(pool, shape, &m->sizes[i]))
            return false;
    }
    return true;
}

static void mesh_names(const value_pool *pool, value v, mesh *m)
{
    value names;
    if (!ranks_attribute(pool, v, "mesh_dim_names", &names) &&
        !ranks_attribute(pool, v, "_mesh_dim_names", &names))
        return;
    for (unsigned i = 0; ranks_is_sequence(names) && i < m->ndim; i++) {
        size_t nbytes = 0;
        const value name = value_item(pool, names, i);
        const char *text =
            value_kind_of(name) == VALUE_STR ? value_text(pool, name, &nbytes) : NULL;
        if (text != NULL && nbytes < MESH_NAME_NBYTES && memchr(text, '\0', nbytes) == NULL)
            memcpy(m->names[i], text, nbytes);
    }
}

/* The ranks that take part, from a mesh tensor or a root's map; the writing rank is number `own`.
 */
static fsdpck_status note_ranks(ranks_parse *p, value tensor, uint64_t own, ranks_mesh *rm,
                                fsdpck_error *err)
{
    uint64_t *ranks, count;
    if (value_kind_of(tensor) != VALUE_TENSOR)
        return FSDPCK_OK;
    RETURN_IF(ranks_read_ints(
        p, VEC_AT(&p->archive.tensors, const torch_tensor, value_tensor_index(tensor)), &ranks,
        &count, err));
    fsdpck_status st = FSDPCK_OK;
    for (uint64_t i = 0; st == FSDPCK_OK && i < count; i++)
        st = ranks_note_member(p->s, ranks[i], err);
    if (own < count) {
        rm->has_rank = true;
        rm->rank = ranks[own];
    }
    budget_free(p->archive.owner, ranks, count * sizeof *ranks);
    return st;
}

static bool own_coordinate(const value_pool *pool, value v, ranks_mesh *rm)
{
    value coord;
    unsigned n = 0;
    if (!ranks_attribute(pool, v, "_coordinate_on_dim", &coord) || value_is_none(coord))
        return true;
    rm->has_coord = ranks_dims(pool, coord, rm->coord, MESH_NDIM_MAX, &n) && n == rm->m.ndim;
    for (unsigned i = 0; rm->has_coord && i < n; i++)
        rm->has_coord = rm->coord[i] < rm->m.sizes[i];
    return rm->has_coord;
}

/* torch 2.1 to 2.9. */
static fsdpck_status read_tensor_mesh(ranks_parse *p, value v, value tensor, ranks_mesh *rm,
                                      const char **form, fsdpck_error *err)
{
    const value_pool *pool = &p->scratch.pool;
    value ignored;

    if (value_kind_of(tensor) != VALUE_TENSOR)
        return bad(err, "mesh is not a tensor");
    const torch_tensor *t =
        VEC_AT(&p->archive.tensors, const torch_tensor, value_tensor_index(tensor));
    if (t->ndim == 0 || t->ndim > MESH_NDIM_MAX)
        return bad(err, "mesh has an invalid number of dims");
    rm->m.ndim = t->ndim;
    memcpy(rm->m.sizes, torch_tensor_sizes(&p->archive, t), t->ndim * sizeof(uint64_t));
    RETURN_IF(mesh_check(&rm->m, err));
    if (!own_coordinate(pool, v, rm))
        return bad(err, "mesh has a coordinate out of range");
    if (ranks_attribute(pool, v, "_parent_mesh", &ignored))
        *form = "2.4";
    else if (ranks_attribute(pool, v, "_dim_group_names", &ignored))
        *form = "2.8 or 2.9";
    else if (t->dtype == DTYPE_INT32)
        *form = "2.5 to 2.7";
    else
        *form = ranks_attribute(pool, v, "_hash", &ignored) ? "2.2 or 2.3" : "2.1";
    return note_ranks(p, tensor, rm->has_coord ? mesh_rank(&rm->m, rm->coord) : UINT64_MAX, rm,
                      err);
}

/* torch 2.10 to 2.15. */
static fsdpck_status read_layout_mesh(ranks_parse *p, value v, value layout, ranks_mesh *rm,
                                      const char **form, fsdpck_error *err)
{
    const value_pool *pool = &p->scratch.pool;
    value map, rank, ignored;

    if (!layout_sizes(pool, layout, &rm->m, form))
        return bad(err, "mesh has a layout of an unknown form");
    RETURN_IF(mesh_check(&rm->m, err));
    if (!own_coordinate(pool, v, rm))
        return bad(err, "mesh has a coordinate out of range");
    if (ranks_attribute(pool, v, "_rank_map", &map))
        RETURN_IF(note_ranks(p, map, UINT64_MAX, rm, err));
    if (!ranks_attribute(pool, v, "_rank", &rank))
        *form = "2.10";
    else
        rm->has_rank = value_as_u64(pool, rank, &rm->rank);
    if (ranks_attribute(pool, v, "_preserve_rank_order", &ignored))
        *form = "2.15 or newer";
    return FSDPCK_OK;
}

static fsdpck_status mesh_parse_value(ranks_parse *p, value v, ranks_mesh *rm, fsdpck_error *err)
{
    const value_pool *pool = &p->scratch.pool;
    const char *form = "";
    value field, root;
    uint32_t ignored;

    if (!ranks_is_class(pool, v, "DeviceMesh"))
        return bad(err, "mesh is not a DeviceMesh");
    if (ranks_attribute(pool, v, "_layout", &field))
        RETURN_IF(read_layout_mesh(p, v, field, rm, &form, err));
    else if (ranks_attribute(pool, v, "mesh", &field))
        RETURN_IF(read_tensor_mesh(p, v, field, rm, &form, err));
    else
        return bad(err, "mesh has an unknown form");
    mesh_names(pool, v, &rm->m);
    if (p->s->form[0] == '\0')
        snprintf(p->s->form, sizeof p->s->form, "%s", form);
    /* A file belongs to the rank in its meshes. */
    if (rm->has_rank)
        ranks_note_own_rank(p, rm->rank);
    /* Also keep the root mesh of a slice: the whole layout refers to it. */
    if ((ranks_attribute(pool, v, "_root_mesh", &root) ||
         ranks_attribute(pool, v, "_parent_mesh", &root)) &&
        ranks_is_class(pool, root, "DeviceMesh") && root != v) {
        ranks_mesh whole = {0};
        value inner;
        const bool by_layout = ranks_attribute(pool, root, "_layout", &inner);
        if (by_layout || ranks_attribute(pool, root, "mesh", &inner)) {
            RETURN_IF(by_layout ? read_layout_mesh(p, root, inner, &whole, &form, err)
                                : read_tensor_mesh(p, root, inner, &whole, &form, err));
            mesh_names(pool, root, &whole.m);
            RETURN_IF(catalogue_add_mesh(p->s->cat, &whole.m, &ignored, err));
        }
    }
    return FSDPCK_OK;
}

/* Meshes are shared by most tensors of a file: each is read once. */
static fsdpck_status mesh_of(ranks_parse *p, value v, const ranks_mesh **found, fsdpck_error *err)
{
    uint64_t *known = value_map_put(&p->mesh_of, v, NULL, err);
    if (known == NULL)
        return FSDPCK_LIMIT;
    if (*known == 0) {
        ranks_mesh *rm = budget_alloc(p->archive.owner, sizeof *rm, err);
        ranks_mesh **slot = rm == NULL ? NULL : vec_push(&p->meshes, err);
        if (slot == NULL) {
            budget_free(p->archive.owner, rm, rm == NULL ? 0 : sizeof *rm);
            return FSDPCK_LIMIT;
        }
        *slot = rm;
        if (p->meshes.count > MESHES_PER_FILE)
            return FAIL(err, LIMIT, LIMIT_COUNT, "file has over %d meshes", MESHES_PER_FILE);
        RETURN_IF(mesh_parse_value(p, v, rm, err));
        known = value_map_put(&p->mesh_of, v, NULL, err);
        if (known == NULL)
            return FSDPCK_LIMIT;
        *known = p->meshes.count;
    }
    *found = *VEC_AT(&p->meshes, ranks_mesh *, *known - 1);
    return FSDPCK_OK;
}

/* --- placements --- */

static fsdpck_status read_placement(const value_pool *pool, value v, unsigned ndim, placement *pl,
                                    fsdpck_error *err)
{
    uint64_t dim, factor = 1;
    value item;
    char shown[160];

    const value_call *call = value_call_of(pool, v);
    const char *name = call == NULL ? "" : value_symbol_name(pool, call->callee);
    if (ranks_is_class(pool, v, "Replicate")) {
        pl->kind = PLACEMENT_REPLICATE;
        return FSDPCK_OK;
    }
    /* _Partial to 2.3, Partial, and those of masked and norm reductions. */
    if (call != NULL && text_ends_with(name, strlen(name), "Partial") &&
        ranks_is_class(pool, v, name)) {
        pl->kind = PLACEMENT_PARTIAL;
        return FSDPCK_OK;
    }
    const bool strided = ranks_is_class(pool, v, "_StridedShard");
    if (!strided && !ranks_is_class(pool, v, "Shard"))
        return FAIL(err, UNSUPPORTED, RANK_PLACEMENT, "unknown placement: '%s'",
                    escape_text(shown, sizeof shown, name, strlen(name)));
    if (!ranks_attribute(pool, v, "dim", &item) || !value_as_u64(pool, item, &dim) || dim >= ndim)
        return bad(err, "placement shards a dim that the tensor does not have");
    if (strided && (!ranks_attribute(pool, v, "split_factor", &item) ||
                    !value_as_u64(pool, item, &factor) || factor == 0 || factor > UINT32_MAX))
        return bad(err, "placement has an invalid split factor");
    pl->kind = strided && factor > 1 ? PLACEMENT_STRIDED_SHARD : PLACEMENT_SHARD;
    pl->dim = (uint8_t)dim;
    pl->split_factor = pl->kind == PLACEMENT_STRIDED_SHARD ? (uint32_t)factor : 0;
    return FSDPCK_OK;
}

static fsdpck_status read_placements(const value_pool *pool, value spec, ranks_declared *c,
                                     fsdpck_error *err)
{
    value list;
    if (!ranks_attribute(pool, spec, "placements", &list) || !ranks_is_sequence(list) ||
        value_count(pool, list) != c->mesh->m.ndim)
        return bad(err, "number of placements differs from the number of mesh dims");
    memset(c->placements, 0, sizeof c->placements);
    for (unsigned i = 0; i < c->mesh->m.ndim; i++)
        RETURN_IF(read_placement(pool, value_item(pool, list, i), c->ndim, &c->placements[i], err));
    return FSDPCK_OK;
}

static bool shards_dim(const placement *pl, uint64_t dim)
{
    return (pl->kind == PLACEMENT_SHARD || pl->kind == PLACEMENT_STRIDED_SHARD) && pl->dim == dim;
}

/* `shard_order`: per tensor dim, the mesh dims in sharding order; None and () mean the default.
 * Another order than left to right becomes split factors, as 2.10 also records it. */
static fsdpck_status read_order(const value_pool *pool, value spec, ranks_declared *c,
                                fsdpck_error *err)
{
    unsigned order[MESH_NDIM_MAX], count = 0;
    bool used[MESH_NDIM_MAX] = {false}, ascending = true;
    value entries;

    if (!ranks_attribute(pool, spec, "shard_order", &entries) || !ranks_is_sequence(entries))
        return FSDPCK_OK;
    for (size_t i = 0; i < value_count(pool, entries); i++) {
        const value_call *entry = value_call_of(pool, value_item(pool, entries, i));
        uint64_t dims[MESH_NDIM_MAX], tensor_dim;
        unsigned n;
        if (entry == NULL || value_count(pool, entry->args) != 2 ||
            !value_as_u64(pool, value_item(pool, entry->args, 0), &tensor_dim) ||
            !ranks_dims(pool, value_item(pool, entry->args, 1), dims, MESH_NDIM_MAX, &n))
            return bad(err, "shard order has an unknown form");
        for (unsigned k = 0; k < n; k++) {
            if (dims[k] >= c->mesh->m.ndim || used[dims[k]] ||
                !shards_dim(&c->placements[dims[k]], tensor_dim))
                return bad(err, "shard order does not match its placements");
            ascending = ascending && (k == 0 || dims[k] > dims[k - 1]);
            used[dims[k]] = true;
            order[count++] = (unsigned)dims[k];
        }
    }
    if (ascending)
        return FSDPCK_OK;
    for (unsigned i = 0; i < c->mesh->m.ndim; i++)
        if (!used[i])
            order[count++] = i;
    placement ordered[MESH_NDIM_MAX];
    memcpy(ordered, c->placements, sizeof ordered);
    placements_set_strided(&c->mesh->m, order, ordered);
    for (unsigned i = 0; i < c->mesh->m.ndim; i++)
        if (c->placements[i].kind == PLACEMENT_STRIDED_SHARD &&
            (ordered[i].kind != PLACEMENT_STRIDED_SHARD ||
             ordered[i].split_factor != c->placements[i].split_factor))
            return bad(err, "shard order does not match its split factors");
    memcpy(c->placements, ordered, sizeof ordered);
    c->has_order = true;
    return FSDPCK_OK;
}

/* --- the whole --- */

fsdpck_status ranks_dtensor_read(ranks_parse *p, value v, ranks_declared *c, fsdpck_error *err)
{
    const value_pool *pool = &p->scratch.pool;
    const value args = value_call_of(pool, v)->args;
    const value state = value_item(pool, args, 3);
    const char *module = value_symbol_module(pool, value_item(pool, args, 1));
    value spec, of, meta;

    c->kind = RANKS_DTENSOR;
    p->s->any_dtensor = true;
    c->of_old_module = strncmp(module, "torch.distributed._tensor", 25) == 0;
    if (!ranks_state_find(pool, state, "_local_tensor", &c->local) ||
        !ranks_state_find(pool, state, "_spec", &spec) ||
        !ranks_is_class(pool, spec, "DTensorSpec") || !ranks_attribute(pool, spec, "mesh", &of))
        return bad(err, "state has an unknown form");
    if (value_kind_of(c->local) != VALUE_TENSOR)
        return FAIL(err, UNSUPPORTED, PT_TENSOR_KIND,
                    "local tensor of a DTensor has an unsupported type");
    const torch_tensor *local =
        VEC_AT(&p->archive.tensors, const torch_tensor, value_tensor_index(c->local));
    c->python = local->python;
    c->requires_grad = local->requires_grad; /* of the Parameter that wraps it, if any */
    if (ranks_attribute(pool, spec, "tensor_meta", &meta) && !value_is_none(meta)) {
        uint64_t shape[NDIM_MAX];
        unsigned ndim;
        const value_call *call = value_call_of(pool, meta);
        if (call == NULL ||
            !ranks_dims(pool, value_item(pool, call->args, 0), shape, NDIM_MAX, &ndim) ||
            ndim != c->ndim || memcmp(shape, c->shape, ndim * sizeof *shape) != 0)
            return bad(err, "spec and tensor have different shapes");
    }
    RETURN_IF(mesh_of(p, of, &c->mesh, err));
    RETURN_IF(read_placements(pool, spec, c, err));
    return read_order(pool, spec, c, err);
}
