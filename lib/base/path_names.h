/* path_names.h: whether two paths name one file, or one is inside the other. Files that exist are compared by identity,
 * not by name, so links, ".." and case-insensitive file systems are handled.
 *
 *     path_is_one_name("out.pt", "./out.pt");   // true, also before the file exists
 */
#ifndef FSDPCK_BASE_PATH_NAMES_H
#define FSDPCK_BASE_PATH_NAMES_H

#include <stdbool.h>

/* To be freed. */
char *path_without_slashes(const char *path);
/* The real path of the folder that contains `path`, to be freed; NULL and errno if it does not
 * exist. */
char *path_real_parent(const char *path);
/* Whether `path` is the folder or is inside it at any depth. `path` is from realpath; both may be NULL. */
bool path_is_within(const char *path, const char *folder_path);
/* Whether two paths, which need not exist, are one name in one folder, or one file. */
bool path_is_one_name(const char *a, const char *b);

#endif
