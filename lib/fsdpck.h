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
 * anywhere at any time.
 */
#ifndef FSDPCK_H
#define FSDPCK_H

#include <stddef.h>
#include <stdint.h>

#include "fsdpck_status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* "0.1.0" of the library that is running. */
FSDPCK_API const char *fsdpck_version(void);

/* Names of what is built in: kind "reader", "writer", "engine" or "group"; index from 0; NULL at
 * the end. *description (may be NULL) is one line. */
FSDPCK_API const char *fsdpck_builtin(const char *kind, size_t index, const char **description);

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
    const char *finding; /* "RANK-TP-ORDER"; "" where it has none */
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
 * into the form asked for; names come from the checkpoint (param_names, or the order and shapes of
 * its model part) or from model_path. */
typedef enum fsdpck_optim_keys {
    FSDPCK_OPTIM_KEYS_KEEP,
    FSDPCK_OPTIM_KEYS_NAME, /* state.emb.weight.exp_avg; params: names */
    FSDPCK_OPTIM_KEYS_ID,   /* state.0.exp_avg; params: numbers, as optimizer.state_dict() has them */
    FSDPCK_OPTIM_KEYS_FLAT  /* torch's flatten_optimizer_state_dict: one key each */
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
} fsdpck_open_options;

#define FSDPCK_OPEN_OPTIONS_INIT                                                         \
    {                                                                                    \
        sizeof(fsdpck_open_options), 0, 0, 0, 0, 0, 0, 0, FSDPCK_PER_RANK_AUTO, 0, 0, 0, \
            FSDPCK_OPTIM_KEYS_KEEP                                                       \
    }

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
    int order_doubtful; /* rows may be in the wrong order without assume_tp_first, or with it */
    int boxes_doubtful; /* boxes that no rank can have held: repair_strided may derive them anew */
    uint64_t flat_parameters; /* of FSDP1: only model_path can take them apart */
    const char *model_path;   /* it was opened with; "" where there was none */
} fsdpck_info;

FSDPCK_API void fsdpck_get_info(const fsdpck_checkpoint *ckpt, fsdpck_info *info);

typedef struct fsdpck_tensor {
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
    const char *name;
    size_t name_nbytes;
    fsdpck_part part;
    uint64_t nbytes; /* stored; 0 where it lies inside the metadata */
    int64_t rank; /* the one whose it is, where ranks differ: one object of the name a rank; else -1 */
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
    uint64_t world_size; /* ranks; 0: what mesh says, or as many as `like` */
    const char *mesh; /* "dp_replicate=2,dp_shard=4,tp=2"; NULL: the source's, its FSDP dim scaled
                            to world_size; a source without one: "fsdp=N" */
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
} fsdpck_transform_options;

/* All defaults, in a variable of yours. */
FSDPCK_API void fsdpck_transform_options_init(fsdpck_transform_options *options);

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
    char *const *left_out_names; /* the first 20 */
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
    unsigned torch_minor; /* pt-ranks: torch 2.N loads them; 0: the newest known */
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
 *             fsdpck_layout_get_piece(l, i, r, &piece);
 *     }
 *     fsdpck_layout_get_rank(l, r, &sums);      // totals of one rank
 *     fsdpck_layout_free(l);
 */
typedef struct fsdpck_layout fsdpck_layout;

