/* consolidate_report.h: what `fsdpck consolidate` says when it has succeeded, as text or as JSON,
 * on stdout. */
#ifndef FSDPCK_CLI_CONSOLIDATE_REPORT_H
#define FSDPCK_CLI_CONSOLIDATE_REPORT_H

#include "cmd.h"

void consolidate_print_text(const cli *c, const fsdpck_info *info, const fsdpck_report *p,
                            bool dry_run);
/* Returns the exit code. */
int consolidate_print_json(const cli *c, const fsdpck_info *info, const fsdpck_report *p,
                           bool dry_run);

#endif
