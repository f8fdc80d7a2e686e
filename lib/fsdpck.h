/* fsdpck.h: sharded checkpoints without Python: the library behind the program of the same name.
 *
 * Calling sequence, here for merging a DCP folder into one safetensors file:
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
 * What is guaranteed: nothing in an input is executed; an output is absent or complete under its
 * final name; every element of an output comes from exactly one element of the input, or the call
 * fails.
 *
 * Words: a `tensor` has an FQN, a dtype and a global shape; a `chunk` is a box of it that lies in
 * one file; an `object` is anything in a checkpoint that is not a tensor. Shapes, offsets and sizes
 * are in elements; everything called nbytes is in bytes.
 *
 * Structs that may grow begin with struct_nbytes: set it to sizeof(the struct) (or use the *_INIT
 * macros). NULL for an options pointer means the defaults. Texts returned are borrowed from the
 * handle that they were asked of. One handle belongs to one thread at a time; the library makes its
 * own threads inside a call. fsdpck_context_cancel and fsdpck_context_progress may be called from
 * anywhere at any time. Contexts of several threads share libhdf5, one call at a time; while one of
 * them reads or writes HDF5, the program itself must not be in libhdf5 in another thread.
 */
#ifndef FSDPCK_H
#define FSDPCK_H

#include <stddef.h>
#include <stdint.h>

#include "fsdpck_formats.h"
#include "fsdpck_status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* "0.1.0" of the library that is running. */
FSDPCK_API const char *fsdpck_version(void);

/* Names of what is built in: kind "reader", "writer", "engine" or "group"; index from 0; NULL at
 * the end. *description (may be NULL) is one line. */
FSDPCK_API const char *fsdpck_builtin(const char *kind, size_t index, const char **description);
/* What this machine has for an engine, one line; "" where that is no question. It may load libraries.
 * Returns dst. */
FSDPCK_API char *fsdpck_builtin_state(const char *name, char *dst, size_t capacity_nbytes);

/* ---- context: how a caller watches and stops long work ---- */

typedef struct fsdpck_context fsdpck_context;

typedef enum fsdpck_log_level {
    FSDPCK_LOG_WARNING = 1,
    FSDPCK_LOG_NOTE = 2,
    FSDPCK_LOG_DETAIL = 3
} fsdpck_log_level;

/* One line without a newline, safe for a terminal; borrowed for the call. From any thread. */
typedef void (*fsdpck_log_fn)(void *arg, fsdpck_log_level level, const char *text);

/* NULL where memory ran out. */
FSDPCK_API fsdpck_context *fsdpck_context_new(void);
FSDPCK_API void fsdpck_context_free(fsdpck_context *ctx);
FSDPCK_API void fsdpck_context_set_log(fsdpck_context *ctx, fsdpck_log_fn fn, void *arg);

/* Why a result may not be what it seems: a doubtful order of rows, tensors left out, ... They do not
 * make a call fail. */
typedef struct fsdpck_warning {
    size_t struct_nbytes;
    fsdpck_finding_id finding;
    const char *message; /* as the log callback got it */
    const char *next;    /* what to do about it; "" */
} fsdpck_warning;

/* The warnings of all calls with this context, in order, index from 0; 0 behind the last. Of more
 * than 999 the first are kept. Borrowed from the context. From any thread. */
FSDPCK_API int fsdpck_context_warning(fsdpck_context *ctx, size_t index, fsdpck_warning *warning);

/* Makes the running call stop soon with FSDPCK_CANCELLED and remove what it wrote.
 * Async-signal-safe. */
FSDPCK_API void fsdpck_context_cancel(fsdpck_context *ctx);

/* What the running call is at: *phase is a constant text ("" when idle). Each pointer may be
 * NULL. */
FSDPCK_API void fsdpck_context_progress(const fsdpck_context *ctx, const char **phase,
                                        uint64_t *done_nbytes, uint64_t *total_nbytes);

