#include "lora/lora_zero.h"

#include <math.h>
#include <stdlib.h>

#include "base/checked.h"
#include "state/widen.h"

#define BLOCK_NBYTES ((uint64_t)1 << 16)

struct zero_scan;
/* Whether all elements of the block have the property. */
typedef bool (*block_test)(const struct zero_scan *s, uint64_t nbytes);

typedef struct zero_scan {
    const source *src;
    uint64_t itemsize;
    bool has_sign, swap;
    block_test test;
    widener widen; /* of all_finite */
    bool unread;   /* a part is not known */
    uint8_t *block;
} zero_scan;

/* Bytes of whole elements. */
static bool all_zero(const zero_scan *s, uint64_t nbytes)
{
    for (uint64_t i = 0; i < nbytes; i++) {
        const uint64_t in_item = i % s->itemsize;
        const bool top = s->has_sign && in_item == (s->swap ? 0 : s->itemsize - 1);
        if ((s->block[i] & (top ? 0x7f : 0xff)) != 0)
            return false;
    }
    return true;
}

static bool all_finite(const zero_scan *s, uint64_t nbytes)
{
    enum { NUMBERS = 512 };
    const size_t size = s->widen.number_nbytes;
    double numbers[NUMBERS];
    for (uint64_t at = 0; s->swap && at + size <= nbytes; at += size)
        for (size_t i = 0; i < size / 2; i++) {
            const uint8_t byte = s->block[at + i];
            s->block[at + i] = s->block[at + size - 1 - i];
            s->block[at + size - 1 - i] = byte;
        }
    for (uint64_t at = 0, left = nbytes / size; left > 0;) {
        const uint32_t n = left < NUMBERS ? (uint32_t)left : NUMBERS;
        widen(&s->widen, s->block + at, n, numbers);
        for (uint32_t i = 0; i < n; i++)
            if (!isfinite(numbers[i]))
                return false;
        at += n * size;
        left -= n;
    }
    return true;
}

static fsdpck_status scan_run(const zero_scan *s, uint32_t file, uint64_t offset_bytes,
                              uint64_t nbytes, bool *zero, fsdpck_error *err)
{
    while (*zero && nbytes > 0) {
        const uint64_t n = nbytes < BLOCK_NBYTES ? nbytes : BLOCK_NBYTES;
        RETURN_IF(s->src->read_at(s->src->ctx, file, offset_bytes, s->block, n, err));
        *zero = s->test(s, n);
        offset_bytes += n;
        nbytes -= n;
    }
    return FSDPCK_OK;
}

/* Elements one by one. */
static fsdpck_status scan_strided(const zero_scan *s, const place *where, const uint64_t *sizes,
                                  unsigned ndim, bool *zero, fsdpck_error *err)
{
    uint64_t at[NDIM_MAX] = {0};
    while (*zero) {
        uint64_t from = 0, offset_bytes;
        for (unsigned d = 0; d < ndim; d++)
            if (!checked_mul_add(at[d], where->strides[d], from, &from))
                return FAIL(err, BADINPUT, TENSOR_BOUNDS, "tensor extends beyond its storage");
        if (!checked_mul_add(from, s->itemsize, where->offset_bytes, &offset_bytes))
            return FAIL(err, BADINPUT, TENSOR_BOUNDS, "tensor extends beyond its storage");
        RETURN_IF(scan_run(s, where->file, offset_bytes, s->itemsize, zero, err));
        unsigned d = ndim;
        while (d > 0 && ++at[d - 1] == sizes[d - 1])
            at[--d] = 0;
        if (d == 0)
            return FSDPCK_OK;
    }
    return FSDPCK_OK;
}

/* A stream has the whole record; the elements of the chunk lie in it. */
static fsdpck_status scan_stream(const zero_scan *s, uint64_t chunk, const place *where,
                                 uint64_t nbytes, bool *zero, fsdpck_error *err)
{
    source_stream *stream;
    uint64_t before = where->offset_bytes;
    RETURN_IF(s->src->stream_open(s->src->ctx, chunk, &stream, err));
    fsdpck_status st = FSDPCK_OK;
    while (st == FSDPCK_OK && *zero && before + nbytes > 0) {
        const bool skips = before > 0;
        const uint64_t left = skips ? before : nbytes;
        const uint64_t n = left < BLOCK_NBYTES ? left : BLOCK_NBYTES;
        st = s->src->stream_read(stream, s->block, n, err);
        if (skips)
            before -= n;
        else
            nbytes -= n;
        *zero = st == FSDPCK_OK && (skips || s->test(s, n));
    }
    s->src->stream_close(stream);
    return st;
}

