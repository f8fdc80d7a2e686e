#include "help_options.h"

#include <stdio.h>
#include <string.h>

#include "base/similar.h"
#include "report.h"

/* A walk over the options of all commands: each command gives its options, as it does to complete a line. */
typedef struct option_walk {
    completion giving; /* first: c->completing points to it */
    const char *name;  /* without dashes */
    size_t nbytes;
    const command *now;
    option_uses *uses;
    similar_search similar;
} option_walk;

static option_walk *walk_of(const cli *c)
{
    return (option_walk *)(void *)(uintptr_t)c->completing;
}

static void take_options(const cli *c, const opt_spec *spec)
{
    option_walk *w = walk_of(c);
    for (const opt_group *g = spec->groups; g->title != NULL; g++)
        for (const opt_row *row = g->rows; row->name != NULL; row++) {
            (void)similar_try(&w->similar, row->name);
            if (strlen(row->name) == w->nbytes && memcmp(row->name, w->name, w->nbytes) == 0 &&
                w->uses->count < OPTION_USES_MAX)
                w->uses->list[w->uses->count++] = (struct option_use){row, w->now};
        }
}

static void walk_commands(cli *c, const command *all, option_walk *w)
{
    static const char *nothing[] = {""};
    w->giving = (completion){.words = nothing, .count = 1, .print = take_options};
    c->completing = &w->giving;
    for (w->now = all; w->now->name != NULL; w->now++) {
        const char *only[] = {w->now->name, NULL};
        (void)w->now->run(c, 1, only);
    }
    c->completing = NULL;
}

static option_walk begin_walk(const char *word, option_uses *uses)
{
    const char *name = word + strspn(word, "-");
    *uses = (option_uses){.count = 0};
    return (option_walk){
        .name = name, .nbytes = strcspn(name, "="), .uses = uses, .similar = similar_to(name)};
}

bool help_options_find(cli *c, const command *all, const char *word, option_uses *uses)
{
    option_walk w = begin_walk(word, uses);
    walk_commands(c, all, &w);
    return uses->count > 0;
}

const char *help_options_similar(cli *c, const command *all, const char *word)
{
    option_uses uses;
    option_walk w = begin_walk(word, &uses);
    walk_commands(c, all, &w);
    return w.similar.best;
}

/* ---- output ---- */

static bool is_alike(const opt_row *a, const opt_row *b)
{
    const bool same_value = a->value == b->value || (a->value != NULL && b->value != NULL &&
                                                     strcmp(a->value, b->value) == 0);
    return same_value && strcmp(a->help, b->help) == 0;
}

/* Whether an earlier command has the same option with the same text. */
static bool is_repeated(const option_uses *uses, size_t i)
{
    for (size_t k = 0; k < i; k++)
        if (is_alike(uses->list[k].row, uses->list[i].row))
            return true;
    return false;
}

void help_options_print(const option_uses *uses)
{
    for (size_t i = 0; i < uses->count; i++) {
        const opt_row *row = uses->list[i].row;
        if (is_repeated(uses, i))
            continue;
        printf("--%s%s%s: %s\n", row->name, row->value == NULL ? "" : "=",
               row->value == NULL ? "" : row->value, row->help);
        if (row->choices != NULL) {
            printf("  values:   ");
            for (const char *at = row->choices; *at != '\0'; at++)
                fputs(*at == '|' ? ", " : (const char[]){*at, '\0'}, stdout);
            putchar('\n');
        }
        printf("  commands: ");
        for (size_t k = i, shown = 0; k < uses->count; k++)
            if (is_alike(uses->list[k].row, row))
                printf("%s%s", shown++ > 0 ? ", " : "", uses->list[k].of->name);
        printf("\n  next:     run fsdpck help %s, or man fsdpck%s%s\n", uses->list[i].of->name,
               uses->list[i].of->run == cmd_version ? "" : "-",
               uses->list[i].of->run == cmd_version ? "" : uses->list[i].of->name);
    }
}

int help_options_print_json(const cli *c, const option_uses *uses)
{
    json_report r;
    json_writer *const w = report_begin(&r, c, 0, "none", NULL);
    json_member_array(w, "options");
    for (size_t i = 0; i < uses->count; i++) {
        const opt_row *row = uses->list[i].row;
        if (is_repeated(uses, i))
            continue;
        json_begin_object(w);
        json_member_string(w, "name", row->name);
        if (row->value != NULL)
            json_member_string(w, "value", row->value);
        if (row->choices != NULL)
            json_member_string(w, "choices", row->choices);
        json_member_string(w, "help", row->help);
        json_member_array(w, "commands");
        for (size_t k = i; k < uses->count; k++)
            if (is_alike(uses->list[k].row, row))
                json_put_cstr(w, uses->list[k].of->name);
        json_end_array(w);
        json_end_object(w);
    }
    json_end_array(w);
    return report_end(&r);
}
