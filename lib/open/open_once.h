/* open_once.h: of the ranks of one host, the lowest reads the description of a checkpoint; the others map its
 * tables (base/table_file.h).
 *
 *     st = open_once_agree(c, st, err);                  // all ranks: well, and with the same reader
 *     if (st == FSDPCK_OK)
 *         st = open_once_read(c, &request, &c->cat, err);
 *     ... all ranks agree ...
 *     table_file_withdraw(&c->tables);
 *
 * A rank that cannot map them, such as one in a container of its own, reads the description itself,
 * as all do where the format does not support it.
 */
#ifndef FSDPCK_OPEN_OPEN_ONCE_H
#define FSDPCK_OPEN_OPEN_ONCE_H

#include "open/checkpoint.h"

/* Collective, if there is a group. */
fsdpck_status open_once_agree(fsdpck_checkpoint *c, fsdpck_status st,
                              fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Collective. As c->format->open, into c->self. An error of the rank that reads is that of its host. */
fsdpck_status open_once_read(fsdpck_checkpoint *c, const open_request *req, catalogue *into,
                             fsdpck_error *err) FSDPCK_MUST_CHECK;

#endif
