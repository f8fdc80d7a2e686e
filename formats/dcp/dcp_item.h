/* dcp_item.h: byte items, as read by load_object (dcp_object.c) and verify (dcp_check_records.c).
 */
#ifndef FSDPCK_DCP_ITEM_H
#define FSDPCK_DCP_ITEM_H

#include "formats/common/torch_archive.h"
#include "formats/dcp/dcp_catalogue.h"
#include "formats/dcp/dcp_internal.h"

/* A byte item in memory, and its offset in the file. */
typedef struct dcp_item_bytes {
    vec bytes;           /* uint8_t */
    uint64_t base_bytes; /* offset in the file; 0 if decoded */
    bool zstd;
} dcp_item_bytes;

/* Into item->bytes, a VEC_OF(uint8_t). */
fsdpck_status dcp_item_read(dcp_folder *d, const dcp_repeat *o, dcp_item_bytes *item,
                            fsdpck_error *err) FSDPCK_MUST_CHECK;
/* zip_read_fn whose ctx is a dcp_item_bytes. */
fsdpck_status dcp_item_read_at(void *ctx, uint64_t offset_bytes, void *dst, uint64_t nbytes,
                               fsdpck_error *err);
/* By its first DCP_ITEM_BEGIN and last DCP_ITEM_END bytes: a torch.save zip (where one of its ends is
 * damaged too) or legacy stream, or a bare pickle. Less where it is shorter. */
enum { DCP_ITEM_BEGIN = 28, DCP_ITEM_END = 22 };
bool dcp_item_is_torch_save(const uint8_t *first, const uint8_t *last, uint64_t nbytes);
bool dcp_item_is_pickle(const uint8_t *bytes, uint64_t nbytes);
/* Of an item that is neither: BADINPUT (DCP-BYTES) if all its bytes are 0, which is what a file system
 * may leave of a file that never reached the disk. */
fsdpck_status dcp_item_check_bytes(const dcp_item_bytes *item, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* The content of an object that is a bare pickle. *is_value false: not a readable one. */
fsdpck_status dcp_item_load_pickle(dcp_folder *d, catalogue *cat, uint32_t object,
                                   const dcp_item_bytes *item, bool *is_value,
                                   fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Part of an archive as the content of an object, with the tensors inside it; `archive` is read from `item`.
 * (dcp_object.c) */
fsdpck_status dcp_object_set_content(dcp_folder *d, uint32_t object, const torch_archive *archive,
                                     const dcp_item_bytes *item, value content,
                                     fsdpck_error *err) FSDPCK_MUST_CHECK;

#endif
