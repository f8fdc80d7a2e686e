#include "formats/hdf5/hdf5_record_writer.h"

#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/child.h"

#define WRITE_NBYTES ((size_t)64 << 10)

static uint8_t *room(hdf5_record_writer *p, size_t wanted)
{
    const size_t nbytes = p->begun ? wanted : wanted + HDF5_HEAD_NBYTES;
    if (p->failed)
        return NULL;
    if (!p->begun)
        p->begin = p->nbytes;
    p->begun = true;
    if (p->capacity - p->nbytes < nbytes) {
        const size_t capacity = 2 * (p->nbytes + nbytes) + 4096;
        uint8_t *grown = realloc(p->bytes, capacity);
        if (grown == NULL) {
            p->failed = true;
            return NULL;
        }
        p->bytes = grown;
        p->capacity = capacity;
    }
    p->nbytes += nbytes;
    return p->bytes + p->nbytes - wanted;
}

void put_bytes(hdf5_record_writer *p, const void *bytes, size_t nbytes)
{
    uint8_t *dst = room(p, nbytes);
    if (dst != NULL && nbytes > 0)
        memcpy(dst, bytes, nbytes);
}

void put_u8(hdf5_record_writer *p, unsigned v)
{
    const uint8_t byte = v > UINT8_MAX ? UINT8_MAX : (uint8_t)v;
    put_bytes(p, &byte, 1);
}

void put_u32(hdf5_record_writer *p, uint64_t v)
{
    uint8_t *dst = room(p, 4);
    if (dst != NULL)
        store_le32(dst, v > UINT32_MAX ? UINT32_MAX : (uint32_t)v);
}

void put_u64(hdf5_record_writer *p, uint64_t v)
{
    uint8_t *dst = room(p, 8);
    if (dst != NULL)
        store_le64(dst, v);
}

void put_text(hdf5_record_writer *p, const char *text, size_t nbytes)
{
    put_u32(p, nbytes);
    put_bytes(p, text, nbytes);
}

static void write_all(hdf5_record_writer *p)
{
    if (!p->failed && !child_write(p->fd, p->bytes, p->nbytes))
        p->failed = true;
    p->nbytes = 0;
}

void put_record(hdf5_record_writer *p, hdf5_record kind)
{
    if (!p->begun)
        (void)room(p, 0);
    if (p->failed)
        return;
    uint8_t *head = p->bytes + p->begin;
    store_le32(head, (uint32_t)kind);
    store_le32(head + 4, (uint32_t)(p->nbytes - p->begin - HDF5_HEAD_NBYTES));
    p->begun = false;
    p->datasets += kind == HDF5_DATASET;
    if (p->nbytes >= WRITE_NBYTES)
        write_all(p);
}

void put_drop(hdf5_record_writer *p)
{
    if (p->begun)
        p->nbytes = p->begin;
    p->begun = false;
}

bool put_finish(hdf5_record_writer *p)
{
    if (!p->begun)
        write_all(p);
    free(p->bytes);
    p->bytes = NULL;
    return !p->failed;
}
