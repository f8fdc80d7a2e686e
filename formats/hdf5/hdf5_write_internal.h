/* hdf5_write_internal.h: the parts of the HDF5 writer.
 *
 * libhdf5 writes metadata, fsdpck copies data. layout() lets the library create the whole file in
 * memory, with contiguous datasets that are allocated but never written (hdf5_describe). It then
 * queries the location of each dataset's data and adds the library's output as constant bytes of
 * the target. The engine writes the output as for any other format.
 *
 * With compressed chunks (hdf5_compress.h) the library keeps the file open until the last chunk has
 * its location, and receives their sizes, not their bytes (hdf5_driver.h).
 *
 * Content of a file (specified for users in fsdpck-formats(5)):
 *   - one dataset per tensor, contiguous or, with --compress, from HDF5_FILTERED_NBYTES_MIN on in chunks
 *     that are shuffled and deflated, in the order of the catalogue, which is the creation order that
 *     every group tracks. Its path is the FQN: the part before a '/' is a group, and with
 *     --hdf5-groups before a '.' too.
 *   - attribute "torch_dtype" of each: torch's name without "torch.". A dtype without a correct HDF5
 *     type is stored as unsigned integers of the same size (hdf5_stored_as).
 *   - attribute "fqn" of a dataset whose path with '.' for '/' is not its FQN.
 *   - of the root group: "format" ("fsdpck"), "format_version" (1), "source_format" ("dcp"); "objects",
 *     if there are any: hdf5_objects.h.
 * Texts are variable-length UTF-8. Nothing depends on time, host, path or release of fsdpck; no times
 * are tracked. The version of the format is that of HDF5 1.8 (superblock 2).
 */
#ifndef FSDPCK_FORMATS_HDF5_WRITE_INTERNAL_H
#define FSDPCK_FORMATS_HDF5_WRITE_INTERNAL_H

#include "formats/format.h"
#include "formats/hdf5/hdf5_protocol.h"

#define HDF5_FORMAT_VERSION 1u
/* Data of at least this size is aligned to it. */
#define HDF5_ALIGN_NBYTES 4096u

/* --- compressed chunks (hdf5_chunk_shape.c) --- */

/* Largest size of a chunk. */
#define HDF5_CHUNK_NBYTES ((uint64_t)1 << 20)
/* Smaller tensors are contiguous: the table of chunks alone takes at least 2 KiB. */
#define HDF5_FILTERED_NBYTES_MIN ((uint64_t)16 << 10)

/* A chunk is a run of the tensor's bytes: `rows` steps along `dim`, all of the dims after it, one
 * step of those before. */
typedef struct hdf5_chunk_shape {
    unsigned dim;
    uint64_t rows;
    uint64_t span_nbytes; /* of all steps along `dim` */
    uint64_t chunk_nbytes;
} hdf5_chunk_shape;

/* False if it is contiguous. */
bool hdf5_chunk_shape_choose(dtype d, unsigned ndim, const uint64_t *shape, hdf5_chunk_shape *cut);
/* Start of chunk `number`, and its shape; ndim values each. */
void hdf5_chunk_shape_corner(const hdf5_chunk_shape *cut, unsigned ndim, const uint64_t *shape,
                             uint64_t number, uint64_t *corner);
void hdf5_chunk_shape_sizes(const hdf5_chunk_shape *cut, unsigned ndim, const uint64_t *shape,
                            uint64_t *sizes);

/* Storage of the elements of a dtype in a dataset. */
typedef enum hdf5_storage {
    HDF5_AS_NUMBER,  /* an integer or float type that libhdf5 converts without a fault */
    HDF5_AS_ENUM,    /* bool: int8 with FALSE and TRUE, as in h5py */
    HDF5_AS_COMPLEX, /* compound of r and i, as in h5py */
    HDF5_AS_BYTES    /* unsigned integers of the element's size: torch_dtype names their type */
} hdf5_storage;

/* float8_e4m3fn and the like are bytes: HDF5 reads an exponent of ones as infinity or NaN, so its
 * type for them (H5T_FLOAT_F8E4M3 of 2.0) reads 256 as infinity and 448 as NaN. */
hdf5_storage hdf5_stored_as(dtype d);

/* --- names (hdf5_write_names.c) --- */

/* Paths in the file, without a leading '/'. */
typedef struct hdf5_names {
    strtab paths;  /* of tensor i: id i */
    strtab groups; /* each before its members */
} hdf5_names;

/* UNSUPPORTED if a name cannot be a path, or two names conflict. */
fsdpck_status hdf5_names_make(const catalogue *cat, bool dots_too, hdf5_names *names,
                              fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Whether the FQN is the path with '.' for '/': then it is not stored. */
bool hdf5_name_is_implied(const char *path, const char *fqn);
void hdf5_names_release(hdf5_names *names);

/* --- describing (hdf5_describe_hdf5.c; hdf5_describe_none.c: UNSUPPORTED) --- */

typedef struct hdf5_description {
    const catalogue *cat; /* the target's, without locations */
    const hdf5_names *names;
    const text_buf *objects;
    int fd;         /* an empty file for reading and writing that may be sparse; left open */
    unsigned level; /* of deflate, 1 to 9; 0: all is contiguous */
} hdf5_description;

/* Offset of each tensor's data in the file, UINT64_MAX if it has none or is chunked; the file in
 * `fd` is complete except for them. Any thread: hdf5_lock.h serialises the use of libhdf5. */
fsdpck_status hdf5_describe(const hdf5_description *d, uint64_t *offsets,
                            fsdpck_error *err) FSDPCK_MUST_CHECK;

/* The same in steps; chunks get their locations between them. One thread at a time. The contents of
 * *d are borrowed until the end. */
typedef struct hdf5_describe_state hdf5_describe_state;
fsdpck_status hdf5_describe_begin(const hdf5_description *d, uint64_t *offsets,
                                  hdf5_describe_state **s, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* The location of a chunk of nbytes; `mask`: filters that were not applied, by bit. */
fsdpck_status hdf5_describe_chunk(hdf5_describe_state *s, size_t tensor, const uint64_t *corner,
                                  uint32_t mask, uint64_t nbytes, uint64_t *offset_bytes,
                                  fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Frees it, also on failure: then the file is incomplete. NULL is fine. */
fsdpck_status hdf5_describe_end(hdf5_describe_state *s, fsdpck_error *err) FSDPCK_MUST_CHECK;

/* --- the library's output (hdf5_metadata_bytes.c) --- */

typedef struct hdf5_range {
    uint64_t offset_bytes, nbytes;
} hdf5_range;

/* An unnamed file in memory, for `fd` above. */
fsdpck_status hdf5_memory_file(int *fd, fsdpck_error *err) FSDPCK_MUST_CHECK;
fsdpck_status hdf5_file_nbytes(int fd, uint64_t *nbytes, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* All non-zero bytes of the file outside these sorted ranges, in order. */
fsdpck_status hdf5_put_metadata(int fd, hdf5_range *taken, size_t count, filter_put_fn put,
                                void *ctx, fsdpck_error *err) FSDPCK_MUST_CHECK;

/* hdf5_write_types_hdf5.c: a libhdf5 type (its hid_t, to be closed), little-endian, for
 * hdf5_stored_as; negative on failure. */
int64_t hdf5_type_new(dtype d);

#endif
