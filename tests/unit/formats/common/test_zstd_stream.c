#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

#include "formats/common/zstd_stream.h"

enum { PLAIN_NBYTES = 300000 };

typedef struct frame {
    uint8_t plain[PLAIN_NBYTES];
    uint8_t bytes[PLAIN_NBYTES + 1000];
    size_t nbytes;
} frame;

static fsdpck_status read_frame(void *ctx, uint64_t offset_bytes, void *dst, uint64_t nbytes,
                                fsdpck_error *err)
{
    const frame *f = ctx;
    cr_assert(offset_bytes >= 7 && offset_bytes - 7 + nbytes <= f->nbytes,
              "a read outside of the range");
    (void)err;
    memcpy(dst, f->bytes + (offset_bytes - 7), (size_t)nbytes);
    return FSDPCK_OK;
}

static frame *make_frame(int window_log, int checksum)
{
    frame *f = malloc(sizeof *f);
    ZSTD_CCtx *c = ZSTD_createCCtx();
    uint32_t state = 1;
    for (size_t i = 0; i < PLAIN_NBYTES; i++) {
        state = state * 1664525 + 1013904223;
        f->plain[i] = (uint8_t)(state >> 30); /* compressible */
    }
    if (window_log > 0)
        ZSTD_CCtx_setParameter(c, ZSTD_c_windowLog, window_log);
    ZSTD_CCtx_setParameter(c, ZSTD_c_checksumFlag, checksum);
    ZSTD_inBuffer in = {f->plain, PLAIN_NBYTES, 0};
    ZSTD_outBuffer out = {f->bytes, sizeof f->bytes, 0};
    /* As a stream, so that the size of the content is not recorded and the window is as asked. */
    while (ZSTD_compressStream2(c, &out, &in, in.pos < in.size ? ZSTD_e_continue : ZSTD_e_end) !=
               0 ||
           in.pos < in.size)
        continue;
    ZSTD_compressStream2(c, &out, &in, ZSTD_e_end);
    f->nbytes = out.pos;
    ZSTD_freeCCtx(c);
    return f;
}

static fsdpck_status decode(frame *f, size_t step, uint8_t *to, fsdpck_error *err)
{
    const zip_input in = {
        .read = read_frame, .ctx = f, .base_offset_bytes = 7, .nbytes = f->nbytes};
    budget b;
    zstd_stream *z;
    budget_init(&b, 1u << 20, "buffers", NULL);
    cr_assert_eq(zstd_stream_open(&in, &b, &z, err), FSDPCK_OK);
    fsdpck_status st = FSDPCK_OK;
    for (size_t at = 0; at < PLAIN_NBYTES && st == FSDPCK_OK; at += step)
        st = zstd_stream_read(z, to + at, at + step < PLAIN_NBYTES ? step : PLAIN_NBYTES - at, err);
    if (st == FSDPCK_OK)
        st = zstd_stream_finish(z, NULL, NULL, err);
    zstd_stream_close(z);
    cr_assert_eq(b.used_bytes, 0);
    return st;
}

static void expect(frame *f, fsdpck_status status, const char *finding)
{
    uint8_t *to = malloc(PLAIN_NBYTES);
    fsdpck_error err;
    fsdpck_error_init(&err);
    cr_assert_eq(decode(f, 100000, to, &err), status, "%s", err.message);
    cr_assert_str_eq(fsdpck_finding_name(err.finding), finding, "%s", err.message);
    free(to);
}

Test(zstd_stream, any_step_gives_the_same)
{
    frame *f = make_frame(0, 0);
    uint8_t *to = malloc(PLAIN_NBYTES);
    static const size_t steps[] = {PLAIN_NBYTES, 1, 4096, 131071};
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        memset(to, 0, PLAIN_NBYTES);
        cr_assert_eq(decode(f, steps[i], to, NULL), FSDPCK_OK);
        cr_assert(memcmp(to, f->plain, PLAIN_NBYTES) == 0);
    }
    free(to);
    free(f);
}

Test(zstd_stream, every_truncation_is_found)
{
    frame *f = make_frame(0, 1);
    const size_t whole = f->nbytes;
    for (size_t n = 0; n < whole; n += n < 64 || n > whole - 64 ? 1 : 997) {
        f->nbytes = n;
        expect(f, FSDPCK_BADINPUT, "Z-TRUNCATED");
    }
    free(f);
}

Test(zstd_stream, bytes_after_the_frame)
{
    frame *f = make_frame(0, 0);
    f->bytes[f->nbytes++] = 0;
    expect(f, FSDPCK_BADINPUT, "Z-TRAILING");
    free(f);
}

Test(zstd_stream, checksum)
{
    frame *f = make_frame(0, 1);
    f->bytes[f->nbytes - 1] ^= 1;
    expect(f, FSDPCK_BADINPUT, "Z-CHECKSUM");
    free(f);
}

Test(zstd_stream, not_zstd)
{
    frame *f = make_frame(0, 0);
    f->bytes[0] ^= 1;
    expect(f, FSDPCK_BADINPUT, "Z-DATA");
    free(f);
}

Test(zstd_stream, window_is_bounded)
{
    frame *f = make_frame(27, 0);
    expect(f, FSDPCK_OK, "");
    free(f);
    f = make_frame(28, 0);
    expect(f, FSDPCK_LIMIT, "Z-WINDOW");
    free(f);
}
