/* fsdpck inspect: summary, tree, table, objects or JSON, from the metadata only. */
#include <stdio.h>

#include "command_options.h"
#include "html_option.h"
#include "inspect_print.h"
#include "pager.h"
#include "progress_print.h"
#include "report.h"

typedef struct inspect_options {
    command_options reading;
    int tree, table, objects, json, quiet, verbose;
    int partials, clean_partials;
    const char *of;
    int sort; /* a name_order; -1: not given */
    char *html;
} inspect_options;

static const opt_row showing_rows[] = {
    {"tree", .kind = OPT_FLAG, .at = offsetof(inspect_options, tree),
     .help =
         "show the modules of the names with their tensors, bytes and dtypes; layers with equal "
         "contents are one line"},
    {"table", .kind = OPT_FLAG, .at = offsetof(inspect_options, table),
     .help = "list every tensor with dtype, shape, size and the layout that its chunks imply"},
    {"objects", .kind = OPT_FLAG, .at = offsetof(inspect_options, objects),
     .help = "list everything that is not a tensor, one per line; nothing is executed"},
    {"sort", .kind = OPT_CHOICE, .at = offsetof(inspect_options, sort), .value = "KEY",
     .choices = "name|size|order",
     .help = "order of --tree and --table: name, size (largest first) or order (as in SRC); "
             "default: name for --tree, order for --table"},
    {"partials", .kind = OPT_FLAG, .at = offsetof(inspect_options, partials),
     .help =
         "list unfinished outputs that killed runs left in folder SRC, instead of a checkpoint"},
    {"clean-partials", .kind = OPT_FLAG, .at = offsetof(inspect_options, clean_partials),
     .help = "with --partials: remove those that no process uses"},
    {"of", .kind = OPT_TEXT, .at = offsetof(inspect_options, of), .value = "NAME",
     .help = "with --partials: only those of the output NAME in folder SRC"},
    {"json", .kind = OPT_FLAG, .at = offsetof(inspect_options, json),
     .help = "report as JSON; with --table all tensors, with --objects all objects"},
    {"html", .kind = OPT_TEXT, .at = offsetof(inspect_options, html), .value = "FILE",
     .words = OPT_WORDS_FILES,
     .help = "write the report to FILE as a web page instead; replaces only such a page"},
    {0},
};

static const opt_row saying_rows[] = {
    {"verbose", 'v', OPT_FLAG, .at = offsetof(inspect_options, verbose),
     .help = "print more details"},
    {"quiet", 'q', OPT_FLAG, .at = offsetof(inspect_options, quiet),
     .help = "print neither notes nor progress"},
    {0},
};

/* The members of name_order are in the order of the choices of --sort. */
static name_order order_of(const inspect_options *w, name_order otherwise)
{
    return w->sort < 0 ? otherwise : (name_order)w->sort;
}

static int show(cli *c, const inspect_options *w, fsdpck_checkpoint *ckpt,
                const fsdpck_error *damage)
{
    if (c->json)
        return inspect_print_json(c, ckpt, damage, &w->reading,
                                  w->table || w->tree || w->html != NULL, w->objects != 0,
                                  order_of(w, NAME_ORDER_STORED));
    if (w->table)
        return inspect_print_table(c, ckpt, order_of(w, NAME_ORDER_STORED));
    if (w->tree)
        return inspect_print_tree(c, ckpt, order_of(w, NAME_ORDER_NAME));
    if (w->objects)
        return inspect_print_objects(c, ckpt);
    return inspect_print_summary(c, ckpt, damage, &w->reading);
}

/* The contents of a damaged checkpoint as far as they are described, and the failure. */
static int show_damaged(cli *c, const inspect_options *w, fsdpck_checkpoint *ckpt,
                        const fsdpck_error *err)
{
    const int code = show(c, w, ckpt, err);
    if (c->json)
        return code;
    fflush(stdout);
    const int failed = report_failure(c, NULL, err);
    return code != 0 ? code : failed;
}

static int run(cli *c, const inspect_options *w, const char *path)
{
    fsdpck_open_options o;
    c->json = w->json != 0;
    c->quiet = w->quiet != 0;
    c->verbose = w->verbose;
    if (w->sort >= 0 && !w->tree && !w->table && w->html == NULL)
        return opt_usage_error_next(c, "give --tree or --table",
                                    "--sort applies only to --tree and --table");
    if (w->tree && w->table)
        return opt_usage_error_next(c, "give one of them",
                                    "--tree and --table contradict each other");
    if (w->objects && (w->tree || w->table) && !c->json && w->html == NULL)
        return opt_usage_error_next(c, "give one of them, or --json",
                                    "--objects and --%s contradict each other",
                                    w->tree ? "tree" : "table");
    if (w->clean_partials && !w->partials)
        return opt_usage_error(c, "--clean-partials requires --partials");
    if (w->of != NULL && !w->partials)
        return opt_usage_error(c, "--of requires --partials");
    if (w->partials && (w->tree || w->table || w->objects || w->html != NULL))
        return opt_usage_error(c, "--partials lists no checkpoint: it takes only --json, --of and "
                                  "--clean-partials");
    if (w->partials)
        return inspect_print_partials(c, path, w->of, w->clean_partials != 0);
    const int unusable = html_option_start(c, w->html, &path, 1);
    if (unusable >= 0)
        return unusable;
    command_open_options(&w->reading, &o);
    fsdpck_error err = FSDPCK_ERROR_INIT;
    fsdpck_checkpoint *ckpt = NULL;
    progress_display *view = progress_start(c, PROGRESS_AUTO);
    o.damaged = 1;
    const fsdpck_status st = fsdpck_open(c->ctx, path, &o, &ckpt, &err);
    progress_stop(view);
    if (st == FSDPCK_OK)
        pager_start(c);
    const int code = st == FSDPCK_OK ? show(c, w, ckpt, NULL)
                     : ckpt != NULL  ? show_damaged(c, w, ckpt, &err)
                                     : report_failure(c, NULL, &err);
    fsdpck_close(ckpt);
    return code;
}

int cmd_inspect(cli *c, int argc, const char **argv)
{
    inspect_options w = {.sort = -1};
    command_options_init(&w.reading);
    const opt_group groups[] = {
        {"Output:", showing_rows, &w},    {"Reading:", options_reading, &w.reading},
        {"", options_keying, &w.reading}, {"", saying_rows, &w},
        {"", options_terminal, c},        {0},
    };
    const opt_spec spec = {
        .usage = "inspect [OPTION]... SRC",
        .about = "Shows the contents of checkpoint SRC, a folder or a file: format, ranks,\n"
                 "mesh, tensors, dtypes, parts, balance, and likely next commands. Reads the\n"
                 "metadata only.",
        .groups = groups,
        .examples = "  fsdpck inspect step-1000\n"
                    "  fsdpck inspect --tree --sort size step-1000\n"
                    "  fsdpck inspect --table step-1000 | grep norm\n"
                    "  fsdpck inspect --json step-1000\n"
                    "  fsdpck inspect --partials runs\n",
    };
    const char *operands[1];
    int code = opt_parse(c, &spec, argc, argv, operands, 1);
    if (code < 0)
        code = run(c, &w, operands[0]);
    opt_release(c, &spec);
    return code;
}
