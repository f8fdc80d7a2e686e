#include "complete.h"

#include <stdio.h>
#include <string.h>

#include "help_topics.h"

/* Checkpoints with more tensors have no names among the candidates. */
#define TENSORS_MAX 10000u

#define DESCRIPTION_NBYTES 60u

bool complete_is_command(const char *word)
{
    return strcmp(word, "__complete") == 0;
}

/* ---- printing ---- */

/* What the candidates must begin with; `before` is the part of the word before its value. */
typedef struct prefix {
    const char *before;
    size_t before_nbytes;
    const char *begin;
} prefix;

/* The first clause, or the words of it that fit on a line. */
static size_t short_nbytes(const char *description)
{
    size_t n = strcspn(description, ";:\n");
    if (n <= DESCRIPTION_NBYTES)
        return n;
    for (n = DESCRIPTION_NBYTES; n > 0 && description[n] != ' ';)
        n--;
    return n;
}

static void put(const prefix *p, const char *candidate, size_t nbytes, const char *description)
{
    const size_t n = strlen(p->begin);
    if (nbytes < n || memcmp(candidate, p->begin, n) != 0 ||
        memchr(candidate, '\n', nbytes) != NULL || memchr(candidate, '\t', nbytes) != NULL)
        return;
    printf("%.*s%.*s\t%.*s\n", (int)p->before_nbytes, p->before, (int)nbytes, candidate,
           (int)short_nbytes(description), description);
}

static void put_files(void)
{
    puts(":files");
}

/* ---- values ---- */

static void put_choices(const prefix *p, const char *choices)
{
    for (const char *at = choices; *at != '\0';) {
        const size_t n = strcspn(at, "|");
        put(p, at, n, "");
        at += n + (at[n] == '|');
    }
}

static void put_readers(const prefix *p)
{
    const char *name, *description;
    for (size_t i = 0; (name = fsdpck_builtin("reader", i, &description)) != NULL; i++)
        put(p, name, strlen(name), description);
}

static void put_maps(const prefix *p)
{
    const char *name, *text;
    for (size_t i = 0; (name = fsdpck_builtin_map(i, &text)) != NULL; i++) {
        char title[100];
        const size_t skip = strspn(text, "# ");
        snprintf(title, sizeof title, "%.*s", (int)strcspn(text + skip, "\n"), text + skip);
        put(p, name, strlen(name), title);
    }
}

static void put_findings(const prefix *p)
{
    fsdpck_finding_kind kind = FSDPCK_INIT(fsdpck_finding_kind);
    for (size_t i = 0; fsdpck_finding_kind_at(i, &kind); i++)
        put(p, kind.id, strlen(kind.id), kind.means);
}

static void put_commands(const prefix *p)
{
    for (const command *k = commands; k->name != NULL; k++)
        put(p, k->name, strlen(k->name), k->summary);
}

static void put_topics(const prefix *p)
{
    for (const help_topic *t = help_topics; t->name != NULL; t++)
        put(p, t->name, strlen(t->name), t->summary);
}

/* Names of the checkpoint on the command line, if it can be opened without options. */
static void put_tensors(const cli *c, const prefix *p)
{
    fsdpck_checkpoint *ckpt = NULL;
    for (size_t i = 1; i + 1 < c->completing->count && ckpt == NULL; i++) {
        const char *word = c->completing->words[i];
        if (word[0] != '-' && fsdpck_open(c->ctx, word, NULL, &ckpt, NULL) != FSDPCK_OK)
            ckpt = NULL;
    }
    if (ckpt == NULL)
        return;
    fsdpck_info info = FSDPCK_INIT(fsdpck_info);
    fsdpck_get_info(ckpt, &info);
    for (uint64_t i = 0; info.tensors <= TENSORS_MAX && i < info.tensors; i++) {
        fsdpck_tensor t = FSDPCK_INIT(fsdpck_tensor);
        fsdpck_get_tensor(ckpt, i, &t);
        put(p, t.name, t.name_nbytes, t.dtype);
    }
    fsdpck_close(ckpt);
}

