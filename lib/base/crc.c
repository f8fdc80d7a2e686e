#include "base/crc.h"

#include <isa-l/crc.h>
#include <isa-l/crc64.h>

/* A reflected CRC: bit `top` stands for x^0, bit 0 for the highest power. */
struct crc_field {
    uint64_t top;
    uint64_t polynomial;
};

static const struct crc_field field32 = {UINT64_C(1) << 31, 0xEDB88320};
static const struct crc_field field64 = {UINT64_C(1) << 63, 0xC96C5795D7870F42};

static uint64_t multiply(struct crc_field field, uint64_t a, uint64_t b)
{
    uint64_t product = 0;
    for (uint64_t bit = field.top; bit != 0; bit >>= 1) {
        if (a & bit)
            product ^= b;
        b = (b >> 1) ^ (field.polynomial & (0 - (b & 1)));
    }
    return product;
}

/* crc_a * x^(8 * nbytes_b) + crc_b. The inversions before and after cancel: both CRCs carry
 * them. */
static uint64_t join(struct crc_field field, uint64_t crc_a, uint64_t crc_b, uint64_t nbytes_b)
{
    uint64_t power = field.top >> 8; /* x^8, then its squares */
    for (; nbytes_b != 0; nbytes_b >>= 1) {
        if (nbytes_b & 1)
            crc_a = multiply(field, crc_a, power);
        if (nbytes_b > 1)
            power = multiply(field, power, power);
    }
    return crc_a ^ crc_b;
}

/* Doubling: the CRC of 2n zeros is the CRC of n of them, twice. */
static uint64_t zeros(struct crc_field field, uint64_t one, uint64_t nbytes)
{
    uint64_t crc = 0;
    unsigned bit = 64;
    while (bit > 0 && (nbytes >> (bit - 1) & 1) == 0)
        bit--;
    for (uint64_t done = 0; bit > 0; bit--) {
        crc = join(field, crc, crc, done);
        done *= 2;
        if (nbytes >> (bit - 1) & 1) {
            crc = join(field, crc, one, 1);
            done++;
        }
    }
    return crc;
}

uint32_t crc32_update(uint32_t crc, const void *bytes, uint64_t nbytes)
{
    return nbytes > 0 ? crc32_gzip_refl(crc, bytes, nbytes) : crc;
}

uint64_t crc64_update(uint64_t crc, const void *bytes, uint64_t nbytes)
{
    return nbytes > 0 ? crc64_ecma_refl(crc, bytes, nbytes) : crc;
}

uint32_t crc32_join(uint32_t crc_a, uint32_t crc_b, uint64_t nbytes_b)
{
    return (uint32_t)join(field32, crc_a, crc_b, nbytes_b);
}

uint64_t crc64_join(uint64_t crc_a, uint64_t crc_b, uint64_t nbytes_b)
{
    return join(field64, crc_a, crc_b, nbytes_b);
}

uint32_t crc32_zeros(uint64_t nbytes)
{
    return (uint32_t)zeros(field32, crc32_update(0, "", 1), nbytes);
}

uint64_t crc64_zeros(uint64_t nbytes)
{
    return zeros(field64, crc64_update(0, "", 1), nbytes);
}
