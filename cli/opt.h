/* opt.h: typed option rows over popt; usage and help come from the same rows.
 *
 *     const struct poptOption rows[] = {
 *         {"tree", 0, POPT_ARG_NONE, &tree, 0, "names as a tree", NULL},
 *         POPT_TABLEEND};
 *     const opt_group groups[] = {{"What is shown:", rows}, {NULL, NULL}};
 *     const opt_spec spec = {.usage = "inspect [OPTION]... SRC", .about = "...", .groups = groups};
 *     int code = opt_parse(c, &spec, argc, argv, operands, 1, 1, &count);
 *     if (code < 0)              // else help was shown (0), or a usage error (2)
 *         code = do_it();
 *     opt_release(c, &spec);
 */
#ifndef FSDPCK_CLI_OPT_H
#define FSDPCK_CLI_OPT_H

#include <popt.h>
#include <stdint.h>

#include "cmd.h"

typedef struct opt_group {
    const char *title; /* "Choosing what is written:" */
    const struct poptOption *rows;
} opt_group;

typedef struct opt_spec {
    const char *usage;       /* behind "Usage: fsdpck " */
    const char *about;       /* one paragraph, wrapped at 79 columns by hand */
    const opt_group *groups; /* ends with a NULL title */
    const char *examples;    /* lines, or NULL */
} opt_spec;

/* Parses argv; operands and option texts are borrowed until opt_release. -1: go on; else exit with
 * what is returned. */
int opt_parse(cli *c, const opt_spec *spec, int argc, const char **argv, const char **operands,
              unsigned least, unsigned most, unsigned *count);

void opt_release(cli *c, const opt_spec *spec);

/* Values. Each returns false after having reported a usage error that names the option. */
bool opt_size(const cli *c, const char *option, const char *text, uint64_t *nbytes);
bool opt_count(const cli *c, const char *option, const char *text, uint64_t least, uint64_t most,
               uint64_t *count);
/* `choices` are words separated by '|'; *index is the place of `text` among them. */
bool opt_choice(const cli *c, const char *option, const char *text, const char *choices,
                int *index);

/* NULL-terminated list that popt made, counted. */
size_t opt_list_count(char **list);

/* Reports a usage error; returns the exit code 2. */
int opt_usage_error(const cli *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
