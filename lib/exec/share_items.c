/* Which items of a plan are this rank's. */
#include <stdlib.h>

#include "exec/deal.h"
#include "exec/exec_state.h"
#include "exec/hosts.h"

static const char *path_of(const struct exec *x, uint32_t index)
{
    const catalogue *from = plan_from(x->r.plan);
    return catalogue_name(from, catalogue_file(from, index)->path);
}

bool exec_file_is_own(const struct exec *x, uint32_t file_index)
{
    return x->r.own_files == NULL || x->r.own_files[file_index] != 0;
}

bool exec_leads(const struct exec *x)
{
    const unsigned rank = group_rank(x->r.group);
    return x->r.own_files == NULL ? rank == 0 : hosts_leads(x->r.hosts, rank);
}

/* What an item reads, by whose disks it is on; returns its bytes. Bundles are shared apart. */
static uint64_t weigh(const struct exec *x, uint64_t item, deal *d)
{
    const catalogue *to = &x->r.target->cat;
    uint64_t nbytes = 0;
    output_range range;
    range_walk walk;
    range_part part;
    segment_walk seg;
    plan_get_item(x->r.plan, item, &range);
    range_walk_begin(&walk, x->r.plan, &range);
    while (range_walk_next(&walk, &part)) {
        if (part.kind == PART_CHUNK && exec_chunk_is_bundled(x, part.chunk))
            continue;
        nbytes += part.end - part.begin;
        if (part.kind != PART_CHUNK || d == NULL)
            continue;
        const dtype type =
            (dtype)catalogue_tensor(to, catalogue_chunk(to, part.chunk)->tensor)->dtype;
        segment_walk_begin(&seg, x->r.plan, part.chunk, part.first_elem, part.end_elem);
        while (segment_walk_next(&seg))
            deal_near_file(d, x->r.near, path_of(x, x->spots[seg.src_chunk].file),
                           seg.nelems * dtype_get(type)->itemsize_bytes);
    }
    return nbytes;
}

static bool item_is_own(const struct exec *x, uint64_t item)
{
    output_range range;
    plan_get_item(x->r.plan, item, &range);
    return exec_file_is_own(x, range.file);
}

static fsdpck_status deal_items(struct exec *x, const uint8_t *takes, fsdpck_error *err)
{
    const uint64_t items = plan_item_count(x->r.plan);
    uint64_t total = 0, largest = 0;
    deal d;
    for (uint64_t i = 0; i < items; i++) {
        if (!item_is_own(x, i))
            continue;
        const uint64_t nbytes = weigh(x, i, NULL);
        total += nbytes;
        largest = nbytes > largest ? nbytes : largest;
    }
    fsdpck_status st = deal_init(&d, group_size(x->r.group), takes, total, largest, err);
    for (uint64_t i = 0; st == FSDPCK_OK && i < items; i++) {
        if (!item_is_own(x, i))
            continue;
        const uint64_t nbytes = weigh(x, i, &d);
        const unsigned owner = deal_next(&d, nbytes);
        uint32_t *noted = x->r.gpu != NULL ? vec_push(&x->owners, err) : NULL;
        if (noted != NULL)
            *noted = owner;
        else if (x->r.gpu != NULL)
            st = FSDPCK_LIMIT;
        if (owner != group_rank(x->r.group))
            continue;
        uint64_t *own = vec_push(&x->own_items, err);
        if (own == NULL)
            st = FSDPCK_LIMIT;
        else
            *own = i;
    }
    deal_release(&d);
    return st;
}

static fsdpck_status share_work(struct exec *x, const uint64_t *takes, fsdpck_error *err)
{
    group *g = x->r.group;
    unsigned before = 0;
    uint8_t *flags = calloc(group_size(g), 1);
    if (flags == NULL)
        return error_set_nomem(err, group_size(g));
    x->shares = 0;
    x->travelled_before = group_view_travelled(x->r.near);
    for (unsigned r = 0; r < group_size(g); r++) {
        flags[r] =
            takes[r] != 0 && (x->r.own_files == NULL || x->r.hosts->of_rank[r] == x->r.hosts->mine);
        before += r < group_rank(g) && flags[r];
        x->shares += flags[r];
    }
    x->share = flags[group_rank(g)] ? before : x->shares;
    x->dealt = x->r.near != NULL || x->r.own_files != NULL;
    x->own_items.count = 0;
    x->owners.count = 0;
    const fsdpck_status st = x->dealt ? deal_items(x, flags, err) : FSDPCK_OK;
    free(flags);
    return st;
}

fsdpck_status exec_share_work(struct exec *x, bool takes, fsdpck_error *err)
{
    group *g = x->r.group;
    if (g == NULL)
        return FSDPCK_OK;
    uint64_t *all = calloc(group_size(g), sizeof *all);
    const fsdpck_status made =
        all != NULL ? FSDPCK_OK : error_set_nomem(err, group_size(g) * sizeof *all);
    fsdpck_status st = group_agree(g, made, err);
    if (st == FSDPCK_OK) {
        all[group_rank(g)] = takes;
        st = group_sum(g, all, group_size(g), err);
    }
    if (st == FSDPCK_OK)
        st = group_agree(g, share_work(x, all, err), err);
    free(all);
    return st;
}
