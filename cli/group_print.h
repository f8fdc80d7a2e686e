/* group_print.h: a dry run for a group of processes (--group-size): its options, and the work of each
 * rank. */
#ifndef FSDPCK_CLI_GROUP_PRINT_H
#define FSDPCK_CLI_GROUP_PRINT_H

#include "base/json.h"
#include "command_options.h"

/* "read=7GB/s,write=5GB/s,net=25GB/s" into model_read, model_write and model_net. False after having
 * reported a usage error. */
bool group_parse_bandwidth(const cli *c, const char *text, job_options *t);

/* Lists up to 16 ranks, or with -v all; else the minimum, mean and maximum. */
void group_print_text(const cli *c, const command_request *r, const fsdpck_group_plan *g);
/* Adds the member "group_plan". */
void group_put_json(const cli *c, const command_request *r, const fsdpck_group_plan *g,
                    json_writer *w);

#endif
