/* Finds the number of ranks that a checkpoint's flat parameters are sharded over, whatever its
 * description states. */

#include "statedict/unflatten_internal.h"

/* Numbers of ranks to try. */
#define CANDIDATES_MAX 32u

typedef struct candidates {
    uint32_t worlds[CANDIDATES_MAX];
    size_t count;
} candidates;

static void add(candidates *c, uint64_t world)
{
    for (size_t i = 0; i < c->count; i++)
        if (c->worlds[i] == world)
            return;
    if (world > 0 && world <= MESH_RANKS_MAX && c->count < CANDIDATES_MAX)
        c->worlds[c->count++] = (uint32_t)world;
}

/* The likeliest first: all existing ranks, if the description has one group of all or the ranks
 * form one; else the same number of groups. */
static void find_candidates(const catalogue *base, uint32_t most, uint32_t described, candidates *c)
{
    const uint64_t ranks = base->origin.world_size > 0 ? (uint64_t)base->origin.world_size : 0;
    const bool hybrid = described > most && most > 1;
    if (!hybrid || ranks == 1)
        add(c, ranks);
    add(c, most);
    if (hybrid && ranks % (described / most) == 0)
        add(c, ranks / (described / most));
    add(c, ranks);
    for (uint64_t n = 2; n <= ranks / 2 && c->count < CANDIDATES_MAX; n++)
        if (ranks % n == 0)
            add(c, ranks / n);
}

/* A ShardedTensor's chunks, or one rank's bare tensor. */
static bool is_cut_so(const catalogue *base, uint32_t tensor, const flat_name *n, const unit *u)
{
    const cat_tensor *t = catalogue_tensor(base, tensor);
    const uint64_t nelems = catalogue_tensor_nelems(base, tensor);
    if (t->ndim != 1)
        return true; /* wrong for another reason */
    if (n->rank != CAT_NONE || (t->nchunks == 1 && nelems != u->total)) {
        const uint32_t rank =
            n->rank != CAT_NONE ? n->rank : catalogue_chunk(base, t->first_chunk)->rank;
        const unit_shard s = unit_shard_of(u, rank % u->world_size);
        return nelems == u->shard_size || nelems == s.end - s.begin;
    }
    if (nelems != u->total)
        return false;
    for (uint64_t k = t->first_chunk; k < t->first_chunk + t->nchunks; k++) {
        uint64_t offset, size;
        catalogue_chunk_box(base, k, &offset, &size);
        if (size == 0 || u->shard_size == 0)
            continue;
        const uint64_t left = u->total - offset;
        if (offset % u->shard_size != 0 || size != (left < u->shard_size ? left : u->shard_size))
            return false;
    }
    return true;
}

static fsdpck_status fits(const catalogue *base, const unit_list *l, bool *fit, fsdpck_error *err)
{
    flat_adapter v = {.units = l};
    text_buf outer = {0};
    fsdpck_status st = FSDPCK_OK;
    *fit = true;
    for (uint32_t i = 0; *fit && st == FSDPCK_OK && i < catalogue_tensor_count(base); i++) {
        const unit *u = NULL;
        bool is_flat = false;
        flat_name n;
        if (catalogue_tensor(base, i)->flags & (CAT_TENSOR_IN_OBJECT | CAT_TENSOR_STORAGE))
            continue;
        flat_name_read(base, i, &n);
        st = flat_name_unit(&v, &n, &u, &is_flat, &outer, err);
        if (st == FSDPCK_OK && is_flat && u != NULL)
            *fit = is_cut_so(base, i, &n, u);
    }
    text_release(&outer);
    return st;
}

bool flat_has_pieces(const catalogue *base)
{
    if (flat_params_count(base, NULL) > 0)
        return true;
    for (size_t i = 0; i < catalogue_tensor_count(base); i++) {
        const cat_tensor *t = catalogue_tensor(base, i);
        size_t depth;
        uint32_t number;
        if ((t->flags & CAT_TENSOR_OF_RANK) &&
            flat_path_numbered(&base->pool, t->path, false, &depth, &number))
            return true;
    }
    return false;
}

bool flat_numbers_are_whole(const catalogue *base, bool by_text)
{
    if (flat_has_pieces(base))
        return false;
    for (size_t i = 0; i < catalogue_tensor_count(base); i++) {
        const cat_tensor *t = catalogue_tensor(base, i);
        size_t depth;
        uint32_t number;
        if (t->ndim > 1 && !(t->flags & CAT_TENSOR_IN_OBJECT) &&
            flat_path_numbered(&base->pool, t->path, by_text, &depth, &number))
            return true;
    }
    return false;
}

fsdpck_status flat_adapter_rescale(const catalogue *base, uint32_t described, unit_list *units,
                                   fsdpck_error *err)
{
    candidates c = {0};
    const uint32_t most = unit_list_largest_group(units);
    bool fit = false;

    if (!flat_has_pieces(base))
        return FSDPCK_OK;
    find_candidates(base, most, described, &c);
    /* No number was stated and none fits: assume one group of all. */
    if (described == 0 && c.count > 0 && c.count < CANDIDATES_MAX)
        c.worlds[c.count++] = c.worlds[0];
    for (size_t i = 0; !fit && i < c.count; i++) {
        unit_list other;
        unit_list_init(&other, units->owner);
        fsdpck_status st = unit_list_scale(units, c.worlds[i], &other, err);
        if (st == FSDPCK_OK)
            st = fits(base, &other, &fit, err);
        fit = fit || (described == 0 && i > 0 && i + 1 == c.count);
        if (st == FSDPCK_OK && fit && c.worlds[i] != most) {
            unit_list_release(units);
            *units = other;
            continue;
        }
        unit_list_release(&other);
        RETURN_IF(st);
    }
    return FSDPCK_OK;
}
