/* One dataset of the records into the catalogue. */
#include <inttypes.h>
#include <string.h>

#include "base/checked.h"
#include "base/utf8.h"
#include "formats/hdf5/hdf5_build_internal.h"

/* ---- names ---- */

static fsdpck_status bad_name(const uint8_t *name, size_t nbytes, fsdpck_error *err)
{
    char shown[300];
    return FAIL_WITH(err, BADINPUT, H5_NAME, ("name of a dataset is not UTF-8"),
                     (found, "%s", escape_text(shown, sizeof shown, (const char *)name, nbytes)));
}

/* b->name: unchanged, or a path with the separator in place of slashes. */
static fsdpck_status set_name(hdf5_builder *b, const uint8_t *name, size_t nbytes, bool is_path,
                              fsdpck_error *err)
{
    b->name.nbytes = 0;
    for (size_t i = 0; i < nbytes;) {
        uint32_t c;
        const unsigned length = utf8_decode(name + i, nbytes - i, &c);
        if (length == 0 || c == 0)
            return bad_name(name, nbytes, err);
        if (c == '/' && is_path)
            text_puts(&b->name, b->in->separator);
        else
            text_append(&b->name, name + i, length);
        i += length;
    }
    return text_check(&b->name, err);
}

static fsdpck_status take_path(hdf5_builder *b, hdf5_record_reader *g, fsdpck_error *err)
{
    const uint32_t n = get_u32(g);
    const uint8_t *name = get_bytes(g, n);
    if (g->failed || n == 0 || n > HDF5_NAME_NBYTES_MAX)
        return hdf5_bad_record(err);
    return set_name(b, name, n, true, err);
}

/* The name that its writer stored beside the path, if the path is ambiguous. */
static fsdpck_status take_fqn(hdf5_builder *b, hdf5_record_reader *g, fsdpck_error *err)
{
    const uint32_t n = get_u32(g);
    const uint8_t *name = get_bytes(g, n);
    if (g->failed || n > HDF5_NAME_NBYTES_MAX)
        return hdf5_bad_record(err);
    b->f->is_named = b->f->is_named || n > 0;
    return n > 0 ? set_name(b, name, n, false, err) : FSDPCK_OK;
}

/* ---- shapes and types ---- */

static fsdpck_status take_shape(hdf5_open_dataset *t, hdf5_record_reader *g, fsdpck_error *err)
{
    const unsigned space = get_u8(g);
    t->ndim = get_u8(g);
    if (space > HDF5_SPACE_SIMPLE || t->ndim > HDF5_NDIM_MAX ||
        (space == HDF5_SPACE_SCALAR) != (t->ndim == 0))
        return hdf5_bad_record(err);
    for (unsigned i = 0; i < t->ndim; i++)
        t->dims[i] = get_u64(g);
    t->layout = get_u8(g);
    t->offset_bytes = get_u64(g);
    t->stored_nbytes = get_u64(g);
    return g->failed || t->layout > HDF5_LAYOUT_CHUNKED ? hdf5_bad_record(err) : FSDPCK_OK;
}

static fsdpck_status take_fill(hdf5_open_dataset *t, hdf5_dataset *d, hdf5_record_reader *g,
                               fsdpck_error *err)
{
    t->fill = get_u8(g);
    const unsigned n = get_u8(g);
    const uint8_t *bytes = get_bytes(g, n);
    if (g->failed || t->fill > HDF5_FILL_VALUE || n > HDF5_FILL_NBYTES_MAX ||
        (t->fill == HDF5_FILL_VALUE) != (n > 0))
        return hdf5_bad_record(err);
    if (n > 0)
        memcpy(d->fill, bytes, n);
    d->fill_nbytes = (uint8_t)n;
    d->fill_state = t->fill;
    return FSDPCK_OK;
}

static fsdpck_status unknown_type(hdf5_builder *b, const hdf5_type *type, fsdpck_error *err)
{
    char text[160];
    const fsdpck_status st = FAIL_WITH(
        err, UNSUPPORTED, H5_TYPE, ("type of a dataset is not one that a tensor can have"),
        (tensor, b->name.text), (found, "%s", hdf5_type_describe(type, text, sizeof text)));
    return hdf5_skip_or_fail(b, st, err);
}

