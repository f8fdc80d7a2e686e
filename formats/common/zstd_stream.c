#include "formats/common/zstd_stream.h"

#include <inttypes.h>
#include <zstd.h>
#include <zstd_errors.h>

#define WINDOW_LOG_MAX 27
#define INPUT_NBYTES   (128u << 10)

struct zstd_stream {
    zip_input in;
    budget *owner;
    ZSTD_DStream *decoder;
    uint64_t read_nbytes; /* of the range, so far */
    uint64_t position;    /* decoded */
    ZSTD_inBuffer pending;
    unsigned long long stated_nbytes; /* by the frame's header, if it states one */
    bool ended;                       /* the frame, not the range */
    uint8_t input[INPUT_NBYTES];
};

fsdpck_status zstd_stream_open(const zip_input *in, budget *owner, zstd_stream **z,
                               fsdpck_error *err)
{
    zstd_stream *made = budget_alloc(owner, sizeof *made, err);
    if (made == NULL)
        return FSDPCK_LIMIT;
    made->in = *in;
    made->owner = owner;
    made->pending.src = made->input;
    made->decoder = ZSTD_createDStream();
    if (made->decoder == NULL) {
        zstd_stream_close(made);
        return error_set_nomem(err, sizeof *made);
    }
    ZSTD_DCtx_setParameter(made->decoder, ZSTD_d_windowLogMax, WINDOW_LOG_MAX);
    *z = made;
    return FSDPCK_OK;
}

void zstd_stream_close(zstd_stream *z)
{
    if (z == NULL)
        return;
    ZSTD_freeDStream(z->decoder);
    budget_free(z->owner, z, sizeof *z);
}

/* Position of the decoder in the file. */
static uint64_t file_offset(const zstd_stream *z)
{
    return z->in.base_offset_bytes + z->read_nbytes - (z->pending.size - z->pending.pos);
}

static fsdpck_status refuse(const zstd_stream *z, size_t code, fsdpck_error *err)
{
    const ZSTD_ErrorCode kind = ZSTD_getErrorCode(code);
    fsdpck_status st;

    if (kind == ZSTD_error_frameParameter_windowTooLarge) {
        st = FAIL_WITH(err, LIMIT, Z_WINDOW, ("zstd frame requires too large a window"),
                       (expected, "at most %" PRIu64 " bytes", UINT64_C(1) << WINDOW_LOG_MAX));
    } else if (kind == ZSTD_error_checksum_wrong) {
        st = FAIL(err, BADINPUT, Z_CHECKSUM, "checksum of the zstd frame does not match");
    } else if (kind == ZSTD_error_memory_allocation) {
        st = error_set_nomem(err, UINT64_C(1) << WINDOW_LOG_MAX);
    } else {
        st = FAIL(err, BADINPUT, Z_DATA, "zstd frame cannot be decoded: %s",
                  ZSTD_getErrorName(code));
    }
    error_offset(err, file_offset(z));
    return st;
}

static fsdpck_status truncated(const zstd_stream *z, const char *message, fsdpck_error *err)
{
    return FAIL_WITH(err, BADINPUT, Z_TRUNCATED, ("%s", message), (offset, file_offset(z)),
                     (found, "%" PRIu64 " decoded bytes from %" PRIu64, z->position, z->in.nbytes));
}

static fsdpck_status refill(zstd_stream *z, fsdpck_error *err)
{
    uint64_t nbytes = z->in.nbytes - z->read_nbytes;
    if (nbytes == 0)
        return truncated(z, "zstd frame is incomplete at the end of its blob", err);
    if (nbytes > INPUT_NBYTES)
        nbytes = INPUT_NBYTES;
    RETURN_IF(
        z->in.read(z->in.ctx, z->in.base_offset_bytes + z->read_nbytes, z->input, nbytes, err));
    if (z->read_nbytes == 0)
        z->stated_nbytes = ZSTD_getFrameContentSize(z->input, (size_t)nbytes);
    z->read_nbytes += nbytes;
    z->pending.size = (size_t)nbytes;
    z->pending.pos = 0;
    return FSDPCK_OK;
}

/* zstd 1.5.4 compares the stated size in one call, but not in parts, if the last block is empty. */
static bool ends_short(const zstd_stream *z)
{
    return z->stated_nbytes != ZSTD_CONTENTSIZE_UNKNOWN &&
           z->stated_nbytes != ZSTD_CONTENTSIZE_ERROR && z->position != z->stated_nbytes;
}

fsdpck_status zstd_stream_read_some(zstd_stream *z, void *dst, uint64_t nbytes, uint64_t *got,
                                    fsdpck_error *err)
{
    ZSTD_outBuffer out = {.dst = dst, .size = nbytes > SIZE_MAX ? SIZE_MAX : (size_t)nbytes};

    *got = 0;
    while (out.pos < out.size && !z->ended) {
        const size_t had = out.pos, used = z->pending.pos;
        const size_t code = ZSTD_decompressStream(z->decoder, &out, &z->pending);
        if (ZSTD_isError(code))
            return refuse(z, code, err);
        z->position += out.pos - had;
        if (code == 0 && ends_short(z))
            return refuse(z, (size_t)-ZSTD_error_corruption_detected, err);
        if (code == 0)
            z->ended = true;
        else if (out.pos == had && z->pending.pos == used && z->pending.pos < z->pending.size)
            return refuse(z, (size_t)-ZSTD_error_GENERIC, err);
        else if (out.pos < out.size && z->pending.pos == z->pending.size)
            RETURN_IF(refill(z, err));
    }
    *got = out.pos;
    return FSDPCK_OK;
}

fsdpck_status zstd_stream_read(zstd_stream *z, void *dst, uint64_t nbytes, fsdpck_error *err)
{
    uint64_t got;
    RETURN_IF(zstd_stream_read_some(z, dst, nbytes, &got, err));
    if (got < nbytes)
        return truncated(z, "zstd frame holds fewer bytes than its contents require", err);
    return FSDPCK_OK;
}

fsdpck_status zstd_stream_finish(zstd_stream *z, zstd_take_fn take, void *ctx, fsdpck_error *err)
{
    uint8_t rest[16384];
    uint64_t got;

    do {
        RETURN_IF(zstd_stream_read_some(z, rest, sizeof rest, &got, err));
        if (take != NULL)
            take(ctx, rest, (size_t)got);
    } while (got == sizeof rest || !z->ended);
    const uint64_t over = z->in.nbytes - z->read_nbytes + (z->pending.size - z->pending.pos);
    if (over > 0)
        return FAIL_WITH(err, BADINPUT, Z_TRAILING, ("bytes after the zstd frame of a blob"),
                         (offset, file_offset(z)), (found, "%" PRIu64 " bytes more", over));
    return FSDPCK_OK;
}
