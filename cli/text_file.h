/* text_file.h: small files that options name. */
#ifndef FSDPCK_CLI_TEXT_FILE_H
#define FSDPCK_CLI_TEXT_FILE_H

#include "fsdpck.h"

/* Reads a file ("-": stdin), which must be text of at most `most_nbytes` bytes. `what` names it in
 * messages. The caller frees *text, which ends with a zero byte; NULL on failure. nbytes may be NULL. */
fsdpck_status text_file_read(const char *path, const char *what, size_t most_nbytes, char **text,
                             size_t *nbytes, fsdpck_error *err) FSDPCK_MUST_CHECK;

#endif
