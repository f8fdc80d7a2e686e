/* fsdpck_model.h: what FSDP makes of a model, in numbers: modules, names, units, shards. Part of
 * fsdpck.h, which includes it.
 *
 * Calling sequence: who holds what of a model that 8 ranks train, from its description alone
 * (fsdpck-model(5)); no checkpoint, no torch, no GPU:
 *
 *     fsdpck_model *model;
 *     fsdpck_units *units;
 *     st = fsdpck_model_open(ctx, "model.json", &model, &err);
 *     st = fsdpck_units_new(model, 8, 0, &units, &err);
 *     fsdpck_units_info all = {.struct_nbytes = sizeof all};
 *     fsdpck_units_get_info(units, &all);
 *     for (i = 0; i < all.units; i++) {                        // in the order of traversal
 *         fsdpck_unit unit = {.struct_nbytes = sizeof unit};
 *         fsdpck_units_get(units, i, &unit);
 *         for (k = 0; k < unit.params; k++) {                  // in flat order
 *             fsdpck_unit_param param = {.struct_nbytes = sizeof param};
 *             fsdpck_param_shard piece = {.struct_nbytes = sizeof piece};
 *             fsdpck_units_get_param(units, i, k, &param);
 *             fsdpck_units_get_param_shard(units, i, k, rank, &piece);
 *         }
 *     }
 *     fsdpck_units_free(units);
 *     fsdpck_model_close(model);
 *
 * fsdpck(3) has a whole program.
 *
 * Shapes, offsets, strides and counts are in elements, what is called nbytes in bytes; ends are
 * exclusive. Structs that are filled begin with struct_nbytes, which the caller sets to sizeof(the
 * struct), as above, before each first call: a newer library then fills what an older program
 * knows. Indices count from 0; one that is out of range gives zeros. Names are UTF-8 as the
 * description has them, may hold any byte, and end with a NUL besides. Everything that is returned
 * is borrowed from the handle. Reading from a handle changes nothing in it: several threads may.
 *
 * Source of the rules: torch 2.15, torch/distributed/fsdp: _traversal_utils.py, _common_utils.py,
 * _flat_param.py (FSDP1); _fully_shard/_fsdp_init.py, _fsdp_param.py (FSDP2); and what older
 * releases do otherwise, by "torch" of the description.
 */
#ifndef FSDPCK_MODEL_H
#define FSDPCK_MODEL_H

#include <stddef.h>
#include <stdint.h>

#include "fsdpck_status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct fsdpck_context fsdpck_context;

/* Where an index says that there is none. */
#define FSDPCK_NONE UINT64_MAX

/* ---- names ---- */

#define FSDPCK_CLEAN_DDP 1u /* one leading `module.`, of DDP or DataParallel, goes as well */

/* A fully qualified name without what wrappers put into it: FSDP1, activation checkpointing,
 * torch.compile (_fsdp_wrapped_module, _fpw_module, _checkpoint_wrapped_module, _orig_mod), as whole
 * dotted parts. Writes at most capacity bytes into dst, always terminated where capacity > 0;
 * returns the bytes of the whole cleaned name (never more than nbytes), without the NUL. dst may be
 * the name itself. Source: torch 2.15, fsdp/_common_utils.py (clean_tensor_name). */
FSDPCK_API size_t fsdpck_clean_fqn(const char *name, size_t nbytes, unsigned flags, char *dst,
                                   size_t capacity_nbytes);

/* ---- a model ---- */

typedef struct fsdpck_model fsdpck_model;

/* Whether a path is a regular file that looks like a description, by its first bytes: JSON, no
 * NUL. */
FSDPCK_API int fsdpck_model_probe(const char *path);

/* Reads a description: of modules, or of units alone (fsdpck-model(5)). *out is closed with
 * fsdpck_model_close, after all units that were made of it. Errors: BADINPUT (with the place and a
 * finding: MODEL-JSON, MODEL-KEY, MODEL-VERSION, MODEL-ORDER, MODEL-NAME, MODEL-NAME-DUP,
 * MODEL-SHAPE, MODEL-DTYPE, MODEL-TIE, MODEL-WRAP, MODEL-SETTINGS), IO, LIMIT. */
