/* near_streams.h: the sums of tensors that the second checkpoint has as streams, such as dequantized
 * ones.
 *
 *     RETURN_IF(near_streams_list(&n, &jobs, err));        // after tensor_pairs_assign
 *     st = near_streams_measure(&n, &jobs, err);           // adds the sums to n.found
 *     vec_release(&jobs);
 *
 * A worker decodes a chunk in order, and reads the same elements of the first checkpoint by ranges.
 */
#ifndef FSDPCK_COMPARE_NEAR_STREAMS_H
#define FSDPCK_COMPARE_NEAR_STREAMS_H

#include "compare/nearness.h"

/* A chunk to decode. */
typedef struct near_stream {
    size_t pair;
    uint64_t chunk; /* of the source catalogue of b */
} near_stream;

/* Chunks for this rank. Sets is_streamed and is_unread of all tensors. */
fsdpck_status near_streams_list(nearness *n, vec *jobs, fsdpck_error *err) FSDPCK_MUST_CHECK;
fsdpck_status near_streams_measure(nearness *n, const vec *jobs,
                                   fsdpck_error *err) FSDPCK_MUST_CHECK;

#endif
