/* What the writer filters the reader undoes; how tensors are cut. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "formats/hdf5/hdf5_decode.h"
#include "formats/hdf5/hdf5_encode.h"
#include "formats/hdf5/hdf5_write_internal.h"

enum { CHUNK = 48000 };

static fsdpck_error err;

/* As HDF5_CODED chunks of this element size are read. */
static void must_come_back(unsigned itemsize, const uint8_t *bytes, uint64_t nbytes,
                           const uint8_t *coded, uint64_t coded_nbytes, uint32_t mask)
{
    const hdf5_dataset one = {.chunk_nbytes = CHUNK, .coders = {HDF5_DEFLATE}, .ncoders = 1};
    const hdf5_dataset two = {.chunk_nbytes = CHUNK,
                              .shuffle_nbytes = itemsize,
                              .coders = {HDF5_SHUFFLE, HDF5_DEFLATE},
                              .ncoders = 2};
    static const uint8_t zeros[CHUNK];
    static uint8_t got[CHUNK];
    source_stream *s;
    uint8_t *stored = malloc(coded_nbytes);
    cr_assert_not_null(stored);
    memcpy(stored, coded, coded_nbytes);
    cr_assert_eq(
        hdf5_stream_decode(itemsize > 1 ? &two : &one, mask, stored, coded_nbytes, 0, &s, &err),
        FSDPCK_OK, "%s", err.message);
    cr_assert_eq(hdf5_stream_read(s, got, CHUNK, &err), FSDPCK_OK);
    cr_expect_arr_eq(got, bytes, nbytes);
    cr_expect_arr_eq(got + nbytes, zeros, CHUNK - nbytes, "padded with zeros");
    hdf5_stream_close(s);
}

static void round_trip(hdf5_coder *c, const uint8_t *bytes, bool shrinks)
{
    static const unsigned itemsizes[] = {1, 2, 4, 8, 16};
    static uint8_t coded[CHUNK];
    for (size_t i = 0; i < sizeof itemsizes / sizeof itemsizes[0]; i++) {
        const unsigned itemsize = itemsizes[i];
        const uint64_t lengths[] = {CHUNK, CHUNK - itemsize, CHUNK / 2, itemsize};
        for (size_t k = 0; k < sizeof lengths / sizeof lengths[0]; k++) {
            uint64_t n = 0;
            uint32_t mask = 99;
            cr_assert_eq(hdf5_encode(c, itemsize, bytes, lengths[k], CHUNK, coded, &n, &mask, &err),
                         FSDPCK_OK);
            cr_expect_eq(mask == 0, n < CHUNK);
            if (shrinks || lengths[k] < CHUNK - itemsize)
                cr_expect_eq(mask, 0);
            else if (lengths[k] == CHUNK)
                cr_expect_eq(mask, itemsize > 1 ? 2 : 1, "noise is left as it is");
            must_come_back(itemsize, bytes, lengths[k], coded, n, mask);
        }
    }
}

Test(hdf5_encode, the_reader_undoes_it)
{
    static uint8_t bytes[CHUNK];
    uint32_t state = 1;
    hdf5_coder *c;
    for (unsigned level = 1; level <= 9; level += 4) {
        cr_assert_eq(hdf5_coder_new(level, CHUNK, &c, &err), FSDPCK_OK);
        for (size_t i = 0; i < CHUNK; i++)
            bytes[i] = (uint8_t)(i * 7 + i / 1300);
        round_trip(c, bytes, true);
        for (size_t i = 0; i < CHUNK; i++)
            bytes[i] = (uint8_t)((state = state * 1664525u + 1013904223u) >> 24);
        round_trip(c, bytes, false);
        hdf5_coder_free(c);
    }
    hdf5_coder_free(NULL);
}

