/* dcp_megatron.h: folders of Megatron-Core that are no readable DCP checkpoint: saves that did not complete, and
 * formats other than torch_dist. Accepted by the probe, so that an error names them.
 *
 *     if (dcp_megatron_probe(in) != DCP_MEGATRON_NONE) ...
 *     RETURN_IF(dcp_megatron_check(in, err));            // of a folder without `.metadata`
 */
#ifndef FSDPCK_DCP_MEGATRON_H
#define FSDPCK_DCP_MEGATRON_H

#include "formats/format.h"

/* Dict of what the ranks have in common; rank 0 writes it before all other files. */
#define DCP_MEGATRON_COMMON "common.pt"
/* Names the format; written last. */
#define DCP_MEGATRON_CONFIG "metadata.json"

typedef enum dcp_megatron {
    DCP_MEGATRON_NONE,
    DCP_MEGATRON_UNFINISHED, /* common.pt without `.metadata` */
    DCP_MEGATRON_OTHER,      /* metadata.json names another format, or there are zarr arrays */
    DCP_MEGATRON_RANKS       /* mp_rank_00/, mp_rank_01/, ... */
} dcp_megatron;

/* DCP_MEGATRON_NONE if the folder has `.metadata`. */
dcp_megatron dcp_megatron_probe(const probe_input *in);
/* BADINPUT (SAVE-INCOMPLETE), UNSUPPORTED (MEGATRON-FORMAT); OK for DCP_MEGATRON_NONE. */
fsdpck_status dcp_megatron_check(const probe_input *in, fsdpck_error *err) FSDPCK_MUST_CHECK;

#endif
