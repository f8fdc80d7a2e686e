/* average_inputs.h: the checkpoints that `average` reads, and the one that it makes of them. */
#ifndef FSDPCK_CLI_AVERAGE_INPUTS_H
#define FSDPCK_CLI_AVERAGE_INPUTS_H

#include "convert_run.h"

/* Opens all SRC and the BASE of the request into in->averaged, and sets in->src to their average. */
fsdpck_status average_inputs_open(const cli *c, const command_request *r, convert_inputs *in,
                                  fsdpck_error *err) FSDPCK_MUST_CHECK;
/* After in->src is closed. */
void average_inputs_close(convert_inputs *in);

#endif
