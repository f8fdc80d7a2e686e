/* Launches of a simulated GPU: gpu_body.h as its threads run it, or separate code. */
#include <string.h>

#include "base/crc.h"
#include "kernels/gpu_body.h"
#include "kernels/gpu_crc_body.h"
#include "state/cast.h"
#include "tests/support/fake_gpu.h"
#include "tests/support/must.h"

/* A launch with the host's addresses. */
typedef struct launch {
    const gpu_batch *p;
    const gpu_box *boxes;
    const gpu_dim *dims;
    const uint8_t *src;
    uint8_t *dst;
    uint64_t *lost;
} launch;

static uint32_t find_box(const launch *l, uint32_t task)
{
    gpu_search search = {0, l->p->count};
    while (search.count > 1) {
        uint32_t number = 0;
        for (uint32_t thread = 0; thread < GPU_THREADS; thread++)
            number += gpu_search_compare(&search, l->boxes, task, thread, GPU_THREADS);
        gpu_search_narrow(&search, number, GPU_THREADS);
    }
    return search.first;
}

static void place_by_bodies(const launch *l)
{
    uint64_t lost = 0;
    for (uint32_t task = 0; task < l->p->tasks; task++) {
        const gpu_box *box = l->boxes + find_box(l, task);
        for (uint32_t thread = 0; thread < GPU_THREADS; thread++)
            lost += gpu_run_task(box, l->dims, l->src, l->dst, task, thread, GPU_THREADS);
    }
    *l->lost += lost;
}

static dtype dtype_of(unsigned number)
{
    static const dtype types[] = {
        [GPU_FLOAT16] = DTYPE_FLOAT16,
        [GPU_BFLOAT16] = DTYPE_BFLOAT16,
        [GPU_FLOAT32] = DTYPE_FLOAT32,
        [GPU_FLOAT64] = DTYPE_FLOAT64,
        [GPU_FLOAT8_E4M3FN] = DTYPE_FLOAT8_E4M3FN,
        [GPU_FLOAT8_E5M2] = DTYPE_FLOAT8_E5M2,
        [GPU_FLOAT8_E4M3FNUZ] = DTYPE_FLOAT8_E4M3FNUZ,
        [GPU_FLOAT8_E5M2FNUZ] = DTYPE_FLOAT8_E5M2FNUZ,
        [GPU_FLOAT8_E8M0FNU] = DTYPE_FLOAT8_E8M0FNU,
    };
    return types[number];
}

static uint64_t convert_one(const gpu_box *b, uint8_t *dst, const uint8_t *src)
{
    uint8_t in[16], flip[16];
    memcpy(in, src, b->from_nbytes);
    memcpy(flip, b->flip, sizeof flip);
    for (unsigned u = 0; b->swap_nbytes > 1 && u < b->from_nbytes; u += b->swap_nbytes)
        for (unsigned i = 0; i < b->swap_nbytes; i++)
            in[u + i] = src[u + b->swap_nbytes - 1 - i];
    for (unsigned i = 0; i < b->from_nbytes; i++)
        in[i] ^= flip[i];
    for (unsigned i = 0, carry = 1; b->negate && i < b->from_nbytes; i++) {
        const unsigned v = (uint8_t)~in[i] + carry;
        in[i] = (uint8_t)v;
        carry = v >> 8;
    }
    if (b->from != b->to)
        return cast_elements(dtype_of(b->from), dtype_of(b->to), dst, in, 1);
    memcpy(dst, in, b->to_nbytes);
    return 0;
}

/* Of the last dim. */
static size_t unit_nbytes(const gpu_box *b)
{
    return b->way == GPU_WAY_UNITS ? (size_t)1 << b->dst_log2 : 1;
}

/* By loops of its own, over the dims that the box has. */
static void place_by_reference(const launch *l)
{
    for (uint32_t i = 0; i < l->p->count; i++) {
        const gpu_box *b = &l->boxes[i];
        const gpu_dim *dims = l->dims + b->dims_at;
        uint64_t at[GPU_DIMS_MAX] = {0};
        const gpu_dim *last = dims + b->ndim - 1;
        const size_t unit = unit_nbytes(b);
        const uint64_t count =
            b->way == GPU_WAY_LINES ? b->nelems / last->lines * last->size : b->nelems;
        for (uint64_t n = 0; n < count; n++) {
            const uint8_t *src = l->src + b->src;
            uint8_t *dst = l->dst + b->dst;
            for (unsigned d = 0; d < b->ndim; d++) {
                src += at[d] * dims[d].src;
                dst += at[d] * dims[d].dst;
            }
            if (b->way >= GPU_WAY_CHANGE)
                *l->lost += convert_one(b, dst, src);
            else
                memcpy(dst, src, unit);
            for (unsigned d = b->ndim; d-- > 0 && ++at[d] == dims[d].size;)
                at[d] = 0;
        }
    }
}

