/* average_distances.h: the distances that the ranks of a group found in an average, and what they read. */
#ifndef FSDPCK_RUN_AVERAGE_DISTANCES_H
#define FSDPCK_RUN_AVERAGE_DISTANCES_H

#include "open/checkpoint.h"

/* Collective, after data was read: all ranks get the largest ones, and the sum of the bytes. Does nothing without an average. */
fsdpck_status average_distances_share(fsdpck_checkpoint *c, group *g,
                                      fsdpck_error *err) FSDPCK_MUST_CHECK;

#endif
