#include "state/strided.h"

#include <string.h>

void strided_collapse(strided *s)
{
    unsigned n = 0;
    for (unsigned d = 0; d < s->ndim; d++) {
        if (s->sizes[d] == 1)
            continue;
        const bool joins = n > 0 && s->src_strides[n - 1] == s->sizes[d] * s->src_strides[d] &&
                           s->dst_strides[n - 1] == s->sizes[d] * s->dst_strides[d];
        if (joins) {
            s->sizes[n - 1] *= s->sizes[d];
        } else {
            n++;
            s->sizes[n - 1] = s->sizes[d];
        }
        s->src_strides[n - 1] = s->src_strides[d];
        s->dst_strides[n - 1] = s->dst_strides[d];
    }
    s->ndim = n;
}

bool strided_is_run(const strided *s, uint64_t src_itemsize, uint64_t dst_itemsize)
{
    return s->ndim == 0 ||
           (s->ndim == 1 && s->src_strides[0] == src_itemsize && s->dst_strides[0] == dst_itemsize);
}

uint64_t strided_nelems(const strided *s)
{
    return box_nelems(s->sizes, s->ndim);
}

uint64_t strided_span(unsigned ndim, const uint64_t *sizes, const uint64_t *strides,
                      uint64_t itemsize)
{
    uint64_t span = itemsize;
    for (unsigned d = 0; d < ndim; d++)
        span += (sizes[d] - 1) * strides[d];
    return span;
}

/* Two innermost dims, `rows` of `cols` items. */
typedef struct plane {
    uint64_t rows, cols;
    uint64_t src_row, src_col;
    uint64_t dst_row, dst_col;
} plane;

/* Rows whose items are adjacent on both sides: runs of constant width compile to single moves. */
#define COPY_RUNS(WIDTH)                   \
    for (uint64_t i = 0; i < p->rows; i++) \
    memcpy(dst + i * p->dst_row, src + i * p->src_row, (WIDTH))

/* 17 to 32 bytes by two moves of 16 that overlap. */
static void copy_runs_to_32(const plane *p, size_t run, uint8_t *dst, const uint8_t *src)
{
    for (uint64_t i = 0; i < p->rows; i++) {
        uint8_t *to = dst + i * p->dst_row;
        const uint8_t *from = src + i * p->src_row;
        memcpy(to, from, 16);
        memcpy(to + run - 16, from + run - 16, 16);
    }
}

static void copy_runs(const plane *p, size_t itemsize, uint8_t *dst, const uint8_t *src)
{
    const uint64_t run = p->cols * itemsize;
    switch (run) {
    case 1:
        COPY_RUNS(1);
        return;
    case 2:
        COPY_RUNS(2);
        return;
    case 4:
        COPY_RUNS(4);
        return;
    case 8:
        COPY_RUNS(8);
        return;
    case 16:
        COPY_RUNS(16);
        return;
    case 64:
        COPY_RUNS(64);
        return;
    default:
        if (run > 16 && run <= 32)
            copy_runs_to_32(p, (size_t)run, dst, src);
        else
            COPY_RUNS((size_t)run);
    }
}

#define BLOCK 32u

/* A block that is contiguous down the columns in the source and along the rows in the destination:
 * exchanged in a buffer, so that both sides are accessed a cache line at a time. Rows of the sides are
 * often apart by a power of two, where lines that are kept for later displace each other. */
#define TRANSPOSE_BLOCK(TYPE)                                        \
    do {                                                             \
        TYPE column[BLOCK], block[BLOCK][BLOCK];                     \
        for (unsigned j = 0; j < BLOCK; j++) {                       \
            memcpy(column, src + j * p->src_col, sizeof column);     \
            for (unsigned i = 0; i < BLOCK; i++)                     \
                block[i][j] = column[i];                             \
        }                                                            \
        for (unsigned i = 0; i < BLOCK; i++)                         \
            memcpy(dst + i * p->dst_row, block[i], sizeof block[i]); \
    } while (0)

static uint64_t load_four(const uint8_t *from)
{
    uint64_t four;
    memcpy(&four, from, sizeof four);
    return four;
}

static void store_four(uint16_t *to, uint64_t four)
{
    memcpy(to, &four, sizeof four);
}

