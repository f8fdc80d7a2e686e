/* dcp_name_order.h: names whose position in the metadata is not that of any rank's state dict.
 *
 * torch joins the names of all ranks: those of the last rank first, then those that only lower ranks
 * have. A rank's state dict is in order only as far as the last name that the last rank wrote; a
 * later name may be of a lower rank alone, such as a pipeline stage or an expert; not those of an
 * optimizer whose state all precedes its groups. Without planner_data the names of the first rank
 * come first. */
#ifndef FSDPCK_DCP_NAME_ORDER_H
#define FSDPCK_DCP_NAME_ORDER_H

#include "formats/dcp/dcp_catalogue.h"

/* Fills joined[fqn]. holds: by file, whether it has an entry. saved_at: positions in planner_data,
 * from 1; 0 where it lacks the name. */
fsdpck_status dcp_find_joined(const dcp_builder *b, const dcp_metadata *m, const uint8_t *holds,
                              const uint32_t *saved_at, size_t nfqns, uint8_t *joined,
                              fsdpck_error *err) FSDPCK_MUST_CHECK;

#endif
