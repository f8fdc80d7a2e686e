/* dcp_write_internal.h: shared by the files of the DCP writer.
 *
 * Steps of layout(), in this order:
 *
 *     rank_assign(t, err);                          // cat_chunk.file, cat_object.file
 *     dcp_put_object(w, t, object, &at, err);     // dcp_write_object.c: a byte item
 *     dcp_put_chunk(w, t, chunk, align, &at, err); // dcp_write_blob.c: a tensor's blob
 *     dcp_put_metadata(t, file, &nbytes, err);    // dcp_write_metadata.c: .metadata
 *
 * While they run, cat_chunk.file and cat_object.file are the number of the file: the rank that
 * writes the item, plus world_size for each earlier part (dcp_write.parts). cat_object.offset_bytes
 * and nbytes give its blob.
 */
#ifndef FSDPCK_DCP_WRITE_INTERNAL_H
#define FSDPCK_DCP_WRITE_INTERNAL_H

#include "formats/common/rank_assign.h"
#include "formats/dcp/dcp_part_folders.h"
#include "formats/format.h"

/* A blob without its data: all blobs of one dtype and shape share it. cat_chunk.aux is its number.
 */
typedef struct dcp_form {
    uint64_t text_at; /* in target.text: the head, up to the data, then the tail with CRCs of 0 */
    uint32_t head_nbytes; /* a multiple of 64 */
    uint32_t tail_nbytes;
    uint32_t crc_at[2]; /* in the tail: the CRC in the descriptor and in the directory */
} dcp_form;

/* Position in target.text of the blob of equal pickles: hyperparameters repeat often. */
typedef struct dcp_pickle_blob {
    uint64_t text_at;
    uint64_t nbytes;
} dcp_pickle_blob;

/* The blob of an object that contains tensors. */
typedef struct dcp_inner_blob {
    uint32_t file;
    uint32_t pickle_crc;
    uint64_t pickle_nbytes;
    uint64_t blob_at;      /* in the file */
    uint64_t directory_at; /* in the blob */
    size_t first_chunk;    /* in dcp_write.inner_chunks: the storages in order */
    size_t chunk_count;
} dcp_inner_blob;

/* A DCP folder: its files of blobs are world_size ones, in the order of ranks. */
typedef struct dcp_write_part {
    const char *folder; /* in the output; NULL: the output itself, with all names */
    uint32_t part;      /* of dcp_part_folders.h */
} dcp_write_part;

/* target.writer_state. */
typedef struct dcp_write {
    budget *owner;
    strtab form_keys;             /* ids are those of forms */
    vec forms;                    /* dcp_form */
    strtab pickles;               /* of objects without tensors; ids are those of pickle_blobs */
    vec pickle_blobs;             /* dcp_pickle_blob */
    vec inner_blobs;              /* dcp_inner_blob */
    vec inner_chunks;             /* uint64_t */
    const dcp_part_folders *form; /* NULL: the output is one DCP folder */
    vec parts; /* dcp_write_part: the folders of the output; one entry if the output is itself one */
    vec file_names;    /* uint32_t: of each file of blobs, the name in its `.metadata` */
    uint64_t zeros_at; /* in target.text: DCP_ZEROS_NBYTES zeros, where blobs are spaced out */
    bool has_zeros;
} dcp_write;

#define DCP_ZEROS_NBYTES     65536u
#define DCP_ALIGN_NBYTES_MAX (1u << 30)

/* Each writes one item at *at of its file and moves *at past it. A chunk's data is aligned to
 * align_nbytes in the file (0: not aligned). */
fsdpck_status dcp_put_chunk(dcp_write *w, target *t, uint64_t chunk, uint64_t align_nbytes,
                            uint64_t *at, fsdpck_error *err) FSDPCK_MUST_CHECK;
fsdpck_status dcp_put_object(dcp_write *w, target *t, uint32_t object, uint64_t *at,
                             fsdpck_error *err) FSDPCK_MUST_CHECK;

/* target.make_deferred. */
void dcp_make_deferred(const target *t, size_t index, uint32_t crc32, uint8_t *dst);
/* Deferred bytes of the objects with tensors. */
fsdpck_status dcp_seal_objects(const target *t, deferred_fn put, void *ctx,
                               fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Offset and size of the blob of a chunk. */
void dcp_blob_range(const target *t, uint64_t chunk, uint64_t *offset_bytes, uint64_t *nbytes);

/* Adds the whole `.metadata` of a part as constant bytes at the beginning of `file`; returns its
 * size. */
fsdpck_status dcp_put_metadata(target *t, const dcp_write *w, const dcp_write_part *part,
                               uint32_t file_index, uint64_t *nbytes,
                               fsdpck_error *err) FSDPCK_MUST_CHECK;

#endif
