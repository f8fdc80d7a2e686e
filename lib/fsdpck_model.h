/* fsdpck_model.h: the arithmetic of FSDP: modules, names, units and shards of a model. Part of fsdpck.h;
 * either header may be included alone.
 *
 * Calling sequence: shards of a model on 8 ranks, from its description, fsdpck-model(5), without a
 * checkpoint, torch or a GPU:
 *
 *     fsdpck_model *model;
 *     fsdpck_units *units;
 *     st = fsdpck_model_open(ctx, "model.json", &model, &err);
 *     st = fsdpck_units_new(model, 8, 0, &units, &err);
 *     fsdpck_units_info all = FSDPCK_INIT(fsdpck_units_info);
 *     fsdpck_units_get_info(units, &all);
 *     for (i = 0; i < all.units; i++) {                        // in order of traversal
 *         fsdpck_unit unit = FSDPCK_INIT(fsdpck_unit);
 *         fsdpck_units_get(units, i, &unit);
 *         for (k = 0; k < unit.params; k++) {                  // in flat order
 *             fsdpck_unit_param param = FSDPCK_INIT(fsdpck_unit_param);
 *             fsdpck_param_shard shard = FSDPCK_INIT(fsdpck_param_shard);
 *             fsdpck_units_get_param(units, i, k, &param);
 *             fsdpck_units_get_param_shard(units, i, k, rank, &shard);
 *         }
 *     }
 *     fsdpck_units_free(units);
 *     fsdpck_model_close(model);
 *
 * fsdpck(3) has a complete program.
 *
 * Shapes, offsets, strides and counts are in elements; members called nbytes are in bytes. Ends are
 * exclusive. Indices count from 0; for an index out of range, getters return zeros. Names are UTF-8 as
 * in the description. They may contain any byte and are also terminated.
 *
 * Ownership: returned texts and arrays belong to the handle. Free units before their model. Structs
 * begin with struct_nbytes, see FSDPCK_INIT. Pointers must not be NULL unless the text of the call
 * allows it; `err` may be NULL, and functions that free a handle accept NULL. Threads: getters do not
 * change a handle, so several threads may read one.
 *
 * Source of the rules: torch 2.15, torch/distributed/fsdp: _traversal_utils.py, _common_utils.py,
 * _flat_param.py (FSDP1); _fully_shard/_fsdp_init.py, _fsdp_param.py (FSDP2). The description's "torch"
 * selects the rules of older releases where they differ.
 */
#ifndef FSDPCK_MODEL_H
#define FSDPCK_MODEL_H

#include <stddef.h>
#include <stdint.h>

#include "fsdpck_status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* See fsdpck.h. */
typedef struct fsdpck_context fsdpck_context;

/* An index that means "none". */
#define FSDPCK_NONE UINT64_MAX

/* ---- names ---- */

/* Flag of fsdpck_clean_fqn: also remove one leading `module.`, of DDP or DataParallel. */
#define FSDPCK_CLEAN_DDP 1u

/* Removes the parts that wrappers add to a name: _fsdp_wrapped_module, _fpw_module (FSDP1),
 * _checkpoint_wrapped_module and _orig_mod (torch.compile), as whole dotted parts. Reads nbytes at
 * `name`, writes at most capacity_nbytes to dst, terminated if capacity_nbytes > 0. dst may be `name`.
 * Returns the length of the whole cleaned name, never more than nbytes. Source: torch 2.15,
 * fsdp/_common_utils.py (clean_tensor_name). */
FSDPCK_API size_t fsdpck_clean_fqn(const char *name, size_t nbytes, unsigned flags, char *dst,
                                   size_t capacity_nbytes);

/* ---- a model ---- */

/* A description, read and validated. */
typedef struct fsdpck_model fsdpck_model;

/* Returns 1 if `path` is a regular file that begins like a description: JSON without a NUL. */
FSDPCK_API int fsdpck_model_probe(const char *path);

