/* opt.h: options as constant tables. The parser, the help and the checks of values are made from them.
 * A row contains the offset of its value in a struct, so that commands can share rows.
 *
 *     typedef struct values { char *mesh; uint64_t ranks; int json; } values;
 *     static const opt_row rows[] = {
 *         {"mesh", .kind = OPT_TEXT, .at = offsetof(values, mesh), .value = "M", .help = "..."},
 *         {"json", .kind = OPT_FLAG, .at = offsetof(values, json), .help = "report as JSON"},
 *         {0}};
 *     values w = {0};
 *     const opt_group groups[] = {{"Output:", rows, &w}, {0}};
 *     const opt_spec spec = {.usage = "inspect [OPTION]... SRC", .about = "...", .groups = groups};
 *     int code = opt_parse(c, &spec, argc, argv, operands, 1);
 *     if (code < 0)              // else help was shown (0), or a usage error (2)
 *         code = do_it();
 *     opt_release(c, &spec);
 */
#ifndef FSDPCK_CLI_OPT_H
#define FSDPCK_CLI_OPT_H

#include <stddef.h>
#include <stdint.h>

#include "cmd.h"

/* Type of the member at offset `at`. The member is unchanged if the option is not given. */
typedef enum opt_kind {
    OPT_FLAG,   /* int, becomes 1 */
    OPT_TEXT,   /* char *, freed by opt_release */
    OPT_LIST,   /* char **, NULL-terminated, freed by opt_release; the option may be repeated */
    OPT_CHOICE, /* int: index of the word in `choices` */
    OPT_SET,    /* int: bit i for word i of `choices`; the option may be repeated */
    OPT_COUNT,  /* uint64_t, `min` to `max` */
    OPT_SIZE    /* uint64_t, bytes: "64M", at least `min` */
} opt_kind;

/* Values of an option besides `choices`, for completion in a shell. */
typedef enum opt_words {
    OPT_WORDS_NONE,
    OPT_WORDS_FILES,
    OPT_WORDS_READERS, /* formats */
    OPT_WORDS_MAPS,
    OPT_WORDS_FINDINGS,
    OPT_WORDS_TENSORS, /* of the checkpoint on the command line */
    OPT_WORDS_FLOATS   /* dtypes of a cast */
} opt_words;

typedef struct opt_row {
    const char *name; /* without dashes; NULL ends the table */
    char letter;      /* '\0': none */
    opt_kind kind;
    size_t at;         /* offsetof the member */
    const char *value; /* its name in the help; NULL for flags */
    const char *help;
    const char
        *choices; /* "all|first"; of OPT_TEXT: for completion only, the value is not checked */
    uint64_t min, max;
    opt_words words;
} opt_row;

typedef struct opt_group {
    const char *title; /* "Writing:"; "" continues the previous group; NULL ends the list */
    const opt_row *rows;
    void *values; /* the struct that the rows fill */
} opt_group;

typedef struct opt_spec {
    const char *usage;       /* follows "Usage: fsdpck " */
    const char *about;       /* one paragraph, wrapped at 79 columns by hand */
    const opt_group *groups; /* ends with a NULL title */
    const char *examples;    /* lines, or NULL */
    bool operands_optional;  /* operands that are not given stay as they are */
    opt_words operand_words; /* OPT_WORDS_MAPS, or files */
    unsigned
        *operand_count; /* any number of further operands is taken, and all are counted here; or
                              * NULL */
} opt_spec;

/* Parses argv, which must have `count` operands, or at most as many if they are optional. `operands` has
 * room for argc if spec->operand_count is not NULL. Returns -1 to continue, else the exit code. Operands
 * and option texts stay valid until opt_release, which must be called in any case. */
int opt_parse(cli *c, const opt_spec *spec, int argc, const char **argv, const char **operands,
              unsigned count);

void opt_release(cli *c, const opt_spec *spec);

/* Parses an option's value as a whole number. On failure reports a usage error and returns false. */
bool opt_count(const cli *c, const char *option, const char *text, uint64_t min, uint64_t max,
               uint64_t *count);

/* Parses an option's value as bytes, "64M". On failure reports a usage error and returns false. */
bool opt_size(const cli *c, const char *option, const char *text, uint64_t min, uint64_t *nbytes);

/* Number of entries of an OPT_LIST; 0 for NULL. */
size_t opt_list_count(char **list);

/* Sets c->color to the --color in argv, for messages before options are parsed, and c->out and c->err. */
void opt_find_color(cli *c, int argc, const char **argv);

/* Sets c->json if argv contains --json, so that usage errors are reported as JSON too. */
void opt_find_json(cli *c, int argc, const char **argv);

/* Reports a usage error; returns the exit code 2. */
int opt_usage_error(const cli *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* The same, with a next step instead of "run fsdpck COMMAND --help". */
int opt_usage_error_next(const cli *c, const char *next, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

#endif
