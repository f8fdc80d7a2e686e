/* option_rows.c: the rows of the options that several commands share. */
#include "command_options.h"

#define AT(member) offsetof(command_options, member)

/* Most ranks of a mesh: the library counts them in 16 bits. */
#define RANKS_MAX 65534u

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
    {"assume", .kind = OPT_SET, .at = AT(assume), .value = "WHAT",
     .choices = "fsdp2-tp-2.3|order|lost-keys",
     .help = "fsdp2-tp-2.3: FSDP2 with TP of torch 2.3 or 2.4 wrote SRC; its files record the "
             "wrong order of shards; order: the optimizer received the parameters in the "
             "order of model.parameters(); lost-keys: keys of the state that the metadata lists "
             "without a tensor or an object are omitted (DCP-KEY-LOST); repeatable"},
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
     .help = "select only tensors whose name matches, with or without its outer key; '*' matches "
             "dots too; repeatable"},
    {"exclude", .kind = OPT_LIST, .at = AT(exclude), .value = "GLOB", .words = OPT_WORDS_TENSORS,
     .help = "omit tensors whose name matches, with or without its outer key; repeatable"},
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
    {0},
};

const opt_row options_dequantize[] = {
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

const opt_row options_max_shard[] = {
    {"max-shard-size", .kind = OPT_SIZE, .at = AT(max_shard_nbytes), .value = "SIZE",
     .help = "largest file of a Hugging Face folder; default 50GB"},
    {0},
};

const opt_row options_align[] = {
    {"align", .kind = OPT_SIZE, .at = AT(align_nbytes), .value = "SIZE",
     .help = "dcp: align the data of every tensor to SIZE bytes, such as 4096"},
    {0},
};

const opt_row options_device_type[] = {
    {"device-type", .kind = OPT_TEXT, .at = AT(device_type), .value = "D",
     .help = "pt-ranks: device type of the mesh; default cuda"},
    {0},
};

const opt_row options_hdf5_groups[] = {
    {"hdf5-groups", .kind = OPT_FLAG, .at = AT(hdf5_groups),
     .help = "hdf5: dots in names separate groups: layers.0.weight becomes /layers/0/weight"},
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
    {"html", .kind = OPT_TEXT, .at = AT(html), .value = "FILE", .words = OPT_WORDS_FILES,
     .help = "write the report to FILE as a web page instead; replaces only such a page"},
    {0},
};

const opt_row options_resume[] = {
    {"resume", .kind = OPT_FLAG, .at = AT(resume),
     .help = "continue an earlier run with --resume that was killed, if SRC and the options are "
             "the same"},
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
     .choices = "auto|always|never",
     .help = "show progress: auto (a bar on a terminal, elsewhere a line every 30 seconds), "
             "always (also a line for each phase) or never"},
    {"json", .kind = OPT_FLAG, .at = AT(json), .help = "report as JSON, on failure too"},
    {0},
};

const opt_row options_terminal[] = {
    {"no-pager", .kind = OPT_FLAG, .at = offsetof(cli, no_pager),
     .help = "do not show the report in a pager"},
    {"color", .kind = OPT_CHOICE, .at = offsetof(cli, color), .value = "WHEN",
     .choices = "auto|always|never",
     .help =
         "colours in reports and messages: auto (on a terminal, unless NO_COLOR is set), always "
         "or never"},
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
