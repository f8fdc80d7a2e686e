/* dcp_pickle.h: a `.metadata` in the form of torch's pickler, of any size, for tests.
 *
 *     dcp_pickle spec = {.ntensors = 2000, .nranks = 512, .rows = 4, .cols = 8};
 *     text_buf out = {.limit_bytes = 1u << 30};
 *     dcp_pickle_make(&spec, &out);
 *
 * Tensor t has shape [nranks * rows, cols] and one chunk per rank; blobs follow each other in
 * `__{rank}_0.distcp`.
 */
#ifndef FSDPCK_TEST_DCP_PICKLE_H
#define FSDPCK_TEST_DCP_PICKLE_H

#include "base/alloc.h"

typedef struct dcp_pickle {
    unsigned ntensors;
    unsigned nranks;
    unsigned rows; /* of each chunk */
    unsigned cols;
    unsigned blob_nbytes;
    int hints;    /* 0: none, 1: correct, 2: wrong */
    int reversed; /* chunks in descending order of offsets */
} dcp_pickle;

void dcp_pickle_make(const dcp_pickle *spec, text_buf *out);

#endif
