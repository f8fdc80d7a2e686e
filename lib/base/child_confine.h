/* child_confine.h: what keeps a child (child.h) in its place; twins, called in the child alone. */
#ifndef FSDPCK_BASE_CHILD_CONFINE_H
#define FSDPCK_BASE_CHILD_CONFINE_H

#include <stdbool.h>
#include <stdint.h>

/* Closes all descriptors but these two. */
void confine_close_others(int one, int two);
/* At most so much more address space, where it can be told how much there is. */
void confine_memory(uint64_t nbytes);
/* Dies with its parent, and makes no system call but the harmless ones. False where that cannot be
 * had on a system that should have it. */
bool confine_calls(void);

#endif
