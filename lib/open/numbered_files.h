/* numbered_files.h: files and folders that a trainer numbers from 0, one for each rank or each model, beside the
 * weights or as weights:
 *
 *     rng_state_0.pth, rng_state_1.pth               of ranks; also random_states_0.pkl, dataloader_rank0.pt
 *     model.safetensors, model_1.safetensors         of models; also optimizer_1.bin, pytorch_model_fsdp_1/
 */
#ifndef FSDPCK_OPEN_NUMBERED_FILES_H
#define FSDPCK_OPEN_NUMBERED_FILES_H

#include "open/checkpoint.h"

/* FILE-OF-SET if a lower number is missing, or if the states of ranks are fewer or more than the ranks of the
 * weights: in the checkpoint's folder, and in that in which it was found. read: the files that were opened. */
void numbered_files_warn(fsdpck_checkpoint *c, const catalogue *read, checkpoint_open_fn open);
/* "model_1.safetensors", "pytorch_model_1.bin": a further model of a run of accelerate. */
bool numbered_file_is_model(const char *name);
/* "rng_state_1.pth", "extra_state_rank_1.pt". */
bool numbered_file_is_of_rank(const char *name);
/* In a folder of several checkpoints. */
void numbered_files_warn_folder(const probe_input *in, const logger *log);

#endif
