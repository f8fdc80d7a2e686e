/* model.h: a model's modules, parameters and buffers, as FSDP processes them (fsdpck-model(5)).
 *
 *     model m;
 *     model_init(&m, &budget);
 *     RETURN_IF(model_read(&m, text, nbytes, err));             // model_json.c; `text` is free now
 *     unit_list units;
 *     unit_list_init(&units, &budget);
 *     RETURN_IF(model_find_units(&m, &ranks, &units, err));     // traversal.c: FSDP1 units
 *     sharded_list groups;
 *     sharded_list_init(&groups, &budget);
 *     RETURN_IF(model_find_fully_sharded(&m, &groups, err));    // traversal.c: FSDP2 units
 *     ...
 *     model_release(&m);
 *
 * The description is one list of modules in registration order, parents before children, as
 * `named_modules()` gives them, so that it is read in one pass without a tree:
 *
 *     {"version": 1, "world_size": 4, "modules": [
 *       {"name": "", "class": "Net", "fsdp": {"use_orig_params": true, "param_dtype": "bfloat16"}},
 *       {"name": "emb", "class": "Embedding", "params": [
 *         {"name": "weight", "shape": [11, 6], "dtype": "float32"}]},
 *       {"name": "head", "params": [{"name": "weight", "same_as": "emb.weight"}]},
 *       {"name": "norm", "buffers": [{"name": "running_mean", "shape": [6], "dtype": "float32"}]}]}
 *
 * or {"version": 1, "units": [...]} (unit_json.h). Names contain no wrapper parts: a key stands for
 * each wrapper ("fsdp", "ddp", "checkpoint", "compile"). Hence the wrapper form and the composable
 * form of one model give the same list.
 *
 * A module that is registered a second time is {"name": "b", "same_as": "a"}; the reader adds
 * modules, parameters and buffers of its whole subtree, each `same_as` its original.
 *
 * Source: torch 2.15, torch/distributed/fsdp (_traversal_utils.py, _init_utils.py, _flat_param.py,
 * wrap.py, _fully_shard/_fsdp_init.py).
 */
#ifndef FSDPCK_MODEL_MODEL_H
#define FSDPCK_MODEL_MODEL_H

#include "model/optim_groups.h"
#include "model/unit.h"

#define MODEL_NONE UINT32_MAX
/* Limit for each kind, including repeated modules, so that an index and a kind fit 32 bits. */
#define MODEL_ITEMS_MAX ((UINT32_C(1) << 30) - 1)

typedef enum module_kind {
    MODULE_FSDP = 1,        /* FSDP(module), or selected by "auto_wrap": a separate unit */
    MODULE_FULLY_SHARD = 2, /* fully_shard(module): FSDP2 */
    MODULE_REPLICATE = 4,   /* replicate(module): not entered; everything below it is ignored */
    MODULE_DDP = 8,         /* DistributedDataParallel, DataParallel: `module.` in live names */
    MODULE_CHECKPOINT = 16, /* activation checkpoint: `_checkpoint_wrapped_module.` */
    MODULE_COMPILE = 32,    /* `_orig_mod.` */
    MODULE_IGNORED = 64,    /* FSDP's ignored_modules: it and everything below it outside other
                             * units */
    MODULE_LOCAL = 128      /* it and everything below it in a group of one rank: each rank has
                             * its own */
} module_kind;

/* Arguments of one FSDP or fully_shard call. */
typedef struct model_sharding {
    uint8_t strategy;       /* FSDP1 */
    bool use_orig_params;   /* FSDP1; equal in a whole tree */
    bool limit_all_gathers; /* FSDP1; likewise */
    bool cpu_offload;
    uint8_t param_dtype; /* of mixed precision; DTYPE_NONE: none */
    uint8_t reduce_dtype;
    uint8_t buffer_dtype;
    uint8_t shard_dim;     /* FSDP2: of parameters that specify none */
    uint32_t world_size;   /* of the sharding group, 0: the document's */
    uint32_t post_forward; /* FSDP2 reshard_after_forward: 0 false, 1 true, k ranks */
    uint32_t with;         /* FSDP2: module whose call also lists this one, MODEL_NONE */
} model_sharding;

