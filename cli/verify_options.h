/* verify_options.h: options that limit the data that `fsdpck verify` reads. Each function returns false
 * after it has reported a usage error. */
#ifndef FSDPCK_CLI_VERIFY_OPTIONS_H
#define FSDPCK_CLI_VERIFY_OPTIONS_H

#include "cmd.h"

/* "5%", "0.5%"; "3/20" is the third of twenty disjoint parts. Fractions of the data, 0 to 1. */
bool verify_parse_sample(const cli *c, const char *text, double *begin, double *end);
/* "90", "90s", "10m", "2h". */
bool verify_parse_duration(const cli *c, const char *text, double *seconds);

#endif
