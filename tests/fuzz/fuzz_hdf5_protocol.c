/* The child's description of an HDF5 file, altered in any way: u64 end of the file, then the
 * records. An accepted description has its data inside the file, without overlaps, and every
 * element of every tensor once; chunks of any bytes decode or fail with a message. */
#include <stdint.h>
#include <string.h>

#include "base/bytes.h"
#include "formats/hdf5/hdf5_build.h"
#include "formats/hdf5/hdf5_decode.h"
#include "state/box.h"
#include "tests/support/must.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t nbytes);

enum { STORED_MAX = 1 << 16, DECODED_MAX = 1 << 20, CHUNKS_MAX = 2000 };

typedef struct memory {
    const uint8_t *bytes;
    size_t nbytes;
} memory;

static fsdpck_status read_memory(void *ctx, void *dst, uint64_t nbytes, uint64_t *got,
                                 fsdpck_error *err)
{
    memory *m = ctx;
    (void)err;
    *got = nbytes < m->nbytes ? nbytes : m->nbytes;
    if (*got > 0)
        memcpy(dst, m->bytes, *got);
    m->bytes += *got;
    m->nbytes -= *got;
    return FSDPCK_OK;
}

static bool has_bytes(const hdf5_chunk *c)
{
    return c->kind == HDF5_ROWS || c->kind == HDF5_GRID || c->kind == HDF5_CODED;
}

/* Tensors that are one dataset by several names share their places, so places are compared by chunk
 * of the table. */
static void check_places(const catalogue *cat, const hdf5_file *f, uint64_t end_bytes)
{
    const uint64_t count =
        catalogue_chunk_count(cat) < CHUNKS_MAX ? catalogue_chunk_count(cat) : CHUNKS_MAX;
    for (uint64_t i = 0; i < count; i++) {
        const cat_chunk *k = catalogue_chunk(cat, i);
        MUST(k->place == LOCATION_EMPTY || k->aux < f->chunks.count);
        if (k->place == LOCATION_EMPTY || !has_bytes(VEC_AT(&f->chunks, const hdf5_chunk, k->aux)))
            continue;
        MUST(k->nbytes > 0 && k->offset_bytes <= end_bytes &&
             k->nbytes <= end_bytes - k->offset_bytes);
        for (uint64_t j = 0; j < i && j < 64; j++) {
            const cat_chunk *other = catalogue_chunk(cat, j);
            if (other->place == LOCATION_EMPTY || other->aux == k->aux ||
                !has_bytes(VEC_AT(&f->chunks, const hdf5_chunk, other->aux)))
                continue;
            MUST(k->offset_bytes + k->nbytes <= other->offset_bytes ||
                 other->offset_bytes + other->nbytes <= k->offset_bytes);
        }
    }
}

static void check_cover(const catalogue *cat)
{
    for (size_t i = 0; i < catalogue_tensor_count(cat); i++) {
        const cat_tensor *t = catalogue_tensor(cat, i);
        uint64_t nelems = 0, sizes[NDIM_MAX];
        for (uint64_t k = t->first_chunk; k < t->first_chunk + t->nchunks; k++) {
            catalogue_chunk_box(cat, k, NULL, sizes);
            nelems += box_nelems(sizes, t->ndim);
        }
        MUST(nelems == catalogue_tensor_nelems(cat, i));
    }
}

static void decode(const catalogue *cat, const hdf5_file *f, const uint8_t *data, size_t nbytes)
{
    for (uint64_t i = 0; i < catalogue_chunk_count(cat) && i < 16; i++) {
        const cat_chunk *k = catalogue_chunk(cat, i);
        fsdpck_error err;
        source_stream *s;
        if (k->place != LOCATION_BLOB || k->nbytes > STORED_MAX || k->nbytes > nbytes)
            continue;
        const hdf5_chunk *c = VEC_AT(&f->chunks, const hdf5_chunk, k->aux);
        const hdf5_dataset *d = VEC_AT(&f->datasets, const hdf5_dataset, c->dataset);
        if (d->chunk_nbytes > DECODED_MAX)
            continue;
        uint8_t *stored = malloc(k->nbytes), *out = malloc(d->chunk_nbytes + 1);
        MUST(stored != NULL && out != NULL);
        memcpy(stored, data + nbytes - k->nbytes, k->nbytes);
        fsdpck_error_init(&err);
        const fsdpck_status st = hdf5_stream_decode(d, c->mask, stored, k->nbytes, 0, &s, &err);
        MUST(st == FSDPCK_OK || err.message[0] != '\0');
        if (st == FSDPCK_OK) {
            MUST(hdf5_stream_read(s, out, d->chunk_nbytes, &err) == FSDPCK_OK);
            MUST(hdf5_stream_read(s, out, 1, &err) != FSDPCK_OK);
        }
        hdf5_stream_close(s);
        free(out);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t nbytes)
{
    budget owner;
    catalogue cat;
    hdf5_file f;
    fsdpck_error err;
    uint32_t index;
    if (nbytes < 8)
        return 0;
    memory m = {data + 8, nbytes - 8};
    const hdf5_input in = {
        .read = read_memory, .ctx = &m, .end_bytes = load_le64(data), .separator = "."};
    budget_init(&owner, (uint64_t)64 << 20, "metadata", NULL);
    catalogue_init(&cat, &owner);
    hdf5_file_init(&f, &owner);
    fsdpck_error_init(&err);
    MUST(catalogue_add_file(&cat, "f.h5", 4, in.end_bytes, CAT_NONE, &index, &err) == FSDPCK_OK);
    fsdpck_status st = hdf5_build(&f, &in, &cat, &err);
    if (st == FSDPCK_OK)
        st = catalogue_seal(&cat, &err);
    MUST(st == FSDPCK_OK || err.message[0] != '\0');
    if (st == FSDPCK_OK) {
        check_places(&cat, &f, in.end_bytes);
        check_cover(&cat);
        decode(&cat, &f, data, nbytes);
    }
    hdf5_file_release(&f);
    catalogue_release(&cat);
    MUST(owner.used_bytes == 0);
    return 0;
}
