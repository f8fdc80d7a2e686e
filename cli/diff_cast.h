/* diff_cast.h: differences in dtype that a cast of A explains. */
#ifndef FSDPCK_CLI_DIFF_CAST_H
#define FSDPCK_CLI_DIFF_CAST_H

#include "base/json.h"
#include "convert_run.h"

/* Adds the next step, if all differences in dtype are one cast between floats: --as of all floats of A only if no tensor
 * that already has the same dtype in both would get another. Returns false, and adds nothing, if there is none. */
bool diff_cast_next(const command_request *r, const fsdpck_diff *d, text_buf *next);

#endif
