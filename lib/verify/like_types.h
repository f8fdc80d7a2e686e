/* like_types.h: verify --like: shapes and dtypes of an output against those of the model folder. */
#ifndef FSDPCK_VERIFY_LIKE_TYPES_H
#define FSDPCK_VERIFY_LIKE_TYPES_H

#include "verify/model_facts.h"
#include "verify/verify_internal.h"

/* The option that lists the names that a message has no space for. */
#define LIKE_LISTS "--json"

/* EXPORT-SHAPE, EXPORT-DTYPE and EXPORT-VOCAB, each with all tensors that it is about. */
fsdpck_status like_types_check(fsdpck_verify *v, const like_output *like, const model_facts *ours,
                               const model_facts *theirs, fsdpck_error *err) FSDPCK_MUST_CHECK;

#endif
