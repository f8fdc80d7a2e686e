/* Column groups: target chunks that need short runs of the same source rows (columns out of rows).
 * They are filled together, row block by row block, so that a row is read once, in large requests,
 * for any number of chunks. */
#include <string.h>

#include "exec/column_group.h"
#include "exec/exec_internal.h"

/* Runs of at least this length are read one by one to their destinations. */
#define SHORT_RUN_NBYTES GATHER_RUN_NBYTES
/* Gaps up to this size may be read twice. */
#define REREAD_NBYTES ((uint64_t)1 << 20)
/* Bounds of a member's part of the buffer: smaller writes are inefficient, larger parts gain
 * nothing. */
#define MEMBER_NBYTES_MIN  ((uint64_t)16 << 10)
#define MEMBER_NBYTES_GOAL ((uint64_t)512 << 10)
#define BUFFER_NBYTES_MIN  ((uint64_t)256 << 10)
#define BUFFER_NBYTES_MAX  ((uint64_t)64 << 20)
/* Rows copied at a time: they fit the L2 cache. */
#define ROWS_NBYTES ((uint64_t)512 << 10)
/* Each member brings at most three pieces a source chunk. */
#define MEMBERS_MAX (GATHER_READ_OPS / 4)

typedef struct column_group_work {
    struct exec *x;
    uint32_t tensor; /* of the target */
    unsigned ndim;
    unsigned cut; /* the dim that is cut; all before it are rows */
    sort_pair *sorted;
    uint64_t count;
} column_group_work;

/* The last dim in which chunks are smaller than the tensor; ndim where none is. */
static unsigned find_cut(const column_group_work *g)
{
    const catalogue *to = &g->x->r.target->cat;
    const uint64_t *shape = catalogue_shape(to, g->tensor);
    const cat_tensor *t = catalogue_tensor(to, g->tensor);
    uint64_t sizes[NDIM_MAX];
    unsigned cut = 0;
    bool found = false;
    for (uint64_t k = t->first_chunk; k < t->first_chunk + t->nchunks; k++) {
        if (catalogue_chunk(to, k)->place == LOCATION_EMPTY)
            continue;
        catalogue_chunk_box(to, k, NULL, sizes);
        for (unsigned d = cut; d < t->ndim; d++)
            if (sizes[d] != shape[d])
                cut = d, found = true;
    }
    return found ? cut : t->ndim;
}

/* Whether a part of a source chunk is stored in many short runs. */
static bool is_short(const struct exec *x, const box_query *q, unsigned ndim, uint64_t itemsize)
{
    uint64_t sizes[NDIM_MAX];
    uint64_t run = 1;
    if (!(x->chunk_extents[q->chunk].flags & EXTENT_ROWS))
        return false;
    catalogue_chunk_box(plan_source(x->r.plan), q->chunk, NULL, sizes);
    for (unsigned d = ndim; d-- > 0;) {
        run *= q->sizes[d];
        if (q->sizes[d] != sizes[d])
            break;
    }
    return run * itemsize < SHORT_RUN_NBYTES && run < box_nelems(q->sizes, ndim);
}

static bool any_short(const column_group_work *g)
{
    const struct exec *x = g->x;
    const catalogue *to = &x->r.target->cat;
    const cat_tensor *t = catalogue_tensor(to, g->tensor);
    const uint32_t origin = plan_source_tensor(x->r.plan, g->tensor);
    const dtype type = (dtype)catalogue_tensor(plan_source(x->r.plan), origin)->dtype;
    uint64_t offsets[NDIM_MAX];
    uint64_t sizes[NDIM_MAX];
    box_query q;
    for (uint64_t k = t->first_chunk; k < t->first_chunk + t->nchunks; k++) {
        if (catalogue_chunk(to, k)->place == LOCATION_EMPTY)
            continue;
        catalogue_chunk_box(to, k, offsets, sizes);
        plan_query_begin(x->r.plan, origin, &q, offsets, sizes);
        while (box_query_next(&q))
            if (is_short(x, &q, t->ndim, dtype_get(type)->itemsize_bytes))
                return true;
    }
    return false;
}

