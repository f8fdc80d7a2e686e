/* dcp_internal.h: an open DCP folder, shared by the files of this folder. */
#ifndef FSDPCK_DCP_INTERNAL_H
#define FSDPCK_DCP_INTERNAL_H

#include <pthread.h>

#include "formats/common/zip.h"
#include "formats/dcp/dcp_metadata.h"
#include "formats/format.h"
#include "io/file_set.h"

/* cat_chunk.aux and cat_object.aux are an id in names.transforms; with this mark, an index in
 * inside. */
#define DCP_AUX_ITEM_TENSOR (UINT32_C(1) << 31)
/* On cat_chunk.aux: the position of this chunk in its tensor is unknown; locate refuses it. */
#define DCP_AUX_UNKNOWN_ORDER (UINT32_C(1) << 30)
/* On cat_chunk.aux: a box of a flattened blob, and an index in flat_boxes; one after the blob's first. */
#define DCP_AUX_FLATTENED    (UINT32_C(1) << 29)
#define DCP_AUX_FLAT_FURTHER (UINT32_C(1) << 28)
#define DCP_AUX_FLAT_INDEX   (DCP_AUX_FLAT_FURTHER - 1)

/* Marks that identify the writer's release. */
typedef struct dcp_marks {
    bool has_storage_meta, has_modules, has_version, has_mcore_data, has_six_properties;
    bool old_package, old_properties, has_planner, has_transforms, has_tensors, no_collectives;
    bool is_by_fsdpck, has_traces, has_new_paths, has_step, has_other_step;
    step_name step; /* of the first file with one */
    char step_file[96];
    unsigned part_folders; /* cat_origin.part_folders */
    int64_t world_size;    /* -1: unknown */
} dcp_marks;

/* What a file holds: a shard with elements or an object; a shard without elements. */
enum { DCP_USE_NEEDED = 1, DCP_USE_EMPTY = 2 };

typedef struct dcp_folder {
    folder dir;
    file_set blobs;     /* indices are the catalogue's */
    file_set metadatas; /* `.metadata`, or one a rank */
    dcp_names names;
    budget *owner;
    logger log;
    catalogue *cat;           /* borrowed */
    vec repeats;              /* dcp_repeat, sorted by object */
    vec ends;                 /* uint64_t, by file: end of the last blob in the metadata */
    vec uses;                 /* uint8_t, by file: DCP_USE_... */
    vec inside;               /* dcp_item_tensor: tensors inside byte items */
    vec flat_boxes;           /* dcp_flat_box: of chunks of flattened blobs */
    strtab item_tensor_names; /* of those with their own name */
    pthread_mutex_t lock;     /* streams */
    vec streams;              /* dcp_st_stream *: first of each file */
    dcp_marks marks;
    bool opaque_calls; /* unknown calls in byte items are kept as records */
    bool repaired;     /* dcp_boxes_repair was requested */
    bool has_names, has_lock, has_blobs, has_metadatas;
} dcp_folder;

/* Opens the folder, and nothing in it (dcp_folder.c). */
fsdpck_status dcp_folder_new(const open_request *req, catalogue *cat, dcp_folder **made,
                             fsdpck_error *err) FSDPCK_MUST_CHECK;
void dcp_folder_free(void *self);
/* format_reader.tables and .open_tables (dcp_tables.c). */
fsdpck_status dcp_tables(void *self, table_file *f, fsdpck_error *err);
fsdpck_status dcp_open_tables(const open_request *req, catalogue *cat, table_file *f, void **self,
                              fsdpck_error *err);

/* Stores the sizes of all required files in the catalogue (not yet sealed) and the file set, then
 * checks all blobs against them. FILE-MISSING, FILE-TYPE, FILE-SHORT, DCP-RANGE, DCP-RANGE-OVERLAP.
 */
