/* short_names.h: names of a table that look the same once they are shortened.
 *
 *     if (!short_names_mark(names, count, width, alike, &any)) no memory;
 */
#ifndef FSDPCK_CLI_SHORT_NAMES_H
#define FSDPCK_CLI_SHORT_NAMES_H

#include <stdbool.h>

#include "text_width.h"

/* alike[i]: another name has the same short form at this width as names[i]. *any: one of them is so. */
bool short_names_mark(const text_part *names, size_t count, size_t width, bool *alike, bool *any);

#endif
