#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "base/bytes.h"
#include "formats/hdf5/hdf5_decode.h"

enum { NBYTES = 3000, SIZE = 4 };

static void fill(uint8_t *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        p[i] = (uint8_t)(i * 7 + i / 13);
}

/* As H5Z_filter_shuffle does it. */
static void shuffle(const uint8_t *from, uint8_t *to, size_t n, size_t size)
{
    const size_t count = n / size;
    for (size_t i = 0; i < count; i++)
        for (size_t b = 0; b < size; b++)
            to[b * count + i] = from[i * size + b];
    memcpy(to + count * size, from + count * size, n - count * size);
}

static uint8_t *copy_of(const void *bytes, size_t n)
{
    uint8_t *p = malloc(n);
    cr_assert_not_null(p);
    memcpy(p, bytes, n);
    return p;
}

static void must_decode(const hdf5_dataset *d, uint32_t mask, uint8_t *stored, size_t n,
                        const uint8_t *wanted)
{
    fsdpck_error err;
    source_stream *s;
    uint8_t got[NBYTES];
    fsdpck_error_init(&err);
    cr_assert_eq(hdf5_stream_decode(d, mask, stored, n, 0, &s, &err), FSDPCK_OK, "%s", err.message);
    cr_assert_eq(hdf5_stream_read(s, got, 100, &err), FSDPCK_OK);
    cr_assert_eq(hdf5_stream_read(s, got + 100, d->chunk_nbytes - 100, &err), FSDPCK_OK);
    cr_assert_eq(hdf5_stream_finish(s, &err), FSDPCK_OK);
    cr_assert_eq(memcmp(got, wanted, d->chunk_nbytes), 0);
    hdf5_stream_close(s);
}

static void must_fail(const hdf5_dataset *d, uint8_t *stored, size_t n, fsdpck_status st,
                      const char *finding)
{
    fsdpck_error err;
    source_stream *s;
    fsdpck_error_init(&err);
    cr_assert_eq(hdf5_stream_decode(d, 0, stored, n, 77, &s, &err), st);
    cr_assert_str_eq(fsdpck_finding_name(err.finding), finding);
    cr_assert_null(s);
}

/* shuffle, deflate, Fletcher32, as h5py does them. */
static size_t encode(const uint8_t *plain, uint8_t *stored)
{
    uint8_t turned[NBYTES];
    uLongf n = compressBound(NBYTES);
    shuffle(plain, turned, NBYTES, SIZE);
    cr_assert_eq(compress(stored, &n, turned, NBYTES), Z_OK);
    store_le32(stored + n, hdf5_fletcher32(stored, n));
    return n + 4;
}

static const hdf5_dataset all = {.chunk_nbytes = NBYTES,
                                 .shuffle_nbytes = SIZE,
                                 .coders = {HDF5_SHUFFLE, HDF5_DEFLATE, HDF5_FLETCHER32},
                                 .ncoders = 3};

Test(hdf5_decode, filters_are_undone_in_turn)
{
    uint8_t plain[NBYTES], stored[2 * NBYTES];
    fill(plain, NBYTES);
    const size_t n = encode(plain, stored);
    must_decode(&all, 0, copy_of(stored, n), n, plain);
}

Test(hdf5_decode, what_a_mask_names_was_not_done)
{
    uint8_t plain[NBYTES], turned[NBYTES];
    fill(plain, NBYTES);
    shuffle(plain, turned, NBYTES, SIZE);
    must_decode(&all, 6, copy_of(turned, NBYTES), NBYTES, plain);
    must_decode(&all, 7, copy_of(plain, NBYTES), NBYTES, plain);
}

Test(hdf5_decode, elements_that_do_not_divide_the_chunk_leave_a_rest)
{
    const hdf5_dataset d = {
        .chunk_nbytes = NBYTES - 1, .shuffle_nbytes = 7, .coders = {HDF5_SHUFFLE}, .ncoders = 1};
    uint8_t plain[NBYTES], turned[NBYTES];
    fill(plain, NBYTES);
    shuffle(plain, turned, NBYTES - 1, 7);
    must_decode(&d, 0, copy_of(turned, NBYTES - 1), NBYTES - 1, plain);
}

