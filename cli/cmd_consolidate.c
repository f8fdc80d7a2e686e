/* fsdpck consolidate: shards to full tensors; the options of its output formats. */
#include "convert_run.h"

static const opt_row format_rows[] = {
    {"format", .kind = OPT_TEXT, .at = offsetof(command_options, format), .value = "F",
     .choices = "safetensors|hf|pt|dcp|hdf5",
     .help = "safetensors, hf, pt, dcp or hdf5; default: by the suffix of DST, else hf (a folder)"},
    {0},
};

static const opt_row like_rows[] = {
    {"like", .kind = OPT_TEXT, .at = offsetof(command_options, base), .value = "BASE",
     .words = OPT_WORDS_FILES,
     .help = "hf: tensors, dtypes and files as in Hugging Face folder BASE; chooses --map. "
             "--part adapter: compare shapes with BASE"},
    {0},
};

static const opt_row compress_rows[] = {
    {"compress", .kind = OPT_CHOICE, .at = offsetof(command_options, compress),
     .value = "gzip[:LEVEL]",
     .choices = "gzip|gzip:1|gzip:2|gzip:3|gzip:4|gzip:5|gzip:6|gzip:7|gzip:8|gzip:9",
     .help =
         "hdf5: shuffle and deflate tensors of 16 KiB and more, as h5py does; LEVEL 1 (fast) to "
         "9 (small), default 4"},
    {0},
};

static fsdpck_status call_consolidate(fsdpck_context *ctx, fsdpck_checkpoint *src, const char *dst,
                                      const job_options *job, fsdpck_report **report,
                                      fsdpck_error *err)
{
    const fsdpck_consolidate_options options = {.struct_nbytes = sizeof options,
                                                .select = &job->select,
                                                .output = &job->output,
                                                .work = &job->work,
                                                .dry_run = &job->dry_run,
                                                .like = job->base};
    return fsdpck_consolidate(ctx, src, dst, &options, report, err);
}

static int run(cli *c, const command_request *r)
{
    return convert_run(c, r, call_consolidate);
}

int cmd_consolidate(cli *c, int argc, const char **argv)
{
    command_options w;
    command_options_init(&w);
    const opt_group groups[] = {
        {"Selection:", options_part_consolidate, &w},
        {"", options_selecting, &w},
        {"", options_objects, &w},
        {"Names and dtypes:", options_clean_output, &w},
        {"", options_naming, &w},
        {"", options_mapping, &w},
        {"", options_casting, &w},
        {"", options_dequantize, &w},
        {"Adapters:", options_merging, &w},
        {"", options_adapter, &w},
        {"", options_adapter_config, &w},
        {"Reading:", options_reading, &w},
        {"", options_hosts, &w},
        {"", options_keying, &w},
        {"", options_replicas, &w},
        {"Writing:", format_rows, &w},
        {"", options_max_shard, &w},
        {"", like_rows, &w},
        {"", options_hdf5_groups, &w},
        {"", compress_rows, &w},
        {"", options_writing, &w},
        {"", options_resume, &w},
        {"", options_group, &w},
        {"Running:", options_running, &w},
        {"", options_detail_plan, &w},
        {"", options_terminal, c},
        {0},
    };
    const opt_spec spec = {
        .usage = "consolidate [OPTION]... SRC DST",
        .about = "Consolidates the shards of checkpoint SRC into full tensors at DST. DST\n"
                 "appears only when it is complete and safe on the storage. By default,\n"
                 "safetensors and hf get the model part under the model's own names; .pt and\n"
                 "dcp get everything, nested as in SRC; hdf5 gets everything under flat keys.",
        .groups = groups,
        .examples =
            "  fsdpck consolidate step-1000 model.safetensors\n"
            "  fsdpck consolidate step-1000 out/ --dtype bf16 --max-shard-size 5GB\n"
            "  fsdpck consolidate step-1000 hf/ --map torchtitan-llama3 --config config.json\n"
            "  fsdpck consolidate step-1000 hf/ --like Llama-3.1-8B\n"
            "  fsdpck consolidate step-1000 adapter/ --part adapter --lora-alpha 32\n"
            "  fsdpck consolidate step-1000 everything.pt\n"
            "  fsdpck consolidate step-1000 archive.h5\n",
    };
    return command_run(c, &spec, &w, 2, argc, argv, run);
}
