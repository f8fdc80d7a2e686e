/* select_cast.h: one value of --dtype. */
#ifndef FSDPCK_SELECT_SELECT_CAST_H
#define FSDPCK_SELECT_SELECT_CAST_H

#include "base/status.h"
#include "state/dtype.h"

typedef struct select_cast {
    char *glob; /* NULL: the model part's usual floats */
    dtype to;
} select_cast;

/* 'bf16', 'torch.bfloat16', 'BF16', or one with a glob: '*.norm.*=fp32'. The caller frees cast->glob. */
fsdpck_status select_cast_compile(const char *word, select_cast *cast,
                                  fsdpck_error *err) FSDPCK_MUST_CHECK;

#endif
