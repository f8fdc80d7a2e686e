#include "opt.h"

#include <errno.h>
#include <popt.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "report.h"
#include "similar_option.h"

/* Widest line of help. */
#define HELP_COLUMNS 79
#define HELP_INDENT  28
#define ROWS_MAX     96

static int usage_error(const cli *c, const char *next, const char *fmt, va_list args)
{
    fsdpck_error err = FSDPCK_ERROR_INIT;
    err.status = FSDPCK_USAGE;
    vsnprintf(err.message, sizeof err.message, fmt, args);
    if (next != NULL)
        snprintf(err.next, sizeof err.next, "%s", next);
    else
        snprintf(err.next, sizeof err.next, "run fsdpck %s --help for the options", c->command);
    return report_failure(c, NULL, &err);
}

int opt_usage_error(const cli *c, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    const int code = usage_error(c, NULL, fmt, args);
    va_end(args);
    return code;
}

int opt_usage_error_next(const cli *c, const char *next, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    const int code = usage_error(c, next, fmt, args);
    va_end(args);
    return code;
}

/* Prints text from column `column` on, wrapped; continuation lines are indented to HELP_INDENT. */
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

static void print_row(const opt_row *row)
{
    char left[96];
    int n = 0;
    if (row->letter != '\0')
        n = snprintf(left, sizeof left, "  -%c, --%s", row->letter, row->name);
    else
        n = snprintf(left, sizeof left, "      --%s", row->name);
    if (row->value != NULL)
        n += snprintf(left + n, sizeof left - (size_t)n, "=%s", row->value);
    printf("%s", left);
    if (n + 2 > HELP_INDENT)
        printf("\n%*s", HELP_INDENT, "");
    else
        printf("%*s", HELP_INDENT - n, "");
    print_wrapped(row->help, HELP_INDENT);
}

static void print_help(const opt_spec *spec)
{
    printf("Usage: fsdpck %s\n\n%s\n", spec->usage, spec->about);
    for (const opt_group *g = spec->groups; g->title != NULL; g++) {
        if (g->title[0] != '\0')
            printf("\n%s\n", g->title);
        for (const opt_row *row = g->rows; row->name != NULL; row++)
            print_row(row);
    }
    printf("  -h, --help                show this help\n");
    if (spec->examples != NULL)
        printf("\nExamples:\n%s", spec->examples);
}

/* Storage for popt. `texts` has the last text of each option, not yet parsed as a value. */
typedef struct parse {
    struct poptOption popt[ROWS_MAX + 2];
    const opt_row *rows[ROWS_MAX];
    void *members[ROWS_MAX];
    char *given[ROWS_MAX], *texts[ROWS_MAX];
    char **sets[ROWS_MAX];
    size_t count;
    int help;
} parse;

static void add_row(parse *p, const opt_row *row, void *values)
{
    static const int popt_kinds[] = {
        [OPT_FLAG] = POPT_ARG_NONE,     [OPT_TEXT] = POPT_ARG_STRING,  [OPT_LIST] = POPT_ARG_ARGV,
        [OPT_CHOICE] = POPT_ARG_STRING, [OPT_COUNT] = POPT_ARG_STRING, [OPT_SIZE] = POPT_ARG_STRING,
        [OPT_SET] = POPT_ARG_ARGV,
    };
    const bool is_text = popt_kinds[row->kind] == POPT_ARG_STRING;
    const bool is_set = row->kind == OPT_SET;
    p->rows[p->count] = row;
    p->members[p->count] = (char *)values + row->at;
    p->popt[p->count] = (struct poptOption){
        .longName = row->name,
        .shortName = row->letter,
        .argInfo = (unsigned)popt_kinds[row->kind],
        .arg = is_text  ? (void *)&p->given[p->count]
               : is_set ? (void *)&p->sets[p->count]
                        : p->members[p->count],
        .val = is_text ? (int)p->count + 1 : 0,
    };
    p->count++;
}

static void gather_rows(parse *p, const opt_spec *spec)
{
    for (const opt_group *g = spec->groups; g->title != NULL; g++) {
        for (const opt_row *row = g->rows; row->name != NULL && p->count < ROWS_MAX; row++)
            add_row(p, row, g->values);
    }
    p->popt[p->count] = (struct poptOption){"help", 'h', POPT_ARG_NONE, &p->help, 0, NULL, NULL};
    p->popt[p->count + 1] = (struct poptOption)POPT_TABLEEND;
}

