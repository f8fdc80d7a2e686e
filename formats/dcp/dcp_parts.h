/* dcp_parts.h: a trainer's folder that keeps each part of its state as a DCP folder of its own, as
 * accelerate 0.21 to 1.14 does (SHARDED_STATE_DICT):
 *
 *     pytorch_model_fsdp_0/   DCP of {"model": state dict}
 *     optimizer_0/            DCP of {"optimizer": state dict}; may be absent
 *
 * Read, it is one catalogue whose files have paths of two components (cat_origin.in_parts). Written
 * for such an origin, every name whose outer key is a part's goes into that part's folder. A run
 * with several models numbers them on: such a folder holds several checkpoints.
 */
#ifndef FSDPCK_DCP_PARTS_H
#define FSDPCK_DCP_PARTS_H

#include "formats/format.h"

#define DCP_PART_COUNT 2u

/* "pytorch_model_fsdp_0" */
const char *dcp_part_folder(uint32_t part);
/* By the outer key of a name; DCP_PART_COUNT: of none. */
uint32_t dcp_part_of(const char *name);
/* Whether a folder is such a one, and has no DCP folder of other models. */
bool dcp_parts_probe(const probe_input *in);
/* Whether a target becomes such a folder: its origin is one, and every name is of a part. */
bool dcp_parts_needed(const target *t);

#endif
