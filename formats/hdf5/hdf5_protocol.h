/* hdf5_protocol.h: the report of the child process that reads an HDF5 file (hdf5_child.h).
 *
 * Consecutive records, little-endian, no padding:
 *
 *     u8 kind, u24 zero, u32 size of the rest
 *
 *     HELLO    u32 version of the protocol, u64 user block
 *     DATASET  u64 address of the object, u32 n, n bytes of name (parts with '/'),
 *              type, u8 space, u8 ndim, u64 dims[ndim], u8 layout,
 *              u64 offset (UINT64_MAX: none), u64 stored bytes,
 *              u8 fill (hdf5_fill), u8 n, n bytes of fill value as stored,
 *              u8 n, n bytes of the dtype attribute ("torch.x": must be torch's),
 *              u32 n, n bytes of the attribute with its name ("fqn"; 0: none, or the
 *              file is not of fsdpck);
 *              chunked: u8 flags, u64 chunk[ndim], u8 nfilters, of each u32 id, u8 n, u32 words[n];
 *              u64 nchunks
 *     INLINE   the bytes of the DATASET before it, which is compact
 *     CHUNKS   of the DATASET before it, any number of: u64 offset (UINT64_MAX: after the end of the
 *              file), u64 nbytes, u32 filter mask, u64 corner[ndim]
 *     AGAIN    u64 number of a DATASET (from 0), u32 n, n bytes of another name of it
 *     LEFT     u8 why (hdf5_left), u32 n, n bytes of name
 *     ATTR     u32 n, n bytes of name, the rest: text of a root attribute
 *     FAIL     u8 why (hdf5_fail), u32 n, n bytes of name, u32 n, n bytes: message of the library
 *     END      u64 number of DATASETs
 *
 *     type     u8 class, u8 order, u8 sign, u8 norm, u32 size, precision, offset, sign position,
 *              exponent position, exponent size, mantissa position, mantissa size, u64 bias,
 *              u32 nmembers, of at most 2 of them: u8 n, n bytes of name, u64 offset or value; of a
 *              compound then both types, without members
 *
 * Numbers of classes, orders, layouts and filters are HDF5's own. The reader (hdf5_build.h) trusts
 * none of it.
 */
#ifndef FSDPCK_FORMATS_HDF5_PROTOCOL_H
#define FSDPCK_FORMATS_HDF5_PROTOCOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Attribute "format" of the root group in files of fsdpck. */
#define HDF5_FORMAT_NAME "fsdpck"

#define HDF5_PROTOCOL_VERSION  1u
#define HDF5_HEAD_NBYTES       8u
#define HDF5_RECORD_NBYTES_MAX ((uint32_t)16 << 20)
#define HDF5_NAME_NBYTES_MAX   65536u /* with its groups' */
#define HDF5_NDIM_MAX          32u    /* H5S_MAX_RANK */
#define HDF5_FILTERS_MAX       32u
#define HDF5_DEPTH_MAX         256u /* groups, including the root group */
#define HDF5_FILL_NBYTES_MAX   32u

/* An unwritten cell of the grid also costs an entry. The reader refuses a file with this many more
 * cells than chunks, and the child does not search them. A dataset without chunks has one entry. */
#define HDF5_SPARSE_CELLS ((uint64_t)1 << 16)
#define HDF5_SPARSE_RATIO 16u

static inline bool hdf5_is_sparse(uint64_t ncells, uint64_t nchunks)
{
    const uint64_t few = nchunks + HDF5_SPARSE_CELLS;
    return nchunks > 0 && few > nchunks && ncells > few &&
           (ncells - few - 1) / HDF5_SPARSE_RATIO >= nchunks;
}

typedef enum hdf5_record {
    HDF5_HELLO = 1,
    HDF5_DATASET,
    HDF5_INLINE,
    HDF5_CHUNKS,
    HDF5_LINK,
    HDF5_LEFT,
    HDF5_ATTR,
    HDF5_FAIL,
    HDF5_END
} hdf5_record;

/* As H5T_class_t, H5T_order_t, H5T_sign_t, H5T_norm_t, H5D_layout_t, H5S_class_t. */
enum {
    HDF5_TYPE_INTEGER,
    HDF5_TYPE_FLOAT,
    HDF5_TYPE_TIME,
    HDF5_TYPE_STRING,
    HDF5_TYPE_BITFIELD,
    HDF5_TYPE_OPAQUE,
    HDF5_TYPE_COMPOUND,
    HDF5_TYPE_REFERENCE,
    HDF5_TYPE_ENUM,
    HDF5_TYPE_VLEN,
    HDF5_TYPE_ARRAY
};
enum { HDF5_ORDER_LE, HDF5_ORDER_BE, HDF5_ORDER_OTHER };
enum { HDF5_NORM_IMPLIED, HDF5_NORM_OTHER };
enum { HDF5_SPACE_SCALAR, HDF5_SPACE_SIMPLE, HDF5_SPACE_NULL };
enum { HDF5_LAYOUT_COMPACT, HDF5_LAYOUT_CONTIGUOUS, HDF5_LAYOUT_CHUNKED };
enum { HDF5_CHUNK_PLAIN_EDGES = 1 }; /* chunks that cross the edge are not filtered */

typedef enum hdf5_fill { HDF5_FILL_UNDEFINED, HDF5_FILL_ZERO, HDF5_FILL_VALUE } hdf5_fill;

/* Reason for leaving an object out. */
typedef enum hdf5_left {
    HDF5_LEFT_TEXT,
    HDF5_LEFT_NULL,
    HDF5_LEFT_DANGLING,
    HDF5_LEFT_GROUP, /* another name of an object that was visited */
    HDF5_LEFT_EMPTY,     /* a group without links */
    HDF5_LEFT_ATTRIBUTE, /* its name, not a path */
    HDF5_LEFT_COUNT
} hdf5_left;

/* Reason why the child stopped. */
typedef enum hdf5_fail {
    HDF5_FAIL_OPEN,   /* the library cannot open the file */
    HDF5_FAIL_OBJECT, /* nor an object of it */
    HDF5_FAIL_EXTERNAL_LINK,
    HDF5_FAIL_LINK_LOOP,
    HDF5_FAIL_LINK_KIND,
    HDF5_FAIL_EXTERNAL, /* storage in another file */
    HDF5_FAIL_VIRTUAL,
    HDF5_FAIL_DEPTH,
    HDF5_FAIL_COUNT, /* too many links, chunks, filters */
    HDF5_FAIL_MEMORY,
    HDF5_FAIL_NAME, /* too long */
    HDF5_FAIL_END
} hdf5_fail;

#endif
