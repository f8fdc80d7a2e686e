/* Casts as a device does them against those of the processor. */
#include <criterion/criterion.h>

#include "kernels/gpu_body.h"
#include "state/cast.h"
#include "tests/support/cast_edge.h"

typedef struct kind {
    gpu_dtype number;
    dtype type;
} kind;

static const kind kinds[] = {
    {GPU_FLOAT16, DTYPE_FLOAT16},
    {GPU_BFLOAT16, DTYPE_BFLOAT16},
    {GPU_FLOAT32, DTYPE_FLOAT32},
    {GPU_FLOAT64, DTYPE_FLOAT64},
    {GPU_FLOAT8_E4M3FN, DTYPE_FLOAT8_E4M3FN},
    {GPU_FLOAT8_E5M2, DTYPE_FLOAT8_E5M2},
    {GPU_FLOAT8_E4M3FNUZ, DTYPE_FLOAT8_E4M3FNUZ},
    {GPU_FLOAT8_E5M2FNUZ, DTYPE_FLOAT8_E5M2FNUZ},
    {GPU_FLOAT8_E8M0FNU, DTYPE_FLOAT8_E8M0FNU},
};
enum { KINDS = sizeof kinds / sizeof kinds[0], CHUNK = 4096 };

static void compare(const kind *from, const kind *to, const uint8_t *src, uint64_t n)
{
    static uint8_t want[CHUNK * 8];
    const unsigned from_nbytes = dtype_get(from->type)->itemsize_bytes;
    const unsigned to_nbytes = dtype_get(to->type)->itemsize_bytes;
    const uint64_t want_lost = cast_elements(from->type, to->type, want, src, n);
    uint64_t lost = 0;
    for (uint64_t i = 0; i < n; i++) {
        uint64_t bits = 0, expected = 0;
        uint32_t one = 0;
        memcpy(&bits, src + i * from_nbytes, from_nbytes);
        memcpy(&expected, want + i * to_nbytes, to_nbytes);
        const uint64_t got = gpu_cast(from->number, to->number, bits, &one);
        cr_assert_eq(got, expected, "%s %#llx to %s: %#llx instead of %#llx",
                     dtype_get(from->type)->name, (unsigned long long)bits,
                     dtype_get(to->type)->name, (unsigned long long)got,
                     (unsigned long long)expected);
        lost += one;
    }
    cr_assert_eq(lost, want_lost, "%s to %s", dtype_get(from->type)->name,
                 dtype_get(to->type)->name);
}

/* All tasks of the box, by all threads. */
static uint64_t run(const gpu_copy *copy, uint8_t *dst, const uint8_t *src, unsigned way)
{
    gpu_box box;
    gpu_dim dims[4];
    uint64_t lost = 0;
    cr_assert(gpu_box_prepare(&box, dims, copy));
    cr_assert_eq(box.way, way);
    box.first_task = box.dims_at = 0;
    for (uint32_t task = 0; task < box.tasks; task++)
        for (uint32_t thread = 0; thread < GPU_THREADS; thread++)
            lost += gpu_run_task(&box, dims, src, dst, task, thread, GPU_THREADS);
    return lost;
}

/* The same by tasks: elements number `skip` on as one row, and the first ones as rows of 25 with gaps of
 * three, also to columns. */
static void compare_tasks(const kind *from, const kind *to, const uint8_t *src, uint64_t n,
                          uint64_t skip)
{
    static uint8_t want[CHUNK * 8] __attribute__((aligned(16)));
    static uint8_t got[CHUNK * 8 + 16] __attribute__((aligned(16)));
    static uint8_t wide[CHUNK * 9] __attribute__((aligned(16)));
    const uint64_t from_nbytes = dtype_get(from->type)->itemsize_bytes;
    const uint64_t to_nbytes = dtype_get(to->type)->itemsize_bytes;
    const uint64_t count = n - skip - 3, rows = n / 28;
    uint64_t want_lost = cast_elements(from->type, to->type, want, src + skip * from_nbytes, count);
    gpu_copy copy = {.src = skip * from_nbytes,
                     .dst = (skip + 1) % 3 * to_nbytes,
                     .ndim = 1,
                     .sizes = &count,
                     .src_strides = &from_nbytes,
                     .dst_strides = &to_nbytes,
                     .from = from->number,
                     .to = to->number,
                     .from_nbytes = (unsigned)from_nbytes,
                     .to_nbytes = (unsigned)to_nbytes};
    memset(got, 0x5A, sizeof got);
    cr_assert_eq(run(&copy, got, src, GPU_WAY_CAST_ROWS), want_lost);
    cr_assert_arr_eq(got + copy.dst, want, count * to_nbytes);
    cr_assert_eq(got[copy.dst + count * to_nbytes], 0x5A);

    const uint64_t sizes[2] = {rows, 25}, src_strides[2] = {28 * from_nbytes, from_nbytes};
    const uint64_t row_strides[2] = {28 * to_nbytes, to_nbytes};
    const uint64_t column_strides[2] = {to_nbytes, rows * to_nbytes};
    copy = (gpu_copy){.ndim = 2,
                      .sizes = sizes,
                      .src_strides = src_strides,
                      .dst_strides = row_strides,
                      .from = from->number,
                      .to = to->number,
                      .from_nbytes = (unsigned)from_nbytes,
                      .to_nbytes = (unsigned)to_nbytes};
    memset(wide, 0x5A, sizeof wide);
    memset(want, 0x5A, sizeof want);
    want_lost = 0;
    for (uint64_t r = 0; r < rows; r++)
        want_lost += cast_elements(from->type, to->type, want + r * 28 * to_nbytes,
                                   src + r * 28 * from_nbytes, 25);
    cr_assert_eq(run(&copy, wide, src, GPU_WAY_CAST_ROWS), want_lost);
    cr_assert_arr_eq(wide, want, rows * 28 * to_nbytes);

    copy.dst_strides = column_strides;
    cr_assert_eq(run(&copy, wide, src, GPU_WAY_CAST), want_lost);
    for (uint64_t i = 0; i < rows * 25; i++)
        cr_assert_arr_eq(wide + i * to_nbytes, want + (i % rows * 28 + i / rows) * to_nbytes,
                         to_nbytes);
}

Test(gpu_math, casts_give_the_bits_of_the_processor)
{
    static uint8_t src[CHUNK * 8] __attribute__((aligned(16)));
    uint64_t state = 7;
    for (unsigned f = 0; f < KINDS; f++) {
        const unsigned nbytes = dtype_get(kinds[f].type)->itemsize_bytes;
        const uint64_t all = nbytes == 1 ? 256 : nbytes == 2 ? 65536 : (uint64_t)65536 * 10;
        for (uint64_t at = 0; at < all; at += CHUNK) {
            const uint64_t n = all - at < CHUNK ? all - at : CHUNK;
            for (uint64_t i = 0; i < n; i++) {
                const uint64_t bits = cast_edge(kinds[f].type, at + i, &state);
                memcpy(src + i * nbytes, &bits, nbytes);
            }
            for (unsigned t = 0; t < KINDS; t++)
                if (t != f) {
                    compare(&kinds[f], &kinds[t], src, n);
                    compare_tasks(&kinds[f], &kinds[t], src, n, at / CHUNK % 9);
                }
        }
    }
}
