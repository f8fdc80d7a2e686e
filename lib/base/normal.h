/* normal.h: names as they appear on screen. Different bytes can appear identical: an accent may be
 * part of its letter or follow it, and some characters are invisible.
 *
 *     if (!normal_is_ascii(name, nbytes))
 *         RETURN_IF(normal_text(name, nbytes, &buf, err));   // equal if they appear identical
 */
#ifndef FSDPCK_BASE_NORMAL_H
#define FSDPCK_BASE_NORMAL_H

#include <stdbool.h>
#include <stddef.h>

#include "base/alloc.h"

/* Only printable ASCII, which is its own normal form. */
bool normal_is_ascii(const char *text, size_t nbytes);

/* Unicode's canonical decomposition (NFD) without invisible characters (utf8_hidden); bytes that
 * are not UTF-8 remain. Replaces the contents of `out`. Names longer than 64 KiB are unchanged. */
fsdpck_status normal_text(const char *text, size_t nbytes, text_buf *out,
                          fsdpck_error *err) FSDPCK_MUST_CHECK;

#endif
