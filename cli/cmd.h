/* cmd.h: the commands. A new command needs a cmd_NAME.c with its function, a row in the table of
 * main.c, a manual page fsdpck-NAME.1 (a test compares it with --help), and golden cases under
 * tests/cli/cases.
 *
 * A command parses its options into a request, makes one library call, and reports. It returns the
 * exit code.
 */
#ifndef FSDPCK_CLI_CMD_H
#define FSDPCK_CLI_CMD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/types.h>

#include "fsdpck.h"
#include "terminal.h"

struct cli;
struct opt_spec;

/* A command line that a shell completes, see complete.h. */
typedef struct completion {
    const char **words;
    size_t count; /* at least 1; the last one is to be completed */
    void (*print)(const struct cli *c, const struct opt_spec *spec);
} completion;

/* See report_page.h. */
typedef struct report_page {
    const char *path;         /* NULL: none */
    const char *const *words; /* of the command line, without the program; ends with NULL */
    const char *destination;  /* operand DST or B, as given; NULL: none */
    char *notes;              /* that were printed on stderr, each with its NUL */
    size_t notes_nbytes;
    char *temporary; /* its name until it is complete */
    FILE *file;
    bool quiet;
    int failed; /* errno */
} report_page;

typedef struct cli {
    fsdpck_context *ctx;
    const char *command; /* its name, for messages */
    bool json;
    report_page *page; /* of --html */
    bool quiet;
    int verbose;
    int color;         /* a color_mode: --color */
    int no_pager;      /* --no-pager */
    pid_t pager;       /* its process, see pager.h; 0: none */
    terminal out, err; /* stdout and stderr */
    double started_seconds;
    double join_seconds;                 /* from then until all ranks are connected */
    void *popt;                          /* parsed options, see opt.h */
    const char *source_path;             /* operand SRC or A, as given; NULL: none */
    size_t warnings_printed;             /* see warnings.h */
    size_t warnings_of_a, warnings_of_b; /* of diff: those before these numbers are about A, or B */
    const completion *completing;        /* NULL: a command runs */
} cli;

typedef struct command {
    const char *name;
    int (*run)(cli *c, int argc, const char **argv); /* argv[0] is the command's name */
    const char *summary;                             /* one line */
    const char *alias_of; /* aliases between blanks, as " merge convert " */
    bool shared;          /* under mpirun all ranks run it together; else rank 0 only */
} command;

extern const command commands[]; /* ends with a NULL name */

const command *command_find(const char *name);

int cmd_average(cli *c, int argc, const char **argv);
int cmd_consolidate(cli *c, int argc, const char **argv);
int cmd_diff(cli *c, int argc, const char **argv);
int cmd_digest(cli *c, int argc, const char **argv);
int cmd_inspect(cli *c, int argc, const char **argv);
int cmd_latest(cli *c, int argc, const char **argv);
int cmd_layout(cli *c, int argc, const char **argv);
int cmd_maps(cli *c, int argc, const char **argv);
int cmd_reshard(cli *c, int argc, const char **argv);
int cmd_help(cli *c, int argc, const char **argv);
/* No command is given: prints the overview on stderr, a usage error. */
int cmd_help_missing(void);
/* `word` is no command: reports a usage error, in JSON if argv contains --json. */
int cmd_help_unknown(cli *c, const char *word, int argc, const char **argv);
int cmd_verify(cli *c, int argc, const char **argv);
int cmd_version(cli *c, int argc, const char **argv);

#endif
