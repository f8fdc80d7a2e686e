/* name_glob.h: names of tensors and patterns that a user gives. */
#ifndef FSDPCK_BASE_NAME_GLOB_H
#define FSDPCK_BASE_NAME_GLOB_H

#include <stdbool.h>

/* Whether the glob matches, where '*' matches dots too. The name itself matches too, and so does the form in which
 * messages print it: "a[0]" of a[0], "a\x1b" of a and ESC. */
bool name_glob_matches(const char *glob, const char *name);

#endif
