/* Chunks of a dataset into the catalogue: each cell of the grid once, in the file or unwritten. */
#include <inttypes.h>
#include <string.h>

#include "base/checked.h"
#include "formats/hdf5/hdf5_build_internal.h"

/* Bytes that one worker decodes at a time. */
#define CHUNK_NBYTES_MAX ((uint64_t)256 << 20)
/* Largest deflate output per byte, and the overhead of a stream. */
#define DEFLATE_RATIO_MAX  1032u
#define DEFLATE_NBYTES_MIN ((uint64_t)64 << 10)
/* HDF5 skips a filter that lengthens its input by more than a few bytes. */
#define STORED_MORE_NBYTES ((uint64_t)64 << 10)

static hdf5_dataset *dataset_of(const hdf5_builder *b)
{
    return VEC_AT(&b->f->datasets, hdf5_dataset, b->told.dataset);
}

static fsdpck_status size_grid(hdf5_builder *b, fsdpck_error *err)
{
    hdf5_open_dataset *t = &b->told;
    uint64_t nelems, nbytes;
    t->ncells = 1;
    for (unsigned i = 0; i < t->ndim; i++) {
        if (t->chunk[i] == 0)
            return hdf5_bad_place(b, "chunks of a dataset have a dim of size 0", UINT64_MAX, 0,
                                  err);
        t->cells[i] = (t->dims[i] - 1) / t->chunk[i] + 1;
        /* At most one per element, which fits. */
        if (!checked_mul(t->ncells, t->cells[i], &t->ncells))
            return hdf5_bad_record(err);
    }
    if (!checked_product(t->chunk, t->ndim, &nelems) || !checked_mul(nelems, t->itemsize, &nbytes))
        return hdf5_bad_place(b, "chunks of a dataset exceed the largest possible size", UINT64_MAX,
                              0, err);
    dataset_of(b)->chunk_nbytes = nbytes;
    return FSDPCK_OK;
}

/* Check that there are few unwritten cells before allocating a bit for each. */
static fsdpck_status count_unwritten(hdf5_builder *b, fsdpck_error *err)
{
    hdf5_open_dataset *t = &b->told;
    uint64_t nbytes;
    if (t->nchunks > t->ncells || t->nchunks > b->in->end_bytes)
        return hdf5_bad_chunks(b, "dataset has more chunks than its shape requires", t->nchunks,
                               err);
    if (t->nchunks == t->ncells)
        return FSDPCK_OK;
    if (hdf5_is_sparse(t->ncells, t->nchunks))
        return hdf5_too_sparse(b, t->ncells - t->nchunks, "chunks", err);
    if (!checked_mul(t->ncells - t->nchunks, dataset_of(b)->chunk_nbytes, &nbytes) ||
        nbytes > t->nbytes)
        nbytes = t->nbytes;
    return hdf5_may_be_unwritten(b, nbytes, err);
}

fsdpck_status hdf5_grid_begin(hdf5_builder *b, fsdpck_error *err)
{
    hdf5_open_dataset *t = &b->told;
    hdf5_dataset *d = dataset_of(b);
    RETURN_IF(size_grid(b, err));
    RETURN_IF(count_unwritten(b, err));
    d->chunk_at = b->f->sizes.count;
    RETURN_IF(vec_add_n(&b->f->sizes, t->chunk, t->ndim, err));
    t->taken_nbytes = t->ncells / 8 + 1;
    t->taken = budget_alloc(b->f->owner, t->taken_nbytes, err);
    return t->taken != NULL ? FSDPCK_OK : FSDPCK_LIMIT;
}

/* The part of a chunk that is in the dataset; whether it is all of it. */
static bool clip(const hdf5_open_dataset *t, const uint64_t *corner, uint64_t *sizes)
{
    bool whole = true;
    for (unsigned i = 0; i < t->ndim; i++) {
        const uint64_t left = t->dims[i] - corner[i];
        sizes[i] = left < t->chunk[i] ? left : t->chunk[i];
        whole = whole && sizes[i] == t->chunk[i];
    }
    return whole;
}

/* Its cell, marked. */
static fsdpck_status take_cell(hdf5_builder *b, const uint64_t *corner, uint64_t offset_bytes,
                               fsdpck_error *err)
{
    hdf5_open_dataset *t = &b->told;
    uint64_t cell = 0;
    for (unsigned i = 0; i < t->ndim; i++) {
        if (corner[i] >= t->dims[i] || corner[i] % t->chunk[i] != 0)
            return hdf5_bad_place(b, "chunk is not in the dataset's grid", offset_bytes, corner[i],
                                  err);
        cell = cell * t->cells[i] + corner[i] / t->chunk[i];
    }
    uint8_t *taken = &t->taken[cell / 8];
    if (*taken & 1u << cell % 8)
        return hdf5_bad_place(b, "chunk is listed twice", offset_bytes, cell, err);
    *taken = (uint8_t)(*taken | 1u << cell % 8);
    return FSDPCK_OK;
}

