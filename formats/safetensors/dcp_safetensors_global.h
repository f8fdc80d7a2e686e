/* dcp_safetensors_global.h: assembles tensors from the shards in each rank's safetensors files.
 *
 * The offsets of a shard come from `__metadata__`: DCP_SHARDING_INFO, a JSON text `{"w":
 * {"saved_offsets": [3, 0]}, ...}`. The global shape is not stored: it is the largest offset + size
 * over all shards in each dim. A tensor with no shard that has elements has the shape of its first
 * shard.
 *
 *     shards_global g;
 *     shards_global_init(&g, budget);
 *     RETURN_IF(shards_global_gather(&g, files, err));      // headers have been read
 *     RETURN_IF(shards_global_fill(&g, files, cat, err));   // tensors in order of appearance
 *     shards_global_release(&g);
 *
 * Errors: ST-META (no or bad sharding info), ST-SHARD-DTYPE, ST-SHARD-RANK (shards of one tensor
 * differ in dtype or number of dims), ST-SHAPE (offset + size overflows).
 */
#ifndef FSDPCK_DCP_SAFETENSORS_GLOBAL_H
#define FSDPCK_DCP_SAFETENSORS_GLOBAL_H

#include "formats/safetensors/st_files.h"

typedef struct shards_global {
    strtab names;
    vec tensors; /* struct global_tensor, by name id */
    vec dims;    /* uint64_t: global shapes */
    vec shards;  /* struct global_shard, in order of files and bytes */
    vec offsets; /* uint64_t */
    budget *owner;
} shards_global;

void shards_global_init(shards_global *g, budget *owner);
void shards_global_release(shards_global *g);
fsdpck_status shards_global_gather(shards_global *g, const st_files *s,
                                   fsdpck_error *err) FSDPCK_MUST_CHECK;
fsdpck_status shards_global_fill(const shards_global *g, const st_files *s, catalogue *cat,
                                 fsdpck_error *err) FSDPCK_MUST_CHECK;
/* One entry of a file. */
typedef struct shards_shard {
    uint32_t tensor; /* id of its name in shards_global.names */
    uint32_t file;
    unsigned ndim;
    const uint64_t *sizes;
    const uint64_t *offsets; /* NULL: without elements or dims */
    uint64_t nelems;
} shards_shard;

size_t shards_global_count(const shards_global *g);
void shards_global_get(const shards_global *g, const st_files *s, size_t index,
                       shards_shard *shard);
/* NULL without dims. */
const uint64_t *shards_global_shape(const shards_global *g, uint32_t tensor, unsigned *ndim);
/* Whether the shards hold fewer elements than the shape. */
bool shards_global_has_hole(const shards_global *g, uint32_t tensor);
/* Appends the names of tensors whose shards hold fewer elements than their shape: "a, b". */
void shards_global_list_holes(const shards_global *g, text_buf *list);

#endif
