/* map_print.h: the tensor map of a run, in its report. Nothing without a map. */
#ifndef FSDPCK_CLI_MAP_PRINT_H
#define FSDPCK_CLI_MAP_PRINT_H

#include "base/json.h"
#include "cmd.h"

void map_print_text(const fsdpck_info *info);
void map_put_json(json_writer *w, const fsdpck_info *info);

#endif
