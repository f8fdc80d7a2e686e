/* placement_text.h: placements as torch prints them, read back.
 *
 *     placement p[MESH_NDIM_MAX];
 *     RETURN_IF(placements_parse("[Shard(0), Replicate()]", m.ndim, p, err));
 *
 * Words: Replicate() or R; Shard(0), Shard(dim=0) or S(0); _StridedShard(0, 2),
 * _StridedShard(dim=0, split_factor=2) or _S(0, 2). One for each mesh dim, in (...) or [...], or
 * bare. The forms of repr() and str() in torch 2.5 to 2.15.
 */
#ifndef FSDPCK_LAYOUT_PLACEMENT_TEXT_H
#define FSDPCK_LAYOUT_PLACEMENT_TEXT_H

#include "base/status.h"
#include "state/mesh.h"

/* p has room for MESH_NDIM_MAX; those behind mesh_ndim are zeroed. USAGE: anything else, with what
 * it stands at. */
fsdpck_status placements_parse(const char *text, unsigned mesh_ndim, placement *p,
                               fsdpck_error *err) FSDPCK_MUST_CHECK;

#endif
