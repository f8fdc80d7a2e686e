/* latest_parts.h: what older steps contain beside the chosen one's files. */
#ifndef FSDPCK_VERIFY_LATEST_PARTS_H
#define FSDPCK_VERIFY_LATEST_PARTS_H

#include "verify/latest_step.h"

/* LATEST-PARTS: files and folders that are missing at list[at] and at the candidates of its number, although at
 * least half of the older steps contain them. list: newest first. without_state: a trainer's state may be missing. */
void latest_parts_warn(const latest_step *list, size_t count, size_t at, bool without_state,
                       const logger *log);

#endif
