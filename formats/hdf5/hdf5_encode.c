#include "formats/hdf5/hdf5_encode.h"

#include <stdlib.h>
#include <string.h>
#include <zlib.h>

/* Size of deflate's window and tables, from zlib.h for its defaults. */
#define DEFLATE_NBYTES ((uint64_t)272 << 10)
/* Elements that are shuffled at a time: the input stays in the cache for all their bytes. */
#define BLOCK_NELEMS 1024u

struct hdf5_coder {
    z_stream z;
    bool ready;
    uint8_t *shuffled;
};

uint64_t hdf5_coder_nbytes(uint64_t most_nbytes)
{
    return most_nbytes + DEFLATE_NBYTES;
}

fsdpck_status hdf5_coder_new(unsigned level, uint64_t most_nbytes, hdf5_coder **out,
                             fsdpck_error *err)
{
    hdf5_coder *c = calloc(1, sizeof *c);
    *out = c;
    if (c == NULL)
        return error_set_nomem(err, sizeof *c);
    c->shuffled = malloc(most_nbytes + 1);
    c->ready = c->shuffled != NULL && deflateInit(&c->z, (int)level) == Z_OK;
    if (c->ready)
        return FSDPCK_OK;
    hdf5_coder_free(c);
    *out = NULL;
    return error_set_nomem(err, hdf5_coder_nbytes(most_nbytes));
}

void hdf5_coder_free(hdf5_coder *c)
{
    if (c == NULL)
        return;
    if (c->ready)
        (void)deflateEnd(&c->z);
    free(c->shuffled);
    free(c);
}

/* First bytes of all elements, then their second bytes; `count` elements, the last ones zeros. */
static void shuffle(uint8_t *dst, const uint8_t *src, uint64_t there, uint64_t count,
                    uint64_t itemsize)
{
    for (uint64_t first = 0; first < there; first += BLOCK_NELEMS) {
        const uint64_t end = there - first < BLOCK_NELEMS ? there : first + BLOCK_NELEMS;
        for (uint64_t byte = 0; byte < itemsize; byte++) {
            uint8_t *to = dst + byte * count;
            for (uint64_t i = first; i < end; i++)
                to[i] = src[i * itemsize + byte];
        }
    }
    for (uint64_t byte = 0; there < count && byte < itemsize; byte++)
        memset(dst + byte * count + there, 0, count - there);
}

fsdpck_status hdf5_encode(hdf5_coder *c, unsigned itemsize, const uint8_t *bytes, uint64_t nbytes,
                          uint64_t chunk_nbytes, uint8_t *coded, uint64_t *coded_nbytes,
                          uint32_t *mask, fsdpck_error *err)
{
    const uint8_t *from = bytes;
    if (itemsize > 1 || nbytes < chunk_nbytes) {
        shuffle(c->shuffled, bytes, nbytes / itemsize, chunk_nbytes / itemsize, itemsize);
        from = c->shuffled;
    }
    if (deflateReset(&c->z) != Z_OK)
        return FAIL(err, INTERNAL, NONE, "zlib could not be reset");
    c->z.next_in = (Bytef *)from; /* not written to */
    c->z.avail_in = (uInt)chunk_nbytes;
    c->z.next_out = coded;
    c->z.avail_out = (uInt)chunk_nbytes - 1;
    const bool shorter = deflate(&c->z, Z_FINISH) == Z_STREAM_END;
    *coded_nbytes = shorter ? chunk_nbytes - 1 - c->z.avail_out : chunk_nbytes;
    *mask = shorter ? 0 : 1u << (itemsize > 1 ? 1 : 0);
    if (!shorter)
        memcpy(coded, from, chunk_nbytes);
    return FSDPCK_OK;
}