static void put_words(const cli *c, const prefix *p, opt_words words)
{
    switch (words) {
    case OPT_WORDS_NONE:
        break;
    case OPT_WORDS_FILES:
        put_files();
        break;
    case OPT_WORDS_READERS:
        put_readers(p);
        break;
    case OPT_WORDS_MAPS:
        put_maps(p);
        put_files();
        break;
    case OPT_WORDS_FINDINGS:
        put_findings(p);
        break;
    case OPT_WORDS_TENSORS:
        put_tensors(c, p);
        break;
    case OPT_WORDS_FLOATS:
        put_choices(p, "bf16|fp16|fp32|fp64");
        break;
    }
}

static void put_values(const cli *c, const prefix *p, const opt_row *row)
{
    if (row->choices != NULL)
        put_choices(p, row->choices);
    else
        put_words(c, p, row->words);
}

/* ---- options ---- */

static const opt_row *find_row(const opt_spec *spec, const char *name, size_t nbytes)
{
    for (const opt_group *g = spec->groups; g->title != NULL; g++)
        for (const opt_row *row = g->rows; row->name != NULL; row++)
            if (strlen(row->name) == nbytes && memcmp(row->name, name, nbytes) == 0)
                return row;
    return NULL;
}

static void put_options(const prefix *p, const opt_spec *spec)
{
    char option[64];
    for (const opt_group *g = spec->groups; g->title != NULL; g++)
        for (const opt_row *row = g->rows; row->name != NULL; row++) {
            const int n = snprintf(option, sizeof option, "--%s%s", row->name,
                                   row->kind == OPT_FLAG ? "" : "=");
            put(p, option, (size_t)n, row->help);
        }
    put(p, "--help", strlen("--help"), "show the options");
}

/* The option whose value the last word is, because it follows the option; NULL: none. */
static const opt_row *option_before(const completion *k, const opt_spec *spec)
{
    const char *word = k->count > 2 ? k->words[k->count - 2] : "";
    if (strncmp(word, "--", 2) != 0 || strchr(word, '=') != NULL)
        return NULL;
    const opt_row *row = find_row(spec, word + 2, strlen(word + 2));
    return row != NULL && row->kind != OPT_FLAG ? row : NULL;
}

static bool ends_options(const completion *k)
{
    for (size_t i = 1; i + 1 < k->count; i++)
        if (strcmp(k->words[i], "--") == 0)
            return true;
    return false;
}

static void print_candidates(const cli *c, const opt_spec *spec)
{
    const completion *k = c->completing;
    const char *word = k->words[k->count - 1];
    const char *equals = strchr(word, '=');
    const prefix whole = {"", 0, word};
    const bool is_option = word[0] == '-' && !ends_options(k);
    const opt_row *before = ends_options(k) ? NULL : option_before(k, spec);
    if (before != NULL) {
        put_values(c, &whole, before);
    } else if (is_option && equals != NULL) {
        const opt_row *row = find_row(spec, word + 2, (size_t)(equals - word) - 2);
        const prefix value = {word, (size_t)(equals + 1 - word), equals + 1};
        if (strncmp(word, "--", 2) == 0 && row != NULL)
            put_values(c, &value, row);
    } else if (is_option) {
        put_options(&whole, spec);
    } else if (spec->operand_words == OPT_WORDS_MAPS) {
        put_maps(&whole);
    } else {
        put_files();
    }
}

int complete_run(cli *c, const command *asked, bool is_help, int argc, const char **argv)
{
    const completion k = {
        .words = argv + 1, .count = argc > 0 ? (size_t)argc - 1 : 0, .print = print_candidates};
    if (k.count == 0)
        return 0;
    const prefix last = {"", 0, k.words[k.count - 1]};
    if (k.count == 1) {
        put_commands(&last);
    } else if (is_help) {
        put_commands(&last);
        put_topics(&last);
        put_findings(&last);
    } else if (asked != NULL) {
        const char *only[] = {asked->name, NULL};
        c->completing = &k;
        (void)asked->run(c, 1, only);
        c->completing = NULL;
    }
    return 0;
}