typedef struct model_module {
    uint32_t name;       /* name id: the whole clean path, "" for the root */
    uint32_t class_name; /* id in model.classes, MODEL_NONE */
    uint32_t parent;     /* MODEL_NONE for the root */
    uint32_t next;       /* index after the last module below this one (the list is in pre-order) */
    uint32_t first_param, nparams;
    uint32_t first_buffer, nbuffers;
    uint32_t sharding;   /* index in model.shardings, MODEL_NONE */
    uint32_t same_as;    /* a module registered before, visited once; MODEL_NONE */
    uint32_t state_path; /* id in model.paths: see model_state_path; MODEL_NONE: as name */
    uint16_t kinds;      /* of module_kind */
} model_module;

/* One name of a parameter. Names of the same parameter form a list: the first registered name,
 * whose same_as is MODEL_NONE, then next_name. */
typedef struct model_param {
    uint32_t name; /* name id: FQN, as in saved state */
    uint32_t module;
    uint32_t same_as;   /* the first name of this parameter, MODEL_NONE for the first name itself */
    uint32_t same_slot; /* in a module registered again: the parameter of the first registration */
    uint32_t next_name; /* MODEL_NONE at the end */
    uint8_t dtype;
    uint8_t ndim;
    bool requires_grad : 1;
    bool ignored : 1;
    bool
        flattened : 1; /* this name's unit has the tied parameter, whatever the order of the modules */
    bool strided : 1;  /* strides follow the shape */
    uint8_t shard_dim; /* FSDP2; UINT8_MAX: that of the call */
    uint64_t shape_at; /* in model.dims */
} model_param;

typedef struct model_buffer {
    uint32_t name;
    uint32_t module;
    uint32_t same_as; /* in a module registered again, else MODEL_NONE */
    uint8_t dtype;
    uint8_t ndim;
    bool persistent;
    uint64_t shape_at;
} model_buffer;

/* A tensor that replaces a parameter in the all-gather (fsdp_pre_all_gather: quantized data,
 * scales), with the sizes for the whole parameter; those of one parameter in order, and the
 * parameters in theirs. */
typedef struct model_input {
    uint32_t param; /* its first name */
    uint8_t dtype;
    uint8_t ndim;
    uint64_t shape_at;
} model_input;

/* The release that trained the model, which determines the flattening. */
typedef struct model_torch {
    uint32_t major, minor;
} model_torch;

typedef struct model {
    budget *owner;
    strtab names;   /* of modules, parameters and buffers, unique */
    strtab classes; /* of modules */
    strtab paths;   /* of modules whose path in saved state an outer module overrides */
    vec modules, params, buffers, shardings, dims;
    vec inputs;              /* model_input */
    vec uses;                /* uint32_t of each name id: the item with this name */
    uint64_t nelems;         /* of all parameters, each counted once */
    uint32_t world_size;     /* 0: not stated */
    model_torch torch;       /* 2.15 if not stated */
    optim_groups optimizers; /* no lists: not stated */
    unit_list units;         /* of a document that lists units; empty otherwise */
    bool lists_units;
} model;

void model_init(model *m, budget *owner);
void model_release(model *m);

/* Reads a whole document into an initialized model. BADINPUT with the byte offset, the module's or
 * parameter's name, expected and found, and finding MODEL-JSON (not strict JSON), MODEL-KEY
 * (unknown, duplicate, missing, of a wrong type or value), MODEL-VERSION, MODEL-ORDER (a module
 * before its parent or away from its siblings), MODEL-NAME (empty, with a dot, or a wrapper's
 * part), MODEL-NAME-DUP, MODEL-SHAPE, MODEL-DTYPE, MODEL-TIE (same_as), MODEL-WRAP (auto_wrap),
 * MODEL-SETTINGS (must be equal in a tree but differ), or one of unit_json_read's. */
fsdpck_status model_read(model *m, const char *text, size_t nbytes,
                         fsdpck_error *err) FSDPCK_MUST_CHECK;

