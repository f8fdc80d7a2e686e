/* torch_zip_write.h: builds a torch.save zip in the layout of torch 2.7 and newer.
 *
 * Records in torch's order: data.pkl, .format_version, .storage_alignment, byteorder, data/0..,
 * version. With .format_version torch may compute storage offsets instead of reading their headers.
 * The layout must therefore equal miniz's to the byte: storages in numeric order, 64-byte alignment
 * from the start of the zip, descriptors. .data/serialization_id is left out.
 *
 *     torch_zip_put_pickle(&out, pickle, nbytes);        // or the same in parts
 *     torch_zip_put_marks(&out, header_at);              // at this length of the zip
 *     ... zip_put_local, data, zip_put_descriptor of data/0, data/1, ...
 *     torch_zip_put_version(&out, header_at);
 *     entries_at = out.nbytes;
 *     at = torch_zip_put_central_head(&out, nbytes, crc);
 *     at = torch_zip_put_central_storage(&out, at, 0, nbytes, crc);   // each
 *     torch_zip_put_central_end(&out, entries_at, at, 1);
 */
#ifndef FSDPCK_FORMATS_COMMON_TORCH_ZIP_WRITE_H
#define FSDPCK_FORMATS_COMMON_TORCH_ZIP_WRITE_H

#include "base/alloc.h"

#define TORCH_STORAGE_NAME_NBYTES 40

extern const char torch_zip_pickle_name[];

/* "archive/data/NUMBER"; its length. */
size_t torch_zip_storage_name(uint64_t number, char name[TORCH_STORAGE_NAME_NBYTES]);
/* data.pkl, at the beginning of the zip. */
void torch_zip_put_pickle(text_buf *out, const void *pickle, size_t nbytes);
/* The records between data.pkl and the storages; `header_at` counts from the beginning of the zip,
 * here and below. */
void torch_zip_put_marks(text_buf *out, uint64_t header_at);
void torch_zip_put_version(text_buf *out, uint64_t header_at);

/* Directory entries of data.pkl and the marks. Returns the offset of the first storage's header. */
uint64_t torch_zip_put_central_head(text_buf *out, uint64_t pickle_nbytes, uint32_t pickle_crc);
/* A directory entry. Returns the offset of the next header. The CRC of an empty record is 0,
 * whatever is given. */
uint64_t torch_zip_put_central_storage(text_buf *out, uint64_t header_at, uint64_t number,
                                       uint64_t nbytes, uint32_t crc);
/* The version record's entry and the end records; `entries_at` is the offset of the directory in
 * `out`, storage_count the number of data/N records. Returns the offset of the directory in the
 * zip. */
uint64_t torch_zip_put_central_end(text_buf *out, size_t entries_at, uint64_t version_at,
                                   uint64_t storage_count);

#endif
