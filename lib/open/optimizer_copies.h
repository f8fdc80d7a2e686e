/* optimizer_copies.h: scalars of the optimizer, such as its steps, that differ between the files of ranks: the files are of
 * several saves, also those of the model. Recorded checksums show it without reading data.
 */
#ifndef FSDPCK_OPEN_OPTIMIZER_COPIES_H
#define FSDPCK_OPEN_OPTIMIZER_COPIES_H

#include "open/checkpoint.h"

bool optimizer_copies_differ(const fsdpck_checkpoint *c, uint64_t tensor);
/* RANK-DIFFER. */
void optimizer_copies_warn(const fsdpck_checkpoint *c);

#endif
