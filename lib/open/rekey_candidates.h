/* rekey_candidates.h: tensors of a checkpoint that an optimizer may hold as parameters. */
#ifndef FSDPCK_OPEN_REKEY_CANDIDATES_H
#define FSDPCK_OPEN_REKEY_CANDIDATES_H

#include "open/checkpoint.h"

typedef struct candidate {
    uint32_t saved_at, tensor;
    uint32_t alias;
    uint64_t offset_bytes;
    bool outside;     /* beside the model part */
    bool tied;        /* to one before it */
    uint32_t tied_to; /* its tensor */
} candidate;

/* A tensor inside an object of a class: its number there is no name. */
static inline bool candidate_is_nameless(const cat_tensor *t)
{
    return (t->flags & CAT_TENSOR_IN_OBJECT) && !(t->flags & CAT_TENSOR_NAMED);
}

/* Appends candidates in the order in which they were saved; those of the model part are first. */
fsdpck_status candidates_list(const fsdpck_checkpoint *c, const checkpoint_parts *parts, vec *all,
                              fsdpck_error *err) FSDPCK_MUST_CHECK;

#endif
