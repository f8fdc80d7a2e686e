#include <stdlib.h>
#include <zlib.h>

#include "base/crc.h"
#include "formats/common/zip.h"

enum { INPUT_NBYTES = 64 << 10 };

struct zip_inflater {
    zip_input in;
    z_stream stream;
    uint64_t next_offset_bytes; /* file offset of the next unread byte */
    uint64_t left_stored_nbytes;
    uint64_t done_nbytes;
    uint64_t nbytes;
    uint64_t data_offset_bytes;
    uint32_t crc;
    uint32_t expected_crc;
    bool check_crc;
    bool ended;
    uint8_t input[INPUT_NBYTES];
};

fsdpck_status zip_inflater_open(const zip_input *in, const zip_entry *e, bool check_crc,
                                zip_inflater **inf, fsdpck_error *err)
{
    zip_inflater *s = calloc(1, sizeof(*s));

    *inf = NULL;
    if (s == NULL)
        return error_set_nomem(err, sizeof(*s));
    s->in = *in;
    s->next_offset_bytes = s->data_offset_bytes = e->data_offset_bytes;
    s->left_stored_nbytes = e->stored_nbytes;
    s->nbytes = e->nbytes;
    s->expected_crc = e->crc32;
    s->check_crc = check_crc;
    if (inflateInit2(&s->stream, -MAX_WBITS) != Z_OK) {
        free(s);
        return error_set_nomem(err, 64 << 10);
    }
    *inf = s;
    return FSDPCK_OK;
}

static fsdpck_status inflate_failed(const zip_inflater *s, fsdpck_finding_id finding,
                                    const char *what, fsdpck_error *err)
{
    return FAIL_AS(err, FSDPCK_BADINPUT, finding, ("%s", what), (offset, s->data_offset_bytes),
                   (expected, "%llu bytes", (unsigned long long)s->nbytes));
}

static fsdpck_status refill(zip_inflater *s, fsdpck_error *err)
{
    const uint64_t n = s->left_stored_nbytes < INPUT_NBYTES ? s->left_stored_nbytes : INPUT_NBYTES;

    if (s->stream.avail_in > 0 || n == 0)
        return FSDPCK_OK;
    RETURN_IF(s->in.read(s->in.ctx, s->next_offset_bytes, s->input, n, err));
    s->next_offset_bytes += n;
    s->left_stored_nbytes -= n;
    s->stream.next_in = s->input;
    s->stream.avail_in = (uInt)n;
    return FSDPCK_OK;
}

/* Inflates at most nbytes into dst; *made is 0 only at the end of the stream. */
static fsdpck_status step(zip_inflater *s, uint8_t *dst, uInt nbytes, uInt *made, fsdpck_error *err)
{
    *made = 0;
    while (!s->ended && *made == 0) {
        RETURN_IF(refill(s, err));
        s->stream.next_out = dst;
        s->stream.avail_out = nbytes;
        const int code = inflate(&s->stream, Z_NO_FLUSH);
        *made = nbytes - s->stream.avail_out;
        if (code == Z_STREAM_END)
            s->ended = true;
        else if (code == Z_BUF_ERROR || (code == Z_OK && *made == 0 && s->stream.avail_in == 0 &&
                                         s->left_stored_nbytes == 0))
            return inflate_failed(s, FSDPCK_FINDING_ZIP_SIZE, "deflated record is truncated", err);
        else if (code != Z_OK)
            return inflate_failed(s, FSDPCK_FINDING_ZIP_DEFLATE, "deflated record is damaged", err);
    }
    s->crc = crc32_update(s->crc, dst, *made);
    s->done_nbytes += *made;
    return FSDPCK_OK;
}

fsdpck_status zip_inflater_read(zip_inflater *s, void *dst, uint64_t nbytes, fsdpck_error *err)
{
    uint8_t *p = dst;

    while (nbytes > 0) {
        const uInt want = nbytes > (1u << 30) ? 1u << 30 : (uInt)nbytes;
        uInt made;
        RETURN_IF(step(s, p, want, &made, err));
        if (made == 0)
            return inflate_failed(s, FSDPCK_FINDING_ZIP_SIZE,
                                  "deflated record is shorter than the directory states", err);
        p += made;
        nbytes -= made;
    }
    return FSDPCK_OK;
}

fsdpck_status zip_inflater_finish(zip_inflater *s, fsdpck_error *err)
{
    uint8_t rest[4096];
    uInt made = 1;

    while (made > 0 && s->done_nbytes <= s->nbytes)
        RETURN_IF(step(s, rest, sizeof(rest), &made, err));
    if (s->done_nbytes != s->nbytes || s->left_stored_nbytes > 0 || s->stream.avail_in > 0)
        return inflate_failed(s, FSDPCK_FINDING_ZIP_SIZE,
                              "size of a deflated record differs from the zip directory", err);
    if (s->check_crc && s->crc != s->expected_crc)
        return FAIL_WITH(err, BADINPUT, ZIP_CRC, ("CRC of a deflated record does not match"),
                         (offset, s->data_offset_bytes), (expected, "%08x", s->expected_crc),
                         (found, "%08x", s->crc));
    return FSDPCK_OK;
}

void zip_inflater_close(zip_inflater *s)
{
    if (s == NULL)
        return;
    inflateEnd(&s->stream);
    free(s);
}
