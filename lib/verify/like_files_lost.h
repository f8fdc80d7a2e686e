/* like_files_lost.h: files of the model folder of --like that an output lacks: the tokenizer, the chat template, and
 * others without which no server runs it. */
#ifndef FSDPCK_VERIFY_LIKE_FILES_LOST_H
#define FSDPCK_VERIFY_LIKE_FILES_LOST_H

#include "run/like_output.h"
#include "verify/verify_internal.h"

/* EXPORT-FILES. A file that another one of the output replaces, as tokenizer.json replaces vocab.json, is not lost. */
fsdpck_status like_files_lost_check(fsdpck_verify *v, const like_output *l,
                                    fsdpck_error *err) FSDPCK_MUST_CHECK;

#endif