/* A name that begins with "torch.", a prefix that the child may have added. */
static fsdpck_status unknown_name(hdf5_builder *b, const char *named, size_t nbytes,
                                  fsdpck_error *err)
{
    char shown[160];
    const fsdpck_status st = FAIL_WITH(
        err, UNSUPPORTED, H5_TYPE, ("attribute 'torch_dtype' of a dataset is not a dtype"),
        (tensor, b->name.text), (expected, "the torch name of a dtype, such as bfloat16"),
        (found, "'%s'", escape_text(shown, sizeof shown, named + 6, nbytes - 6)),
        (next, "correct or remove it: del file['NAME'].attrs['torch_dtype'] in h5py"));
    return hdf5_skip_or_fail(b, st, err);
}

static fsdpck_status take_type(hdf5_builder *b, const hdf5_type *type, hdf5_record_reader *g,
                               dtype *d, fsdpck_error *err)
{
    const size_t n = get_u8(g);
    const uint8_t *named = get_bytes(g, n);
    hdf5_dataset *known = hdf5_open_dataset_of(b);
    if (g->failed)
        return hdf5_bad_record(err);
    *d = hdf5_type_dtype(type, (const char *)named, n, &known->swap);
    if (*d == DTYPE_NONE && hdf5_type_is_misnamed(type, (const char *)named, n))
        return unknown_name(b, (const char *)named, n, err);
    if (*d == DTYPE_NONE)
        return unknown_type(b, type, err);
    b->told.itemsize = dtype_get(*d)->itemsize_bytes;
    if (known->fill_nbytes > 0 && known->fill_nbytes != b->told.itemsize)
        return hdf5_bad_record(err);
    return FSDPCK_OK;
}

static fsdpck_status take_chunking(hdf5_builder *b, hdf5_record_reader *g, fsdpck_error *err)
{
    hdf5_open_dataset *t = &b->told;
    if (t->ndim == 0)
        return hdf5_bad_record(err);
    t->chunk_flags = get_u8(g);
    for (unsigned i = 0; i < t->ndim; i++)
        t->chunk[i] = get_u64(g);
    RETURN_IF(hdf5_take_filters(b, g, err));
    t->nchunks = get_u64(g);
    return g->failed ? hdf5_bad_record(err) : FSDPCK_OK;
}

/* ---- the dataset ---- */

static fsdpck_status begin(hdf5_builder *b, fsdpck_error *err)
{
    memset(&b->told, 0, sizeof b->told);
    b->told.open = true;
    b->told.dataset = (uint32_t)b->f->datasets.count;
    b->told.first_chunk = catalogue_chunk_count(b->cat);
    b->told.tensor = CAT_NONE;
    return vec_push(&b->f->datasets, err) != NULL ? FSDPCK_OK : FSDPCK_LIMIT;
}

fsdpck_status hdf5_add_dataset(hdf5_builder *b, hdf5_record_reader *g, fsdpck_error *err)
{
    hdf5_open_dataset *t = &b->told;
    hdf5_type type;
    dtype d = DTYPE_NONE;
    RETURN_IF(begin(b, err));
    (void)get_u64(g);
    RETURN_IF(take_path(b, g, err));
    hdf5_type_get(g, &type);
    RETURN_IF(take_shape(t, g, err));
    RETURN_IF(take_fill(t, hdf5_open_dataset_of(b), g, err));
    RETURN_IF(take_type(b, &type, g, &d, err));
    RETURN_IF(take_fqn(b, g, err));
    if (t->layout == HDF5_LAYOUT_CHUNKED)
        RETURN_IF(take_chunking(b, g, err));
    if (t->skipped)
        return FSDPCK_OK;
    RETURN_IF(catalogue_add_tensor(b->cat, b->name.text, b->name.nbytes, d, t->ndim, t->dims,
                                   &t->tensor, err));
    hdf5_open_dataset_of(b)->ndim = (uint8_t)t->ndim;
    if (!checked_product(t->dims, t->ndim, &t->nelems) ||
        !checked_mul(t->nelems, t->itemsize, &t->nbytes))
        return hdf5_bad_record(err);
    hdf5_open_dataset_of(b)->nbytes = t->nbytes;
    return t->layout == HDF5_LAYOUT_CHUNKED && t->nelems > 0 ? hdf5_grid_begin(b, err) : FSDPCK_OK;
}

