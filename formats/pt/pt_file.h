/* pt_file.h: the places of every byte of torch.save zips that are to be written: one file, or one a
 * rank. What is in the pickles is the writers' business (pt_writer.c, ranks_writer.c).
 *
 *     RETURN_IF(pt_files_begin(t, err));            // owns target.writer_state, make_deferred, want_crc
 *     for each file:
 *         pt_file_add_chunk(t, chunk, &number, err);     // while the pickle is made: the bytes of
 *         pt_file_add_bytes(t, text_at, n, &number, err);  // record data/NUMBER, in that order
 *         pt_file_add_composite(t, &number, err);              // likewise, of several chunks and texts:
 *             pt_file_part_chunk(t, chunk, err);
 *             pt_file_part_bytes(t, text_at, n, err);
 *         pt_file_mark(t, pickle.nbytes, err);              // about what is not as in others
 *         pt_file_end(t, name, rank, &pickle, err);      // places of all of it; adds the file
 *     ...
 *     pt_files_seal(t, put, ctx, err);              // format_writer.seal: the directories
 *
 * A file is, byte for byte, laid out as torch 2.7 and newer lay theirs: records data.pkl,
 * .format_version, .storage_alignment, byteorder, data/0.. in numeric order, version; 64-byte
 * alignment; descriptors. So torch may compute storage offsets instead of reading headers
 * (.format_version allows that), and mmap=True works; torch from 1.13 on reads it. Left out is
 * .data/serialization_id: no reader needs it. The same target gives the same bytes.
 *
 * cat_chunk.aux becomes the record's number. Records are numbered as the pickle first names them,
 * which torch's computed offsets demand. Descriptors are late bytes (target.lates), but those of
 * records of several parts, which depend on more than one chunk, come with the directories.
 *
 * Files of many ranks are nearly the same: texts that a file has in common with the file before (of
 * the pickle the ends of what lies between two cuts; headers of records) are held once.
 */
#ifndef FSDPCK_PT_FILE_H
#define FSDPCK_PT_FILE_H

#include "formats/format.h"

fsdpck_status pt_files_begin(target *t, fsdpck_error *err) FSDPCK_MUST_CHECK;

/* The chunk, compact and row-major, is the next record; LIMIT or OK. */
fsdpck_status pt_file_add_chunk(target *t, uint64_t chunk, uint32_t *number,
                                fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Known bytes, which lie in target.text, are the next record. */
fsdpck_status pt_file_add_bytes(target *t, uint64_t text_at, uint64_t nbytes, uint32_t *number,
                                fsdpck_error *err) FSDPCK_MUST_CHECK;

/* The next record is what pt_file_part_* say until a record is added or the file ends, one part
 * behind the other: chunks, compact and row-major, and known bytes, which lie in target.text. */
fsdpck_status pt_file_add_composite(target *t, uint32_t *number,
                                    fsdpck_error *err) FSDPCK_MUST_CHECK;
fsdpck_status pt_file_part_chunk(target *t, uint64_t chunk, fsdpck_error *err) FSDPCK_MUST_CHECK;
fsdpck_status pt_file_part_bytes(target *t, uint64_t text_at, uint64_t nbytes,
                                 fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Here something begins or ends that is not as in other files. */
fsdpck_status pt_file_mark(target *t, uint64_t pickle_nbytes, fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Ends the file: name is relative to the output ("" for a single file), rank CAT_NONE or whose it
 * is. */
fsdpck_status pt_file_end(target *t, const char *name, uint32_t rank, const text_buf *pickle,
                          fsdpck_error *err) FSDPCK_MUST_CHECK;

fsdpck_status pt_files_seal(const target *t, deferred_fn put, void *ctx,
                            fsdpck_error *err) FSDPCK_MUST_CHECK;

/* The flat state of a target without nesting, as rank `rank` has it (CAT_NONE: as all have it):
 * names to tensors, then names to objects. */
fsdpck_status pt_flat_root(catalogue *cat, uint32_t rank, value *root,
                           fsdpck_error *err) FSDPCK_MUST_CHECK;

/* format_writer.holds */
bool pt_file_holds(dtype d);

#endif