/* Reads a description of modules or of units, fsdpck-model(5). *out is freed with fsdpck_model_close.
 * Errors: BADINPUT (with the line and a finding: MODEL-JSON, MODEL-KEY, MODEL-VERSION, MODEL-ORDER,
 * MODEL-NAME, MODEL-NAME-DUP, MODEL-SHAPE, MODEL-DTYPE, MODEL-TIE, MODEL-WRAP, MODEL-SETTINGS), IO,
 * LIMIT. */
FSDPCK_API fsdpck_status fsdpck_model_open(fsdpck_context *ctx, const char *path,
                                           fsdpck_model **out, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* As fsdpck_model_open, from nbytes at `text`, borrowed for the call. */
FSDPCK_API fsdpck_status fsdpck_model_read(fsdpck_context *ctx, const char *text, size_t nbytes,
                                           fsdpck_model **out, fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Frees a model, after all units made of it. NULL does nothing. */
FSDPCK_API void fsdpck_model_close(fsdpck_model *model);

/* The kind of FSDP in a description. */
typedef enum fsdpck_sharding {
    FSDPCK_SHARDING_NONE,
    FSDPCK_SHARDING_FLAT,        /* FSDP1: flat parameters */
    FSDPCK_SHARDING_FULLY_SHARD, /* FSDP2: each parameter by itself */
    FSDPCK_SHARDING_BOTH         /* both in one model; never of a single unit */
} fsdpck_sharding;

/* "none", "flat", "fully_shard" or "both"; a constant. */
FSDPCK_API const char *fsdpck_sharding_name(fsdpck_sharding sharding);

/* Totals of a description. */
typedef struct fsdpck_model_info {
    size_t struct_nbytes;
    fsdpck_sharding sharding;          /* kind of its units */
    int lists_units;                   /* it lists units: modules, names and buffers are 0 */
    uint64_t world_size;               /* ranks of the run, 0: not in the description */
    unsigned torch_major, torch_minor; /* release whose rules apply */
    uint64_t modules;                  /* limit of the index; shared ones count each time */
    uint64_t params;                   /* each once */
    uint64_t names;          /* of parameters; limit of the index of fsdpck_model_get_param */
    uint64_t buffers;        /* limit of the index */
    uint64_t nelems, nbytes; /* of all parameters, each once */
} fsdpck_model_info;

/* Fills *info. */
FSDPCK_API void fsdpck_model_get_info(const fsdpck_model *model, fsdpck_model_info *info);

/* Bits of fsdpck_module.kinds. */
enum {
    FSDPCK_MODULE_FSDP = 1,        /* FSDP(module), or selected by a policy */
    FSDPCK_MODULE_FULLY_SHARD = 2, /* fully_shard(module) */
    FSDPCK_MODULE_REPLICATE = 4,   /* replicate(module): FSDP skips all modules below it */
    FSDPCK_MODULE_DDP = 8,         /* DistributedDataParallel(module) */
    FSDPCK_MODULE_CHECKPOINT = 16, /* checkpoint_wrapper(module) */
    FSDPCK_MODULE_COMPILE = 32,    /* torch.compile(module) */
    FSDPCK_MODULE_IGNORED = 64,    /* in FSDP's ignored_modules */
    FSDPCK_MODULE_LOCAL = 128      /* in a group of one rank: experts */
};

/* One module. The order is that of named_modules(): parents before children, as registered. */
typedef struct fsdpck_module {
    size_t struct_nbytes;
    const char *path; /* cleaned name; "" for the root */
    size_t path_nbytes;
    const char *class_name;     /* "" if not in the description */
    unsigned kinds;             /* bits of FSDPCK_MODULE_... */
    uint64_t parent;            /* FSDPCK_NONE for the root */
    uint64_t end;               /* index after the last module below it */
    uint64_t same_as;           /* shared module: its first index; else FSDPCK_NONE */
    uint64_t first_name, names; /* its own parameters: index and count for fsdpck_model_get_param */
    uint64_t first_buffer, buffers; /* its own buffers: index and count */
} fsdpck_module;

/* Module number `index`, below info.modules. */
FSDPCK_API void fsdpck_model_get_module(const fsdpck_model *model, uint64_t index,
                                        fsdpck_module *module);

/* One name of a parameter, in the order of modules. A tied parameter has several, linked as a list: the
 * first, which its state uses, then next_name until FSDPCK_NONE. */
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
    int ignored;         /* by FSDP: itself, or a module above it */
    uint64_t module;     /* index of the module with this name */
    uint64_t first_name; /* index of the parameter's first name; may be its own */
    uint64_t next_name;  /* index of its next name, FSDPCK_NONE after the last */
} fsdpck_param;

/* Name number `index`, below info.names. */
FSDPCK_API void fsdpck_model_get_param(const fsdpck_model *model, uint64_t index,
                                       fsdpck_param *param);

/* One buffer. */
typedef struct fsdpck_buffer {
    size_t struct_nbytes;
    const char *fqn;
    size_t fqn_nbytes;
    const char *dtype; /* torch's name */
    unsigned ndim;
    const uint64_t *shape;
    uint64_t nbytes;
    int persistent;  /* in the state dict */
    uint64_t module; /* index of its module */
} fsdpck_buffer;

/* Buffer number `index`, below info.buffers. */
FSDPCK_API void fsdpck_model_get_buffer(const fsdpck_model *model, uint64_t index,
                                        fsdpck_buffer *buffer);

/* Finds a parameter by any of its names, nbytes at `fqn`, cleaned or as in a wrapped model. Returns the
 * index of its first name, or FSDPCK_NONE. */
FSDPCK_API uint64_t fsdpck_model_find_param(const fsdpck_model *model, const char *fqn,
                                            size_t nbytes);

/* Finds a module by its path, nbytes at `path`, likewise. Returns its index, or FSDPCK_NONE. */
FSDPCK_API uint64_t fsdpck_model_find_module(const fsdpck_model *model, const char *path,
                                             size_t nbytes);

/* ---- units: parameters that FSDP shards together ---- */

/* The units of a model for a number of ranks. */
typedef struct fsdpck_units fsdpck_units;

/* Computes the units of `model` on world_size ranks (0: as in the description). Each shard_size
 * consecutive ranks share a unit, and these groups hold replicas (HSDP); 0: all ranks share it.
 * Units with a group of their own (hybrid strategies, experts) keep it if shard_size is 0. Otherwise,
 * hybrid units and those of the description's largest group use shard_size, and smaller groups stay.
 * *out is freed with fsdpck_units_free. Errors: USAGE (sizes that do not divide, too many ranks),
 * BADINPUT (MODEL-WORLD: number of ranks unknown, or reshard_after_forward does not divide; MODEL-DTYPE,
 * MODEL-SHAPE, MODEL-SETTINGS: FSDP cannot shard this), UNSUPPORTED (LAYOUT-UNEVEN: fully_shard on a
 * dim above 0 that does not divide evenly), LIMIT. */
FSDPCK_API fsdpck_status fsdpck_units_new(const fsdpck_model *model, uint64_t world_size,
                                          uint64_t shard_size, fsdpck_units **out,
                                          fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Frees units, before their model. NULL does nothing. */
FSDPCK_API void fsdpck_units_free(fsdpck_units *units);

/* Totals over units and ranks. */
typedef struct fsdpck_units_info {
    size_t struct_nbytes;
    fsdpck_sharding sharding;            /* kind of the units */
    uint64_t world_size;                 /* ranks */
    uint64_t units;                      /* limit of the index */
    uint64_t params;                     /* parameters in units, each once */
    uint64_t whole_params, whole_nbytes; /* parameters in no unit; every rank holds them whole */
    uint64_t ignored_params;             /* of whole_params, those that FSDP must ignore */
    uint64_t buffers, buffer_nbytes;     /* every rank holds them whole */
    uint64_t nelems, nbytes;             /* of all parameters, each once */
    uint64_t rank_nbytes;                /* of parameters that each rank holds between steps,
                                              padding included: the same on all */
    uint64_t cpu_nbytes;                 /* of rank_nbytes, offloaded to the CPU */
    uint64_t rank_nbytes_min, rank_nbytes_max; /* without padding */
    uint64_t rank_min, rank_max;               /* the lowest ranks with these */
    uint64_t rank_nbytes_total;                /* over all ranks, without padding */
    uint64_t padding_nbytes;                   /* over all ranks */
    uint64_t grad_nbytes;                      /* gradients of a rank between steps, padded, in the
                                 parameter's dtype */
    uint64_t adam_nbytes; /* of the rank with most: two moments in the parameter's dtype. Includes
                             padding only for FSDP1 without use_orig_params */
    uint64_t gather_nbytes_max;              /* the largest all-gather */
    uint64_t gather_unit;                    /* index of the first unit with that size */
    uint64_t group_size_min, group_size_max; /* ranks that share a unit; 0: no units */
} fsdpck_units_info;

/* Fills *info. */
FSDPCK_API void fsdpck_units_get_info(const fsdpck_units *units, fsdpck_units_info *info);

/* One unit. FLAT and FULLY_SHARD: only for units of this kind, else zero. */
typedef struct fsdpck_unit {
    size_t struct_nbytes;
    const char *path; /* of its module, "" for the root */
    size_t path_nbytes;
    const char *class_name;   /* of its module */
    uint64_t module;          /* index; FSDPCK_NONE if the description lists units */
    fsdpck_sharding kind;     /* FLAT or FULLY_SHARD */
    const char *strategy;     /* FLAT: torch's name, "FULL_SHARD"; else "" */
    const char *flat_name;    /* FLAT: "_flat_param", after the path; else "" */
    const char *dtype;        /* of its parameters, or "mixed" */
    const char *gather_dtype; /* dtype of the all-gather; "uint8": several, as bytes */
    const char *reduce_dtype; /* dtype of the gradients' reduction, or "mixed" */
    int use_orig_params;      /* FLAT: FSDP's argument */
    int cpu_offload;          /* parameters are on the CPU between steps */
    uint64_t world_size;      /* ranks that share it */
    /* Ranks that share it between forward and backward. 1: each holds it whole; world_size: as
     * before; else k of reshard_after_forward=k, on the mesh (ranks / k, k). */
    uint64_t post_forward_size;
    uint64_t alignment;      /* FLAT: of each parameter, in elements; 0: none */
    uint64_t params;         /* limit of k */
    uint64_t shared;         /* other names of its parameters, see fsdpck_units_get_shared */
    uint64_t nelems;         /* of its parameters */
    uint64_t total;          /* FLAT: elements of the flat parameter, without padding_ranks */
    uint64_t shard_nelems;   /* of a rank, padding included */
    uint64_t padding_inside; /* FLAT: between parameters (aligned; the value 42) */
    uint64_t padding_world;  /* FLAT: up to a multiple of world_size (42 too) */
    uint64_t padding_ranks;  /* over all shards of one group (zeros) */
    uint64_t shard_nbytes;   /* of a rank, padding included */
    uint64_t padding_nbytes; /* of one group */
    uint64_t gather_nbytes;  /* of the unsharded parameters, padding included, in gather_dtype */
    uint64_t post_forward_nbytes; /* of a rank between forward and backward, besides its shard; 0
                                     if it is resharded */
    uint64_t reduce_nbytes;       /* of unsharded gradients, in reduce_dtype */
    uint64_t rank_nelems_max;     /* largest shard without padding; the mean is
                                     nelems / world_size */
} fsdpck_unit;

/* Unit number `unit`, below info.units, in order of traversal. */
FSDPCK_API void fsdpck_units_get(const fsdpck_units *units, uint64_t unit, fsdpck_unit *u);

/* One parameter of a unit. */
typedef struct fsdpck_unit_param {
    size_t struct_nbytes;
    const char *fqn; /* cleaned, from the model's root; torch's names begin at the unit */
    size_t fqn_nbytes;
    uint64_t name;     /* for fsdpck_model_get_param; FSDPCK_NONE if the description lists units */
    const char *dtype; /* torch's name */
    unsigned itemsize_nbytes;
    unsigned ndim;
    const uint64_t *shape;
    uint64_t nelems;
    uint64_t offset;         /* FLAT: its first element in the flat parameter */
    uint64_t padding_before; /* FLAT: elements between the previous parameter and this */
    uint64_t padded_nelems;  /* FULLY_SHARD: of each rank, padding included */
    unsigned shard_dim;      /* FULLY_SHARD: the sharded dim */
    int permuted;            /* FLAT: elements are in memory order, not row-major (channels-last) */
} fsdpck_unit_param;

/* Parameter k of a unit, below unit.params. FLAT: in flat order. */
FSDPCK_API void fsdpck_units_get_param(const fsdpck_units *units, uint64_t unit, uint64_t k,
                                       fsdpck_unit_param *p);

/* Strides of parameter k in memory order, in elements: writes param.ndim values. */
FSDPCK_API void fsdpck_units_get_strides(const fsdpck_units *units, uint64_t unit, uint64_t k,
                                         uint64_t *strides);

/* Another name of a parameter (torch's _shared_param_infos). */
typedef struct fsdpck_unit_shared {
    size_t struct_nbytes;
    const char *fqn;
    size_t fqn_nbytes;
    const char *same_as; /* the name by which a unit has it */
    size_t same_as_nbytes;
} fsdpck_unit_shared;

/* Other name number k of a unit, below unit.shared. */
FSDPCK_API void fsdpck_units_get_shared(const fsdpck_units *units, uint64_t unit, uint64_t k,
                                        fsdpck_unit_shared *s);

/* Finds the unit of a parameter and its index k in it, by any name, as fsdpck_model_find_param. Returns
 * 0 if no unit has it. unit and k may be NULL. */
FSDPCK_API int fsdpck_units_find(const fsdpck_units *units, const char *fqn, size_t nbytes,
                                 uint64_t *unit, uint64_t *k);

/* Returns 1 if a unit has the parameter with first name `name` (index of fsdpck_model_get_param). Every
 * rank holds the other parameters whole. */
FSDPCK_API int fsdpck_units_has(const fsdpck_units *units, uint64_t name);

/* ---- shards of a rank ---- */

/* FLAT: elements [begin, end) of the flat parameter, followed by padding of zeros; together
 * unit.shard_nelems. */
typedef struct fsdpck_unit_shard {
    size_t struct_nbytes;
    uint64_t begin, end;             /* in the flat parameter */
    uint64_t padding;                /* elements after them */
    uint64_t first_param, end_param; /* parameters with elements in it */
} fsdpck_unit_shard;

/* The shard of a FLAT unit on `rank`, below info.world_size. Zeros for other units. */
FSDPCK_API void fsdpck_units_get_shard(const fsdpck_units *units, uint64_t unit, uint64_t rank,
                                       fsdpck_unit_shard *s);

/* The part of a parameter on one rank. FLAT: torch's _shard_param_infos, which has inclusive ends. This
 * loop computes a rank's FlatParamShardMetadata:
 *
 *     for (k = 0; k < unit.params; k++) {
 *         fsdpck_units_get_param(units, i, k, &param);    // param_names, _shapes, _numels
 *         fsdpck_units_get_param_shard(units, i, k, rank, &shard);
 *         if (shard.in_shard)                             // param_offsets:
 *             put(param, shard.begin, shard.end - 1);     // (first, last) of the parameter
 *     }
 *
 * and fsdpck_units_get_strides gives param_strides. FULLY_SHARD: a box, [offset, offset + size) of
 * shard_dim and all of the other dims. */
typedef struct fsdpck_param_shard {
    size_t struct_nbytes;
    int in_shard;          /* FLAT: as in torch; true for some parameters without elements */
    uint64_t nelems;       /* on this rank */
    uint64_t padding;      /* FULLY_SHARD: elements after them, up to padded_nelems */
    uint64_t shard_offset; /* FLAT: its first element in the rank's shard */
    uint64_t begin, end;   /* FLAT: elements of the parameter, in memory order */
    uint64_t offset, size; /* FULLY_SHARD: in shard_dim */
} fsdpck_param_shard;

/* The part of parameter k of a unit on `rank`. */
FSDPCK_API void fsdpck_units_get_param_shard(const fsdpck_units *units, uint64_t unit, uint64_t k,
                                             uint64_t rank, fsdpck_param_shard *shard);

/* A box of a parameter. An element of the caller's array, so its members are final. */
typedef struct fsdpck_box {
    uint64_t offsets[64], sizes[64]; /* ndim of each */
    uint64_t flat;                   /* index of its first element in memory order */
} fsdpck_box;

/* Splits elements [begin, end) of parameter k, in memory order, into boxes in that order: at most
 * 2*ndim-1, ndim at most 64. Fills up to `capacity` boxes and returns their full number. */
FSDPCK_API size_t fsdpck_units_get_boxes(const fsdpck_units *units, uint64_t unit, uint64_t k,
                                         uint64_t begin, uint64_t end, fsdpck_box *boxes,
                                         size_t capacity);

/* Totals of one rank, in bytes. */
typedef struct fsdpck_units_rank {
    size_t struct_nbytes;
    uint64_t nbytes;                   /* of parameters, without padding */
    uint64_t padding_nbytes;           /* additional padding */
    uint64_t grad_nbytes, adam_nbytes; /* as in fsdpck_units_info */
} fsdpck_units_rank;

/* Totals of `rank`, below info.world_size. */
FSDPCK_API void fsdpck_units_get_rank(const fsdpck_units *units, uint64_t rank,
                                      fsdpck_units_rank *totals);

/* ---- one parameter under fully_shard ---- */

/* Arguments of fully_shard. The caller sets all members. */
typedef struct fsdpck_sharded_spec {
    size_t struct_nbytes;
    unsigned ndim;
    const uint64_t *shape; /* of the parameter, borrowed */
    unsigned shard_dim;    /* below ndim */
    uint64_t world_size;   /* ranks that share it */
    uint64_t replicas;     /* number of such groups (HSDP); 0 counts as 1 */
    uint64_t post_forward; /* reshard_after_forward: 0: False, 1: True, else a number of ranks */
    const char *dtype;     /* torch's name */
    const char *param_dtype, *reduce_dtype; /* of mixed precision; NULL: none */
} fsdpck_sharded_spec;

/* Torch's FSDPParam on one rank. Members are named after its attributes where they exist. */
typedef struct fsdpck_sharded_param {
    size_t struct_nbytes;
    uint64_t offset;           /* of the shard, in shard_dim */
    uint64_t sharded_size[64]; /* shape of the DTensor's local tensor; arrays: ndim values */
    uint64_t contiguous_sharded_stride[64];            /* its strides */
    uint64_t padded_sharded_param_size[64];            /* shape in memory: that of the first rank */
    uint64_t unsharded_stride[64];                     /* of the whole parameter: row-major */
    uint64_t nelems, padded_nelems;                    /* of the shard */
    uint64_t post_forward_replicas, post_forward_size; /* mesh after forward: (Replicate(),
                                                          Shard(0)) over these */
    uint64_t sharded_post_forward_size[64];            /* shape after forward */
    uint64_t contiguous_sharded_post_forward_stride[64]; /* its strides */
    uint64_t post_forward_begin, post_forward_end;       /* in the gathered flat data */
    const char *orig_dtype;                              /* of the parameter */
    const char *param_dtype, *reduce_dtype;              /* "" without a cast */
    uint64_t all_gather_inputs;                          /* 1, or the number of an extension */
} fsdpck_sharded_param;

/* Computes the shard of one parameter on `rank`, without a model. Errors: USAGE (unknown dtype, rank out
 * of range), else as of fsdpck_units_new. Source: torch 2.15, _fully_shard/_fsdp_param.py. */
FSDPCK_API fsdpck_status fsdpck_sharded_param_of(const fsdpck_sharded_spec *spec, uint64_t rank,
                                                 fsdpck_sharded_param *p,
                                                 fsdpck_error *err) FSDPCK_MUST_CHECK;

/* The same for parameter k of a FULLY_SHARD unit. Zeros for other units. */
FSDPCK_API void fsdpck_units_get_sharded(const fsdpck_units *units, uint64_t unit, uint64_t k,
                                         uint64_t rank, fsdpck_sharded_param *p);

/* One input of the all-gather, per rank, and its output. */
typedef struct fsdpck_gather_input {
    size_t struct_nbytes;
    const char *dtype;                     /* torch's name */
    uint64_t nelems, nbytes;               /* input of one rank */
    uint64_t output_nelems, output_nbytes; /* nelems x world_size */
} fsdpck_gather_input;

/* Input j of parameter k of a FULLY_SHARD unit, below all_gather_inputs. Zeros for other units. */
FSDPCK_API void fsdpck_units_get_input(const fsdpck_units *units, uint64_t unit, uint64_t k,
                                       uint64_t j, fsdpck_gather_input *input);

/* ---- chunks and placements ---- */

/* torch.chunk of n elements into `parts` chunks: offset and size of chunk `index`. Trailing chunks may
 * be empty, with offset n. parts 0 counts as 1. */
FSDPCK_API void fsdpck_chunk_of(uint64_t n, uint64_t parts, uint64_t index, uint64_t *offset,
                                uint64_t *size);

/* Arguments of fsdpck_units_new for a mesh such as "dp_replicate=2,dp_shard=4": all its ranks, and the
 * ranks that FSDP shards over. Errors: USAGE (not a mesh; dims of tp or ep, which a description does not
 * cover). */
FSDPCK_API fsdpck_status fsdpck_mesh_sizes(const char *mesh, uint64_t *world_size,
                                           uint64_t *shard_size,
                                           fsdpck_error *err) FSDPCK_MUST_CHECK;

/* The shard of a tensor on one rank of a mesh, as one box: writes ndim (at most 64) offsets and sizes.
 * mesh: "dp_replicate=2,dp_shard=4,tp=2", names as in fsdpck-reshard(1), ranks row-major. placements: as
 * torch prints them, one per mesh dim, such as "[Replicate(), Shard(0), _StridedShard(0, 2)]". A
 * _StridedShard follows the physical order of the data, tp first (fully_shard over a tensor of tp), which
 * is always one box. Errors: USAGE (invalid texts, a missing dim, a rank outside the mesh), UNSUPPORTED
 * (LAYOUT-ORDER: split factors that match no order). Source: torch 2.15, tensor/_utils.py,
 * fsdp/_fully_shard/_fsdp_param.py. */
FSDPCK_API fsdpck_status fsdpck_shard_of(const char *mesh, const char *placements, unsigned ndim,
                                         const uint64_t *shape, uint64_t rank, uint64_t *offsets,
                                         uint64_t *sizes, fsdpck_error *err) FSDPCK_MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
