/* checkpoint.h: an open checkpoint, and what the files of open/ share:
 *
 *     context.c           logging, progress, cancellation, warnings
 *     missing_files.c     the files that FILE-MISSING is about
 *     named_tensors.c     all tensors that an error is about
 *     open_ranks.c        path -> the files that the ranks of a group find there
 *     probe.c             a path or folder -> the input of the format probes
 *     open.c              path -> format reader -> sealed catalogue, parts
 *     search_folders.c    checkpoints below a folder; later_steps.c: steps in which there is none
 *     nested_folders.c    folders below a checkpoint that it does not read
 *     inner_load.c        tensors inside objects
 *     model_adapter.c     flat parameters: unflattened by a model description
 *     shard_adapter.c     flat parameters that the checkpoint itself describes
 *     rekey_adapter.c     optimizer keys: numbers, names or flattened (parameters: rekey_candidates.c)
 *     derived_checkpoint.c a checkpoint made of the model part of another; memory_checkpoint.c: of memory
 *     dequantized_checkpoint.c quantized weights as bfloat16
 *     averaged_checkpoint.c the average of several checkpoints
 *     ema_checkpoint.c    the moving average that an optimizer holds
 *     average_order.c     their training steps, their config.json, adapters
 *     average_match.c     tensors and objects of the inputs of an average
 *     average_adapters.c  configs of adapters that are averaged; folders of PEFT
 *     merged_checkpoint.c adapters merged into the weights
 *     mapped_checkpoint.c a checkpoint under the names that a tensor map gives it
 *     common_state.c      what the ranks of Megatron-Core have in common; megatron_run.c for callers
 *     training_arguments.c  arguments of a Megatron-Core training, for a tensor map
 *     adapter_checkpoint.c one adapter, as PEFT saves it; adapter_config.c has its config
 *     map_of_like.c       the tensor maps for the names of a checkpoint
 *     model_config.c      config.json and other small files of a model folder
 *     recorded_steps.c    training steps that the checkpoint records; step_evidence.c: whether they are of two saves
 *     step_manifest.c     JSON with the step of a trainer; step_rows.c: all such files; step_records.c: against the folder's name
 *     trainer_name.c      the program that wrote the checkpoint
 *     other_weights.c     other weights in the same folder
 *     weight_sizes.c      weights without elements, sizes that contradict config.json; weights_names.c: names of their files
 *     lost_weights.c      folders whose model is lost; lost_beside.c: others beside; layer_*.c: tensors that layers lack
 *     shard_gaps.c        the only shard that is left; unfinished_files.c: incomplete downloads and outputs
 *     model_parallel_files.c other files of model-parallel ranks
 *     state_files.c       files of a trainer's state beside the weights, for callers; other_files.c: all others
 *     adapters_public.c   adapters for callers
 *     catalogue_public.c  the catalogue for callers
 *     findings_public.c   the table of findings for callers
 */
#ifndef FSDPCK_OPEN_CHECKPOINT_H
#define FSDPCK_OPEN_CHECKPOINT_H

#include <pthread.h>

#include "average/average.h"
#include "base/log.h"
#include "base/pool.h"
#include "base/progress.h"
#include "formats/format.h"
#include "fsdpck.h"
#include "group/group.h"
#include "lora/lora_check.h"
#include "lora/lora_extract.h"
#include "lora/merge.h"
#include "map/dequantize.h"
#include "open/nested_folders.h"
#include "select/select.h"
#include "statedict/per_rank.h"
#include "statedict/rekey.h"
#include "statedict/unflatten.h"

/* Warnings that a context keeps. */
#define CONTEXT_WARNINGS_MAX 1000u

/* Missing files that a context keeps, and names of tensors for an error. */
#define CONTEXT_MISSING_MAX 1000000u

typedef struct missing_file {
    char *folder; /* not escaped */
    char *name;
} missing_file;

