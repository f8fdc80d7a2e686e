#include "run/rank_totals.h"

#include <string.h>

#include "layout/mesh_text.h"
#include "layout/shard_box.h"

/* Properties that make two tensors equivalent on every rank. */
typedef struct kind_key {
    uint32_t spec;
    uint32_t state_itemsize_nbytes;
    uint8_t dtype, ndim, part, trains;
    uint32_t unused;
    uint64_t state_more_nbytes;
    uint64_t shape[NDIM_MAX];
} kind_key;

typedef struct kind {
    uint64_t first; /* a target tensor of this kind */
    uint64_t count;
    bool is_model, trains;
    uint64_t state_itemsize_nbytes, state_more_nbytes; /* as in `optim_state_map` */
} kind;

static bool is_replicated(const target *to, uint64_t index)
{
    const cat_spec *spec = catalogue_spec(&to->cat, index);
    const unsigned ndim = spec == NULL ? 0 : catalogue_mesh(&to->cat, spec->mesh)->ndim;
    for (unsigned i = 0; i < ndim; i++)
        if (spec->placements[i].kind != PLACEMENT_REPLICATE)
            return false;
    return true;
}

/* Coordinates with FSDP dims at 0: the rank with the first, largest shard. */
static void first_along_fsdp(const mesh *m, uint64_t *coord)
{
    for (unsigned i = 0; i < m->ndim; i++) {
        const mesh_role role = mesh_role_of(m->names[i]);
        if (role != ROLE_TP && role != ROLE_EP && role != ROLE_REPLICATE)
            coord[i] = 0;
    }
}

static checkpoint_part part_of(const target *to, const checkpoint_parts *parts, uint64_t index)
{
    const uint32_t from = *VEC_AT(&to->from, uint32_t, index);
    return from < parts->tensor_count ? (checkpoint_part)parts->tensor_part[from] : PART_OTHER;
}

fsdpck_status rank_shard(const target *to, const checkpoint_parts *parts, uint64_t index,
                         uint64_t rank, fsdpck_layout_shard *out, fsdpck_error *err)
{
    const bool is_padded = part_of(to, parts, index) != PART_OPTIMIZER;
    const cat_tensor *t = catalogue_tensor(&to->cat, index);
    const uint64_t *shape = catalogue_shape(&to->cat, index);
    const cat_spec *spec = catalogue_spec(&to->cat, index);
    *out = (fsdpck_layout_shard){0};
    memcpy(out->sizes, shape, t->ndim * sizeof *shape);
    if (spec != NULL) {
        const mesh *m = catalogue_mesh(&to->cat, spec->mesh);
        uint64_t coord[MESH_NDIM_MAX], offsets[NDIM_MAX], sizes[NDIM_MAX];
        mesh_coord(m, rank, coord);
        RETURN_IF(shard_box(m, spec->placements, t->ndim, shape, coord, SHARD_PHYSICAL,
                            out->offsets, out->sizes, err));
        first_along_fsdp(m, coord);
        RETURN_IF(shard_box(m, spec->placements, t->ndim, shape, coord, SHARD_PHYSICAL, offsets,
                            sizes, err));
        const uint64_t full = box_nelems(sizes, t->ndim);
        const uint64_t own = box_nelems(out->sizes, t->ndim);
        out->padding_nelems = is_padded && full > own ? full - own : 0;
    }
    out->nbytes = box_nelems(out->sizes, t->ndim) * dtype_get((dtype)t->dtype)->itemsize_bytes;
    return FSDPCK_OK;
}

static kind_key key_of(const target *to, const checkpoint_parts *parts,
                       const optim_state_map *known, uint64_t i)
{
    const cat_tensor *t = catalogue_tensor(&to->cat, i);
    const uint32_t from = *VEC_AT(&to->from, uint32_t, i);
    const checkpoint_part part = part_of(to, parts, i);
    const bool is_model = part == PART_MODEL;
    const dtype_info *d = dtype_get((dtype)t->dtype);
    kind_key key = {.spec = t->spec, .dtype = t->dtype, .ndim = t->ndim, .part = (uint8_t)part};
    memcpy(key.shape, catalogue_shape(&to->cat, i), t->ndim * sizeof(uint64_t));
    key.trains = is_model && d->kind == DTYPE_IS_FLOAT;
    if (known->known) {
        key.trains = is_model && optim_state_map_has(known, from);
        key.state_itemsize_nbytes = key.trains ? known->itemsize_nbytes[from] : 0;
        key.state_more_nbytes = key.trains ? known->extra_nbytes[from] : 0;
    } else if (key.trains) {
        key.state_itemsize_nbytes = 2 * d->itemsize_bytes;
    }
    return key;
}

bool rank_totals_is_tied(const target *to, uint64_t index)
{
    const uint32_t first =
        index >= to->tied.count ? CAT_NONE : *VEC_AT(&to->tied, const uint32_t, index);
    return first != CAT_NONE &&
           catalogue_tensor(&to->cat, first)->spec == catalogue_tensor(&to->cat, index)->spec &&
           catalogue_tensor(&to->cat, first)->dtype == catalogue_tensor(&to->cat, index)->dtype;
}

