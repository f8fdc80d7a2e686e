/* model.h: a model's modules, parameters and buffers, as FSDP sees them (fsdpck-model(5)).
 *
 *     model m;
 *     model_init(&m, &budget);
 *     RETURN_IF(model_read(&m, text, nbytes, err));             // model_json.c; `text` may go now
 *     unit_list units;
 *     unit_list_init(&units, &budget);
 *     RETURN_IF(model_find_units(&m, world_size, &units, err)); // traversal.c: FSDP1 units
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
 * or {"version": 1, "units": [...]} (unit_json.h). Names are clean: what a wrapper adds is said by
 * its key ("fsdp", "ddp", "checkpoint", "compile"), so the wrapper and the composable way of
 * writing the same model give the same list.
 *
 * A module that is registered a second time is given as {"name": "b", "same_as": "a"}; reading
 * makes modules, parameters and buffers of the whole subtree of it, each `same_as` its original.
 *
 * Source: torch 2.15, torch/distributed/fsdp (_traversal_utils.py, _init_utils.py, _flat_param.py,
 * wrap.py, _fully_shard/_fsdp_init.py).
 */
#ifndef FSDPCK_MODEL_MODEL_H
#define FSDPCK_MODEL_MODEL_H

#include "model/optim_groups.h"
#include "model/unit.h"

#define MODEL_NONE UINT32_MAX
/* Of each kind, repeated modules counted; so that an index and a kind fit 32 bits. */
#define MODEL_ITEMS_MAX ((UINT32_C(1) << 30) - 1)

typedef enum module_kind {
    MODULE_FSDP = 1,        /* FSDP(module), or chosen by "auto_wrap": a unit of its own */
    MODULE_FULLY_SHARD = 2, /* fully_shard(module): FSDP2 */
    MODULE_REPLICATE = 4,   /* replicate(module): not entered; all below it is ignored */
    MODULE_DDP = 8,         /* DistributedDataParallel, DataParallel: `module.` in live names */
    MODULE_CHECKPOINT = 16, /* activation checkpoint: `_checkpoint_wrapped_module.` */
    MODULE_COMPILE = 32,    /* `_orig_mod.` */
    MODULE_IGNORED = 64,    /* FSDP's ignored_modules: it and all below it that is no unit itself */
    MODULE_LOCAL = 128      /* it and all below it in a group of one rank: each rank has its own */
} module_kind;

/* What one FSDP or fully_shard call was told. */
typedef struct model_sharding {
    uint8_t strategy;       /* FSDP1 */
    bool use_orig_params;   /* FSDP1; the same in a whole tree */
    bool limit_all_gathers; /* FSDP1; likewise */
    bool cpu_offload;
    uint8_t param_dtype; /* of mixed precision; DTYPE_NONE: none */
    uint8_t reduce_dtype;
    uint8_t buffer_dtype;
    uint8_t shard_dim;     /* FSDP2: of parameters that name none of their own */
    uint32_t world_size;   /* of the group that shards, 0: the document's */
    uint32_t post_forward; /* FSDP2 reshard_after_forward: 0 false, 1 true, k ranks */
    uint32_t with;         /* FSDP2: module whose call lists this one too, MODEL_NONE */
} model_sharding;

typedef struct model_module {
    uint32_t name;       /* name id: the whole clean path, "" for the root */
    uint32_t class_name; /* id in model.classes, MODEL_NONE */
    uint32_t parent;     /* MODEL_NONE for the root */
    uint32_t next; /* index just past the last module below this one (the list is in pre-order) */
    uint32_t first_param, nparams;
    uint32_t first_buffer, nbuffers;
    uint32_t sharding;   /* index in model.shardings, MODEL_NONE */
    uint32_t same_as;    /* a module registered before, visited once; MODEL_NONE */
    uint32_t state_path; /* id in model.paths: see model_state_path; MODEL_NONE: as name */
    uint16_t kinds;      /* of module_kind */
} model_module;

/* One name of a parameter. Names of the same parameter form a list: the first one registered, whose
 * same_as is MODEL_NONE, then next_name. */
