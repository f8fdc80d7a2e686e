/* normal.h: names as people tell them apart, which is not how bytes do: an accent may be a part of
 * its letter or stand behind it, and some characters are not shown.
 *
 *     if (!normal_is_ascii(name, nbytes))
 *         RETURN_IF(normal_text(name, nbytes, &buf, err));   // equal for names that look the same
 */
#ifndef FSDPCK_BASE_NORMAL_H
#define FSDPCK_BASE_NORMAL_H

#include <stdbool.h>
#include <stddef.h>

#include "base/alloc.h"

/* Printable ASCII alone: its own normal form. */
bool normal_is_ascii(const char *text, size_t nbytes);

/* Unicode's canonical decomposition (NFD) without what is not shown (utf8_hidden); bytes that are no
 * UTF-8 stay. Replaces what is in `out`. Longer names than 64 KiB stay as they are. */
fsdpck_status normal_text(const char *text, size_t nbytes, text_buf *out,
                          fsdpck_error *err) FSDPCK_MUST_CHECK;

#endif
