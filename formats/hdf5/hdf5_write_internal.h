/* hdf5_write_internal.h: the parts of the HDF5 writer.
 *
 * libhdf5 describes and fsdpck moves: layout() lets the library make the whole file in memory, with
 * contiguous datasets that are allocated and never written (hdf5_describe), asks where each one's
 * data lie, and takes over as literals of the target what the library wrote. The engine then writes
 * the output as that of any other format.
 *
 * Where chunks are compressed (hdf5_compress.h), the library has the file open until the last of them has
 * its place, and is told their sizes, not their bytes (hdf5_driver.h).
 *
 * What a file holds (fsdpck-formats(5) has it for users, and promises it):
 *   - a dataset a tensor, contiguous or, with --compress, from HDF5_FILTERED_NBYTES_MIN on in chunks
 *     that are shuffled and deflated, in the order of the catalogue, which is the creation order that
 *     every group tracks. Its path is the FQN: what lies before a '/' is a group, and with
 *     --hdf5-groups before a '.' too.
 *   - attribute "torch_dtype" of each: torch's name without "torch.". What no type of HDF5 can be
 *     read right as lies there as unsigned integers of the same size (hdf5_stored_as).
 *   - attribute "fqn" of a dataset whose path with '.' for '/' is not its FQN.
 *   - of the root group: "format" ("fsdpck"), "format_version" (1), "source_format" ("dcp"); "objects",
 *     where there are some: hdf5_objects.h.
 * Texts are variable-length UTF-8. Nothing depends on time, host, path or release of fsdpck; no times
 * are tracked. The version of the format is that of HDF5 1.8 (superblock 2).
 */
#ifndef FSDPCK_FORMATS_HDF5_WRITE_INTERNAL_H
#define FSDPCK_FORMATS_HDF5_WRITE_INTERNAL_H

#include "formats/format.h"
#include "formats/hdf5/hdf5_protocol.h"

#define HDF5_FORMAT_NAME    "fsdpck"
#define HDF5_FORMAT_VERSION 1u
/* Data of this size and more begin at a multiple of it. */
#define HDF5_ALIGN_NBYTES 4096u

/* --- chunks that are compressed (hdf5_chunk_shape.c) --- */

/* What a chunk has at most. */
#define HDF5_CHUNK_NBYTES ((uint64_t)1 << 20)
/* Smaller tensors are contiguous: the table of chunks alone has 2 KiB and more. */
#define HDF5_FILTERED_NBYTES_MIN ((uint64_t)16 << 10)

/* A chunk is a run of the tensor's bytes: `rows` steps along `dim`, all of the dims behind it, one step of
 * those before. */
typedef struct hdf5_chunk_shape {
    unsigned dim;
    uint64_t rows;
    uint64_t span_nbytes; /* of all steps along `dim` */
    uint64_t chunk_nbytes;
} hdf5_chunk_shape;

/* False where it is contiguous. */
bool hdf5_chunk_shape_choose(dtype d, unsigned ndim, const uint64_t *shape, hdf5_chunk_shape *cut);
/* Where chunk `number` begins, and what each has; ndim of each. */
void hdf5_chunk_shape_corner(const hdf5_chunk_shape *cut, unsigned ndim, const uint64_t *shape,
                             uint64_t number, uint64_t *corner);
void hdf5_chunk_shape_sizes(const hdf5_chunk_shape *cut, unsigned ndim, const uint64_t *shape,
                            uint64_t *sizes);

/* How the elements of a dtype lie in a dataset. */
typedef enum hdf5_storage {
    HDF5_AS_NUMBER,  /* an integer or float type that libhdf5 converts without a fault */
    HDF5_AS_ENUM,    /* bool: int8 with FALSE and TRUE, as h5py has it */
    HDF5_AS_COMPLEX, /* compound of r and i, as h5py has it */
    HDF5_AS_BYTES    /* unsigned integers of the element's size: torch_dtype says what they are */
} hdf5_storage;

/* float8_e4m3fn and the like are bytes: HDF5 takes an exponent of ones for infinity or NaN, so its
 * type for them (H5T_FLOAT_F8E4M3 of 2.0) reads 256 as infinity and 448 as NaN. */
hdf5_storage hdf5_stored_as(dtype d);

/* --- names (hdf5_write_names.c) --- */

/* Paths in the file, without a leading '/'. */
typedef struct hdf5_names {
    strtab paths;  /* of tensor i: id i */
    strtab groups; /* each before what is in it */
} hdf5_names;

/* UNSUPPORTED where a name cannot be a path, or two get in each other's way. */
fsdpck_status hdf5_names_make(const catalogue *cat, bool dots_too, hdf5_names *names,
                              fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Whether the FQN is the path with '.' for '/': it need not be told then. */
bool hdf5_name_is_implied(const char *path, const char *fqn);
void hdf5_names_release(hdf5_names *names);

/* --- describing (hdf5_describe_hdf5.c; hdf5_describe_none.c: UNSUPPORTED) --- */

typedef struct hdf5_description {
    const catalogue *cat; /* the target's, unplaced */
    const hdf5_names *names;
    const text_buf *objects;
    int fd;         /* an empty file for reading and writing that may be sparse; left open */
    unsigned level; /* of deflate, 1 to 9; 0: all is contiguous */
} hdf5_description;

/* Where the data of each tensor lie in the file, UINT64_MAX where it has none or is cut; the file in
 * `fd` is whole but for them. From any thread: one at a time is in libhdf5 (hdf5_lock.h). */
fsdpck_status hdf5_describe(const hdf5_description *d, uint64_t *offsets,
                            fsdpck_error *err) FSDPCK_MUST_CHECK;

/* The same in steps, between which chunks get their places; by one thread at a time. What *d names is
 * borrowed until the end. */
typedef struct hdf5_describe_state hdf5_describe_state;
fsdpck_status hdf5_describe_begin(const hdf5_description *d, uint64_t *offsets,
                                  hdf5_describe_state **s, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* The place of a chunk of nbytes; `mask`: filters that were not done, by bit. */
fsdpck_status hdf5_describe_chunk(hdf5_describe_state *s, size_t tensor, const uint64_t *corner,
                                  uint32_t mask, uint64_t nbytes, uint64_t *offset_bytes,
                                  fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Frees it, also where it fails: then the file is not whole. NULL is fine. */
fsdpck_status hdf5_describe_end(hdf5_describe_state *s, fsdpck_error *err) FSDPCK_MUST_CHECK;

/* --- what the library wrote (hdf5_metadata_bytes.c) --- */

typedef struct hdf5_range {
    uint64_t offset_bytes, nbytes;
} hdf5_range;

/* A file without a name, in memory, for `fd` above. */
fsdpck_status hdf5_memory_file(int *fd, fsdpck_error *err) FSDPCK_MUST_CHECK;
fsdpck_status hdf5_file_nbytes(int fd, uint64_t *nbytes, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* All of the file that is not zero and not of these ranges, which are sorted, in order. */
fsdpck_status hdf5_put_metadata(int fd, hdf5_range *taken, size_t count, filter_put_fn put,
                                void *ctx, fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Part of describing, hdf5_write_types_hdf5.c: a type of libhdf5 (its hid_t) to be closed, little-endian, as
 * hdf5_stored_as says; negative where it failed. */
int64_t hdf5_type_new(dtype d);

#endif