static uint64_t crc_by_bodies(const gpu_crc *c, const uint8_t *bytes)
{
    uint64_t table[256], sums[GPU_CRC_THREADS], crc = 0;
    for (uint32_t i = 0; i < 256; i++)
        table[i] = gpu_crc_entry(c, i);
    for (uint32_t block = 0; block < c->blocks; block++) {
        for (uint32_t t = 0; t < GPU_CRC_THREADS; t++)
            sums[t] = gpu_crc_words(c, table, bytes, block, t);
        for (unsigned level = 0; level < GPU_CRC_LEVELS; level++)
            for (uint32_t t = 0; t < gpu_crc_pairs(level); t++) {
                uint64_t *pair = sums + gpu_crc_pair(level, t);
                *pair = gpu_crc_join(c, level, pair);
            }
        crc ^= gpu_crc_block(c, sums[0], block);
    }
    return crc;
}

void fake_crc(fake_gpu *f, gpu_address at, uint64_t nbytes, gpu_address crc)
{
    gpu_crc c;
    uint64_t *word = (uint64_t *)(void *)fake_device_bytes(f, crc, 8);
    MUST(gpu_crc_prepare(&c, at, nbytes));
    (void)fake_device_bytes(f, c.at, c.count * 8);
    if (f->bodies)
        *word ^= crc_by_bodies(&c, fake_device_bytes(f, c.at, 8));
    else
        *word ^= crc64_shift(crc64_raw(0, fake_device_bytes(f, at, nbytes), nbytes),
                             (8 - (at + nbytes) % 8) % 8);
}

static void note_least(atomic_uint_fast64_t *least, uint64_t value)
{
    uint_fast64_t now = atomic_load(least);
    while ((now == 0 || value < now) && !atomic_compare_exchange_weak(least, &now, value))
        continue;
}

/* All bytes of each box lie in one allocation. */
static void check_boxes(fake_gpu *f, const launch *l)
{
    for (uint32_t i = 0; i < l->p->count; i++) {
        const gpu_box *b = &l->boxes[i];
        const gpu_dim *dims = l->dims + b->dims_at;
        const uint64_t unit = unit_nbytes(b);
        const bool converts = b->way >= GPU_WAY_CHANGE;
        uint64_t src = converts ? b->from_nbytes : unit, dst = converts ? b->to_nbytes : unit;
        for (unsigned d = 0; d < b->ndim; d++) {
            src += (uint64_t)(dims[d].size - 1) * dims[d].src;
            dst += (uint64_t)(dims[d].size - 1) * dims[d].dst;
        }
        if (converts)
            note_least(&f->convert_align, (uint64_t)1 << b->src_log2);
        (void)fake_device_bytes(f, l->p->src + b->src, src);
        (void)fake_device_bytes(f, l->p->dst + b->dst, dst);
    }
}

void fake_launch(fake_gpu *f, const gpu_batch *p)
{
    const launch l = {.p = p,
                      .boxes = (const gpu_box *)(void *)fake_device_bytes(
                          f, p->boxes, p->count * sizeof(gpu_box)),
                      .dims = (const gpu_dim *)(void *)fake_device_bytes(f, p->dims, 1),
                      .src = fake_device_bytes(f, p->src, 1),
                      .dst = fake_device_bytes(f, p->dst, 1),
                      .lost = (uint64_t *)(void *)fake_device_bytes(f, p->lost, 8)};
    MUST(p->src % 16 == 0 && p->dst % 16 == 0 && p->boxes % 8 == 0 && p->dims % 8 == 0);
    if (p->sum != 0 &&
        *(const uint64_t *)(void *)fake_device_bytes(f, p->sum, 8) != p->sum_expected)
        return;
    check_boxes(f, &l);
    if (f->bodies)
        place_by_bodies(&l);
    else
        place_by_reference(&l);
    if (f->wrong)
        l.dst[l.boxes[0].dst] ^= 1;
}
