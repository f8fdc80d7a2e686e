/* other_files.h: files of torch.save, pickle.dump, NumPy or HDF5 beside the weights, under names that no trainer's
 * state has: "ema.pt", "value_head.bin", "dataloader/state.pt". */
#ifndef FSDPCK_OPEN_OTHER_FILES_H
#define FSDPCK_OPEN_OTHER_FILES_H

#include "open/checkpoint.h"

/* Lists them in c->other_files, once: those of the folder and of the folders in it, by their suffixes. Weights that
 * WEIGHTS-BESIDE or STATE-BESIDE name are omitted, and so are folders of steps. */
fsdpck_status other_files_list(fsdpck_checkpoint *c, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* LORA-BESIDE for each merged adapter with such files that have tensors: merging omits them. */
fsdpck_status other_files_warn_adapters(const fsdpck_checkpoint *c,
                                        fsdpck_error *err) FSDPCK_MUST_CHECK;

#endif
