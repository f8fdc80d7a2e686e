/* unfinished_file.h: files that are not complete, by their names and by those beside them.
 *
 * Programs that download into the final name keep a control file beside it until the download is
 * complete: aria2 `NAME.aria2`, axel `NAME.st`, browsers `NAME.part` and `NAME.crdownload`, lftp
 * `NAME.lftp-pget-status`, qBittorrent `NAME.!qB`.
 * The file then may have its full size and holes that read as zeros.
 */
#ifndef FSDPCK_IO_UNFINISHED_FILE_H
#define FSDPCK_IO_UNFINISHED_FILE_H

#include <stdbool.h>
#include <stddef.h>

#include "io/file.h"

/* Bytes of `path` before the suffix of a control file; 0 if it is none. Relative to dir, as below. Another file may be called
 * NAME.st: a large one is no control file. */
size_t unfinished_stem_nbytes(const folder *dir, const char *path);
/* Whether a control file lies beside `path`, relative to dir (NULL: the working folder); its path in
 * control[0..capacity). */
bool unfinished_has_control(const folder *dir, const char *path, char *control, size_t capacity);
/* Whether the file with which NeMo marks an unfinished save exists: `NAME-unfinished` beside `NAME.ckpt`, `NAME.nemo`,
 * `NAME-EMA.ckpt` or the folder `NAME`, beside the folder `NAME` around `path`, or beside the folder of a model-parallel
 * rank that contains `NAME.ckpt`. Its path in marker[0..capacity). */
bool unfinished_has_marker(const char *path, char *marker, size_t capacity);
/* Whether the file is a pointer of git-lfs, in place of the file itself. */
bool unfinished_is_pointer(const folder *dir, const char *name);
/* `.NAME.fsdpck-XXXXXXXX.partial`: an output before its commit (output.h). */
bool unfinished_is_partial_output(const char *name, size_t nbytes);

#endif
