/* Any bytes as an HDF5 file, opened as in production: libhdf5 parses it in a child, and this
 * process survives any failure of that. An accepted file is read to the end, or fails with a
 * message. */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "formats/hdf5/hdf5.h"
#include "tests/support/must.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t nbytes);

enum { CHUNKS_MAX = 200, READ_MAX = 1 << 20 };

static void write_file(const char *path, const uint8_t *data, size_t nbytes)
{
    const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    must(fd >= 0, "no scratch file");
    while (nbytes > 0) {
        const ssize_t n = write(fd, data, nbytes);
        must(n > 0, "cannot write the scratch file");
        data += n;
        nbytes -= (size_t)n;
    }
    close(fd);
}

static fsdpck_status read_stream(const source *src, uint64_t chunk, uint64_t nbytes, uint8_t *dst,
                                 fsdpck_error *err)
{
    source_stream *s;
    RETURN_IF(src->stream_open(src->ctx, chunk, &s, err));
    fsdpck_status st = src->stream_read(s, dst, nbytes, err);
    if (st == FSDPCK_OK)
        st = src->stream_finish(s, err);
    src->stream_close(s);
    return st;
}

static fsdpck_status read_chunk(const source *src, const catalogue *cat, uint64_t chunk,
                                uint8_t *dst, fsdpck_error *err)
{
    const cat_tensor *t = catalogue_tensor(cat, catalogue_chunk(cat, chunk)->tensor);
    uint64_t sizes[NDIM_MAX];
    place where = {0};
    catalogue_chunk_box(cat, chunk, NULL, sizes);
    const uint64_t itemsize = dtype_get((dtype)t->dtype)->itemsize_bytes;
    const uint64_t nelems = box_nelems(sizes, t->ndim);
    RETURN_IF(src->locate(src->ctx, chunk, &where, err));
    uint64_t reach = 1;
    for (unsigned d = 0; d < t->ndim; d++)
        reach += (sizes[d] - 1) * where.strides[d];
    must(reach >= nelems, "elements share bytes");
    if (reach > READ_MAX / itemsize)
        return FSDPCK_OK;
    if (where.stream)
        return read_stream(src, chunk, reach * itemsize, dst, err);
    must(where.offset_bytes + reach * itemsize <= catalogue_file(cat, where.file)->nbytes,
         "a chunk reaches over the end");
    return src->read_at(src->ctx, where.file, where.offset_bytes, dst, reach * itemsize, err);
}

static void read_all(void *self, catalogue *cat)
{
    static uint8_t bytes[READ_MAX];
    source src;
    hdf5_reader.source(self, cat, &src);
    for (uint64_t i = 0; i < catalogue_chunk_count(cat) && i < CHUNKS_MAX; i++) {
        fsdpck_error err;
        if (catalogue_chunk(cat, i)->place == LOCATION_EMPTY)
            continue;
        fsdpck_error_init(&err);
        const fsdpck_status st = read_chunk(&src, cat, i, bytes, &err);
        must(st == FSDPCK_OK || err.message[0] != '\0', "fails without a word");
        must(st != FSDPCK_INTERNAL, "an error of our own");
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t nbytes)
{
    char path[64];
    budget owner;
    catalogue cat;
    fsdpck_error err;
    void *self = NULL;
    snprintf(path, sizeof path, "/tmp/fsdpck-fuzz-hdf5.%ld", (long)getpid());
    write_file(path, data, nbytes);
    budget_init(&owner, (uint64_t)64 << 20, "metadata", NULL);
    catalogue_init(&cat, &owner);
    fsdpck_error_init(&err);
    const open_request request = {.path = path, .metadata = &owner, .nthreads = 1};
    const fsdpck_status st = hdf5_reader.open(&request, &cat, &self, &err);
    unlink(path);
    must(st == FSDPCK_OK || err.message[0] != '\0', "fails without a word");
    must(st != FSDPCK_INTERNAL, "an error of our own");
    if (st == FSDPCK_OK) {
        read_all(self, &cat);
        hdf5_reader.close(self);
    }
    catalogue_release(&cat);
    must(owner.used_bytes == 0, "memory is not given back");
    return 0;
}
