#include "formats/hdf5/hdf5_decode.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "base/bytes.h"

/* zlib counts in 32 bits. */
#define INFLATE_NBYTES ((uint64_t)1 << 30)
/* Of a Fletcher32. */
#define SUM_NBYTES 4u

struct source_stream {
    uint8_t *owned;
    const uint8_t *bytes; /* NULL: the fill value */
    uint64_t nbytes, at;
    uint8_t fill[HDF5_FILL_NBYTES_MAX];
    uint8_t fill_nbytes;
};

uint32_t hdf5_fletcher32(const uint8_t *bytes, uint64_t nbytes)
{
    uint64_t words = nbytes / 2;
    uint32_t sum1 = 0, sum2 = 0;
    while (words > 0) {
        /* So many words do not overflow 32 bits. */
        uint64_t some = words < 360 ? words : 360;
        words -= some;
        for (; some > 0; some--, bytes += 2) {
            sum1 += (uint32_t)bytes[0] << 8 | bytes[1];
            sum2 += sum1;
        }
        sum1 = (sum1 & 0xffff) + (sum1 >> 16);
        sum2 = (sum2 & 0xffff) + (sum2 >> 16);
    }
    if (nbytes % 2 != 0) {
        sum1 += (uint32_t)bytes[0] << 8;
        sum2 += sum1;
        sum1 = (sum1 & 0xffff) + (sum1 >> 16);
        sum2 = (sum2 & 0xffff) + (sum2 >> 16);
    }
    sum1 = (sum1 & 0xffff) + (sum1 >> 16);
    sum2 = (sum2 & 0xffff) + (sum2 >> 16);
    return sum2 << 16 | sum1;
}

/* What is decoded so far, and where it lay, for messages. */
typedef struct work {
    uint8_t *bytes;
    uint64_t nbytes;
    uint64_t offset_bytes;
    const hdf5_dataset *dataset;
} work;

static fsdpck_status damaged(const work *w, const char *finding, const char *what,
                             fsdpck_error *err)
{
    const fsdpck_status st = error_set(err, FSDPCK_BADINPUT, finding, "%s", what);
    error_offset(err, w->offset_bytes);
    error_next(err, "take another copy of the file");
    return st;
}

static fsdpck_status check_fletcher(work *w, fsdpck_error *err)
{
    if (w->nbytes < 4)
        return damaged(w, "H5-FLETCHER", "chunk is too short for its checksum", err);
    w->nbytes -= 4;
    const uint32_t kept = load_le32(w->bytes + w->nbytes);
    const uint32_t sum = hdf5_fletcher32(w->bytes, w->nbytes);
    /* HDF5 before 1.6.3 kept the bytes of each half the other way round on little-endian machines. */
    const uint32_t turned = (sum & 0x00ff00ffu) << 8 | (sum >> 8 & 0x00ff00ffu);
    if (sum == kept || turned == kept)
        return FSDPCK_OK;
    const fsdpck_status st = damaged(w, "H5-FLETCHER", "Fletcher32 of a chunk does not match", err);
    error_expected(err, "%08" PRIx32, kept);
    error_found(err, "%08" PRIx32, sum);
    return st;
}

/* Damage may make a stream give more than it held. One that is longer than deflate can make what fits
 * in was never right. */
static fsdpck_status too_much(const work *w, fsdpck_error *err)
{
    const uint64_t most = w->dataset->chunk_nbytes;
    fsdpck_status st;
    if (w->nbytes <= compressBound(most + SUM_NBYTES)) {
        st = damaged(w, "H5-DEFLATE", "deflated chunk is damaged: it holds more than its shape",
                     err);
    } else {
        st = error_set(err, FSDPCK_LIMIT, "H5-BOMB",
                       "chunk holds more than its shape once it is inflated");
        error_offset(err, w->offset_bytes);
        error_next(err, "do not use the file, unless you know who made it");
    }
    error_expected(err, "%" PRIu64 " bytes", most);
    error_found(err, "more, of %" PRIu64 " that are stored", w->nbytes);
    return st;
}

