/* verify_peers.h: the ranks of a group, as verify's checks see them. */
#ifndef FSDPCK_VERIFY_VERIFY_PEERS_H
#define FSDPCK_VERIFY_VERIFY_PEERS_H

#include "check/check.h"
#include "open/checkpoint.h"

/* Of an open checkpoint, which is borrowed. */
check_peers verify_peers(fsdpck_checkpoint *src);

#endif
