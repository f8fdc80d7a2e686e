#include <stdlib.h>

#include "inspect_view.h"
#include "opt.h"
#include "progress.h"
#include "report.h"

typedef struct words {
    char *source_format, *source_ranks;
    int tree, table, objects, json, no_follow, quiet, verbose;
} words;

static int show(cli *c, const words *w, fsdpck_checkpoint *ckpt)
{
    if (c->json)
        return inspect_print_json(c, ckpt, w->table || w->tree, w->objects != 0);
    if (w->table)
        return inspect_print_table(c, ckpt);
    if (w->tree)
        return inspect_print_tree(c, ckpt);
    if (w->objects)
        return inspect_print_objects(c, ckpt);
    return inspect_print_summary(c, ckpt);
}

static int run(cli *c, const words *w, const char *path)
{
    fsdpck_open_options o = FSDPCK_OPEN_OPTIONS_INIT;
    c->json = w->json != 0;
    c->quiet = w->quiet != 0;
    c->verbose = w->verbose;
    o.format = w->source_format;
    o.no_follow = w->no_follow;
    if (w->source_ranks != NULL &&
        !opt_count(c, "--source-ranks", w->source_ranks, 1, 1u << 20, &o.source_ranks))
        return FSDPCK_USAGE;
    fsdpck_error err;
    fsdpck_error_init(&err);
    fsdpck_checkpoint *ckpt = NULL;
    progress_view *view = progress_start(c, PROGRESS_AUTO);
    const fsdpck_status st = fsdpck_open(c->ctx, path, &o, &ckpt, &err);
    progress_stop(view);
    const int code = st == FSDPCK_OK ? show(c, w, ckpt) : report_failure(c, NULL, &err);
    fsdpck_close(ckpt);
    return code;
}

int cmd_inspect(cli *c, int argc, const char **argv)
{
    words w = {0};
    const struct poptOption showing[] = {
        {"tree", '\0', POPT_ARG_NONE, &w.tree, 0, "names as a tree", NULL},
        {"table", '\0', POPT_ARG_NONE, &w.table, 0,
         "every tensor with dtype, shape, size and the layout that its chunks imply", NULL},
        {"objects", '\0', POPT_ARG_NONE, &w.objects, 0,
         "everything that is not a tensor, one a line; shown, never run", NULL},
        {"json", '\0', POPT_ARG_NONE, &w.json, 0,
         "machine-readable; with --table all tensors, with --objects all objects", NULL},
        POPT_TABLEEND,
    };
    const struct poptOption reading[] = {
        {"source-format", '\0', POPT_ARG_STRING, &w.source_format, 0,
         "read SRC as this; default: found by content", "F"},
        {"source-ranks", '\0', POPT_ARG_STRING, &w.source_ranks, 0,
         "ranks that must have written SRC", "N"},
        {"no-follow", '\0', POPT_ARG_NONE, &w.no_follow, 0, "links inside SRC are errors", NULL},
        {"verbose", 'v', POPT_ARG_NONE, &w.verbose, 0, "say more", NULL},
        {"quiet", 'q', POPT_ARG_NONE, &w.quiet, 0, "no notes and no progress", NULL},
        POPT_TABLEEND,
    };
    const opt_group groups[] = {{"What is shown:", showing}, {"Reading:", reading}, {NULL, NULL}};
    const opt_spec spec = {
        .usage = "inspect [OPTION]... SRC",
        .about = "Shows what checkpoint SRC holds, from its metadata alone: format, ranks,\n"
                 "tensors, dtypes, parts, balance, and a likely next command. SRC is a\n"
                 "folder or a file.",
        .groups = groups,
        .examples = "  fsdpck inspect step-1000\n"
                    "  fsdpck inspect --table step-1000 | grep norm\n"
                    "  fsdpck inspect --json step-1000\n",
    };
    const char *operands[1];
    unsigned count;
    int code = opt_parse(c, &spec, argc, argv, operands, 1, 1, &count);
    if (code < 0)
        code = run(c, &w, operands[0]);
    opt_release(c, &spec);
    return code;
}
