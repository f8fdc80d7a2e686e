#include "check/scan_elements.h"

#include <string.h>

/* SCAN_CLONES comes from the build: an attribute that makes a function for AVX2 and AVX-512 besides, or nothing. */

/* Elements are handled as unsigned integers: sign, exponent and mantissa suffice for all counts.
 * The largest magnitude and the largest element show that nearly all blocks contain nothing of
 * note. Compilers vectorize these two reductions. Only the other blocks are counted. */
#define BLOCK 4096u

/* Of one kind of float: the bits of infinity, and the sign's. */
#define SCAN(name, type)                                                              \
    SCAN_CLONES static void name(const uint8_t *bytes, uint64_t n, uint64_t infinity, \
                                 uint64_t sign, scan_counts *s)                       \
    {                                                                                 \
        const type inf_bits = (type)infinity, sign_bit = (type)sign;                  \
        for (uint64_t at = 0; at < n; at += BLOCK) {                                  \
            const uint32_t some = n - at < BLOCK ? (uint32_t)(n - at) : BLOCK;        \
            const uint8_t *block = bytes + at * sizeof(type);                         \
            type most = 0, largest = 0;                                               \
            for (uint32_t i = 0; i < some; i++) {                                     \
                type v;                                                               \
                memcpy(&v, block + i * sizeof v, sizeof v);                           \
                const type magnitude = (type)(v & (type)~sign_bit);                   \
                most = v > most ? v : most;                                           \
                largest = magnitude > largest ? magnitude : largest;                  \
            }                                                                         \
            s->zeros += largest == 0 ? some : 0;                                      \
            s->negative = s->negative || (most > sign_bit && largest < inf_bits);     \
            if (largest < inf_bits)                                                   \
                continue;                                                             \
            type nan = 0, inf = 0, below = 0; /* no more than BLOCK: they fit */      \
            for (uint32_t i = 0; i < some; i++) {                                     \
                type v;                                                               \
                memcpy(&v, block + i * sizeof v, sizeof v);                           \
                const type magnitude = (type)(v & (type)~sign_bit);                   \
                nan = (type)(nan + (magnitude > inf_bits));                           \
                inf = (type)(inf + (magnitude == inf_bits));                          \
                below = (type)(below + ((v > sign_bit) & (magnitude <= inf_bits)));   \
            }                                                                         \
            s->nan += nan;                                                            \
            s->inf += inf;                                                            \
            s->negative = s->negative || below > 0;                                   \
        }                                                                             \
        s->nelems += n;                                                               \
    }

SCAN(scan_16, uint16_t)
SCAN(scan_32, uint32_t)
SCAN(scan_64, uint64_t)

/* One byte per element: a table of all codes. */
static void count_8(const uint8_t *bytes, uint32_t n, dtype d, scan_counts *s)
{
    uint64_t counts[256] = {0};
    for (uint32_t i = 0; i < n; i++)
        counts[bytes[i]]++;
    const bool fnuz = d == DTYPE_FLOAT8_E4M3FNUZ || d == DTYPE_FLOAT8_E5M2FNUZ;
    for (unsigned code = 0; code < 256; code++) {
        const unsigned magnitude = code & 0x7f;
        bool nan = fnuz ? code == 0x80 : magnitude == 0x7f;
        const bool inf = d == DTYPE_FLOAT8_E5M2 && magnitude == 0x7c;
        if (d == DTYPE_FLOAT8_E5M2)
            nan = magnitude > 0x7c;
        s->nan += nan ? counts[code] : 0;
        s->inf += inf ? counts[code] : 0;
        s->zeros += !nan && magnitude == 0 ? counts[code] : 0;
        s->negative = s->negative || (!nan && code > 0x80 && counts[code] > 0);
    }
}

