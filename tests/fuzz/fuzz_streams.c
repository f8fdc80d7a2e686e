/* Deflated records and zstd frames, read in parts of any size within a limit, compared with one
 * call of zlib and zstd.
 *
 * Bytes: the kind ('d' a deflated record, 'z' a zstd frame, 'D' and 'Z' bytes to compress first),
 * u16 stated size (0xffff: the correct one), size of the parts (odd: the record's CRC is compared);
 * then the bytes. */
#include <stdlib.h>
#include <string.h>
#include <zlib.h>
#include <zstd.h>

#include "base/bytes.h"
#include "base/crc.h"
#include "formats/common/zstd_stream.h"
#include "tests/support/memory_bytes.h"
#include "tests/support/must.h"

enum { OUT_MAX = 1 << 20 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t nbytes);

/* What the library makes of all bytes. */
typedef struct answer {
    bool whole;    /* one stream that ends where the bytes do */
    bool failed;   /* zstd may have returned more before it reports the error */
    bool unsure;   /* more than OUT_MAX, or a window that is too large */
    size_t nbytes; /* of out; also of a stream that breaks off */
    const uint8_t *out;
} answer;

static uint8_t library_out[OUT_MAX];

static answer check_zlib(const memory_bytes *m)
{
    answer a = {.out = library_out};
    z_stream s = {0};
    must(inflateInit2(&s, -MAX_WBITS) == Z_OK, "no memory");
    s.next_in = (uint8_t *)(uintptr_t)m->bytes;
    s.avail_in = (uInt)m->nbytes;
    s.next_out = library_out;
    s.avail_out = OUT_MAX;
    const int code = inflate(&s, Z_FINISH);
    a.nbytes = OUT_MAX - s.avail_out;
    a.unsure = code != Z_STREAM_END && s.avail_out == 0;
    a.whole = code == Z_STREAM_END && s.avail_in == 0;
    inflateEnd(&s);
    return a;
}

static answer check_zstd_library(const memory_bytes *m)
{
    answer a = {.out = library_out};
    ZSTD_DStream *d = ZSTD_createDStream();
    must(d != NULL, "no memory");
    ZSTD_inBuffer in = {.src = m->bytes, .size = m->nbytes};
    ZSTD_outBuffer out = {.dst = library_out, .size = OUT_MAX};
    size_t code = 1, had_in, had_out;
    do {
        had_in = in.pos;
        had_out = out.pos;
        code = ZSTD_decompressStream(d, &out, &in);
    } while (!ZSTD_isError(code) && code != 0 && (in.pos > had_in || out.pos > had_out));
    a.nbytes = out.pos;
    a.failed = ZSTD_isError(code);
    a.unsure = out.pos == OUT_MAX;
    a.whole = code == 0 && in.pos == in.size;
    ZSTD_freeDStream(d);
    return a;
}

/* `bound` bytes that were read are the beginning of the library's output. */
static void check_prefix(const answer *a, const uint8_t *bytes, uint64_t nbytes)
{
    if (a->failed && nbytes > a->nbytes)
        nbytes = a->nbytes;
    must(nbytes <= a->nbytes, "more bytes than the library gives");
    must(nbytes == 0 || memcmp(bytes, a->out, nbytes) == 0, "other bytes than the library's");
}

static void check_deflate(memory_bytes *m, uint64_t stated, size_t part)
{
    answer a = check_zlib(m);
    const uint64_t bound = stated == 0xffff ? a.nbytes : stated;
    const zip_input in = {.read = memory_bytes_read, .ctx = m, .nbytes = m->nbytes};
    const zip_entry e = {.method = 8,
                         .nbytes = bound,
                         .stored_nbytes = m->nbytes,
                         .crc32 = crc32_update(0, a.out, bound < a.nbytes ? bound : a.nbytes)};
    uint8_t *out = malloc(bound + 1);
    zip_inflater *inf;
    uint64_t done = 0;
    fsdpck_error err;
    fsdpck_error_init(&err);
    must(out != NULL && zip_inflater_open(&in, &e, part % 2 == 0, &inf, NULL) == FSDPCK_OK,
         "no memory");
    fsdpck_status st = FSDPCK_OK;
    while (st == FSDPCK_OK && done < bound) {
        const uint64_t n = bound - done < part ? bound - done : part;
        st = zip_inflater_read(inf, out + done, n, &err);
        done += st == FSDPCK_OK ? n : 0;
    }
    check_prefix(&a, out, done);
    if (st == FSDPCK_OK)
        st = zip_inflater_finish(inf, &err);
    must((st == FSDPCK_OK) == (a.whole && a.nbytes == bound) || a.unsure,
         "zlib says otherwise of a deflated record");
    must(st == FSDPCK_OK || (st == FSDPCK_BADINPUT && err.finding != FSDPCK_FINDING_NONE),
         "an odd failure");
    zip_inflater_close(inf);
    free(out);
}

