/* diff_print.h: output of `fsdpck diff`, on stdout. Each returns the exit code. */
#ifndef FSDPCK_CLI_DIFF_PRINT_H
#define FSDPCK_CLI_DIFF_PRINT_H

#include "convert_run.h"

int diff_print_text(const cli *c, const command_request *r, const fsdpck_diff *d);

/* NULL: could not be opened. */
typedef struct diff_sides {
    fsdpck_checkpoint *a, *b;
    const fsdpck_info *of_a;
} diff_sides;

int diff_print_json(const cli *c, const command_request *r, const diff_sides *s,
                    const fsdpck_diff *d);
int diff_report_failure(const cli *c, const command_request *r, const diff_sides *s,
                        const fsdpck_error *err);

#endif
