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
    const uint8_t *bytes;   /* NULL: the fill value */
    const hdf5_dataset *of; /* NULL: bytes in order; otherwise shuffled */
    uint64_t nbytes, at;
    uint8_t fill[HDF5_FILL_NBYTES_MAX];
    uint8_t fill_nbytes;
};

uint32_t hdf5_fletcher32(const uint8_t *bytes, uint64_t nbytes)
{
    uint64_t words = nbytes / 2;
    uint32_t sum1 = 0, sum2 = 0;
    while (words > 0) {
        /* This number of words does not overflow 32 bits. */
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

/* The data decoded so far, and its offset for messages. */
typedef struct work {
    uint8_t *bytes;
    uint64_t nbytes;
    uint64_t offset_bytes;
    const hdf5_dataset *dataset;
} work;

static fsdpck_status damaged(const work *w, fsdpck_finding_id finding, const char *what,
                             fsdpck_error *err)
{
    return FAIL_AS(err, FSDPCK_BADINPUT, finding, ("%s", what), (offset, w->offset_bytes),
                   (next, "use another copy of the file"));
}

static fsdpck_status check_fletcher(work *w, fsdpck_error *err)
{
    if (w->nbytes < 4)
        return damaged(w, FSDPCK_FINDING_H5_FLETCHER, "chunk is too short for its checksum", err);
    w->nbytes -= 4;
    const uint32_t kept = load_le32(w->bytes + w->nbytes);
    const uint32_t sum = hdf5_fletcher32(w->bytes, w->nbytes);
    /* HDF5 before 1.6.3 stored the bytes of each half in reverse order on little-endian machines.
     */
    const uint32_t turned = (sum & 0x00ff00ffu) << 8 | (sum >> 8 & 0x00ff00ffu);
    if (sum == kept || turned == kept)
        return FSDPCK_OK;
    const fsdpck_status st =
        damaged(w, FSDPCK_FINDING_H5_FLETCHER, "Fletcher32 of a chunk does not match", err);
    error_expected(err, "%08" PRIx32, kept);
    error_found(err, "%08" PRIx32, sum);
    return st;
}

/* Damage may make a stream produce more than it held. A stream longer than any valid one for this
 * size was never valid. */
static fsdpck_status too_much(const work *w, fsdpck_error *err)
{
    const uint64_t most = w->dataset->chunk_nbytes;
    fsdpck_status st;
    if (w->nbytes <= compressBound(most + SUM_NBYTES)) {
        st = damaged(w, FSDPCK_FINDING_H5_DEFLATE,
                     "deflated chunk is damaged: it holds more than its shape requires", err);
    } else {
        st = FAIL_WITH(err, LIMIT, H5_BOMB, ("inflated chunk holds more than its shape requires"),
                       (offset, w->offset_bytes));
    }
    error_expected(err, "%" PRIu64 " bytes", most);
    error_found(err, "more, from %" PRIu64 " stored bytes", w->nbytes);
    return st;
}

/* Inflates into `out`, which has space for one byte more than allowed. */
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
    return damaged(w, FSDPCK_FINDING_H5_DEFLATE,
                   code == Z_STREAM_END ? "bytes after a deflated chunk"
                                        : "deflated chunk is damaged or truncated",
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

/* The first bytes of all elements come first, then their second bytes; an incomplete element
 * follows unshuffled. Starts at byte `at` of the ordered bytes. */
typedef struct planes {
    const uint8_t *bytes;
    uint64_t size, count;
} planes;

static planes planes_of(const hdf5_dataset *d, const uint8_t *bytes, uint64_t nbytes)
{
    const uint64_t size = d->shuffle_nbytes;
    return (planes){bytes, size, size > 1 ? nbytes / size : 0};
}

static uint64_t join_bytes(const planes *p, uint8_t *dst, uint64_t at, uint64_t nbytes)
{
    uint64_t i = 0;
    for (; i < nbytes && at + i < p->size * p->count && (i == 0 || (at + i) % p->size != 0); i++)
        dst[i] = p->bytes[(at + i) % p->size * p->count + (at + i) / p->size];
    return i;
}

/* In blocks of elements, so that the output stays in the cache for all their bytes. */
static void join_elements(const planes *p, uint8_t *dst, uint64_t first, uint64_t count)
{
    for (uint64_t begin = 0; begin < count; begin += 1024) {
        const uint64_t end = count - begin < 1024 ? count : begin + 1024;
        for (uint64_t byte = 0; byte < p->size; byte++) {
            const uint8_t *src = p->bytes + byte * p->count + first;
            uint8_t *to = dst + byte;
            for (uint64_t i = begin; i < end; i++)
                to[i * p->size] = src[i];
        }
    }
}

static void join_planes(const planes *p, uint8_t *dst, uint64_t at, uint64_t nbytes)
{
    const uint64_t body = p->size * p->count;
    uint64_t done = p->size > 0 && at % p->size != 0 ? join_bytes(p, dst, at, nbytes) : 0;
    if (at + done < body) {
        const uint64_t left = body - at - done < nbytes - done ? body - at - done : nbytes - done;
        join_elements(p, dst + done, (at + done) / p->size, left / p->size);
        done += left - left % p->size;
        done += join_bytes(p, dst + done, at + done, nbytes - done);
    }
    if (done < nbytes)
        memcpy(dst + done, p->bytes + at + done, nbytes - done);
}

static fsdpck_status undo_shuffle(work *w, fsdpck_error *err)
{
    const planes p = planes_of(w->dataset, w->bytes, w->nbytes);
    if (p.count <= 1)
        return FSDPCK_OK;
    uint8_t *out = malloc(w->nbytes);
    if (out == NULL)
        return error_set_nomem(err, w->nbytes);
    join_planes(&p, out, 0, w->nbytes);
    take(w, out, w->nbytes);
    return FSDPCK_OK;
}

/* Shuffled first, as usual: undone while it is read. */
static bool is_read_joined(const hdf5_dataset *d, uint32_t mask)
{
    return d->ncoders > 0 && d->coders[0] == HDF5_SHUFFLE && !(mask & 1u);
}

static fsdpck_status undo(work *w, uint32_t mask, fsdpck_error *err)
{
    const unsigned last = is_read_joined(w->dataset, mask) ? 1 : 0;
    for (unsigned i = w->dataset->ncoders; i-- > last;) {
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
        damaged(w, FSDPCK_FINDING_H5_DEFLATE, "size of a chunk does not match its shape", err);
    error_expected(err, "%" PRIu64 " bytes", w->dataset->chunk_nbytes);
    error_found(err, "%" PRIu64 " bytes", w->nbytes);
    return st;
}

static fsdpck_status stream_new(source_stream **s, fsdpck_error *err)
{
    *s = calloc(1, sizeof **s);
    return *s != NULL ? FSDPCK_OK : error_set_nomem(err, sizeof **s);
}

uint64_t hdf5_stream_nbytes(const hdf5_dataset *d, uint64_t stored_nbytes)
{
    const uint64_t whole = d->chunk_nbytes + SUM_NBYTES + 1;
    uint64_t most = stored_nbytes;
    for (unsigned i = 0; i < d->ncoders; i++) {
        if (d->coders[i] == HDF5_DEFLATE && stored_nbytes + whole > most)
            most = stored_nbytes + whole;
        if (d->coders[i] == HDF5_SHUFFLE && i > 0 && 2 * whole > most)
            most = 2 * whole;
    }
    return most;
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
    (*s)->of = is_read_joined(d, mask) ? d : NULL;
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
        return FAIL(err, INTERNAL, NONE, "read past the end of a chunk");
    if (s->of != NULL) {
        const planes shuffled = planes_of(s->of, s->bytes, s->nbytes);
        join_planes(&shuffled, p, s->at, nbytes);
    } else if (s->bytes != NULL) {
        memcpy(p, s->bytes + s->at, nbytes);
    } else if (s->fill_nbytes == 0) {
        memset(p, 0, nbytes);
    } else {
        for (uint64_t i = 0; i < nbytes; i++)
            p[i] = s->fill[(s->at + i) % s->fill_nbytes];
    }
    s->at += nbytes;
    return FSDPCK_OK;
}

/* Opening decoded everything. */
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
