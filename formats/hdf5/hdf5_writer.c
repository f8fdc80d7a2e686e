#include <unistd.h>

#include "formats/hdf5/hdf5.h"
#include "formats/hdf5/hdf5_compress.h"
#include "formats/hdf5/hdf5_objects.h"
#include "formats/hdf5/hdf5_write_internal.h"

/* --- locations --- */

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
        st = FAIL(err, INTERNAL, NONE, "HDF5 file can hold only whole tensors");
    else if (ct->ndim > HDF5_NDIM_MAX) {
        st = FAIL_WITH(err, UNSUPPORTED, NONE,
                       ("HDF5 cannot hold a tensor with more than %u dims", HDF5_NDIM_MAX),
                       (next, "omit it with --exclude, or write another format"));
    }
    if (st != FSDPCK_OK)
        error_tensor(err, catalogue_name(&t->cat, ct->name));
    return st;
}

/* The ranges of the tensors that have bytes; also stored in the chunks. */
static size_t place_tensors(target *t, const uint64_t *offsets, hdf5_range *taken)
{
    size_t count = 0;
    for (size_t i = 0; i < catalogue_tensor_count(&t->cat); i++) {
        cat_chunk *c = catalogue_chunk(&t->cat, catalogue_tensor(&t->cat, i)->first_chunk);
        c->file = 0;
        c->nbytes = catalogue_tensor_nbytes(&t->cat, i);
        c->place = c->nbytes > 0 ? LOCATION_ROWS : LOCATION_EMPTY;
        c->offset_bytes = c->nbytes > 0 ? offsets[i] : 0;
        if (c->nbytes > 0)
            taken[count++] = (hdf5_range){offsets[i], c->nbytes};
    }
    return count;
}

static fsdpck_status add_literal(void *ctx, uint64_t offset_bytes, const void *bytes,
                                 uint64_t nbytes, fsdpck_error *err)
{
    return target_add_constant(ctx, 0, offset_bytes, bytes, nbytes, err);
}

static fsdpck_status take_file(target *t, const uint64_t *offsets, int fd, fsdpck_error *err)
{
    const size_t nbytes = catalogue_tensor_count(&t->cat) * sizeof(hdf5_range);
    uint32_t index;
    uint64_t file_nbytes = 0;
    RETURN_IF(hdf5_file_nbytes(fd, &file_nbytes, err));
    RETURN_IF(catalogue_add_file(&t->cat, "", 0, file_nbytes, CAT_NONE, &index, err));
    hdf5_range *taken = budget_alloc(t->cat.owner, nbytes, err);
    if (taken == NULL)
        return FSDPCK_LIMIT;
    const size_t count = place_tensors(t, offsets, taken);
    const fsdpck_status st = hdf5_put_metadata(fd, taken, count, add_literal, t, err);
    budget_free(t->cat.owner, taken, nbytes);
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
    fsdpck_status st = hdf5_memory_file(&d.fd, err);
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
    if (opt->gzip_level > 0)
        return hdf5_compress(t, opt, err);
    fsdpck_status st = hdf5_names_make(&t->cat, opt->hdf5_groups, &names, err);
    if (st == FSDPCK_OK)
        st = hdf5_objects_write(&t->cat, &objects, err);
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
    .takes = STATE_FLAT_KEYS,
    .packs = true,
    .holds = holds,
    .holds_object = hdf5_holds_object,
    .layout = layout,
    .id = FSDPCK_FORMAT_HDF5,
    .options = WRITER_HDF5_GROUPS,
};