FSDPCK_API fsdpck_status fsdpck_model_open(fsdpck_context *ctx, const char *path,
                                           fsdpck_model **out, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* The same from nbytes at `text`, which may go afterwards. */
FSDPCK_API fsdpck_status fsdpck_model_read(fsdpck_context *ctx, const char *text, size_t nbytes,
                                           fsdpck_model **out, fsdpck_error *err) FSDPCK_MUST_CHECK;
FSDPCK_API void fsdpck_model_close(fsdpck_model *model);

/* Which FSDP a description speaks of. */
typedef enum fsdpck_sharding {
    FSDPCK_SHARDING_NONE,
    FSDPCK_SHARDING_FLAT,        /* FSDP1: flat parameters */
    FSDPCK_SHARDING_FULLY_SHARD, /* FSDP2: each parameter by itself */
    FSDPCK_SHARDING_BOTH         /* in parts of the model; of no single unit */
} fsdpck_sharding;

/* "none", "flat", "fully_shard", "both". */
FSDPCK_API const char *fsdpck_sharding_name(fsdpck_sharding sharding);

typedef struct fsdpck_model_info {
    size_t struct_nbytes;
    fsdpck_sharding sharding; /* of which there is a unit */
    int lists_units;          /* no modules: modules, names and buffers are 0 */
    uint64_t world_size;      /* ranks of the run, 0: not said */
    unsigned torch_major, torch_minor;
    uint64_t modules; /* those registered again counted again */
    uint64_t params;  /* each once */
    uint64_t names;   /* of parameters */
    uint64_t buffers;
    uint64_t nelems, nbytes; /* of all parameters, each once */
} fsdpck_model_info;

FSDPCK_API void fsdpck_model_get_info(const fsdpck_model *model, fsdpck_model_info *info);

enum {
    FSDPCK_MODULE_FSDP = 1,        /* FSDP(module), or chosen by a policy */
    FSDPCK_MODULE_FULLY_SHARD = 2, /* fully_shard(module) */
    FSDPCK_MODULE_REPLICATE = 4,   /* replicate(module): nothing below it is entered */
    FSDPCK_MODULE_DDP = 8,
    FSDPCK_MODULE_CHECKPOINT = 16,
    FSDPCK_MODULE_COMPILE = 32,
    FSDPCK_MODULE_IGNORED = 64, /* of FSDP's ignored_modules */
    FSDPCK_MODULE_LOCAL = 128   /* in a group of one rank: experts */
};

/* Modules in the order of named_modules(): left to right, parents before children. */
typedef struct fsdpck_module {
    size_t struct_nbytes;
    const char *path; /* clean, "" for the root */
    size_t path_nbytes;
    const char *class_name;     /* "" where it is not said */
    unsigned kinds;             /* bits of FSDPCK_MODULE_... */
    uint64_t parent;            /* FSDPCK_NONE for the root */
    uint64_t end;               /* index just past the last module below it */
    uint64_t same_as;           /* the one registered before, FSDPCK_NONE where this is it */
    uint64_t first_name, names; /* of its own parameters, for fsdpck_model_get_param */
    uint64_t first_buffer, buffers;
} fsdpck_module;

FSDPCK_API void fsdpck_model_get_module(const fsdpck_model *model, uint64_t index,
                                        fsdpck_module *module);

/* Names of parameters, in the order of modules. A parameter with several (tied) has them in a list:
 * the first one, by which state goes, then next_name until FSDPCK_NONE. */
typedef struct fsdpck_param {
    size_t struct_nbytes;
    const char *fqn;
    size_t fqn_nbytes;
    const char *dtype; /* torch's name: "float32" */
    unsigned itemsize_nbytes;
    unsigned ndim;
    const uint64_t *shape;
    const uint64_t *strides; /* NULL: contiguous */
    uint64_t nelems;
    int requires_grad;
    int ignored;         /* FSDP leaves it out: it, or a module above it */
    uint64_t module;     /* that has this name */
    uint64_t first_name; /* index of the parameter's first name; its own where it is that */
    uint64_t next_name;  /* the parameter's next one, FSDPCK_NONE behind the last */
} fsdpck_param;

/* index below info.names. */
FSDPCK_API void fsdpck_model_get_param(const fsdpck_model *model, uint64_t index,
                                       fsdpck_param *param);

typedef struct fsdpck_buffer {
    size_t struct_nbytes;
    const char *fqn;
    size_t fqn_nbytes;
    const char *dtype;
    unsigned ndim;
    const uint64_t *shape;
    uint64_t nbytes;
    int persistent;
    uint64_t module;
} fsdpck_buffer;

FSDPCK_API void fsdpck_model_get_buffer(const fsdpck_model *model, uint64_t index,
                                        fsdpck_buffer *buffer);

/* Index of a parameter's first name, by any of its names, cleaned or as a wrapped model has it; of a
 * module by its path. FSDPCK_NONE where there is none. */
FSDPCK_API uint64_t fsdpck_model_find_param(const fsdpck_model *model, const char *fqn,
                                            size_t nbytes);
FSDPCK_API uint64_t fsdpck_model_find_module(const fsdpck_model *model, const char *path,
                                             size_t nbytes);

/* ---- units: what FSDP shards together ---- */

typedef struct fsdpck_units fsdpck_units;

/* The units of a model on world_size ranks (0: as many as the description says), of which each
 * shard_size in a row share a unit and the groups hold the same (HSDP; 0: all share it). Without
 * shard_size, units with a group of their own (hybrid strategies, experts) keep it; with it, hybrid
 * ones and those of the description's largest group share by it, and smaller groups stay. Freed with fsdpck_units_free, before its model. Errors: USAGE (sizes that do not divide, too
 * many ranks), BADINPUT (MODEL-WORLD: nobody says how many ranks, or reshard_after_forward does not
 * divide; MODEL-DTYPE, MODEL-SHAPE, MODEL-SETTINGS: what FSDP cannot shard), UNSUPPORTED
 * (LAYOUT-UNEVEN: fully_shard on a dim above 0 that does not divide evenly), LIMIT. */
FSDPCK_API fsdpck_status fsdpck_units_new(const fsdpck_model *model, uint64_t world_size,
                                          uint64_t shard_size, fsdpck_units **out,
                                          fsdpck_error *err) FSDPCK_MUST_CHECK;
FSDPCK_API void fsdpck_units_free(fsdpck_units *units);

typedef struct fsdpck_units_info {
    size_t struct_nbytes;
    fsdpck_sharding sharding;
    uint64_t world_size;
    uint64_t units, params;              /* parameters in units, each once */
    uint64_t whole_params, whole_nbytes; /* in no unit: every rank holds them whole */
    uint64_t ignored_params;             /* of those, the ones that FSDP was told to leave out */
    uint64_t buffers, buffer_nbytes;     /* every rank holds them whole */
    uint64_t nelems, nbytes;             /* of all parameters, each once */
    uint64_t rank_nbytes;                /* of parameters that each rank holds between steps,
                                              padding included: the same on all */
    uint64_t cpu_nbytes;                 /* of these, offloaded to the CPU */
    uint64_t rank_nbytes_min, rank_nbytes_max; /* without padding; the lowest ranks that hold so */
    uint64_t rank_min, rank_max;
    uint64_t rank_nbytes_total; /* over all ranks, without padding */
    uint64_t padding_nbytes;    /* over all ranks */
    uint64_t grad_nbytes;       /* of a rank's gradients between steps: padded, in the parameter's
                                 dtype, in which both FSDPs keep them */
    uint64_t adam_nbytes; /* of the rank with most: two moments in the parameter's dtype, of what
                             the optimizer sees (padding only of FSDP1 without use_orig_params) */
    uint64_t gather_nbytes_max;              /* the largest all-gather */
    uint64_t gather_unit;                    /* the first unit that has it */
    uint64_t group_size_min, group_size_max; /* ranks that share a unit; 0: there is none */
} fsdpck_units_info;

FSDPCK_API void fsdpck_units_get_info(const fsdpck_units *units, fsdpck_units_info *info);

typedef struct fsdpck_unit {
    size_t struct_nbytes;
    const char *path; /* of the fully sharded module, "" for the root */
    size_t path_nbytes;
    const char *class_name;
    uint64_t module; /* FSDPCK_NONE where the description lists units */
    fsdpck_sharding kind;
    const char *strategy;     /* FLAT: torch's name, "FULL_SHARD"; else "" */
    const char *flat_name;    /* FLAT: "_flat_param", behind the path; else "" */
    const char *dtype;        /* of its parameters; "mixed" */
    const char *gather_dtype; /* in which they are gathered; "uint8": several, as bytes */
    const char *reduce_dtype; /* in which gradients are reduced; "mixed" */
    int use_orig_params;      /* FLAT */
    int cpu_offload;
    uint64_t world_size; /* ranks that share it */
    /* Ranks that share it between forward and backward: 1: each keeps it whole; world_size: as
     * before; else reshard_after_forward=k, on the mesh (ranks / k, k). */
    uint64_t post_forward_size;
    uint64_t alignment; /* FLAT: of each parameter, elements; 0: none */
    uint64_t params, shared;
    uint64_t nelems;         /* of its parameters */
    uint64_t total;          /* FLAT: of the flat parameter, without the ranks' padding */
    uint64_t shard_nelems;   /* that a rank holds, padding included */
    uint64_t padding_inside; /* FLAT: between parameters (aligned; the value 42) */
    uint64_t padding_world;  /* FLAT: up to a multiple of world_size (42 too) */
    uint64_t padding_ranks;  /* of all shards of one group together (zeros) */
    uint64_t shard_nbytes;   /* a rank holds, padding included */
    uint64_t padding_nbytes; /* of one group */
    uint64_t gather_nbytes;  /* of the unsharded parameters, padding included, in gather_dtype */
    uint64_t post_forward_nbytes; /* a rank holds between forward and backward, beside its shard; 0
                                     where that is resharded */
    uint64_t reduce_nbytes;       /* of unsharded gradients, in reduce_dtype */
    uint64_t rank_nelems_max;     /* most that a rank holds without padding; the mean is
                                     nelems / world_size */
} fsdpck_unit;

FSDPCK_API void fsdpck_units_get(const fsdpck_units *units, uint64_t unit, fsdpck_unit *u);

typedef struct fsdpck_unit_param {
    size_t struct_nbytes;
    const char *fqn; /* clean, from the root of the model; torch's own are from the unit's path */
    size_t fqn_nbytes;
    uint64_t name; /* for fsdpck_model_get_param; FSDPCK_NONE where the description lists units */
    const char *dtype;
    unsigned itemsize_nbytes;
    unsigned ndim;
    const uint64_t *shape;
    uint64_t nelems;
    uint64_t offset;         /* FLAT: of its first element in the flat parameter */
    uint64_t padding_before; /* FLAT: elements between it and the one before */
    uint64_t padded_nelems;  /* FULLY_SHARD: that each rank holds, padding included */
    unsigned shard_dim;      /* FULLY_SHARD */
    int permuted;            /* FLAT: in memory order, which is not row-major (channels-last) */
} fsdpck_unit_param;

FSDPCK_API void fsdpck_units_get_param(const fsdpck_units *units, uint64_t unit, uint64_t k,
                                       fsdpck_unit_param *p);
/* The memory order of a parameter as strides, ndim of them. */
FSDPCK_API void fsdpck_units_get_strides(const fsdpck_units *units, uint64_t unit, uint64_t k,
                                         uint64_t *strides);

/* Other names of the unit's parameters (torch's _shared_param_infos): name k below unit.shared. */
typedef struct fsdpck_unit_shared {
    size_t struct_nbytes;
    const char *fqn;
    size_t fqn_nbytes;
    const char *same_as; /* the one that is in a unit */
    size_t same_as_nbytes;
} fsdpck_unit_shared;

FSDPCK_API void fsdpck_units_get_shared(const fsdpck_units *units, uint64_t unit, uint64_t k,
                                        fsdpck_unit_shared *s);

/* The unit and the place in it of a parameter, by any name, as fsdpck_model_find_param. 0 where no
 * unit has it. unit and k may be NULL. */
FSDPCK_API int fsdpck_units_find(const fsdpck_units *units, const char *fqn, size_t nbytes,
                                 uint64_t *unit, uint64_t *k);

/* Whether a unit has the parameter whose first name this is (fsdpck_model_get_param); without one
 * every rank holds it whole. */
FSDPCK_API int fsdpck_units_has(const fsdpck_units *units, uint64_t name);

/* ---- what a rank holds ---- */

/* FLAT: [begin, end) of the flat parameter and padding of zeros behind it; together
 * unit.shard_nelems. `rank` is of all ranks; so below. */
typedef struct fsdpck_unit_shard {
    size_t struct_nbytes;
    uint64_t begin, end;
    uint64_t padding;
    uint64_t first_param, end_param; /* the others have no piece in it */
} fsdpck_unit_shard;

FSDPCK_API void fsdpck_units_get_shard(const fsdpck_units *units, uint64_t unit, uint64_t rank,
                                       fsdpck_unit_shard *s);

/* What of parameter k. FLAT: torch's _shard_param_infos (there with inclusive ends). The rank's
 * FlatParamShardMetadata is this loop:
 *
 *     for (k = 0; k < unit.params; k++) {
 *         fsdpck_units_get_param(units, i, k, &param);    // param_names, _shapes, _numels
 *         fsdpck_units_get_param_shard(units, i, k, rank, &piece);
 *         if (piece.in_shard)                             // param_offsets:
 *             put(param, piece.begin, piece.end - 1);     // (first, last) of the parameter
 *     }
 *
 * with fsdpck_units_get_strides for param_strides. FULLY_SHARD: the box is offset to offset + sizes
 * of shard_dim, and all of the other dims. */
typedef struct fsdpck_param_shard {
    size_t struct_nbytes;
    int in_shard;          /* FLAT: torch's word; a parameter without elements may be in one */
    uint64_t nelems;       /* that the rank holds */
    uint64_t padding;      /* FULLY_SHARD: elements behind them, up to padded_nelems */
    uint64_t shard_offset; /* FLAT: of its first element in the rank's shard */
    uint64_t begin, end;   /* FLAT: elements of the parameter, in memory order */
    uint64_t offset, size; /* FULLY_SHARD: in shard_dim */
} fsdpck_param_shard;

FSDPCK_API void fsdpck_units_get_param_shard(const fsdpck_units *units, uint64_t unit, uint64_t k,
                                             uint64_t rank, fsdpck_param_shard *piece);

typedef struct fsdpck_box {
    uint64_t offsets[64], sizes[64]; /* ndim of each */
    uint64_t flat;                   /* place of its first element in the memory order */
} fsdpck_box;

/* Elements [begin, end) of parameter k in memory order, as boxes of it, at most 2*ndim-1, in that
 * order; 64 dims are the most. Fills up to `capacity` of them and returns how many there are. */
FSDPCK_API size_t fsdpck_units_get_boxes(const fsdpck_units *units, uint64_t unit, uint64_t k,
                                         uint64_t begin, uint64_t end, fsdpck_box *boxes,
                                         size_t capacity);

/* Totals of one rank, in bytes. */
typedef struct fsdpck_units_rank {
    size_t struct_nbytes;
    uint64_t nbytes;         /* of parameters, without padding */
    uint64_t padding_nbytes; /* in its memory besides */
    uint64_t grad_nbytes, adam_nbytes;
} fsdpck_units_rank;

FSDPCK_API void fsdpck_units_get_rank(const fsdpck_units *units, uint64_t rank,
                                      fsdpck_units_rank *totals);

/* ---- one parameter under fully_shard ---- */

/* What fully_shard is told. */
typedef struct fsdpck_sharded_spec {
    size_t struct_nbytes;
    unsigned ndim;
    const uint64_t *shape; /* of the parameter, borrowed */
    unsigned shard_dim;
    uint64_t world_size;   /* ranks that share it */
    uint64_t replicas;     /* groups of so many ranks (HSDP); 0 or 1: one */
    uint64_t post_forward; /* reshard_after_forward: 0 false, 1 true, else a number of ranks */
    const char *dtype;     /* torch's name */
    const char *param_dtype, *reduce_dtype; /* of mixed precision; NULL: none */
} fsdpck_sharded_spec;

/* Torch's FSDPParam on one rank: members have the names of its attributes where it has them. */
typedef struct fsdpck_sharded_param {
    size_t struct_nbytes;
    uint64_t offset;           /* of the shard in shard_dim */
    uint64_t sharded_size[64]; /* what the DTensor's local tensor is */
    uint64_t contiguous_sharded_stride[64];
    uint64_t padded_sharded_param_size[64]; /* what memory holds: that of the first rank */
    uint64_t unsharded_stride[64];          /* of the whole parameter: row-major */
    uint64_t nelems, padded_nelems;         /* of the shard */
    uint64_t post_forward_replicas, post_forward_size; /* the mesh after forward: (Replicate(),
                                                          Shard(0)) over these */
    uint64_t sharded_post_forward_size[64];
    uint64_t contiguous_sharded_post_forward_stride[64];
    uint64_t post_forward_begin, post_forward_end; /* of the gathered flat data */
    const char *orig_dtype;
    const char *param_dtype, *reduce_dtype; /* "" where nothing is cast */
    uint64_t all_gather_inputs;             /* 1, or those of an extension */
} fsdpck_sharded_param;

/* Errors: as of fsdpck_units_new for one parameter, USAGE (a dtype that is none). */
FSDPCK_API fsdpck_status fsdpck_sharded_param_of(const fsdpck_sharded_spec *spec, uint64_t rank,
                                                 fsdpck_sharded_param *p,
                                                 fsdpck_error *err) FSDPCK_MUST_CHECK;
/* The same of parameter k of a FULLY_SHARD unit; zeros for other units. */
FSDPCK_API void fsdpck_units_get_sharded(const fsdpck_units *units, uint64_t unit, uint64_t k,
                                         uint64_t rank, fsdpck_sharded_param *p);

/* One tensor that each rank gives to the all-gather, and what comes out of it. */
typedef struct fsdpck_gather_input {
    size_t struct_nbytes;
    const char *dtype;
    uint64_t nelems, nbytes;               /* of a rank */
    uint64_t output_nelems, output_nbytes; /* nelems x world_size */
} fsdpck_gather_input;

/* Input j below all_gather_inputs. */
FSDPCK_API void fsdpck_units_get_input(const fsdpck_units *units, uint64_t unit, uint64_t k,
                                       uint64_t j, fsdpck_gather_input *input);

/* ---- cutting ---- */

/* How torch.chunk cuts n elements into `parts`: offset and size of part `index`. Trailing parts may
 * be empty; their offset is n. parts 0 counts as 1. */
FSDPCK_API void fsdpck_chunk_of(uint64_t n, uint64_t parts, uint64_t index, uint64_t *offset,
                                uint64_t *size);

/* Ranks of a mesh ("dp_replicate=2,dp_shard=4") and those of them that FSDP cuts over, for
 * fsdpck_units_new. Errors: USAGE (a text that is no mesh; dims of tp or ep, of which a description
 * says nothing). */
FSDPCK_API fsdpck_status fsdpck_mesh_sizes(const char *mesh, uint64_t *world_size,
                                           uint64_t *shard_size,
                                           fsdpck_error *err) FSDPCK_MUST_CHECK;

/* What the rank of a mesh holds of a tensor under placements, as one box: ndim (at most 64) offsets
 * and sizes. mesh: "dp_replicate=2,dp_shard=4,tp=2", names as in fsdpck-reshard(1), ranks row-major.
 * placements: as torch prints them, "[Replicate(), Shard(0), _StridedShard(0, 2)]", one a mesh dim.
 * A _StridedShard is taken as the data are really cut, tp first (fully_shard over a tensor of tp);
 * that is always one box. Errors: USAGE (texts, a dim that is not there, a rank outside the mesh),
 * UNSUPPORTED (LAYOUT-ORDER: split factors that name no order). Source: torch 2.15, tensor/_utils.py,
 * fsdp/_fully_shard/_fsdp_param.py. */
FSDPCK_API fsdpck_status fsdpck_shard_of(const char *mesh, const char *placements, unsigned ndim,
                                         const uint64_t *shape, uint64_t rank, uint64_t *offsets,
                                         uint64_t *sizes, fsdpck_error *err) FSDPCK_MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
