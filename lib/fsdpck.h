/* fsdpck.h: inspect, verify, consolidate, reshard, digest and compare sharded PyTorch checkpoints, without
 * Python. The library that the program fsdpck uses.
 *
 * Calling sequence, here for consolidating a DCP folder into one safetensors file:
 *
 *     fsdpck_error err;
 *     fsdpck_error_init(&err);
 *     fsdpck_context *ctx = fsdpck_context_new();
 *     fsdpck_checkpoint *src = NULL;
 *     fsdpck_report *report = NULL;
 *     fsdpck_status st = fsdpck_open(ctx, "step-1000", NULL, &src, &err);     // metadata only
 *     if (st == FSDPCK_OK)
 *         st = fsdpck_consolidate(ctx, src, "model.safetensors", NULL, &report, &err);
 *     if (st != FSDPCK_OK)
 *         fprintf(stderr, "%s: %s\n", err.path, err.message);
 *     fsdpck_report_free(report);
 *     fsdpck_close(src);
 *     fsdpck_context_free(ctx);
 *
 * Guarantees: the library executes nothing from an input. An output is absent or complete under its final
 * name. Every element of it comes from exactly one element of the input, or the call fails.
 *
 * Terms: a `tensor` has a name (FQN), a dtype and a global shape. A `chunk` is a box of a tensor that
 * one file stores. An `object` is anything else in a checkpoint. Shapes, offsets and sizes are in
 * elements; members called nbytes are in bytes. Indices count from 0.
 *
 * Ownership: each handle has a function that frees it; that function accepts NULL. Texts and arrays
 * that a call returns belong to the handle and live as long as it, unless the call says otherwise.
 * Options are borrowed for the call. A checkpoint must outlive everything made of it, and a context
 * everything opened with it.
 *
 * Structs begin with struct_nbytes where a later version may add members. Initialize them with
 * FSDPCK_INIT (fsdpck_status.h) before each call; NULL instead of options means the defaults. The
 * library copies the smaller of both sizes, in either direction. Options whose struct_nbytes is 0, or
 * too small for itself, are USAGE. Nothing is written into a result with such a size.
 *
 * Pointers must not be NULL unless the text of the call or member allows it. `err` and `options` may
 * always be NULL, and functions that free a handle accept NULL. For an index out of range, getters that
 * return nothing fill zeros; those with a status return USAGE.
 *
 * Options are checked before any work. A value outside its range is USAGE; the error names both.
 *
 * Errors: calls that can fail return a status and fill *err, which may be NULL. The comment of a call
 * lists its statuses, with the finding's id where that is fixed. All of them can also return LIMIT
 * (out of memory) and CANCELLED. On failure, outputs such as *out are NULL.
 *
 * Threads: use one handle in one thread at a time. The library creates its own threads inside a call.
 * fsdpck_context_cancel and fsdpck_context_progress may be called from any thread at any time. Contexts
 * in several threads share libhdf5, one call at a time. While one of them reads or writes HDF5, the
 * program must not call libhdf5 in another thread.
 *
 * Limits: the headers need C11 or C++11. The library allocates with malloc, and no hook replaces it.
 * Elements of tensors: fsdpck_load.h reads them into memory of the caller, fsdpck_memory.h writes them from there. */
#ifndef FSDPCK_H
#define FSDPCK_H

#include <stddef.h>
#include <stdint.h>

#include "fsdpck_adapter.h"
#include "fsdpck_formats.h"
#include "fsdpck_status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Version of the running library, such as "0.1.0"; a constant. */
FSDPCK_API const char *fsdpck_version(void);

/* Name number `index` of a kind of component: "reader", "writer", "engine" or "group". Returns a
 * constant; NULL after the last and for other kinds. *description (may be NULL) is one line. */
FSDPCK_API const char *fsdpck_builtin(const char *kind, size_t index, const char **description);

/* Writes one line on the support that this machine has for an engine or a reader's library, "" if not
 * applicable. At most capacity_nbytes, always terminated. May load shared libraries. Returns dst. */
FSDPCK_API char *fsdpck_builtin_state(const char *name, char *dst, size_t capacity_nbytes);

/* ---- context: watching and stopping long work ---- */

/* Created first and freed last. Holds the log function, warnings, progress and the group of processes. */
typedef struct fsdpck_context fsdpck_context;

/* Importance of a log line. */
typedef enum fsdpck_log_level {
    FSDPCK_LOG_WARNING = 1, /* also kept for fsdpck_context_warning */
    FSDPCK_LOG_NOTE = 2,    /* for the user, not a problem */
    FSDPCK_LOG_DETAIL = 3   /* for -v */
} fsdpck_log_level;

/* Receives one line without a newline, safe for a terminal, borrowed for the call. The library may
 * call it from any of its threads. Of the library's functions, it may call fsdpck_context_warning,
 * fsdpck_context_progress and fsdpck_context_cancel. */
typedef void (*fsdpck_log_fn)(void *arg, fsdpck_log_level level, const char *text);

