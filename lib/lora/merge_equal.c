#include "lora/merge_equal.h"

#include <string.h>

#include "base/checked.h"
#include "state/box_read.h"

#define BLOCK_NBYTES ((uint64_t)1 << 20)

typedef struct comparison {
    const catalogue *cat;
    uint64_t row_nbytes;
    box_cursor *cursors[2];
    uint8_t *blocks; /* two of `rows` rows */
    uint64_t rows;
} comparison;

static fsdpck_status compare_rows(const comparison *s, uint32_t tensor, bool *equal,
                                  fsdpck_error *err)
{
    const unsigned ndim = catalogue_tensor(s->cat, tensor)->ndim;
    uint64_t offsets[NDIM_MAX] = {0}, sizes[NDIM_MAX];
    memcpy(sizes, catalogue_shape(s->cat, tensor), ndim * sizeof *sizes);
    const uint64_t all = sizes[0];
    *equal = true;
    for (uint64_t at = 0; at < all && *equal; at += s->rows) {
        offsets[0] = at;
        sizes[0] = all - at < s->rows ? all - at : s->rows;
        const uint64_t nbytes = sizes[0] * s->row_nbytes;
        uint8_t *other = s->blocks + s->rows * s->row_nbytes;
        RETURN_IF(box_cursor_read(s->cursors[0], offsets, sizes, s->blocks, err));
        RETURN_IF(box_cursor_read(s->cursors[1], offsets, sizes, other, err));
        *equal = memcmp(s->blocks, other, nbytes) == 0;
    }
    for (size_t i = 0; i < 2 && *equal; i++)
        RETURN_IF(box_cursor_finish(s->cursors[i], err));
    return FSDPCK_OK;
}

static fsdpck_status open_both(comparison *s, box_reader *r, uint32_t one, uint32_t other,
                               fsdpck_error *err)
{
    const uint32_t tensors[] = {one, other};
    const uint64_t zero[NDIM_MAX] = {0};
    for (size_t i = 0; i < 2; i++) {
        RETURN_IF(box_reader_add(r, tensors[i], err));
        RETURN_IF(box_cursor_open(r, tensors[i], zero, catalogue_shape(s->cat, tensors[i]),
                                  &s->cursors[i], err));
    }
    return FSDPCK_OK;
}

fsdpck_status merge_is_equal(const catalogue *c, const source *src, uint32_t one, uint32_t other,
                             budget *owner, bool *equal, fsdpck_error *err)
{
    const cat_tensor *a = catalogue_tensor(c, one), *b = catalogue_tensor(c, other);
    const dtype_info *d = dtype_get((dtype)a->dtype);
    comparison s = {.cat = c};
    box_reader r;
    uint64_t nbytes;
    *equal = false;
    if (a->dtype != b->dtype || a->ndim == 0 || d->itemsize_bytes == 0 || d->packing > 1 ||
        catalogue_tensor_nelems(c, one) == 0 ||
        !shape_equal(catalogue_shape(c, one), a->ndim, catalogue_shape(c, other), b->ndim))
        return FSDPCK_OK;
    s.row_nbytes = catalogue_tensor_nbytes(c, one) / catalogue_shape(c, one)[0];
    s.rows = s.row_nbytes < BLOCK_NBYTES ? BLOCK_NBYTES / s.row_nbytes : 1;
    if (!checked_mul(2 * s.rows, s.row_nbytes, &nbytes))
        return FAIL(err, LIMIT, LIMIT_SIZE, "row of a weight is too large");
    s.blocks = budget_alloc(owner, nbytes, err);
    if (s.blocks == NULL)
        return FSDPCK_LIMIT;
    box_reader_init(&r, c, src, owner);
    fsdpck_status st = open_both(&s, &r, one, other, err);
    if (st == FSDPCK_OK)
        st = compare_rows(&s, one, equal, err);
    for (size_t i = 0; i < 2; i++)
        box_cursor_close(s.cursors[i]);
    box_reader_release(&r);
    budget_free(owner, s.blocks, nbytes);
    return st;
}

/* ---- transposed ---- */

typedef struct transposition {
    const box_reader *reader;
    uint32_t one, other;
    uint64_t m, n; /* dims of `one` */
    size_t itemsize;
    uint64_t columns; /* of a block */
    uint8_t *blocks;  /* of both */
} transposition;

static fsdpck_status compare_columns(const transposition *s, bool *equal, fsdpck_error *err)
{
    *equal = true;
    for (uint64_t at = 0; at < s->n && *equal; at += s->columns) {
        const uint64_t k = s->n - at < s->columns ? s->n - at : s->columns;
        uint8_t *other = s->blocks + s->m * s->columns * s->itemsize;
        RETURN_IF(box_read(s->reader, s->one, (const uint64_t[]){0, at},
                           (const uint64_t[]){s->m, k}, s->blocks, err));
        RETURN_IF(box_read(s->reader, s->other, (const uint64_t[]){at, 0},
                           (const uint64_t[]){k, s->m}, other, err));
        for (uint64_t i = 0; i < s->m && *equal; i++)
            for (uint64_t j = 0; j < k && *equal; j++)
                *equal = memcmp(s->blocks + (i * k + j) * s->itemsize,
                                other + (j * s->m + i) * s->itemsize, s->itemsize) == 0;
    }
    return FSDPCK_OK;
}

static bool may_be_transposed(const catalogue *c, uint32_t one, uint32_t other)
{
    const cat_tensor *a = catalogue_tensor(c, one), *b = catalogue_tensor(c, other);
    const uint64_t *x = catalogue_shape(c, one), *y = catalogue_shape(c, other);
    const dtype_info *d = dtype_get((dtype)a->dtype);
    return a->dtype == b->dtype && a->ndim == 2 && b->ndim == 2 && x[0] == y[1] && x[1] == y[0] &&
           x[0] > 0 && x[1] > 0 && d->itemsize_bytes > 0 && d->packing <= 1;
}

fsdpck_status merge_is_transpose(const catalogue *c, const source *src, uint32_t one,
                                 uint32_t other, budget *owner, bool *equal, fsdpck_error *err)
{
    const uint64_t *shape = catalogue_shape(c, one);
    transposition s = {.one = one, .other = other};
    box_reader r;
    uint64_t column, nbytes;
    *equal = false;
    if (!may_be_transposed(c, one, other))
        return FSDPCK_OK;
    s.m = shape[0];
    s.n = shape[1];
    s.itemsize = dtype_get((dtype)catalogue_tensor(c, one)->dtype)->itemsize_bytes;
    s.columns = 1;
    if (checked_mul(s.m, s.itemsize, &column) && column < BLOCK_NBYTES)
        s.columns = BLOCK_NBYTES / column;
    if (s.columns > s.n)
        s.columns = s.n;
    if (!checked_mul(s.m, s.itemsize, &column) || !checked_mul(2 * s.columns, column, &nbytes))
        return FAIL(err, LIMIT, LIMIT_SIZE, "column of a tensor is too large");
    s.blocks = budget_alloc(owner, nbytes, err);
    if (s.blocks == NULL)
        return FSDPCK_LIMIT;
    box_reader_init(&r, c, src, owner);
    s.reader = &r;
    fsdpck_status st = box_reader_add(&r, one, err);
    if (st == FSDPCK_OK)
        st = box_reader_add(&r, other, err);
    if (st == FSDPCK_OK)
        st = compare_columns(&s, equal, err);
    box_reader_release(&r);
    budget_free(owner, s.blocks, nbytes);
    return st;
}