static fsdpck_status scan_chunk(zero_scan *s, const catalogue *c, uint64_t chunk, bool *zero,
                                fsdpck_error *err)
{
    const unsigned ndim = catalogue_tensor(c, catalogue_chunk(c, chunk)->tensor)->ndim;
    uint64_t sizes[NDIM_MAX], nbytes;
    place where = {0};
    RETURN_IF(s->src->locate(s->src->ctx, chunk, &where, err));
    catalogue_chunk_box(c, chunk, NULL, sizes);
    if (!checked_mul(box_nelems(sizes, ndim), s->itemsize, &nbytes))
        return FAIL(err, BADINPUT, TENSOR_BOUNDS, "tensor extends beyond its storage");
    s->swap = where.swap;
    if (where.stream && where.rows)
        return scan_stream(s, chunk, &where, nbytes, zero, err);
    if (where.stream) { /* elements that are not in order: left unknown */
        s->unread = true;
        *zero = false;
        return FSDPCK_OK;
    }
    return where.rows ? scan_run(s, where.file, where.offset_bytes, nbytes, zero, err)
                      : scan_strided(s, &where, sizes, ndim, zero, err);
}

/* *zero: all elements have the property of s->test, and all were read. */
static fsdpck_status scan_tensor(zero_scan *s, const catalogue *c, uint32_t tensor, bool *zero,
                                 fsdpck_error *err)
{
    const cat_tensor *t = catalogue_tensor(c, tensor);
    fsdpck_status st = FSDPCK_OK;
    *zero = true;
    s->block = malloc(BLOCK_NBYTES);
    if (s->block == NULL)
        return error_set_nomem(err, BLOCK_NBYTES);
    for (uint64_t i = t->first_chunk; st == FSDPCK_OK && *zero && i < t->first_chunk + t->nchunks;
         i++) {
        const uint16_t kind = catalogue_chunk(c, i)->place;
        if (kind == LOCATION_FILL) /* the file declares the value */
            s->unread = true;
        if (kind == LOCATION_FILL)
            *zero = false;
        else if (kind != LOCATION_EMPTY)
            st = scan_chunk(s, c, i, zero, err);
    }
    free(s->block);
    return st;
}

fsdpck_status lora_is_zero(const source *src, const catalogue *c, uint32_t tensor, bool *is_zero,
                           fsdpck_error *err)
{
    const dtype_info *d = dtype_get((dtype)catalogue_tensor(c, tensor)->dtype);
    zero_scan s = {.src = src,
                   .itemsize = d->itemsize_bytes,
                   .has_sign = d->kind == DTYPE_IS_FLOAT,
                   .test = all_zero};
    bool zero;
    *is_zero = false;
    if (catalogue_tensor_nelems(c, tensor) == 0 || s.itemsize == 0 || d->packing > 1)
        return FSDPCK_OK;
    RETURN_IF(scan_tensor(&s, c, tensor, &zero, err));
    *is_zero = zero;
    return FSDPCK_OK;
}

fsdpck_status lora_has_nan(const source *src, const catalogue *c, uint32_t tensor, bool *has_nan,
                           fsdpck_error *err)
{
    const dtype_info *d = dtype_get((dtype)catalogue_tensor(c, tensor)->dtype);
    zero_scan s = {.src = src, .itemsize = d->itemsize_bytes, .test = all_finite};
    bool finite;
    *has_nan = false;
    if (d->kind != DTYPE_IS_FLOAT || d->packing > 1 ||
        !widener_init(&s.widen, (dtype)catalogue_tensor(c, tensor)->dtype))
        return FSDPCK_OK;
    RETURN_IF(scan_tensor(&s, c, tensor, &finite, err));
    *has_nan = !finite && !s.unread;
    return FSDPCK_OK;
}
