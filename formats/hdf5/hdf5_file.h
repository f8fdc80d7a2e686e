/* hdf5_file.h: the reader's data of an HDF5 file besides its catalogue.
 *
 *     hdf5_file f;
 *     hdf5_file_init(&f, budget);
 *     RETURN_IF(hdf5_build(&f, &input, cat, err));   // hdf5_build.h: from the child's records
 *     ... cat_chunk.aux is an index of f.chunks ...
 *     hdf5_file_release(&f);
 */
#ifndef FSDPCK_FORMATS_HDF5_FILE_H
#define FSDPCK_FORMATS_HDF5_FILE_H

#include "base/alloc.h"
#include "formats/hdf5/hdf5_protocol.h"

/* Filters to reverse, in the order in which they were applied. */
enum { HDF5_DEFLATE = 1, HDF5_SHUFFLE = 2, HDF5_FLETCHER32 = 3 };
#define HDF5_CODERS_MAX 3u

typedef struct hdf5_dataset {
    uint64_t nbytes;
    uint64_t unwritten_nbytes; /* of them: elements that are not in the file */
    uint64_t chunk_nbytes;     /* of one chunk, decoded */
    uint64_t chunk_at;         /* in file.sizes: ndim sizes of a chunk */
    uint32_t shuffle_nbytes;
    uint8_t coders[HDF5_CODERS_MAX];
    uint8_t ncoders;
    uint8_t ndim;
    uint8_t fill_nbytes; /* 0: zeros */
    uint8_t fill_state;  /* hdf5_fill */
    bool swap;
    uint8_t fill[HDF5_FILL_NBYTES_MAX];
} hdf5_dataset;

typedef enum hdf5_kind {
    HDF5_ROWS,      /* elements of the box in rows */
    HDF5_GRID,      /* in rows of a whole chunk; the box may be a part of it */
    HDF5_CODED,     /* the same, filtered: a stream */
    HDF5_UNWRITTEN, /* not in the file: the fill value, as a stream */
    HDF5_IN_TABLE   /* in hdf5_file.inlined: a stream */
} hdf5_kind;

typedef struct hdf5_chunk {
    uint32_t dataset;
    uint32_t mask;     /* coders that were not applied, by bit */
    uint64_t table_at; /* HDF5_IN_TABLE */
    uint8_t kind;
    bool first; /* HDF5_UNWRITTEN: the first one of its dataset, which carries the error for all */
} hdf5_chunk;

typedef struct hdf5_file {
    budget *owner;
    vec datasets; /* hdf5_dataset */
    vec chunks;   /* hdf5_chunk */
    vec sizes;    /* uint64_t */
    vec inlined;  /* uint8_t: data of compact datasets */
    uint64_t unwritten_nbytes;
    /* Datasets with unwritten elements and the bytes of these: refused, and filled. */
    uint64_t refused_datasets, refused_nbytes;
    bool may_fill; /* --hdf5-fill would accept some of them */
    uint64_t filled_datasets, filled_nbytes;
    bool fills;    /* --hdf5-fill: unwritten elements take a fill value that the file defines */
    bool tells;    /* datasets that are refused are reported while the file is opened */
    bool is_named; /* a dataset has a name besides its path */
    fsdpck_error skipped;
    fsdpck_status status; /* of datasets with a reported error, which are not in the catalogue */
} hdf5_file;

static inline void hdf5_file_init(hdf5_file *f, budget *owner)
{
    *f = (hdf5_file){
        .owner = owner,
        .datasets = VEC_OF(hdf5_dataset, owner),
        .chunks = VEC_OF(hdf5_chunk, owner),
        .sizes = VEC_OF(uint64_t, owner),
        .inlined = VEC_OF(uint8_t, owner),
    };
}

/* Whether the unwritten elements of a dataset have a value: one that the file defines, not the
 * library's default, and that the user accepts. */
static inline bool hdf5_is_filled(const hdf5_file *f, const hdf5_dataset *d)
{
    return f->fills && d->fill_state == HDF5_FILL_VALUE;
}

static inline void hdf5_file_release(hdf5_file *f)
{
    VEC_RELEASE_ALL(&f->datasets, &f->chunks, &f->sizes, &f->inlined);
}

#endif
