/* One item of a column group: a row block of some members. */
#include <stdlib.h>

#include "base/crc.h"
#include "exec/column_group.h"
#include "exec/exec_internal.h"

/* Bytes of one member. */
typedef struct member_buffer {
    uint64_t chunk;
    uint64_t chunk_begin; /* in the file */
    uint64_t run;         /* bytes of a row */
    output_range range;
    uint8_t *bytes; /* of range.begin */
    kept_range kept;
} member_buffer;

typedef struct row_block {
    worker *worker;
    const column_group_info *column_group;
    member_buffer *member_buffers;
    uint8_t *buffer; /* that they lie in: the tile, or the worker's for column groups */
    uint32_t count;
    uint64_t itemsize;
    bool is_kept; /* an earlier run wrote it */
} row_block;

static const column_group_info *find_column_group(const struct exec *x, uint64_t item)
{
    size_t low = 0;
    size_t high = x->column_groups.count;
    while (high - low > 1) {
        const size_t middle = low + (high - low) / 2;
        if (VEC_AT(&x->column_groups, column_group_info, middle)->first_item <= item)
            low = middle;
        else
            high = middle;
    }
    return VEC_AT(&x->column_groups, column_group_info, low);
}

void column_group_get_block(const struct exec *x, uint64_t item, column_block *b)
{
    const column_group_info *column_group = find_column_group(x, item);
    const uint64_t local = item - column_group->first_item;
    const uint64_t row_blocks =
        (column_group->rows + column_group->block_rows - 1) / column_group->block_rows;
    const uint64_t first = local / row_blocks * column_group->pass_members;
    const uint64_t left = column_group->member_count - first;
    b->column_group = column_group;
    b->first_row = local % row_blocks * column_group->block_rows;
    b->rows = column_group->rows - b->first_row < column_group->block_rows
                  ? column_group->rows - b->first_row
                  : column_group->block_rows;
    b->members = VEC_AT(&x->members, const uint32_t, column_group->members_at + first);
    b->count = (uint32_t)(left < column_group->pass_members ? left : column_group->pass_members);
}

uint64_t column_block_nbytes(const struct exec *x, const column_block *b)
{
    uint64_t nbytes = 0;
    for (uint32_t i = 0; i < b->count; i++)
        nbytes += catalogue_chunk(&x->r.target->cat, b->members[i])->nbytes / b->column_group->rows;
    return nbytes * b->rows;
}

/* Byte of the file where row `row` of the chunk begins, or the block's begin before it. */
static uint64_t row_block_edge(const column_group_info *column_group, const cat_chunk *k,
                               uint64_t run, uint64_t row)
{
    if (row == 0)
        return k->offset_bytes;
    if (row >= column_group->rows)
        return k->offset_bytes + k->nbytes;
    const uint64_t at = k->offset_bytes + row * run;
    const uint64_t block = at - at % FILE_DIRECT_ALIGN;
    return block > k->offset_bytes ? block : k->offset_bytes;
}

static void begin_row_block(row_block *b, const column_block *what)
{
    const struct exec *x = b->worker->x;
    const column_group_info *column_group = b->column_group;
    const uint64_t slot = column_group->buffer_nbytes / column_group->pass_members /
                          FILE_DIRECT_ALIGN * FILE_DIRECT_ALIGN;
    b->count = what->count;
    for (uint32_t i = 0; i < b->count; i++) {
        member_buffer *s = &b->member_buffers[i];
        s->chunk = what->members[i];
        const cat_chunk *k = catalogue_chunk(&x->r.target->cat, s->chunk);
        s->run = k->nbytes / column_group->rows;
        s->chunk_begin = k->offset_bytes;
        s->range.file = k->file;
        s->range.begin = row_block_edge(column_group, k, s->run, what->first_row);
        s->range.end = row_block_edge(column_group, k, s->run, what->first_row + what->rows);
        s->bytes = b->buffer + i * slot + FILE_DIRECT_ALIGN + s->range.begin % FILE_DIRECT_ALIGN;
    }
}

/* Rows [row, row + step) of all members, as far as they are in the row block: the source bytes that
 * they need are close together. */
static fsdpck_status fill_rows(const row_block *b, uint64_t row, fsdpck_error *err)
{
    worker *w = b->worker;
    for (uint32_t i = 0; i < b->count; i++) {
        const member_buffer *s = &b->member_buffers[i];
        const uint64_t low = s->chunk_begin + row * s->run;
        const uint64_t high = low + b->column_group->step_rows * s->run;
        const uint64_t begin = low > s->range.begin ? low : s->range.begin;
        const uint64_t end = high < s->range.end ? high : s->range.end;
        if (begin >= end)
            continue;
        const uint64_t first = (begin - s->chunk_begin) / b->itemsize;
        const uint64_t last = (end - s->chunk_begin + b->itemsize - 1) / b->itemsize;
        const int64_t chunk_at =
            (s->bytes - b->buffer) - (int64_t)(s->range.begin - s->chunk_begin);
        RETURN_IF(gather_elements(w, s->chunk, first, last, chunk_at, err));
    }
    return gather_flush(w, err);
}

static fsdpck_status fill_row_block(worker *w, const void *ctx, fsdpck_error *err)
{
    const row_block *b = ctx;
    uint64_t first = UINT64_MAX;
    uint64_t end = 0;
    for (uint32_t i = 0; i < b->count; i++) {
        const member_buffer *s = &b->member_buffers[i];
        const uint64_t low = (s->range.begin - s->chunk_begin) / s->run;
        const uint64_t high = (s->range.end - s->chunk_begin + s->run - 1) / s->run;
        first = low < first ? low : first;
        end = high > end ? high : end;
    }
    for (uint64_t row = first; row < end; row += b->column_group->step_rows) {
        RETURN_IF(cancel_check(w->x->r.cancel, err));
        RETURN_IF(fill_rows(b, row, err));
    }
    return FSDPCK_OK;
}

