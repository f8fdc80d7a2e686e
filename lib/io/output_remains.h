/* output_remains.h: what earlier runs left of an output (io/leftover.h), for a run that may continue one of them.
 *
 *     output_remains found;
 *     RETURN_IF(output_remains_find(&found, path, &header, &err));
 *     ... output_remain_at(&found, i) ...          // those that can be continued first
 *     output_remains_release(&found);
 */
#ifndef FSDPCK_IO_OUTPUT_REMAINS_H
#define FSDPCK_IO_OUTPUT_REMAINS_H

#include "io/journal.h"
#include "io/output.h"

typedef struct output_remain {
    char *partial; /* its name, owned */
    bool has_partial, has_journal;
    /* Of the journals of all ranks that are as `now`; unchecked. 0 if no other run left a journal. */
    uint64_t finished_nbytes;
} output_remain;

typedef struct output_remains {
    vec list; /* output_remain: by falling finished_nbytes */
    size_t journals; /* runs that left any */
} output_remains;

/* The rank of `now` is not compared. */
fsdpck_status output_remains_find(output_remains *found, const char *path,
                                  const journal_header *now, fsdpck_error *err) FSDPCK_MUST_CHECK;
const output_remain *output_remain_at(const output_remains *found, size_t index);
/* Removes the journals of a partial that is absent; false if a process has one, or the partial exists now. */
bool output_remove_orphans(const char *path, const char *partial);
void output_remains_release(output_remains *found);

#endif
