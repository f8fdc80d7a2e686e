/* stated_files.h: numbers with a total in the names of files, in forms that no reader knows:
 *
 *     weights_tp_rank_world_size=0_2_pp_rank_world_size=0_1.pth     picotron: rank 0 of 2, rank 0 of 1
 *     model_tp-rank-0-of-2_pp-rank-0-of-1.safetensors               several totals
 *     consolidated.00-of-02.pth, model-00001-of-00002-tp0.pt
 *
 * Numbers of epochs, folds and the like ("epoch-3-of-10.pt") are no numbers of files.
 */
#ifndef FSDPCK_OPEN_STATED_FILES_H
#define FSDPCK_OPEN_STATED_FILES_H

#include "open/checkpoint.h"

/* The number of files that a name states; 0: none, or one. */
uint64_t stated_file_count(const char *name);
/* FILE-MISSING if a name in the folder that was given states more files than the folder has. A file that was given by
 * its path is not checked. */
fsdpck_status stated_files_check(const fsdpck_checkpoint *c, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* The same of one file among several checkpoints. */
fsdpck_status stated_file_check(const char *path, fsdpck_error *err) FSDPCK_MUST_CHECK;

#endif