uint32_t model_module_count(const model *m);
const model_module *model_module_at(const model *m, uint32_t i);
uint32_t model_param_count(const model *m);
const model_param *model_param_at(const model *m, uint32_t i);
uint32_t model_buffer_count(const model *m);
const model_buffer *model_buffer_at(const model *m, uint32_t i);
/* NULL if sharding is MODEL_NONE. */
const model_sharding *model_sharding_of(const model *m, const model_module *module);
const char *model_name(const model *m, uint32_t name_id, size_t *nbytes);
/* The path before a module's tensors in saved state and in named_parameters(). It differs from the
 * module path if an outer wrapper overrides it (TorchRec's DistributedModelParallel). */
const char *model_state_path(const model *m, const model_module *module, size_t *nbytes);
const uint64_t *model_shape(const model *m, uint64_t shape_at);
/* NULL if the parameter is contiguous. */
const uint64_t *model_strides(const model *m, const model_param *p);

/* For the first name of a parameter: its inputs and their count; NULL and 0 if the parameter itself
 * is gathered. */
const model_input *model_inputs(const model *m, uint32_t param, uint32_t *count);

/* By FQN (any of its names, also that by module path if saved state differs) or path; MODEL_NONE if
 * unknown. */
uint32_t model_find_param(const model *m, const char *fqn, size_t nbytes);
uint32_t model_find_buffer(const model *m, const char *fqn, size_t nbytes);
uint32_t model_find_module(const model *m, const char *path, size_t nbytes);
/* The first name of a parameter: follow its names by next_name from here. */
uint32_t model_param_first(const model *m, uint32_t param);

typedef struct model_ranks {
    uint32_t world_size; /* current number of ranks, 0: the document's */
    uint32_t group;      /* of a mesh: ranks that share a unit, 0: the document's */
    uint32_t main_group; /* model_main_group: the group that `group` replaces */
    uint32_t guess;      /* used if the number is not stated, for callers that find it later; 0:
                          * MODEL-WORLD */
} model_ranks;

/* Finds the FSDP1 units; `units` must be initialized and empty. They are in the order of traversal
 * (left to right, parents before children; a policy initializes them in reverse). Each has its own
 * parameters: those below its module, except nested units, ignored parameters and subtrees of
 * `replicate`. A unit without own parameters is omitted, as torch has no handle for it.
 *
 * A parameter with several names is flattened once: with use_orig_params by the innermost unit that
 * comes first in post-order, the order in which FSDP is applied, unless one of its names is
 * `flattened`; its other names become shared names of that unit. Without use_orig_params, torch makes one parameter per unit for a tie between
 * modules of different units, and so does this code. If one name is ignored, all are.
 *
 * If the document lists units, those are returned. Groups smaller than the document's world (hybrid
 * sharding, experts) are unchanged by ranks->world_size. A mesh applies to the model as a whole:
 * ranks->group replaces the document's main group, and that of every hybrid unit. Errors: MODEL-WORLD (unknown number of ranks), MODEL-DTYPE, MODEL-SHAPE (FSDP cannot
 * flatten it). */
fsdpck_status model_find_units(const model *m, const model_ranks *ranks, unit_list *units,
                               fsdpck_error *err) FSDPCK_MUST_CHECK;

/* The largest group of a unit of either kind, including the document's world for units that name
 * none; 0: the document's world, which is not stated either. */
uint32_t model_main_group(const model *m);

bool sharding_is_hybrid(const model_sharding *s);

/* The group of one fully_shard call. */
typedef struct sharded_unit {
    uint32_t module;               /* index in model.modules */
    uint32_t world_size;           /* of its group, 0: the document's */
    uint32_t first_param, nparams; /* in sharded_list.params */
} sharded_unit;

typedef struct sharded_list {
    budget *owner;
    vec units;  /* sharded_unit */
    vec params; /* uint32_t: index in model.params, under the name visited first */
} sharded_list;

void sharded_list_init(sharded_list *l, budget *owner);
void sharded_list_release(sharded_list *l);

/* Finds the FSDP2 units; `l` must be initialized and empty. Units are in the order of traversal, as
 * above. The parameters of each are in torch's group order: post-order of modules, and registration
 * order within one. */
fsdpck_status model_find_fully_sharded(const model *m, sharded_list *l,
                                       fsdpck_error *err) FSDPCK_MUST_CHECK;

#endif