/* Returns NULL if memory runs out. */
FSDPCK_API fsdpck_context *fsdpck_context_new(void);

/* Frees a context, after the handles that were made with it. */
FSDPCK_API void fsdpck_context_free(fsdpck_context *ctx);

/* Sets the log function, NULL for none. Call it before the first long call; `arg` is borrowed. */
FSDPCK_API void fsdpck_context_set_log(fsdpck_context *ctx, fsdpck_log_fn fn, void *arg);

/* A reason why a result may be incomplete or wrong: a suspect order of rows, tensors left out, ... A
 * warning does not make a call fail. */
typedef struct fsdpck_warning {
    size_t struct_nbytes;
    fsdpck_finding_id finding; /* FSDPCK_FINDING_NONE if it has none */
    const char *message;       /* as the log function received it */
    const char *next;          /* the next step for the user, or "" */
} fsdpck_warning;

/* Warning number `index` of all calls with this context, in order. Returns 0 after the last. The
 * first 999 are kept; if there are more, entry 1000 says so (LIMIT-WARNINGS). Texts belong to the
 * context. May be called from any thread. */
FSDPCK_API int fsdpck_context_warning(fsdpck_context *ctx, size_t index, fsdpck_warning *warning);

/* The names of the files that a finding FILE-MISSING is about, one per call; an error has space for a
 * few only. *cursor begins at 0. Returns NULL after the last, and at once if the files are not known by
 * name. Names are relative to what->path, not escaped, and at most a million. They belong
 * to the context until the same path is opened again:
 *
 *     size_t cursor = 0;
 *     while ((name = fsdpck_context_missing_file(ctx, &err, &cursor)) != NULL)
 *         puts(name);
 */
FSDPCK_API const char *fsdpck_context_missing_file(fsdpck_context *ctx, const fsdpck_error *what,
                                                   size_t *cursor);

/* Stops the running call soon: it removes its output and returns FSDPCK_CANCELLED. Later calls with this
 * context return it too: to go on, create a new context. May be called from any thread; async-signal-safe. */
FSDPCK_API void fsdpck_context_cancel(fsdpck_context *ctx);

/* Progress of the running call: *phase is a constant text, "" when idle; *total_nbytes is 0 if
 * unknown. Each pointer may be NULL. May be called from any thread. */
FSDPCK_API void fsdpck_context_progress(const fsdpck_context *ctx, const char **phase,
                                        uint64_t *done_nbytes, uint64_t *total_nbytes);
/* Of the bytes done: those that an earlier call with `resume` had written, and that were read and compared
 * only. From any thread. */
FSDPCK_API uint64_t fsdpck_context_kept(const fsdpck_context *ctx);

/* ---- several processes ---- */

/* Processes started together by mpirun or srun can share the work of fsdpck_open, fsdpck_consolidate,
 * fsdpck_reshard, fsdpck_digests_new, fsdpck_diff_new, fsdpck_verify_new, fsdpck_files_new and
 * fsdpck_manifest_write. These calls are then collective: every rank makes the same calls with the
 * same arguments, and all ranks get the same status. The output's file system must be visible to all
 * ranks. Without a launcher there is one rank, and the calls below do nothing.
 *
 *     st = fsdpck_context_join(ctx, &err);
 *     ... open, consolidate ...; rank 0 prints
 *     fsdpck_context_leave(ctx, st);
 */

/* Joins the group. Call it at most once, before the first collective call. Errors: USAGE (started by
 * torchrun, or the ranks run different builds), UNSUPPORTED (a build without MPI). */
FSDPCK_API fsdpck_status fsdpck_context_join(fsdpck_context *ctx,
                                             fsdpck_error *err) FSDPCK_MUST_CHECK;

/* This process's rank, 0 without a group. */
FSDPCK_API unsigned fsdpck_context_rank(const fsdpck_context *ctx);

/* Number of ranks, 1 without a group. */
FSDPCK_API unsigned fsdpck_context_world_size(const fsdpck_context *ctx);

/* A rank that sends nothing for this time counts as lost, and calls return PEER. Default: 60 s. */
FSDPCK_API void fsdpck_context_set_peer_timeout(fsdpck_context *ctx, unsigned seconds);

/* Returns 1 if a rank is lost. */
FSDPCK_API int fsdpck_context_lost_peer(const fsdpck_context *ctx);

/* From now on this rank works alone; the other ranks must make no further collective calls. */
FSDPCK_API void fsdpck_context_detach(fsdpck_context *ctx);

/* Collective: combines the ranks' statuses of a step of the caller's own. Returns OK if `status` is OK
 * on all ranks, else the failure of one of them, with its error. */
