/* placement_text.h: parser for placements in torch's printed form.
 *
 *     placement p[MESH_NDIM_MAX];
 *     RETURN_IF(placements_parse("[Shard(0), Replicate()]", m.ndim, p, err));
 *
 * Forms: Replicate() or R; Shard(0), Shard(dim=0) or S(0); _StridedShard(0, 2),
 * _StridedShard(dim=0, split_factor=2) or _S(0, 2). One per mesh dim, in (...) or [...], or bare.
 * These are repr() and str() of torch 2.5 to 2.15.
 */
#ifndef FSDPCK_LAYOUT_PLACEMENT_TEXT_H
#define FSDPCK_LAYOUT_PLACEMENT_TEXT_H

#include "base/status.h"
#include "state/mesh.h"

/* p has space for MESH_NDIM_MAX; entries after mesh_ndim are zeroed. USAGE for any other text, with
 * its position. */
fsdpck_status placements_parse(const char *text, unsigned mesh_ndim, placement *p,
                               fsdpck_error *err) FSDPCK_MUST_CHECK;

#endif
