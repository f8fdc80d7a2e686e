/* average_print.h: the coefficients and distances of an average in the report. Apart from the failure,
 * they print nothing for another checkpoint. */
#ifndef FSDPCK_CLI_AVERAGE_PRINT_H
#define FSDPCK_CLI_AVERAGE_PRINT_H

#include "base/json.h"
#include "command_options.h"

void average_print_text(const cli *c, const command_request *r, const fsdpck_checkpoint *src);
/* Reports a failure, with the inputs. Returns the exit code. */
int average_report_failure(const cli *c, const command_request *r, const fsdpck_checkpoint *src,
                           const fsdpck_info *source, const fsdpck_error *err);
void average_put_json(const command_request *r, const fsdpck_checkpoint *src, json_writer *w);

#endif
