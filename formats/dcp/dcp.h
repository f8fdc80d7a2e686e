/* dcp.h: folders of torch.distributed.checkpoint: `.metadata` and `__{rank}_{n}.distcp`.
 *
 * Reading (torch 1.13 to 2.15): one `.metadata`, or one `__{rank}.metadata` per rank
 * (use_collectives=False); blobs as torch.save zips, blobs with the extension `stream.zstd/1`, and
 * safetensors streams inside `.distcp` files. A folder without any metadata is a save that did not
 * complete: SAVE-INCOMPLETE.
 *
 * Steps of open(): dcp_metadata.c (pickle to records), dcp_catalogue.c (records to catalogue),
 * dcp_files.c (sizes and ranges of the blobs), dcp_origin.c (the program that wrote it),
 * dcp_part_folders.c (folders with a DCP folder for each part; dcp_part_kinds.c: their contents); dcp_blob.c and dcp_st_stream.c read bytes,
 * dcp_object.c reads byte items.
 *
 * Writing (dcp_writer.c): one `__{rank}_0.distcp` per rank and a `.metadata` that torch 2.1 to 2.15
 * load.
 */
#ifndef FSDPCK_DCP_H
#define FSDPCK_DCP_H

#include "formats/format.h"

extern const format_reader dcp_reader;
extern const format_writer dcp_writer;

#endif
