#include "command_options.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "group_print.h"
#include "html_option.h"

/* Default level of --compress gzip, as in h5py. */
#define GZIP_LEVEL 4u

void command_options_init(command_options *w)
{
    *w = (command_options){.part = -1,
                           .average_part = -1,
                           .per_rank = -1,
                           .optim_keys = -1,
                           .torch = -1,
                           .compress = -1};
}

void command_open_options(const command_options *w, fsdpck_open_options *open)
{
    *open = (fsdpck_open_options)FSDPCK_INIT(fsdpck_open_options);
    open->format = w->source_format;
    open->source_ranks = w->source_ranks;
    open->no_follow = w->no_follow;
    open->source_local = w->source_local;
    open->opaque_calls = w->objects == FSDPCK_OBJECTS_OPAQUE;
    open->threads = (unsigned)w->threads;
    open->rank_pattern = w->source_rank_pattern;
    open->per_rank = (fsdpck_per_rank)(w->per_rank + 1); /* AUTO comes first */
    open->repair_strided = w->repair_strided;
    open->assume_tp_first = (w->assume & 1) != 0;
    open->assume_order = (w->assume & 2) != 0;
    open->assume_lost_keys = (w->assume & 4) != 0;
    open->model_path = w->model;
    open->hdf5_separator = w->hdf5_separator;
    open->hdf5_fill = w->hdf5_fill;
    open->optim_keys = (fsdpck_optim_keys)(w->optim_keys + 1); /* KEEP comes first */
    open->dequantize = w->dequantize;
    open->map = w->map;
    open->map_config = w->map_config;
    open->map_set = (const char *const *)w->map_set;
    open->map_set_count = opt_list_count(w->map_set);
    open->map_import = w->map_import;
}

/* Index of `adapter` in the choices of options_part_consolidate. */
enum { PART_ADAPTER = 4 };

/* A whole text that is a finite number. */
static bool parse_number(const char *text, double *number)
{
    char *end;
    if (text[strspn(text, "0123456789.eE+-")] != '\0')
        return false;
    *number = strtod(text, &end);
    return end != text && *end == '\0' && isfinite(*number);
}

/* Whether --dtype casts all weights to a dtype that has all values of float32. */
static bool casts_wide(const command_options *w)
{
    static const char *const words[] = {"fp32", "f32", "float32", "fp64", "f64", "float64"};
    const size_t count = opt_list_count(w->dtype);
    size_t wide = 0;
    for (size_t i = 0; i < count; i++)
        for (size_t k = 0; k < sizeof words / sizeof words[0]; k++)
            wide += strcmp(w->dtype[i], words[k]) == 0;
    return count > 0 && wide == count;
}

/* With r->adapter as the config. */
static void request_merge(const command_options *w, command_request *r)
{
    r->merge = (fsdpck_merge_options)FSDPCK_INIT(fsdpck_merge_options);
    r->merge.adapters = (const char *const *)w->merge_adapter;
    r->merge.adapter_count = opt_list_count(w->merge_adapter);
    r->merge.safe = w->merge_safe;
    r->merge.wide = casts_wide(w);
    r->merge.config = &r->adapter;
    r->open.merge = &r->merge;
}

/* After command_open_options. */
static bool request_adapter(const cli *c, const command_options *w, command_request *r)
{
    fsdpck_adapter_options *a = &r->adapter;
    *a = (fsdpck_adapter_options)FSDPCK_INIT(fsdpck_adapter_options);
    if (w->part != PART_ADAPTER && w->merge_adapter == NULL)
        return true;
    a->name = w->adapter;
    a->config = w->adapter_config;
    a->has_lora_alpha = w->lora_alpha != NULL;
    a->use_rslora = w->rslora;
    a->fan_in_fan_out = w->fan_in_fan_out;
    a->task_type = w->task_type;
    a->base_model = w->base_model;
    if (w->lora_alpha != NULL && !parse_number(w->lora_alpha, &a->lora_alpha)) {
        opt_usage_error(c, "--lora-alpha: '%s' is not a number", w->lora_alpha);
        return false;
    }
    if (w->part == PART_ADAPTER)
        r->open.adapter = a;
    else
        request_merge(w, r);
    return true;
}

static const char *const *request_list(char **list, size_t *count)
{
    *count = opt_list_count(list);
    return (const char *const *)list;
}

static void request_selection(const command_options *w, job_options *t)
{
    t->select.part = w->average_part >= 0      ? w->average_part
                     : w->part == PART_ADAPTER ? -1
                                               : w->part;
    t->select.clean_names = w->clean ? FSDPCK_ON : w->keep ? FSDPCK_OFF : FSDPCK_AUTO;
    t->select.keys = request_list(w->keys, &t->select.keys_count);
    t->select.exclude = request_list(w->exclude, &t->select.exclude_count);
    t->select.strip_prefix = request_list(w->strip_prefix, &t->select.strip_prefix_count);
    t->select.rename = request_list(w->rename, &t->select.rename_count);
    t->select.dtype = request_list(w->dtype, &t->select.dtype_count);
    t->select.tied = (fsdpck_tied)w->tied;
    t->select.objects = (fsdpck_objects)w->objects;
}

