/* dcp_object_copies.h: objects that each rank wrote for itself, as in saves without collectives. Those of one save are
 * equal, but for state that is each rank's own by its nature (formats/common/own_state.h).
 */
#ifndef FSDPCK_DCP_OBJECT_COPIES_H
#define FSDPCK_DCP_OBJECT_COPIES_H

#include "formats/dcp/dcp_catalogue.h"
#include "formats/dcp/dcp_internal.h"

/* The first of d->repeats with this number of an object; those of one object follow each other. */
size_t dcp_first_repeat(const dcp_folder *d, uint32_t number);
/* Of a number, a text, None, or a list or tuple of them; 0: another value, which is not compared. */
uint64_t dcp_object_sum(const value_pool *pool, value v);
/* sums: of the blobs that are objects, then of d->repeats. RANK-DIFFER. */
void dcp_object_copies_report(const dcp_folder *d, const dcp_blob *blobs, uint64_t count,
                              const uint64_t *sums, const record_check_request *r);

#endif
