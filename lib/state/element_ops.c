#include "state/element_ops.h"

#include <string.h>

#include "state/cast.h"

static void swap_units(uint8_t *p, uint64_t nunits, unsigned unit_nbytes)
{
    for (uint64_t i = 0; i < nunits; i++, p += unit_nbytes) {
        if (unit_nbytes == 2) {
            uint16_t v;
            memcpy(&v, p, 2);
            v = __builtin_bswap16(v);
            memcpy(p, &v, 2);
        } else if (unit_nbytes == 4) {
            uint32_t v;
            memcpy(&v, p, 4);
            v = __builtin_bswap32(v);
            memcpy(p, &v, 4);
        } else {
            uint64_t v;
            memcpy(&v, p, 8);
            v = __builtin_bswap64(v);
            memcpy(p, &v, 8);
        }
    }
}

/* Flips the top bit of the last byte of every stride: the sign of a little-endian float. */
static void flip_signs(uint8_t *p, uint64_t n, unsigned stride)
{
    for (uint64_t i = 0; i < n; i++)
        p[i * stride + stride - 1] ^= 0x80;
}

static void negate_ints(uint8_t *p, uint64_t n, unsigned itemsize)
{
    for (uint64_t i = 0; i < n; i++, p += itemsize) {
        uint64_t v = 0;
        memcpy(&v, p, itemsize);
        v = 0 - v;
        memcpy(p, &v, itemsize);
    }
}

static void add_float32(uint8_t *p, uint64_t n, float constant)
{
    for (uint64_t i = 0; i < n; i++, p += sizeof constant) {
        float v;
        memcpy(&v, p, sizeof v);
        v += constant;
        memcpy(p, &v, sizeof v);
    }
}

static void add_float64(uint8_t *p, uint64_t n, double constant)
{
    for (uint64_t i = 0; i < n; i++, p += sizeof constant) {
        double v;
        memcpy(&v, p, sizeof v);
        v += constant;
        memcpy(p, &v, sizeof v);
    }
}

static void add_constant(const element_ops *c, uint8_t *elements, uint64_t n)
{
    const size_t itemsize = dtype_get(c->from)->itemsize_bytes;
    float wide[256];
    if (c->from == DTYPE_FLOAT64) {
        add_float64(elements, n, c->add);
        return;
    }
    if (c->from == DTYPE_FLOAT32) {
        add_float32(elements, n, c->add);
        return;
    }
    while (n > 0) {
        const uint64_t count = n < sizeof wide / sizeof *wide ? n : sizeof wide / sizeof *wide;
        cast_elements(c->from, DTYPE_FLOAT32, wide, elements, count);
        add_float32((uint8_t *)wide, count, c->add);
        cast_elements(DTYPE_FLOAT32, c->from, elements, wide, count);
        elements += count * itemsize;
        n -= count;
    }
}

static void negate(const dtype_info *info, uint8_t *elements, uint64_t n)
{
    const unsigned itemsize = info->itemsize_bytes;
    if (info->kind == DTYPE_IS_COMPLEX)
        flip_signs(elements, 2 * n, itemsize / 2);
    else if (info->kind == DTYPE_IS_FLOAT)
        flip_signs(elements, n, itemsize);
    else if (info->kind == DTYPE_IS_INT)
        negate_ints(elements, n, itemsize);
}

void element_ops_resolve(const element_ops *c, uint8_t *elements, uint64_t n)
{
    const dtype_info *info = dtype_get(c->from);
    const unsigned itemsize = info->itemsize_bytes;
    if (c->swap && info->swap_nbytes > 1)
        swap_units(elements, n * (itemsize / info->swap_nbytes), info->swap_nbytes);
    if (c->conj && info->kind == DTYPE_IS_COMPLEX)
        flip_signs(elements, n, itemsize);
    if (c->neg)
        negate(info, elements, n);
    if (c->add != 0)
        add_constant(c, elements, n);
}

uint64_t element_ops_box(const element_ops *c, const strided *s, uint8_t *dst, const uint8_t *src,
                         uint8_t *scratch)
{
    const size_t from_size = dtype_get(c->from)->itemsize_bytes;
    const size_t to_size = dtype_get(c->to)->itemsize_bytes;
    uint64_t dense[NDIM_MAX];
    box_split split;
    strided in;
    strided out;
    uint64_t overflows = 0;

    /* Blocks are cut by their number of elements: the span of row-major strides in items. */
    box_row_major_strides(s->sizes, s->ndim, dense);
    box_split_begin(&split, s->ndim, s->sizes, dense, 1, ELEMENT_OPS_BLOCK);
    while (box_split_next(&split)) {
        const uint64_t n = split.span_bytes;
        uint64_t src_at = 0;
        uint64_t dst_at = 0;
        uint64_t stride = 1;
        in.ndim = out.ndim = s->ndim;
        for (unsigned d = s->ndim; d-- > 0;) {
            src_at += split.at[d] * s->src_strides[d];
            dst_at += split.at[d] * s->dst_strides[d];
            in.sizes[d] = out.sizes[d] = split.part[d];
            in.src_strides[d] = s->src_strides[d];
            in.dst_strides[d] = stride * from_size;
            out.src_strides[d] = stride * to_size;
            out.dst_strides[d] = s->dst_strides[d];
            stride *= split.part[d];
        }
        uint8_t *now = scratch;
        strided_collapse(&in);
        strided_copy(&in, from_size, now, src + src_at);
        element_ops_resolve(c, now, n);
        strided_collapse(&out);
        const bool plain = strided_is_run(&out, to_size, to_size);
        if (c->from != c->to) {
            uint8_t *cast = plain ? dst + dst_at : scratch + ELEMENT_OPS_SCRATCH_NBYTES / 2;
            overflows += cast_elements(c->from, c->to, cast, now, n);
            now = cast;
        }
        if (now != dst + dst_at)
            strided_copy(&out, to_size, dst + dst_at, now);
    }
    return overflows;
}
