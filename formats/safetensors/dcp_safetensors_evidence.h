/* dcp_safetensors_evidence.h: evidence in the tensors of a folder for missing files.
 *
 * torch's HuggingFaceStorageWriter records neither the number of ranks nor the shapes of tensors,
 * so a tensor whose last shards are missing resembles a smaller tensor. These facts reveal it:
 *
 * - A DTensor has an entry for each position of its mesh, including an empty one at the tensor's
 *   end (ranks that hold the same box write it once). A ShardedTensor has no empty entries.
 * - torch shards n elements over s ranks in chunks of ceil(n / s), and s divides the number of ranks.
 * - Layers repeat: 'layers.0.w' and 'layers.1.w' with first shards of equal shape have equally many of
 *   them. Where the shapes differ, one of them may be whole.
 *
 * A tensor that contradicts them is reported; undecided cases are not.
 *
 *     shards_evidence e;
 *     RETURN_IF(shards_evidence_gather(&e, &global, files, owner, err));
 *     if (shards_gap_find(&e, ranks, false, &lack)) ...
 *     shards_evidence_release(&e);
 */
#ifndef FSDPCK_DCP_SAFETENSORS_EVIDENCE_H
#define FSDPCK_DCP_SAFETENSORS_EVIDENCE_H

#include "formats/safetensors/dcp_safetensors_global.h"

/* Distribution of a tensor over the files. */
typedef struct shards_spread {
    uint32_t shards; /* entries with elements */
    uint32_t rank_number;
    uint32_t file_number;
    uint32_t pattern; /* id of its name without the numbers */
    uint32_t role;    /* id of its name without the number of the layer */
    uint32_t
        peer; /* tensor of that role, else that pattern, and that first shard with the most shards */
    bool
        is_of_role; /* the peer: the same tensor of another layer; 'w1' and 'w2' of a layer are not */
    uint8_t ndim;
    uint8_t dim;                 /* the one that is sharded; UINT8_MAX: none */
    bool has_end;                /* an entry without elements */
    bool is_regular;             /* one dim is sharded, all shards but the last are equal */
    uint32_t edge[2];            /* shards with an offset in dim 0 alone, and in dim 1 alone */
    uint64_t first;              /* size of the first shard in `dim` */
    uint64_t end;                /* size of the tensor in `dim` */
    uint64_t others;             /* product of the other dims */
    const uint64_t *first_sizes; /* the first shard's shape, of the file's header; NULL: none */
} shards_spread;

typedef struct shards_rank {
    uint32_t files;   /* that it has */
    uint32_t members; /* of a root: ranks with files */
    uint32_t
        entries; /* of a root: most entries, including empty ones, of a tensor that has an end */
    uint32_t grid[2]; /* of a root: shards in dims 0 and 1 of a tensor that is sharded in both */
    bool begins;      /* it has the first shard of a tensor of several */
    bool is_outside;  /* of the mesh of sharded tensors, by its files or names */
} shards_rank;

typedef struct shards_evidence {
    const shards_global *global;
    vec names;     /* shard_name: by file */
    vec tensors;   /* shards_spread: by tensor */
    vec parent;    /* uint32_t: by rank number; ranks that share a tensor have one root */
    vec seen;      /* struct shards_rank: by rank number */
    vec files;     /* numbers of ranks of a root without a file that others have; sorted */
    vec complete;  /* shard counts of tensors with a file from every rank of the root; sorted */
    bool has_ends; /* some tensor has an empty entry at its end: these are DTensors */
    budget *owner;
} shards_evidence;

/* A tensor that lacks shards. */
typedef struct shards_gap {
    uint32_t tensor;
    uint32_t peer;        /* a tensor that has more, or STRTAB_NONE */
    uint32_t shards;      /* that it has */
    uint32_t peer_shards; /* that the peer or most tensors have */
    uint32_t root;
    uint32_t file_number; /* ranks of the root without it; 0: all files of some ranks are missing */
} shards_gap;

fsdpck_status shards_evidence_gather(shards_evidence *e, const shards_global *g, const st_files *s,
                                     budget *owner, fsdpck_error *err) FSDPCK_MUST_CHECK;
void shards_evidence_release(shards_evidence *e);
/* The root of the ranks that share tensors with this one. */
uint32_t shards_evidence_root(const shards_evidence *e, uint32_t rank_number);
/* Number of ranks of the tensor's root without its file. */
uint32_t shards_evidence_lacking(const shards_evidence *e, const shards_spread *t);

/* dcp_safetensors_gap.c. Finds the first tensor with missing shards. `ranks`: the minimum number of ranks
 * that wrote files; with `are_stated` every rank has files. */
bool shards_gap_find(const shards_evidence *e, uint64_t ranks, bool are_stated, shards_gap *lack);
/* The first tensor with a shard on each rank of its root, if the number of ranks is no multiple of
 * that, and another rank has files but none of such tensors; that rank is lack->root, otherwise 0. */
fsdpck_status shards_gap_find_apart(const shards_evidence *e, uint64_t ranks, uint32_t file_count,
                                    shards_gap *lack, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* The first tensor with several shards that has no entry at its end. */
bool shards_gap_find_open(const shards_evidence *e, shards_gap *lack);

#endif
