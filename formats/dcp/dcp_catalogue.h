/* dcp_catalogue.h: converts the records of one or more `.metadata` to a catalogue, not yet sealed.
 *
 *     dcp_builder b;
 *     dcp_builder_init(&b, cat, &names);
 *     RETURN_IF(dcp_builder_add(&b, &metadata, err));      // once for each `.metadata`
 *     dcp_builder_release(&b);
 *
 * Chunks and their blobs are joined by (FQN, offsets), as torch does; the index of MetadataIndex is
 * only a hint, tried first. With several `.metadata` (one per rank) the tensors of one name are
 * merged; equal boxes of several ranks stay several chunks. Of byte items the lowest rank's is
 * kept; `repeats` lists the others, so that a difference can be reported. Files get the index of
 * their path in names.paths; their sizes stay 0.
 */
#ifndef FSDPCK_DCP_CATALOGUE_H
#define FSDPCK_DCP_CATALOGUE_H

#include "base/pool.h"
#include "formats/dcp/dcp_metadata.h"
#include "state/catalogue.h"

/* A byte item that a lower rank also has under the same name. */
typedef struct dcp_repeat {
    uint32_t object;
    uint32_t file;
    uint32_t transform;
    uint64_t offset_bytes;
    uint64_t nbytes;
} dcp_repeat;

typedef struct dcp_builder {
    catalogue *cat;
    const dcp_names *names;
    vec kept;                /* dcp_kept, one for each FQN */
    vec repeats;             /* dcp_repeat, ascending by rank within an object */
    vec flat_boxes;          /* dcp_flat_box (dcp_flattened.h) */
    vec ends;                /* uint64_t, by file: end of the last blob in the metadata */
    vec listed;              /* uint8_t, by FQN: a `.metadata` has an item of this name */
    strtab unlisted;         /* dcp_planner_keys.h: keys of planner_data without an item */
    strtab keyless;          /* items that planner_data lacks, though it has others */
    uint64_t stray_blobs;    /* blobs that belong to no chunk */
    uint64_t leftovers;      /* tensors left out: dcp_leftover.h */
    bool keep_leftovers;     /* the code that resolves flat parameters handles them */
    uint32_t first_leftover; /* FQN */
    unsigned nthreads;       /* 0: one */
    const cancel_token *cancel;
    bool has_lower_ranks; /* metadata of lower ranks, each with its own names, precede the next */
} dcp_builder;

void dcp_builder_init(dcp_builder *b, catalogue *cat, const dcp_names *names);
void dcp_builder_release(dcp_builder *b);

/* Errors: DCP-ORPHAN (a chunk or byte item without a blob), DCP-RANK, CHUNK-BOUNDS, CHUNK-OVERLAP,
 * KEY-DUP, DCP-DTYPE (UNSUPPORTED), DCP-MIXED (a tensor differs between ranks). */
fsdpck_status dcp_builder_add(dcp_builder *b, const dcp_metadata *m,
                              fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Rank in a file name "__{rank}_{n}.distcp" or "__{rank}.metadata", CAT_NONE for other names. */
uint32_t dcp_rank_of_blobs(const char *name);
uint32_t dcp_rank_of_metadata(const char *name);

#endif
