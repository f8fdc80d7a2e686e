/* latest_copies.h: steps that a file manager or a user copied beside themselves, by their names: "checkpoint-6 (1)",
 * "checkpoint-6 2", "checkpoint-6 copy", "Copy of checkpoint-6", beside "checkpoint-6". */
#ifndef FSDPCK_VERIFY_LATEST_COPIES_H
#define FSDPCK_VERIFY_LATEST_COPIES_H

#include "verify/latest_step.h"

/* Sets copy_of, and gives the copy the number of the step that it is a copy of. */
void latest_copies_find(latest_step *list, size_t count);
/* LATEST-NAME: copies of the chosen step, or that it is one itself. */
void latest_copies_warn(const latest_step *list, size_t count, const latest_step *chosen,
                        const logger *log);

#endif
