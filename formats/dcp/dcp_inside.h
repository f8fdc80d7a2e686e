/* dcp_inside.h: tensors that lie inside byte items (a tuple that holds tensors is one byte item).
 */
#ifndef FSDPCK_DCP_INSIDE_H
#define FSDPCK_DCP_INSIDE_H

#include "formats/dcp/dcp_folder.h"

typedef struct dcp_inside {
    place where;
} dcp_inside;

/* By the aux note of its chunk. */
static inline const dcp_inside *dcp_inside_at(const dcp_folder *d, uint32_t aux)
{
    return VEC_AT(&d->inside, dcp_inside, aux & ~DCP_AUX_INSIDE);
}

#endif
