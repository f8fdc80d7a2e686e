/* bytes.h: reading and writing integers of a stated byte order at any alignment. */
#ifndef FSDPCK_BASE_BYTES_H
#define FSDPCK_BASE_BYTES_H

#include <stdint.h>

static inline uint16_t load_le16(const uint8_t *p)
{
    return (uint16_t)(p[0] | (p[1] << 8));
}

static inline uint32_t load_le32(const uint8_t *p)
{
    return (uint32_t)p[0] | ((uint32_t)p[1] << 8) | ((uint32_t)p[2] << 16) | ((uint32_t)p[3] << 24);
}

static inline uint64_t load_le64(const uint8_t *p)
{
    return (uint64_t)load_le32(p) | ((uint64_t)load_le32(p + 4) << 32);
}

static inline uint64_t load_be64(const uint8_t *p)
{
    return __builtin_bswap64(load_le64(p));
}

static inline void store_le16(uint8_t *p, uint16_t v)
{
    p[0] = (uint8_t)v;
    p[1] = (uint8_t)(v >> 8);
}

static inline void store_le32(uint8_t *p, uint32_t v)
{
    store_le16(p, (uint16_t)v);
    store_le16(p + 2, (uint16_t)(v >> 16));
}

static inline void store_le64(uint8_t *p, uint64_t v)
{
    store_le32(p, (uint32_t)v);
    store_le32(p + 4, (uint32_t)(v >> 32));
}

static inline void store_be64(uint8_t *p, uint64_t v)
{
    store_le64(p, __builtin_bswap64(v));
}

#endif
