#include "formats/common/rank_assign.h"

#include <string.h>

#include "base/checked.h"
#include "layout/mesh_text.h"
#include "layout/shard_box.h"

/* --- sorting --- */

void rank_order_release(rank_order *o)
{
    budget_free(o->owner, o->items, o->count * sizeof(uint32_t));
    budget_free(o->owner, o->first, (o->nkeys + 1) * sizeof(uint64_t));
    *o = (rank_order){0};
}

fsdpck_status rank_order_by(const target *t, uint64_t count, rank_key_fn key, uint64_t nkeys,
                            rank_order *order, fsdpck_error *err)
{
    *order = (rank_order){.owner = t->cat.owner, .count = count, .nkeys = nkeys};
    order->items = budget_alloc(order->owner, count * sizeof(uint32_t), err);
    if (order->items == NULL)
        return FSDPCK_LIMIT;
    order->first = budget_alloc(order->owner, (nkeys + 1) * sizeof(uint64_t), err);
    if (order->first == NULL) {
        budget_free(order->owner, order->items, count * sizeof(uint32_t));
        return FSDPCK_LIMIT;
    }
    uint64_t *first = order->first;
    for (uint64_t i = 0; i < count; i++) {
        const uint32_t k = key(t, i);
        if (k != CAT_NONE)
            first[k + 1]++;
    }
    for (uint64_t k = 0; k < nkeys; k++)
        first[k + 1] += first[k];
    for (uint64_t i = 0; i < count; i++) {
        const uint32_t k = key(t, i);
        if (k != CAT_NONE)
            order->items[first[k]++] = (uint32_t)i;
    }
    /* Each first[k] has become its end. */
    memmove(first + 1, first, nkeys * sizeof *first);
    first[0] = 0;
    return FSDPCK_OK;
}

/* --- the rank with the fewest bytes --- */

/* A tournament over the ranks: winners[1] is the lowest rank with the fewest bytes, winners[i] the
 * winner of the leaves below it. */
typedef struct loads {
    budget *owner;
    uint64_t *nbytes;
    uint32_t *winners;
    uint64_t nranks;
    uint64_t nleaves; /* a power of two */
} loads;

static uint32_t winner_of(const loads *l, uint32_t a, uint32_t b)
{
    if (a == CAT_NONE || b == CAT_NONE)
        return a == CAT_NONE ? b : a;
    return l->nbytes[b] < l->nbytes[a] ? b : a;
}

static void loads_add(loads *l, uint32_t rank, uint64_t nbytes)
{
    if (!checked_add(l->nbytes[rank], nbytes, &l->nbytes[rank]))
        l->nbytes[rank] = UINT64_MAX;
    for (uint64_t i = (l->nleaves + rank) / 2; i > 0; i /= 2)
        l->winners[i] = winner_of(l, l->winners[2 * i], l->winners[2 * i + 1]);
}

static void loads_release(loads *l)
{
    budget_free(l->owner, l->nbytes, l->nranks * sizeof(uint64_t));
    budget_free(l->owner, l->winners, 2 * l->nleaves * sizeof(uint32_t));
}

static fsdpck_status loads_init(loads *l, budget *owner, uint64_t nranks, fsdpck_error *err)
{
    *l = (loads){.owner = owner, .nranks = nranks, .nleaves = 1};
    while (l->nleaves < nranks)
        l->nleaves *= 2;
    l->nbytes = budget_alloc(owner, nranks * sizeof(uint64_t), err);
    if (l->nbytes == NULL)
        return FSDPCK_LIMIT;
    l->winners = budget_alloc(owner, 2 * l->nleaves * sizeof(uint32_t), err);
    if (l->winners == NULL) {
        budget_free(owner, l->nbytes, nranks * sizeof(uint64_t));
        return FSDPCK_LIMIT;
    }
    for (uint64_t i = 0; i < l->nleaves; i++)
        l->winners[l->nleaves + i] = i < nranks ? (uint32_t)i : CAT_NONE;
    for (uint64_t i = l->nleaves - 1; i > 0; i--)
        l->winners[i] = winner_of(l, l->winners[2 * i], l->winners[2 * i + 1]);
    return FSDPCK_OK;
}

static uint32_t loads_least(const loads *l)
{
    return l->winners[1];
}

/* --- assignment --- */

static bool lies_in_object(const target *t, uint64_t chunk)
{
    const cat_chunk *c = catalogue_chunk(&t->cat, chunk);
    return (catalogue_tensor(&t->cat, c->tensor)->flags & CAT_TENSOR_IN_OBJECT) != 0;
}