/* ---- several processes at one piece of work ---- */

/* Where mpirun or srun started this process with others, they share the work of fsdpck_open,
 * fsdpck_consolidate, fsdpck_reshard, fsdpck_digests_new, fsdpck_diff_new, fsdpck_verify_new,
 * fsdpck_files_new and fsdpck_manifest_write, which are then collective: every rank makes the same calls with the same arguments, and all get the same status. DST lies on a file system
 * that all of them see. Without a launcher there is one rank and these calls do nothing.
 *
 *     fsdpck_context_join(ctx, &err);
 *     ... open, consolidate ...; rank 0 prints
 *     fsdpck_context_leave(ctx, st);
 */

/* Before the first call that is collective, at most once. USAGE where torchrun started the process
 * or the ranks are different builds; UNSUPPORTED in a build without MPI. */
FSDPCK_API fsdpck_status fsdpck_context_join(fsdpck_context *ctx,
                                             fsdpck_error *err) FSDPCK_MUST_CHECK;
FSDPCK_API unsigned fsdpck_context_rank(const fsdpck_context *ctx);
FSDPCK_API unsigned fsdpck_context_world_size(const fsdpck_context *ctx);
/* A rank that is not heard of for so long is lost (60 s unless told): calls return PEER. */
FSDPCK_API void fsdpck_context_set_peer_timeout(fsdpck_context *ctx, unsigned seconds);
/* Whether a rank is lost. */
FSDPCK_API int fsdpck_context_lost_peer(const fsdpck_context *ctx);
/* From now on this rank works without the others, which make no calls. */
FSDPCK_API void fsdpck_context_detach(fsdpck_context *ctx);
/* A step of the caller's own between collective calls: OK where it is OK on all ranks. */
FSDPCK_API fsdpck_status fsdpck_context_agree(fsdpck_context *ctx, fsdpck_status status,
                                              fsdpck_error *err) FSDPCK_MUST_CHECK;
/* What rank 0 has, to all. */
FSDPCK_API fsdpck_status fsdpck_context_broadcast(fsdpck_context *ctx, void *bytes, size_t nbytes,
                                                  fsdpck_error *err) FSDPCK_MUST_CHECK;
/* In the end, by all. Where a rank is lost the launcher is told to end all processes. */
FSDPCK_API void fsdpck_context_leave(fsdpck_context *ctx, fsdpck_status status);

/* ---- opening and walking a checkpoint ---- */

typedef struct fsdpck_checkpoint fsdpck_checkpoint;

/* Plain tensors and objects that the files of several ranks hold, and that differ. Equal ones are
 * taken once. */
typedef enum fsdpck_per_rank {
    FSDPCK_PER_RANK_AUTO,  /* tensors: an error; objects: kept where the output has a place for each
                              rank's and the number of ranks stays, else left out and listed */
    FSDPCK_PER_RANK_KEEP,  /* tensors too, as NAME.rank0, NAME.rank1, ... */
    FSDPCK_PER_RANK_FIRST, /* the lowest rank's */
    FSDPCK_PER_RANK_DROP,
    FSDPCK_PER_RANK_ERROR
} fsdpck_per_rank;

/* How optimizer state is keyed. Each optimizer of the checkpoint, found by its param_groups, is made
 * into the form asked for; names come from the checkpoint (param_names, or the shapes of its model part
 * where these leave one way alone), from model_path, or by assume_order. */
typedef enum fsdpck_optim_keys {
    FSDPCK_OPTIM_KEYS_KEEP,
    FSDPCK_OPTIM_KEYS_NAME, /* state.emb.weight.exp_avg; params: names */
    FSDPCK_OPTIM_KEYS_ID, /* state.0.exp_avg; params: numbers, as optimizer.state_dict() has them */
    FSDPCK_OPTIM_KEYS_FLAT /* torch's flatten_optimizer_state_dict: one key each */
} fsdpck_optim_keys;