/* Box of the rows: chunks of a column group have it in common. */
static void rows_of(const column_group_work *g, uint64_t chunk, uint64_t *rows)
{
    uint64_t offsets[NDIM_MAX];
    uint64_t sizes[NDIM_MAX];
    catalogue_chunk_box(&g->x->r.target->cat, chunk, offsets, sizes);
    memcpy(rows, offsets, g->cut * sizeof *rows);
    memcpy(rows + g->cut, sizes, g->cut * sizeof *rows);
}

/* Chunks with bytes on this host, grouped by equal rows. Hash collisions may mix them, which only
 * makes more column groups. None if two chunks share a location. */
static void sort_members(column_group_work *g, sort_pair *scratch)
{
    const catalogue *to = &g->x->r.target->cat;
    const cat_tensor *t = catalogue_tensor(to, g->tensor);
    uint64_t rows[2 * NDIM_MAX];
    g->count = 0;
    for (uint64_t k = t->first_chunk; k < t->first_chunk + t->nchunks; k++) {
        uint64_t hash = 0;
        if (catalogue_chunk(to, k)->place == LOCATION_EMPTY ||
            !exec_file_is_own(g->x, catalogue_chunk(to, k)->file))
            continue;
        rows_of(g, k, rows);
        for (unsigned i = 0; i < 2 * g->cut; i++)
            hash = (hash ^ rows[i]) * 0x9E3779B97F4A7C15u, hash ^= hash >> 29;
        g->sorted[g->count++] = (sort_pair){hash, (uint32_t)k};
        if (plan_has_alias(g->x->r.plan, k)) {
            g->count = 0;
            return;
        }
    }
    sort_pairs(g->sorted, scratch, g->count, NULL, NULL);
}

static uint64_t run_nbytes(const column_group_work *g, uint64_t chunk)
{
    const catalogue *to = &g->x->r.target->cat;
    const dtype type = (dtype)catalogue_tensor(to, g->tensor)->dtype;
    uint64_t sizes[NDIM_MAX];
    catalogue_chunk_box(to, chunk, NULL, sizes);
    return box_nelems(sizes + g->cut, g->ndim - g->cut) * dtype_get(type)->itemsize_bytes;
}

static fsdpck_status add_column_group(const column_group_work *g, uint64_t begin, uint64_t end,
                                      fsdpck_error *err)
{
    struct exec *x = g->x;
    uint64_t rows[2 * NDIM_MAX];
    uint64_t widest = 0;
    for (uint64_t i = begin; i < end; i++) {
        const uint64_t run = run_nbytes(g, g->sorted[i].item);
        widest = run > widest ? run : widest;
    }
    /* Not even one row of one member fits: size_column_groups takes no more than BUFFER_NBYTES_MAX. */
    if (widest + 2 * COLUMN_GUARD_NBYTES > x->column_group_nbytes ||
        widest + 2 * COLUMN_GUARD_NBYTES > BUFFER_NBYTES_MAX)
        return FSDPCK_OK;
    column_group_info *column_group = vec_push(&x->column_groups, err);
    if (column_group == NULL)
        return FSDPCK_LIMIT;
    uint32_t *members = vec_push_n(&x->members, (size_t)(end - begin), err);
    if (members == NULL)
        return FSDPCK_LIMIT;
    for (uint64_t i = begin; i < end; i++) {
        members[i - begin] = g->sorted[i].item;
        x->grouped[g->sorted[i].item / 8] |= (uint8_t)(1u << g->sorted[i].item % 8);
    }
    rows_of(g, g->sorted[begin].item, rows);
    *column_group = (column_group_info){.tensor = g->tensor,
                                        .cut = (uint8_t)g->cut,
                                        .rows = box_nelems(rows + g->cut, g->cut),
                                        .widest_nbytes = widest,
                                        .members_at = x->members.count - (end - begin),
                                        .member_count = (uint32_t)(end - begin)};
    return FSDPCK_OK;
}