Test(hdf5_decode, damage_is_told)
{
    uint8_t plain[NBYTES], stored[2 * NBYTES];
    fill(plain, NBYTES);
    const size_t n = encode(plain, stored);
    uint8_t *bent = copy_of(stored, n);
    bent[50] ^= 1;
    must_fail(&all, bent, n, FSDPCK_BADINPUT, "H5-FLETCHER");
    must_fail(&all, copy_of(stored, 3), 3, FSDPCK_BADINPUT, "H5-FLETCHER");
    hdf5_dataset d = all;
    d.ncoders = 2;
    must_fail(&d, copy_of(stored, n - 20), n - 20, FSDPCK_BADINPUT, "H5-DEFLATE");
    must_fail(&d, copy_of(stored, n), n, FSDPCK_BADINPUT,
              "H5-DEFLATE"); /* the checksum is after it */
    d.chunk_nbytes = NBYTES + 1;
    must_fail(&d, copy_of(stored, n - 4), n - 4, FSDPCK_BADINPUT, "H5-DEFLATE");
    d.chunk_nbytes = NBYTES - 1;
    must_fail(&d, copy_of(stored, n - 4), n - 4, FSDPCK_BADINPUT, "H5-DEFLATE");
    d.chunk_nbytes = NBYTES / 2;
    must_fail(&d, copy_of(stored, n - 4), n - 4, FSDPCK_BADINPUT, "H5-DEFLATE");
}

enum { NOISE = 40000, SECTOR = 512 };

/* Zeros in the place of codes stand for long repetitions: more comes out than went in. */
Test(hdf5_decode, a_sector_that_was_lost_is_damage)
{
    const hdf5_dataset d = {.chunk_nbytes = NOISE, .coders = {HDF5_DEFLATE}, .ncoders = 1};
    uint8_t *plain = calloc(1, NOISE), *stored = malloc(compressBound(NOISE));
    uLongf n = compressBound(NOISE);
    uint32_t state = 1;
    cr_assert(plain != NULL && stored != NULL);
    /* Floats of few values. */
    for (size_t i = 3; i < NOISE; i += 4) {
        state = state * 1664525u + 1013904223u;
        plain[i] = (uint8_t)(state >> 30);
    }
    cr_assert_eq(compress(stored, &n, plain, NOISE), Z_OK);
    cr_assert_gt(n, 4 * SECTOR);
    memset(stored + n / 2, 0, SECTOR);
    must_fail(&d, copy_of(stored, n), n, FSDPCK_BADINPUT, "H5-DEFLATE");
    free(plain);
    free(stored);
}

Test(hdf5_decode, a_stream_that_never_fitted_is_a_bomb)
{
    hdf5_dataset d = {.chunk_nbytes = 100, .coders = {HDF5_DEFLATE}, .ncoders = 1};
    uint8_t *zeros = calloc(1, 1 << 20), stored[4096];
    uLongf n = sizeof stored;
    cr_assert_not_null(zeros);
    cr_assert_eq(compress(stored, &n, zeros, 1 << 20), Z_OK);
    must_fail(&d, copy_of(stored, n), n, FSDPCK_LIMIT, "H5-BOMB");
    d.chunk_nbytes = n;
    must_fail(&d, copy_of(stored, n), n, FSDPCK_BADINPUT, "H5-DEFLATE");
    free(zeros);
}

/* Sums by the definition, modulo 65535, with 65535 for 0 as the folding leaves it. */
Test(hdf5_decode, fletcher_agrees_with_its_definition)
{
    uint8_t b[2001];
    fill(b, sizeof b);
    for (size_t n = 0; n < sizeof b; n += n < 20 ? 1 : 97) {
        uint64_t one = 0, two = 0;
        for (size_t i = 0; i < n; i += 2) {
            one += (uint32_t)b[i] << 8 | (i + 1 < n ? b[i + 1] : 0u);
            two += one;
        }
        const uint32_t sum = hdf5_fletcher32(b, n);
        cr_assert_eq(sum % 65536 % 65535, one % 65535, "%zu", n);
        cr_assert_eq(sum / 65536 % 65535, two % 65535, "%zu", n);
    }
}

Test(hdf5_decode, a_fill_value_goes_on_and_on)
{
    const hdf5_dataset d = {.fill = {1, 2, 3, 4}, .fill_nbytes = 4};
    const hdf5_dataset zeros = {0};
    source_stream *s;
    uint8_t b[10];
    cr_assert_eq(hdf5_stream_fill(&d, &s, NULL), FSDPCK_OK);
    cr_assert_eq(hdf5_stream_read(s, b, 6, NULL), FSDPCK_OK);
    cr_assert_eq(hdf5_stream_read(s, b + 6, 4, NULL), FSDPCK_OK);
    cr_assert_eq(memcmp(b, "\1\2\3\4\1\2\3\4\1\2", 10), 0);
    hdf5_stream_close(s);
    cr_assert_eq(hdf5_stream_fill(&zeros, &s, NULL), FSDPCK_OK);
    cr_assert_eq(hdf5_stream_read(s, b, 3, NULL), FSDPCK_OK);
    cr_assert_eq(memcmp(b, "\0\0\0\4", 4), 0);
    hdf5_stream_close(s);
    hdf5_stream_close(NULL);
}
