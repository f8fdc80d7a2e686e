/* Errors of a dataset in the records, and its chunks in the catalogue. */
#include <inttypes.h>

#include "base/checked.h"
#include "formats/hdf5/hdf5_build_internal.h"

fsdpck_status hdf5_bad_record(fsdpck_error *err)
{
    return FAIL(err, BADINPUT, H5_DAMAGED, "HDF5 reader process returned invalid data");
}

static fsdpck_status bad_data(const hdf5_builder *b, const char *what, fsdpck_error *err)
{
    return FAIL_WITH(err, BADINPUT, H5_CHUNK, ("%s", what), (tensor, b->name.text));
}

fsdpck_status hdf5_bad_place(hdf5_builder *b, const char *what, uint64_t offset_bytes,
                             uint64_t nbytes, fsdpck_error *err)
{
    const fsdpck_status st = bad_data(b, what, err);
    if (offset_bytes != UINT64_MAX)
        error_offset(err, offset_bytes);
    error_found(err, "%" PRIu64 " bytes", nbytes);
    return st;
}

fsdpck_status hdf5_bad_chunks(hdf5_builder *b, const char *what, uint64_t count, fsdpck_error *err)
{
    const fsdpck_status st = bad_data(b, what, err);
    error_found(err, "%" PRIu64 " of them", count);
    return st;
}

fsdpck_status hdf5_skip_or_fail(hdf5_builder *b, fsdpck_status st, fsdpck_error *err)
{
    fsdpck_error what;
    if (b->in->tell == NULL || err == NULL)
        return st;
    what = *err;
    error_path(&what, b->in->tell->path);
    if (!open_request_report(b->in->tell, st, &what))
        return st;
    b->told.skipped = true;
    if (b->f->status == FSDPCK_OK)
        b->f->skipped = what;
    b->f->status = b->f->status == FSDPCK_OK ? st : b->f->status;
    return FSDPCK_OK;
}

static void count_unwritten(hdf5_builder *b, hdf5_chunk *chunk, uint64_t nbytes)
{
    hdf5_dataset *d = hdf5_open_dataset_of(b);
    chunk->first = d->unwritten_nbytes == 0;
    d->unwritten_nbytes += nbytes;
    b->f->unwritten_nbytes += nbytes;
}

fsdpck_status hdf5_put_chunk(hdf5_builder *b, const uint64_t *offsets, const uint64_t *sizes,
                             const hdf5_chunk *c, uint64_t offset_bytes, uint64_t nbytes,
                             fsdpck_error *err)
{
    static const uint8_t places[] = {[HDF5_ROWS] = LOCATION_ROWS,
                                     [HDF5_GRID] = LOCATION_STRIDED,
                                     [HDF5_CODED] = LOCATION_BLOB,
                                     [HDF5_UNWRITTEN] = LOCATION_FILL,
                                     [HDF5_IN_TABLE] = LOCATION_STRIDED};
    hdf5_chunk *kept = vec_push(&b->f->chunks, err);
    if (kept == NULL)
        return FSDPCK_LIMIT;
    *kept = *c;
    kept->dataset = b->told.dataset;
    if (c->kind == HDF5_UNWRITTEN)
        count_unwritten(b, kept, box_nelems(sizes, b->told.ndim) * b->told.itemsize);
    const bool swap = hdf5_open_dataset_of(b)->swap;
    const cat_chunk proto = {.aux = (uint32_t)(b->f->chunks.count - 1),
                             .rank = UINT16_MAX,
                             .place =
                                 swap && c->kind == HDF5_ROWS ? LOCATION_STRIDED : places[c->kind],
                             .offset_bytes = offset_bytes,
                             .nbytes = nbytes};
    if (b->f->chunks.count > UINT32_MAX)
        return FAIL(err, LIMIT, LIMIT_COUNT, "too many chunks");
    return catalogue_add_chunk(b->cat, b->told.tensor, offsets, sizes, &proto, err);
}

fsdpck_status hdf5_too_sparse(hdf5_builder *b, uint64_t count, const char *what, fsdpck_error *err)
{
    return FAIL_WITH(err, LIMIT, H5_SPARSE, ("file declares far more data than was written"),
                     (tensor, b->name.text),
                     (found, "%" PRIu64 " %s that were never written", count, what),
                     (next, "use the file only if you trust its source; to keep a dataset, write "
                            "all its elements, including zeros"));
}

fsdpck_status hdf5_may_be_unwritten(hdf5_builder *b, uint64_t nbytes, fsdpck_error *err)
{
    uint64_t most, sum;
    if (!checked_mul(b->in->end_bytes, HDF5_UNWRITTEN_RATIO_MAX, &most) ||
        most < HDF5_UNWRITTEN_NBYTES_MAX)
        most = HDF5_UNWRITTEN_NBYTES_MAX;
    if (!checked_add(b->f->unwritten_nbytes, nbytes, &sum) || sum > most)
        return hdf5_too_sparse(b, nbytes, "bytes", err);
    return FSDPCK_OK;
}