struct fsdpck_context {
    logger log;
    fsdpck_log_fn user_fn;
    void *user_arg;
    cancel_token cancel;
    progress progress;
    group *group;  /* the ranks that share the work; NULL: one process */
    group *joined; /* by fsdpck_context_join: equal to group, unless work_alone set it aside */
    group_watch watch;
    pthread_mutex_t warnings_lock; /* log is called from any thread */
    fsdpck_warning warnings[CONTEXT_WARNINGS_MAX];
    size_t warnings_count;
    bool warnings_more;    /* more than are kept */
    missing_file *missing; /* likewise under warnings_lock */
    size_t missing_count, missing_capacity;
    struct named_tensors *named; /* likewise; the newest first */
    struct open_record *record;  /* receives log lines too (open_record.h); NULL: none does */
};

/* What Megatron-Core records of a run, see fsdpck_megatron. */
typedef struct megatron_run {
    bool known, found, is_unread;
    char version[16], sharding[48];
    int64_t iteration, world_size, tensor_parallel, pipeline_parallel, expert_parallel,
        context_parallel;
} megatron_run;

#define CHECKPOINT_STEPS_MAX 8u

typedef struct recorded_step {
    int64_t step;
    char *source;
} recorded_step;

/* An adapter of LoRA, for callers (adapters_public.c). */
typedef struct found_adapter {
    uint32_t name; /* in fsdpck_checkpoint.adapter_names */
    uint64_t tensors, nbytes, modules, rank_min, rank_max, saved_modules, token_modules;
    bool has_magnitude;
} found_adapter;

/* A file of the trainer's state beside the weights (state_files.c). */
typedef struct found_state_file {
    char *path;
    const char *name; /* in `path` */
    uint64_t nbytes;
    bool inspected, is_model, is_no_optimizer, is_fp16, has_episodes; /* the content is known; no doubt of these */
    fsdpck_state_kind kind;
    uint64_t tensors, tensor_nbytes;
    int64_t step, recorded, ranks, scheduler; /* the last three: of a file of step_rows.h; -1: unknown */
    double epoch; /* of TRAINER_STATE_JSON; -1: unknown */
} found_state_file;

struct fsdpck_checkpoint {
    fsdpck_context *ctx;
    char *path;         /* the path that was opened, maybe below the requested one */
    char *model_path;   /* of the description; NULL where there is none */
    char *entered_from; /* the folder that was given, if `entered` */
    bool entered, opaque_calls;
    probe_input probe;
    const format_reader *format;
    void *self; /* the reader's */
    budget metadata;
    catalogue cat; /* the catalogue that all callers use */
    source src;
    /* With a model description: the reader's catalogue and source, which cat and src adapt. */
    catalogue read;
    source read_src;
    unit_list units;
    optim_groups optimizers; /* of the description */
    strtab param_order;      /* its parameters in the order of model.parameters() */
    flat_adapter *adapter;   /* NULL: the reader's catalogue is cat itself */
    checkpoint_parts parts;
    vec ties;                   /* tied_pair, from the model description */
    char *mesh;                 /* as text; NULL where none is known */
    uint64_t sharded_otherwise; /* tensors that the inferred mesh does not explain */
    recorded_step steps[CHECKPOINT_STEPS_MAX];
    size_t steps_count;
    bool steps_known;
    megatron_run megatron;
    bool adapters_known, inner_loaded; /* checkpoint_list_adapters, checkpoint_load_inner have run */
    vec adapters;        /* found_adapter */
    strtab adapter_names;
    bool state_files_known, other_files_known; /* trainer_state_list, other_files_list have run */
    vec state_files, other_files;              /* found_state_file */
    uint64_t other_files_more;                 /* that are not listed */
    struct remote_folder *remote_files; /* on other hosts; NULL: all ranks read the same files */
    table_file tables;     /* of the catalogue and the reader, shared by ranks (open_once.h) */
    format_found_fn found; /* only while opening, as found_ctx */
    void *found_ctx;
    fsdpck_error damage; /* why no bytes can be read (damaged.h); status OK: they can */
    /* With a tensor map, or dequantized: the checkpoint that this is made of, which owns probe,
     * format, self and remote_files. Otherwise NULL. */
    fsdpck_checkpoint *base;
    dequantizer *dequantizer;
    uint64_t dequantized; /* tensors, here or in `base` */
    bool unquantized;     /* with --dequantize: no weight is quantized, or none was */
    /* With adapters merged; checkpoints of adapters beside, NULL for those inside. */
    merger *merger;
    fsdpck_checkpoint **beside;
    size_t beside_count;
    fsdpck_merged merged;
    fsdpck_merged_adapter **merged_adapters; /* of `merged` */
    tensor_map *map;
    tensor_map *map_forward; /* import: the map that `map` inverts; else NULL */
    map_adapter *mapper;
    lora_extract *extract; /* only one adapter's tensors; else NULL */
    char *lora_name;       /* then: its name */
    char *lora_origin;     /* then: the file that its config comes from, "" for none */
    text_buf lora_config;  /* then: adapter_config.json */
    char *map_name;        /* as given, or as chosen */
    char *map_config;      /* the file of --config; else NULL */
    char *map_text;        /* of a file: it may be a pipe, which is read once */
    size_t map_nbytes;
    char map_chosen_for[64]; /* the model type that it was chosen for; "" if it was given */
    text_buf map_variables;
    /* An average: its inputs, with the base of a task arithmetic last. `base` is one of them, which the
     * caller closes. */
    bool borrows_base, owns_inputs;
    averager *average;
    fsdpck_checkpoint **inputs;
    size_t input_count;
    average_rule average_rule;
    int64_t *average_steps;   /* by input without the base; -1: unknown */
    vec averaged;             /* uint32_t: tensors of `cat` that are computed */
    select_only average_only; /* owned: the tensors and objects that were requested */
    vec average_tensors;      /* uint32_t: as average_request.tensors */
    cat_metadata average_texts; /* that the inputs have in common */
};

