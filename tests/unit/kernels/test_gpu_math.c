/* Casts as a device does them against those of the processor. */
#include <criterion/criterion.h>

#include "kernels/gpu_math.h"
#include "state/cast.h"

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

static uint64_t draw(uint64_t *state)
{
    uint64_t z = *state += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

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

/* Element number i of all that a type of up to 16 bits has, of the upper halves of float32 with a few
 * lower ones, or by chance with exponents that matter. */
static uint64_t element(const kind *from, uint64_t i, uint64_t *state)
{
    static const uint32_t tails[] = {0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF, 0x1000, 0xFFF};
    const uint64_t r = draw(state);
    if (from->type == DTYPE_FLOAT32)
        return (i % 65536) << 16 | (i < 65536 * 8 ? tails[i / 65536] : r & 0xFFFF);
    if (from->type != DTYPE_FLOAT64)
        return i;
    if (i % 4 == 0) /* exponents of float32, and its ties */
        return (r & 0x800FFFFFE0000000u) | (0x380ull - 30 + r % 320) << 52 | (r >> 8 & 0x10000000u);
    if (i % 4 == 1)
        return (r & 0x800FFFFFFFFFFFFFu) | 0x7FFull << 52;
    return i % 4 == 2 ? r : (r & 0x8000000000000000u) | 0x7FFull << 52;
}

Test(gpu_math, casts_give_the_bits_of_the_processor)
{
    static uint8_t src[CHUNK * 8];
    uint64_t state = 7;
    for (unsigned f = 0; f < KINDS; f++) {
        const unsigned nbytes = dtype_get(kinds[f].type)->itemsize_bytes;
        const uint64_t all = nbytes == 1 ? 256 : nbytes == 2 ? 65536 : (uint64_t)65536 * 10;
        for (uint64_t at = 0; at < all; at += CHUNK) {
            const uint64_t n = all - at < CHUNK ? all - at : CHUNK;
            for (uint64_t i = 0; i < n; i++) {
                const uint64_t bits = element(&kinds[f], at + i, &state);
                memcpy(src + i * nbytes, &bits, nbytes);
            }
            for (unsigned t = 0; t < KINDS; t++)
                if (t != f)
                    compare(&kinds[f], &kinds[t], src, n);
        }
    }
}