static int report_bad_option(cli *c, const parse *p, poptContext pc, int rc)
{
    const char *word = poptBadOption(pc, POPT_BADOPTION_NOALIAS);
    const char *similar = rc == POPT_ERROR_BADOPT ? similar_option(p->rows, p->count, word) : NULL;
    if (similar != NULL) {
        char next[64];
        snprintf(next, sizeof next, "did you mean '--%s'?", similar);
        return opt_usage_error_next(c, next, "unknown option '%s'", word);
    }
    if (rc == POPT_ERROR_BADOPT)
        return opt_usage_error(c, "unknown option '%s'", word);
    if (rc == POPT_ERROR_NOARG)
        return opt_usage_error(c, "option '%s' requires a value", word);
    return opt_usage_error(c, "option '%s': %s", word, poptStrerror(rc));
}

/* Usage errors are reported as JSON too, so --json is searched before options are parsed. */
void opt_find_json(cli *c, int argc, const char **argv)
{
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++)
        c->json = c->json || strcmp(argv[i], "--json") == 0;
}

static void find_terminals(cli *c)
{
    c->out = terminal_of(STDOUT_FILENO, (color_mode)c->color);
    c->err = terminal_of(STDERR_FILENO, (color_mode)c->color);
}

void opt_find_color(cli *c, int argc, const char **argv)
{
    c->color = terminal_find_color(argc, argv);
    find_terminals(c);
}

bool opt_size(const cli *c, const char *option, const char *text, uint64_t min, uint64_t *nbytes)
{
    static const struct {
        const char *suffix;
        uint64_t factor;
    } units[] = {
        {"", 1},
        {"K", UINT64_C(1) << 10},
        {"KiB", UINT64_C(1) << 10},
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
        if (strcasecmp(units[i].suffix, end) == 0 && n <= UINT64_MAX / units[i].factor) {
            *nbytes = n * units[i].factor;
            if (*nbytes >= min)
                return true;
            opt_usage_error(c, "%s: '%s' is too small: the minimum is %lluM", option, text,
                            (unsigned long long)(min >> 20));
            return false;
        }
    }
    opt_usage_error(c, "%s: '%s' is not a size such as 64M, 5GB or 2GiB", option, text);
    return false;
}

bool opt_count(const cli *c, const char *option, const char *text, uint64_t min, uint64_t max,
               uint64_t *count)
{
    char *end = NULL;
    errno = 0;
    const unsigned long long n = text[0] >= '0' && text[0] <= '9' ? strtoull(text, &end, 10) : 0;
    if (end == NULL || *end != '\0' || errno != 0 || n < min || n > max) {
        opt_usage_error(c, "%s: '%s' is not a whole number from %llu to %llu", option, text,
                        (unsigned long long)min, (unsigned long long)max);
        return false;
    }
    *count = n;
    return true;
}

static bool find_choice(const char *text, const char *choices, int *index)
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
            return false;
    }
}

static bool opt_choice(const cli *c, const char *option, const char *text, const char *choices,
                       int *index)
{
    if (find_choice(text, choices, index))
        return true;
    char next[80], word[32];
    if (similar_choice(text, choices, word, sizeof word)) {
        snprintf(next, sizeof next, "did you mean '%s'?", word);
        opt_usage_error_next(c, next, "%s: '%s' is not one of %s", option, text, choices);
    } else {
        opt_usage_error(c, "%s: '%s' is not one of %s", option, text, choices);
    }
    return false;
}

/* An option without its value may have taken the operand: --color SRC. */
static int report_missing_operand(const cli *c, const opt_spec *spec, const parse *p)
{
    int index;
    for (size_t i = 0; i < p->count; i++) {
        char next[160];
        const opt_row *row = p->rows[i];
        if (row->kind != OPT_CHOICE || p->texts[i] == NULL ||
            find_choice(p->texts[i], row->choices, &index))
            continue;
        snprintf(next, sizeof next, "write --%s=%.*s, or another of its values", row->name,
                 (int)strcspn(row->choices, "|"), row->choices);
        return opt_usage_error_next(c, next, "--%s requires a value: '%s' is not one of %s",
                                    row->name, p->texts[i], row->choices);
    }
    return opt_usage_error(c, "missing operand: fsdpck %s", spec->usage);
}