/* The mesh over which a catalogue's tensors are sharded: the one with the most ranks, then the most
 * dims, as rank files also name slices of it. NULL without a mesh. */
const mesh *catalogue_largest_mesh(const catalogue *c);

/* missing_files.c: keeps a line of log_missing_file; drops those of a folder, and the names of tensors for its errors,
 * or all for NULL. */
void missing_files_keep(fsdpck_context *ctx, const log_line *line);
void missing_files_drop(fsdpck_context *ctx, const char *parent);
/* named_tensors.c: keeps names, escaped and each with its NUL, of an error that is complete; takes their memory. */
void named_tensors_keep(fsdpck_context *ctx, const fsdpck_error *what, text_buf *names);
void named_tensors_drop(fsdpck_context *ctx, const char *path); /* likewise */

/* Copies a caller's options over defaults; `from` may be NULL. Errors: USAGE. */
fsdpck_status open_options_take(fsdpck_open_options *o, const fsdpck_open_options *from,
                                fsdpck_error *err) FSDPCK_MUST_CHECK;

/* fsdpck_open without checkpoint_warn_lost. */
fsdpck_status checkpoint_open_converted(fsdpck_context *ctx, const char *path,
                                        const fsdpck_open_options *options, fsdpck_checkpoint **out,
                                        fsdpck_error *err) FSDPCK_MUST_CHECK;
