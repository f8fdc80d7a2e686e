/* child_confine.h: restrictions of a child (child.h), per platform; called only in the child. */
#ifndef FSDPCK_BASE_CHILD_CONFINE_H
#define FSDPCK_BASE_CHILD_CONFINE_H

#include <stdbool.h>
#include <stdint.h>

/* Closes all descriptors but these two. */
void confine_close_others(int one, int two);
/* Limits further address space to nbytes, if the space in use can be determined. */
void confine_memory(uint64_t nbytes);
/* Ends the child with its parent, and forbids all but harmless system calls. False if that fails on
 * a system that should support it. */
bool confine_calls(void);

#endif