/* Bits of coders that were not applied, from those of filters. */
static uint32_t mask_of(const hdf5_open_dataset *t, uint32_t filters)
{
    uint32_t mask = 0;
    for (unsigned i = 0; i < t->nfilters; i++)
        if (t->coder_of[i] >= 0 && (filters >> i & 1u))
            mask |= 1u << t->coder_of[i];
    return mask;
}

static fsdpck_status check_sizes(hdf5_builder *b, const hdf5_chunk *c, uint64_t at, uint64_t nbytes,
                                 fsdpck_error *err)
{
    const uint64_t decoded = dataset_of(b)->chunk_nbytes;
    uint64_t most;
    if (nbytes == 0 || !checked_range(at, nbytes, b->in->end_bytes))
        return hdf5_bad_place(b, "chunk is outside the file", at, nbytes, err);
    if (c->kind != HDF5_CODED)
        return nbytes == decoded
                   ? FSDPCK_OK
                   : hdf5_bad_place(b, "size of a chunk does not match its shape", at, nbytes, err);
    if (nbytes > decoded && nbytes - decoded > STORED_MORE_NBYTES + decoded / 64)
        return hdf5_bad_place(b, "chunk is longer than its contents", at, nbytes, err);
    if (decoded <= CHUNK_NBYTES_MAX && checked_mul(nbytes, DEFLATE_RATIO_MAX, &most) &&
        (decoded <= DEFLATE_NBYTES_MIN || decoded <= most))
        return FSDPCK_OK;
    return FAIL_WITH(err, LIMIT, H5_BOMB, ("decoded chunk is too large"), (tensor, b->name.text),
                     (offset, at),
                     (expected, "at most %" PRIu64 " bytes, and %u per stored byte",
                      CHUNK_NBYTES_MAX, DEFLATE_RATIO_MAX),
                     (found, "%" PRIu64 " bytes of %" PRIu64, decoded, nbytes),
                     (next, "rewrite the file with smaller chunks: h5repack -l CHUNK=..."));
}

/* Whole rows of the dataset need no strides. */
static bool is_rows(const hdf5_open_dataset *t, const uint64_t *sizes, bool whole)
{
    unsigned i = 0;
    if (whole)
        return true;
    while (i < t->ndim && t->chunk[i] == 1)
        i++;
    for (i++; i < t->ndim; i++)
        if (sizes[i] != t->chunk[i])
            return false;
    return true;
}

fsdpck_status hdf5_grid_add(hdf5_builder *b, hdf5_record_reader *g, fsdpck_error *err)
{
    hdf5_open_dataset *t = &b->told;
    const hdf5_dataset *d = dataset_of(b);
    uint64_t corner[HDF5_NDIM_MAX], sizes[HDF5_NDIM_MAX];
    const uint64_t at = get_u64(g), nbytes = get_u64(g);
    const uint32_t filters = get_u32(g);
    for (unsigned i = 0; i < t->ndim; i++)
        corner[i] = get_u64(g);
    if (g->failed || t->nseen++ == t->nchunks)
        return hdf5_bad_record(err);
    RETURN_IF(take_cell(b, corner, at, err));
    const bool whole = clip(t, corner, sizes);
    hdf5_chunk c = {.mask = mask_of(t, filters)};
    const bool plain =
        c.mask == (1u << d->ncoders) - 1 || (!whole && (t->chunk_flags & HDF5_CHUNK_PLAIN_EDGES));
    c.kind = !plain ? HDF5_CODED : is_rows(t, sizes, whole) ? HDF5_ROWS : HDF5_GRID;
    RETURN_IF(check_sizes(b, &c, at, nbytes, err));
    RETURN_IF(vec_add(&b->extents, &(hdf5_extent){at, nbytes, t->tensor}, err));
    /* Of rows, those that are in the dataset. */
    const uint64_t used = c.kind == HDF5_ROWS ? box_nelems(sizes, t->ndim) * t->itemsize : nbytes;
    return hdf5_put_chunk(b, corner, sizes, &c, at, used, err);
}

fsdpck_status hdf5_grid_end(hdf5_builder *b, fsdpck_error *err)
{
    hdf5_open_dataset *t = &b->told;
    const hdf5_chunk unwritten = {.kind = HDF5_UNWRITTEN};
    uint64_t corner[HDF5_NDIM_MAX] = {0}, sizes[HDF5_NDIM_MAX];
    if (t->nseen != t->nchunks)
        return hdf5_bad_chunks(b, "dataset has chunks outside its grid", t->nchunks - t->nseen,
                               err);
    if (t->nchunks == 0)
        return hdf5_put_chunk(b, corner, t->dims, &unwritten, 0, 0, err);
    if (t->nchunks == t->ncells)
        return FSDPCK_OK;
    for (uint64_t cell = 0; cell < t->ncells; cell++) {
        if (t->taken[cell / 8] & 1u << cell % 8)
            continue;
        uint64_t rest = cell;
        for (unsigned i = t->ndim; i-- > 0; rest /= t->cells[i])
            corner[i] = rest % t->cells[i] * t->chunk[i];
        (void)clip(t, corner, sizes);
        RETURN_IF(hdf5_put_chunk(b, corner, sizes, &unwritten, 0, 0, err));
    }
    return FSDPCK_OK;
}
