/* pt_file.h: lays out torch.save zips for writing: one file, or one per rank. The writers build the
 * pickles (pt_writer.c, ranks_writer.c).
 *
 *     RETURN_IF(pt_files_begin(t, err));            // owns target.writer_state, make_deferred, want_crc
 *     for each file:
 *         pt_file_add_chunk(t, chunk, &number, err);     // while the pickle is made: the bytes of
 *         pt_file_add_bytes(t, text_at, n, &number, err);  // record data/NUMBER, in that order
 *         pt_file_add_composite(t, &number, err);              // likewise, of several chunks and texts:
 *             pt_file_part_chunk(t, chunk, err);
 *             pt_file_part_bytes(t, text_at, n, err);
 *         pt_file_mark(t, pickle.nbytes, err);              // around parts that differ between files
 *         pt_file_end(t, name, rank, &pickle, err);      // lays out the file and adds it
 *     ...
 *     pt_files_seal(t, put, ctx, err);              // format_writer.seal: the directories
 *
 * A file has, to the byte, the layout of torch 2.7 and newer: records data.pkl, .format_version,
 * .storage_alignment, byteorder, data/0.. in numeric order, version; 64-byte alignment;
 * descriptors. So torch may compute storage offsets instead of reading headers (.format_version
 * allows that), and mmap=True works; torch from 1.13 on reads it. .data/serialization_id is left
 * out: no reader needs it. The same target gives the same bytes.
 *
 * cat_chunk.aux becomes the record's number. Records are numbered in the order in which the pickle
 * first refers to them, as torch's computed offsets require. Descriptors are deferred bytes
 * (target.lates); those of composite records, which depend on more than one chunk, are written with
 * the directories.
 *
 * Files of many ranks are nearly equal: texts that a file shares with the file before (parts of the
 * pickle, headers of records) are stored once.
 */
#ifndef FSDPCK_PT_FILE_H
#define FSDPCK_PT_FILE_H

#include "formats/format.h"

fsdpck_status pt_files_begin(target *t, fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Adds a chunk, compact and row-major, as the next record; LIMIT or OK. */
fsdpck_status pt_file_add_chunk(target *t, uint64_t chunk, uint32_t *number,
                                fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Adds known bytes in target.text as the next record. */
fsdpck_status pt_file_add_bytes(target *t, uint64_t text_at, uint64_t nbytes, uint32_t *number,
                                fsdpck_error *err) FSDPCK_MUST_CHECK;

/* The next record consists of the parts that pt_file_part_* add until the next record or the end of
 * the file: chunks, compact and row-major, and known bytes in target.text. */
fsdpck_status pt_file_add_composite(target *t, uint32_t *number,
                                    fsdpck_error *err) FSDPCK_MUST_CHECK;
fsdpck_status pt_file_part_chunk(target *t, uint64_t chunk, fsdpck_error *err) FSDPCK_MUST_CHECK;
fsdpck_status pt_file_part_bytes(target *t, uint64_t text_at, uint64_t nbytes,
                                 fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Marks the start or end of a part that differs from other files. */
fsdpck_status pt_file_mark(target *t, uint64_t pickle_nbytes, fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Ends the file: name is relative to the output ("" for a single file), rank: the owner, or
 * CAT_NONE. */
fsdpck_status pt_file_end(target *t, const char *name, uint32_t rank, const text_buf *pickle,
                          fsdpck_error *err) FSDPCK_MUST_CHECK;

fsdpck_status pt_files_seal(const target *t, deferred_fn put, void *ctx,
                            fsdpck_error *err) FSDPCK_MUST_CHECK;

/* The flat state of a target without nesting, for rank `rank` (CAT_NONE: for all): names to
 * tensors, then names to objects. */
fsdpck_status pt_flat_root(catalogue *cat, uint32_t rank, value *root,
                           fsdpck_error *err) FSDPCK_MUST_CHECK;

/* format_writer.holds */
bool pt_file_holds(dtype d);

#endif
