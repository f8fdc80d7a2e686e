/* hdf5_build_internal.h: shared by the files of hdf5_build. */
#ifndef FSDPCK_FORMATS_HDF5_BUILD_INTERNAL_H
#define FSDPCK_FORMATS_HDF5_BUILD_INTERNAL_H

#include "formats/hdf5/hdf5_build.h"
#include "formats/hdf5/hdf5_type.h"

/* Limit for unwritten elements: beyond it, a few bytes would expand to terabytes. */
#define HDF5_UNWRITTEN_NBYTES_MAX ((uint64_t)64 << 20)
#define HDF5_UNWRITTEN_RATIO_MAX  64u

/* The DATASET being received. */
typedef struct hdf5_open_dataset {
    bool open;
    bool skipped; /* has a reported error */
    uint32_t tensor;
    uint32_t dataset; /* in hdf5_file.datasets */
    uint8_t layout;
    uint8_t fill;
    uint8_t chunk_flags;
    uint8_t nfilters;
    int8_t coder_of[HDF5_FILTERS_MAX]; /* by filter: its position among the coders */
    unsigned ndim;
    uint64_t dims[HDF5_NDIM_MAX];
    uint64_t chunk[HDF5_NDIM_MAX];
    uint64_t cells[HDF5_NDIM_MAX]; /* of the grid */
    uint64_t offset_bytes, stored_nbytes;
    uint64_t nbytes, nelems;
    uint64_t ncells, nchunks, nseen;
    uint64_t first_chunk; /* in the catalogue */
    unsigned itemsize;
    uint8_t *taken; /* one bit per cell */
    uint64_t taken_nbytes;
} hdf5_open_dataset;

/* A DATASET that was finished, for AGAIN. */
typedef struct hdf5_done {
    uint64_t first_chunk;
    uint64_t nchunks;
    uint32_t tensor; /* CAT_NONE: skipped */
} hdf5_done;

typedef struct hdf5_extent {
    uint64_t offset_bytes, nbytes;
    uint32_t tensor;
} hdf5_extent;

/* Items left out for one reason. */
typedef struct hdf5_left_out {
    uint64_t count;
    char names[400]; /* the first, in quotes */
} hdf5_left_out;

typedef struct hdf5_builder {
    hdf5_file *f;
    const hdf5_input *in;
    catalogue *cat;
    hdf5_open_dataset told;
    vec done;    /* hdf5_done */
    vec extents; /* hdf5_extent */
    text_buf name;
    hdf5_left_out left[HDF5_LEFT_COUNT];
    bool ended, is_by_fsdpck, has_objects;
} hdf5_builder;

/* hdf5_dataset.c */
fsdpck_status hdf5_add_dataset(hdf5_builder *b, hdf5_record_reader *g,
                               fsdpck_error *err) FSDPCK_MUST_CHECK;
fsdpck_status hdf5_add_chunks(hdf5_builder *b, hdf5_record_reader *g,
                              fsdpck_error *err) FSDPCK_MUST_CHECK;
fsdpck_status hdf5_add_inline(hdf5_builder *b, hdf5_record_reader *g,
                              fsdpck_error *err) FSDPCK_MUST_CHECK;
/* All records of a dataset were received. */
fsdpck_status hdf5_finish_dataset(hdf5_builder *b, fsdpck_error *err) FSDPCK_MUST_CHECK;
fsdpck_status hdf5_add_link(hdf5_builder *b, hdf5_record_reader *g,
                            fsdpck_error *err) FSDPCK_MUST_CHECK;
void hdf5_open_dataset_release(hdf5_builder *b);

/* The entry of the open dataset in hdf5_file.datasets. */
static inline hdf5_dataset *hdf5_open_dataset_of(const hdf5_builder *b)
{
    return VEC_AT(&b->f->datasets, hdf5_dataset, b->told.dataset);
}
/* hdf5_filters.c: UNSUPPORTED, H5-FILTER. */
fsdpck_status hdf5_take_filters(hdf5_builder *b, hdf5_record_reader *g,
                                fsdpck_error *err) FSDPCK_MUST_CHECK;

/* hdf5_grid.c */
fsdpck_status hdf5_grid_begin(hdf5_builder *b, fsdpck_error *err) FSDPCK_MUST_CHECK;
fsdpck_status hdf5_grid_add(hdf5_builder *b, hdf5_record_reader *g,
                            fsdpck_error *err) FSDPCK_MUST_CHECK;
fsdpck_status hdf5_grid_end(hdf5_builder *b, fsdpck_error *err) FSDPCK_MUST_CHECK;

/* hdf5_build_chunks.c */
/* For an error of only the open dataset: OK, and the dataset is skipped, if request->found is set;
 * otherwise `st`. */
fsdpck_status hdf5_skip_or_fail(hdf5_builder *b, fsdpck_status st,
                                fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Adds a chunk of the open dataset to catalogue and table. */
fsdpck_status hdf5_put_chunk(hdf5_builder *b, const uint64_t *offsets, const uint64_t *sizes,
                             const hdf5_chunk *c, uint64_t offset_bytes, uint64_t nbytes,
                             fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Unwritten elements: H5-SPARSE if there are too many, H5-UNWRITTEN if they have no value. */
fsdpck_status hdf5_may_be_unwritten(hdf5_builder *b, uint64_t nbytes,
                                    fsdpck_error *err) FSDPCK_MUST_CHECK;
/* LIMIT, H5-SPARSE. */
fsdpck_status hdf5_too_sparse(hdf5_builder *b, uint64_t count, const char *what,
                              fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Sets the error for an invalid record. */
fsdpck_status hdf5_bad_record(fsdpck_error *err) FSDPCK_MUST_CHECK;
/* BADINPUT, H5-CHUNK, with the open dataset's name: of bytes, or a number of chunks. */
fsdpck_status hdf5_bad_place(hdf5_builder *b, const char *what, uint64_t offset_bytes,
                             uint64_t nbytes, fsdpck_error *err) FSDPCK_MUST_CHECK;
fsdpck_status hdf5_bad_chunks(hdf5_builder *b, const char *what, uint64_t count,
                              fsdpck_error *err) FSDPCK_MUST_CHECK;

#endif