typedef struct fsdpck_open_options {
    size_t struct_nbytes;
    const char *format;       /* a reader's name, NULL: found by content */
    uint64_t source_ranks;    /* ranks that must be there, 0: not stated */
    int no_follow;            /* links inside a folder are errors */
    int opaque_calls;         /* unknown calls in the metadata are kept as records, never run */
    unsigned threads;         /* 0: what affinity and cgroup allow */
    uint64_t metadata_nbytes; /* for all that grows with the metadata; 0: half the memory */
    /* Without `format`: it is pt-ranks. Names of the files of ranks, "{r}" for the rank and "{W}" for their number; NULL: the known
     * ones (model_world_size_{W}_rank_{r}.pt, pytorch_model_fsdp_{i}_rank{r}.bin, ...). */
    const char *rank_pattern;
    fsdpck_per_rank per_rank;
    /* FSDP2 with TP on a dim that does not divide evenly, written by torch 2.10 to 2.15 as a DCP
     * folder: boxes that do not fit their blobs are derived anew where all of them then fit. */
    int repair_strided;
    /* FSDP2 with TP of torch 2.3 and 2.4, whose files say Shard(0), Shard(0) though the data were
     * cut by TP first. FSDP1 with TP wrote the same and meant it: only the user can tell. */
    int assume_tp_first;
    /* FSDP1's flat parameters: a file that describes the model (fsdpck-model(5)); the checkpoint is
     * then seen as one of the original parameters. NULL: as it is. */
    const char *model_path;
    fsdpck_optim_keys optim_keys;
    /* In a group: files of one name on several hosts are several files, "HOST:NAME". */
    int source_local;
    /* Between the names of HDF5's groups and datasets; NULL: ".". */
    const char *hdf5_separator;
    /* Elements of HDF5 datasets that were never written are the fill value that the file defines;
     * else they are errors: H5-UNWRITTEN. */
    int hdf5_fill;
    /* Numbers in optimizer state follow the order of the model's parameters within each param_group.
     * Its files do not tell this; without it, numbers that several parameters fit are MODEL-NEEDED. */
    int assume_order;
} fsdpck_open_options;

/* Reads the metadata of the checkpoint at `path`: a folder or a file. A folder that holds exactly
 * one checkpoint further down is entered. Errors: BADINPUT (malformed, incomplete, hostile),
 * UNSUPPORTED, IO, LIMIT, USAGE (several checkpoints below `path`: err.next lists them). */
FSDPCK_API fsdpck_status fsdpck_open(fsdpck_context *ctx, const char *path,
                                     const fsdpck_open_options *options, fsdpck_checkpoint **out,
                                     fsdpck_error *err) FSDPCK_MUST_CHECK;
FSDPCK_API void fsdpck_close(fsdpck_checkpoint *ckpt);

typedef enum fsdpck_part {
    FSDPCK_PART_MODEL,
    FSDPCK_PART_OPTIMIZER,
    FSDPCK_PART_OTHER,
    FSDPCK_PART_ALL /* in requests only */
} fsdpck_part;

FSDPCK_API const char *fsdpck_part_name(fsdpck_part part);

