#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/checked.h"
#include "base/platform.h"
#include "formats/hdf5/hdf5.h"
#include "formats/hdf5/hdf5_objects.h"
#include "formats/hdf5/hdf5_write.h"

/* What lies between the data is looked at in pieces; of each the blocks that are not zero become
 * literals, since whatever has no literal is zero in the output anyhow. */
#define PIECE_NBYTES ((size_t)256 << 10)
#define BLOCK_NBYTES 256u

typedef struct extent {
    uint64_t offset_bytes, nbytes;
} extent;

/* --- what the library wrote --- */

static bool is_zero(const uint8_t *bytes, size_t nbytes)
{
    return nbytes == 0 || (bytes[0] == 0 && memcmp(bytes, bytes + 1, nbytes - 1) == 0);
}

static fsdpck_status take_piece(target *t, uint64_t offset_bytes, const uint8_t *bytes,
                                size_t nbytes, fsdpck_error *err)
{
    size_t begin = 0;
    for (size_t at = 0; at < nbytes;) {
        const size_t n = nbytes - at < BLOCK_NBYTES ? nbytes - at : BLOCK_NBYTES;
        const bool zero = is_zero(bytes + at, n);
        if (zero && at > begin)
            RETURN_IF(
                target_add_literal(t, 0, offset_bytes + begin, bytes + begin, at - begin, err));
        at += n;
        if (zero)
            begin = at;
    }
    return begin == nbytes
               ? FSDPCK_OK
               : target_add_literal(t, 0, offset_bytes + begin, bytes + begin, nbytes - begin, err);
}

static fsdpck_status take_gap(target *t, const file *f, uint64_t begin, uint64_t end,
                              uint8_t *piece, fsdpck_error *err)
{
    while (begin < end) {
        const size_t n = end - begin < PIECE_NBYTES ? (size_t)(end - begin) : PIECE_NBYTES;
        RETURN_IF(file_read_at(f, begin, piece, n, err));
        RETURN_IF(take_piece(t, begin, piece, n, err));
        begin += n;
    }
    return FSDPCK_OK;
}

static int by_offset(const void *a, const void *b)
{
    const extent *x = a;
    const extent *y = b;
    return x->offset_bytes < y->offset_bytes ? -1 : x->offset_bytes > y->offset_bytes;
}

static fsdpck_status error_places(fsdpck_error *err)
{
    return error_set(err, FSDPCK_INTERNAL, "", "libhdf5 gave two datasets one place");
}

/* `extents`: sorted, each inside of the file. */
static fsdpck_status take_gaps(target *t, const file *f, const extent *extents, size_t count,
                               fsdpck_error *err)
{
    uint64_t at = 0;
    fsdpck_status st = FSDPCK_OK;
    uint8_t *piece = malloc(PIECE_NBYTES);
    if (piece == NULL)
        return error_set_nomem(err, PIECE_NBYTES);
    for (size_t i = 0; i < count && st == FSDPCK_OK; i++) {
        if (extents[i].offset_bytes < at)
            st = error_places(err);
        else
            st = take_gap(t, f, at, extents[i].offset_bytes, piece, err);
        at = extents[i].offset_bytes + extents[i].nbytes;
    }
    if (st == FSDPCK_OK)
        st = take_gap(t, f, at, f->nbytes, piece, err);
    free(piece);
    return st;
}

/* --- places --- */

static fsdpck_status check_tensor(const target *t, size_t tensor, fsdpck_error *err)
{
    const cat_tensor *ct = catalogue_tensor(&t->cat, tensor);
    uint64_t sizes[NDIM_MAX];
    fsdpck_status st = FSDPCK_OK;
    if (ct->nchunks == 1)
        catalogue_chunk_box(&t->cat, ct->first_chunk, NULL, sizes);
    if (ct->nchunks != 1 || ct->alias != CAT_NONE ||
        (ct->flags & (CAT_TENSOR_IN_OBJECT | CAT_TENSOR_STORAGE)) ||
        box_nelems(sizes, ct->ndim) != catalogue_tensor_nelems(&t->cat, tensor))
        st = error_set(err, FSDPCK_INTERNAL, "", "an HDF5 file holds whole tensors only");
    else if (ct->ndim > HDF5_NDIM_MAX) {
        st = error_set(err, FSDPCK_UNSUPPORTED, "", "HDF5 holds no tensor of more than %u dims",
                       HDF5_NDIM_MAX);
        error_next(err, "leave it out (--exclude), or write another format");
    }
    if (st != FSDPCK_OK)
        error_tensor(err, catalogue_name(&t->cat, ct->name));
    return st;
}

