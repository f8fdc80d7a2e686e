/* pt.h: files of torch.save: one, or one a rank.
 *
 * One file of torch.save (.pt, .pth, .bin, .ckpt): the zip of 1.6 and later, or the stream
 * form before it.
 *
 * Reading: every tensor of the nested state becomes a tensor under its flat key, as DCP flattens
 * since torch 2.4: the path joined with '.', dicts always opened, lists opened where they hold a
 * tensor or a dict at some depth of lists, everything else a leaf. Leaves that are no tensors
 * become objects, loaded at once. The index of a tensor in the catalogue, its TENSOR leaf in
 * catalogue.root and cat_chunk.aux are one number.
 *
 * A folder of them, one a rank (pt_ranks_reader): see ranks_internal.h.
 *
 * Writing: see pt_writer.c (one file) and ranks_writer.c (one a rank, of DTensors),
 * flat_writer.c (one a rank, of FSDP1's flat parameters).
 */
#ifndef FSDPCK_FORMATS_PT_H
#define FSDPCK_FORMATS_PT_H

#include "formats/format.h"

extern const format_reader pt_reader;
extern const format_reader pt_ranks_reader;
/* A folder of DeepSpeed or Megatron. */
bool ranks_are_foreign(const probe_input *in);
extern const format_writer pt_writer;
extern const format_writer pt_ranks_writer;
extern const format_writer fsdp1_writer;

#endif