/* The same for items of 2 bytes, 4 x 4 of them in four words (little-endian). */
static void transpose_block_of_16_bits(const plane *p, uint8_t *dst, const uint8_t *src)
{
    const uint64_t even = 0x0000FFFF0000FFFFu, low = 0x00000000FFFFFFFFu;
    uint16_t block[BLOCK][BLOCK];
    for (unsigned j = 0; j < BLOCK; j += 4) {
        const uint8_t *column = src + j * p->src_col;
        for (unsigned i = 0; i < BLOCK; i += 4, column += 8) {
            const uint64_t c0 = load_four(column), c1 = load_four(column + p->src_col);
            const uint64_t c2 = load_four(column + 2 * p->src_col);
            const uint64_t c3 = load_four(column + 3 * p->src_col);
            const uint64_t even01 = (c0 & even) | (c1 & even) << 16;
            const uint64_t even23 = (c2 & even) | (c3 & even) << 16;
            const uint64_t odd01 = (c0 >> 16 & even) | (c1 & ~even);
            const uint64_t odd23 = (c2 >> 16 & even) | (c3 & ~even);
            store_four(&block[i][j], (even01 & low) | even23 << 32);
            store_four(&block[i + 1][j], (odd01 & low) | odd23 << 32);
            store_four(&block[i + 2][j], even01 >> 32 | (even23 & ~low));
            store_four(&block[i + 3][j], odd01 >> 32 | (odd23 & ~low));
        }
    }
    for (unsigned i = 0; i < BLOCK; i++)
        memcpy(dst + i * p->dst_row, block[i], sizeof block[i]);
}

static void transpose_block(const plane *p, size_t itemsize, uint8_t *dst, const uint8_t *src)
{
    switch (itemsize) {
    case 1:
        TRANSPOSE_BLOCK(uint8_t);
        break;
    case 2:
        transpose_block_of_16_bits(p, dst, src);
        break;
    case 4:
        TRANSPOSE_BLOCK(uint32_t);
        break;
    default:
        TRANSPOSE_BLOCK(uint64_t);
    }
}

static bool has_transposed_blocks(const plane *p, size_t itemsize)
{
    return p->src_row == itemsize && p->dst_col == itemsize && itemsize <= 8 && p->rows >= BLOCK &&
           p->cols >= BLOCK;
}

/* The last blocks overlap those before them where the sizes are no multiples. */
static void copy_transposed(const plane *p, size_t itemsize, uint8_t *dst, const uint8_t *src)
{
    for (uint64_t i0 = 0; i0 < p->rows; i0 += BLOCK) {
        const uint64_t i = p->rows - i0 < BLOCK ? p->rows - BLOCK : i0;
        for (uint64_t j0 = 0; j0 < p->cols; j0 += BLOCK) {
            const uint64_t j = p->cols - j0 < BLOCK ? p->cols - BLOCK : j0;
            transpose_block(p, itemsize, dst + i * p->dst_row + j * p->dst_col,
                            src + i * p->src_row + j * p->src_col);
        }
    }
}

/* Items one by one. Where one side walks its memory down the columns, square blocks keep the
 * cache lines of both sides in reach. */
#define COPY_BLOCK(WIDTH)                  \
    for (uint64_t i = i0; i < i1; i++)     \
        for (uint64_t j = j0; j < j1; j++) \
    memcpy(dst + i * p->dst_row + j * p->dst_col, src + i * p->src_row + j * p->src_col, (WIDTH))

static void copy_items(const plane *p, size_t itemsize, uint8_t *dst, const uint8_t *src)
{
    const bool crossed = (p->src_row < p->src_col) != (p->dst_row < p->dst_col);
    const uint64_t block_rows = crossed ? BLOCK : p->rows;
    const uint64_t block_cols = crossed ? BLOCK : p->cols;
    for (uint64_t i0 = 0; i0 < p->rows; i0 += block_rows) {
        const uint64_t i1 = p->rows - i0 < block_rows ? p->rows : i0 + block_rows;
        for (uint64_t j0 = 0; j0 < p->cols; j0 += block_cols) {
            const uint64_t j1 = p->cols - j0 < block_cols ? p->cols : j0 + block_cols;
            switch (itemsize) {
            case 1:
                COPY_BLOCK(1);
                break;
            case 2:
                COPY_BLOCK(2);
                break;
            case 4:
                COPY_BLOCK(4);
                break;
            case 8:
                COPY_BLOCK(8);
                break;
            default:
                COPY_BLOCK(16);
            }
        }
    }
}

/* The two dims that the loops run over: the last one, and of the others the one with the smallest
 * source stride (in a transposed box that is where the source is contiguous). */
static plane choose_plane(const strided *s, unsigned *row_dim)
{
    plane p = {.rows = 1, .cols = 1};
    const unsigned col = s->ndim - 1;
    unsigned row = 0;
    if (s->ndim > 0) {
        p.cols = s->sizes[col];
        p.src_col = s->src_strides[col];
        p.dst_col = s->dst_strides[col];
    }
    if (s->ndim > 1) {
        row = s->ndim - 2;
        for (unsigned d = 0; d + 1 < s->ndim; d++)
            if (s->src_strides[d] < s->src_strides[row])
                row = d;
        p.rows = s->sizes[row];
        p.src_row = s->src_strides[row];
        p.dst_row = s->dst_strides[row];
    }
    *row_dim = row;
    return p;
}