Test(hdf5_encode, higher_levels_are_smaller)
{
    static uint8_t bytes[CHUNK], coded[CHUNK];
    uint64_t n[2];
    uint32_t mask;
    for (size_t i = 0; i < CHUNK; i++)
        bytes[i] = (uint8_t)(i * i / 50 % 97);
    for (unsigned i = 0; i < 2; i++) {
        hdf5_coder *c;
        cr_assert_eq(hdf5_coder_new(i == 0 ? 1 : 9, CHUNK, &c, &err), FSDPCK_OK);
        cr_assert_eq(hdf5_encode(c, 4, bytes, CHUNK, CHUNK, coded, &n[i], &mask, &err), FSDPCK_OK);
        hdf5_coder_free(c);
    }
    cr_expect_lt(n[1], n[0]);
}

/* --- hdf5_chunk_shape --- */

/* Every chunk is one run of the tensor's bytes, they follow each other, and all are as large as said. */
static void check_cut(dtype d, unsigned ndim, const uint64_t *shape, unsigned dim, uint64_t rows)
{
    const uint64_t itemsize = dtype_get(d)->itemsize_bytes;
    const uint64_t nelems = box_nelems(shape, ndim);
    uint64_t corner[8], sizes[8], strides[8], at = 0, number = 0;
    hdf5_chunk_shape cut;
    cr_assert(hdf5_chunk_shape_choose(d, ndim, shape, &cut));
    cr_expect_eq(cut.dim, dim, "dim %u", cut.dim);
    cr_expect_eq(cut.rows, rows, "rows %u", (unsigned)cut.rows);
    hdf5_chunk_shape_sizes(&cut, ndim, shape, sizes);
    cr_expect_eq(box_nelems(sizes, ndim) * itemsize, cut.chunk_nbytes);
    cr_expect_leq(cut.chunk_nbytes, HDF5_CHUNK_NBYTES);
    box_row_major_strides(shape, ndim, strides);
    for (; at < nelems; number++) {
        uint64_t first = 0, count = 1;
        hdf5_chunk_shape_corner(&cut, ndim, shape, number, corner);
        for (unsigned i = 0; i < ndim; i++) {
            const uint64_t left = shape[i] - corner[i];
            cr_assert_lt(corner[i], shape[i]);
            cr_assert_eq(corner[i] % sizes[i], 0);
            first += corner[i] * strides[i];
            count *= left < sizes[i] ? left : sizes[i];
        }
        cr_assert_eq(first, at);
        at += count;
        cr_assert(at * itemsize % cut.span_nbytes == 0 || count * itemsize == cut.chunk_nbytes);
    }
    cr_expect_eq(at, nelems);
}

Test(hdf5_chunk_shape, chunks_are_runs_of_rows)
{
    const uint64_t nothing = 0, small = 4095, page = 4096;
    hdf5_chunk_shape cut;
    cr_expect(!hdf5_chunk_shape_choose(DTYPE_FLOAT32, 0, NULL, &cut));
    cr_expect(!hdf5_chunk_shape_choose(DTYPE_FLOAT32, 1, &nothing, &cut));
    cr_expect(!hdf5_chunk_shape_choose(DTYPE_FLOAT32, 1, &small, &cut));
    check_cut(DTYPE_FLOAT32, 1, &page, 0, 4096);
    check_cut(DTYPE_FLOAT32, 1, (uint64_t[]){262145}, 0, 131073);
    check_cut(DTYPE_BFLOAT16, 2, (uint64_t[]){1000, 3000}, 0, 167);
    check_cut(DTYPE_UINT8, 3, (uint64_t[]){3, 5, 300000}, 1, 3);
    check_cut(DTYPE_COMPLEX128, 2, (uint64_t[]){2, 65537}, 1, 32769);
    check_cut(DTYPE_UINT8, 4, (uint64_t[]){2, 1, 3, 1048576}, 2, 1);
    check_cut(DTYPE_UINT8, 4, (uint64_t[]){2, 1, 1, 1048577}, 3, 524289);
    check_cut(DTYPE_INT64, 3, (uint64_t[]){1, 1, 9999}, 0, 1);
}
