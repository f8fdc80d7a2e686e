#include <math.h>
#include <stdlib.h>

#include "diff_print.h"
#include "progress_print.h"
#include "report.h"

#define AT(member) offsetof(transform_options, member)

static const opt_row comparing_rows[] = {
    {"as", .kind = OPT_LIST, .at = AT(dtype), .value = "DTYPE",
     .help = "A's floats are cast first (bf16, fp16, fp32, fp64, or 'GLOB=fp32'): is B what A "
             "becomes? repeatable"},
    {"atol", .kind = OPT_TEXT, .at = AT(atol), .value = "X",
     .help = "floats are equal where they are no further apart than X + rtol * |b|; default 0"},
    {"rtol", .kind = OPT_TEXT, .at = AT(rtol), .value = "X", .help = "see --atol; default 0"},
    {"objects", .kind = OPT_CHOICE, .at = AT(objects), .value = "WHAT", .choices = "keep|drop",
     .help = "keep: what is not a tensor is compared too; drop: tensors alone; default keep"},
    {"stat", .kind = OPT_FLAG, .at = AT(stat),
     .help = "a table of the tensors whose values differ"},
    {0},
};

/* False after having reported a usage error. */
static bool read_tolerance(const cli *c, const char *option, const char *text, double *x)
{
    char *end = NULL;
    *x = 0;
    if (text == NULL)
        return true;
    *x = strtod(text, &end);
    if (end != text && *end == '\0' && isfinite(*x) && *x >= 0)
        return true;
    opt_usage_error(c, "%s wants a number of at least 0, not '%s'", option, text);
    return false;
}

/* B is read as A is, but for what says what A alone is. */
static fsdpck_status open_b(const cli *c, const transform_request *r, fsdpck_checkpoint **b,
                            fsdpck_error *err)
{
    fsdpck_open_options o = r->open;
    o.format = NULL;
    o.source_ranks = 0;
    o.rank_pattern = NULL;
    return fsdpck_open(c->ctx, r->dst, &o, b, err);
}

static int run(cli *c, const transform_request *r)
{
    fsdpck_diff_options o = {.struct_nbytes = sizeof o, .brief = c->quiet};
    if (!read_tolerance(c, "--atol", r->atol, &o.atol) ||
        !read_tolerance(c, "--rtol", r->rtol, &o.rtol))
        return FSDPCK_USAGE;
    fsdpck_error err;
    fsdpck_error_init(&err);
    fsdpck_checkpoint *b = NULL;
    fsdpck_diff *d = NULL;
    transform_inputs in;
    progress_display *view = progress_start(c, (progress_mode)r->progress);
    fsdpck_status st = transform_inputs_open(c, r, &in, &err);
    o.select = &in.options.select;
    o.work = &in.options.work;
    if (st == FSDPCK_OK)
        st = open_b(c, r, &b, &err);
    if (st == FSDPCK_OK)
        st = fsdpck_diff_new(c->ctx, in.src, b, &o, &d, &err);
    progress_stop(view);
    int code;
    if (st != FSDPCK_OK)
        code = report_failure(c, in.src == NULL ? NULL : &in.info, &err);
    else
        code = c->json ? diff_print_json(c, r, &in.info, d) : diff_print_text(c, r, d);
    fsdpck_diff_free(d);
    fsdpck_close(b);
    transform_inputs_release(&in);
    return code;
}

int cmd_diff(cli *c, int argc, const char **argv)
{
    transform_options w;
    transform_options_init(&w);
    const opt_group groups[] = {
        {"Comparing:", comparing_rows, &w},
        {"Which tensors:", options_selecting, &w},
        {"Names of A:", options_naming, &w},
        {"Reading:", options_reading, &w},
        {"", options_hosts, &w},
        {"", options_keying, &w},
        {"", options_replicas, &w},
        {"Running:", options_running, &w},
        {0},
    };
    const opt_spec spec = {
        .usage = "diff [OPTION]... A B",
        .about = "Compares two checkpoints, in whatever format and however each is cut: names,\n"
                 "dtypes, shapes, every element, and the objects that are not tensors. Where\n"
                 "only one of them has an optimizer or an outer key around its model, the\n"
                 "model parts are compared. Exit status 0: equal, 1: different, 2 and more:\n"
                 "no answer. -q stops at the first difference.",
        .groups = groups,
        .examples = "  fsdpck diff step-1000 step-1000-on-16\n"
                    "  fsdpck diff --as bf16 step-1000 export/\n"
                    "  fsdpck diff --rtol 1e-5 --stat fsdp-run/step-10 ddp-run/step-10\n",
    };
    return transform_command(c, &spec, &w, 2, argc, argv, run);
}
