/* damaged.h: checkpoints with missing or cut files, opened to be inspected (`damaged` of fsdpck_open_options). */
#ifndef FSDPCK_OPEN_DAMAGED_H
#define FSDPCK_OPEN_DAMAGED_H

#include "open/checkpoint.h"

/* From now on every read of a chunk fails with c->damage. */
void damaged_refuse_reads(fsdpck_checkpoint *c);

#endif
