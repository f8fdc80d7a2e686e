#include <stdlib.h>

#include "exec/column_group.h"
#include "exec/exec_internal.h"
#include "exec/partition.h"
#include "group/assignment.h"
#include "group/hosts.h"

/* ---- by bytes, neighbors together ---- */

typedef struct split {
    const partition_group *group;
    uint64_t total, at, end; /* bytes; end: of what the rank gets */
    unsigned active_count,
        taker; /* number of ranks that get work, and the position of `rank` among them */
    unsigned rank;
} split;

static bool active(const partition_group *g, unsigned rank)
{
    return g->active == NULL || g->active[rank];
}

static void find_end(split *s)
{
    uint64_t begin;
    group_range_of(s->taker, s->active_count, s->total, &begin, &s->end);
}

/* False where no rank is active. */
static bool split_begin(split *s, const partition_group *g, uint64_t total)
{
    *s = (split){.group = g, .total = total};
    for (unsigned r = 0; r < g->size; r++)
        s->active_count += active(g, r);
    while (s->rank < g->size && !active(g, s->rank))
        s->rank++;
    if (s->active_count > 0)
        find_end(s);
    return s->active_count > 0;
}

/* The rank whose part of all bytes contains the begin of the next item. */
static unsigned split_next(split *s, uint64_t nbytes)
{
    while (s->at >= s->end && s->taker + 1 < s->active_count) {
        s->taker++;
        do
            s->rank++;
        while (!active(s->group, s->rank));
        find_end(s);
    }
    s->at += nbytes;
    return s->rank;
}

/* ---- items ---- */

/* Adds to `d` the ranks whose disks have the elements that a part reads. */
static void add_local_bytes(const struct exec *x, const range_part *part, const partition_group *g,
                            assignment *d)
{
    const catalogue *to = &x->r.target->cat;
    const dtype type = (dtype)catalogue_tensor(to, catalogue_chunk(to, part->chunk)->tensor)->dtype;
    segment_walk seg;
    segment_walk_begin(&seg, x->r.plan, part->chunk, part->first_elem, part->end_elem);
    while (segment_walk_next(&seg)) {
        const file_holders *h = &g->holders[x->chunk_extents[seg.src_chunk].file];
        for (uint32_t i = 0; i < h->count; i++)
            assignment_add_local(d, h->ranks[i], seg.nelems * dtype_get(type)->itemsize_bytes);
    }
}

/* Bytes of an item without what column groups have; `d` may be NULL. */
static uint64_t item_weight(const struct exec *x, uint64_t item, const partition_group *g,
                            assignment *d)
{
    output_range range;
    range_walk walk;
    range_part part;
    plan_get_item(x->r.plan, item, &range);
    uint64_t nbytes = range.end - range.begin;
    if (d == NULL && x->column_groups.count == 0)
        return nbytes;
    range_walk_begin(&walk, x->r.plan, &range);
    while (range_walk_next(&walk, &part)) {
        if (part.kind != RANGE_PART_CHUNK)
            continue;
        if (exec_chunk_is_grouped(x, part.chunk))
            nbytes -= part.end - part.begin;
        else if (d != NULL)
            add_local_bytes(x, &part, g, d);
    }
    return nbytes;
}

static bool item_is_own(const struct exec *x, uint64_t item)
{
    output_range range;
    plan_get_item(x->r.plan, item, &range);
    return exec_file_is_own(x, range.file);
}

static fsdpck_status assign_items(const struct exec *x, const partition_group *g, uint64_t total,
                                  uint64_t largest, partition_assign_fn give, void *ctx,
                                  fsdpck_error *err)
{
    const uint64_t items = plan_item_count(x->r.plan);
    assignment d;
    fsdpck_status st = assignment_init(&d, g->size, g->active, total, largest, err);
    for (uint64_t i = 0; st == FSDPCK_OK && i < items; i++) {
        if (!item_is_own(x, i))
            continue;
        const uint64_t nbytes = item_weight(x, i, g, &d);
        st = give(ctx, assignment_next(&d, nbytes), i, err);
    }
    assignment_release(&d);
    return st;
}

fsdpck_status partition_items(const struct exec *x, const partition_group *g,
                              partition_assign_fn give, void *ctx, fsdpck_error *err)
{
    const uint64_t items = plan_item_count(x->r.plan);
    uint64_t total = 0, largest = 0;
    split s;
    for (uint64_t i = 0; i < items; i++) {
        const uint64_t nbytes = item_is_own(x, i) ? item_weight(x, i, g, NULL) : 0;
        total += nbytes;
        largest = nbytes > largest ? nbytes : largest;
    }
    if (g->holders != NULL)
        return assign_items(x, g, total, largest, give, ctx, err);
    if (!split_begin(&s, g, total))
        return FSDPCK_OK;
    for (uint64_t i = 0; i < items; i++)
        if (item_is_own(x, i))
            RETURN_IF(give(ctx, split_next(&s, item_weight(x, i, g, NULL)), i, err));
    return FSDPCK_OK;
}