FSDPCK_API fsdpck_status fsdpck_context_agree(fsdpck_context *ctx, fsdpck_status status,
                                              fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Collective: copies nbytes at `bytes` from rank 0 to all ranks. */
FSDPCK_API fsdpck_status fsdpck_context_broadcast(fsdpck_context *ctx, void *bytes, size_t nbytes,
                                                  fsdpck_error *err) FSDPCK_MUST_CHECK;

/* The last collective call, by all ranks, with the final status. If a rank is lost, this ends all
 * processes of the launcher. */
FSDPCK_API void fsdpck_context_leave(fsdpck_context *ctx, fsdpck_status status);

/* ---- opening and walking a checkpoint ---- */

/* The metadata of a checkpoint, read completely and validated. Its files stay on disk. */
typedef struct fsdpck_checkpoint fsdpck_checkpoint;

/* Handling of plain tensors and objects that differ between the files of ranks. Equal copies count once. */
typedef enum fsdpck_per_rank {
    FSDPCK_PER_RANK_AUTO, /* tensors: an error. Objects: kept if the output can hold one per rank and
                              the number of ranks stays; else left out and listed */
    FSDPCK_PER_RANK_KEEP,  /* keep all; tensors become NAME.rank0, NAME.rank1, ... */
    FSDPCK_PER_RANK_FIRST, /* keep the one of the lowest rank */
    FSDPCK_PER_RANK_DROP,  /* leave all of them out */
    FSDPCK_PER_RANK_ERROR  /* fail on objects too */
} fsdpck_per_rank;

/* Keys of optimizer state. Each optimizer, found by its param_groups, is converted. Names come from
 * the checkpoint (param_names, or unique shapes in its model part), from model_path, or from assume_order. */
typedef enum fsdpck_optim_keys {
    FSDPCK_OPTIM_KEYS_KEEP, /* as stored */
    FSDPCK_OPTIM_KEYS_NAME, /* state.emb.weight.exp_avg; params: names */
    FSDPCK_OPTIM_KEYS_ID,   /* state.0.exp_avg; params: numbers, as in optimizer.state_dict() */
    FSDPCK_OPTIM_KEYS_FLAT  /* torch's flatten_optimizer_state_dict: one key per value */
} fsdpck_optim_keys;

/* How to read a checkpoint. Zeros are the defaults. */
typedef struct fsdpck_open_options {
    size_t struct_nbytes;
    const char *format;       /* name of a reader; NULL: detect it from the content */
    uint64_t source_ranks;    /* number of ranks that must be present; 0: any */
    int no_follow;            /* fail on symbolic links inside a folder */
    int opaque_calls;         /* keep unknown calls in the metadata; they never run */
    unsigned threads;         /* 0: as many as affinity and cgroup allow */
    uint64_t metadata_nbytes; /* memory limit for metadata; 0: half of the memory */
    /* Names of rank files, "{r}" for the rank and "{W}" for the number of ranks; NULL: the known ones
     * (model_world_size_{W}_rank_{r}.pt, pytorch_model_fsdp_{i}_rank{r}.bin, ...). Without `format`
     * it selects pt-ranks. */
    const char *rank_pattern;
    fsdpck_per_rank per_rank;
    /* FSDP2 with TP on a dim that does not divide evenly, written by torch 2.10 to 2.15 as a DCP
     * folder: compute boxes again that do not fit their blobs, if all of them then fit. */
    int repair_strided;
    /* FSDP2 with TP of torch 2.3 and 2.4: the files contain Shard(0), Shard(0), but TP sharded the
     * data first. FSDP1 with TP writes the same text for the other order, so only the user can
     * choose. */
    int assume_tp_first;
    /* Model description, fsdpck-model(5), to unflatten FSDP1's parameters; NULL: keep them flat. */
    const char *model_path;
    fsdpck_optim_keys optim_keys;
    int source_local; /* in a group: files of one name on several hosts differ, named "HOST:NAME" */
    const char *hdf5_separator; /* between the names of HDF5 groups and datasets; NULL: "." */
    /* Use the file's fill value for unwritten elements of HDF5 datasets; else errors (H5-UNWRITTEN). */
    int hdf5_fill;
    /* Numbers in optimizer state follow the order of the model's parameters within each param_group.
     * The files cannot confirm it. Without it, ambiguous numbers are errors (MODEL-NEEDED). */
    int assume_order;
    /* Tensor map, fsdpck-map(5): the name of a built-in one (fsdpck_builtin_map), or a file. Only the
     * model part then remains, with the names and layouts that the map gives it. NULL: none. */
    const char *map;
    const char *map_config; /* config.json, for the variables of the map, and for DST; NULL: none */
    const char *const *map_set; /* variables of the map: "NAME=N" */
    size_t map_set_count;
    /* A Hugging Face folder with the wanted names; borrowed for the call; or NULL. Its config.json is the
     * default of map_config. Without `map`, it and the names choose one, unless the names are equal. */
    fsdpck_checkpoint *like;
    int dequantize; /* read quantized weights, fsdpck-formats(5), as bfloat16: the model part alone */
    int map_import; /* apply the inverse of `map`; map_config is the checkpoint's own by default */
    const fsdpck_adapter_options *adapter; /* read one adapter alone, as PEFT saves it; or NULL */
    const fsdpck_merge_options *merge;     /* merge adapters into the weights; or NULL */
    int assume_lost_keys; /* keys without a tensor or an object (DCP-KEY-LOST) are a warning */
    int damaged;          /* set *out though files are missing or cut: it can be walked, not read */
} fsdpck_open_options;

/* Reads the metadata of the checkpoint at `path`, a folder or a file, or the only one in a folder. *out
 * is freed with fsdpck_close. Collective in a group. Errors: BADINPUT (malformed, incomplete or hostile),
 * UNSUPPORTED, IO, LIMIT, USAGE (several checkpoints below `path`; err.next lists them). */
FSDPCK_API fsdpck_status fsdpck_open(fsdpck_context *ctx, const char *path,
                                     const fsdpck_open_options *options, fsdpck_checkpoint **out,
                                     fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Frees a checkpoint, after everything that was made of it. */
FSDPCK_API void fsdpck_close(fsdpck_checkpoint *ckpt);

/* The part of a training state that a tensor or object belongs to. */
typedef enum fsdpck_part {
    FSDPCK_PART_MODEL,
    FSDPCK_PART_OPTIMIZER,
    FSDPCK_PART_OTHER,
    FSDPCK_PART_ALL /* in requests only */
} fsdpck_part;

/* "model", "optimizer", "other" or "all"; a constant. */
FSDPCK_API const char *fsdpck_part_name(fsdpck_part part);

/* Summary of a checkpoint. Texts are never NULL; "" means unknown or none. */
typedef struct fsdpck_info {
    size_t struct_nbytes;
    const char *path;          /* the folder or file that was opened */
    int entered;               /* `path` lies below the path that was given */
    const char *format;        /* "dcp" */
    const char *trainer;       /* program that wrote it */
    const char *torch_version; /* inferred from the bytes, such as "2.9 or newer" */
    const char *note;          /* a remark for the user, such as an unfinished save */
    const char *model_key;     /* outer key of the model; "": names are at the top */
    int64_t step;       /* of the folder's name or the .pt file; see fsdpck_get_step; -1: unknown */
    int64_t world_size; /* number of ranks that wrote it; -1: unknown */
    const char *mesh;   /* "dp=4,tp=2", as recorded or inferred from the chunks */
    uint64_t tensors, objects, files, chunks; /* limits of the indices below */
    uint64_t nelems, nbytes;                  /* of all tensors, consolidated */
    uint64_t part_tensors[3];                 /* this and the next two: by fsdpck_part */
    uint64_t part_nbytes[3], part_objects[3];
    uint64_t sharded_otherwise; /* tensors that the inferred mesh does not explain */
    int order_suspect;          /* rows may be in the wrong order, see assume_tp_first */
    int boxes_suspect;          /* no rank can have held these boxes, see repair_strided */
    uint64_t flat_parameters;   /* FSDP1's; only model_path can convert them */
    const char *model_path;     /* as given to fsdpck_open */
    uint64_t left_out;          /* items in an HDF5 file that are neither tensors nor objects */
    const char *left_out_kinds; /* "2 datasets of text, 1 link to nothing" */
    const char *part_rule;      /* one line: how model, optimizer and other were distinguished */
    fsdpck_format_id format_id; /* of `format` */
    const char *map;            /* as given to fsdpck_open, or as chosen */
    const char *map_variables;  /* its variables that have values: "heads=32, kv_heads=8" */
    const char *map_chosen_for; /* model type for which `map` was chosen; "" if it was given */
    uint64_t dequantized;       /* tensors that are read as bfloat16 (dequantize) */
    int map_import;             /* its inverse was applied */
    const char *map_not_made;   /* then: the names that it drops, separated by ", " */
    const char *map_tied;       /* then: "lm_head.weight = tok_embeddings.weight", added tensors */
    int has_adapter;            /* one adapter alone is read (open options) */
    const char *adapter, *adapter_config; /* then: its name, and the path of its config or "" */
    const fsdpck_merged *merged; /* adapters that were merged into the weights; NULL: none */
    int64_t recorded_world_size; /* ranks in checkpoint_manifest.json of VeOmni; -1: none */
    const char *step_source;     /* of `step`: "name of the folder" or "state in the files"; "" */
    uint64_t file_nbytes, part_nelems[3]; /* size of the files with tensors; as part_tensors */
} fsdpck_info;

/* Fills *info. Counts all tensors: takes time proportional to their number. */
FSDPCK_API void fsdpck_get_info(const fsdpck_checkpoint *ckpt, fsdpck_info *info);

/* Name and *text (may be NULL) of built-in tensor map `index`: constants. NULL after the last. */
FSDPCK_API const char *fsdpck_builtin_map(size_t index, const char **text);

/* One tensor. */
typedef struct fsdpck_tensor {
    size_t struct_nbytes;
    const char *name;   /* flat key; may contain any byte; terminated */
    size_t name_nbytes; /* without the terminator */
    const char *dtype;  /* torch's name: "float32" */
    unsigned itemsize_nbytes;
    unsigned ndim;           /* at most 64 */
    const uint64_t *shape;   /* ndim sizes */
    uint64_t nelems, nbytes; /* of the whole tensor */
    uint64_t first_chunk;    /* index of its first chunk, for fsdpck_get_chunk */
    uint64_t nchunks;        /* the others follow it */
    fsdpck_part part;
    int64_t alias; /* tensors with the same number >= 0 share one storage */
} fsdpck_tensor;

/* Tensor number `index`, below info.tensors. Constant time. */
FSDPCK_API void fsdpck_get_tensor(const fsdpck_checkpoint *ckpt, uint64_t index, fsdpck_tensor *t);

/* A box of a tensor and its location in a file. */
typedef struct fsdpck_chunk {
    size_t struct_nbytes;
    const char *file;       /* relative to info.path, "" if that is the file; NULL: no elements */
    int64_t rank;           /* that wrote it; -1: unknown */
    uint64_t offset_nbytes; /* in the file, of its bytes or of the blob that contains them */
    uint64_t nbytes;        /* of the same */
    uint64_t offsets[64];   /* ndim of the tensor, in elements */
    uint64_t sizes[64];     /* likewise */
} fsdpck_chunk;

/* Chunk number `index`, below info.chunks. Constant time. */
FSDPCK_API void fsdpck_get_chunk(const fsdpck_checkpoint *ckpt, uint64_t index, fsdpck_chunk *c);

/* Writes the simplest placement that explains the chunks of tensor number `tensor`: "Shard(0) on 4",
 * "Shard(0) on 3 of 4 ranks" (too few rows for all), "whole", "2-d grid 2x4", "with holes", ... At most capacity_nbytes, always terminated. */
FSDPCK_API void fsdpck_describe_chunks(const fsdpck_checkpoint *ckpt, uint64_t tensor, char *text,
                                       size_t capacity_nbytes);

/* One object. */
typedef struct fsdpck_object {
    size_t struct_nbytes;
    const char *name; /* as of a tensor */
    size_t name_nbytes;
    fsdpck_part part;
    uint64_t nbytes; /* stored; 0 if the metadata contains it */
    int64_t rank;    /* its rank if the objects of this name differ between ranks; else -1 */
} fsdpck_object;

/* Object number `index`, below info.objects. Constant time. */
FSDPCK_API void fsdpck_get_object(const fsdpck_checkpoint *ckpt, uint64_t index, fsdpck_object *o);

/* Formats object number `index` as one line of at most limit_nbytes, for people. Reads the object if
 * needed. The caller frees *text with free(). Errors: as of fsdpck_open. */
FSDPCK_API fsdpck_status fsdpck_print_object(fsdpck_checkpoint *ckpt, uint64_t index,
                                             size_t limit_nbytes, char **text,
                                             fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Writes nbytes of `text` with control characters, bidirectional marks and invalid UTF-8 as \xNN. At
 * most capacity_nbytes, always terminated; 4 * nbytes + 1 is enough. Returns dst. */
FSDPCK_API char *fsdpck_escape(char *dst, size_t capacity_nbytes, const char *text, size_t nbytes);

/* ---- options of the calls that read tensors ---- */

/* Each job has its own options, made of the parts below. NULL for a part means its defaults:
 *
 *     fsdpck_select_options select = FSDPCK_SELECT_OPTIONS_INIT;
 *     fsdpck_reshard_options options = FSDPCK_INIT(fsdpck_reshard_options);
 *     fsdpck_sharding_options sharding = FSDPCK_INIT(fsdpck_sharding_options);
 *     select.part = FSDPCK_PART_MODEL;
 *     sharding.world_size = 8;
 *     options.select = &select;
 *     options.sharding = &sharding;
 *     st = fsdpck_reshard(ctx, src, "step-1000-w8", &options, NULL, &err);
 */

/* Handling of objects. */
typedef enum fsdpck_objects {
    FSDPCK_OBJECTS_KEEP, /* written if the format can hold them; else left out and counted */
    FSDPCK_OBJECTS_DROP,
    FSDPCK_OBJECTS_OPAQUE, /* as KEEP, and unknown calls are kept; they never run */
    FSDPCK_OBJECTS_ERROR   /* fail on an object that the format cannot hold */
} fsdpck_objects;

/* Check of chunks that several files contain. */
typedef enum fsdpck_replicas {
    FSDPCK_REPLICAS_CRC,     /* compare recorded CRCs if present, else bytes */
    FSDPCK_REPLICAS_COMPARE, /* compare every byte */
    FSDPCK_REPLICAS_FIRST    /* trust the first */
} fsdpck_replicas;

/* Handling of a tensor with several names: a storage shared in the source, or a parameter that the
 * model description ties. */
typedef enum fsdpck_tied {
    FSDPCK_TIED_KEEP,  /* write all names; in a .pt file they share storage as in the source */
    FSDPCK_TIED_FIRST, /* write the first name only; safetensors files list the others */
    FSDPCK_TIED_LINK   /* pt and pt-ranks: one tensor under all names; else USAGE */
} fsdpck_tied;

/* AUTO: the member's comment names the default. */
typedef enum fsdpck_switch { FSDPCK_AUTO, FSDPCK_ON, FSDPCK_OFF } fsdpck_switch;

/* Tensors and objects to take, and their names and dtypes in the result. Initialize it with
 * FSDPCK_SELECT_OPTIONS_INIT. */
typedef struct fsdpck_select_options {
    size_t struct_nbytes;
    int part;                  /* fsdpck_part; -1: the call's default */
    fsdpck_switch clean_names; /* remove wrapper prefixes; AUTO: for safetensors and hf */
    const char *const *keys;   /* globs on cleaned names, with or without outer key; none: all */
    size_t keys_count;
    const char *const *exclude; /* globs, applied after keys */
    size_t exclude_count;
    const char *const *strip_prefix; /* removed from the start of names */
    size_t strip_prefix_count;
    const char *const *rename; /* "s/RE/TEXT/", applied in order */
    size_t rename_count;
    const char *const *dtype; /* "bf16" for all, or "GLOB=fp32" */
    size_t dtype_count;
    fsdpck_tied tied;
    fsdpck_objects objects;
    fsdpck_replicas replicas;
} fsdpck_select_options;

/* The defaults: zeros, and part -1. */
#if defined(__cplusplus)
#define FSDPCK_SELECT_OPTIONS_INIT                                          \
    ([] {                                                                   \
        fsdpck_select_options select_ = FSDPCK_INIT(fsdpck_select_options); \
        select_.part = -1;                                                  \
        return select_;                                                     \
    }())
#else
#define FSDPCK_SELECT_OPTIONS_INIT                                 \
    {                                                              \
        .struct_nbytes = sizeof(fsdpck_select_options), .part = -1 \
    }
#endif

/* The engine that copies and casts. */
typedef enum fsdpck_engine {
    FSDPCK_ENGINE_AUTO, /* as THREADS, in this version */
    FSDPCK_ENGINE_THREADS,
    FSDPCK_ENGINE_GPU /* fail with DEVICE without a usable GPU */
} fsdpck_engine;

/* Machine resources. Zeros are the defaults. */
typedef struct fsdpck_work_options {
    size_t struct_nbytes;
    unsigned threads; /* 0: as many as affinity and cgroup allow */
    uint64_t
        memory_nbytes; /* buffers, in addition to metadata; 0: 256 MiB (GPU: 1 GiB), less on small machines */
    fsdpck_engine engine;
} fsdpck_work_options;

/* Format of the output and how it is written. Zeros are the defaults. */
typedef struct fsdpck_output_options {
    size_t struct_nbytes;
    const char *format;        /* name of a writer; NULL: see the call */
    int force;                 /* replace an existing file, or a folder that is a checkpoint */
    int no_sync;               /* do not wait until the data is on disk */
    int read_back;             /* read the output again and compare it with the source's data */
    fsdpck_switch direct;      /* O_DIRECT; AUTO: for large files */
    int no_manifest;           /* folders: omit the manifest, fsdpck-manifest(5) */
    int sha256;                /* add each file's SHA-256 to the manifest, by a second read */
    const char *manifest_path; /* also write the manifest here; NULL: do not */
    /* The output path is on each host's own disk. The file of target rank r goes to the host of the
     * group's rank r * size / world_size, with the parts of other ranks' files that this rank needs.
     * Files that belong to no rank go to all hosts. Data of several ranks goes to the file of the
     * lowest of them. */
    int output_local;
    /* Options of one format. */
    uint64_t max_shard_nbytes; /* hf: largest file; 0: 50 GB */
    uint64_t align_nbytes;    /* dcp: each tensor's data begins at a multiple of this in its file */
    const char *rank_pattern; /* pt-ranks: names of the files, "{r}" and "{W}" */
    const char *device_type;  /* pt-ranks: recorded in the mesh; NULL: "cuda" */
    unsigned torch_minor;     /* pt-ranks: torch 2.N must load them; 0: as the source's rank files,
                                  else the newest known */
    int hdf5_groups;          /* hdf5: a dot in a name begins a group */
    unsigned gzip_level;      /* hdf5: 1 to 9: tensors of 16 KiB or more in chunks, shuffled and
                                  deflated; 0: uncompressed */
    /* Record finished ranges in a journal beside the unfinished output, and continue that of an earlier
     * call that was killed, if the source, the options and the version are the same. */
    int resume;
} fsdpck_output_options;

/* Shards of the output. Zeros are the defaults. */
typedef struct fsdpck_sharding_options {
    size_t struct_nbytes;
    uint64_t world_size;      /* number of ranks; 0: that of `mesh` or `like` */
    const char *mesh;         /* "dp_replicate=2,dp_shard=4,tp=2"; NULL: the source's, adapted to
                                world_size (MESH-REFIT), or "fsdp=N" if it has none */
    const char *tp_plan;      /* text of a JSON object: glob -> "colwise", "rowwise", "replicate" or
                                "Shard(d)"; NULL: as in the source */
    const char *tp_plan_path; /* file name of tp_plan in messages; NULL: none */
    const char *const *shard; /* "GLOB=DIM": FSDP shards this dim; the first match counts */
    size_t shard_count;
    const char *const *replicate; /* globs of tensors that FSDP does not shard */
    size_t replicate_count;
    fsdpck_checkpoint *like; /* shard as in this checkpoint; borrowed */
} fsdpck_sharding_options;

/* Planning without writing. Zeros: write. */
typedef struct fsdpck_dry_run_options {
    size_t struct_nbytes;
    int mode; /* 0: write; 1: plan and check, write nothing; 2: also fill report.plan_text */
    /* Predict the load of each rank of a group of processes (fsdpck_group_plan). This process need not
     * be in one. */
    unsigned group_size;  /* ranks; 0: no prediction */
    unsigned group_hosts; /* 0: one host per rank */
    int group_local;      /* source files are on the disks of the hosts whose ranks saved them */
    /* Bandwidths in bytes per second, 0: unlimited. Read and write are of the file system, all ranks
     * together; with group_local, read is of each host's disks. Net is of each host and direction. */
    uint64_t model_read, model_write, model_net;
} fsdpck_dry_run_options;

/* ---- consolidating and resharding ---- */

/* Options of fsdpck_consolidate; NULL for a part: its defaults. */
typedef struct fsdpck_consolidate_options {
    size_t struct_nbytes;
    const fsdpck_select_options *select; /* part: model for safetensors and hf,
                                              else all */
    const fsdpck_output_options *output; /* format: from the name of the output */
    const fsdpck_work_options *work;
    const fsdpck_dry_run_options *dry_run;
    /* hf: a Hugging Face folder that the output equals in names and shapes of tensors, files, order and
     * dtypes; the same as in fsdpck_open_options. Borrowed. NULL: none. */
    fsdpck_checkpoint *like;
} fsdpck_consolidate_options;

/* With output_local: files on one host's disk. An element of an array, so its members are final. */
typedef struct fsdpck_report_host {
    const char *name;
    uint64_t files, nbytes;
} fsdpck_report_host;

/* Predicted load of one rank of a group; bytes of needed elements. An element of an array, so its
 * members are final. */
typedef struct fsdpck_rank_load {
    unsigned host;
    uint64_t items; /* units of work: output ranges or blocks of rows */
    uint64_t read_nbytes, written_nbytes;
    uint64_t sent_nbytes, received_nbytes; /* source data, to and from ranks on other hosts */
    uint64_t messages;                     /* upper bound on the messages that carry these */
    uint64_t memory_nbytes;                /* metadata and buffers */
} fsdpck_rank_load;

/* Prediction for a group of processes. The library sets struct_nbytes. */
typedef struct fsdpck_group_plan {
    size_t struct_nbytes;
    const fsdpck_rank_load *ranks; /* `size` elements */
    unsigned size, hosts;
    unsigned worst; /* the rank that moves most bytes */
    /* Seconds of the slowest rank or host at the given bandwidths. overlapped: the longest of the
     * three. serial: reading and writing alternate on one path. */
    double read_seconds, write_seconds, net_seconds, overlapped_seconds, serial_seconds;
} fsdpck_group_plan;

/* Result of fsdpck_consolidate and fsdpck_reshard. The library allocates it and sets struct_nbytes; read
 * no member beyond it. Texts and arrays belong to the report. Paths are not escaped, names are. */
typedef struct fsdpck_report {
    size_t struct_nbytes;
    const char *format;                        /* name of the writer */
    const char *part;                          /* "model", ... */
    const char *model_key;                     /* outer key removed from names, "" if none */
    const char *mesh;                          /* reshard: "dp_replicate=2,dp_shard=4"; else "" */
    uint64_t world_size;                       /* ranks of the output; 1 when consolidating */
    uint64_t rank_nbytes_min, rank_nbytes_max; /* tensor bytes per rank */
    char *const *outputs;                      /* paths written, or planned in a dry run */
    size_t outputs_count;
    uint64_t tensors_in, tensors_out;   /* selected and written */
    uint64_t bytes_read, bytes_written; /* planned ones in a dry run */
    uint64_t direct_nbytes;             /* of bytes_written, by O_DIRECT */
    uint64_t cast, cast_overflows; /* tensors cast; finite elements outside the new dtype's range */
    uint64_t renamed;              /* tensors */
    uint64_t tied, tied_dropped;   /* names of tied tensors: written, omitted */
    uint64_t left_out_tensors, left_out_objects, objects_out;
    uint64_t replicas_compared; /* copies of chunks found equal byte by byte */
    uint64_t left_out_nbytes;
    char *const *left_out_names; /* all tensors, then all objects */
    size_t left_out_names_count;
    char *const *tied_names; /* "b = a" */
    size_t tied_names_count;
    char *const
        *sidecars; /* files beside the weights that were not copied; folders end in a slash */
    size_t sidecars_count;
    const char *plan_text;         /* mode 2: files, chunks and their sources; else NULL */
    uint64_t items, segments;      /* of the plan: units of work, contiguous copies */
    double read_amplification;     /* bytes read / bytes needed */
    uint64_t replicated;           /* reshard: tensors that every rank holds whole */
    uint64_t replicas_by_checksum; /* copies of chunks found equal by recorded checksums only */
    char *const *copied;           /* files beside the weights that were copied; also in outputs */
    size_t copied_count;
    unsigned torch_minor;            /* pt-ranks: torch 2.N loads them; 0: the newest known */
    unsigned ranks;                  /* processes that shared the work; 1: this one */
    uint64_t bytes_travelled;        /* of bytes_read, from the disks of one rank to another */
    const fsdpck_report_host *hosts; /* output_local on several hosts */
    size_t hosts_count;
    uint64_t bytes_copied;          /* files that several hosts hold: bytes sent to the others */
    const fsdpck_group_plan *group; /* dry run with group_size; else NULL */
    uint64_t filled, filled_nbytes; /* tensors with elements set to the file's fill value */
    /* Bytes before a cast. nbytes_in = nbytes_out + tied_dropped_nbytes + merged_nbytes +
     * left_out_nbytes. Likewise tensors_in = tensors_out + tied_dropped + merged + left_out_tensors. */
    uint64_t nbytes_in, nbytes_out, tied_dropped_nbytes, merged_nbytes;
    uint64_t merged; /* fsdp1: optimizer state combined into one tensor per flat unit */
    uint64_t carried, carried_nbytes; /* tensors left out by name but written in objects */
    char *const *carried_names;       /* "model.w in 'ema'" */
    size_t carried_names_count;
    /* part model: floating tensors with dims, left out as neither model nor optimizer; first name or "" */
    uint64_t other_params, other_params_nbytes;
    const char *other_params_first;
    const char *part_rule;      /* one line: how model, optimizer and other were distinguished */
    uint64_t attributes_lost;   /* tensors without Python attributes, hooks or class (PT-ATTRS) */
    uint64_t replicas_trusted;  /* replicas FIRST: copies of chunks that were not compared */
    uint64_t left_out_inside;   /* of left_out_tensors: those that only objects refer to */
    fsdpck_format_id format_id; /* of `format` */
    uint64_t adapter_tensors_in, adapter_tensors_out; /* of LoRA: in the source, and written */
    uint64_t sidecars_more;                           /* not in sidecars, which has the first 100 */
    /* resume: whether the run had a journal, and continued an earlier one; what it kept of that, and wrote again */
    int resumable, resumed;
    uint64_t kept_ranges, kept_nbytes, rewritten_nbytes;
    int has_checksums; /* the files of the source, or a manifest: the data was not compared with them */
    uint64_t rank_nbytes_total, empty_pieces; /* reshard: of all ranks; shards without elements */
} fsdpck_report;

/* Merges all shards of `src` into full tensors at the path `dst`. *report (may be NULL) is freed with
 * fsdpck_report_free. Collective in a group. Errors: EXISTS (`dst` exists, without force), USAGE
 * (options that contradict each other or the format), BADINPUT (damaged data, replicas that differ,
 * tensors that differ from those of `like`: EXPORT-KEYS, EXPORT-SHAPE, EXPORT-DTYPE), UNSUPPORTED (the format cannot hold a tensor), IO, NOSPACE, CHANGED, DEVICE, PEER. */
FSDPCK_API fsdpck_status fsdpck_consolidate(fsdpck_context *ctx, fsdpck_checkpoint *src,
                                            const char *dst,
                                            const fsdpck_consolidate_options *options,
                                            fsdpck_report **report,
                                            fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Frees a report; NULL does nothing. */
FSDPCK_API void fsdpck_report_free(fsdpck_report *report);

/* Options of fsdpck_reshard; NULL for a part: its defaults. */
typedef struct fsdpck_reshard_options {
    size_t struct_nbytes;
    const fsdpck_select_options *select;     /* as of fsdpck_consolidate */
    const fsdpck_sharding_options *sharding; /* world_size, mesh or like is required */
    const fsdpck_output_options *output;     /* format: the source's */
    const fsdpck_work_options *work;
    const fsdpck_dry_run_options *dry_run;
} fsdpck_reshard_options;

/* Writes `src` to the path `dst`, sharded for a different number of ranks or a different mesh.
 * Optimizer state is sharded like its parameter. Report, group and errors: as of fsdpck_consolidate,
 * and USAGE (a mesh that does not fit, a rule that matches no tensor), UNSUPPORTED (LAYOUT-UNEVEN,
 * LAYOUT-RUN). */
FSDPCK_API fsdpck_status fsdpck_reshard(fsdpck_context *ctx, fsdpck_checkpoint *src,
                                        const char *dst, const fsdpck_reshard_options *options,
                                        fsdpck_report **report,
                                        fsdpck_error *err) FSDPCK_MUST_CHECK;

#ifdef __cplusplus
}
#endif

#include "fsdpck_average.h"
#include "fsdpck_diff.h"
#include "fsdpck_layout.h"
#include "fsdpck_model.h"
#include "fsdpck_training.h"
#include "fsdpck_verify.h"

#endif
