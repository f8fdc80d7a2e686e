/* renamed_file.h: a file that is missing under its name may be there under another.
 *
 *     const char *other = renamed_file_find(probe, nbytes, is_known, ctx);     // NULL: none, or several
 *     if (other != NULL) error_next(err, "'%s' is named by nothing: rename it back if ...", other);
 */
#ifndef FSDPCK_FORMATS_COMMON_RENAMED_FILE_H
#define FSDPCK_FORMATS_COMMON_RENAMED_FILE_H

#include "formats/format.h"

#define RENAMED_FILE_ANY_SIZE UINT64_MAX

/* Whether an entry of the folder has its place, or is of another kind than what is missing. */
typedef bool (*renamed_file_known_fn)(const void *ctx, const char *entry);

/* The one file of the folder that is not known and has so many bytes. Borrowed. NULL where there is
 * none, where there are several, and in folders of very many entries. */
const char *renamed_file_find(const probe_input *in, uint64_t nbytes,
                              renamed_file_known_fn is_known, const void *ctx);

#endif
