/* torch_folder.h: torch.save files of one folder, as one source. Shared by the readers of rank files
 * (formats/pt/ranks_*.c) and of DeepSpeed's folders (formats/deepspeed).
 *
 *     torch_folder *r;
 *     RETURN_IF(torch_folder_open(req, &r, err));
 *     RETURN_IF(torch_folder_add(r, cat, name, rank, &index, err));     // all files, before the next
 *     RETURN_IF(torch_folder_read(r, index, &pool, calls, &archive, err));
 *     RETURN_IF(torch_folder_shard_of(r, index, &archive, tensor, &piece, err));
 *     torch_folder_end_read(r, index, &archive, true);
 *     ...
 *     torch_folder_close(r);                                 // format_reader.close
 *
 * Each file is parsed once. Of its archive only the shards that the reader asks for remain, and the
 * zip if some records are deflated or not yet checked.
 */
#ifndef FSDPCK_FORMATS_TORCH_FOLDER_H
#define FSDPCK_FORMATS_TORCH_FOLDER_H

#include "formats/common/torch_archive.h"
#include "formats/format.h"
#include "io/file_set.h"

enum {
    TORCH_SHARD_ROWS = 1,
    TORCH_SHARD_SWAP = 2,
    TORCH_SHARD_CONJ = 4,
    TORCH_SHARD_NEG = 8,
    TORCH_SHARD_CRC = 16,
    TORCH_SHARD_STREAM = 32,
    TORCH_SHARD_UNCHECKED = 64, /* the record's local header is checked when it is located */
    TORCH_SHARD_GRAD = 128,
    TORCH_SHARD_OF_READER = 256 /* the first of the reader's own flags */
};

/* Location of the elements of one tensor of a file. */
typedef struct torch_shard {
    uint64_t offset_bytes;
    uint64_t record_offset_bytes;
    uint64_t record_nbytes;
    uint64_t dims_at; /* torch_folder.dims: ndim sizes, then ndim strides */
    uint32_t crc32;
    uint32_t file;
    uint32_t entry;  /* in the kept zip of its file */
    uint32_t tensor; /* for the reader; CAT_NONE at first */
    uint16_t rank;   /* of the file */
    uint16_t flags;
    uint8_t dtype;
    uint8_t ndim;
    uint8_t python; /* CAT_PYTHON_... */
} torch_shard;

struct torch_folder;

typedef struct torch_folder_file {
    struct torch_folder *owner;
    uint32_t file;
    uint16_t rank;
    char *saved_as;  /* without suffix, if another name than it has */
    zip_archive zip; /* kept where records are deflated or not yet checked */
    vec pieces;      /* while it is read: uint32_t of each archive tensor, or CAT_NONE */
} torch_folder_file;

typedef struct torch_folder {
    folder dir;
    file_set files;
    vec pieces; /* torch_shard, by cat_chunk.aux */
    vec dims;   /* uint64_t */
    vec inputs; /* torch_folder_file, by index in `files` */
    catalogue *cat;
    budget *owner;
    bool any_deflated; /* in files that were read */
} torch_folder;

fsdpck_status torch_folder_open(const open_request *req, torch_folder **out,
                                fsdpck_error *err) FSDPCK_MUST_CHECK;
void torch_folder_close(void *self); /* also NULL */
/* Adds a file to the folder and the catalogue, with the same index. Rank CAT_NONE: it has none. */
fsdpck_status torch_folder_add(torch_folder *r, catalogue *cat, const char *name, uint32_t rank,
                               uint32_t *index, fsdpck_error *err) FSDPCK_MUST_CHECK;

/* As torch_archive_open. On failure *a may still be released, by torch_folder_end_read. */
fsdpck_status torch_folder_read(torch_folder *r, uint32_t index, value_pool *pool,
                                torch_calls calls, torch_archive *a,
                                fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Releases the archive. `keep`: shards of the file are used, so the zip remains if it is needed to
 * read them. */
void torch_folder_end_read(torch_folder *r, uint32_t index, torch_archive *a, bool keep);
/* The piece of an archive tensor, made where there is none yet; PT-TENSOR-KIND without data. */
fsdpck_status torch_folder_shard_of(torch_folder *r, uint32_t index, const torch_archive *a,
                                    uint64_t tensor, uint32_t *piece,
                                    fsdpck_error *err) FSDPCK_MUST_CHECK;
const uint64_t *torch_shard_sizes(const torch_folder *r, const torch_shard *q);

/* torch_file_names.c: the name that a file was saved under; and, after all are read, RANK-NAME if files were exchanged. */
void torch_file_note_root(torch_folder *r, uint32_t index, const char *root);
void torch_file_names_check(torch_folder *r, const open_request *req);

/* After all files are read. Reports deflated records as a note. */
void torch_folder_finish(torch_folder *r, const open_request *req, catalogue *cat);
/* format_reader.source; the reader sets src->locate. */
void torch_folder_source(void *self, catalogue *cat, source *src);
/* Location of a whole shard, after its header was checked. */
fsdpck_status torch_folder_locate(const torch_folder *r, const torch_shard *q, place *where,
                                  fsdpck_error *err) FSDPCK_MUST_CHECK;

/* format_reader.check_records: records outside chunks, such as pickles, replicas that are read from
 * another rank, padding and unused storages. */
fsdpck_status torch_folder_check_records(void *self, const record_check_request *request,
                                         record_check_result *result, fsdpck_error *err);

#endif