static fsdpck_status group_tensor(column_group_work *g, sort_pair *scratch, fsdpck_error *err)
{
    struct exec *x = g->x;
    const catalogue *to = &x->r.target->cat;
    const cat_tensor *t = catalogue_tensor(to, g->tensor);
    const uint32_t origin = plan_source_tensor(x->r.plan, g->tensor);
    if (t->nchunks < 2 || (x->tensor_flags[origin] & (TENSOR_STREAMED | TENSOR_COMPUTED)) ||
        catalogue_tensor_nbytes(to, g->tensor) * (t->nchunks - 1) < REREAD_NBYTES)
        return FSDPCK_OK;
    g->ndim = t->ndim;
    g->cut = find_cut(g);
    if (g->cut == 0 || g->cut == t->ndim || !any_short(g))
        return FSDPCK_OK;
    sort_members(g, scratch);
    uint64_t begin = 0;
    for (uint64_t i = 1; i <= g->count; i++) {
        uint64_t one[2 * NDIM_MAX];
        uint64_t two[2 * NDIM_MAX];
        rows_of(g, g->sorted[begin].item, one);
        if (i < g->count)
            rows_of(g, g->sorted[i].item, two);
        if (i < g->count && memcmp(one, two, 2 * g->cut * sizeof *one) == 0)
            continue;
        if (i - begin > 1)
            RETURN_IF(add_column_group(g, begin, i, err));
        begin = i;
    }
    return FSDPCK_OK;
}

/* The widest member decides how many fit at a time. If fewer than two fit, a column group has one
 * pass per member, as without grouping. */
static uint64_t count_passes(const column_group_info *column_group, uint64_t buffer_nbytes)
{
    const uint64_t row = column_group->widest_nbytes;
    const uint64_t least =
        (row > MEMBER_NBYTES_MIN ? row : MEMBER_NBYTES_MIN) + COLUMN_GUARD_NBYTES;
    uint64_t fit = buffer_nbytes / least;
    if (fit > MEMBERS_MAX)
        fit = MEMBERS_MAX;
    if (fit < 1)
        fit = 1;
    return (column_group->member_count + fit - 1) / fit;
}

/* An engine that fills whole tiles fills column groups in the tile. To read the source again costs more
 * than to leave them to threads, which have a buffer of their own. */
static uint64_t choose_buffer(const struct exec *x, const column_group_info *column_group)
{
    const uint64_t row = column_group->widest_nbytes;
    const uint64_t tile = x->tile_nbytes, most = x->column_group_nbytes;
    return x->engine->whole_tiles && row + COLUMN_GUARD_NBYTES <= tile &&
                   count_passes(column_group, tile) <= count_passes(column_group, most)
               ? tile
               : most;
}

static fsdpck_status size_column_group(struct exec *x, column_group_info *column_group,
                                       fsdpck_error *err)
{
    const uint64_t row = column_group->widest_nbytes;
    if (row + COLUMN_GUARD_NBYTES > x->column_group_nbytes)
        return FAIL(err, INTERNAL, NONE,
                    "a row of tensors that are sharded into columns is longer than its buffer");
    column_group->buffer_nbytes = choose_buffer(x, column_group);
    const uint64_t passes = count_passes(column_group, column_group->buffer_nbytes);
    column_group->pass_members = (uint32_t)((column_group->member_count + passes - 1) / passes);
    const uint64_t share =
        column_group->buffer_nbytes / column_group->pass_members - COLUMN_GUARD_NBYTES;
    column_group->block_rows = share / row > 0 ? share / row : 1;
    if (column_group->block_rows > column_group->rows)
        column_group->block_rows = column_group->rows;
    const uint32_t origin = plan_source_tensor(x->r.plan, column_group->tensor);
    const catalogue *from = plan_source(x->r.plan);
    const unsigned ndim = catalogue_tensor(from, origin)->ndim;
    const uint64_t source_row =
        box_nelems(catalogue_shape(from, origin) + column_group->cut, ndim - column_group->cut) *
        dtype_get((dtype)catalogue_tensor(from, origin)->dtype)->itemsize_bytes;
    column_group->step_rows = ROWS_NBYTES / source_row > 0 ? ROWS_NBYTES / source_row : 1;
    column_group->first_item = x->column_group_items;
    x->column_group_items +=
        passes * ((column_group->rows + column_group->block_rows - 1) / column_group->block_rows);
    x->reread_nbytes += (passes - 1) * column_group->rows * source_row;
    return FSDPCK_OK;
}