SCAN_CLONES static void scan_8(const uint8_t *bytes, uint64_t n, dtype d, scan_counts *s)
{
    const bool fnuz = d == DTYPE_FLOAT8_E4M3FNUZ || d == DTYPE_FLOAT8_E5M2FNUZ;
    const uint8_t odd = fnuz ? 0x80 : d == DTYPE_FLOAT8_E5M2 ? 0x7c : 0x7f;
    for (uint64_t at = 0; at < n; at += BLOCK) {
        const uint32_t some = n - at < BLOCK ? (uint32_t)(n - at) : BLOCK;
        const uint8_t *block = bytes + at;
        uint8_t most = 0, largest = 0, minus_zero = 0;
        for (uint32_t i = 0; i < some; i++) {
            const uint8_t v = block[i], magnitude = v & 0x7f;
            most = v > most ? v : most;
            largest = magnitude > largest ? magnitude : largest;
            minus_zero |= v == 0x80;
        }
        if (largest >= odd || (fnuz && minus_zero)) {
            count_8(block, some, d, s);
            continue;
        }
        s->zeros += largest == 0 ? some : 0;
        s->negative = s->negative || most > 0x80;
    }
    s->nelems += n;
}

/* An exponent alone: neither zero, nor negative, nor infinite. */
SCAN_CLONES static void scan_exponents(const uint8_t *bytes, uint64_t n, scan_counts *s)
{
    for (uint64_t i = 0; i < n; i++)
        s->nan += bytes[i] == 0xff;
    s->nelems += n;
}

bool scan_supported(dtype d)
{
    const dtype_class kind = (dtype_class)dtype_get(d)->kind;
    return (kind == DTYPE_IS_FLOAT || kind == DTYPE_IS_COMPLEX) && dtype_get(d)->packing == 1;
}

/* For most tensors that are not constant, the second element already shows it. */
static void scan_constant(dtype d, const uint8_t *bytes, uint64_t n, scan_counts *s)
{
    const size_t size = dtype_get(d)->itemsize_bytes;
    if (n == 0 || size > sizeof s->first)
        return;
    if (s->nelems == 0) {
        memcpy(s->first, bytes, size);
        s->constant = true;
    }
    s->constant = s->constant && memcmp(s->first, bytes, size) == 0 &&
                  memcmp(bytes, bytes + size, (n - 1) * size) == 0;
}

void scan_add_elements(dtype d, const uint8_t *bytes, uint64_t n, scan_counts *s)
{
    if (!scan_supported(d))
        return;
    scan_constant(d, bytes, n, s);
    const uint64_t sign16 = UINT64_C(1) << 15, sign32 = UINT64_C(1) << 31,
                   sign64 = UINT64_C(1) << 63;
    const uint64_t floats = dtype_get(d)->kind == DTYPE_IS_COMPLEX ? 2 * n : n;
    switch (d) {
    case DTYPE_FLOAT16:
    case DTYPE_COMPLEX32:
        scan_16(bytes, floats, 0x7c00, sign16, s);
        break;
    case DTYPE_BFLOAT16:
    case DTYPE_BCOMPLEX32:
        scan_16(bytes, floats, 0x7f80, sign16, s);
        break;
    case DTYPE_FLOAT32:
    case DTYPE_COMPLEX64:
        scan_32(bytes, floats, 0x7f800000, sign32, s);
        break;
    case DTYPE_FLOAT64:
    case DTYPE_COMPLEX128:
        scan_64(bytes, floats, UINT64_C(0x7ff0000000000000), sign64, s);
        break;
    case DTYPE_FLOAT8_E8M0FNU:
        scan_exponents(bytes, n, s);
        break;
    default:
        scan_8(bytes, n, d, s);
    }
}

void scan_add(scan_counts *to, const scan_counts *from)
{
    if (from->nelems == 0)
        return;
    if (to->nelems == 0) {
        *to = *from;
        return;
    }
    to->constant =
        to->constant && from->constant && memcmp(to->first, from->first, sizeof to->first) == 0;
    to->nelems += from->nelems;
    to->nan += from->nan;
    to->inf += from->inf;
    to->zeros += from->zeros;
    to->negative = to->negative || from->negative;
}
