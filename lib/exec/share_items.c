#include <stdlib.h>

#include "exec/bundle.h"
#include "exec/exec_state.h"
#include "exec/share.h"
#include "group/deal.h"
#include "group/hosts.h"

/* ---- outputs of each host ---- */

bool exec_file_is_own(const struct exec *x, uint32_t file_index)
{
    return x->r.own_files == NULL || x->r.own_files[file_index] != 0;
}

bool exec_leads(const struct exec *x)
{
    const unsigned rank = group_rank(x->r.group);
    return x->r.own_files == NULL ? rank == 0 : hosts_leads(x->r.hosts, rank);
}

/* ---- by bytes, neighbours together ---- */

typedef struct split {
    const share_group *group;
    uint64_t total, at, end; /* bytes; end: of what the rank gets */
    unsigned takers, taker;  /* those that are given work, and the place of `rank` among them */
    unsigned rank;
} split;

static bool takes(const share_group *g, unsigned rank)
{
    return g->takes == NULL || g->takes[rank];
}

static void find_end(split *s)
{
    uint64_t begin;
    group_share(s->taker, s->takers, s->total, &begin, &s->end);
}

/* False where nobody takes anything. */
static bool split_begin(split *s, const share_group *g, uint64_t total)
{
    *s = (split){.group = g, .total = total};
    for (unsigned r = 0; r < g->size; r++)
        s->takers += takes(g, r);
    while (s->rank < g->size && !takes(g, s->rank))
        s->rank++;
    if (s->takers > 0)
        find_end(s);
    return s->takers > 0;
}

/* The rank in whose part of all bytes the next so many begin. */
static unsigned split_next(split *s, uint64_t nbytes)
{
    while (s->at >= s->end && s->taker + 1 < s->takers) {
        s->taker++;
        do
            s->rank++;
        while (!takes(s->group, s->rank));
        find_end(s);
    }
    s->at += nbytes;
    return s->rank;
}

/* ---- items ---- */

/* Tells `d` on whose disks the elements are that a part reads. */
static void tell_near(const struct exec *x, const range_part *part, const share_group *g, deal *d)
{
    const catalogue *to = &x->r.target->cat;
    const dtype type = (dtype)catalogue_tensor(to, catalogue_chunk(to, part->chunk)->tensor)->dtype;
    segment_walk seg;
    segment_walk_begin(&seg, x->r.plan, part->chunk, part->first_elem, part->end_elem);
    while (segment_walk_next(&seg)) {
        const share_holders *h = &g->holders[x->spots[seg.src_chunk].file];
        for (uint32_t i = 0; i < h->count; i++)
            deal_near(d, h->ranks[i], seg.nelems * dtype_get(type)->itemsize_bytes);
    }
}

/* Bytes of an item without what bundles have; `d` may be NULL. */
static uint64_t weigh(const struct exec *x, uint64_t item, const share_group *g, deal *d)
{
    output_range range;
    range_walk walk;
    range_part part;
    plan_get_item(x->r.plan, item, &range);
    uint64_t nbytes = range.end - range.begin;
    if (d == NULL && x->bundles.count == 0)
        return nbytes;
    range_walk_begin(&walk, x->r.plan, &range);
    while (range_walk_next(&walk, &part)) {
        if (part.kind != PART_CHUNK)
            continue;
        if (exec_chunk_is_bundled(x, part.chunk))
            nbytes -= part.end - part.begin;
        else if (d != NULL)
            tell_near(x, &part, g, d);
    }
    return nbytes;
}

static bool item_is_own(const struct exec *x, uint64_t item)
{
    output_range range;
    plan_get_item(x->r.plan, item, &range);
    return exec_file_is_own(x, range.file);
}

static fsdpck_status deal_items(const struct exec *x, const share_group *g, uint64_t total,
                                uint64_t largest, share_give_fn give, void *ctx, fsdpck_error *err)
{
    const uint64_t items = plan_item_count(x->r.plan);
    deal d;
    fsdpck_status st = deal_init(&d, g->size, g->takes, total, largest, err);
    for (uint64_t i = 0; st == FSDPCK_OK && i < items; i++) {
        if (!item_is_own(x, i))
            continue;
        const uint64_t nbytes = weigh(x, i, g, &d);
        st = give(ctx, deal_next(&d, nbytes), i, err);
    }
    deal_release(&d);
    return st;
}

fsdpck_status share_items(const struct exec *x, const share_group *g, share_give_fn give, void *ctx,
                          fsdpck_error *err)
{
    const uint64_t items = plan_item_count(x->r.plan);
    uint64_t total = 0, largest = 0;
    split s;
    for (uint64_t i = 0; i < items; i++) {
        const uint64_t nbytes = item_is_own(x, i) ? weigh(x, i, g, NULL) : 0;
        total += nbytes;
        largest = nbytes > largest ? nbytes : largest;
    }
    if (g->holders != NULL)
        return deal_items(x, g, total, largest, give, ctx, err);
    if (!split_begin(&s, g, total))
        return FSDPCK_OK;
    for (uint64_t i = 0; i < items; i++)
        if (item_is_own(x, i))
            RETURN_IF(give(ctx, split_next(&s, weigh(x, i, g, NULL)), i, err));
    return FSDPCK_OK;
}

