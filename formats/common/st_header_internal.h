/* st_header_internal.h: shared by the files of st_header: st_header_text.c reads the JSON,
 * st_header.c checks all entries together and reads from files. */
#ifndef FSDPCK_FORMATS_COMMON_ST_HEADER_INTERNAL_H
#define FSDPCK_FORMATS_COMMON_ST_HEADER_INTERNAL_H

#include "formats/common/st_header.h"

/* Fills an initialised header with the entries in the order of the text. Offsets in errors count
 * from the start of the text. */
fsdpck_status st_header_read_text(const char *text, size_t nbytes, st_header *h,
                                  fsdpck_error *err) FSDPCK_MUST_CHECK;

#endif
