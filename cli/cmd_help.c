/* fsdpck help: the overview, the help of a command, the explanation of a finding or an option, or a manual page. */
#include <stdio.h>
#include <string.h>

#include "base/similar.h"
#include "help_options.h"
#include "help_topics.h"
#include "opt.h"
#include "report.h"

static void print_overview(FILE *to)
{
    fputs("Usage: fsdpck COMMAND [OPTION]... SRC [DST]\n\n"
          "Inspects, verifies, consolidates, reshards and diffs sharded PyTorch checkpoints\n"
          "(FSDP, DCP, .pt, safetensors) without Python, torch or a GPU, in bounded memory.\n"
          "It never executes code from a checkpoint.\n"
          "It never replaces missing data with zeros.\n\n"
          "Commands:\n",
          to);
    for (const command *k = commands; k->name != NULL; k++)
        fprintf(to, "  %-12s %s\n", k->name, k->summary);
    fputs("\nManual pages, which fsdpck help TOPIC opens:\n", to);
    for (const help_topic *t = help_topics; t->name != NULL; t++)
        fprintf(to, "  %-12s %s\n", t->name, t->summary);
    fputs("\nfsdpck COMMAND --help shows the options of a command, fsdpck help OPTION one of\n"
          "them in all commands; fsdpck(1) is the manual. Start with: fsdpck inspect SRC\n",
          to);
}

int cmd_help_missing(void)
{
    print_overview(stderr);
    return FSDPCK_USAGE;
}

/* The command or topic that an unknown word may mean: what other programs call so, else the most similar one; "" if none
 * is. */
static const char *similar_command(const char *word)
{
    static const char *const others[][2] = {
        {"info", "inspect"},       {"show", "inspect"}, {"list", "inspect"},
        {"ls", "inspect"},         {"stat", "inspect"}, {"summary", "inspect"},
        {"validate", "verify"},    {"test", "verify"},  {"unshard", "consolidate"},
        {"gather", "consolidate"}, {"hash", "digest"},  {"newest", "latest"},
        {"plan", "layout"},
    };
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (strcmp(word, others[i][0]) == 0)
            return others[i][1];
    const char *best = "";
    size_t least = similar_limit(word);
    for (const command *k = commands; k->name != NULL; k++) {
        const size_t distance = similar_distance(word, k->name);
        best = distance < least ? k->name : best;
        least = distance < least ? distance : least;
    }
    for (const help_topic *t = help_topics; t->name != NULL; t++) {
        const size_t distance = similar_distance(word, t->name);
        best = distance < least ? t->name : best;
        least = distance < least ? distance : least;
    }
    return best;
}

int cmd_help_unknown(cli *c, const char *word, int argc, const char **argv)
{
    char next[128];
    const char *similar = similar_command(word);
    opt_find_json(c, argc, argv);
    snprintf(next, sizeof next,
             "did you mean '%s'? Run fsdpck help for the list of commands and topics", similar);
    return opt_usage_error_next(
        c,
        similar[0] != '\0'
            ? next
            : "run fsdpck help for the list of commands and topics; see fsdpck-findings(7) for "
              "the ids of findings",
        "unknown command '%s'", word);
}

/* Whether `word` is the id of a finding; case is ignored. */
static bool find_finding_kind(const char *word, fsdpck_finding_kind *k)
{
    char id[40];
    size_t n = 0;
    for (; word[n] != '\0' && n + 1 < sizeof id; n++)
        id[n] = (char)(word[n] >= 'a' && word[n] <= 'z' ? word[n] - 'a' + 'A' : word[n]);
    id[n] = '\0';
    return word[n] == '\0' && fsdpck_finding_kind_find(id, k);
}

static int print_finding(const fsdpck_finding_kind *k)
{
    if (k->former_id != NULL)
        printf("%s is a former id of %s\n", k->former_id, k->id);
    printf("%s: %s\n", k->id, k->means);
    printf("  class:    %s\n", k->class_name);
    printf("  verify:   %s%s\n", k->severity, k->fixed ? ", which --set cannot change" : "");
    printf("  next:     %s\n", k->next);
    return 0;
}

static void put_topic(json_writer *w, const help_topic *t)
{
    json_begin_object(w);
    json_member_string(w, "name", t->name);
    json_member_string(w, "summary", t->summary);
    json_member_string(w, "page", t->page);
    json_member_string(w, "section", t->section);
    json_end_object(w);
}

