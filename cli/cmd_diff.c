/* fsdpck diff: opens A and B with the same reading options and compares them. */
#include <math.h>
#include <stdlib.h>

#include "diff_print.h"
#include "pager.h"
#include "progress_print.h"
#include "report.h"
#include "warnings.h"

#define AT(member) offsetof(command_options, member)

static const opt_row comparing_rows[] = {
    {"as", .kind = OPT_LIST, .at = AT(dtype), .value = "DTYPE", .words = OPT_WORDS_FLOATS,
     .help = "cast A's floats before the comparison: bf16, fp16, fp32, fp64, or 'GLOB=fp32'; "
             "repeatable"},
    {"atol", .kind = OPT_TEXT, .at = AT(atol), .value = "X",
     .help = "treat floats as equal if |a - b| <= X + rtol * |b|; default 0"},
    {"rtol", .kind = OPT_TEXT, .at = AT(rtol), .value = "X", .help = "see --atol; default 0"},
    {"objects", .kind = OPT_CHOICE, .at = AT(objects), .value = "WHAT", .choices = "keep|drop",
     .help = "keep: compare objects too; drop: compare tensors only; default keep"},
    {"stat", .kind = OPT_FLAG, .at = AT(stat),
     .help = "print a table of the tensors whose values differ"},
    {"html", .kind = OPT_TEXT, .at = AT(html), .value = "FILE", .words = OPT_WORDS_FILES,
     .help = "write the report to FILE as a web page instead; replaces only such a page"},
    {0},
};

/* Returns false after it has reported a usage error. */
static bool read_tolerance(const cli *c, const char *option, const char *text, double *x)
{
    char *end = NULL;
    *x = 0;
    if (text == NULL)
        return true;
    *x = strtod(text, &end);
    if (end != text && *end == '\0' && isfinite(*x) && *x >= 0)
        return true;
    opt_usage_error(c, "%s requires a number of at least 0, not '%s'", option, text);
    return false;
}

/* B is read with A's options, except for those that describe the files of A. */
static fsdpck_status open_b(const cli *c, const command_request *r, fsdpck_checkpoint **b,
                            fsdpck_error *err)
{
    fsdpck_open_options o = r->open;
    o.format = NULL;
    o.source_ranks = 0;
    o.rank_pattern = NULL;
    return fsdpck_open(c->ctx, r->dst, &o, b, err);
}

static int run(cli *c, const command_request *r)
{
    fsdpck_diff_options o = {
        .struct_nbytes = sizeof o, .brief = c->quiet, .norms = c->json || r->given->stat};
    if (!read_tolerance(c, "--atol", r->given->atol, &o.atol) ||
        !read_tolerance(c, "--rtol", r->given->rtol, &o.rtol))
        return FSDPCK_USAGE;
    fsdpck_error err = FSDPCK_ERROR_INIT;
    fsdpck_checkpoint *b = NULL;
    fsdpck_diff *d = NULL;
    convert_inputs in;
    progress_display *view = progress_start(c, (progress_mode)r->given->progress);
    c->warnings_of_a = SIZE_MAX; /* until A is open */
    fsdpck_status st = convert_inputs_open(c, r, &in, &err);
    c->warnings_of_a = warnings_count(c);
    c->warnings_of_b = SIZE_MAX;
    o.select = &in.options.select;
    o.work = &in.options.work;
    if (st == FSDPCK_OK)
        st = open_b(c, r, &b, &err);
    c->warnings_of_b = warnings_count(c);
    if (st == FSDPCK_OK)
        st = fsdpck_diff_new(c->ctx, in.src, b, &o, &d, &err);
    progress_stop(view);
    int code;
    if (st == FSDPCK_OK)
        pager_start(c);
    if (in.src != NULL && c->json)
        report_set_step(in.src, &in.info);
    const diff_sides sides = {in.src, b, in.src == NULL ? NULL : &in.info};
    if (st != FSDPCK_OK)
        code = diff_report_failure(c, r, &sides, &err);
    else
        code = c->json ? diff_print_json(c, r, &sides, d) : diff_print_text(c, r, d);
    fsdpck_diff_free(d);
    fsdpck_close(b);
    convert_inputs_release(&in);
    return code;
}

int cmd_diff(cli *c, int argc, const char **argv)
{
    command_options w;
    command_options_init(&w);
    const opt_group groups[] = {
        {"Comparing:", comparing_rows, &w},
        {"Selection:", options_part_diff, &w},
        {"", options_selecting, &w},
        {"Names of A:", options_clean_part, &w},
        {"", options_naming, &w},
        {"Reading:", options_reading, &w},
        {"", options_hosts, &w},
        {"", options_keying, &w},
        {"", options_replicas, &w},
        {"Running:", options_running, &w},
        {"", options_detail_diff, &w},
        {"", options_terminal, c},
        {0},
    };
    const opt_spec spec = {
        .usage = "diff [OPTION]... A B",
        .about = "Compares two checkpoints of any format and sharding: names, dtypes, shapes,\n"
                 "every element, and the objects that are not tensors. If only one of them\n"
                 "has an optimizer or an outer key around its model, only the model parts are\n"
                 "compared. Exit status 0: equal; 1: different; 2 or higher: no result. -q\n"
                 "stops at the first difference.",
        .groups = groups,
        .examples = "  fsdpck diff step-1000 step-1000-on-16\n"
                    "  fsdpck diff --as bf16 step-1000 export/\n"
                    "  fsdpck diff --rtol 1e-5 --stat fsdp-run/step-10 ddp-run/step-10\n",
    };
    return command_run(c, &spec, &w, 2, argc, argv, run);
}