typedef struct fsdpck_info {
    size_t struct_nbytes;
    const char *path;          /* the folder or file that was really opened */
    int entered;               /* it lies below the path that was given */
    const char *format;        /* "dcp" */
    const char *trainer;       /* "" where it cannot be told; so for the next two */
    const char *torch_version; /* a guess from the bytes, such as "2.9 or newer" */
    const char *note;          /* something a user should know, such as an unfinished save */
    const char *model_key;     /* outer key that holds the model, "" where names are at the top */
    int64_t step;              /* -1: cannot be told */
    int64_t world_size;        /* ranks that wrote it; -1: cannot be told */
    const char *mesh;          /* "dp=4,tp=2" as recorded or derived from the chunks; "": neither */
    uint64_t tensors, objects, files, chunks;
    uint64_t nelems, nbytes;                                   /* of all tensors, consolidated */
    uint64_t part_tensors[3], part_nbytes[3], part_objects[3]; /* by fsdpck_part */
    uint64_t cut_otherwise; /* tensors that a derived mesh does not explain */
    int order_suspect;      /* rows may be in the wrong order without assume_tp_first, or with it */
    int boxes_suspect; /* boxes that no rank can have held: repair_strided may derive them anew */
    uint64_t flat_parameters; /* of FSDP1: only model_path can take them apart */
    const char *model_path;   /* it was opened with; "" where there was none */
    uint64_t left_out;        /* neither tensors nor objects: what an HDF5 file holds besides */
    const char
        *left_out_kinds;   /* "2 datasets of text, 1 link to nothing"; "" where there is none */
    const char *part_rule; /* one line: what told model, optimizer and other apart */
    fsdpck_format_id format_id; /* of format */
} fsdpck_info;

FSDPCK_API void fsdpck_get_info(const fsdpck_checkpoint *ckpt, fsdpck_info *info);

typedef struct fsdpck_tensor {
    size_t struct_nbytes;
    const char *name; /* flat key; may hold any byte */
    size_t name_nbytes;
    const char *dtype; /* torch's name: "float32" */
    unsigned itemsize_nbytes;
    unsigned ndim;
    const uint64_t *shape;
    uint64_t nelems, nbytes;
    uint64_t first_chunk, nchunks;
    fsdpck_part part;
    int64_t alias; /* tensors with the same number >= 0 view one storage */
} fsdpck_tensor;

/* index below info.tensors. */
FSDPCK_API void fsdpck_get_tensor(const fsdpck_checkpoint *ckpt, uint64_t index, fsdpck_tensor *t);

typedef struct fsdpck_chunk {
    size_t struct_nbytes;
    const char *file; /* below info.path, "" where that is the file; NULL for an empty chunk */
    int64_t rank;     /* -1 where it cannot be told */
    uint64_t offset_nbytes, nbytes;  /* of its bytes, or of the blob that holds them */
    uint64_t offsets[64], sizes[64]; /* ndim of each */
} fsdpck_chunk;

FSDPCK_API void fsdpck_get_chunk(const fsdpck_checkpoint *ckpt, uint64_t index, fsdpck_chunk *c);

/* The simplest placement that explains a tensor's chunks: "Shard(0) on 4", "whole", "2-d grid 2x4",
 * "with holes"... Writes at most capacity bytes, always terminated. */
FSDPCK_API void fsdpck_describe_chunks(const fsdpck_checkpoint *ckpt, uint64_t tensor, char *text,
                                       size_t capacity_nbytes);

typedef struct fsdpck_object {
    size_t struct_nbytes;
    const char *name;
    size_t name_nbytes;
    fsdpck_part part;
    uint64_t nbytes; /* stored; 0 where it lies inside the metadata */
    int64_t
        rank; /* the one whose it is, where ranks differ: one object of the name a rank; else -1 */
} fsdpck_object;

FSDPCK_API void fsdpck_get_object(const fsdpck_checkpoint *ckpt, uint64_t index, fsdpck_object *o);

/* The object as one line of text for people, at most limit_nbytes; the caller frees *text with
 * free(). Reads it where that has not been done yet. */