void strided_copy(const strided *s, size_t itemsize, uint8_t *dst, const uint8_t *src)
{
    unsigned row;
    uint64_t at[NDIM_MAX];
    const plane p = choose_plane(s, &row);
    const bool runs = p.cols == 1 || (p.src_col == itemsize && p.dst_col == itemsize);
    for (unsigned d = 0; d < s->ndim; d++)
        at[d] = 0;
    for (;;) {
        if (runs)
            copy_runs(&p, itemsize, dst, src);
        else if (has_transposed_blocks(&p, itemsize))
            copy_transposed(&p, itemsize, dst, src);
        else
            copy_items(&p, itemsize, dst, src);
        unsigned d = s->ndim < 2 ? 0 : s->ndim - 1; /* the last dim is done by the plane */
        for (; d-- > 0;) {
            if (d == row)
                continue;
            src += s->src_strides[d];
            dst += s->dst_strides[d];
            if (++at[d] < s->sizes[d])
                break;
            src -= s->sizes[d] * s->src_strides[d];
            dst -= s->sizes[d] * s->dst_strides[d];
            at[d] = 0;
        }
        if (d == UINT32_MAX)
            return;
    }
}

void box_split_begin(box_split *b, unsigned ndim, const uint64_t *sizes, const uint64_t *strides,
                     uint64_t itemsize, uint64_t limit_bytes)
{
    b->ndim = ndim;
    b->sizes = sizes;
    b->strides = strides;
    b->itemsize = itemsize;
    b->begun = false;
    for (unsigned d = 0; d < ndim; d++) {
        unsigned i = d;
        for (; i > 0 && strides[b->order[i - 1]] < strides[d]; i--)
            b->order[i] = b->order[i - 1];
        b->order[i] = (unsigned char)d;
    }
    uint64_t span = itemsize;
    b->outer = ndim;
    b->step = 1;
    while (b->outer > 0) {
        const unsigned d = b->order[b->outer - 1];
        const uint64_t room = limit_bytes > span ? limit_bytes - span : 0;
        b->outer--;
        b->inner_bytes = span;
        if (strides[d] != 0 && room / strides[d] < sizes[d] - 1) {
            b->step = room / strides[d] + 1;
            break;
        }
        span += (sizes[d] - 1) * strides[d];
        b->step = sizes[d];
    }
}

uint64_t box_split_count(const box_split *b)
{
    if (b->ndim == 0)
        return 1;
    uint64_t count = (b->sizes[b->order[b->outer]] + b->step - 1) / b->step;
    for (unsigned i = 0; i < b->outer; i++)
        count *= b->sizes[b->order[i]];
    return count;
}

void box_split_fit_blocks(box_split *b, uint64_t limit_bytes)
{
    if (b->ndim == 0)
        return;
    const unsigned d = b->order[b->outer];
    if (b->step >= b->sizes[d])
        return;
    if (b->step > BLOCK)
        b->step -= b->step % BLOCK;
    else if (b->inner_bytes <= limit_bytes &&
             b->strides[d] <= (limit_bytes - b->inner_bytes) / (BLOCK - 1))
        b->step = BLOCK;
}

bool box_split_next(box_split *b)
{
    if (!b->begun) {
        b->begun = true;
        b->offset_bytes = 0;
        for (unsigned d = 0; d < b->ndim; d++) {
            b->at[d] = 0;
            b->part[d] = b->sizes[d];
        }
    } else {
        unsigned i = b->ndim == 0 ? 0 : b->outer + 1;
        for (; i-- > 0;) {
            const unsigned d = b->order[i];
            const uint64_t step = i == b->outer ? b->step : 1;
            b->offset_bytes -= b->at[d] * b->strides[d];
            b->at[d] += step;
            if (b->at[d] < b->sizes[d]) {
                b->offset_bytes += b->at[d] * b->strides[d];
                break;
            }
            b->at[d] = 0;
        }
        if (i == UINT32_MAX)
            return false;
    }
    for (unsigned i = 0; b->ndim > 0 && i <= b->outer; i++) {
        const unsigned d = b->order[i];
        const uint64_t step = i == b->outer ? b->step : 1;
        const uint64_t left = b->sizes[d] - b->at[d];
        b->part[d] = left < step ? left : step;
    }
    b->span_bytes = strided_span(b->ndim, b->part, b->strides, b->itemsize);
    return true;
}

bool strides_nest(unsigned ndim, const uint64_t *sizes, const uint64_t *strides, uint64_t itemsize)
{
    box_split b;
    uint64_t span = itemsize;
    box_split_begin(&b, ndim, sizes, strides, itemsize, itemsize);
    for (unsigned i = ndim; i-- > 0;) {
        const unsigned d = b.order[i];
        if (sizes[d] == 1 || strides[d] == 0)
            continue;
        if (strides[d] < span)
            return false;
        span += (sizes[d] - 1) * strides[d];
    }
    return true;
}