/* Into `out`, which has room for one byte more than there may be. */
static fsdpck_status inflate_into(const work *w, uint8_t *out, uint64_t room, uint64_t *made,
                                  fsdpck_error *err)
{
    z_stream z = {0};
    uint64_t left = w->nbytes, done = 0;
    int code = Z_OK;
    if (inflateInit(&z) != Z_OK)
        return error_set_nomem(err, 64 << 10);
    z.next_in = w->bytes;
    z.next_out = out;
    while (code == Z_OK && done < room) {
        const uint64_t in = left < INFLATE_NBYTES ? left : INFLATE_NBYTES;
        const uint64_t take = room - done < INFLATE_NBYTES ? room - done : INFLATE_NBYTES;
        z.avail_in = (uInt)in;
        z.avail_out = (uInt)take;
        code = inflate(&z, Z_NO_FLUSH);
        left -= in - z.avail_in;
        done += take - z.avail_out;
    }
    inflateEnd(&z);
    *made = done;
    if (code == Z_STREAM_END && left == 0)
        return FSDPCK_OK;
    if (code == Z_OK && done == room)
        return too_much(w, err);
    return damaged(w, "H5-DEFLATE",
                   code == Z_STREAM_END ? "bytes follow a deflated chunk"
                                        : "deflated chunk is damaged or cut short",
                   err);
}

static void take(work *w, uint8_t *bytes, uint64_t nbytes)
{
    free(w->bytes);
    w->bytes = bytes;
    w->nbytes = nbytes;
}

/* Filters done after it (before it in this order) may have added a checksum's bytes. */
static fsdpck_status undo_deflate(work *w, fsdpck_error *err)
{
    const uint64_t room = w->dataset->chunk_nbytes + SUM_NBYTES + 1;
    uint64_t made = 0;
    uint8_t *out = malloc(room);
    if (out == NULL)
        return error_set_nomem(err, room);
    const fsdpck_status st = inflate_into(w, out, room, &made, err);
    if (st != FSDPCK_OK) {
        free(out);
        return st;
    }
    take(w, out, made);
    return FSDPCK_OK;
}

/* Elements' first bytes lie first, then their second ones. What is no whole element stays behind. */
static fsdpck_status undo_shuffle(work *w, fsdpck_error *err)
{
    const uint64_t size = w->dataset->shuffle_nbytes;
    const uint64_t count = size == 0 ? 0 : w->nbytes / size;
    if (size <= 1 || count <= 1)
        return FSDPCK_OK;
    uint8_t *out = malloc(w->nbytes);
    if (out == NULL)
        return error_set_nomem(err, w->nbytes);
    /* In blocks of elements, so that what is written stays in the cache for all bytes of them. */
    for (uint64_t first = 0; first < count; first += 1024) {
        const uint64_t end = count - first < 1024 ? count : first + 1024;
        for (uint64_t byte = 0; byte < size; byte++) {
            const uint8_t *src = w->bytes + byte * count;
            uint8_t *dst = out + byte;
            for (uint64_t i = first; i < end; i++)
                dst[i * size] = src[i];
        }
    }
    memcpy(out + count * size, w->bytes + count * size, w->nbytes - count * size);
    take(w, out, w->nbytes);
    return FSDPCK_OK;
}

static fsdpck_status undo(work *w, uint32_t mask, fsdpck_error *err)
{
    for (unsigned i = w->dataset->ncoders; i-- > 0;) {
        if (mask >> i & 1u)
            continue;
        switch (w->dataset->coders[i]) {
        case HDF5_FLETCHER32:
            RETURN_IF(check_fletcher(w, err));
            break;
        case HDF5_DEFLATE:
            RETURN_IF(undo_deflate(w, err));
            break;
        default:
            RETURN_IF(undo_shuffle(w, err));
            break;
        }
    }
    if (w->nbytes == w->dataset->chunk_nbytes)
        return FSDPCK_OK;
    const fsdpck_status st =
        damaged(w, "H5-DEFLATE", "chunk is of another size than its shape", err);
    error_expected(err, "%" PRIu64 " bytes", w->dataset->chunk_nbytes);
    error_found(err, "%" PRIu64 " bytes", w->nbytes);
    return st;
}

