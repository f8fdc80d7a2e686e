/* dcp_safetensors_check.h: refuses a folder whose tensors, or files beside them, show that shards are missing.
 *
 *     RETURN_IF(shards_check(&judged, err));     // FILE-MISSING
 */
#ifndef FSDPCK_DCP_SAFETENSORS_CHECK_H
#define FSDPCK_DCP_SAFETENSORS_CHECK_H

#include "formats/safetensors/dcp_safetensors_evidence.h"

typedef struct shards_check_input {
    const open_request *req;
    const st_files *files;
    const shards_global *global;
    uint32_t ranks;      /* highest rank number of a file */
    uint32_t file_count; /* N of -of-N */
} shards_check_input;

fsdpck_status shards_check(const shards_check_input *c, fsdpck_error *err) FSDPCK_MUST_CHECK;

/* dcp_safetensors_duplicate.c. Refuses a shard with elements that is in two files: ST-SHARD-MIXED. */
fsdpck_status shards_check_duplicate(const shards_check_input *c,
                                     fsdpck_error *err) FSDPCK_MUST_CHECK;

/* dcp_safetensors_rank_files.c. The number of ranks from the names of other files in the folder, and the
 * name of such a file; 0: none. */
uint64_t shards_ranks_of_others(const open_request *req, const char **name);

/* dcp_safetensors_config.c: `config.json` in the folder, or above a folder 'sharded'. */
typedef struct shards_config {
    uint64_t vocab_size; /* 0: absent */
    uint64_t hidden_size;
} shards_config;

/* Its content; zeros if there is no readable one. */
void shards_config_read(const open_request *req, shards_config *config);
/* The size that the tensor must have in a dim, or 0. */
uint64_t shards_config_size(const shards_config *config, const char *tensor, const uint64_t *shape,
                            unsigned ndim, unsigned *dim);

#endif
