/* convert_report.h: the report of a successful consolidate or reshard on stdout, as text or JSON. */
#ifndef FSDPCK_CLI_CONVERT_REPORT_H
#define FSDPCK_CLI_CONVERT_REPORT_H

#include "command_options.h"

/* info: of the source. */
void convert_print_text(const cli *c, const command_request *r, const fsdpck_checkpoint *src,
                        const fsdpck_info *info, const fsdpck_report *p);
/* Returns the exit code. */
/* With --quiet: names the omitted tensors and objects on stderr. */
void convert_warn_left_out(const cli *c, const fsdpck_report *p);
int convert_print_json(const cli *c, const command_request *r, const fsdpck_checkpoint *src,
                       const fsdpck_info *info, const fsdpck_report *p);

/* Why `mesh` was chosen: "as given", "as the source", ... Returns text. */
char *convert_mesh_reason(const command_request *r, const fsdpck_info *info, const char *mesh,
                          char *text, size_t capacity_nbytes);

#endif