static fsdpck_status stream_new(source_stream **s, fsdpck_error *err)
{
    *s = calloc(1, sizeof **s);
    return *s != NULL ? FSDPCK_OK : error_set_nomem(err, sizeof **s);
}

/* Each filter but a checksum has what goes in and what comes out at once. */
uint64_t hdf5_stream_nbytes(const hdf5_dataset *d, uint64_t stored_nbytes)
{
    const uint64_t whole = d->chunk_nbytes + SUM_NBYTES + 1;
    bool inflates = false, unshuffles = false;
    for (unsigned i = 0; i < d->ncoders; i++) {
        inflates = inflates || d->coders[i] == HDF5_DEFLATE;
        unshuffles = unshuffles || d->coders[i] == HDF5_SHUFFLE;
    }
    if (unshuffles && (stored_nbytes < whole || !inflates))
        return 2 * whole;
    return stored_nbytes + (inflates ? whole : 0);
}

fsdpck_status hdf5_stream_decode(const hdf5_dataset *d, uint32_t mask, uint8_t *stored,
                                 uint64_t stored_nbytes, uint64_t offset_bytes, source_stream **s,
                                 fsdpck_error *err)
{
    work w = {stored, stored_nbytes, offset_bytes, d};
    *s = NULL;
    fsdpck_status st = undo(&w, mask, err);
    if (st == FSDPCK_OK)
        st = stream_new(s, err);
    if (st != FSDPCK_OK) {
        free(w.bytes);
        return st;
    }
    (*s)->owned = w.bytes;
    (*s)->bytes = w.bytes;
    (*s)->nbytes = w.nbytes;
    return FSDPCK_OK;
}

fsdpck_status hdf5_stream_of(const uint8_t *bytes, uint64_t nbytes, source_stream **s,
                             fsdpck_error *err)
{
    RETURN_IF(stream_new(s, err));
    (*s)->bytes = bytes;
    (*s)->nbytes = nbytes;
    return FSDPCK_OK;
}

fsdpck_status hdf5_stream_fill(const hdf5_dataset *d, source_stream **s, fsdpck_error *err)
{
    RETURN_IF(stream_new(s, err));
    (*s)->nbytes = UINT64_MAX;
    (*s)->fill_nbytes = d->fill_nbytes;
    memcpy((*s)->fill, d->fill, sizeof d->fill);
    return FSDPCK_OK;
}

fsdpck_status hdf5_stream_read(source_stream *s, void *dst, uint64_t nbytes, fsdpck_error *err)
{
    uint8_t *p = dst;
    if (nbytes > s->nbytes - s->at)
        return error_set(err, FSDPCK_INTERNAL, "", "more is read than a chunk holds");
    if (s->bytes != NULL)
        memcpy(p, s->bytes + s->at, nbytes);
    else if (s->fill_nbytes == 0)
        memset(p, 0, nbytes);
    else
        for (uint64_t i = 0; i < nbytes; i++)
            p[i] = s->fill[(s->at + i) % s->fill_nbytes];
    s->at += nbytes;
    return FSDPCK_OK;
}

/* All was decoded when it was opened. */
fsdpck_status hdf5_stream_finish(source_stream *s, fsdpck_error *err)
{
    (void)s;
    (void)err;
    return FSDPCK_OK;
}

void hdf5_stream_close(source_stream *s)
{
    if (s == NULL)
        return;
    free(s->owned);
    free(s);
}
