/* dcp_match_chunks.h: matches the chunks of a tensor with the entries of storage_data under its
 * name: by their hints, then by their offsets. */
#ifndef FSDPCK_DCP_MATCH_CHUNKS_H
#define FSDPCK_DCP_MATCH_CHUNKS_H

#include "formats/dcp/dcp_catalogue.h"

/* Of one thread. */
typedef struct dcp_match_room {
    vec matched;          /* uint32_t: the entry of each chunk of a tensor, or DCP_NONE */
    vec slots;            /* uint32_t: hash over chunks */
    uint64_t stray_blobs; /* blobs that belong to no chunk */
} dcp_match_room;

void dcp_match_room_init(dcp_match_room *room, budget *owner);
void dcp_match_room_release(dcp_match_room *room);

/* A tensor with at least one chunk. */
typedef struct dcp_match {
    const dcp_builder *b;
    const dcp_metadata *m;
    uint32_t fqn;
    uint32_t list; /* of its chunks, in m->lists */
    dcp_match_room *room;
} dcp_match;

/* Fills room->matched. `group`: the entries under the tensor's name, which are reordered.
 * CHUNK-OVERLAP, KEY-DUP. */
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