/* fsdpck_open with a callback for every error (open_request.found; may be NULL). */
fsdpck_status checkpoint_open(fsdpck_context *ctx, const char *path,
                              const fsdpck_open_options *options, format_found_fn found,
                              void *found_ctx, fsdpck_checkpoint **out,
                              fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Empty catalogues, lists and tables, whose memory c->metadata limits. */
void checkpoint_init_tables(fsdpck_checkpoint *c);

/* For a file of one model-parallel rank: BADINPUT (FILE-MISSING) if files of lower ranks are missing,
 * a warning if those of other ranks are not read (model_parallel_files.c). */
fsdpck_status checkpoint_check_model_parallel(const fsdpck_checkpoint *c,
                                              fsdpck_error *err) FSDPCK_MUST_CHECK;
typedef fsdpck_status (*checkpoint_open_fn)(fsdpck_context *, const char *, const fsdpck_open_options *, format_found_fn, void *, fsdpck_checkpoint **, fsdpck_error *);
/* Warns of weights that are not read: others in the folder, other files of the set (other_weights.c). */
void checkpoint_warn_other_weights(fsdpck_checkpoint *c, const catalogue *read, checkpoint_open_fn open);
/* Whether most weights of the model have no elements, or slices have their names (weight_sizes.c). */
bool checkpoint_has_placeholders(const fsdpck_checkpoint *c, uint64_t *empty, uint64_t *weights);
void checkpoint_warn_placeholders(const fsdpck_checkpoint *c);
/* BADINPUT (EXPORT-CONFIG) if embeddings or norms have no elements, or no embedding has the sizes that the
 * folder's config.json states. */
fsdpck_status checkpoint_check_sizes(fsdpck_checkpoint *c, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* BADINPUT (WEIGHTS-LOST): lost_weights.c. optimizer: also if only the state of the optimizer or of the trainer is
 * there. */
fsdpck_status checkpoint_check_lost(const fsdpck_checkpoint *c, bool optimizer,
                                    fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Warns of WEIGHTS-LOST if the folder that was given has only the optimizer, or only a trainer's state. */
void checkpoint_warn_lost(const fsdpck_checkpoint *c, checkpoint_open_fn open);
void checkpoint_warn_lost_whole(const fsdpck_checkpoint *c); /* what checkpoint_check_lost refuses */
/* The part of `path` below `above`; NULL if it is elsewhere. */
const char *checkpoint_path_below(const char *path, const char *above);
/* FILE-UNFINISHED: the path is an output of fsdpck before its commit, or NeMo marks it as unfinished; a file that was
 * read is not completely downloaded (unfinished_files.c). */
fsdpck_status checkpoint_check_partial(const char *path, fsdpck_error *err) FSDPCK_MUST_CHECK;
fsdpck_status checkpoint_check_downloads(const fsdpck_checkpoint *c, const catalogue *read,
                                         fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Reads an object that opening the checkpoint skipped. */
fsdpck_status checkpoint_load_object(fsdpck_checkpoint *c, uint32_t object,
                                     fsdpck_error *err) FSDPCK_MUST_CHECK;

/* inner_load.c: loads all objects, once, as they may contain tensors, and finds c->parts again.
 * Skips an unreadable object with a warning. */
fsdpck_status checkpoint_load_inner(fsdpck_checkpoint *c, fsdpck_error *err) FSDPCK_MUST_CHECK;

/* model_adapter.c: a model description. It is read before the checkpoint, because readers use it to
 * interpret names. */
typedef struct described_model {
    const char *path; /* NULL: no description */
    model m;
    description_match match;
} described_model;

fsdpck_status described_model_read(fsdpck_checkpoint *c, const char *path, described_model *d,
                                   fsdpck_error *err) FSDPCK_MUST_CHECK;
void described_model_release(described_model *d);
/* Logs how many tensors c->adapter omitted. */
void checkpoint_log_dropped(const fsdpck_checkpoint *c);
/* Makes c->cat and c->src from the reader's (c->read, c->read_src). */
fsdpck_status model_adapter_apply(fsdpck_checkpoint *c, described_model *d,
                                  per_rank_policy per_rank, bool assume_order,
                                  fsdpck_error *err) FSDPCK_MUST_CHECK;
/* After c->parts are known: checks c->cat (MODEL-MISMATCH) and fills c->ties. */
fsdpck_status model_adapter_check(fsdpck_checkpoint *c, described_model *d,
                                  fsdpck_error *err) FSDPCK_MUST_CHECK;
/* rekey_adapter.c: applies --optim-keys to c->cat and finds c->parts again. m: NULL without a
 * description. assume_order: numbers follow the order of the model. */
fsdpck_status checkpoint_rekey(fsdpck_checkpoint *c, optim_keys to, const model *m,
                               bool assume_order, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* shard_adapter.c: if the checkpoint itself describes its flat parameters, replaces c->cat by the
 * unflattened catalogue. */
fsdpck_status shard_adapter_apply(fsdpck_checkpoint *c, const open_request *request,
                                  per_rank_policy per_rank, bool assume_order,
                                  fsdpck_error *err) FSDPCK_MUST_CHECK;
/* derived_checkpoint.c: a second checkpoint for the model part of `base`, still without tensors. *out is
 * NULL without memory; otherwise it is set also after a failure, and closing it closes `base`. */
fsdpck_status derived_checkpoint_new(fsdpck_checkpoint *base, fsdpck_checkpoint **out,
                                     fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Lists as skipped everything of c->base that is not of the model. */
fsdpck_status derived_checkpoint_skip_others(fsdpck_checkpoint *c,
                                             fsdpck_error *err) FSDPCK_MUST_CHECK;
/* dequantized_checkpoint.c: quantized weights as bfloat16; *out as for derived_checkpoint_new, but stays
 * NULL if no tensor is quantized. UNSUPPORTED (QUANT-KIND), BADINPUT (QUANT-SCALE). */
fsdpck_status checkpoint_dequantize(fsdpck_checkpoint *base, fsdpck_checkpoint **out,
                                    fsdpck_error *err) FSDPCK_MUST_CHECK;
struct model_config; /* warn_scales: QUANT-SCALE of blocks that it states, without --dequantize */
fsdpck_status checkpoint_warn_scales(fsdpck_checkpoint *c, const struct model_config *config, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* ema_checkpoint.c: the moving average in the optimizer of `base`, as a model; borrows `base`. *out may be set
 * after a failure. BADINPUT (AVERAGE-DIFFER) if it has none. */
fsdpck_status checkpoint_ema(fsdpck_checkpoint *base, fsdpck_checkpoint **out,
                             fsdpck_error *err) FSDPCK_MUST_CHECK;

/* merged_checkpoint.c: the adapters of `merge` merged into the weights; *out as for derived_checkpoint_new.
 * `beside` has the checkpoint of each adapter, NULL for those inside; *out keeps it, if set.
 * BADINPUT, UNSUPPORTED, USAGE (LORA-...). */
fsdpck_status checkpoint_merge(fsdpck_checkpoint *base, const fsdpck_merge_options *merge,
                               fsdpck_checkpoint **beside, fsdpck_checkpoint **out,
                               fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Whether an adapter of the options is inside the checkpoint, with its name or NULL. */
bool merge_adapter_is_self(const char *text, const char **name);
void checkpoint_merge_release(fsdpck_checkpoint *c);
/* The checkpoint, `c` or one that it is made of, into which adapters were merged; NULL: none. */
const fsdpck_checkpoint *checkpoint_merged(const fsdpck_checkpoint *c);
/* mapped_checkpoint.c: a second checkpoint for the model part of `base`, by options->map; *out as for
 * derived_checkpoint_new. USAGE and BADINPUT (MAP-...). */
fsdpck_status checkpoint_map(fsdpck_checkpoint *base, const fsdpck_open_options *options,
                             fsdpck_checkpoint **out, fsdpck_error *err) FSDPCK_MUST_CHECK;
void checkpoint_map_release(fsdpck_checkpoint *c);
/* The model's tensors, by the names that the model gives them: the inputs of a map. */
typedef struct map_inputs {
    strtab names;
    vec ids;    /* uint32_t: by input */
    vec inputs; /* map_input */
} map_inputs;
/* After checkpoint_load_inner. Release *l also after a failure. */
fsdpck_status map_inputs_list(fsdpck_checkpoint *base, map_inputs *l,
                              fsdpck_error *err) FSDPCK_MUST_CHECK;
void map_inputs_release(map_inputs *l);

/* False if config.json, which set the variables of the map of `c`, names a model type that the map is not
 * for, and sets the warning (MAP-MODEL). */
bool checkpoint_check_model(const fsdpck_checkpoint *c, fsdpck_error *what);

/* map_of_like.c: a map that was chosen. */
typedef struct like_map {
    const char *name; /* a constant; NULL: none is needed */
    char model_type[64];
} like_map;
/* UNSUPPORTED if it is no folder of safetensors files. */
fsdpck_status checkpoint_check_like(const fsdpck_checkpoint *like,
                                    fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Chooses the built-in map from the names of `c` to those of `like`, by its config.json. UNSUPPORTED
 * (EXPORT-MAP) if none fits, USAGE (EXPORT-MAP) if two do. */
fsdpck_status checkpoint_choose_map(fsdpck_checkpoint *c, const fsdpck_checkpoint *like,
                                    like_map *chosen, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* USAGE (EXPORT-MAP) if `map` is built in and not for the model type of `like`, but another one fits. */
fsdpck_status checkpoint_check_like_map(fsdpck_checkpoint *c, const fsdpck_checkpoint *like,
                                        const char *map, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Appends "NAME, NAME": the built-in maps whose `for` line lists names of `c`, and the model type if its
 * config.json states one (*by_type); nothing if a map applies to it already. *joined: none, but its experts
 * are in the layout of transformers 5. After checkpoint_load_inner. */
fsdpck_status checkpoint_print_maps(fsdpck_checkpoint *c, text_buf *out, bool *by_type,
                                    bool *joined, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* adapter_checkpoint.c: a checkpoint of one adapter of the model part of `base`, under the names of PEFT's
 * file; *out as for derived_checkpoint_new. like: the base model, to compare shapes, or NULL. USAGE, BADINPUT, UNSUPPORTED (LORA-...). */
fsdpck_status checkpoint_extract_adapter(fsdpck_checkpoint *base,
                                         const fsdpck_adapter_options *options,
                                         const fsdpck_checkpoint *like, fsdpck_checkpoint **out,
                                         fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Finds the adapters of the model part. Release *set also after a failure. */
fsdpck_status checkpoint_find_adapters(fsdpck_checkpoint *c, lora_set *set,
                                       fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Whether the name of some tensor may be that of an adapter's tensor. */
bool adapters_are_likely(const catalogue *c);
/* Tensors of adapters by their names alone. */
uint64_t adapters_count_tensors(const catalogue *c);
/* average_adapters.c: a folder of one adapter, as PEFT saves it. */
bool checkpoint_is_adapter_folder(const fsdpck_checkpoint *c);
/* Fills c->adapters, once; without memory it stays empty. */
void checkpoint_list_adapters(fsdpck_checkpoint *c);
/* megatron_run.c: the iteration that Megatron-Core records beside the tensors; -1: none. */
int64_t checkpoint_iteration(fsdpck_checkpoint *c);
/* UNSUPPORTED (MEGATRON-FORMAT) if only the file of one of several model-parallel ranks was found below the
 * folder that was given. */
fsdpck_status checkpoint_check_megatron_rank(fsdpck_checkpoint *c,
                                             fsdpck_error *err) FSDPCK_MUST_CHECK;
/* If the target `to` contains an optimizer of Megatron-Core in buckets: UNSUPPORTED (MEGATRON-BUCKETS) if only the
 * optimizer was requested, otherwise a warning. */
fsdpck_status checkpoint_check_buckets(const fsdpck_checkpoint *c, const catalogue *to,
                                       bool optimizer_only, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* adapter_config.c: the config of an adapter, from a file or made. */
typedef struct adapter_source {
    char *path; /* NULL: from the options alone */
    char *text; /* adapter_config.json with the values of options; NULL: to be made from `facts` */
    size_t nbytes;
    lora_facts facts;
    char task_type[64], components[128]; /* facts.task_type, of lora_train_meta.json; of a header with several configs */
} adapter_source;
/* name: the adapter, NULL for the only one; is_one_of: the checkpoint has several, and a file beside
 * it is that of `default`. options: NULL to search only the folders of the checkpoint. */
fsdpck_status adapter_source_find(const fsdpck_checkpoint *c, const char *name, bool is_one_of,
                                  const fsdpck_adapter_options *options, adapter_source *found,
                                  fsdpck_error *err) FSDPCK_MUST_CHECK;
void adapter_source_release(adapter_source *found);
/* Records the parameter of numbered optimizer state, if the loaded objects determine it
 * (cat_tensor.param). */
fsdpck_status checkpoint_infer_params(fsdpck_checkpoint *c, const model *m, bool assume_order,
                                      fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Mentions flat parameters in the origin's note. */
void checkpoint_note_flat(fsdpck_checkpoint *c);
/* BADINPUT (MODEL-NEEDED) if the target `to` contains flat parameters. */
fsdpck_status checkpoint_check_flat(const fsdpck_checkpoint *c, const catalogue *to,
                                    fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Collects the input of the format probes. Release it with probe_release. */
fsdpck_status probe_gather(const char *path, probe_input *in, fsdpck_error *err) FSDPCK_MUST_CHECK;
void probe_release(probe_input *in);
/* Lists the folder in->dir, without files that macOS stores beside others: "._NAME". */
fsdpck_status probe_list_entries(probe_input *in, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* The first reader that accepts it, or NULL; *near_miss may then contain a hint. */
const format_reader *probe_readers(const probe_input *in, const char **near_miss);

/* search_folders.c: checkpoints below a folder, in breadth-first order. */
#define SEARCH_RESULTS_MAX 10u
#define SEARCH_ENTRIES_MAX 16384u /* folders, and files with a suffix of weights */
typedef struct search_result {
    char *paths[SEARCH_RESULTS_MAX];
    size_t count;      /* in paths */
    size_t more;       /* found, but not in paths: checkpoints, */
    size_t more_state; /* and files of a trainer's state */
    bool is_limited;   /* SEARCH_ENTRIES_MAX was reached: further checkpoints may exist */
    bool unread;       /* some entry could not be read; `why`: the first error */
    fsdpck_error why;
    /* Folders in which a trainer stores a part of its state. */
    char *parts[SEARCH_RESULTS_MAX];
    size_t part_count;
    const struct foreign_kind *foreign; /* foreign_folders.h, of foreign_path; NULL: none */
    char *foreign_path;
} search_result;
/* folder/name, to be freed; NULL without memory. */
char *folder_path_join(const char *folder_path, const char *name);
/* Length of a file name without its weights suffix; the whole name if it has none. */
size_t weights_stem_nbytes(const char *name);
/* Whether it is a folder of devices, processes or settings, which the search skips. */
bool is_system_folder(const char *path);
/* search_state.c: removes files of a trainer's state from the result, unless nothing else was found. */
void search_omit_state(search_result *found);
/* Without a trainer's state, if there is anything else. */
fsdpck_status search_folders(const char *path, search_result *found,
                             fsdpck_error *err) FSDPCK_MUST_CHECK;
/* All that was found are files of a trainer's state, such as optimizer.bin. BADINPUT (WEIGHTS-LOST). */
bool search_has_state_only(const search_result *found);
fsdpck_status search_fail_state_only(const search_result *found, const char *path,
                                     fsdpck_error *err);
/* SAVE-INCOMPLETE if one part's folder contains no checkpoint but its sibling does. SRC-FOREIGN if only folders of
 * other formats were found. */
fsdpck_status search_check_parts(const search_result *found, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Whether the names differ only in one number, counting from 0, as one file per rank does.
 * *pattern: such as "r{r}.pt". */
bool search_rank_pattern(const search_result *found, text_buf *pattern);
void search_result_release(search_result *found);
/* Whether a trainer stores a part of its state in a folder of this name; of some names, only if it is
 * empty. */
bool search_is_part(const probe_input *in, const char *path);

/* recorded_steps.c: what DeepSpeed counts; -1: unknown. `global`: steps of the training, with those that loss
 * scaling skipped; `optimizer`, `lowest`: the most and the fewest steps of a parameter. */
typedef struct deepspeed_steps {
    int64_t global, skipped, optimizer, lowest;
} deepspeed_steps;
void checkpoint_deepspeed_steps(fsdpck_checkpoint *c, deepspeed_steps *steps);
/* The most steps of a parameter in the state of an optimizer; -1: unknown. */
int64_t checkpoint_optimizer_step(fsdpck_checkpoint *c);
/* step_records.c: the step in a file of the trainer (*of_trainer) or else an object or tensor, and that in the name of the folder.
 * *recorded_in: the file or the name, valid as long as c. False if one of them is unknown. */
bool checkpoint_step_of_name(fsdpck_checkpoint *c, int64_t *recorded, int64_t *named,
                             const char **recorded_in, bool *of_trainer);

/* open_ranks.c */
/* Collective: the ranks agree on st. Like probe_gather, into c->probe, over the files of all hosts. */
fsdpck_status open_probe_ranks(fsdpck_checkpoint *c, fsdpck_status st, const char *path,
                               const fsdpck_open_options *o, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Collective, if ranks hold different parts of c->probe: checkpoints that any rank finds below. */
fsdpck_status open_search_ranks(fsdpck_checkpoint *c, search_result *found,
                                fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Collective. Checks that all ranks found one reader, or none, to which --source-local applies. */
fsdpck_status open_agree_format(fsdpck_checkpoint *c, const fsdpck_open_options *o,
                                fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Threads to use: `asked`, or the number that affinity and cgroup allow if 0. */
unsigned thread_count(unsigned asked);

/* Escaped copy for a report, to be freed; NULL without memory. */
char *escaped_copy(const char *text);

#endif