static int print_topic_json(const cli *c, const help_topic *topic)
{
    json_report r;
    json_writer *const w = report_begin(&r, c, 0, "none", NULL);
    json_member_array(w, "topics");
    put_topic(w, topic);
    json_end_array(w);
    return report_end(&r);
}

/* One command, or all of them and the topics if `one` is NULL. */
static int print_commands_json(const cli *c, const command *one)
{
    json_report r;
    json_writer *const w = report_begin(&r, c, 0, "none", NULL);
    json_member_array(w, "commands");
    for (const command *k = commands; k->name != NULL; k++) {
        if (one != NULL && k != one)
            continue;
        json_begin_object(w);
        json_member_string(w, "name", k->name);
        json_member_string(w, "summary", k->summary);
        json_end_object(w);
    }
    json_end_array(w);
    if (one == NULL) {
        json_member_array(w, "topics");
        for (const help_topic *t = help_topics; t->name != NULL; t++)
            put_topic(w, t);
        json_end_array(w);
    }
    return report_end(&r);
}

static int print_finding_json(const cli *c, const fsdpck_finding_kind *k)
{
    json_report r;
    json_writer *const w = report_begin(&r, c, 0, "none", NULL);
    json_member_object(w, "kind");
    json_member_string(w, "id", k->id);
    json_member_string(w, "former_id", k->former_id);
    json_member_string(w, "class", k->class_name);
    json_member_string(w, "severity", k->severity);
    json_member_bool(w, "fixed", k->fixed);
    json_member_string(w, "means", k->means);
    json_member_string(w, "next", k->next);
    json_end_object(w);
    return report_end(&r);
}

/* The first operand, else an option that this command does not have itself; NULL. */
static const char *first_operand(int argc, const char **argv)
{
    static const char *const own[] = {"--json", "--color", "--no-pager", "--help"};
    const char *option = NULL;
    for (int i = 1; i < argc; i++) {
        bool is_own = strncmp(argv[i], "--", 2) != 0;
        if (argv[i][0] != '-')
            return argv[i];
        for (size_t k = 0; k < sizeof own / sizeof *own; k++)
            is_own = is_own || strncmp(argv[i], own[k], strlen(own[k])) == 0;
        option = option == NULL && !is_own ? argv[i] : option;
    }
    return option;
}

/* Ids are found in any case: a word in small letters may be an option of the same name. */
static int print_finding_and_option(cli *c, const char *word, const fsdpck_finding_kind *k)
{
    option_uses uses;
    if (c->json)
        return print_finding_json(c, k);
    if (word[0] >= 'a' && word[0] <= 'z' && help_options_find(c, commands, word, &uses))
        help_options_print(&uses);
    return print_finding(k);
}

/* No command, topic or finding: an option, or unknown. */
static int help_with_option(cli *c, const char *word, int argc, const char **argv)
{
    option_uses uses;
    char next[128];
    if (!help_options_find(c, commands, word, &uses)) {
        const char *similar =
            similar_command(word)[0] != '\0' ? NULL : help_options_similar(c, commands, word);
        if (similar == NULL)
            return cmd_help_unknown(c, word, argc, argv);
        snprintf(next, sizeof next, "did you mean option '%s'? Run fsdpck help %s", similar,
                 similar);
        return opt_usage_error_next(c, next, "unknown command '%s'", word);
    }
    if (c->json)
        return help_options_print_json(c, &uses);
    help_options_print(&uses);
    return 0;
}

int cmd_help(cli *c, int argc, const char **argv)
{
    if (c->completing != NULL) /* has no table of options */
        return 0;
    opt_find_json(c, argc, argv);
    const char *word = first_operand(argc, argv);
    const command *k = word == NULL ? NULL : command_find(word);
    const help_topic *topic = word == NULL || k != NULL ? NULL : help_topic_find(word);
    fsdpck_finding_kind kind = FSDPCK_INIT(fsdpck_finding_kind);
    if (topic != NULL)
        return c->json ? print_topic_json(c, topic) : help_topic_open(c, topic);
    if (word != NULL && k == NULL && !find_finding_kind(word, &kind))
        return help_with_option(c, word, argc, argv);
    if (word != NULL && k == NULL)
        return print_finding_and_option(c, word, &kind);
    if (c->json)
        return print_commands_json(c, k);
    if (k == NULL || k->run == cmd_help) {
        print_overview(stdout);
        return 0;
    }
    c->command = k->name;
    const char *help_args[] = {k->name, "--help", NULL};
    return k->run(c, 2, help_args);
}
