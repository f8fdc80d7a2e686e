/* The bytes that libhdf5 wrote around the data of tensors. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/platform.h"
#include "formats/hdf5/hdf5_write_internal.h"
#include "io/file.h"

/* The bytes between the data are read in parts, and only non-zero blocks are added, since unwritten
 * output is zero. */
#define PIECE_NBYTES ((size_t)256 << 10)
#define BLOCK_NBYTES 256u

typedef struct rest {
    file f;
    filter_put_fn put;
    void *ctx;
    uint8_t *piece;
} rest;

static bool is_zero(const uint8_t *bytes, size_t nbytes)
{
    return nbytes == 0 || (bytes[0] == 0 && memcmp(bytes, bytes + 1, nbytes - 1) == 0);
}

static fsdpck_status put_piece(const rest *r, uint64_t offset_bytes, size_t nbytes,
                               fsdpck_error *err)
{
    const uint8_t *bytes = r->piece;
    size_t begin = 0;
    for (size_t at = 0; at < nbytes;) {
        const size_t n = nbytes - at < BLOCK_NBYTES ? nbytes - at : BLOCK_NBYTES;
        const bool zero = is_zero(bytes + at, n);
        if (zero && at > begin)
            RETURN_IF(r->put(r->ctx, offset_bytes + begin, bytes + begin, at - begin, err));
        at += n;
        if (zero)
            begin = at;
    }
    return begin == nbytes
               ? FSDPCK_OK
               : r->put(r->ctx, offset_bytes + begin, bytes + begin, nbytes - begin, err);
}

static fsdpck_status put_gap(const rest *r, uint64_t begin, uint64_t end, fsdpck_error *err)
{
    while (begin < end) {
        const size_t n = end - begin < PIECE_NBYTES ? (size_t)(end - begin) : PIECE_NBYTES;
        RETURN_IF(file_read_at(&r->f, begin, r->piece, n, err));
        RETURN_IF(put_piece(r, begin, n, err));
        begin += n;
    }
    return FSDPCK_OK;
}

static int by_offset(const void *a, const void *b)
{
    const hdf5_range *x = a;
    const hdf5_range *y = b;
    return x->offset_bytes < y->offset_bytes ? -1 : x->offset_bytes > y->offset_bytes;
}

static fsdpck_status put_gaps(const rest *r, const hdf5_range *taken, size_t count,
                              fsdpck_error *err)
{
    uint64_t at = 0;
    for (size_t i = 0; i < count; i++) {
        if (taken[i].offset_bytes < at || taken[i].offset_bytes > r->f.nbytes ||
            taken[i].nbytes > r->f.nbytes - taken[i].offset_bytes)
            return FAIL(err, INTERNAL, NONE, "libhdf5 assigned one location to two datasets");
        RETURN_IF(put_gap(r, at, taken[i].offset_bytes, err));
        at = taken[i].offset_bytes + taken[i].nbytes;
    }
    return put_gap(r, at, r->f.nbytes, err);
}

fsdpck_status hdf5_memory_file(int *fd, fsdpck_error *err)
{
    const int error = platform_memory_file(fd);
    return error == 0 ? FSDPCK_OK
                      : error_set_errno(err, error, "creating an unnamed temporary file", NULL);
}

fsdpck_status hdf5_file_nbytes(int fd, uint64_t *nbytes, fsdpck_error *err)
{
    const off_t end = lseek(fd, 0, SEEK_END);
    if (end < 0)
        return error_set_errno(err, errno, "lseek", NULL);
    *nbytes = (uint64_t)end;
    return FSDPCK_OK;
}

fsdpck_status hdf5_put_metadata(int fd, hdf5_range *taken, size_t count, filter_put_fn put,
                                void *ctx, fsdpck_error *err)
{
    rest r = {.f = FILE_CLOSED, .put = put, .ctx = ctx};
    r.f.fd = fd;
    RETURN_IF(hdf5_file_nbytes(fd, &r.f.nbytes, err));
    qsort(taken, count, sizeof *taken, by_offset);
    r.piece = malloc(PIECE_NBYTES);
    if (r.piece == NULL)
        return error_set_nomem(err, PIECE_NBYTES);
    const fsdpck_status st = put_gaps(&r, taken, count, err);
    free(r.piece);
    return st;
}