fsdpck_status dcp_files_check(dcp_folder *d, const open_request *req,
                              fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Warns of files, or ends of files, that are missing and held only shards without elements
 * (dcp_empty_lost.c), after dcp_files_check. DCP-EMPTY-LOST. */
fsdpck_status dcp_warn_of_empty_lost(dcp_folder *d, fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Warns of data files that are newer than the `.metadata` of their folder, or than the oldest of `__{rank}.metadata`
 * (dcp_newer_data.c); by file, INT64_MIN: unknown. DCP-NEWER. */
fsdpck_status dcp_warn_of_newer(const dcp_folder *d, const int64_t *mtimes_ns,
                                fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Later than a copy of `nbytes` bytes that began at `than_ns` would be. */
bool dcp_is_newer(int64_t mtime_ns, int64_t than_ns, uint64_t nbytes);

/* Checks only the ranges, against the sizes in the catalogue. `d` may be NULL (no folder). */
fsdpck_status dcp_ranges_check(dcp_folder *d, const catalogue *cat,
                               fsdpck_error *err) FSDPCK_MUST_CHECK;

/* The same; files marked in `missing` (by file, may be NULL) hold no ranges. req may be NULL. */
fsdpck_status dcp_ranges_check_files(dcp_folder *d, const catalogue *cat, const open_request *req,
                                     const uint8_t *missing, fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Content of the files, by file. */
#define DCP_BLOB_OBJECT (UINT64_C(1) << 63)
typedef struct dcp_blob {
    uint64_t offset_bytes;
    uint64_t nbytes;
    uint64_t who; /* chunk, or DCP_BLOB_OBJECT and object */
} dcp_blob;

/* File f has blobs[starts[f]..starts[f + 1]), in the order of the catalogue; `starts` has one entry
 * more than files and is zeroed; `blobs` has space for all chunks and objects. empty_too: also
 * blobs of chunks without elements, whose ranges were not compared with their files. */
void dcp_blobs_group(const catalogue *cat, bool empty_too, uint64_t *starts, dcp_blob *blobs);

/* Fills marks->world_size of a save with one `.metadata`, by its files and the empty ones beside them
 * (dcp_count_ranks.c). Warns about data files of another save. RANKS-STATED. */
fsdpck_status dcp_count_ranks(dcp_folder *d, const open_request *req, dcp_marks *marks,
                              fsdpck_error *err) FSDPCK_MUST_CHECK;
/* After the catalogue is sealed. Warns (RANK-KIND) about folders of parts with another part in them (dcp_part_kinds.c). */
void dcp_warn_part_kinds(const dcp_folder *d, const dcp_marks *marks);

/* One `.metadata` of the folder (dcp_metadata_file.c). On failure *m is released. */
fsdpck_status dcp_metadata_read_file(dcp_folder *d, const open_request *req, const char *name,
                                     dcp_names *names, value_pool *pool, dcp_metadata *m,
                                     fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Compares `.metadata` with `__{rank}.metadata` beside it (dcp_second_save.c). Warns of DCP-STALE;
 * RANK-MIXED if they contradict each other. */
fsdpck_status dcp_second_save_check(dcp_folder *d, const open_request *req,
                                    fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Fills cat->origin from the marks in the metadata and the names of its folders. */
void dcp_origin_fill(catalogue *cat, const open_request *req, const dcp_marks *marks);

/* source and load_object (dcp_blob.c, dcp_object.c). */
fsdpck_status dcp_locate(void *ctx, uint64_t chunk, place *where, fsdpck_error *err);
fsdpck_status dcp_check_empty(void *ctx, uint64_t chunk, fsdpck_error *err);
fsdpck_status dcp_stream_open(void *ctx, uint64_t chunk, source_stream **s, fsdpck_error *err);
fsdpck_status dcp_stream_read(source_stream *s, void *dst, uint64_t nbytes, fsdpck_error *err);
fsdpck_status dcp_stream_finish(source_stream *s, fsdpck_error *err);
void dcp_stream_close(source_stream *s);
/* Of the object with the number that a dcp_repeat has; "" if it is omitted. */
const char *dcp_object_name(const catalogue *cat, uint32_t number);
fsdpck_status dcp_object_load(void *self, catalogue *cat, uint32_t object, fsdpck_error *err);
/* format_reader.check_records (dcp_check_records.c). */
fsdpck_status dcp_check_records(void *self, const record_check_request *request,
                                record_check_result *result, fsdpck_error *err);

/* Of the blob of a chunk that is no DCP_AUX_ITEM_TENSOR. */
uint32_t dcp_chunk_transform(const dcp_folder *d, const cat_chunk *c);

/* UNSUPPORTED, DCP-TRANSFORM, unless `transform` is 0 or only stream.zstd/1 (*zstd). */
fsdpck_status dcp_transform_check(const dcp_folder *d, uint32_t transform, bool *zstd,
                                  fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Content of a blob's header. For a safetensors stream only its kind is filled. */
typedef struct dcp_payload {
    dtype dtype;
    unsigned ndim;
    uint64_t sizes[NDIM_MAX];
    bool is_stream;
} dcp_payload;

/* Not checked against the catalogue. Any thread. */
fsdpck_status dcp_blob_describe(dcp_folder *d, uint64_t chunk, dcp_payload *p, place *where,
                                fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Compares a blob with the catalogue: DCP-PAYLOAD-DTYPE, DCP-PAYLOAD-SHAPE. */
fsdpck_status dcp_payload_check(const dcp_folder *d, uint64_t chunk, dtype found, unsigned ndim,
                                const uint64_t *sizes, fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Reads for zip and zstd, which use only offsets. */
typedef struct dcp_blob_reader {
    dcp_folder *d;
    uint32_t file;
} dcp_blob_reader;

fsdpck_status dcp_blob_read(void *ctx, uint64_t offset_bytes, void *dst, uint64_t nbytes,
                            fsdpck_error *err);
/* The blob of a chunk, to be read by r. */
zip_input dcp_blob_input(dcp_blob_reader *r, const cat_chunk *c);
/* A compressed blob has no more than this before its tensor's bytes. */
#define DCP_HEAD_LIMIT (16u << 20)

/* Safetensors streams inside of `.distcp` files (SerializationFormat.SAFETENSORS, torch 2.8 and
 * later): all blob offsets name the start of the stream and their lengths are invalid, so the
 * tensor is found by its FQN in the stream's header. */
typedef struct dcp_st_stream dcp_st_stream;

/* Whether bytes at offset_bytes can begin such a stream. */
fsdpck_status dcp_st_stream_probe(dcp_folder *d, uint32_t file_id, uint64_t offset_bytes,
                                  bool *is_stream, fsdpck_error *err) FSDPCK_MUST_CHECK;
fsdpck_status dcp_st_stream_locate(dcp_folder *d, uint64_t chunk, place *where,
                                   fsdpck_error *err) FSDPCK_MUST_CHECK;
void dcp_st_stream_free(dcp_st_stream *inner);

#endif
