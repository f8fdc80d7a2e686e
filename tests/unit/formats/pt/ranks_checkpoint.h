/* ranks_checkpoint.h: a folder of rank files read through pt_ranks_reader, without planner or
 * engine.
 *
 *     ranks_checkpoint o = {.expect_ranks = 2};          // as given by the user
 *     st = ranks_checkpoint_open(&o, path, &err);
 *     ranks_digest(&o, tensor, text, &err);           // assembled from its chunks
 *     ranks_checkpoint_close(&o);
 */
#ifndef FSDPCK_TESTS_UNIT_FORMATS_PT_RANKS_CHECKPOINT_H
#define FSDPCK_TESTS_UNIT_FORMATS_PT_RANKS_CHECKPOINT_H

#include "formats/pt/pt.h"
#include "statedict/per_rank.h"

typedef struct ranks_checkpoint {
    uint64_t expect_ranks;
    const char *rank_pattern;
    per_rank_policy per_rank;
    bool assume_tp_first;
    budget owner;
    catalogue cat;
    source src;
    probe_input probe;
    void *self;
    unsigned warnings; /* logged while opening */
} ranks_checkpoint;

enum { RANKS_DIGEST_BYTES = 1024 };

fsdpck_status ranks_checkpoint_open(ranks_checkpoint *o, const char *path, fsdpck_error *err);
/* Whether the reader would take the folder by itself. */
bool ranks_checkpoint_probes(const char *path);
void ranks_checkpoint_close(ranks_checkpoint *o);

/* "<digest>  <dtype>[<dims>]  <name>" as the fixtures' .digests files have it. Every element must be
 * there; where two chunks hold it they must agree: BADINPUT else. */
fsdpck_status ranks_digest(ranks_checkpoint *o, uint32_t tensor, char text[RANKS_DIGEST_BYTES],
                           fsdpck_error *err);

uint32_t ranks_tensor_named(const ranks_checkpoint *o, const char *name); /* or CAT_NONE */
size_t ranks_object_count_named(const ranks_checkpoint *o, const char *name);
const cat_object *ranks_object_named(const ranks_checkpoint *o, const char *name); /* the first */
/* "dp=2,tp=2 [Replicate(), Shard(0)] - dp", with the dims that its own mesh lacks after "-"; or "".
 */
const char *ranks_spec_text(const ranks_checkpoint *o, const char *tensor, char text[256]);

#endif
