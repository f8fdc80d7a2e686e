/* diff_json_beside.h: JSON files beside the weights that a trainer requires, such as 'adapter_config.json'. */
#ifndef FSDPCK_COMPARE_DIFF_JSON_BESIDE_H
#define FSDPCK_COMPARE_DIFF_JSON_BESIDE_H

#include "run/run.h"

/* STATE-BESIDE for each that only one of them has, or whose bytes differ. */
void diff_json_beside(const fsdpck_checkpoint *a, const fsdpck_checkpoint *b, const logger *log);

#endif
