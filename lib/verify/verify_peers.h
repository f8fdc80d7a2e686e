/* verify_peers.h: the ranks of a group, as check_peers. */
#ifndef FSDPCK_VERIFY_VERIFY_PEERS_H
#define FSDPCK_VERIFY_VERIFY_PEERS_H

#include "check/check.h"
#include "open/checkpoint.h"

/* Borrows the open checkpoint. */
check_peers verify_peers(fsdpck_checkpoint *src);

#endif
