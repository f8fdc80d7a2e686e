/* fsdpck reshard: shards to other shards. Here are the options of the sharded formats; those of the sharding, which
 * fsdpck layout has too, are options_sharding in option_rows.c. */
#include "convert_run.h"

#define AT(member) offsetof(command_options, member)

static const opt_row format_rows[] = {
    {"format", .kind = OPT_TEXT, .at = AT(format), .value = "F",
     .choices = "dcp|pt-ranks|dcp-safetensors|fsdp1",
     .help = "dcp, pt-ranks, dcp-safetensors or fsdp1 (FSDP1's LOCAL state, needs --model); "
             "default: as in SRC, or dcp if SRC is not sharded"},
    {0},
};

static const opt_row pattern_rows[] = {
    {"rank-pattern", .kind = OPT_TEXT, .at = AT(rank_pattern), .value = "P",
     .help = "pt-ranks, fsdp1: names of the files; default: as in SRC, else "
             "model_world_size_{W}_rank_{r}.pt"},
    {0},
};

static const opt_row torch_rows[] = {
    {"torch", .kind = OPT_CHOICE, .at = AT(torch), .value = "V",
     .choices = "2.5|2.6|2.7|2.8|2.9|2.10|2.11|2.12|2.13|2.14|2.15",
     .help = "pt-ranks: torch release that will load the files, 2.5 to 2.15; default: that of "
             "SRC's rank files, else the newest"},
    {0},
};

static int run(cli *c, const command_request *r)
{
    return command_ranks_missing(c, r) ? (int)FSDPCK_USAGE : convert_run(c, r, convert_reshard);
}

int cmd_reshard(cli *c, int argc, const char **argv)
{
    command_options w;
    command_options_init(&w);
    const opt_group groups[] = {
        {"Sharding:", options_sharding, &w},
        {"Selection:", options_part_output, &w},
        {"", options_selecting, &w},
        {"", options_objects, &w},
        {"Names and dtypes:", options_clean_output, &w},
        {"", options_naming, &w},
        {"", options_mapping, &w},
        {"", options_casting, &w},
        {"", options_dequantize, &w},
        {"Adapters:", options_merging, &w},
        {"", options_adapter_config, &w},
        {"Reading:", options_reading, &w},
        {"", options_hosts, &w},
        {"", options_keying, &w},
        {"", options_replicas, &w},
        {"Writing:", format_rows, &w},
        {"", options_align, &w},
        {"", pattern_rows, &w},
        {"", options_device_type, &w},
        {"", torch_rows, &w},
        {"", options_writing, &w},
        {"", options_resume, &w},
        {"", options_group, &w},
        {"Running:", options_running, &w},
        {"", options_detail_plan, &w},
        {"", options_terminal, c},
        {0},
    };
    const opt_spec spec = {
        .usage = "reshard [OPTION]... SRC DST",
        .about = "Reshards checkpoint SRC to DST, bit for bit, for a different number of ranks,\n"
                 "mesh or sharded format. It needs neither torch nor a process group. DST\n"
                 "appears only when it is complete and safe on the storage. Optimizer state\n"
                 "is sharded like its parameter.",
        .groups = groups,
        .examples = "  fsdpck reshard step-1000 for16 --world-size 16\n"
                    "  fsdpck reshard step-1000 hsdp --mesh dp_replicate=2,dp_shard=8\n"
                    "  fsdpck reshard model.safetensors tp --mesh fsdp=4,tp=2 --tp-plan plan.json\n"
                    "  fsdpck reshard actor/ actor8 --world-size 8 --dry-run\n"
                    "  fsdpck reshard hf step-0 --map torchtitan-llama3 --import --world-size 64\n",
    };
    return command_run(c, &spec, &w, 2, argc, argv, run);
}
