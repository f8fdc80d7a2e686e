/* later_steps.h: steps of a run after the one that is read, in which no checkpoint was found: the newest save did not
 * complete, or its model was lost. */
#ifndef FSDPCK_OPEN_LATER_STEPS_H
#define FSDPCK_OPEN_LATER_STEPS_H

#include "base/log.h"
#include "formats/format.h"

/* SAVE-INCOMPLETE. in: the folder that the user gave; found: the path of the only checkpoint below it. */
void later_steps_warn(const probe_input *in, const char *found, const logger *log);

#endif
