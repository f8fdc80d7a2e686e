/* convert_report.h: the report of a successful consolidate or reshard on stdout, as text or JSON. */
#ifndef FSDPCK_CLI_CONVERT_REPORT_H
#define FSDPCK_CLI_CONVERT_REPORT_H

#include "convert_options.h"

/* info: of the source. */
void transform_print_text(const cli *c, const transform_request *r, const fsdpck_info *info,
                          const fsdpck_report *p);
/* Returns the exit code. */
/* With --quiet: names the omitted tensors and objects on stderr. */
void transform_warn_left_out(const cli *c, const fsdpck_report *p);
int transform_print_json(const cli *c, const transform_request *r, const fsdpck_info *info,
                         const fsdpck_report *p);

/* Why `mesh` was chosen: "as given", "as the source", ... Returns text. */
char *transform_mesh_reason(const transform_request *r, const fsdpck_info *info, const char *mesh,
                            char *text, size_t capacity_nbytes);

#endif
