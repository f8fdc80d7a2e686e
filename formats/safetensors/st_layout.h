/* st_layout.h: the place of every byte of one safetensors file that is to be written.
 *
 * Order of the data, as the safetensors library has it: by dtype (dtype_info.safetensors_rank,
 * descending), then by name (bytewise).
 */
#ifndef FSDPCK_ST_LAYOUT_H
#define FSDPCK_ST_LAYOUT_H

#include "state/target.h"

/* format_writer.holds */
bool st_layout_holds(dtype d);

/* Checks that a tensor of the target can be held: its dtype and name. Else UNSUPPORTED. */
fsdpck_status st_layout_check_tensor(const target *t, uint32_t tensor,
                                     fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Besides, that it has one chunk that is the whole tensor (none, or an empty one, where it has no
 * elements). */
fsdpck_status st_layout_check(const target *t, uint32_t tensor,
                              fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Adds one file with these tensors (checked before): its size, its header as a literal, and the
 * chunks' places. */
fsdpck_status st_layout_file(target *t, const char *name, const uint32_t *tensors, size_t count,
                             fsdpck_error *err) FSDPCK_MUST_CHECK;

/* The same for chunks, each the part of another tensor that `rank` writes, as torch's
 * HuggingFaceStorageWriter does: `__metadata__` has DCP_VERSION and, in DCP_SHARDING_INFO, the
 * offsets of each part. */
fsdpck_status st_layout_shard(target *t, const char *name, uint32_t rank, const uint32_t *chunks,
                              size_t count, fsdpck_error *err) FSDPCK_MUST_CHECK;

#endif
