/* recorded_ranks.h: the number of ranks that a file of a trainer records (step_rows.h). */
#ifndef FSDPCK_OPEN_RECORDED_RANKS_H
#define FSDPCK_OPEN_RECORDED_RANKS_H

#include "open/checkpoint.h"

typedef struct recorded_ranks {
    uint64_t ranks; /* 0: none is recorded */
    char file[64];
} recorded_ranks;

/* Of a file in the folder `in`, which `open` opens for `c`; c NULL: only JSON is read. */
void recorded_ranks_read(const probe_input *in, fsdpck_checkpoint *c, checkpoint_open_fn open,
                         recorded_ranks *r);

#endif
