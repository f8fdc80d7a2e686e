#include "opt.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "report.h"

/* Widest line of help. */
#define HELP_COLUMNS 79
#define HELP_INDENT  28
#define ROWS_MAX     64

int opt_usage_error(const cli *c, const char *fmt, ...)
{
    fsdpck_error err;
    fsdpck_error_init(&err);
    err.status = FSDPCK_USAGE;
    va_list args;
    va_start(args, fmt);
    vsnprintf(err.message, sizeof err.message, fmt, args);
    va_end(args);
    snprintf(err.next, sizeof err.next, "fsdpck %s --help shows the options", c->command);
    return report_failure(c, NULL, &err);
}

/* Prints text from column `column` on, wrapped, further lines indented to HELP_INDENT. */
static void print_wrapped(const char *text, int column)
{
    while (*text != '\0') {
        size_t n = strcspn(text, " ");
        if (column + (int)n > HELP_COLUMNS) {
            printf("\n%*s", HELP_INDENT, "");
            column = HELP_INDENT;
        }
        printf("%.*s", (int)n, text);
        column += (int)n;
        text += n;
        if (*text == ' ') {
            text++;
            if (column + 1 + (int)strcspn(text, " ") <= HELP_COLUMNS) {
                putchar(' ');
                column++;
            } else if (*text != '\0') {
                printf("\n%*s", HELP_INDENT, "");
                column = HELP_INDENT;
            }
        }
    }
    putchar('\n');
}

static void print_row(const struct poptOption *row)
{
    char left[96];
    int n = 0;
    if (row->shortName != '\0')
        n = snprintf(left, sizeof left, "  -%c, --%s", row->shortName, row->longName);
    else
        n = snprintf(left, sizeof left, "      --%s", row->longName);
    if (row->argDescrip != NULL)
        n += snprintf(left + n, sizeof left - (size_t)n, "=%s", row->argDescrip);
    printf("%s", left);
    if (n + 2 > HELP_INDENT) {
        printf("\n%*s", HELP_INDENT, "");
        n = HELP_INDENT;
    } else {
        printf("%*s", HELP_INDENT - n, "");
        n = HELP_INDENT;
    }
    print_wrapped(row->descrip, n);
}

static void print_help(const opt_spec *spec)
{
    printf("Usage: fsdpck %s\n\n%s\n", spec->usage, spec->about);
    for (const opt_group *g = spec->groups; g->title != NULL; g++) {
        printf("\n%s\n", g->title);
        for (const struct poptOption *row = g->rows; row->longName != NULL; row++)
            print_row(row);
    }
    printf("  -h, --help                show this help\n");
    if (spec->examples != NULL)
        printf("\nExamples:\n%s", spec->examples);
}

static size_t gather_rows(const opt_spec *spec, int *help, struct poptOption *rows)
{
    size_t n = 0;
    for (const opt_group *g = spec->groups; g->title != NULL; g++) {
        for (const struct poptOption *row = g->rows; row->longName != NULL && n < ROWS_MAX - 2;
             row++)
            rows[n++] = *row;
    }
    rows[n++] = (struct poptOption){"help", 'h', POPT_ARG_NONE, help, 0, NULL, NULL};
    rows[n] = (struct poptOption)POPT_TABLEEND;
    return n;
}

static int bad_option(cli *c, poptContext pc, int rc)
{
    const char *word = poptBadOption(pc, POPT_BADOPTION_NOALIAS);
    if (rc == POPT_ERROR_BADOPT)
        return opt_usage_error(c, "there is no option '%s'", word);
    if (rc == POPT_ERROR_NOARG)
        return opt_usage_error(c, "option '%s' needs a value", word);
    return opt_usage_error(c, "option '%s': %s", word, poptStrerror(rc));
}

/* --json decides how even a usage error is shown, so it is looked for before anything else. */
static void find_json(cli *c, int argc, const char **argv)
{
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++)
        c->json = c->json || strcmp(argv[i], "--json") == 0;
}