/* Memory left for a worker's buffer. */
static uint64_t spare_nbytes(const struct exec *x)
{
    const uint64_t each = x->r.memory_nbytes / x->nworkers;
    const uint64_t used = x->workers[0]->memory_nbytes;
    const uint64_t spare = each > used ? each - used : 0;
    return spare / FILE_DIRECT_ALIGN * FILE_DIRECT_ALIGN;
}

/* All column groups that do not share the tile share one buffer per worker, of the largest required
 * size. */
static fsdpck_status size_column_groups(struct exec *x, fsdpck_error *err)
{
    uint64_t want = x->tile_nbytes, largest = 0;
    for (size_t i = 0; i < x->column_groups.count; i++) {
        const column_group_info *column_group = VEC_AT(&x->column_groups, column_group_info, i);
        const uint64_t share = column_group->widest_nbytes > MEMBER_NBYTES_GOAL
                                   ? column_group->widest_nbytes
                                   : MEMBER_NBYTES_GOAL;
        const uint64_t nbytes = column_group->member_count * (share + COLUMN_GUARD_NBYTES);
        want = nbytes > want ? nbytes : want;
    }
    want = (want < BUFFER_NBYTES_MAX ? want : BUFFER_NBYTES_MAX) + FILE_DIRECT_ALIGN - 1;
    want -= want % FILE_DIRECT_ALIGN;
    if (x->column_group_nbytes > want)
        x->column_group_nbytes = want;
    for (size_t i = 0; i < x->column_groups.count; i++) {
        column_group_info *column_group = VEC_AT(&x->column_groups, column_group_info, i);
        RETURN_IF(size_column_group(x, column_group, err));
        largest = column_group->buffer_nbytes > largest ? column_group->buffer_nbytes : largest;
    }
    if (largest > x->tile_nbytes)
        x->stats.buffer_nbytes += x->column_group_nbytes * x->nworkers;
    return FSDPCK_OK;
}

static fsdpck_status find_column_groups(struct exec *x, sort_pair *pairs, uint64_t most,
                                        fsdpck_error *err)
{
    column_group_work g = {.x = x, .sorted = pairs};
    for (size_t t = 0; t < catalogue_tensor_count(&x->r.target->cat); t++) {
        g.tensor = (uint32_t)t;
        RETURN_IF(group_tensor(&g, pairs + most, err));
    }
    vec_trim(&x->column_groups);
    vec_trim(&x->members);
    return FSDPCK_OK;
}

fsdpck_status column_groups_find(struct exec *x, fsdpck_error *err)
{
    const catalogue *to = &x->r.target->cat;
    uint64_t most = 0;
    for (size_t t = 0; t < catalogue_tensor_count(to); t++)
        if (catalogue_tensor(to, t)->nchunks > most)
            most = catalogue_tensor(to, t)->nchunks;
    x->column_group_nbytes = spare_nbytes(x);
    if (x->column_group_nbytes < x->tile_nbytes)
        x->column_group_nbytes =
            x->tile_nbytes; /* the tile itself: a worker does one or the other */
    if (most < 2 || x->column_group_nbytes < BUFFER_NBYTES_MIN)
        return FSDPCK_OK;
    x->grouped_nbytes = catalogue_chunk_count(to) / 8 + 1;
    x->grouped = budget_alloc(x->r.metadata, x->grouped_nbytes, err);
    if (x->grouped == NULL)
        return FSDPCK_LIMIT;
    sort_pair *pairs = budget_alloc(x->r.metadata, 2 * most * sizeof *pairs, err);
    if (pairs == NULL)
        return FSDPCK_LIMIT;
    const fsdpck_status st = find_column_groups(x, pairs, most, err);
    budget_free(x->r.metadata, pairs, 2 * most * sizeof *pairs);
    return st == FSDPCK_OK && x->column_groups.count > 0 ? size_column_groups(x, err) : st;
}