FSDPCK_API fsdpck_status fsdpck_print_object(fsdpck_checkpoint *ckpt, uint64_t index,
                                             size_t limit_nbytes, char **text,
                                             fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Escapes control characters, bidirectional marks and invalid UTF-8 as \xNN. Returns dst. */
FSDPCK_API char *fsdpck_escape(char *dst, size_t capacity_nbytes, const char *text, size_t nbytes);

/* ---- consolidating ---- */

typedef enum fsdpck_objects {
    FSDPCK_OBJECTS_KEEP, /* written where the target carries objects, else left out and counted */
    FSDPCK_OBJECTS_DROP,
    FSDPCK_OBJECTS_OPAQUE, /* as keep, and unknown calls are kept as records */
    FSDPCK_OBJECTS_ERROR   /* any object that the target cannot carry is an error */
} fsdpck_objects;

typedef enum fsdpck_replicas {
    FSDPCK_REPLICAS_CRC,     /* by recorded CRCs, else by comparing */
    FSDPCK_REPLICAS_COMPARE, /* every byte */
    FSDPCK_REPLICAS_FIRST    /* trust the first */
} fsdpck_replicas;

/* Several names of one tensor: of a storage that the source shares, or of a parameter that the model
 * description gives them to. */
typedef enum fsdpck_tied {
    FSDPCK_TIED_KEEP,  /* all are written, as one in a .pt where the source's are one */
    FSDPCK_TIED_FIRST, /* the first alone; safetensors files note the others */
    FSDPCK_TIED_LINK   /* pt and pt-ranks: one tensor under all names; else USAGE */
} fsdpck_tied;

typedef enum fsdpck_switch { FSDPCK_AUTO, FSDPCK_ON, FSDPCK_OFF } fsdpck_switch;

typedef struct fsdpck_transform_options {
    size_t struct_nbytes;
    const char *format;        /* a writer's name; NULL: from the output's name */
    int part;                  /* fsdpck_part; -1: model for safetensors and hf, all for the rest */
    fsdpck_switch clean_names; /* wrapper prefixes; AUTO: cleaned for safetensors and hf */
    const char *const *keys;   /* globs on cleaned names; nothing given: all */
    size_t keys_count;
    const char *const *exclude;
    size_t exclude_count;
    const char *const *strip_prefix;
    size_t strip_prefix_count;
    const char *const *rename; /* "s/RE/TEXT/", in order */
    size_t rename_count;
    const char *const *dtype; /* "bf16", or "GLOB=fp32" */
    size_t dtype_count;
    fsdpck_tied tied;
    uint64_t max_shard_nbytes; /* hf; 0: 50 GB */
    fsdpck_objects objects;
    fsdpck_replicas replicas;
    fsdpck_switch direct; /* O_DIRECT writing */
    unsigned threads;
    uint64_t memory_nbytes; /* besides metadata; 0: 256 MiB, less on small machines */
    int force;              /* replace what is there; a folder only where it is a checkpoint */
    int no_sync;
    int read_back; /* read the output again and compare it with what was written */
    int use_cuda;  /* the GPU engine or DEVICE, no fallback; else threads do the work */
    int dry_run;   /* 1: plan, check, write nothing; 2: also tell the plan in plan_text */

    /* fsdpck_reshard and fsdpck_layout_new alone. */
    uint64_t world_size;      /* ranks; 0: what mesh says, or as many as `like` */
    const char *mesh;         /* "dp_replicate=2,dp_shard=4,tp=2"; NULL: the source's, refitted to
                            world_size (MESH-REFIT); a source without one: "fsdp=N" */
    const char *tp_plan;      /* text of a JSON object: glob -> "colwise", "rowwise", "replicate",
                            "Shard(d)"; NULL: as the source, where it has TP */
    const char *const *shard; /* "GLOB=DIM": FSDP cuts this dim; first match wins */
    size_t shard_count;
    const char *const *replicate; /* globs: not cut by FSDP */
    size_t replicate_count;
    fsdpck_checkpoint *like; /* cut as this one is; borrowed */
    uint64_t align_nbytes; /* dcp: data of each tensor begin at a multiple of this in their file */
    const char *rank_pattern; /* pt-ranks: names of the files, "{r}" and "{W}" */
    const char *device_type;  /* pt-ranks: recorded in the mesh; NULL: "cuda" */
    unsigned torch_minor;     /* pt-ranks: torch 2.N must load them; 0: as the rank
                                 files of the source, else the newest known */
    const char *tp_plan_path; /* of tp_plan, for messages; NULL */

    /* fsdpck_consolidate and fsdpck_reshard. A folder that they write has a manifest
     * (fsdpck-manifest(5)) in it. */
    int no_manifest;           /* none in the folder */
    int sha256;                /* the manifest has each file's SHA-256 too, by a second read */
    const char *manifest_path; /* one is written here, besides; NULL */
    int hdf5_groups;           /* hdf5: a dot in a name begins a group */

    /* `dst` is a path on each host's own disk: the file of target rank r goes to the host of the group's
     * rank r * size / world_size, with what that rank needs of other ranks' files, and what is of no
     * rank to all. What several ranks hold is then in the file of the lowest of them. */
    int output_local;

    /* dry_run alone: what each rank of a group of processes would do (fsdpck_group_plan), whether this
     * process is of one or not. */
    unsigned group_size;  /* ranks; 0: nothing of it */
    unsigned group_hosts; /* 0: a host for each rank */
    int group_local;      /* source files lie on the disks of the hosts whose ranks saved them */
    /* Bytes a second, 0 for no bound: of the file system, all ranks together (with group_local read is
     * of each host's disks); net is of each host, each way. */
    uint64_t model_read, model_write, model_net;

    /* hdf5: tensors of 16 KiB and more in chunks, shuffled and deflated at this level, 1 to 9; 0: as they
     * are. */
    unsigned gzip_level;
} fsdpck_transform_options;

/* All defaults, in a variable of yours. */
FSDPCK_API void fsdpck_transform_options_init(fsdpck_transform_options *options);

/* Of an output on each host's own disk: what is there of it. */
typedef struct fsdpck_report_host {
    const char *name;
    uint64_t files, nbytes;
} fsdpck_report_host;

/* What one rank of a group would do. Bytes are those of elements that are needed. */
typedef struct fsdpck_rank_load {
    unsigned host;
    uint64_t items; /* output ranges, and bands of rows for several of them */
    uint64_t read_nbytes, written_nbytes;
    uint64_t sent_nbytes, received_nbytes; /* of the source, to and from ranks on other hosts */
    uint64_t messages;      /* that carry these, at most, where elements lie in rows */
    uint64_t memory_nbytes; /* metadata and buffers */
} fsdpck_rank_load;

typedef struct fsdpck_group_plan {
    size_t struct_nbytes;
    const fsdpck_rank_load *ranks; /* `size` of them */
    unsigned size, hosts;
    unsigned worst; /* the rank that moves most bytes */
    /* Seconds that the slowest rank or host takes, as the model bandwidths are; the longest of them;
     * and where reading and writing take turns on one path. */
    double read_seconds, write_seconds, net_seconds, overlapped_seconds, serial_seconds;
} fsdpck_group_plan;

typedef struct fsdpck_report {
    size_t struct_nbytes;
    const char *format;    /* writer used */
    const char *part;      /* "model", ... and why in model_key */
    const char *model_key; /* outer key that was dropped from the names, "" where none */
    const char *mesh;      /* of a reshard: "dp_replicate=2,dp_shard=4"; else "" */
    uint64_t world_size;   /* ranks that the output is cut for; 1 when consolidating */
    uint64_t rank_nbytes_min, rank_nbytes_max; /* of tensors that a rank holds */
    char *const *outputs;                      /* paths written (or that would be) */
    size_t outputs_count;
    uint64_t tensors_in, tensors_out;
    uint64_t bytes_read, bytes_written; /* dry_run: what would be */
    uint64_t direct_nbytes;             /* of bytes_written, by O_DIRECT */
    uint64_t cast, cast_overflows, renamed, tied, tied_dropped;
    uint64_t left_out_tensors, left_out_objects, objects_out, replicas_compared;
    uint64_t left_out_nbytes;
    char *const *left_out_names; /* of tensors, all of them; then of objects */
    size_t left_out_names_count;
    char *const *tied_names; /* "b = a", the first 20 */
    size_t tied_names_count;
    char *const *sidecars; /* files beside the weights that were not copied */
    size_t sidecars_count;
    const char *plan_text; /* dry_run 2: every file, chunk and what feeds it; else NULL */
    uint64_t items, segments;
    double read_amplification;
    uint64_t replicated; /* of a reshard: tensors that every rank holds whole */
    /* Copies of chunks that were found equal by the checksums that their files record, which nobody
     * compared with their bytes; replicas_compared are those found equal byte by byte. */
    uint64_t replicas_by_checksum;
    char *const *copied; /* files beside the weights that were copied along; among the outputs */
    size_t copied_count;
    unsigned torch_minor;            /* pt-ranks: torch 2.N loads them; 0: the newest known */
    unsigned ranks;                  /* that did it together; 1: this process alone */
    uint64_t bytes_travelled;        /* of bytes_read: from the disks of one rank to another */
    const fsdpck_report_host *hosts; /* of output_local, where there are several */
    size_t hosts_count;
    uint64_t bytes_copied;          /* of files that several of them have, from one to the others */
    const fsdpck_group_plan *group; /* with options.group_size, in a dry run; else NULL */
    /* Tensors with elements that are in no file, which got the fill value of the file. */
    uint64_t filled, filled_nbytes;
    /* Bytes of tensors as the source has them, before a cast: nbytes_in is the sum of the others and
     * left_out_nbytes, as tensors_in is of tensors_out, tied_dropped, merged and left_out_tensors. */
    uint64_t nbytes_in, nbytes_out, tied_dropped_nbytes, merged_nbytes;
    uint64_t merged; /* of fsdp1: optimizer state that one tensor of a flat unit stands for */
    /* Tensors that are left out under their own names, and are written inside objects. */
    uint64_t carried, carried_nbytes;
    char *const *carried_names; /* "model.w in 'ema'" */
    size_t carried_names_count;
    /* Of the model part: floating tensors of one dim or more that were left out as neither the
     * model's nor the optimizer's, and the name of the first ("" where there is none). */
    uint64_t other_params, other_params_nbytes;
    const char *other_params_first;
    const char *part_rule; /* one line: what told model, optimizer and other apart */
    /* Tensors written without their Python attributes, hooks or class (PT-ATTRS). */
    uint64_t attributes_lost;
    uint64_t replicas_trusted;  /* replicas "first": copies of chunks that nobody compared */
    uint64_t left_out_inside;   /* of left_out_tensors: in objects, which alone lead to them */
    fsdpck_format_id format_id; /* of format */
} fsdpck_report;

/* Merges all shards into full tensors at `dst`, which must not exist (EXISTS) unless
 * options->force. *report (may be NULL) is freed with fsdpck_report_free; it is NULL on failure. */
FSDPCK_API fsdpck_status fsdpck_consolidate(fsdpck_context *ctx, fsdpck_checkpoint *src,
                                            const char *dst,
                                            const fsdpck_transform_options *options,
                                            fsdpck_report **report,
                                            fsdpck_error *err) FSDPCK_MUST_CHECK;
FSDPCK_API void fsdpck_report_free(fsdpck_report *report);

/* ---- resharding ---- */

/* Cuts the checkpoint anew, for options->world_size ranks, at `dst`: as fsdpck_consolidate, which
 * is the case of one rank. The format is the source's where options->format is NULL. Optimizer
 * state is cut as its parameter is. Errors beside those: USAGE (a mesh that does not fit,
 * a rule that matches nothing), UNSUPPORTED (LAYOUT-UNEVEN, LAYOUT-RUN). */
FSDPCK_API fsdpck_status fsdpck_reshard(fsdpck_context *ctx, fsdpck_checkpoint *src,
                                        const char *dst, const fsdpck_transform_options *options,
                                        fsdpck_report **report,
                                        fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Who would hold what, without touching data:
 *
 *     fsdpck_layout *l;
 *     fsdpck_layout_new(ctx, src, &options, &l, err);
 *     fsdpck_layout_get_info(l, &info);
 *     for (i = 0; i < info.tensors; i++) {
 *         fsdpck_layout_get_tensor(l, i, &t);
 *         for (r = 0; r < info.world_size; r++)
 *             fsdpck_layout_get_shard(l, i, r, &piece);
 *     }
 *     fsdpck_layout_get_rank(l, r, &totals);      // totals of one rank
 *     fsdpck_layout_free(l);
 */
typedef struct fsdpck_layout fsdpck_layout;

typedef struct fsdpck_layout_info {
    size_t struct_nbytes;
    const char *mesh;
    uint64_t world_size;
    uint64_t tensors;
    uint64_t nbytes;          /* of all tensors, each once */
    uint64_t rank_nbytes_min; /* over the ranks, of what they hold */
    uint64_t rank_nbytes_max;
    uint64_t rank_min, rank_max; /* the lowest ranks that hold so much */
    uint64_t rank_nbytes_total;  /* over all ranks, replicas counted */
    uint64_t empty_pieces;       /* pairs of tensor and rank without elements */
    uint64_t padding_nbytes;     /* that FSDP adds in memory, over all ranks */
    /* Of the rank that holds most, in bytes, for training: parameters as stored, gradients of their
     * size, optimizer state; padding included. Model part only. */
    uint64_t param_nbytes, grad_nbytes, adam_nbytes;
    uint64_t replicated; /* tensors that every rank holds whole */
    /* The source has no optimizer state, or none that names its parameters: every floating tensor
     * is taken to be trained by Adam, with moments in its dtype. Else the state is the source's own
     * and what has none there, such as a buffer, has no gradients. */
    int training_assumed;
} fsdpck_layout_info;

typedef struct fsdpck_layout_tensor {
    size_t struct_nbytes;
    const char *name; /* final name */
    size_t name_nbytes;
    const char *dtype;
    unsigned ndim;
    const uint64_t *shape;
    uint64_t nelems, nbytes;
    fsdpck_part part;
    const char *placements;   /* "[Replicate(), Shard(0)]"; borrowed until the next call */
    uint64_t distinct_pieces; /* boxes, replicas once */
    uint64_t empty_pieces;
} fsdpck_layout_tensor;

typedef struct fsdpck_layout_shard {
    size_t struct_nbytes;
    uint64_t offsets[64], sizes[64]; /* ndim of each, elements */
    uint64_t nbytes;
    uint64_t padding_nelems; /* that FSDP adds in memory to reach the size of the first piece */
} fsdpck_layout_shard;

typedef struct fsdpck_layout_rank {
    size_t struct_nbytes;
    uint64_t nbytes, padding_nbytes;
    uint64_t tensors, empty_tensors;
    uint64_t param_nbytes, grad_nbytes, adam_nbytes;
} fsdpck_layout_rank;

FSDPCK_API fsdpck_status fsdpck_layout_new(fsdpck_context *ctx, fsdpck_checkpoint *src,
                                           const fsdpck_transform_options *options,
                                           fsdpck_layout **out,
                                           fsdpck_error *err) FSDPCK_MUST_CHECK;
FSDPCK_API void fsdpck_layout_get_info(const fsdpck_layout *l, fsdpck_layout_info *info);
FSDPCK_API void fsdpck_layout_get_tensor(fsdpck_layout *l, uint64_t index, fsdpck_layout_tensor *t);
FSDPCK_API void fsdpck_layout_get_shard(const fsdpck_layout *l, uint64_t index, uint64_t rank,
                                        fsdpck_layout_shard *piece);
FSDPCK_API void fsdpck_layout_get_rank(const fsdpck_layout *l, uint64_t rank,
                                       fsdpck_layout_rank *totals);
FSDPCK_API void fsdpck_layout_free(fsdpck_layout *l);

#ifdef __cplusplus
}
#endif

#include "fsdpck_model.h"
#include "fsdpck_verify.h"

#endif