static uint32_t lowest_rank(const target *t, uint64_t chunk)
{
    const uint16_t rank = catalogue_chunk(&t->cat, chunk)->rank;
    if (lies_in_object(t, chunk))
        return CAT_NONE;
    return rank == UINT16_MAX ? 0 : rank;
}

static fsdpck_status check_ranks(const target *t, fsdpck_error *err)
{
    const uint64_t count = catalogue_chunk_count(&t->cat);
    bool good = t->world_size > 0 && t->world_size <= MESH_RANKS_MAX && count <= UINT32_MAX;

    for (uint64_t i = 0; i < count && good; i++) {
        const uint16_t rank = catalogue_chunk(&t->cat, i)->rank;
        good = rank == UINT16_MAX || rank < t->world_size;
    }
    return good ? FSDPCK_OK
                : FAIL(err, INTERNAL, NONE, "chunk of the target has a rank that does not exist");
}

/* The least loaded of the ranks that hold the same box. */
static fsdpck_status rank_of_replica(const target *t, const loads *l, const cat_chunk *c,
                                     uint32_t *rank, fsdpck_error *err)
{
    const cat_spec *spec = catalogue_spec(&t->cat, c->tensor);
    const mesh *m = spec == NULL ? NULL : catalogue_mesh(&t->cat, spec->mesh);
    uint64_t coord[MESH_NDIM_MAX] = {0}, holder;
    shard_holders holders;

    if (spec == NULL || piece_count(m, spec->placements) == 1) {
        *rank = loads_least(l);
        return FSDPCK_OK;
    }
    *rank = CAT_NONE;
    mesh_coord(m, c->rank == UINT16_MAX ? 0 : c->rank, coord);
    shard_holders_begin(&holders, m, spec->placements, coord);
    while (shard_holders_next(&holders, &holder)) {
        if (holder >= t->world_size)
            return FAIL(err, INTERNAL, NONE, "mesh of the target has more ranks than the target");
        *rank = winner_of(l, *rank, (uint32_t)holder);
    }
    return *rank != CAT_NONE ? FSDPCK_OK
                             : FAIL(err, INTERNAL, NONE, "chunk is not assigned to any rank");
}

static fsdpck_status deal_chunks_of(target *t, loads *l, const rank_order *order, uint32_t rank,
                                    fsdpck_error *err)
{
    for (uint64_t i = order->first[rank]; i < order->first[rank + 1]; i++) {
        cat_chunk *c = catalogue_chunk(&t->cat, order->items[i]);
        RETURN_IF(rank_of_replica(t, l, c, &c->file, err));
        loads_add(l, c->file, catalogue_tensor_nbytes(&t->cat, c->tensor));
    }
    return FSDPCK_OK;
}

static void deal_objects(target *t, loads *l)
{
    for (size_t i = 0; i < catalogue_object_count(&t->cat); i++) {
        cat_object *o = catalogue_object(&t->cat, i);
        o->file = loads_least(l);
        loads_add(l, o->file, 1);
    }
}

/* A chunk contains the lowest of the ranks that hold it. */
static void give_to_lowest(target *t)
{
    for (uint64_t i = 0; i < catalogue_chunk_count(&t->cat); i++)
        if (!lies_in_object(t, i))
            catalogue_chunk(&t->cat, i)->file = lowest_rank(t, i);
    for (size_t i = 0; i < catalogue_object_count(&t->cat); i++)
        catalogue_object(&t->cat, i)->file = 0;
}

fsdpck_status rank_assign(target *t, bool lowest, fsdpck_error *err)
{
    rank_order order;
    loads l;
    fsdpck_status st;

    RETURN_IF(check_ranks(t, err));
    if (lowest) {
        give_to_lowest(t);
        return FSDPCK_OK;
    }
    RETURN_IF(
        rank_order_by(t, catalogue_chunk_count(&t->cat), lowest_rank, t->world_size, &order, err));
    GOTO_IF(loads_init(&l, t->cat.owner, t->world_size, err), order);
    for (uint32_t rank = 0; rank < t->world_size; rank++) {
        GOTO_IF(deal_chunks_of(t, &l, &order, rank, err), loads);
        /* All ranks hold the objects; rank 0 lists them first, after its tensors. */
        if (rank == 0)
            deal_objects(t, &l);
    }
loads:
    loads_release(&l);
order:
    rank_order_release(&order);
    return st;
}
