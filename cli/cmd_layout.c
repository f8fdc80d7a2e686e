/* fsdpck layout: the layout of a resharded checkpoint, or of a model description. */
#include "convert_run.h"
#include "layout_description.h"
#include "pager.h"
#include "progress_print.h"
#include "report.h"

#define AT(member) offsetof(command_options, member)

static const opt_row showing_rows[] = {
    {"rank", .kind = OPT_TEXT, .at = AT(show_rank), .value = "R",
     .help = "print rank R's shard of each tensor: shape, offset, padding; 'all': every rank"},
    {"format", .kind = OPT_TEXT, .at = AT(format), .value = "F",
     .choices = "dcp|pt-ranks|dcp-safetensors|fsdp1",
     .help = "target format of reshard; it can change how tensors are sharded"},
    {"json", .kind = OPT_FLAG, .at = AT(json), .help = "report as JSON"},
    {"html", .kind = OPT_TEXT, .at = AT(html), .value = "FILE", .words = OPT_WORDS_FILES,
     .help = "write the report to FILE as a web page instead; replaces only such a page"},
    {0},
};

static const opt_row saying_rows[] = {
    {"verbose", 'v', OPT_FLAG, .at = AT(verbose), .help = "print more details"},
    {"quiet", 'q', OPT_FLAG, .at = AT(quiet), .help = "print neither notes nor progress"},
    {0},
};

static int show(cli *c, const command_request *r, const convert_inputs *in, fsdpck_layout *l)
{
    layout_scope scope;
    fsdpck_layout_info k = FSDPCK_INIT(fsdpck_layout_info);
    fsdpck_layout_get_info(l, &k);
    if (!layout_choose_scope(c, r->given->show_rank, k.world_size, &scope))
        return FSDPCK_USAGE;
    pager_start(c);
    return c->json ? layout_print_json(c, r, in, l, &scope)
                   : layout_print_text(c, r, &in->info, l, &scope);
}

static fsdpck_status make_layout(fsdpck_context *ctx, fsdpck_checkpoint *src,
                                 const job_options *job, fsdpck_layout **out, fsdpck_error *err)
{
    const fsdpck_layout_options options = {.struct_nbytes = sizeof options,
                                           .select = &job->select,
                                           .sharding = &job->sharding,
                                           .output = &job->output};
    return fsdpck_layout_new(ctx, src, &options, out, err);
}

static int run(cli *c, const command_request *r)
{
    if (r->open.format == NULL && fsdpck_model_probe(r->src))
        return layout_description_run(c, r);
    if (command_ranks_missing(c, r))
        return FSDPCK_USAGE;
    fsdpck_error err = FSDPCK_ERROR_INIT;
    fsdpck_layout *l = NULL;
    convert_inputs in;
    progress_display *view = progress_start(c, PROGRESS_AUTO);
    fsdpck_status st = convert_inputs_open(c, r, &in, &err);
    if (st == FSDPCK_OK)
        st = make_layout(c->ctx, in.src, &in.options, &l, &err);
    progress_stop(view);
    const int code = st == FSDPCK_OK ? show(c, r, &in, l)
                                     : report_failure(c, in.src == NULL ? NULL : &in.info, &err);
    fsdpck_layout_free(l);
    convert_inputs_release(&in);
    return code;
}

int cmd_layout(cli *c, int argc, const char **argv)
{
    command_options w;
    command_options_init(&w);
    const opt_group groups[] = {
        {"Sharding:", options_sharding, &w},
        {"Selection:", options_part_output, &w},
        {"", options_selecting, &w},
        {"Output:", showing_rows, &w},
        {"Reading:", options_reading, &w},
        {"", options_keying, &w},
        {"", saying_rows, &w},
        {"", options_terminal, c},
        {0},
    };
    const opt_spec spec = {
        .usage = "layout [OPTION]... SRC|MODEL",
        .about = "Shows the tensors and bytes that each rank would have if SRC were resharded for\n"
                 "a different number of ranks or mesh: placements, sizes, offsets, padding,\n"
                 "balance and the bytes a GPU needs for training. No tensor data is read, and\n"
                 "nothing is written.\n\n"
                 "MODEL, a model description (JSON, fsdpck-model(5)), needs no checkpoint. The\n"
                 "report shows its FSDP units, their flat parameters or shards, the gathered\n"
                 "bytes and the padding. MODEL takes only --world-size, --mesh, --rank and\n"
                 "--json.",
        .groups = groups,
        .examples =
            "  fsdpck layout step-1000 --world-size 16\n"
            "  fsdpck layout step-1000 --mesh dp_replicate=2,dp_shard=8 --part model\n"
            "  fsdpck layout step-1000 --world-size 16 --rank 3 --keys '*norm*'\n"
            "  fsdpck layout model.json --world-size 64\n"
            "  fsdpck layout model.json --mesh dp_replicate=2,dp_shard=32 --rank 0 --json\n",
    };
    return command_run(c, &spec, &w, 1, argc, argv, run);
}
