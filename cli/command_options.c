#include "command_options.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "group_print.h"

#define AT(member) offsetof(command_options, member)

/* Most ranks of a mesh: the library counts them in 16 bits. */
#define RANKS_MAX 65534u

/* Default level of --compress gzip, as in h5py. */
#define GZIP_LEVEL 4u

/* Rows whose help depends on the command. */
#define PART_ROW(text)                                                 \
    {                                                                  \
        "part", .kind = OPT_CHOICE, .at = AT(part), .value = "PART",   \
                .choices = "model|optimizer|other|all", .help = (text) \
    }
#define CLEAN_ROW(when)                                                                      \
    {                                                                                        \
        "clean-names", .kind = OPT_FLAG, .at = AT(clean),                                    \
                       .help = "remove the prefixes that FSDP, compile, checkpoint and DDP " \
                               "wrappers add to names; " when                                \
    }
#define VERBOSE_ROW(text)                                           \
    {                                                               \
        "verbose", 'v', OPT_FLAG, .at = AT(verbose), .help = (text) \
    }
#define QUIET_ROW(text)                                         \
    {                                                           \
        "quiet", 'q', OPT_FLAG, .at = AT(quiet), .help = (text) \
    }

const opt_row options_reading[] = {
    {"source-format", .kind = OPT_TEXT, .at = AT(source_format), .value = "F",
     .words = OPT_WORDS_READERS, .help = "format of SRC; default: detected from its content"},
    {"source-ranks", .kind = OPT_COUNT, .at = AT(source_ranks), .value = "N", .min = 1,
     .max = 1u << 20, .help = "require that SRC was written by N ranks"},
    {"source-rank-pattern", .kind = OPT_TEXT, .at = AT(source_rank_pattern), .value = "P",
     .help = "names of the rank files in SRC: {r} is the rank, {W} the number of ranks, as in "
             "'shard_{r}_of_{W}.pt'; default: the names of known trainers"},
    {"per-rank", .kind = OPT_CHOICE, .at = AT(per_rank), .value = "WHAT",
     .choices = "keep|first|drop|error",
     .help = "handling of plain tensors and objects that differ between rank files: keep, first, "
             "drop or error; default: error for tensors, in verify a warning"},
    {"model", .kind = OPT_TEXT, .at = AT(model), .value = "FILE", .words = OPT_WORDS_FILES,
     .help = "model description or list of units (fsdpck-model(5)), to split FSDP1's flat "
             "parameters"},
    {"repair-strided", .kind = OPT_FLAG, .at = AT(repair_strided),
     .help = "recompute recorded boxes of FSDP+TP folders (torch 2.10 to 2.15) that do not fit "
             "their data, if all of them then fit"},
    {"assume", .kind = OPT_SET, .at = AT(assume), .value = "WHAT", .choices = "fsdp2-tp-2.3|order",
     .help = "fsdp2-tp-2.3: FSDP2 with TP of torch 2.3 or 2.4 wrote SRC; its files record the "
             "wrong order of shards; order: the optimizer received the parameters in the "
             "order of model.parameters(); repeatable"},
    {"hdf5-sep", .kind = OPT_TEXT, .at = AT(hdf5_separator), .value = "TEXT",
     .help = "separator between the names of HDF5 groups and datasets; default: '.'"},
    {"hdf5-fill", .kind = OPT_FLAG, .at = AT(hdf5_fill),
     .help = "read unwritten elements of HDF5 datasets as the file's fill value"},
    {"no-follow", .kind = OPT_FLAG, .at = AT(no_follow),
     .help = "treat links inside SRC as errors"},
    {0},
};

const opt_row options_hosts[] = {
    {"source-local", .kind = OPT_FLAG, .at = AT(source_local),
     .help = "under mpirun: files with the same name on several hosts are different files"},
    {0},
};

const opt_row options_keying[] = {
    {"optim-keys", .kind = OPT_CHOICE, .at = AT(optim_keys), .value = "KEYS",
     .choices = "name|id|flat",
     .help = "convert the keys of optimizer state to name, id (as in optimizer.state_dict()) or "
             "flat (as with flatten_optimizer_state_dict); default: unchanged"},
    {0},
};

