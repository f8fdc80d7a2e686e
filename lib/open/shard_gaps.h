/* shard_gaps.h: the only shard that is left in a folder, where its name has a number, but no count:
 * "model-00003.safetensors". */
#ifndef FSDPCK_OPEN_SHARD_GAPS_H
#define FSDPCK_OPEN_SHARD_GAPS_H

#include "open/checkpoint.h"

/* FILE-OF-SET if the checkpoint is one such file and the folder does not contain that of the number before it. Of
 * several, the reader reports gaps. The loss of the last ones does not show. */
void shard_gaps_warn(const fsdpck_checkpoint *c, const catalogue *read);

#endif