static uint64_t sum_row_block(worker *w, const void *ctx)
{
    const row_block *b = ctx;
    uint64_t crc = 0;
    (void)w;
    for (uint32_t i = 0; i < b->count; i++)
        crc = crc64_update(crc, b->member_buffers[i].bytes,
                           b->member_buffers[i].range.end - b->member_buffers[i].range.begin);
    return crc;
}

/* As the first member is; all have the dtype. */
static bool is_plain(const row_block *b)
{
    const member_buffer *s = &b->member_buffers[0];
    return exec_elements_are_plain(b->worker->x, s->chunk,
                                   (s->range.begin - s->chunk_begin) / b->itemsize,
                                   (s->range.end - s->chunk_begin + b->itemsize - 1) / b->itemsize);
}

/* Shares lie one after the other. */
static fsdpck_status fill_members(worker *w, const row_block *b, fsdpck_error *err)
{
    const member_buffer *last = &b->member_buffers[b->count - 1];
    const engine_fill f = {.gather = fill_row_block,
                           .sum = sum_row_block,
                           .ctx = b,
                           .begin = b->member_buffers[0].bytes,
                           .end = last->bytes + (last->range.end - last->range.begin)};
    bool done = false;
    if (b->buffer == w->tile && !exec_chunk_is_for_threads(w->x, b->member_buffers[0].chunk) &&
        !is_plain(b))
        RETURN_IF(w->x->engine->fill(w, &f, &done, err));
    return done ? FSDPCK_OK : fill_row_block(w, b, err);
}

/* Whether an earlier run wrote all of a row block. Then its bytes are in the buffers. */
static fsdpck_status read_kept(const row_block *b, bool *is_kept, fsdpck_error *err)
{
    *is_kept = b->worker->x->finished != NULL;
    for (uint32_t i = 0; *is_kept && i < b->count; i++) {
        member_buffer *s = &b->member_buffers[i];
        if (s->range.begin < s->range.end)
            RETURN_IF(resume_read(b->worker, &s->range, s->bytes, is_kept, &s->kept, err));
    }
    return FSDPCK_OK;
}

static fsdpck_status write_member(const row_block *b, const member_buffer *s, uint64_t overflows,
                                  fsdpck_error *err)
{
    struct exec *x = b->worker->x;
    const range_part part = {.begin = s->range.begin,
                             .end = s->range.end,
                             .chunk = s->chunk,
                             .chunk_begin = s->chunk_begin};
    if (s->range.begin == s->range.end)
        return FSDPCK_OK;
    tile_crc crc = {.begin = part.begin};
    const bool has_crc =
        exec_checksums_wanted(x) && exec_checksums_add(x, &part, s->bytes, &crc.raw);
    if (b->is_kept) {
        resume_count(b->worker, &s->range, &s->kept);
        progress_keep(x->r.progress, s->range.end - s->range.begin);
    } else {
        tile_parts_find(&b->worker->parts, x->r.plan, &s->range);
        if (has_crc)
            b->worker->parts.crcs[b->worker->parts.crc_count++] = crc;
        const uint64_t sum = resume_crc(b->worker, &s->range, s->bytes);
        RETURN_IF(write_range(b->worker, &s->range, s->bytes, err));
        resume_record(b->worker, &s->range, sum, overflows);
        progress_add(x->r.progress, s->range.end - s->range.begin);
    }
    return FSDPCK_OK;
}

fsdpck_status column_group_run_item(worker *w, uint64_t item, fsdpck_error *err)
{
    struct exec *x = w->x;
    column_block what;
    column_group_get_block(x, item, &what);
    const column_group_info *column_group = what.column_group;
    const dtype type = (dtype)catalogue_tensor(&x->r.target->cat, column_group->tensor)->dtype;
    row_block b = {
        .worker = w, .column_group = column_group, .itemsize = dtype_get(type)->itemsize_bytes};
    const bool in_tile = column_group->buffer_nbytes <= x->tile_nbytes;
    if (!in_tile && w->column_group == NULL)
        w->column_group = aligned_alloc(FILE_DIRECT_ALIGN, x->column_group_nbytes);
    b.buffer = in_tile ? w->tile : w->column_group;
    b.member_buffers = calloc(column_group->pass_members, sizeof *b.member_buffers);
    if (b.buffer == NULL || b.member_buffers == NULL) {
        free(b.member_buffers);
        return error_set_nomem(err, x->column_group_nbytes);
    }
    begin_row_block(&b, &what);
    const uint64_t before = w->stats.cast_overflows;
    w->gather.base = b.buffer;
    w->gather.grouped = true;
    fsdpck_status st = read_kept(&b, &b.is_kept, err);
    if (st == FSDPCK_OK && !b.is_kept)
        st = fill_members(w, &b, err);
    uint64_t overflows = w->stats.cast_overflows - before; /* recorded with the first member */
    w->gather.base = w->tile;
    w->gather.grouped = false;
    w->gather.count = 0; /* after a failure */
    w->gather.dims_count = 0;
    for (uint32_t i = 0; st == FSDPCK_OK && i < b.count; i++) {
        st = write_member(&b, &b.member_buffers[i], overflows, err);
        overflows = b.member_buffers[i].range.begin < b.member_buffers[i].range.end ? 0 : overflows;
    }
    free(b.member_buffers);
    return st;
}