const opt_row options_replicas[] = {
    {"replicas", .kind = OPT_CHOICE, .at = AT(replicas), .value = "HOW",
     .choices = "crc|compare|first",
     .help = "comparison of replicas (the same box from several ranks): crc, compare or first"},
    {0},
};

const opt_row options_part_output[] = {
    PART_ROW("part to select: model, optimizer, other or all; default: model for safetensors "
             "formats, all for the others"),
    {0},
};

const opt_row options_part_consolidate[] = {
    {"part", .kind = OPT_CHOICE, .at = AT(part), .value = "PART",
     .choices = "model|optimizer|other|all|adapter",
     .help = "part to select: model, optimizer, other, all, or an adapter of LoRA as PEFT saves "
             "it; default: model for safetensors formats, all for the others"},
    {0},
};

const opt_row options_adapter[] = {
    {"adapter", .kind = OPT_TEXT, .at = AT(adapter), .value = "NAME",
     .help = "--part adapter: the adapter to write; default: the only one"},
    {"task-type", .kind = OPT_TEXT, .at = AT(task_type), .value = "TYPE",
     .help = "--part adapter: its task_type, such as CAUSAL_LM"},
    {"base-model", .kind = OPT_TEXT, .at = AT(base_model), .value = "NAME",
     .help = "--part adapter: its base_model_name_or_path"},
    {0},
};

const opt_row options_adapter_config[] = {
    {"adapter-config", .kind = OPT_TEXT, .at = AT(adapter_config), .value = "FILE",
     .help =
         "adapter_config.json of the training; default: the one beside the adapter, in which the "
         "options below replace values, else made from the tensors and these options"},
    {"lora-alpha", .kind = OPT_TEXT, .at = AT(lora_alpha), .value = "X",
     .help = "lora_alpha of the adapter, which the tensors do not contain"},
    {"rslora", .kind = OPT_FLAG, .at = AT(rslora),
     .help = "the adapter was trained with use_rslora"},
    {"fan-in-fan-out", .kind = OPT_FLAG, .at = AT(fan_in_fan_out),
     .help = "weights of the base model are [in, out], as in GPT-2"},
    {0},
};

const opt_row options_part_diff[] = {
    PART_ROW("part of A and B to compare: model, optimizer, other or all; default: all, or the "
             "part that both have"),
    {0},
};

const opt_row options_part_digest[] = {
    PART_ROW("part to select: model, optimizer, other or all; default: all"),
    {0},
};

const opt_row options_selecting[] = {
    {"keys", .kind = OPT_LIST, .at = AT(keys), .value = "GLOB", .words = OPT_WORDS_TENSORS,
     .help = "select only tensors whose name matches; '*' matches dots too; repeatable"},
    {"exclude", .kind = OPT_LIST, .at = AT(exclude), .value = "GLOB", .words = OPT_WORDS_TENSORS,
     .help = "omit tensors whose name matches; repeatable"},
    {0},
};

const opt_row options_objects[] = {
    {"objects", .kind = OPT_CHOICE, .at = AT(objects), .value = "WHAT",
     .choices = "keep|drop|opaque|error",
     .help = "handling of objects: keep, drop, opaque (also keep calls of "
             "unknown functions) or error"},
    {"tied", .kind = OPT_CHOICE, .at = AT(tied), .value = "WHICH", .choices = "keep|first|link",
     .help = "tied tensors (stored under several names): keep all, only the first, or link them "
             "(pt and pt-ranks: all names share one storage)"},
    {0},
};

const opt_row options_clean_output[] = {
    CLEAN_ROW("default for safetensors formats and fsdp1"),
    {0},
};

const opt_row options_clean_part[] = {
    CLEAN_ROW("default unless all parts are selected"),
    {0},
};

const opt_row options_naming[] = {
    {"keep-names", .kind = OPT_FLAG, .at = AT(keep), .help = "keep names unchanged"},
    {"strip-prefix", .kind = OPT_LIST, .at = AT(strip_prefix), .value = "P",
     .help = "remove P from the start of names; repeatable"},
    {"rename", .kind = OPT_LIST, .at = AT(rename), .value = "s/RE/TEXT/",
     .help = "rename tensors by a substitution as in sed, with Perl regular expressions; "
             "repeatable, in order"},
    {0},
};

