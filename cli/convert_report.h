/* convert_report.h: the report of a successful consolidate or reshard on stdout, as text or JSON. */
#ifndef FSDPCK_CLI_CONVERT_REPORT_H
#define FSDPCK_CLI_CONVERT_REPORT_H

#include "convert_left_out.h"

/* info: of the source. */
void convert_print_text(const cli *c, const command_request *r, fsdpck_checkpoint *src,
                        const fsdpck_info *info, const fsdpck_report *p);
/* Its first line: formats, and the number of tensors and bytes. */
void convert_print_result(const cli *c, const command_request *r, const fsdpck_info *info,
                          const fsdpck_report *p);
/* convert_report_json.c. Returns the exit code. */
int convert_print_json(const cli *c, const command_request *r, fsdpck_checkpoint *src,
                       const fsdpck_info *info, const fsdpck_report *p);

/* Why `mesh` was chosen: "as given", "as the source", ... Returns text. */
char *convert_mesh_reason(const command_request *r, const fsdpck_info *info, const char *mesh,
                          char *text, size_t capacity_nbytes);

/* What to do with the output, "" for nothing. Returns text. */
char *convert_next_step(const command_request *r, const fsdpck_report *p, char *text,
                        size_t capacity);

#endif
