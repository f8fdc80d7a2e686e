/* dcp_join_chunks.h: adds the chunks of tensors, with their blobs, to the catalogue. */
#ifndef FSDPCK_DCP_JOIN_CHUNKS_H
#define FSDPCK_DCP_JOIN_CHUNKS_H

#include "formats/dcp/dcp_catalogue.h"
#include "formats/dcp/dcp_flattened.h"

/* A tensor with at least one chunk. */
typedef struct dcp_join {
    uint32_t fqn;
    uint32_t list;   /* of its chunks, in dcp_metadata.lists */
    uint32_t tensor; /* in the catalogue */
    uint32_t count;
    uint32_t *group;       /* `count` entries under its name, which are reordered */
    cat_new_chunks chunks; /* not of a flattened tensor */
} dcp_join;

/* All of `joins` (dcp_join, not flattened), in several threads. The error is that of the first one
 * that fails. DCP-ORPHAN, DCP-RANK, CHUNK-BOUNDS, CHUNK-OVERLAP, KEY-DUP. */
fsdpck_status dcp_join_chunks(dcp_builder *b, const dcp_metadata *m, const vec *joins,
                              fsdpck_error *err) FSDPCK_MUST_CHECK;
/* A flattened tensor. */
fsdpck_status dcp_join_flattened(dcp_builder *b, const dcp_metadata *m, const dcp_join *join,
                                 const dcp_flattening *f, fsdpck_error *err) FSDPCK_MUST_CHECK;

/* A chunk (NULL: all chunks of the tensor), or a byte item, has no entry. DCP-ORPHAN. */
fsdpck_status dcp_join_orphan(const dcp_builder *b, const dcp_metadata *m, uint32_t fqn,
                              const dcp_chunk *chunk, fsdpck_error *err);

#endif
