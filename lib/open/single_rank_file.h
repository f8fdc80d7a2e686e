/* single_rank_file.h: files with rank 0 in the name that are whole checkpoints. */
#ifndef FSDPCK_OPEN_SINGLE_RANK_FILE_H
#define FSDPCK_OPEN_SINGLE_RANK_FILE_H

#include "io/file.h"

/* "ep0-ba10-rank0.pt": rank 0 of Composer writes the state of all ranks, unless the folder has a file of rank 1. path: in
 * `dir`, NULL: the working directory. */
bool single_rank_file(const folder *dir, const char *path);

#endif
