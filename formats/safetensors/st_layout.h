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

/* A file of one rank among those of a folder. */
typedef struct st_shard {
    const char *name;
    uint32_t rank;
    uint32_t file_count; /* of the folder */
} st_shard;

/* The same for chunks, each the part of another tensor that a rank writes, as torch's
 * HuggingFaceStorageWriter does: `__metadata__` has DCP_VERSION and, in DCP_SHARDING_INFO, the
 * offsets of each part. Besides, what torch leaves out and ignores: ST_SHARD_COUNT (files) and
 * ST_WORLD_SIZE (ranks of the target; some may have no file), decimal, without which the loss of
 * the last rank's file cannot be seen. */
#define ST_SHARD_COUNT "shard_count"
#define ST_WORLD_SIZE  "world_size"
fsdpck_status st_layout_shard(target *t, const st_shard *shard, const uint32_t *chunks,
                              size_t count, fsdpck_error *err) FSDPCK_MUST_CHECK;

#endif
