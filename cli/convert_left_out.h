/* convert_left_out.h: what the output of consolidate, reshard or average does not contain. */
#ifndef FSDPCK_CLI_CONVERT_LEFT_OUT_H
#define FSDPCK_CLI_CONVERT_LEFT_OUT_H

#include <stdio.h>

#include "command_options.h"

/* Names in a line of the text report. */
#define CONVERT_NAMES_SHOWN 5u

bool convert_is_reshard(const fsdpck_report *p);

/* Omitted tensors and objects with the option that includes them, adapters, files beside the weights. */
void convert_print_left_out(const cli *c, const command_request *r, const fsdpck_info *info,
                            const fsdpck_report *p);
/* With --quiet: names the omitted tensors and objects on stderr. */
void convert_warn_left_out(const cli *c, const fsdpck_report *p);
/* The first `shown` names, escaped, and the number of the others. */
void convert_put_names(FILE *to, char *const *names, size_t count, size_t shown);

#endif
