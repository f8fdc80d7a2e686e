/* verify_print.h: output of `fsdpck verify`, on stdout. Each returns the exit code. */
#ifndef FSDPCK_CLI_VERIFY_PRINT_H
#define FSDPCK_CLI_VERIFY_PRINT_H

#include "cmd.h"
#include "command_options.h"
#include "report.h"

/* like: as given; NULL: none. */
int verify_print_text(const cli *c, const command_options *given, const char *path,
                      const char *like, const fsdpck_verify *v);
/* One line: the numbers of errors, warnings and notes. */
void verify_print_verdict(const cli *c, const char *path, const fsdpck_verify *v);
int verify_print_json(const cli *c, const command_options *given, const char *like,
                      const fsdpck_verify *v);

/* verify_stats.c. False if memory runs out. */
bool verify_print_statistics(const cli *c, const fsdpck_verify *v);
void verify_put_statistics(json_report *r, const fsdpck_verify *v);

/* verify_nearness.c: the values against those of --like. Nothing without --like. */
bool verify_print_roles(const cli *c, const fsdpck_verify *v); /* false if memory runs out */
void verify_print_nearness(const fsdpck_verify *v);
void verify_put_nearness(json_writer *w, const fsdpck_verify *v);
void verify_put_near_lists(json_report *r, const fsdpck_verify *v);

#endif
