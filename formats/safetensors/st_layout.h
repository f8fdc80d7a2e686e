/* st_layout.h: lays out every byte of one safetensors file for writing.
 *
 * Order of the data, as in the safetensors library: by dtype (dtype_info.safetensors_rank,
 * descending), then by name (bytewise).
 */
#ifndef FSDPCK_ST_LAYOUT_H
#define FSDPCK_ST_LAYOUT_H

#include "state/target.h"

/* format_writer.holds */
bool st_layout_holds(dtype d);

/* Checks that safetensors can hold a tensor of the target: its dtype and name. Otherwise
 * UNSUPPORTED. */
fsdpck_status st_layout_check_tensor(const target *t, uint32_t tensor,
                                     fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Also checks that it has one chunk with the whole tensor (none, or an empty one, without
 * elements). */
fsdpck_status st_layout_check(const target *t, uint32_t tensor,
                              fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Adds one file with these tensors (checked before): its size, its header as constant bytes, and
 * the chunks' locations. */
fsdpck_status st_layout_file(target *t, const char *name, const uint32_t *tensors, size_t count,
                             fsdpck_error *err) FSDPCK_MUST_CHECK;

/* The same in the given order instead of that of the safetensors library. Each offset must be a multiple
 * of the itemsize: torch requires it. The target omits no tied names. */
fsdpck_status st_layout_file_in_order(target *t, const char *name, const uint32_t *tensors,
                                      size_t count, fsdpck_error *err) FSDPCK_MUST_CHECK;

/* A file of one rank among those of a folder. */
typedef struct st_shard {
    const char *name;
    uint32_t rank;
    uint32_t file_count; /* of the folder */
} st_shard;

/* The same for chunks, each one rank's part of a tensor, as in torch's HuggingFaceStorageWriter:
 * `__metadata__` has DCP_VERSION and, in DCP_SHARDING_INFO, the offsets of each part. Also, which
 * torch omits and ignores: ST_SHARD_COUNT (files) and ST_WORLD_SIZE (ranks of the target; some may
 * have no file), decimal, without which the loss of the last rank's file would be undetected. */
#define ST_SHARD_COUNT "shard_count"
#define ST_WORLD_SIZE  "world_size"
fsdpck_status st_layout_shard(target *t, const st_shard *shard, const uint32_t *chunks,
                              size_t count, fsdpck_error *err) FSDPCK_MUST_CHECK;

#endif
