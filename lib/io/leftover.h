/* leftover.h: objects that runs which were killed leave beside an output:
 *
 *     .NAME.fsdpck-XXXXXXXX.partial       an output before its commit (output.h)
 *     .NAME.fsdpck-XXXXXXXX.journal       its finished ranges (journal.h); of rank R: .journal-R
 *     .NAME.fsdpck-XXXXXXXX.old           an output that a run was replacing
 *
 *     vec list = VEC_OF(leftover, NULL);
 *     RETURN_IF(leftover_list(&dir, NULL, &list, &err));
 *     ... if (leftover_is_free(l)) rc = leftover_remove(&dir, l) ...
 *     leftover_release(&list);
 */
#ifndef FSDPCK_IO_LEFTOVER_H
#define FSDPCK_IO_LEFTOVER_H

#include <stddef.h>

#include "base/alloc.h"
#include "io/file.h"

typedef enum leftover_kind {
    LEFTOVER_NONE,
    LEFTOVER_PARTIAL,
    LEFTOVER_JOURNAL,
    LEFTOVER_OLD
} leftover_kind;

/* By the name alone. *stem_nbytes: of ".NAME.fsdpck-XXXXXXXX"; *name_nbytes: of NAME, which follows the dot and
 * may be cut. */
leftover_kind leftover_parse(const char *name, size_t *stem_nbytes, size_t *name_nbytes);

typedef enum leftover_holder {
    LEFTOVER_FREE,
    LEFTOVER_HELD,   /* a process that lives has a lock on it */
    LEFTOVER_UNKNOWN /* the file system has no locks, or it changed in the last seconds */
} leftover_holder;

typedef struct leftover {
    char *name; /* owned, as the others */
    char *of;   /* NAME */
    char *stem; /* equal for the objects of one run */
    leftover_kind kind;
    leftover_holder holder;
    bool is_folder;
    bool is_recent;   /* no process has it, but it changed in the last 10 seconds: LEFTOVER_UNKNOWN */
    bool is_foreign;  /* of another user */
    bool is_no_journal; /* named as a journal, without the first bytes of one */
    bool is_replaced; /* an object of its kind that is not empty has its NAME, which is not cut */
    uint64_t nbytes;  /* of all files */
    uint64_t ino;
    int64_t mtime_ns;
} leftover;

/* Objects in a folder, by name; `of`, unless NULL: only those of this output. */
fsdpck_status leftover_list(const folder *dir, const char *of, vec *list,
                            fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Whether it may be removed: no process has it, it is the user's, and it is not the only copy of a replaced output. */
bool leftover_is_free(const leftover *l);
/* Removes it, unless it is another object by now. Returns 0 or an errno value, EBUSY if a process has it. */
int leftover_remove(const folder *dir, const leftover *l);
void leftover_release(vec *list);

#endif