typedef struct fsdpck_layout_info {
    const char *mesh;
    uint64_t world_size;
    uint64_t tensors;
    uint64_t nbytes;          /* of all tensors, each once */
    uint64_t rank_nbytes_min; /* over the ranks, of what they hold */
    uint64_t rank_nbytes_max;
    uint64_t rank_min, rank_max; /* the lowest ranks that hold so much */
    uint64_t rank_nbytes_sum;    /* over all ranks, replicas counted */
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

typedef struct fsdpck_layout_piece {
    uint64_t offsets[64], sizes[64]; /* ndim of each, elements */
    uint64_t nbytes;
    uint64_t padding_nelems; /* that FSDP adds in memory to reach the size of the first piece */
} fsdpck_layout_piece;

typedef struct fsdpck_layout_rank {
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
FSDPCK_API void fsdpck_layout_get_piece(const fsdpck_layout *l, uint64_t index, uint64_t rank,
                                        fsdpck_layout_piece *piece);
FSDPCK_API void fsdpck_layout_get_rank(const fsdpck_layout *l, uint64_t rank,
                                       fsdpck_layout_rank *sums);
FSDPCK_API void fsdpck_layout_free(fsdpck_layout *l);

/* ---- digests ---- */

/* One digest a tensor, the same however it is cut, in whatever format and order:
 *
 *     fsdpck_digests *d;
 *     fsdpck_digests_new(ctx, src, &options, &d, err);          // reads every byte, once
 *     fsdpck_digests_get_info(d, &info);
 *     for (i = 0; i < info.tensors; i++)
 *         fsdpck_digests_get(d, i, &digest);                    // by name
 *     fsdpck_digests_free(d);
 *
 * A digest is the CRC-64/XZ of the text `dtype[d0,d1,...]` and a newline (torch's names), then of
 * the row-major little-endian bytes, conj and neg resolved. It finds accidents, not forgers. */
typedef struct fsdpck_digests fsdpck_digests;

typedef struct fsdpck_digests_info {
    uint64_t tensors;
    uint64_t nbytes;     /* of all tensors */
    uint64_t bytes_read; /* replicas that had to be compared included */
    uint64_t left_out_tensors, left_out_objects;
    uint64_t whole; /* CRC-64/XZ of the lines `digest  dtype[shape]  name`, ordered by name */
} fsdpck_digests_info;

typedef struct fsdpck_digest {
    const char *name; /* final name; may hold any byte */
    size_t name_nbytes;
    const char *dtype;
    unsigned ndim;
    const uint64_t *shape;
    uint64_t nbytes;
    const char *type; /* "float32[5,3]" */
    uint64_t value;
} fsdpck_digest;

/* Of the options those that select, name and cast count, replicas, threads and memory. The whole
 * checkpoint by default, each tensor under its flat key; one part of it is named as the model names
 * it. Borrows src. */
FSDPCK_API fsdpck_status fsdpck_digests_new(fsdpck_context *ctx, fsdpck_checkpoint *src,
                                            const fsdpck_transform_options *options,
                                            fsdpck_digests **out,
                                            fsdpck_error *err) FSDPCK_MUST_CHECK;
FSDPCK_API void fsdpck_digests_get_info(const fsdpck_digests *d, fsdpck_digests_info *info);
FSDPCK_API void fsdpck_digests_get(const fsdpck_digests *d, uint64_t index, fsdpck_digest *digest);
FSDPCK_API void fsdpck_digests_free(fsdpck_digests *d);

typedef enum fsdpck_digest_verdict {
    FSDPCK_DIGEST_OK,
    FSDPCK_DIGEST_DIFFERS,
    FSDPCK_DIGEST_OTHER_TYPE, /* dtype or shape */
    FSDPCK_DIGEST_MISSING,    /* in the list alone */
    FSDPCK_DIGEST_EXTRA       /* in the checkpoint alone */
} fsdpck_digest_verdict;

typedef struct fsdpck_digest_result {
    fsdpck_digest_verdict verdict;
    const char *name; /* escaped, as printed */
    size_t name_nbytes;
    const char *expected; /* type in the list; NULL: none */
    size_t expected_nbytes;
    const char *found; /* type in the checkpoint; NULL: none */
} fsdpck_digest_result;

typedef void (*fsdpck_digest_fn)(void *arg, const fsdpck_digest_result *result);

/* Compares with a list of lines `HEX  TYPE  NAME` (names escaped), as `fsdpck digest` prints it, its
 * last line `HEX  whole  N tensors` included where it is there. Empty lines and those that begin
 * with '#' count as nothing. `fn` is called for every tensor of either, by name; *bad counts those
 * that are not OK. BADINPUT (DIGEST-LIST) where it is no such list. */
FSDPCK_API fsdpck_status fsdpck_digests_check(const fsdpck_digests *d, const char *text,
                                              size_t nbytes, fsdpck_digest_fn fn, void *arg,
                                              uint64_t *bad, fsdpck_error *err) FSDPCK_MUST_CHECK;

/* ---- files ---- */

/* The files of a checkpoint, each read once for its checksums; and the manifest (fsdpck-manifest(5)) of
 * one that is there:
 *
 *     fsdpck_files *f;
 *     fsdpck_files_new(ctx, src, 0, 0, &f, err);
 *     fsdpck_manifest_write(f, digests, "step-1000.manifest", 0, err);
 *     fsdpck_files_free(f);
 *
 * Of a folder all plain files count, and those of folders inside that hold files of the checkpoint;
 * what is hidden does not, but for .metadata, nor does a manifest. */
typedef struct fsdpck_files fsdpck_files;

typedef struct fsdpck_file {
    const char *name; /* relative to the checkpoint's folder */
    uint64_t nbytes;
    uint64_t crc64;        /* CRC-64/XZ */
    const uint8_t *sha256; /* 32 bytes; NULL where it was not asked for */
} fsdpck_file;

/* threads 0: what the machine allows. By name. Borrows src. */
FSDPCK_API fsdpck_status fsdpck_files_new(fsdpck_context *ctx, fsdpck_checkpoint *src,
                                          unsigned threads, int sha256, fsdpck_files **out,
                                          fsdpck_error *err) FSDPCK_MUST_CHECK;
FSDPCK_API size_t fsdpck_files_count(const fsdpck_files *f);
FSDPCK_API void fsdpck_files_get(const fsdpck_files *f, size_t index, fsdpck_file *one);
FSDPCK_API void fsdpck_files_free(fsdpck_files *f);

/* EXISTS where there is something at `path`. */
FSDPCK_API fsdpck_status fsdpck_manifest_check_path(const char *path,
                                                    fsdpck_error *err) FSDPCK_MUST_CHECK;
/* `digests` of the same checkpoint. EXISTS where `path` is there, unless `force`. */
FSDPCK_API fsdpck_status fsdpck_manifest_write(const fsdpck_files *f, const fsdpck_digests *digests,
                                               const char *path, int force,
                                               fsdpck_error *err) FSDPCK_MUST_CHECK;

/* ---- comparing ---- */

/* Two checkpoints, in whatever format and however each is cut:
 *
 *     fsdpck_diff *d;
 *     fsdpck_diff_new(ctx, a, b, NULL, &d, err);
 *     fsdpck_diff_get_info(d, &info);                        // info.rows == 0: equal
 *     for (i = 0; i < info.rows; i++)
 *         fsdpck_diff_get_row(d, i, &row);
 *     fsdpck_diff_free(d);
 */
typedef struct fsdpck_diff fsdpck_diff;

typedef struct fsdpck_diff_options {
    size_t struct_nbytes;
    /* Of these count: part (-1: everything where both have the same parts, else the model parts,
     * else the optimizer parts), keys and exclude for both, objects (drop: tensors alone);
     * strip_prefix, rename and dtype are applied to A alone; threads, memory, replicas. NULL: the
     * defaults. */
    const fsdpck_transform_options *transform;
    double atol, rtol; /* floating elements are equal where |a - b| <= atol + rtol * |b| */
    int brief;         /* stop at the first difference */
} fsdpck_diff_options;

typedef struct fsdpck_diff_info {
    const char *part; /* compared */
    uint64_t tensors_a, tensors_b;
    uint64_t tensors_compared; /* those that both have, of one dtype and shape */
    uint64_t nbytes_compared;
    uint64_t objects_compared;
    uint64_t bytes_read; /* of both */
    uint64_t rows;       /* differences */
    int stopped;         /* brief: there may be more */
} fsdpck_diff_info;

typedef enum fsdpck_diff_kind {
    FSDPCK_DIFF_ONLY_A,
    FSDPCK_DIFF_ONLY_B,
    FSDPCK_DIFF_TYPE, /* another dtype or shape: values are not compared */
    FSDPCK_DIFF_VALUES,
    FSDPCK_DIFF_OBJECT_ONLY_A,
    FSDPCK_DIFF_OBJECT_ONLY_B,
    FSDPCK_DIFF_OBJECT
} fsdpck_diff_kind;

typedef struct fsdpck_diff_row {
    fsdpck_diff_kind kind;
    const char *name;
    size_t name_nbytes;
    const char *dtype_a, *dtype_b; /* NULL where the side has none; so for the next four */
    unsigned ndim_a, ndim_b;
    const uint64_t *shape_a, *shape_b;
    /* FSDPCK_DIFF_VALUES */
    int located; /* 0: a compressed tensor, of which only digests were compared; what follows is 0 */
    uint64_t nelems, differing;
    uint64_t first[64];             /* index of the first element that differs */
    char first_a[64], first_b[64];  /* and its values */
    double largest;                 /* |a - b|, of numbers */
    uint64_t not_numbers;           /* elements that differ and are NaN or infinite on a side */
    /* Objects */
    int64_t rank; /* whose it is, where ranks differ; else -1 */
    const char *text_a, *text_b; /* FSDPCK_DIFF_OBJECT: for people, cut off where it is long */
} fsdpck_diff_row;

/* Borrows both. Errors: as opening and consolidating either. */
FSDPCK_API fsdpck_status fsdpck_diff_new(fsdpck_context *ctx, fsdpck_checkpoint *a,
                                         fsdpck_checkpoint *b, const fsdpck_diff_options *options,
                                         fsdpck_diff **out, fsdpck_error *err) FSDPCK_MUST_CHECK;
FSDPCK_API void fsdpck_diff_get_info(const fsdpck_diff *d, fsdpck_diff_info *info);
FSDPCK_API void fsdpck_diff_get_row(const fsdpck_diff *d, uint64_t index, fsdpck_diff_row *row);
FSDPCK_API void fsdpck_diff_free(fsdpck_diff *d);

/* ---- findings ---- */

/* What can be wrong with a checkpoint, by the ids that findings and errors carry. Neither the name
 * nor the meaning of an id changes within a major version. */
typedef struct fsdpck_finding_kind {
    const char *id;         /* "DCP-GAP" */
    const char *class_name; /* "coverage", see fsdpck-findings(7) */
    const char *severity;   /* "error", "warning", "note": by default, for fsdpck_verify_new */
    int fixed;              /* and it cannot be set otherwise */
    const char *means;      /* one line each */
    const char *next;
} fsdpck_finding_kind;

/* In the order of the ids, index from 0; 0 behind the last. All texts are constants. */
FSDPCK_API int fsdpck_finding_kind_at(size_t index, fsdpck_finding_kind *kind);
/* 0 where there is no such id. */
FSDPCK_API int fsdpck_finding_kind_find(const char *id, fsdpck_finding_kind *kind);

/* ---- verifying ---- */

/* Each includes those before it. */
typedef enum fsdpck_level {
    FSDPCK_LEVEL_QUICK,     /* metadata; all files are there and long enough */
    FSDPCK_LEVEL_STRUCTURE, /* every rule that needs no tensor data */
    FSDPCK_LEVEL_COVERAGE,  /* each tensor is there as a whole, payloads' heads agree with it */
    FSDPCK_LEVEL_CHECKSUM,  /* every byte, against the checksums that the files hold */
    FSDPCK_LEVEL_NUMERIC    /* every element: NaN, moments below zero, infinities, zeros */
} fsdpck_level;

/* Is a checkpoint whole, consistent and uncorrupted?
 *
 *     fsdpck_verify *v;
 *     st = fsdpck_verify_new(ctx, "step-1000", NULL, &v, err);   // OK: there is a verdict
 *     fsdpck_verify_get_info(v, &info);                          // info.errors == 0: clean
 *     for (i = 0; i < info.listed; i++)
 *         fsdpck_verify_get_finding(v, i, &finding);
 *     fsdpck_verify_free(v);
 *
 * What is wrong with the checkpoint are findings; a status other than OK says why there is no
 * verdict (I/O, a limit, something that is not supported, a file that changed meanwhile). */
typedef struct fsdpck_verify fsdpck_verify;

typedef struct fsdpck_verify_options {
    size_t struct_nbytes;
    int level;                       /* fsdpck_level; -1: coverage */
    const fsdpck_open_options *open; /* NULL: the defaults */
    unsigned threads;
    int strict;             /* warnings count as errors */
    int require_checksums;  /* bytes without a checksum are an error at level checksum */
    const char *const *set; /* "NUM-NAN=error", =warn, =note or =ignore, ends with NULL; NULL: none */
    const char *manifest; /* fsdpck-manifest(5); NULL: the one in the folder, where there is one */
    int sha256;           /* at level checksum: the SHA-256 that it has of files */
    const char *expect; /* a list of tensors, a manifest, an index or a checkpoint; NULL */
} fsdpck_verify_options;

typedef struct fsdpck_verify_info {
    fsdpck_level level;
    int opened;        /* what follows of the checkpoint itself is known */
    fsdpck_info source;
    uint64_t errors, warnings, notes; /* strict: warnings are among the errors */
    uint64_t ignored;                 /* because `set` says so */
    uint64_t listed;                  /* of errors, warnings and notes the first 1,000 */
    uint64_t chunks, records;         /* with elements; different ranges that they lie in */
    uint64_t bytes_total, bytes_read; /* of the records, as stored */
    uint64_t bytes_summed;            /* compared with a checksum */
    uint64_t unchecked_tensors, unchecked_nbytes; /* level checksum: no checksum is recorded */
    uint64_t unread_tensors, unread_nbytes; /* from coverage on: because of a finding */
    int manifest;                               /* there is one, and it could be read */
    uint64_t manifest_files, manifest_tensors;  /* that it lists */
    uint64_t manifest_nbytes; /* of files, compared with its CRC-64 */
    const char *blind; /* what the level cannot see, for people */
    uint64_t unsupported; /* of the errors: legal, but not read; all of them: there is no verdict */
} fsdpck_verify_info;

typedef struct fsdpck_finding {
    const char *id;       /* "DCP-GAP" */
    const char *severity; /* "error", "warning", "note" */
    const fsdpck_error *what; /* message, path, tensor, offset, expected, found, next */
} fsdpck_finding;

FSDPCK_API fsdpck_status fsdpck_verify_new(fsdpck_context *ctx, const char *path,
                                           const fsdpck_verify_options *options,
                                           fsdpck_verify **out, fsdpck_error *err) FSDPCK_MUST_CHECK;
FSDPCK_API void fsdpck_verify_get_info(const fsdpck_verify *v, fsdpck_verify_info *info);
FSDPCK_API void fsdpck_verify_get_finding(const fsdpck_verify *v, uint64_t index,
                                          fsdpck_finding *finding);
FSDPCK_API void fsdpck_verify_free(fsdpck_verify *v);

/* ---- the latest checkpoint of a run ---- */

typedef struct fsdpck_latest_options {
    size_t struct_nbytes;
    fsdpck_level level;
    uint64_t most;                   /* complete checkpoints wanted; 0: 1 */
    const fsdpck_open_options *open; /* NULL: the defaults */
} fsdpck_latest_options;

/* why is NULL where it is complete. Borrowed for the call. */
typedef void (*fsdpck_latest_fn)(void *arg, const char *path, uint64_t step,
                                 const fsdpck_error *why);

/* What lies in the folder `root` and has a name that ends in a number (step-1000, global_step_1000,
 * checkpoint-1000, iter_0001000, files as epoch=1-step=1000.ckpt), newest first, until as many
 * complete ones are found as are wanted: *found. */
FSDPCK_API fsdpck_status fsdpck_latest(fsdpck_context *ctx, const char *root,
                                       const fsdpck_latest_options *options, fsdpck_latest_fn fn,
                                       void *arg, uint64_t *found,
                                       fsdpck_error *err) FSDPCK_MUST_CHECK;

#ifdef __cplusplus
}
#endif

#include "fsdpck_model.h"

#endif