typedef struct model_param {
    uint32_t name; /* name id: FQN, as state has it */
    uint32_t module;
    uint32_t same_as;   /* the first name of this parameter, MODEL_NONE where this is it */
    uint32_t same_slot; /* in a module registered again: the parameter of the first registration */
    uint32_t next_name; /* MODEL_NONE at the end */
    uint8_t dtype;
    uint8_t ndim;
    bool requires_grad : 1;
    bool ignored : 1;
    bool strided : 1;  /* strides follow the shape */
    uint8_t shard_dim; /* FSDP2; UINT8_MAX: as the call says */
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

/* What a parameter gives to the all-gather in place of itself (fsdp_pre_all_gather: quantised data,
 * scales), as it would be of the whole parameter; those of one parameter in order, and the
 * parameters in theirs. */
typedef struct model_input {
    uint32_t param; /* its first name */
    uint8_t dtype;
    uint8_t ndim;
    uint64_t shape_at;
} model_input;

/* The release that the model was trained with, which decides how flat parameters are made. */
typedef struct model_torch {
    uint32_t major, minor;
} model_torch;

typedef struct model {
    budget *owner;
    strtab names;   /* of modules, parameters and buffers, no name twice */
    strtab classes; /* of modules */
    strtab paths;   /* of modules that an outer one gives another path in state */
    vec modules, params, buffers, shardings, dims;
    vec inputs;              /* model_input */
    vec uses;                /* uint32_t of each name id: what it is the name of */
    uint64_t nelems;         /* of all parameters, each once */
    uint32_t world_size;     /* 0: not said */
    model_torch torch;       /* 2.15 where not said */
    optim_groups optimizers; /* no lists: not said */
    unit_list units;         /* of a document that lists units; empty otherwise */
    bool lists_units;
} model;

void model_init(model *m, budget *owner);
void model_release(model *m);

/* A whole document, into a model just initialised. BADINPUT with the byte offset, the module's or
 * parameter's name, expected and found, and finding MODEL-JSON (no strict JSON), MODEL-KEY
 * (unknown, twice, missing, of a wrong type or value), MODEL-VERSION, MODEL-ORDER (a module before its parent
 * or away from its siblings), MODEL-NAME (empty, with a dot, or a wrapper's part), MODEL-NAME-DUP,
 * MODEL-SHAPE, MODEL-DTYPE, MODEL-TIE (same_as), MODEL-WRAP (auto_wrap), MODEL-SETTINGS (must be
 * equal in a tree and are not), or one of unit_json_read's. */
fsdpck_status model_read(model *m, const char *text, size_t nbytes,
                         fsdpck_error *err) FSDPCK_MUST_CHECK;

uint32_t model_module_count(const model *m);
const model_module *model_module_at(const model *m, uint32_t i);
uint32_t model_param_count(const model *m);
const model_param *model_param_at(const model *m, uint32_t i);
uint32_t model_buffer_count(const model *m);
const model_buffer *model_buffer_at(const model *m, uint32_t i);
/* NULL where sharding is MODEL_NONE. */
const model_sharding *model_sharding_of(const model *m, const model_module *module);
const char *model_name(const model *m, uint32_t name_id, size_t *nbytes);
/* The path that stands before a module's tensors in state and in named_parameters(), which is not
 * that of the walk where an outer wrapper overrides it (TorchRec's DistributedModelParallel). */
const char *model_state_path(const model *m, const model_module *module, size_t *nbytes);
const uint64_t *model_shape(const model *m, uint64_t shape_at);
/* NULL where the parameter is contiguous. */
const uint64_t *model_strides(const model *m, const model_param *p);

/* Of the first name of a parameter: its inputs and their count; NULL and 0 where it is gathered as
 * it is. */
const model_input *model_inputs(const model *m, uint32_t param, uint32_t *count);

/* By FQN (any name of it, also that of the walk where state has another) or path; MODEL_NONE where there is none. */
uint32_t model_find_param(const model *m, const char *fqn, size_t nbytes);
uint32_t model_find_buffer(const model *m, const char *fqn, size_t nbytes);
uint32_t model_find_module(const model *m, const char *path, size_t nbytes);
/* The first name of a parameter: walk its names by next_name from here. */
uint32_t model_param_first(const model *m, uint32_t param);

/* The FSDP1 units into `units`, which is initialised and empty, in the order of traversal (left to
 * right, parents before children; a policy initialises them in the reverse of it). Each has its own
 * parameters: those below its module, nested units, ignored ones and subtrees of `replicate` left
 * out. A unit without parameters of its own is not listed, as torch has no handle for it.
 *
 * A parameter with several names is flattened once: with use_orig_params by the innermost unit that
 * comes first in post-order, in which order FSDP is applied; its other names become shared ones of
 * that unit. Without use_orig_params, torch makes a parameter of each unit of a tie between modules
 * of different units, and so do we. One ignored name ignores them all.
 *
 * Where the document lists units, those. world_size: of ranks now, 0 as the document says; groups
 * smaller than the document's world (hybrid sharding, experts) stay as they are. Errors:
 * MODEL-WORLD (nobody says how many ranks), MODEL-DTYPE, MODEL-SHAPE (what FSDP cannot flatten). */
fsdpck_status model_find_units(const model *m, uint32_t world_size, unit_list *units,
                               fsdpck_error *err) FSDPCK_MUST_CHECK;

typedef struct model_ranks {
    uint32_t world_size; /* of ranks now, 0: as the document says */
    uint32_t group;      /* of a mesh: ranks that share a unit, 0: as the document says */
    uint32_t main_group; /* model_main_group: what `group` stands for */
    uint32_t guess;      /* where nobody says how many, for who learns it later; 0: MODEL-WORLD */
} model_ranks;

/* The same. A mesh is that of the model as a whole: `group` takes the place of the document's main
 * group, and of every hybrid unit's; smaller groups (experts) stay. */
fsdpck_status model_find_units_on(const model *m, const model_ranks *ranks, unit_list *units,
                                  fsdpck_error *err) FSDPCK_MUST_CHECK;

/* The largest group that a unit of either kind names, the document's world included where one names
 * none; 0: that, and the document does not say it either. */
uint32_t model_main_group(const model *m);

bool sharding_is_hybrid(const model_sharding *s);

/* What one call of fully_shard groups. */
typedef struct sharded_unit {
    uint32_t module;               /* index in model.modules */
    uint32_t world_size;           /* of its group, 0: the document's */
    uint32_t first_param, nparams; /* in sharded_list.params */
} sharded_unit;

typedef struct sharded_list {
    budget *owner;
    vec units;  /* sharded_unit */
    vec params; /* uint32_t: index in model.params, under the name met first */
} sharded_list;

void sharded_list_init(sharded_list *l, budget *owner);
void sharded_list_release(sharded_list *l);

/* The FSDP2 units into `l`, which is initialised and empty: units in the order of traversal, as
 * above; the parameters of each in the order in which torch groups them, which is post-order of
 * modules, and registration order within one. */
fsdpck_status model_find_fully_sharded(const model *m, sharded_list *l,
                                       fsdpck_error *err) FSDPCK_MUST_CHECK;

#endif
