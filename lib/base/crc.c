#include "base/crc.h"

#include <isa-l/crc.h>
#include <isa-l/crc64.h>

#include "base/bytes.h"

/* A reflected CRC: bit `top` stands for x^0, bit 0 for the highest power. */
struct crc_field {
    uint64_t top;
    uint64_t polynomial;
    const uint64_t *powers; /* x^8, then its squares: [i] moves up by 2^i bytes */
};

static const uint64_t powers32[64] = {
    0x00800000, 0x00008000, 0xEDB88320, 0xB1E6B092, 0xA06A2517, 0xED627DAE, 0x88D14467, 0xD7BBFE6A,
    0xEC447F11, 0x8E7EA170, 0x6427800E, 0x4D47BAE0, 0x09FE548F, 0x83852D0F, 0x30362F1A, 0x7B5A9CC3,
    0x31FEC169, 0x9FEC022A, 0x6C8DEDC4, 0x15D6874D, 0x5FDE7A4E, 0xBAD90E37, 0x2E4E5EEF, 0x4EABA214,
    0xA8A472C0, 0x429A969E, 0x148D302A, 0xC40BA6D0, 0xC4E22C3C, 0x40000000, 0x20000000, 0x08000000,
    0x00800000, 0x00008000, 0xEDB88320, 0xB1E6B092, 0xA06A2517, 0xED627DAE, 0x88D14467, 0xD7BBFE6A,
    0xEC447F11, 0x8E7EA170, 0x6427800E, 0x4D47BAE0, 0x09FE548F, 0x83852D0F, 0x30362F1A, 0x7B5A9CC3,
    0x31FEC169, 0x9FEC022A, 0x6C8DEDC4, 0x15D6874D, 0x5FDE7A4E, 0xBAD90E37, 0x2E4E5EEF, 0x4EABA214,
    0xA8A472C0, 0x429A969E, 0x148D302A, 0xC40BA6D0, 0xC4E22C3C, 0x40000000, 0x20000000, 0x08000000,
};

static const uint64_t powers64[64] = {
    UINT64_C(0x0080000000000000), UINT64_C(0x0000800000000000), UINT64_C(0x0000000080000000),
    UINT64_C(0xC96C5795D7870F42), UINT64_C(0x6D5F4AD7E3C3AFA0), UINT64_C(0xD49F7E445077D8EA),
    UINT64_C(0x040FB02A53C216FA), UINT64_C(0x6BEC35957B9EF3A0), UINT64_C(0xB0E3BB0658964AFE),
    UINT64_C(0x218578C7A2DFF638), UINT64_C(0x6DBB920F24DD5CF2), UINT64_C(0x7A140CFCDB4D5EB5),
    UINT64_C(0x41B3705ECBC4057B), UINT64_C(0xD46AB656ACCAC1EA), UINT64_C(0x329BEDA6FC34FB73),
    UINT64_C(0x51A4FCD4350B9797), UINT64_C(0x314FA85637EFAE9D), UINT64_C(0xACF27E9A1518D512),
    UINT64_C(0xFFE2A3388A4D8CE7), UINT64_C(0x48B9697E60CC2E4E), UINT64_C(0xADA73CB78DD62460),
    UINT64_C(0x3EA5454D8CE5C1BB), UINT64_C(0x5E84E3A6C70FEAF1), UINT64_C(0x90FD49B66CBD81D1),
    UINT64_C(0xE2943E0C1DB254E8), UINT64_C(0xECFA6ADECA8834A1), UINT64_C(0xF513E212593EE321),
    UINT64_C(0xF36AE57331040916), UINT64_C(0x63FBD333B87B6717), UINT64_C(0xBD60F8E152F50B8B),
    UINT64_C(0xA5CE4A8299C1567D), UINT64_C(0x0BD445F0CBDB55EE), UINT64_C(0xFDD6824E20134285),
    UINT64_C(0xCEAD8B6EBDA2227A), UINT64_C(0xE44B17E4F5D4FB5C), UINT64_C(0x9B29C81AD01CA7C5),
    UINT64_C(0x1B4366E40FEA4055), UINT64_C(0x27BCA1551AAE167B), UINT64_C(0xAA57BCD1B39A5690),
    UINT64_C(0xD7FCE83FA1234DB9), UINT64_C(0xCCE4986EFEA3FF8E), UINT64_C(0x3602A4D9E65341F1),
    UINT64_C(0x722B1DA2DF516145), UINT64_C(0xECFC3DDD3A08DA83), UINT64_C(0x0FB96DCCA83507E6),
    UINT64_C(0x125F2FE78D70F080), UINT64_C(0x842F50B7651AA516), UINT64_C(0x09BC34188CD9836F),
    UINT64_C(0xF43666C84196D909), UINT64_C(0xB56FEB30C0DF6CCB), UINT64_C(0xAA66E04CE7F30958),
    UINT64_C(0xB7B1187E9AF29547), UINT64_C(0x113255F8476495DE), UINT64_C(0x8FB19F783095D77E),
    UINT64_C(0xAEC4AACC7C82B133), UINT64_C(0xF64E6D09218428CF), UINT64_C(0x036A72EA5AC258A0),
    UINT64_C(0x5235EF12EB7AAA6A), UINT64_C(0x2FED7B1685657853), UINT64_C(0x8EF8951D46606FB5),
    UINT64_C(0x9D58C1090F034D14), UINT64_C(0x36F6C59A9FDAA97B), UINT64_C(0xBE2D517D98682592),
    UINT64_C(0x7BCD738FEF5729F1),
};

static const struct crc_field field32 = {UINT64_C(1) << 31, 0xEDB88320, powers32};
static const struct crc_field field64 = {UINT64_C(1) << 63, 0xC96C5795D7870F42, powers64};

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
    for (unsigned i = 0; crc_a != 0 && nbytes_b != 0; i++, nbytes_b >>= 1)
        if (nbytes_b & 1)
            crc_a = multiply(field, crc_a, field.powers[i]);
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

uint64_t crc64_add_u64(uint64_t crc, uint64_t number)
{
    uint8_t bytes[8];
    store_le64(bytes, number);
    return crc64_update(crc, bytes, sizeof bytes);
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

uint64_t crc64_raw(uint64_t raw, const void *bytes, uint64_t nbytes)
{
    return nbytes > 0 ? ~crc64_ecma_refl(~raw, bytes, nbytes) : raw;
}

uint64_t crc64_shift(uint64_t raw, uint64_t nbytes)
{
    return join(field64, raw, 0, nbytes);
}

uint64_t crc64_power(uint64_t nbytes)
{
    return join(field64, field64.top, 0, nbytes);
}

uint64_t crc64_multiply(uint64_t a, uint64_t b)
{
    return multiply(field64, a, b);
}

void crc64_shifter_init(crc64_shifter *m, uint64_t nbytes)
{
    uint64_t moved = crc64_power(nbytes);
    for (unsigned byte = 8; byte-- > 0;) {
        uint64_t *row = m->rows[byte];
        row[0] = 0;
        for (unsigned bit = 128; bit > 0; bit /= 2) {
            row[bit] = moved;
            moved = (moved >> 1) ^ (field64.polynomial & (0 - (moved & 1)));
        }
        for (unsigned i = 3; i < 256; i++)
            if ((i & (i - 1)) != 0)
                row[i] = row[i & (i - 1)] ^ row[i & (0 - i)];
    }
}
