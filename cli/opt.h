/* opt.h: option rows as constant tables; what popt needs, the help, and the checks of the values
 * all come from them. A row says where in a struct of values its value goes, so commands share it.
 *
 *     typedef struct values { char *mesh; uint64_t ranks; int json; } values;
 *     static const opt_row rows[] = {
 *         {"mesh", .kind = OPT_TEXT, .at = offsetof(values, mesh), .value = "M", .help = "..."},
 *         {"json", .kind = OPT_FLAG, .at = offsetof(values, json), .help = "machine-readable"},
 *         {0}};
 *     values w = {0};
 *     const opt_group groups[] = {{"What is shown:", rows, &w}, {0}};
 *     const opt_spec spec = {.usage = "inspect [OPTION]... SRC", .about = "...", .groups = groups};
 *     int code = opt_parse(c, &spec, argc, argv, operands, 1, 1, &count);
 *     if (code < 0)              // else help was shown (0), or a usage error (2)
 *         code = do_it();
 *     opt_release(c, &spec);
 */
#ifndef FSDPCK_CLI_OPT_H
#define FSDPCK_CLI_OPT_H

#include <stddef.h>
#include <stdint.h>

#include "cmd.h"

/* Type of the member at `at`. It keeps what it held where the option is not given. */
typedef enum opt_kind {
    OPT_FLAG,   /* int, becomes 1 */
    OPT_TEXT,   /* char *, freed by opt_release */
    OPT_LIST,   /* char **, NULL-terminated, freed by opt_release; the option may be repeated */
    OPT_CHOICE, /* int: place of the word among `choices` */
    OPT_SET,    /* int: a bit for each word of `choices`, by place; the option may be repeated */
    OPT_COUNT,  /* uint64_t, `min` to `max` */
    OPT_SIZE    /* uint64_t, bytes: "64M", at least `min` */
} opt_kind;

typedef struct opt_row {
    const char *name; /* without dashes; NULL ends the table */
    char letter;      /* '\0': none */
    opt_kind kind;
    size_t at;         /* offsetof the member */
    const char *value; /* what the help calls it; NULL for flags */
    const char *help;
    const char *choices; /* "all|first" */
    uint64_t min, max;
} opt_row;

typedef struct opt_group {
    const char
        *title; /* "What is written:", "" goes on with the group before; NULL ends the list */
    const opt_row *rows;
    void *values; /* the struct that the rows fill */
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
              unsigned min, unsigned max, unsigned *count);

void opt_release(cli *c, const opt_spec *spec);

/* A whole number in the value of an option; false after having reported a usage error. */
bool opt_count(const cli *c, const char *option, const char *text, uint64_t min, uint64_t max,
               uint64_t *count);

/* Bytes, "64M", in the value of an option; false after having reported a usage error. */
bool opt_size(const cli *c, const char *option, const char *text, uint64_t min, uint64_t *nbytes);

/* NULL-terminated list that popt made, counted. */
size_t opt_list_count(char **list);

/* Sets c->json where a word is --json: how even a usage error is shown. */
void opt_find_json(cli *c, int argc, const char **argv);

/* Reports a usage error; returns the exit code 2. */
int opt_usage_error(const cli *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* With a next step better than "--help shows the options". */
int opt_usage_error_next(const cli *c, const char *next, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

#endif