int opt_parse(cli *c, const opt_spec *spec, int argc, const char **argv, const char **operands,
              unsigned least, unsigned most, unsigned *count)
{
    int help = 0;
    struct poptOption rows[ROWS_MAX];
    gather_rows(spec, &help, rows);
    find_json(c, argc, argv);
    poptContext pc = poptGetContext(NULL, argc, argv, rows, 0);
    if (pc == NULL)
        return opt_usage_error(c, "no memory for the options");
    const int rc = poptGetNextOpt(pc);
    int code = -1;
    *count = 0;
    if (rc < -1) {
        code = bad_option(c, pc, rc);
    } else if (help) {
        print_help(spec);
        code = 0;
    } else {
        const char *operand;
        while (code < 0 && (operand = poptGetArg(pc)) != NULL) {
            if (*count == most)
                code = opt_usage_error(c, "unexpected operand '%s'", operand);
            else
                operands[(*count)++] = operand;
        }
        if (code < 0 && *count < least)
            code = opt_usage_error(c, "missing operand: fsdpck %s", spec->usage);
    }
    c->popt = pc;
    return code;
}

void opt_release(cli *c, const opt_spec *spec)
{
    for (const opt_group *g = spec->groups; g->title != NULL; g++) {
        for (const struct poptOption *row = g->rows; row->longName != NULL; row++) {
            char ***list = row->arg;
            char **text = row->arg;
            const unsigned kind = row->argInfo & POPT_ARG_MASK;
            if (kind == POPT_ARG_STRING) {
                free(*text);
                *text = NULL;
            } else if (kind == POPT_ARG_ARGV && *list != NULL) {
                for (size_t i = 0; (*list)[i] != NULL; i++)
                    free((*list)[i]);
                free(*list);
                *list = NULL;
            }
        }
    }
    if (c->popt != NULL)
        poptFreeContext(c->popt);
    c->popt = NULL;
}

bool opt_size(const cli *c, const char *option, const char *text, uint64_t *nbytes)
{
    static const struct {
        const char *suffix;
        uint64_t factor;
    } units[] = {
        {"", 1},
        {"k", UINT64_C(1) << 10},
        {"K", UINT64_C(1) << 10},
        {"KiB", UINT64_C(1) << 10},
        {"kB", 1000},
        {"KB", 1000},
        {"M", UINT64_C(1) << 20},
        {"MiB", UINT64_C(1) << 20},
        {"MB", 1000000},
        {"G", UINT64_C(1) << 30},
        {"GiB", UINT64_C(1) << 30},
        {"GB", 1000000000},
        {"T", UINT64_C(1) << 40},
        {"TiB", UINT64_C(1) << 40},
        {"TB", UINT64_C(1000000000000)},
    };
    char *end = NULL;
    errno = 0;
    const unsigned long long n = text[0] >= '0' && text[0] <= '9' ? strtoull(text, &end, 10) : 0;
    for (size_t i = 0; end != NULL && errno == 0 && n > 0 && i < sizeof units / sizeof units[0];
         i++) {
        if (strcmp(units[i].suffix, end) == 0 && n <= UINT64_MAX / units[i].factor) {
            *nbytes = n * units[i].factor;
            return true;
        }
    }
    opt_usage_error(c, "%s: '%s' is not a size such as 64M, 5GB or 2GiB", option, text);
    return false;
}

bool opt_count(const cli *c, const char *option, const char *text, uint64_t least, uint64_t most,
               uint64_t *count)
{
    char *end = NULL;
    errno = 0;
    const unsigned long long n = text[0] >= '0' && text[0] <= '9' ? strtoull(text, &end, 10) : 0;
    if (end == NULL || *end != '\0' || errno != 0 || n < least || n > most) {
        opt_usage_error(c, "%s: '%s' is not a whole number from %llu to %llu", option, text,
                        (unsigned long long)least, (unsigned long long)most);
        return false;
    }
    *count = n;
    return true;
}

bool opt_choice(const cli *c, const char *option, const char *text, const char *choices, int *index)
{
    const size_t n = strlen(text);
    int i = 0;
    for (const char *at = choices;; at++, i++) {
        const size_t k = strcspn(at, "|");
        if (k == n && memcmp(at, text, n) == 0) {
            *index = i;
            return true;
        }
        at += k;
        if (*at == '\0')
            break;
    }
    opt_usage_error(c, "%s: '%s' is none of %s", option, text, choices);
    return false;
}

size_t opt_list_count(char **list)
{
    size_t n = 0;
    while (list != NULL && list[n] != NULL)
        n++;
    return n;
}