static void request_output(const command_options *w, job_options *t)
{
    t->sharding.world_size = w->world_size;
    t->sharding.mesh = w->mesh;
    t->sharding.shard = request_list(w->shard, &t->sharding.shard_count);
    t->sharding.replicate = request_list(w->replicate, &t->sharding.replicate_count);
    t->output.format = w->format;
    t->output.max_shard_nbytes = w->max_shard_nbytes;
    t->output.align_nbytes = w->align_nbytes;
    t->output.hdf5_groups = w->hdf5_groups;
    /* The first choice has no level: then h5py's. */
    t->output.gzip_level = w->compress < 0    ? 0
                           : w->compress == 0 ? GZIP_LEVEL
                                              : (unsigned)w->compress;
    t->output.rank_pattern = w->rank_pattern;
    t->output.device_type = w->device_type;
    t->output.torch_minor = w->torch < 0 ? 0 : 5 + (unsigned)w->torch; /* the first choice is 2.5 */
    t->select.replicas = (fsdpck_replicas)w->replicas;
    t->output.direct = (fsdpck_switch)w->direct;
    t->work.threads = (unsigned)w->threads;
    t->work.memory_nbytes = w->memory_nbytes;
    t->output.force = w->force;
    t->output.no_sync = w->no_sync;
    t->output.resume = w->resume;
    t->output.read_back = w->read_back;
    t->output.no_manifest = w->no_manifest;
    t->output.sha256 = w->sha256;
    t->output.output_local = w->output_local;
    t->output.manifest_path = w->manifest;
    t->work.engine = (fsdpck_engine)w->engine;
    /* Of a large group the table is wanted, not the whole plan. */
    t->dry_run.mode = w->dry_run == 0 ? 0 : w->verbose > 0 && w->group_size == 0 ? 2 : 1;
    t->dry_run.group_size = (unsigned)w->group_size;
    t->dry_run.group_hosts = (unsigned)w->group_hosts;
    t->dry_run.group_local = w->group_local;
}

static int check_group(const cli *c, const command_options *w)
{
    const bool about = w->group_hosts > 0 || w->group_local || w->model_bandwidth != NULL;
    if (w->group_size > 0 && !w->dry_run)
        return opt_usage_error_next(c, "run mpirun -n N fsdpck ... to use a group",
                                    "--group-size requires --dry-run");
    if (about && w->group_size == 0)
        return opt_usage_error(c, "--group-hosts, --group-local and --model-bandwidth require "
                                  "--group-size");
    if (w->group_hosts > w->group_size)
        return opt_usage_error(c, "--group-hosts: more hosts than ranks (--group-size)");
    return -1;
}

static int check_map(const cli *c, const command_options *w)
{
    if (w->map == NULL && w->base == NULL && (w->map_config != NULL || w->map_set != NULL))
        return opt_usage_error(c, "%s requires --map",
                               w->map_config != NULL ? "--config" : "--map-set");
    if (w->map_import && w->base != NULL)
        return opt_usage_error_next(c, "omit one of them",
                                    "--import and --like contradict each other");
    if (w->map_import && w->map == NULL)
        return opt_usage_error(c, "--import requires --map");
    if (w->map != NULL && w->part > 0)
        return opt_usage_error_next(c, "omit one of them",
                                    "--map applies to the model part only, not to --part %s",
                                    fsdpck_part_name((fsdpck_part)w->part));
    return -1;
}

/* The first option of the config of an adapter. */
static const char *config_option(const command_options *w)
{
    return w->adapter_config != NULL ? "--adapter-config"
           : w->lora_alpha != NULL   ? "--lora-alpha"
           : w->rslora               ? "--rslora"
           : w->fan_in_fan_out       ? "--fan-in-fan-out"
                                     : NULL;
}

static int check_merge(const cli *c, const command_options *w)
{
    const size_t count = opt_list_count(w->merge_adapter);
    if (count == 0 && w->merge_safe)
        return opt_usage_error(c, "--merge-safe requires --merge-adapter");
    if (count > 0 && w->part > 0)
        return opt_usage_error_next(
            c, "omit one of them", "--merge-adapter applies to the model part only, not to --part");
    if (count > 1 && config_option(w) != NULL)
        return opt_usage_error_next(
            c,
            "put an adapter_config.json into the folder of each adapter; of "
            "self:NAME, copy the adapter out with --part adapter first",
            "%s does not apply to several adapters", config_option(w));
    return -1;
}

