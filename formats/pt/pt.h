/* pt.h: torch.save files: one, or one per rank.
 *
 * One file of torch.save (.pt, .pth, .bin, .ckpt): the zip of 1.6 and later, or the stream
 * form before it.
 *
 * Reading: every tensor of the nested state becomes a tensor under its flat key, as DCP flattens
 * since torch 2.4: the path joined with '.', dicts always opened, lists opened where they hold a
 * tensor or a dict at some depth of lists, everything else a leaf. Other leaves become objects,
 * loaded at once. The index of a tensor in the catalogue, its TENSOR leaf in catalogue.root and
 * cat_chunk.aux are one number.
 *
 * A folder with one file per rank (pt_ranks_reader): see ranks_internal.h.
 *
 * Writing: see pt_writer.c (one file), ranks_writer.c (one per rank, DTensors) and flat_writer.c
 * (one per rank, FSDP1's flat parameters).
 */
#ifndef FSDPCK_FORMATS_PT_H
#define FSDPCK_FORMATS_PT_H

#include "formats/format.h"

extern const format_reader pt_reader;
extern const format_reader pt_ranks_reader;
/* A folder of Megatron's model-parallel ranks. */
bool ranks_are_foreign(const probe_input *in);
/* Whether the name is a rank file's: of a *known trainer, or any with a word "rank" and a number. */
bool ranks_name_has_rank(const char *name, bool *known);
/* The number of ranks that such a name states, or 0. */
uint64_t ranks_name_world_size(const char *name);
extern const format_writer pt_writer;
extern const format_writer pt_ranks_writer;
extern const format_writer fsdp1_writer;

#endif
