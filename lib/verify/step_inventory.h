/* step_inventory.h: the names of weights and state of one step, in a folder or in files side by side:
 *
 *     step_inventory s;
 *     step_inventory_init(&s);
 *     RETURN_IF(step_inventory_add(&s, path, NULL, &name, err));  // each candidate of this number
 *     if (step_inventory_count(&s, pattern, nbytes) < ...) ...
 *     step_inventory_release(&s);
 */
#ifndef FSDPCK_VERIFY_STEP_INVENTORY_H
#define FSDPCK_VERIFY_STEP_INVENTORY_H

#include "base/alloc.h"
#include "base/status.h"
#include "base/step_name.h"

/* In names, the number of the step. */
#define STEP_INVENTORY_NUMBER '\1'

/* Paths relative to the folder of the run; those of folders end in '/'. Folders without weights or state, and the
 * files that DCP's metadata lists, are omitted. Of files whose number the names state, one stands for all. */
typedef struct step_inventory {
    strtab names;    /* "checkpoint-\1/rng_state_1.pth" */
    vec pattern_of;  /* uint32_t by name */
    strtab patterns; /* each number is '#': "checkpoint-#/rng_state_#.pth" */
    vec counts;      /* uint32_t by pattern: names */
} step_inventory;

void step_inventory_init(step_inventory *s);
void step_inventory_release(step_inventory *s);

/* path: of the candidate; as: the name to use for its folder, or NULL; name: the number in its name. An unreadable folder
 * below is omitted. */
fsdpck_status step_inventory_add(step_inventory *s, const char *path, const char *as,
                                 const step_name *name, fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Names of this pattern; 0: none. */
uint32_t step_inventory_count(const step_inventory *s, const char *pattern, size_t nbytes);

#endif
