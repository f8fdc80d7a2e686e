/* fsdpck average: the average of several checkpoints, written as consolidate or reshard writes. */
#include "convert_run.h"

#include <string.h>

#define AT(member) offsetof(command_options, member)

static const opt_row average_rows[] = {
    {"weights", .kind = OPT_TEXT, .at = AT(weights), .value = "W1,W2,...",
     .help = "one factor for each SRC; default: 1/N each"},
    {"normalize", .kind = OPT_FLAG, .at = AT(normalize), .help = "divide the weights by their sum"},
    {"schedule", .kind = OPT_TEXT, .at = AT(schedule), .value = "S",
     .help = "factors for SRC given oldest first: linear, minus-sqrt or ema=BETA"},
    {"base", .kind = OPT_TEXT, .at = AT(average_base), .value = "BASE",
     .help = "task arithmetic: add the weighted differences of each SRC from checkpoint BASE to "
             "BASE"},
    {"scale", .kind = OPT_TEXT, .at = AT(scale), .value = "L",
     .help = "factor of the sum of these differences; default 1"},
    {"slerp", .kind = OPT_TEXT, .at = AT(slerp), .value = "T",
     .help = "spherical interpolation of two SRC, from 0 (the first) to 1"},
    {"accumulate", .kind = OPT_CHOICE, .at = AT(accumulate), .value = "DTYPE",
     .choices = "fp32|fp64",
     .help = "dtype of the sums: fp32 or fp64; fp64 tensors are always summed in fp64"},
    {"objects-from", .kind = OPT_COUNT, .at = AT(objects_from), .value = "N", .min = 1,
     .max = 65535,
     .help = "take integers, bools and objects from SRC number N; default: they must be equal in "
             "all SRC"},
    {0},
};

static const opt_row part_rows[] = {
    {"part", .kind = OPT_CHOICE, .at = AT(average_part), .value = "PART",
     .choices = "model|optimizer|other|all|ema",
     .help = "part to average: model, optimizer, other, all, or ema, the moving average that "
             "torchtitan's optimizer holds; default: model"},
    {0},
};

static const opt_row casting_rows[] = {
    {"dtype", .kind = OPT_LIST, .at = AT(dtype), .value = "DTYPE",
     .help = "cast the averages (bf16, fp16, fp32, fp64), or matching floating-point tensors: "
             "'GLOB=fp32'; repeatable"},
    {0},
};

static const opt_row format_rows[] = {
    {"format", .kind = OPT_TEXT, .at = AT(format), .value = "F",
     .help = "safetensors, hf, pt, dcp or hdf5; with options of the sharding dcp, pt-ranks or "
             "dcp-safetensors; default: by the suffix of DST, else as in the first SRC"},
    {0},
};

static const opt_row pattern_rows[] = {
    {"rank-pattern", .kind = OPT_TEXT, .at = AT(rank_pattern), .value = "P",
     .help = "pt-ranks: names of the files; default: as in the first SRC, else "
             "model_world_size_{W}_rank_{r}.pt"},
    {0},
};

static bool is_sharded(const job_options *job)
{
    return job->sharding.world_size != 0 || job->sharding.mesh != NULL ||
           job->sharding.like != NULL;
}

/* Whether the output without a format of its own has one that only several ranks can have. */
static bool is_of_ranks(const fsdpck_checkpoint *src, const char *dst, const job_options *job)
{
    fsdpck_info info = FSDPCK_INIT(fsdpck_info);
    const char *name = strrchr(dst, '/');
    fsdpck_get_info(src, &info);
    return job->output.format == NULL && strchr(name == NULL ? dst : name, '.') == NULL &&
           (info.format_id == FSDPCK_FORMAT_PT_RANKS ||
            info.format_id == FSDPCK_FORMAT_DCP_SAFETENSORS);
}

static fsdpck_status call_average(fsdpck_context *ctx, fsdpck_checkpoint *src, const char *dst,
                                  const job_options *job, fsdpck_report **report, fsdpck_error *err)
{
    job_options o = *job;
    if (o.select.part < 0 || o.select.part > (int)FSDPCK_PART_ALL)
        o.select.part = FSDPCK_PART_MODEL;
    if (is_sharded(&o))
        return convert_reshard(ctx, src, dst, &o, report, err);
    if (is_of_ranks(src, dst, &o)) {
        o.sharding.like = src;
        return convert_reshard(ctx, src, dst, &o, report, err);
    }
    const fsdpck_consolidate_options options = {.struct_nbytes = sizeof options,
                                                .select = &o.select,
                                                .output = &o.output,
                                                .work = &o.work,
                                                .dry_run = &o.dry_run};
    return fsdpck_consolidate(ctx, src, dst, &options, report, err);
}

static int run(cli *c, const command_request *r)
{
    const command_options *w = r->given;
    if (w->scale != NULL && w->average_base == NULL)
        return opt_usage_error(c, "--scale requires --base");
    if (w->mesh != NULL && w->like != NULL)
        return opt_usage_error_next(c, "omit one of them",
                                    "--mesh and --like contradict each other");
    return convert_run(c, r, call_average);
}

int cmd_average(cli *c, int argc, const char **argv)
{
    command_options w;
    unsigned operand_count = 0;
    command_options_init(&w);
    const opt_group groups[] = {
        {"Average:", average_rows, &w},
        {"Sharding:", options_sharding, &w},
        {"Selection:", part_rows, &w},
        {"", options_selecting, &w},
        {"", options_objects, &w},
        {"Names and dtypes:", options_clean_output, &w},
        {"", options_naming, &w},
        {"", casting_rows, &w},
        {"", options_dequantize, &w},
        {"Reading:", options_reading, &w},
        {"", options_keying, &w},
        {"", options_replicas, &w},
        {"Writing:", format_rows, &w},
        {"", options_max_shard, &w},
        {"", options_align, &w},
        {"", pattern_rows, &w},
        {"", options_device_type, &w},
        {"", options_hdf5_groups, &w},
        {"", options_writing, &w},
        {"Running:", options_running, &w},
        {"", options_detail_plan, &w},
        {"", options_terminal, c},
        {0},
    };
    const opt_spec spec = {
        .usage = "average [OPTION]... SRC... DST",
        .about = "Writes the average of checkpoints SRC to DST. Each SRC may have its own\n"
                 "format and sharding. Floating-point tensors are summed in the order of SRC\n"
                 "in float32 and rounded once; all else must be equal. DST is written as\n"
                 "consolidate does, or, with options of the sharding, as reshard does.",
        .groups = groups,
        .examples =
            "  fsdpck average step-800 step-900 step-1000 mean.safetensors\n"
            "  fsdpck average $(ls -dv step-*) merged --schedule minus-sqrt --world-size 64\n"
            "  fsdpck average step-800 step-900 ema.pt --schedule ema=0.9\n"
            "  fsdpck average sft-a sft-b out/ --base Llama-3.1-8B --weights 1,1 --scale 0.4\n"
            "  fsdpck average a.safetensors b.safetensors ab.safetensors --slerp 0.5\n",
        .operand_count = &operand_count,
    };
    return command_run(c, &spec, &w, 2, argc, argv, run);
}