fsdpck_status hdf5_add_chunks(hdf5_builder *b, hdf5_record_reader *g, fsdpck_error *err)
{
    if (!b->told.open || b->told.layout != HDF5_LAYOUT_CHUNKED)
        return hdf5_bad_record(err);
    if (b->told.skipped) {
        (void)get_bytes(g, g->left);
        return FSDPCK_OK;
    }
    if (b->told.nelems == 0)
        return hdf5_bad_record(err);
    while (g->left > 0)
        RETURN_IF(hdf5_grid_add(b, g, err));
    return FSDPCK_OK;
}

fsdpck_status hdf5_add_inline(hdf5_builder *b, hdf5_record_reader *g, fsdpck_error *err)
{
    hdf5_open_dataset *t = &b->told;
    const size_t n = g->left;
    const uint8_t *bytes = get_bytes(g, n);
    const uint64_t zeros[HDF5_NDIM_MAX] = {0};
    if (!t->open || t->layout != HDF5_LAYOUT_COMPACT || t->nseen++ > 0)
        return hdf5_bad_record(err);
    if (t->skipped)
        return FSDPCK_OK;
    if (n != t->nbytes || n == 0)
        return hdf5_bad_place(b, "size of a compact dataset does not match its shape", UINT64_MAX,
                              n, err);
    const hdf5_chunk c = {.kind = HDF5_IN_TABLE, .table_at = b->f->inlined.count};
    RETURN_IF(vec_add_n(&b->f->inlined, bytes, n, err));
    return hdf5_put_chunk(b, zeros, t->dims, &c, 0, 0, err);
}

static fsdpck_status finish_contiguous(hdf5_builder *b, fsdpck_error *err)
{
    hdf5_open_dataset *t = &b->told;
    const uint64_t zeros[HDF5_NDIM_MAX] = {0};
    const hdf5_chunk rows = {.kind = HDF5_ROWS}, unwritten = {.kind = HDF5_UNWRITTEN};
    if (t->offset_bytes == UINT64_MAX) {
        RETURN_IF(hdf5_may_be_unwritten(b, t->nbytes, err));
        return hdf5_put_chunk(b, zeros, t->dims, &unwritten, 0, 0, err);
    }
    if (t->stored_nbytes < t->nbytes)
        return hdf5_bad_place(b, "dataset is smaller than its shape requires", t->offset_bytes,
                              t->stored_nbytes, err);
    if (!checked_range(t->offset_bytes, t->nbytes, b->in->end_bytes))
        return hdf5_bad_place(b, "dataset is outside the file", t->offset_bytes, t->nbytes, err);
    RETURN_IF(vec_add(&b->extents, &(hdf5_extent){t->offset_bytes, t->nbytes, t->tensor}, err));
    return hdf5_put_chunk(b, zeros, t->dims, &rows, t->offset_bytes, t->nbytes, err);
}

static fsdpck_status finish_open(hdf5_builder *b, fsdpck_error *err)
{
    hdf5_open_dataset *t = &b->told;
    const uint64_t zeros[HDF5_NDIM_MAX] = {0};
    const hdf5_chunk none = {.kind = HDF5_ROWS};
    if (t->nelems == 0 && t->nchunks > 0)
        return hdf5_bad_chunks(b, "empty dataset has chunks", t->nchunks, err);
    if (t->nelems == 0)
        return hdf5_put_chunk(b, zeros, t->dims, &none, 0, 0, err);
    if (t->layout == HDF5_LAYOUT_CHUNKED)
        return hdf5_grid_end(b, err);
    if (t->layout == HDF5_LAYOUT_CONTIGUOUS)
        return finish_contiguous(b, err);
    return t->nseen == 1 ? FSDPCK_OK : hdf5_bad_record(err);
}

