/* pointer_file.h: files in the folder of a run that name its newest checkpoint. Trainers resume from it. */
#ifndef FSDPCK_OPEN_POINTER_FILE_H
#define FSDPCK_OPEN_POINTER_FILE_H

#include "base/step_name.h"
#include "formats/format.h"
#include "open/checkpoint.h"

enum { POINTER_FILES = 4, POINTER_NBYTES_MAX = 4096 };

/* The name of the file at `at` < POINTER_FILES. */
const char *pointer_file_name(size_t at);
/* Its text without trailing blanks and slashes, to be freed; NULL: no such file. "1000",
 * "global_step1000". */
char *pointer_file_read(const folder *dir, const char *name);
/* The step that a text names. False: none. */
bool pointer_file_step(const char *text, step_name *s);

/* BADINPUT (LATEST-LOST) if the folder contains folders of DeepSpeed under its own tags, such as global_step8, and
 * 'latest', without which DeepSpeed loads none of them, is missing or empty; LATEST-TARGET if it names no folder. */
fsdpck_status pointer_file_check_deepspeed(const probe_input *in,
                                           fsdpck_error *err) FSDPCK_MUST_CHECK;
/* That, and BADINPUT (LATEST-TARGET) if a file in the folder names a step that is not there. */
fsdpck_status pointer_file_check(const probe_input *in, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* The same for the folders from `root` to the one around the checkpoint at `path`, which is below. */
fsdpck_status pointer_file_check_around(const char *root, const char *path,
                                        fsdpck_error *err) FSDPCK_MUST_CHECK;
/* That as a warning, for a checkpoint that was found below the folder that the user gave. */
void pointer_file_warn(const fsdpck_checkpoint *c);

#endif