/* ---- row blocks ---- */

static uint64_t row_block_weight(const struct exec *x, uint64_t item)
{
    column_block b;
    column_group_get_block(x, item, &b);
    return column_block_nbytes(x, &b);
}

fsdpck_status partition_row_blocks(const struct exec *x, const partition_group *g,
                                   partition_assign_fn give, void *ctx, fsdpck_error *err)
{
    uint64_t total = 0;
    split s;
    for (uint64_t i = 0; i < x->column_group_items; i++)
        total += row_block_weight(x, i);
    if (!split_begin(&s, g, total))
        return FSDPCK_OK;
    for (uint64_t i = 0; i < x->column_group_items; i++)
        RETURN_IF(give(ctx, split_next(&s, row_block_weight(x, i)), i, err));
    return FSDPCK_OK;
}

/* ---- the actual group ---- */

static fsdpck_status set_owner(struct exec *x, unsigned rank, fsdpck_error *err)
{
    if (!x->engine->wants_owners || x->r.source_folder == NULL)
        return FSDPCK_OK;
    return vec_add(&x->owners, &(uint32_t){rank}, err);
}

static fsdpck_status take_item(void *ctx, unsigned rank, uint64_t item, fsdpck_error *err)
{
    struct exec *x = ctx;
    RETURN_IF(set_owner(x, rank, err));
    if (rank != group_rank(x->r.group))
        return FSDPCK_OK;
    return vec_add(&x->own_items, &(uint64_t){item}, err);
}

static fsdpck_status take_row_block(void *ctx, unsigned rank, uint64_t item, fsdpck_error *err)
{
    struct exec *x = ctx;
    (void)err;
    if (rank != group_rank(x->r.group))
        return FSDPCK_OK;
    if (x->own_row_block_count++ == 0)
        x->own_row_block = item;
    return FSDPCK_OK;
}

void partition_find_holders(const struct exec *x, file_holders *by_file)
{
    const catalogue *from = plan_source(x->r.plan);
    for (size_t i = 0; i < catalogue_file_count(from); i++)
        by_file[i].ranks = remote_folder_holders(
            x->r.source_folder, catalogue_name(from, catalogue_file(from, i)->path),
            &by_file[i].count);
}

static fsdpck_status assign_own_work(struct exec *x, const uint64_t *taking, fsdpck_error *err)
{
    const unsigned size = group_size(x->r.group);
    const size_t files = catalogue_file_count(plan_source(x->r.plan));
    uint8_t *flags = calloc(size, 1);
    file_holders *holders = x->r.source_folder == NULL ? NULL : calloc(files + 1, sizeof *holders);
    fsdpck_status st = FSDPCK_OK;
    if (flags == NULL || (x->r.source_folder != NULL && holders == NULL))
        GOTO_IF(error_set_nomem(err, size + files * sizeof *holders), out);
    for (unsigned r = 0; r < size; r++)
        flags[r] = taking[r] != 0 &&
                   (x->r.is_own_file == NULL || x->r.hosts->of_rank[r] == x->r.hosts->mine);
    if (holders != NULL)
        partition_find_holders(x, holders);
    const partition_group g = {size, flags, holders};
    x->shared = true;
    x->own_items.count = 0;
    x->owners.count = 0;
    x->own_row_block_count = 0;
    x->travelled_before = remote_folder_received_nbytes(x->r.source_folder);
    GOTO_IF(partition_items(x, &g, take_item, x, err), out);
    GOTO_IF(partition_row_blocks(x, &g, take_row_block, x, err), out);
out:
    free(flags);
    free(holders);
    return st;
}

fsdpck_status exec_assign_work(struct exec *x, bool takes_any, fsdpck_status st, fsdpck_error *err)
{
    group *g = x->r.group;
    if (g == NULL)
        return st;
    uint64_t *all = calloc(group_size(g), sizeof *all);
    const uint64_t own = takes_any;
    if (st == FSDPCK_OK && all == NULL)
        st = error_set_nomem(err, group_size(g) * sizeof *all);
    st = group_gather(g, st, GROUP_STOPS, &own, sizeof own, all, err);
    if (st == FSDPCK_OK)
        st = group_agree(g, assign_own_work(x, all, err), err);
    free(all);
    return st;
}
