#include <stdio.h>
#include <string.h>

#include "opt.h"

static void print_overview(FILE *to)
{
    fputs("Usage: fsdpck COMMAND [OPTION]... SRC [DST]\n\n"
          "Reads sharded PyTorch checkpoints (FSDP, DCP, .pt, safetensors) without Python,\n"
          "torch or a GPU, and never executes what is in them. Merges their shards into\n"
          "whole tensors, or cuts them anew for other ranks, in bounded memory, and\n"
          "refuses rather than invents data.\n\n"
          "Commands:\n",
          to);
    for (const command *k = commands; k->name != NULL; k++)
        fprintf(to, "  %-12s %s\n", k->name, k->summary);
    fputs("\nfsdpck COMMAND --help shows the options of one; fsdpck(1) is the manual.\n"
          "Start with: fsdpck inspect SRC\n",
          to);
}

int cmd_help_missing(void)
{
    print_overview(stderr);
    return FSDPCK_USAGE;
}

int cmd_help_unknown(cli *c, const char *word, int argc, const char **argv)
{
    opt_find_json(c, argc, argv);
    return opt_usage_error_next(c, "fsdpck help lists the commands", "there is no command '%s'",
                                word);
}

/* Whether `word` is the id of a finding; what it means is then printed. */
static bool print_finding(const char *word)
{
    fsdpck_finding_kind k;
    if (!fsdpck_finding_kind_find(word, &k))
        return false;
    printf("%s: %s\n", k.id, k.means);
    printf("  class:    %s\n", k.class_name);
    printf("  verify:   %s%s\n", k.severity, k.fixed ? ", which cannot be set otherwise" : "");
    printf("  next:     %s\n", k.next);
    return true;
}

int cmd_help(cli *c, int argc, const char **argv)
{
    if (argc < 2 || argv[1][0] == '-') {
        print_overview(stdout);
        return 0;
    }
    const command *k = command_find(argv[1]);
    if (k == NULL && print_finding(argv[1]))
        return 0;
    if (k == NULL)
        return cmd_help_unknown(c, argv[1], argc, argv);
    if (k->run == cmd_help) {
        print_overview(stdout);
        return 0;
    }
    c->command = k->name;
    const char *words[] = {k->name, "--help", NULL};
    return k->run(c, 2, words);
}
