/* dcp_match_chunks.h: matches the chunks of a tensor with the entries of storage_data under its
 * name: by their hints, then by their offsets. */
#ifndef FSDPCK_DCP_MATCH_CHUNKS_H
#define FSDPCK_DCP_MATCH_CHUNKS_H

#include "formats/dcp/dcp_catalogue.h"

/* A tensor with at least one chunk. */
typedef struct dcp_match {
    dcp_builder *b;
    const dcp_metadata *m;
    uint32_t fqn;
    uint32_t list; /* of its chunks, in m->lists */
} dcp_match;

/* `group`: the entries under the tensor's name, which are reordered. Afterwards b->matched has the
 * entry of each chunk, or DCP_NONE. CHUNK-OVERLAP, KEY-DUP. */
fsdpck_status dcp_match_chunks(const dcp_match *m, uint32_t *group, uint32_t count,
                               fsdpck_error *err) FSDPCK_MUST_CHECK;

/* An error about a name; BADINPUT. */
fsdpck_status dcp_name_fail(const dcp_builder *b, uint32_t fqn, fsdpck_finding_id finding,
                            const char *message, fsdpck_error *err);

/* The chunks of a list, in order. */
typedef struct dcp_run_walk {
    const dcp_metadata *m;
    uint32_t run;
    uint32_t at;
} dcp_run_walk;

dcp_run_walk dcp_run_walk_begin(const dcp_metadata *m, uint32_t list);
const dcp_chunk *dcp_run_walk_next(dcp_run_walk *w);
bool dcp_chunk_has_elements(const dcp_metadata *m, const dcp_chunk *chunk);

#endif
