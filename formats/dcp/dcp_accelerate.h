/* dcp_accelerate.h: a trainer's folder with one DCP folder per part of its state, as written by
 * accelerate 0.21 to 1.14 (SHARDED_STATE_DICT):
 *
 *     pytorch_model_fsdp_0/   DCP of {"model": state dict}
 *     optimizer_0/            DCP of {"optimizer": state dict}; may be absent
 *
 * It is read as one catalogue with file paths of two components (cat_origin.in_parts). For output
 * with such an origin, every name with the outer key of a part is written into that part's folder.
 * With several models the numbers continue: such a folder holds several checkpoints.
 */
#ifndef FSDPCK_DCP_ACCELERATE_H
#define FSDPCK_DCP_ACCELERATE_H

#include "formats/format.h"

#define DCP_PART_COUNT 2u

/* "pytorch_model_fsdp_0" */
const char *dcp_part_folder(uint32_t part);
/* By the outer key of a name; DCP_PART_COUNT: of none. */
uint32_t dcp_part_of(const char *name);
/* Whether a folder has this form and no DCP folder of other models. */
bool dcp_parts_probe(const probe_input *in);
/* Whether a target becomes such a folder: its origin is one, and every name belongs to a part. */
bool dcp_parts_needed(const target *t);

#endif
