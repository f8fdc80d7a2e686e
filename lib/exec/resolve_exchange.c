/* In a group each rank locates a part of the chunks and receives the rest. So each blob header is
 * read once for any number of ranks, and by a rank that has the file if files are on the ranks' own
 * disks. */
#include <stdio.h>
#include <string.h>

#include "exec/exec_internal.h"
#include "group/remote_folder.h"

/* Neighbouring chunks that one of several holders of a file locates. */
#define HOLDER_CHUNKS 256u

static unsigned owner_of(const struct exec *x, uint64_t chunk, uint64_t at, uint64_t count)
{
    const catalogue *from = plan_source(x->r.plan);
    const cat_file *f = catalogue_file(from, catalogue_chunk(from, chunk)->file);
    uint32_t holders;
    const uint32_t *ranks =
        remote_folder_holders(x->r.source_folder, catalogue_name(from, f->path), &holders);
    return holders > 0 ? ranks[at / HOLDER_CHUNKS % holders]
                       : (unsigned)(at * group_size(x->r.group) / count);
}

void resolve_partition(const struct exec *x, sort_pair *list, sort_pair *scratch, uint64_t count)
{
    if (x->r.group == NULL || x->r.source_folder == NULL)
        return;
    for (uint64_t i = 0; i < count; i++)
        list[i].key = owner_of(x, list[i].item, i, count);
    sort_pairs(list, scratch, count, NULL, NULL);
}

/* The first whose key is not below. */
static uint64_t first_of(const sort_pair *list, uint64_t count, uint64_t key)
{
    uint64_t begin = 0, end = count;
    while (begin < end) {
        const uint64_t middle = begin + (end - begin) / 2;
        if (list[middle].key < key)
            begin = middle + 1;
        else
            end = middle;
    }
    return begin;
}

void resolve_partition_of(const struct exec *x, const sort_pair *list, uint64_t count,
                          unsigned rank, uint64_t *begin, uint64_t *end)
{
    if (x->r.group == NULL || x->r.source_folder == NULL) {
        group_range_of(rank, group_size(x->r.group), count, begin, end);
        return;
    }
    *begin = first_of(list, count, rank);
    *end = first_of(list, count, (uint64_t)rank + 1);
}

/* ---- to the others ---- */

#define OTHERS_LOCATED "a rank resolved chunks that were not assigned to it"

typedef struct located {
    struct exec *x;
    const sort_pair *list;
    uint64_t count, taken;
} located;

static unsigned dims_of(const struct exec *x, uint64_t chunk)
{
    const catalogue *from = plan_source(x->r.plan);
    return catalogue_tensor(from, catalogue_chunk(from, chunk)->tensor)->ndim;
}

/* This rank's chunk extents, then the strides of those that are not rows. */
static fsdpck_status pack(const located *e, text_buf *bytes, fsdpck_error *err)
{
    const struct exec *x = e->x;
    uint64_t begin, end;
    resolve_partition_of(x, e->list, e->count, group_rank(x->r.group), &begin, &end);
    for (uint64_t i = begin; i < end; i++)
        text_append(bytes, (const char *)&x->chunk_extents[e->list[i].item], sizeof(chunk_extent));
    for (uint64_t i = begin; i < end; i++) {
        const chunk_extent *s = &x->chunk_extents[e->list[i].item];
        if (!(s->flags & EXTENT_ROWS))
            text_append(bytes, (const char *)VEC_AT(&x->strides, const uint64_t, s->strides_at),
                        dims_of(x, e->list[i].item) * sizeof(uint64_t));
    }
    return text_check(bytes, err);
}

static fsdpck_status receive_located(void *ctx, unsigned rank, const uint8_t *bytes,
                                     uint64_t nbytes, fsdpck_error *err)
{
    located *e = ctx;
    struct exec *x = e->x;
    uint64_t begin, end;
    resolve_partition_of(x, e->list, e->count, rank, &begin, &end);
    e->taken += end - begin;
    uint64_t at = (end - begin) * sizeof(chunk_extent);
    if (rank == group_rank(x->r.group))
        return FSDPCK_OK;
    for (uint64_t i = begin; i < end && at <= nbytes; i++) {
        const uint64_t chunk = e->list[i].item;
        chunk_extent *s = &x->chunk_extents[chunk];
        memcpy(s, bytes + (i - begin) * sizeof *s, sizeof *s);
        if (s->flags & EXTENT_ROWS)
            continue;
        const unsigned ndim = dims_of(x, chunk);
        uint64_t strides[NDIM_MAX];
        if (nbytes - at < ndim * sizeof *strides)
            return FAIL(err, INTERNAL, NONE, OTHERS_LOCATED);
        memcpy(strides, bytes + at, ndim * sizeof *strides);
        RETURN_IF(resolve_keep_strides(x, strides, ndim, &s->strides_at, err));
        at += ndim * sizeof *strides;
    }
    return at == nbytes ? FSDPCK_OK : FAIL(err, INTERNAL, NONE, OTHERS_LOCATED);
}

/* Storage errors depend on the rank; errors of a file do not. */
static void name_rank(const group *g, fsdpck_status st, fsdpck_error *err)
{
    if (err == NULL || err->rank >= 0 || (st != FSDPCK_IO && st != FSDPCK_CHANGED))
        return;
    const fsdpck_error plain = *err;
    err->rank = (int)group_rank(g);
    snprintf(err->message, sizeof err->message, "rank %u on %s: %.400s", group_rank(g),
             group_host(g, group_rank(g)), plain.message);
}

fsdpck_status resolve_exchange(group *g, fsdpck_status st, struct exec *x, const sort_pair *list,
                               uint64_t count, fsdpck_error *err)
{
    located e = {.x = x, .list = list, .count = count};
    text_buf bytes = {.limit_bytes = SIZE_MAX / 2};
    if (g == NULL)
        return st;
    if (st == FSDPCK_OK)
        st = pack(&e, &bytes, err);
    if (st != FSDPCK_OK)
        name_rank(g, st, err);
    /* It may be an ordinary result (verify): no rank is stopped. */
    st = group_all_gather_part(g, st, GROUP_UNNAMED, bytes.text, bytes.nbytes, receive_located, &e,
                               err);
    if (st == FSDPCK_OK && e.taken != count)
        st = FAIL(err, INTERNAL, NONE, OTHERS_LOCATED);
    text_release(&bytes);
    return st;
}
