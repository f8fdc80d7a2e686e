/* diff_print.h: output of `fsdpck diff`, on stdout. Each returns the exit code. */
#ifndef FSDPCK_CLI_DIFF_PRINT_H
#define FSDPCK_CLI_DIFF_PRINT_H

#include "convert_run.h"

int diff_print_text(const cli *c, const command_request *r, const fsdpck_diff *d);
int diff_print_json(const cli *c, const command_request *r, const fsdpck_info *of_a,
                    const fsdpck_info *of_b, const fsdpck_diff *d);

#endif
