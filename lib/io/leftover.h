/* leftover.h: what runs that were killed leave beside an output:
 *
 *     .NAME.fsdpck-XXXXXXXX.partial       an output before its commit (output.h)
 *     .NAME.fsdpck-XXXXXXXX.journal       its finished ranges (journal.h); of rank R: .journal-R
 *     .NAME.fsdpck-XXXXXXXX.old           an output that a run was replacing
 */
#ifndef FSDPCK_IO_LEFTOVER_H
#define FSDPCK_IO_LEFTOVER_H

#include <stddef.h>

typedef enum leftover_kind {
    LEFTOVER_NONE,
    LEFTOVER_PARTIAL,
    LEFTOVER_JOURNAL,
    LEFTOVER_OLD
} leftover_kind;

/* By the name alone. *stem_nbytes: of ".NAME.fsdpck-XXXXXXXX"; *name_nbytes: of NAME, which follows the dot and
 * may be cut. */
leftover_kind leftover_parse(const char *name, size_t *stem_nbytes, size_t *name_nbytes);

#endif
