/* hdf5_record_reader.h: reads a record of hdf5_protocol.h without trusting it: a cursor that
 * returns zeros past the end and sets a flag. */
#ifndef FSDPCK_FORMATS_HDF5_RECORD_READER_H
#define FSDPCK_FORMATS_HDF5_RECORD_READER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/bytes.h"

typedef struct hdf5_record_reader {
    const uint8_t *at;
    size_t left;
    bool failed;
} hdf5_record_reader;

/* NULL if fewer are left. */
static inline const uint8_t *get_bytes(hdf5_record_reader *g, size_t nbytes)
{
    if (g->failed || nbytes > g->left) {
        g->failed = true;
        return NULL;
    }
    const uint8_t *bytes = g->at;
    if (nbytes > 0) /* at may be NULL if nothing is left */
        g->at += nbytes;
    g->left -= nbytes;
    return bytes;
}

static inline uint8_t get_u8(hdf5_record_reader *g)
{
    const uint8_t *p = get_bytes(g, 1);
    return p == NULL ? 0 : p[0];
}

static inline uint32_t get_u32(hdf5_record_reader *g)
{
    const uint8_t *p = get_bytes(g, 4);
    return p == NULL ? 0 : load_le32(p);
}

static inline uint64_t get_u64(hdf5_record_reader *g)
{
    const uint8_t *p = get_bytes(g, 8);
    return p == NULL ? 0 : load_le64(p);
}

#endif
