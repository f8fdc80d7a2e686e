/* pickle_skim.h: the first pass over a pickle: the length of each opcode, and the memo entries that
 * are fetched. */
#ifndef FSDPCK_FORMATS_COMMON_PICKLE_SKIM_H
#define FSDPCK_FORMATS_COMMON_PICKLE_SKIM_H

#include "formats/common/pickle.h"
#include "formats/common/pickle_memo.h"

/* After OK, every opcode up to STOP is allowed and its argument is within bytes[0..*nbytes), as
 * decoded by the functions below; frames are in order; a pickle either numbers its memo entries
 * itself or leaves it to MEMOIZE. `memo` (may be NULL) receives the entries that are fetched. */
fsdpck_status pickle_skim_all(const pickle_input *in, pickle_memo *memo, size_t *nbytes,
                              fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Sets the error with the offset of the opcode at bytes[at]. Returns st. */
fsdpck_status pickle_error(const pickle_input *in, size_t at, fsdpck_status st,
                           fsdpck_finding_id finding, fsdpck_error *err, const char *fmt, ...)
    PRINTF_LIKE(6, 7);

/* A line (INT, GLOBAL, PUT, ...) that begins at bytes[at]: its length without the newline; false
 * without a newline. */
bool pickle_line(const pickle_input *in, size_t at, size_t *nbytes);

/* Only decimal digits, as in PUT and GET. */
bool pickle_decimal(const uint8_t *text, size_t nbytes, uint64_t *number);

#endif
