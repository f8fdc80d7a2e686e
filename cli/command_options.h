/* command_options.h: the options that several commands share, and the request built from them. Their
 * rows are in option_rows.c; a command lists the tables that it offers:
 *
 *     command_options w;
 *     command_options_init(&w);
 *     const opt_group groups[] = {{"Reading:", options_reading, &w}, ..., {0}};
 *     const opt_spec spec = {.groups = groups, ...};
 *     return command_run(c, &spec, &w, 2, argc, argv, run);   // run(c, &request)
 */
#ifndef FSDPCK_CLI_COMMAND_OPTIONS_H
#define FSDPCK_CLI_COMMAND_OPTIONS_H

#include "opt.h"

typedef struct command_options {
    /* options_reading, options_hosts, options_replicas */
    char *source_format, *source_rank_pattern, *model, *hdf5_separator;
    uint64_t source_ranks;
    int per_rank, optim_keys, assume, repair_strided, no_follow, replicas;
    int source_local;
    int hdf5_fill;
    /* options_mapping */
    char *map, *map_config, **map_set;
    int dequantize;
    char **merge_adapter;
    int merge_safe;
    int map_import;
    /* options_part_*, options_selecting, options_objects, options_clean_*, options_naming */
    /* options_adapter */
    char *adapter, *adapter_config, *lora_alpha, *task_type, *base_model;
    int rslora, fan_in_fan_out;
    int part, objects, tied, clean, keep;
    char **keys, **exclude, **strip_prefix, **rename, **dtype;
    /* options_sharding */
    uint64_t world_size;
    char *mesh, *tp_plan, *like;
    char *base; /* --like of consolidate */
    char **shard, **replicate;
    /* options_writing, and options of single writers */
    char *format, *rank_pattern, *device_type;
    uint64_t max_shard_nbytes, align_nbytes;
    char *manifest; /* also of digest */
    int no_manifest, sha256, output_local;
    int hdf5_groups, compress;
    int torch, resume, force, no_sync, read_back, direct, dry_run;
    char *html; /* also of layout and diff */
    /* options_group */
    uint64_t group_size, group_hosts;
    int group_local;
    char *model_bandwidth;
    /* options_running, options_detail*, options_saying */
    uint64_t threads, memory_nbytes;
    uint64_t peer_timeout_seconds;
    int engine, progress, json, quiet, verbose;
    /* of average */
    int average_part; /* --part, with one more choice: FSDPCK_PART_ALL + 1 is ema */
    char *weights, *schedule, *average_base, *scale, *slerp;
    int normalize, accumulate;
    uint64_t objects_from;
    char *show_rank;   /* of layout */
    char *check;       /* of digest */
    char *atol, *rtol; /* of diff */
    int stat;
} command_options;

extern const opt_row options_reading[];
extern const opt_row options_hosts[]; /* for commands that several ranks run together */
extern const opt_row options_keying[];
extern const opt_row options_replicas[];
extern const opt_row options_part_output[];      /* one of these three, before options_selecting */
extern const opt_row options_part_consolidate[]; /* also an adapter */
extern const opt_row options_part_diff[];
extern const opt_row options_part_digest[];
extern const opt_row options_selecting[];
extern const opt_row options_objects[];
extern const opt_row options_clean_output[]; /* one of these two, before options_naming */
extern const opt_row options_clean_part[];
extern const opt_row options_naming[];
extern const opt_row options_mapping[];
extern const opt_row options_adapter[], options_adapter_config[];
extern const opt_row options_map_values[]; /* of a map that another option names */
extern const opt_row options_casting[], options_dequantize[], options_merging[];
extern const opt_row options_sharding[];
extern const opt_row options_max_shard[], options_align[], options_device_type[];
extern const opt_row options_hdf5_groups[]; /* like those before, of single writers */
extern const opt_row options_writing[];
extern const opt_row options_resume[];
extern const opt_row options_group[];
extern const opt_row options_running[];
extern const opt_row options_detail_diff[]; /* one of these three, after options_running */
extern const opt_row options_detail_plan[];
extern const opt_row options_detail_digest[];
extern const opt_row options_terminal[]; /* last; the values are the cli */

/* All parts of the library's options, by value. Each command takes the parts that it has. */
typedef struct job_options {
    fsdpck_select_options select;
    fsdpck_sharding_options sharding;
    fsdpck_output_options output;
    fsdpck_work_options work;
    fsdpck_dry_run_options dry_run;
    fsdpck_checkpoint *base; /* of --like BASE, once it is open */
} job_options;

typedef struct command_request {
    fsdpck_open_options open;
    fsdpck_adapter_options adapter; /* of `open`, with --part adapter, or of `merge` */
    fsdpck_merge_options merge;     /* of `open`, with --merge-adapter */
    job_options job;                /* without tp_plan and like */
    const char *src, *dst;          /* dst is NULL where the command takes one operand */
    const char *const *sources;     /* average: all SRC, `src` is the first; else NULL */
    size_t source_count;
    const command_options *given;
} command_request;

typedef int (*command_fn)(cli *c, const command_request *r);

/* Sets all options to their defaults. */
void command_options_init(command_options *w);

/* Fills `open` from the reading options; for commands without a request, such as inspect. */
void command_open_options(const command_options *w, fsdpck_open_options *open);

/* Parses argv, which must have `operands` operands (1 or 2; with spec->operand_count at least 2, and the last
 * is DST), and calls `run`, which borrows the request.
 * Returns the exit code: that of `run`, 0 after --help, 2 after a usage error. */
int command_run(cli *c, const opt_spec *spec, command_options *w, unsigned operands, int argc,
                const char **argv, command_fn run);

/* Reports a usage error and returns true if the request has neither --world-size, --mesh nor --like. */
bool command_ranks_missing(const cli *c, const command_request *r);

#endif