const opt_row options_mapping[] = {
    {"map", .kind = OPT_TEXT, .at = AT(map), .value = "MAP", .words = OPT_WORDS_MAPS,
     .help = "give the model's tensors the names and layouts of another library; MAP is a map that "
             "fsdpck maps lists, or a file (fsdpck-map(5))"},
    {"config", .kind = OPT_TEXT, .at = AT(map_config), .value = "FILE", .words = OPT_WORDS_FILES,
     .help =
         "config.json of the model, for the variables of the map; default with --import: that of "
         "SRC"},
    {"map-set", .kind = OPT_LIST, .at = AT(map_set), .value = "NAME=N",
     .help = "set a variable of the map; repeatable"},
    {"import", .kind = OPT_FLAG, .at = AT(map_import),
     .help = "apply --map in the opposite direction: from Hugging Face to the names and layouts of "
             "the trainer"},
    {0},
};

const opt_row options_map_values[] = {
    {"config", .kind = OPT_TEXT, .at = AT(map_config), .value = "FILE", .words = OPT_WORDS_FILES,
     .help = "config.json of the model, for the variables of the map; default: that of SRC"},
    {"map-set", .kind = OPT_LIST, .at = AT(map_set), .value = "NAME=N",
     .help = "set a variable of the map; repeatable"},
    {0},
};

const opt_row options_casting[] = {
    {"dtype", .kind = OPT_LIST, .at = AT(dtype), .value = "DTYPE", .words = OPT_WORDS_FLOATS,
     .help = "cast the model's floats (bf16, fp16, fp32, fp64), or matching floating-point "
             "tensors: 'GLOB=fp32'; repeatable"},
    {"dequantize", .kind = OPT_FLAG, .at = AT(dequantize),
     .help =
         "read weights of 8-bit floats with scales for blocks of 128 x 128, and MXFP4, as bf16"},
    {0},
};

const opt_row options_merging[] = {
    {"merge-adapter", .kind = OPT_LIST, .at = AT(merge_adapter), .value = "ADAPTER",
     .help = "merge a LoRA adapter of PEFT into the weights: self, the one inside SRC, self:NAME, "
             "one of "
             "several, or its folder; repeatable, in order"},
    {"merge-safe", .kind = OPT_FLAG, .at = AT(merge_safe),
     .help =
         "as safe_merge of PEFT: round products before they are added, fail on NaN and infinity"},
    {0},
};

const opt_row options_sharding[] = {
    {"world-size", .kind = OPT_COUNT, .at = AT(world_size), .value = "N", .min = 1,
     .max = RANKS_MAX,
     .help =
         "number of ranks; without --mesh, the source's mesh is adapted to N, or fsdp=N is used"},
    {"mesh", .kind = OPT_TEXT, .at = AT(mesh), .value = "DIMS",
     .help = "names and sizes of the mesh dims, outermost first: dp_replicate=2,dp_shard=4,tp=2"},
    {"tp-plan", .kind = OPT_TEXT, .at = AT(tp_plan), .value = "FILE", .words = OPT_WORDS_FILES,
     .help = "JSON file that maps globs to colwise, rowwise, replicate or Shard(d); default: as in "
             "SRC"},
    {"shard", .kind = OPT_LIST, .at = AT(shard), .value = "GLOB=DIM",
     .help = "FSDP shards matching tensors on dim DIM; default: as in SRC, else 0; repeatable"},
    {"replicate", .kind = OPT_LIST, .at = AT(replicate), .value = "GLOB",
     .words = OPT_WORDS_TENSORS, .help = "FSDP does not shard matching tensors; repeatable"},
    {"like", .kind = OPT_TEXT, .at = AT(like), .value = "OTHER", .words = OPT_WORDS_FILES,
     .help = "use the mesh and placements of checkpoint OTHER"},
    {0},
};