static fsdpck_status find_kinds(rank_totals *s, const target *to, const checkpoint_parts *parts,
                                const optim_state_map *known, bool ties_once, vec *kinds,
                                fsdpck_error *err)
{
    strtab keys;
    strtab_init(&keys, to->cat.owner);
    fsdpck_status st = FSDPCK_OK;
    for (uint64_t i = 0; i < catalogue_tensor_count(&to->cat); i++) {
        const kind_key key = key_of(to, parts, known, i);
        uint32_t id;
        if (ties_once && rank_totals_is_tied(to, i)) {
            s->tied++;
            continue;
        }
        GOTO_IF(strtab_intern(&keys, (const char *)&key,
                              offsetof(kind_key, shape) + key.ndim * sizeof(uint64_t), &id, err),
                out);
        if (id == kinds->count) {
            kind *added = vec_push(kinds, err);
            st = added == NULL ? FSDPCK_LIMIT : FSDPCK_OK;
            if (st != FSDPCK_OK)
                goto out;
            *added = (kind){.first = i,
                            .is_model = key.part == PART_MODEL,
                            .trains = key.trains,
                            .state_itemsize_nbytes = key.state_itemsize_nbytes,
                            .state_more_nbytes = key.state_more_nbytes};
        }
        VEC_AT(kinds, kind, id)->count++;
    }
out:
    strtab_release(&keys);
    return st;
}

static fsdpck_status count_kind(rank_totals *s, const target *to, const checkpoint_parts *parts,
                                const kind *k, fsdpck_error *err)
{
    const cat_tensor *t = catalogue_tensor(&to->cat, k->first);
    const dtype_info *d = dtype_get((dtype)t->dtype);
    const bool has_elements = catalogue_tensor_nelems(&to->cat, k->first) > 0;
    for (uint64_t r = 0; r < s->world_size; r++) {
        fsdpck_layout_rank *sum = &s->ranks[r];
        fsdpck_layout_shard piece;
        RETURN_IF(rank_shard(to, parts, k->first, r, &piece, err));
        const uint64_t padding = piece.padding_nelems * d->itemsize_bytes;
        sum->tensors += k->count;
        sum->nbytes += k->count * piece.nbytes;
        sum->padding_nbytes += k->count * padding;
        if (has_elements && piece.nbytes == 0)
            sum->empty_tensors += k->count;
        if (k->is_model)
            sum->param_nbytes += k->count * (piece.nbytes + padding);
        if (k->trains) {
            const uint64_t nelems = piece.nbytes / d->itemsize_bytes;
            sum->grad_nbytes += k->count * (piece.nbytes + padding);
            sum->adam_nbytes +=
                k->count * (nelems * k->state_itemsize_nbytes + k->state_more_nbytes);
        }
    }
    return FSDPCK_OK;
}

/* Flat parameters: bytes at their shards. Padding that a state omits is not counted. */
static void count_flat(rank_totals *s, const target *to)
{
    for (uint64_t i = 0; i < catalogue_chunk_count(&to->cat); i++) {
        const cat_chunk *k = catalogue_chunk(&to->cat, i);
        const cat_tensor *t = catalogue_tensor(&to->cat, k->tensor);
        uint64_t sizes[NDIM_MAX];
        catalogue_chunk_box(&to->cat, i, NULL, sizes);
        s->ranks[k->rank].nbytes +=
            box_nelems(sizes, t->ndim) * dtype_get((dtype)t->dtype)->itemsize_bytes;
    }
    for (size_t i = 0; i < to->flat_params.count; i++)
        s->replicated += *VEC_AT(&to->flat_params, const uint32_t, i) == CAT_NONE &&
                         *VEC_AT(&to->flat_states, const uint32_t, i) == 0;
}

static void find_extremes(rank_totals *s)
{
    for (uint64_t r = 0; r < s->world_size; r++) {
        const fsdpck_layout_rank *sum = &s->ranks[r];
        if (sum->nbytes < s->ranks[s->rank_min].nbytes)
            s->rank_min = r;
        if (sum->nbytes > s->ranks[s->rank_max].nbytes)
            s->rank_max = r;
        s->nbytes_total += sum->nbytes;
        s->padding_nbytes += sum->padding_nbytes;
        s->empty_pieces += sum->empty_tensors;
    }
}

fsdpck_status rank_totals_make(rank_totals *s, const target *to, const checkpoint_parts *parts,
                               const optim_state_map *t, bool ties_once, fsdpck_error *err)
{
    *s = (rank_totals){.owner = to->cat.owner, .world_size = to->world_size};
    vec kinds = VEC_OF(kind, to->cat.owner);
    fsdpck_status st;
    s->ranks = budget_alloc(s->owner, s->world_size * sizeof *s->ranks, err);
    st = s->ranks == NULL ? FSDPCK_LIMIT : FSDPCK_OK;
    if (st == FSDPCK_OK && to->units != NULL)
        count_flat(s, to);
    else if (st == FSDPCK_OK)
        st = find_kinds(s, to, parts, t, ties_once, &kinds, err);
    for (size_t i = 0; st == FSDPCK_OK && i < kinds.count; i++) {
        const kind *k = VEC_AT(&kinds, const kind, i);
        st = count_kind(s, to, parts, k, err);
        s->replicated += is_replicated(to, k->first) ? k->count : 0;
    }
    vec_release(&kinds);
    if (st != FSDPCK_OK)
        rank_totals_release(s);
    else
        find_extremes(s);
    return st;
}

void rank_totals_release(rank_totals *s)
{
    if (s->ranks != NULL)
        budget_free(s->owner, s->ranks, s->world_size * sizeof *s->ranks);
    *s = (rank_totals){0};
}
