/* renamed_file.h: finds a missing file that may exist under another name.
 *
 *     const char *other = renamed_file_find(probe, nbytes, is_known, ctx);     // NULL: none, or several
 *     if (other != NULL) error_next(err, "'%s' is named by nothing: rename it back if ...", other);
 */
#ifndef FSDPCK_FORMATS_COMMON_RENAMED_FILE_H
#define FSDPCK_FORMATS_COMMON_RENAMED_FILE_H

#include "formats/format.h"

#define RENAMED_FILE_ANY_SIZE UINT64_MAX

/* Whether an entry of the folder is expected, or of another kind than the missing file. */
typedef bool (*renamed_file_known_fn)(const void *ctx, const char *entry);

/* The only unknown file of the folder with this size. Borrowed. NULL if none or several match, and
 * in folders with very many entries. */
const char *renamed_file_find(const probe_input *in, uint64_t nbytes,
                              renamed_file_known_fn is_known, const void *ctx);

#endif