const opt_row options_writing[] = {
    {"force", .kind = OPT_FLAG, .at = AT(force),
     .help = "replace an existing DST; a folder only if it is empty or contains only a checkpoint"},
    {"output-local", .kind = OPT_FLAG, .at = AT(output_local),
     .help = "under mpirun: DST is on a local disk of each host, and gets the whole output "
             "(consolidate) or the files that the ranks there load (reshard)"},
    {"no-sync", .kind = OPT_FLAG, .at = AT(no_sync),
     .help = "do not wait for the storage: faster, but not safe against power loss"},
    {"read-back", .kind = OPT_FLAG, .at = AT(read_back),
     .help = "read the output back from the storage and compare it"},
    {"manifest", .kind = OPT_TEXT, .at = AT(manifest), .value = "FILE", .words = OPT_WORDS_FILES,
     .help =
         "write a manifest (fsdpck-manifest(5)) to FILE; an output folder also gets one inside"},
    {"no-manifest", .kind = OPT_FLAG, .at = AT(no_manifest),
     .help = "write no manifest into an output folder"},
    {"sha256", .kind = OPT_FLAG, .at = AT(sha256),
     .help = "add the SHA-256 of each file to the manifest; reads the output again"},
    {"direct", .kind = OPT_CHOICE, .at = AT(direct), .value = "WHEN", .choices = "auto|on|off",
     .help = "write with O_DIRECT: auto, on or off"},
    {"dry-run", .kind = OPT_FLAG, .at = AT(dry_run),
     .help = "check and plan, print the totals of the plan, write nothing"},
    {0},
};

const opt_row options_group[] = {
    {"group-size", .kind = OPT_COUNT, .at = AT(group_size), .value = "N", .min = 1,
     .max = RANKS_MAX,
     .help =
         "with --dry-run: print the bytes that each of N ranks under mpirun would read, send and "
         "write; -v lists every rank"},
    {"group-hosts", .kind = OPT_COUNT, .at = AT(group_hosts), .value = "M", .min = 1,
     .max = RANKS_MAX, .help = "these ranks run on M hosts; default: one host per rank"},
    {"group-local", .kind = OPT_FLAG, .at = AT(group_local),
     .help = "files of SRC are on local disks of the hosts whose ranks saved them; default: on a "
             "shared file system"},
    {"model-bandwidth", .kind = OPT_TEXT, .at = AT(model_bandwidth), .value = "RATES",
     .help =
         "predict the time from rates: read=7GB/s,write=5GB/s of the file system for all ranks, "
         "net=25GB/s per host"},
    {0},
};

const opt_row options_running[] = {
    {"threads", .kind = OPT_COUNT, .at = AT(threads), .value = "N", .min = 1, .max = 1024,
     .help = "number of threads; default: as affinity and cgroup allow"},
    {"memory", .kind = OPT_SIZE, .at = AT(memory_nbytes), .value = "SIZE", .min = 16u << 20,
     .help =
         "size of buffers, without metadata; default 256M, less on small machines; at least 16M"},
    {"engine", .kind = OPT_CHOICE, .at = AT(engine), .value = "E", .choices = "auto|threads|cuda",
     .help = "engine that copies and casts: auto, threads or cuda"},
    {"peer-timeout", .kind = OPT_COUNT, .at = AT(peer_timeout_seconds), .value = "SECONDS",
     .min = 1, .max = 86400,
     .help = "under mpirun: a rank that does not respond for SECONDS is lost; default 60"},
    {"progress", .kind = OPT_CHOICE, .at = AT(progress), .value = "WHEN",
     .choices = "auto|always|never", .help = "show progress: auto, always or never"},
    {"json", .kind = OPT_FLAG, .at = AT(json), .help = "report as JSON, on failure too"},
    {0},
};

const opt_row options_detail_diff[] = {
    VERBOSE_ROW("print more details"),
    QUIET_ROW("print only errors, warnings and, if A and B differ, one line"),
    {0},
};

const opt_row options_detail_digest[] = {
    VERBOSE_ROW("print more details"),
    QUIET_ROW("print neither notes nor progress; with --check only failures, with --manifest no "
              "list"),
    {0},
};

const opt_row options_detail_plan[] = {
    VERBOSE_ROW("print more details; with --dry-run the whole plan"),
    QUIET_ROW("print only errors and warnings"),
    {0},
};

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

/* With r->adapter as the config. */
static void request_merge(const command_options *w, command_request *r)
{
    r->merge = (fsdpck_merge_options)FSDPCK_INIT(fsdpck_merge_options);
    r->merge.adapters = (const char *const *)w->merge_adapter;
    r->merge.adapter_count = opt_list_count(w->merge_adapter);
    r->merge.safe = w->merge_safe;
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
        return opt_usage_error_next(c, "put an adapter_config.json into the folder of each adapter",
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
        if (!request_adapter(c, w, &r))
            code = FSDPCK_USAGE;
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