/* ---- bands ---- */

static uint64_t weigh_band(const struct exec *x, uint64_t item)
{
    bundle_band b;
    bundle_get_band(x, item, &b);
    return bundle_band_nbytes(x, &b);
}

fsdpck_status share_bands(const struct exec *x, const share_group *g, share_give_fn give, void *ctx,
                          fsdpck_error *err)
{
    uint64_t total = 0;
    split s;
    for (uint64_t i = 0; i < x->bundle_items; i++)
        total += weigh_band(x, i);
    if (!split_begin(&s, g, total))
        return FSDPCK_OK;
    for (uint64_t i = 0; i < x->bundle_items; i++)
        RETURN_IF(give(ctx, split_next(&s, weigh_band(x, i)), i, err));
    return FSDPCK_OK;
}

/* ---- the group that there is ---- */

static fsdpck_status note_owner(struct exec *x, unsigned rank, fsdpck_error *err)
{
    if (!x->engine->wants_owners || x->r.near == NULL)
        return FSDPCK_OK;
    uint32_t *noted = vec_push(&x->owners, err);
    if (noted == NULL)
        return FSDPCK_LIMIT;
    *noted = rank;
    return FSDPCK_OK;
}

static fsdpck_status take_item(void *ctx, unsigned rank, uint64_t item, fsdpck_error *err)
{
    struct exec *x = ctx;
    RETURN_IF(note_owner(x, rank, err));
    if (rank != group_rank(x->r.group))
        return FSDPCK_OK;
    uint64_t *own = vec_push(&x->own_items, err);
    if (own == NULL)
        return FSDPCK_LIMIT;
    *own = item;
    return FSDPCK_OK;
}

static fsdpck_status take_band(void *ctx, unsigned rank, uint64_t item, fsdpck_error *err)
{
    struct exec *x = ctx;
    (void)err;
    if (rank != group_rank(x->r.group))
        return FSDPCK_OK;
    if (x->own_band_count++ == 0)
        x->own_band = item;
    return FSDPCK_OK;
}

void share_find_holders(const struct exec *x, share_holders *by_file)
{
    const catalogue *from = plan_from(x->r.plan);
    for (size_t i = 0; i < catalogue_file_count(from); i++)
        by_file[i].ranks = group_view_holders(
            x->r.near, catalogue_name(from, catalogue_file(from, i)->path), &by_file[i].count);
}

static fsdpck_status share_work(struct exec *x, const uint64_t *taking, fsdpck_error *err)
{
    const unsigned size = group_size(x->r.group);
    const size_t files = catalogue_file_count(plan_from(x->r.plan));
    uint8_t *flags = calloc(size, 1);
    share_holders *holders = x->r.near == NULL ? NULL : calloc(files + 1, sizeof *holders);
    fsdpck_status st = FSDPCK_OK;
    if (flags == NULL || (x->r.near != NULL && holders == NULL))
        GOTO_IF(error_set_nomem(err, size + files * sizeof *holders), out);
    for (unsigned r = 0; r < size; r++)
        flags[r] = taking[r] != 0 &&
                   (x->r.own_files == NULL || x->r.hosts->of_rank[r] == x->r.hosts->mine);
    if (holders != NULL)
        share_find_holders(x, holders);
    const share_group g = {size, flags, holders};
    x->shared = true;
    x->own_items.count = 0;
    x->owners.count = 0;
    x->own_band_count = 0;
    x->travelled_before = group_view_travelled(x->r.near);
    GOTO_IF(share_items(x, &g, take_item, x, err), out);
    GOTO_IF(share_bands(x, &g, take_band, x, err), out);
out:
    free(flags);
    free(holders);
    return st;
}

fsdpck_status exec_share_work(struct exec *x, bool takes_any, fsdpck_error *err)
{
    group *g = x->r.group;
    if (g == NULL)
        return FSDPCK_OK;
    uint64_t *all = calloc(group_size(g), sizeof *all);
    const fsdpck_status made =
        all != NULL ? FSDPCK_OK : error_set_nomem(err, group_size(g) * sizeof *all);
    fsdpck_status st = group_agree(g, made, err);
    if (st == FSDPCK_OK) {
        all[group_rank(g)] = takes_any;
        st = group_sum(g, all, group_size(g), err);
    }
    if (st == FSDPCK_OK)
        st = group_agree(g, share_work(x, all, err), err);
    free(all);
    return st;
}
