/* recorded_checksums.h: whether a checksum of the data of a checkpoint is recorded, in its files or in a manifest. */
#ifndef FSDPCK_OPEN_RECORDED_CHECKSUMS_H
#define FSDPCK_OPEN_RECORDED_CHECKSUMS_H

#include "open/checkpoint.h"

/* Reads the headers of a few chunks; false if they cannot be read. Compressed data does not count: its checksum is
 * compared whenever it is read. In a group: all ranks, before one of them closes the checkpoint. */
bool checkpoint_has_checksums(const fsdpck_checkpoint *c);

#endif