fsdpck_status hdf5_error_unwritten(const hdf5_file *f, const hdf5_dataset *d, fsdpck_error *err)
{
    const bool has_value = d->fill_state == HDF5_FILL_VALUE;
    const fsdpck_status st = FAIL_WITH(
        err, BADINPUT, H5_UNWRITTEN,
        ("%s", d->unwritten_nbytes == d->nbytes ? "dataset was never written"
                                                : "part of the dataset was never written"),
        (found, "%" PRIu64 " of %" PRIu64 " bytes are not in the file; %s", d->unwritten_nbytes,
         d->nbytes,
         has_value ? "the dataset defines a fill value" : "the dataset defines no fill value"));
    if (has_value && !f->fills)
        error_next(
            err,
            "use an earlier file, or give --hdf5-fill if these elements must be the fill value");
    else
        error_next(err, "use an earlier file, or leave the dataset out with --exclude");
    return st;
}

/* With request->found the error is reported now, once, at every level of verify. */
static void judge_unwritten(hdf5_builder *b)
{
    const hdf5_dataset *d = hdf5_open_dataset_of(b);
    hdf5_file *f = b->f;
    fsdpck_error what = FSDPCK_ERROR_INIT;
    if (d->unwritten_nbytes == 0)
        return;
    if (hdf5_is_filled(f, d)) {
        f->filled_datasets++;
        f->filled_nbytes += d->unwritten_nbytes;
        return;
    }
    f->refused_datasets++;
    f->may_fill = f->may_fill || (d->fill_state == HDF5_FILL_VALUE && !f->fills);
    f->refused_nbytes += d->unwritten_nbytes;
    if (!f->tells)
        return;
    const fsdpck_status st = hdf5_error_unwritten(f, d, &what);
    error_tensor(&what, b->name.text);
    error_path(&what, b->in->tell->path);
    (void)open_request_report(b->in->tell, st, &what);
}

fsdpck_status hdf5_finish_dataset(hdf5_builder *b, fsdpck_error *err)
{
    hdf5_open_dataset *t = &b->told;
    if (!t->skipped) {
        RETURN_IF(finish_open(b, err));
        judge_unwritten(b);
    }
    RETURN_IF(vec_add(&b->done,
                      &(hdf5_done){t->first_chunk, catalogue_chunk_count(b->cat) - t->first_chunk,
                                   t->skipped ? CAT_NONE : t->tensor},
                      err));
    hdf5_open_dataset_release(b);
    return FSDPCK_OK;
}

void hdf5_open_dataset_release(hdf5_builder *b)
{
    budget_free(b->f->owner, b->told.taken, b->told.taken_nbytes);
    memset(&b->told, 0, sizeof b->told);
}

/* Another name of the same dataset: a separate tensor with the same locations. */
fsdpck_status hdf5_add_link(hdf5_builder *b, hdf5_record_reader *g, fsdpck_error *err)
{
    const uint64_t number = get_u64(g);
    uint64_t offsets[HDF5_NDIM_MAX], sizes[HDF5_NDIM_MAX], shape[HDF5_NDIM_MAX];
    uint32_t tensor;
    RETURN_IF(take_path(b, g, err));
    if (number >= b->done.count)
        return hdf5_bad_record(err);
    const hdf5_done done = *VEC_AT(&b->done, hdf5_done, number);
    if (done.tensor == CAT_NONE)
        return FSDPCK_OK;
    const cat_tensor t = *catalogue_tensor(b->cat, done.tensor);
    memcpy(shape, catalogue_shape(b->cat, done.tensor), t.ndim * sizeof *shape);
    RETURN_IF(catalogue_add_tensor(b->cat, b->name.text, b->name.nbytes, (dtype)t.dtype, t.ndim,
                                   shape, &tensor, err));
    for (uint64_t k = done.first_chunk; k < done.first_chunk + done.nchunks; k++) {
        const cat_chunk proto = *catalogue_chunk(b->cat, k);
        catalogue_chunk_box(b->cat, k, offsets, sizes);
        RETURN_IF(catalogue_add_chunk(b->cat, tensor, offsets, sizes, &proto, err));
    }
    return FSDPCK_OK;
}