static void read_rest(void *ctx, const uint8_t *bytes, size_t nbytes)
{
    text_append(ctx, bytes, nbytes);
}

static void check_zstd(memory_bytes *m, uint64_t stated, size_t part)
{
    answer a = check_zstd_library(m);
    const uint64_t wanted = stated == 0xffff ? a.nbytes : stated;
    const zip_input in = {.read = memory_bytes_read, .ctx = m, .nbytes = m->nbytes};
    budget b;
    zstd_stream *z;
    text_buf rest = {.limit_bytes = 2 * OUT_MAX};
    uint8_t *out = malloc(wanted + 1);
    uint64_t done = 0;
    fsdpck_error err;
    fsdpck_error_init(&err);
    budget_init(&b, 1 << 20, "zstd", NULL);
    must(out != NULL && zstd_stream_open(&in, &b, &z, NULL) == FSDPCK_OK, "no memory");
    fsdpck_status st = FSDPCK_OK;
    while (st == FSDPCK_OK && done < wanted) {
        const uint64_t n = wanted - done < part ? wanted - done : part;
        st = zstd_stream_read(z, out + done, n, &err);
        done += st == FSDPCK_OK ? n : 0;
    }
    check_prefix(&a, out, done);
    if (st == FSDPCK_OK && !a.unsure) {
        st = zstd_stream_finish(z, read_rest, &rest, &err);
        must(a.failed ||
                 (done + rest.nbytes <= a.nbytes &&
                  memcmp(rest.text == NULL ? "" : rest.text, a.out + done, rest.nbytes) == 0),
             "another rest than the library's");
    }
    if (!a.unsure)
        must((st == FSDPCK_OK) == (a.whole && wanted <= a.nbytes),
             "zstd says otherwise of a frame");
    must(st == FSDPCK_OK || err.finding != FSDPCK_FINDING_NONE, "an odd failure");
    zstd_stream_close(z);
    must(b.used_bytes == 0, "memory kept");
    text_release(&rest);
    free(out);
}

/* Bytes that are compressed come back. */
static void check_whole(const uint8_t *data, size_t nbytes, bool zstd, uint64_t stated, size_t part)
{
    const size_t room = compressBound((uLong)nbytes) + ZSTD_compressBound(nbytes) + 64;
    uint8_t *packed = malloc(room);
    memory_bytes m = {.bytes = packed};
    must(packed != NULL, "no memory");
    if (zstd) {
        m.nbytes = ZSTD_compress(packed, room, data, nbytes, (int)(part % 5) - 1);
        must(!ZSTD_isError(m.nbytes), "zstd failed");
    } else {
        z_stream s = {.next_in = (uint8_t *)(uintptr_t)data,
                      .avail_in = (uInt)nbytes,
                      .next_out = packed,
                      .avail_out = (uInt)room};
        must(deflateInit2(&s, (int)(part % 10), Z_DEFLATED, -MAX_WBITS, 8, 0) == Z_OK &&
                 deflate(&s, Z_FINISH) == Z_STREAM_END,
             "zlib failed");
        m.nbytes = s.total_out;
        deflateEnd(&s);
    }
    answer a = zstd ? check_zstd_library(&m) : check_zlib(&m);
    must(a.whole && a.nbytes == nbytes && (nbytes == 0 || memcmp(a.out, data, nbytes) == 0),
         "the library does not give back what it took");
    if (zstd)
        check_zstd(&m, stated, part);
    else
        check_deflate(&m, stated, part);
    free(packed);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t nbytes)
{
    if (nbytes < 4)
        return 0;
    const uint64_t stated = load_le16(data + 1);
    const size_t part = 1 + (size_t)data[3] * data[3];
    memory_bytes m = {data + 4, nbytes - 4};
    if (data[0] == 'd')
        check_deflate(&m, stated, part);
    else if (data[0] == 'z')
        check_zstd(&m, stated, part);
    else
        check_whole(data + 4, nbytes - 4, data[0] == 'Z', stated, part);
    return 0;
}
