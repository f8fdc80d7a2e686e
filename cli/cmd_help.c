#include <stdio.h>
#include <string.h>

#include "cmd.h"

static void print_overview(void)
{
    puts("Usage: fsdpck COMMAND [OPTION]... SRC [DST]\n\n"
         "Reads sharded PyTorch checkpoints (FSDP, DCP, .pt, safetensors) without Python, torch or "
         "a\n"
         "GPU, and never executes what is in them. Merges their shards into whole tensors, in\n"
         "bounded memory, and refuses rather than invents data.\n\nCommands:");
    for (const command *k = commands; k->name != NULL; k++)
        printf("  %-12s %s\n", k->name, k->summary);
    puts("\nfsdpck COMMAND --help shows the options of one; fsdpck(1) is the manual.\n"
         "Start with: fsdpck inspect SRC");
}

int cmd_help(cli *c, int argc, const char **argv)
{
    if (argc < 2 || argv[1][0] == '-') {
        print_overview();
        return 0;
    }
    const command *k = command_find(argv[1]);
    if (k == NULL) {
        fprintf(
            stderr,
            "fsdpck help: there is no command '%s'\n  next:     fsdpck help lists the commands\n",
            argv[1]);
        return FSDPCK_USAGE;
    }
    if (k->run == cmd_help) {
        print_overview();
        return 0;
    }
    c->command = k->name;
    const char *words[] = {k->name, "--help", NULL};
    return k->run(c, 2, words);
}
