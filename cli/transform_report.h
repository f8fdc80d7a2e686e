/* transform_report.h: what consolidate and reshard say when they have succeeded, as text or as
 * JSON, on stdout. */
#ifndef FSDPCK_CLI_TRANSFORM_REPORT_H
#define FSDPCK_CLI_TRANSFORM_REPORT_H

#include "transform_options.h"

/* info: of the source. */
void transform_print_text(const cli *c, const transform_request *r, const fsdpck_info *info,
                          const fsdpck_report *p);
/* Returns the exit code. */
/* With --quiet: what is left out, on stderr. */
void transform_warn_left_out(const cli *c, const fsdpck_report *p);
int transform_print_json(const cli *c, const transform_request *r, const fsdpck_info *info,
                         const fsdpck_report *p);

/* Why `mesh` was chosen: "as given", "as the source", ... Returns text. */
char *transform_mesh_reason(const transform_request *r, const fsdpck_info *info, const char *mesh,
                            char *text, size_t capacity_nbytes);

#endif
