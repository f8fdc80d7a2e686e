/* st_files.h: the open files of the three safetensors readers, and their `source`.
 *
 *     st_files *s;
 *     RETURN_IF(st_files_open(req, &s, err));
 *     RETURN_IF(st_files_add(s, "model.safetensors", err));       // any number, no I/O
 *     RETURN_IF(st_files_read_headers(s, err));                   // in parallel
 *     st_files_header(s, i), st_files_nbytes(s, i)
 *     st_files_drop_headers(s);                                   // once the catalogue has them
 *     st_files_source(s, cat, src);
 *     st_files_close(s);
 *
 * Files are numbered as they are added, and must get the same numbers in the catalogue.
 */
#ifndef FSDPCK_ST_FILES_H
#define FSDPCK_ST_FILES_H

#include "base/pool.h"
#include "formats/common/st_header.h"
#include "formats/format.h"
#include "io/file_set.h"

typedef struct st_files st_files;

/* For a folder: names are relative to it. For a file: the names given must be paths. */
fsdpck_status st_files_open(const open_request *req, st_files **s,
                            fsdpck_error *err) FSDPCK_MUST_CHECK;
fsdpck_status st_files_add(st_files *s, const char *name, fsdpck_error *err) FSDPCK_MUST_CHECK;
size_t st_files_count(const st_files *s);
/* Headers of all files added; errors name file and offset. */
fsdpck_status st_files_read_headers(st_files *s, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* The same of files that may be cut or damaged: without errors about their contents. See st_files_has_header. */
fsdpck_status st_files_read_damaged(st_files *s, fsdpck_error *err) FSDPCK_MUST_CHECK;
bool st_files_has_header(const st_files *s, size_t i);
/* Each tensor is whole in one file: `fn` adds those that cut file `index` costs to its error. `ctx` is used while headers are
 * read. See st_lost.h. */
typedef void (*st_lost_fn)(const st_files *s, const void *ctx, size_t index, text_buf *text);
void st_files_describe_lost(st_files *s, st_lost_fn fn, const void *ctx);
/* Threads of the request, at least 1; jobs that they share, see pool.h. */
unsigned st_files_threads(const st_files *s);
fsdpck_status st_files_run(const st_files *s, uint64_t njobs, pool_job_fn fn, void *ctx,
                           fsdpck_error *err) FSDPCK_MUST_CHECK;
const st_header *st_files_header(const st_files *s, size_t i);
/* Size of a file whose header was read. */
uint64_t st_files_nbytes(const st_files *s, size_t i);
/* See cat_file.identity. */
uint64_t st_files_identity(const st_files *s, size_t i);
const char *st_files_name(const st_files *s, size_t i);
/* Adds folder and name to an error about file i. */
void st_files_error_path(const st_files *s, size_t i, fsdpck_error *err);
/* Warns about unknown fields of entries. */
void st_files_warn_extra_fields(const st_files *s, const logger *log);
/* ST-UNPADDED, once. */
void st_files_note_unpadded(const st_files *s, const open_request *req);
/* ST-TIED: names that `__metadata__` ties to a tensor of the same file, and that no file stores. */
void st_files_warn_tied(const st_files *s, const logger *log);
/* Sets origin->metadata to the `__metadata__` of all files, NULL if none has any. Valid until
 * st_files_close. */
fsdpck_status st_files_keep_metadata(st_files *s, cat_origin *origin,
                                     fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Takes the texts of the index as cat->origin.index_metadata, likewise. */
void st_files_keep_index(st_files *s, cat_metadata *of_index, catalogue *cat);
void st_files_drop_headers(st_files *s);
/* Serves rows: format_reader.source. `self` is an st_files. */
void st_files_source(void *self, catalogue *cat, source *src);
/* format_reader.close; NULL is fine. */
void st_files_close(void *self);

/* One whole tensor of file `index` as a tensor of the catalogue with one chunk. */
fsdpck_status st_files_add_tensor(const st_files *s, size_t index, const st_entry *e,
                                  catalogue *cat, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* The same under another name. */
fsdpck_status st_files_add_named(const st_files *s, size_t index, const st_entry *e,
                                 const char *name, size_t name_nbytes, catalogue *cat,
                                 fsdpck_error *err) FSDPCK_MUST_CHECK;

#endif