/* The extents of the tensors that have bytes, sorted; into the chunks as well. */
static fsdpck_status place_tensors(target *t, const uint64_t *offsets, uint64_t file_nbytes,
                                   extent *extents, size_t *count, fsdpck_error *err)
{
    *count = 0;
    for (size_t i = 0; i < catalogue_tensor_count(&t->cat); i++) {
        cat_chunk *c = catalogue_chunk(&t->cat, catalogue_tensor(&t->cat, i)->first_chunk);
        c->file = 0;
        c->nbytes = catalogue_tensor_nbytes(&t->cat, i);
        c->place = c->nbytes > 0 ? PLACE_ROWS : PLACE_EMPTY;
        c->offset_bytes = c->nbytes > 0 ? offsets[i] : 0;
        if (c->nbytes == 0)
            continue;
        if (!checked_range(offsets[i], c->nbytes, file_nbytes))
            return error_places(err);
        extents[(*count)++] = (extent){offsets[i], c->nbytes};
    }
    qsort(extents, *count, sizeof *extents, by_offset);
    return FSDPCK_OK;
}

static fsdpck_status take_file(target *t, const uint64_t *offsets, int fd, fsdpck_error *err)
{
    const size_t count = catalogue_tensor_count(&t->cat);
    file f = FILE_CLOSED;
    uint32_t index;
    size_t extent_count;
    const off_t end = lseek(fd, 0, SEEK_END);
    if (end < 0)
        return error_set_errno(err, errno, "lseek", NULL);
    f.fd = fd;
    f.nbytes = (uint64_t)end;
    RETURN_IF(catalogue_add_file(&t->cat, "", 0, f.nbytes, CAT_NONE, &index, err));
    extent *extents = budget_alloc(t->cat.owner, count * sizeof *extents, err);
    if (extents == NULL)
        return FSDPCK_LIMIT;
    fsdpck_status st = place_tensors(t, offsets, f.nbytes, extents, &extent_count, err);
    if (st == FSDPCK_OK)
        st = take_gaps(t, &f, extents, extent_count, err);
    budget_free(t->cat.owner, extents, count * sizeof *extents);
    return st;
}

static fsdpck_status describe(target *t, const hdf5_names *names, const text_buf *objects,
                              fsdpck_error *err)
{
    const size_t nbytes = catalogue_tensor_count(&t->cat) * sizeof(uint64_t);
    hdf5_description d = {.cat = &t->cat, .names = names, .objects = objects, .fd = -1};
    uint64_t *offsets = budget_alloc(t->cat.owner, nbytes, err);
    if (offsets == NULL)
        return FSDPCK_LIMIT;
    const int error = platform_memory_file(&d.fd);
    fsdpck_status st = error == 0
                           ? FSDPCK_OK
                           : error_set_errno(err, error, "creating a file without a name", NULL);
    if (st == FSDPCK_OK)
        st = hdf5_describe(&d, offsets, err);
    if (st == FSDPCK_OK)
        st = take_file(t, offsets, d.fd, err);
    if (d.fd >= 0)
        (void)close(d.fd);
    budget_free(t->cat.owner, offsets, nbytes);
    return st;
}

static fsdpck_status layout(target *t, const writer_options *opt, fsdpck_error *err)
{
    hdf5_names names = {0};
    text_buf objects = {.limit_bytes = HDF5_OBJECTS_NBYTES_MAX};
    t->is_folder = false;
    for (size_t i = 0; i < catalogue_tensor_count(&t->cat); i++)
        RETURN_IF(check_tensor(t, i, err));
    fsdpck_status st = hdf5_names_make(&t->cat, opt->hdf5_groups, &names, err);
    if (st == FSDPCK_OK)
        st = hdf5_objects_put(&t->cat, &objects, err);
    if (st == FSDPCK_OK)
        st = describe(t, &names, &objects, err);
    hdf5_names_release(&names);
    text_release(&objects);
    return st;
}

static bool holds(dtype d)
{
    return d != DTYPE_NONE && d < DTYPE_COUNT;
}

const format_writer hdf5_writer = {
    .name = "hdf5",
    .description = "one HDF5 file",
    .suffixes = " .h5 .hdf5 ",
    .takes = TAKES_KEYED,
    .holds = holds,
    .holds_object = hdf5_holds_object,
    .layout = layout,
};