static int check_adapter(const cli *c, const command_options *w)
{
    const char *option = w->adapter != NULL      ? "--adapter"
                         : w->task_type != NULL  ? "--task-type"
                         : w->base_model != NULL ? "--base-model"
                                                 : NULL;
    if (option != NULL && w->part != PART_ADAPTER)
        return opt_usage_error(c, "%s requires --part adapter", option);
    if (config_option(w) != NULL && w->part != PART_ADAPTER && w->merge_adapter == NULL)
        return opt_usage_error(c, "%s requires --part adapter or --merge-adapter",
                               config_option(w));
    if (w->part == PART_ADAPTER && (w->map != NULL || w->dequantize))
        return opt_usage_error_next(c, "omit one of them",
                                    "%s does not apply to --part adapter, whose names and values "
                                    "stay as they are",
                                    w->map != NULL ? "--map" : "--dequantize");
    return -1;
}

static int start_page(cli *c, const command_request *r)
{
    const command_options *w = r->given;
    const char **all = calloc(r->source_count + 5, sizeof *all);
    size_t count = 0;
    if (all == NULL)
        return opt_usage_error(c, "out of memory for the operands");
    for (; count < r->source_count; count++)
        all[count] = r->sources[count];
    all[count++] = r->src;
    all[count++] = r->dst;
    all[count++] = w->like;
    all[count++] = w->base;
    all[count++] = w->manifest;
    const int code = html_option_start(c, w->html, all, count);
    free(all);
    return code;
}

int command_run(cli *c, const opt_spec *spec, command_options *w, unsigned operands, int argc,
                const char **argv, command_fn run)
{
    const char *two[2] = {NULL, NULL};
    const bool many = spec->operand_count != NULL;
    const char **all = many ? calloc((size_t)argc + 1, sizeof *all) : NULL,
               **paths = many ? all : two;
    if (paths == NULL)
        return opt_usage_error(c, "out of memory for the operands");
    int code = opt_parse(c, spec, argc, argv, paths, operands);
    const unsigned last = many && *spec->operand_count > 0 ? *spec->operand_count - 1 : 1;
    if (code < 0 && w->clean && w->keep)
        code = opt_usage_error(c, "--clean-names and --keep-names contradict each other");
    if (code < 0 && w->sha256 && w->no_manifest && w->manifest == NULL)
        code = opt_usage_error(c, "--sha256 and --no-manifest contradict each other");
    if (code < 0)
        code = check_adapter(c, w);
    if (code < 0)
        code = check_merge(c, w);
    if (code < 0)
        code = check_map(c, w);
    if (code < 0)
        code = check_group(c, w);
    if (code < 0) {
        command_request r = {
            .job = {.select = FSDPCK_SELECT_OPTIONS_INIT,
                    .sharding = FSDPCK_INIT(fsdpck_sharding_options),
                    .output = FSDPCK_INIT(fsdpck_output_options),
                    .work = FSDPCK_INIT(fsdpck_work_options),
                    .dry_run = FSDPCK_INIT(fsdpck_dry_run_options)},
            .given = w,
            .src = paths[0],
            .dst = paths[last],
            .sources = many ? paths : NULL,
            .source_count = many ? last : 0,
        };
        c->json = w->json != 0;
        c->quiet = w->quiet != 0;
        c->verbose = w->verbose;
        command_open_options(w, &r.open);
        request_selection(w, &r.job);
        request_output(w, &r.job);
        if (w->peer_timeout_seconds > 0)
            fsdpck_context_set_peer_timeout(c->ctx, (unsigned)w->peer_timeout_seconds);
        code = start_page(c, &r);
        c->page->destination = r.dst;
        if (code >= 0 || !request_adapter(c, w, &r))
            code = code >= 0 ? code : FSDPCK_USAGE;
        else if (w->model_bandwidth != NULL &&
                 !group_parse_bandwidth(c, w->model_bandwidth, &r.job))
            code = FSDPCK_USAGE;
        else
            code = run(c, &r);
    }
    opt_release(c, spec);
    free(all);
    return code;
}

bool command_ranks_missing(const cli *c, const command_request *r)
{
    if (r->job.sharding.mesh != NULL && r->given->like != NULL) {
        opt_usage_error_next(c, "omit one of them", "--mesh and --like contradict each other");
        return true;
    }
    if (r->job.sharding.world_size != 0 || r->job.sharding.mesh != NULL || r->given->like != NULL ||
        access(r->src, F_OK) != 0) /* which is the greater trouble, and said on opening */
        return false;
    opt_usage_error_next(
        c,
        "give --world-size 16, or a mesh such as --mesh dp_replicate=2,dp_shard=8, or "
        "--like OTHER; run fsdpck inspect SRC for the mesh of SRC",
        "the number of ranks is missing");
    return true;
}