static int parse_operands(const cli *c, const opt_spec *spec, const parse *p, poptContext pc,
                          const char **operands, unsigned count)
{
    const char *operand;
    unsigned n = 0;
    while ((operand = poptGetArg(pc)) != NULL) {
        if (n == count && spec->operand_count == NULL)
            return opt_usage_error(c, "unexpected operand '%s'", operand);
        operands[n++] = operand;
    }
    if (spec->operand_count != NULL)
        *spec->operand_count = n;
    if (n < count && !spec->operands_optional)
        return report_missing_operand(c, spec, p);
    return -1;
}

static bool parse_value(const cli *c, const opt_row *row, const char *text, void *member)
{
    char option[64];
    snprintf(option, sizeof option, "--%s", row->name);
    if (row->kind == OPT_CHOICE)
        return opt_choice(c, option, text, row->choices, member);
    if (row->kind == OPT_COUNT)
        return opt_count(c, option, text, row->min, row->max, member);
    return opt_size(c, option, text, row->min, member);
}

static bool parse_set(const cli *c, const opt_row *row, char **values, int *member)
{
    char option[64];
    snprintf(option, sizeof option, "--%s", row->name);
    for (size_t i = 0; values != NULL && values[i] != NULL; i++) {
        int index;
        if (!opt_choice(c, option, values[i], row->choices, &index))
            return false;
        *member |= 1 << index;
    }
    return true;
}

static int parse_values(const cli *c, parse *p)
{
    for (size_t i = 0; i < p->count; i++) {
        if (p->rows[i]->kind == OPT_SET && !parse_set(c, p->rows[i], p->sets[i], p->members[i]))
            return FSDPCK_USAGE;
        if (p->texts[i] == NULL)
            continue;
        if (p->rows[i]->kind == OPT_TEXT) {
            *(char **)p->members[i] = p->texts[i];
            p->texts[i] = NULL;
        } else if (!parse_value(c, p->rows[i], p->texts[i], p->members[i])) {
            return FSDPCK_USAGE;
        }
    }
    return -1;
}

/* popt leaks the text of a repeated option, unless the text is taken over each time. */
static int next_options(parse *p, poptContext pc)
{
    int rc;
    while ((rc = poptGetNextOpt(pc)) > 0) {
        free(p->texts[rc - 1]);
        p->texts[rc - 1] = p->given[rc - 1];
        p->given[rc - 1] = NULL;
    }
    return rc;
}

int opt_parse(cli *c, const opt_spec *spec, int argc, const char **argv, const char **operands,
              unsigned count)
{
    parse p = {0};
    if (c->completing != NULL) {
        c->completing->print(c, spec);
        return 0;
    }
    gather_rows(&p, spec);
    opt_find_json(c, argc, argv);
    poptContext pc = poptGetContext(NULL, argc, argv, p.popt, 0);
    if (pc == NULL)
        return opt_usage_error(c, "out of memory for the options");
    const int rc = next_options(&p, pc);
    int code = -1;
    if (rc < -1) {
        code = report_bad_option(c, &p, pc, rc);
    } else if (p.help) {
        print_help(spec);
        code = 0;
    }
    if (code < 0)
        code = parse_operands(c, spec, &p, pc, operands, count);
    if (code < 0 && count > 0 && !spec->operands_optional)
        c->source_path = operands[0];
    if (code < 0)
        code = parse_values(c, &p);
    find_terminals(c);
    for (size_t i = 0; i < p.count; i++) {
        free(p.given[i]);
        free(p.texts[i]);
        for (size_t k = 0; p.sets[i] != NULL && p.sets[i][k] != NULL; k++)
            free(p.sets[i][k]);
        free(p.sets[i]);
    }
    c->popt = pc;
    return code;
}

static void release_row(const opt_row *row, void *member)
{
    char **text = member;
    char ***list = member;
    if (row->kind == OPT_TEXT) {
        free(*text);
        *text = NULL;
    } else if (row->kind == OPT_LIST && *list != NULL) {
        for (size_t i = 0; (*list)[i] != NULL; i++)
            free((*list)[i]);
        free(*list);
        *list = NULL;
    }
}

void opt_release(cli *c, const opt_spec *spec)
{
    for (const opt_group *g = spec->groups; g->title != NULL; g++) {
        for (const opt_row *row = g->rows; row->name != NULL; row++)
            release_row(row, (char *)g->values + row->at);
    }
    if (c->popt != NULL)
        poptFreeContext(c->popt);
    c->popt = NULL;
    c->source_path = NULL;
}

size_t opt_list_count(char **list)
{
    size_t n = 0;
    while (list != NULL && list[n] != NULL)
        n++;
    return n;
}
