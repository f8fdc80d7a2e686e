/* model.h: a model's modules, parameters and buffers, as FSDP sees them (fsdpck-model(5)).
 *
 *     model m;
 *     model_init(&m, &budget);
 *     RETURN_IF(model_read(&m, text, nbytes, err));            // model_json.c; names the key's place
 *     unit_list units;
 *     RETURN_IF(model_find_units(&m, world_size, &units, err)); // traversal.c: FSDP1 units
 *     model_release(&m);
 *
 * The description is one list of modules in registration order, parents before children, as
 * `named_modules()` gives them, so that it is read in one pass and a million modules deep in each
 * other are no problem:
 *
 *     {"version": 1, "world_size": 4, "modules": [
 *       {"name": "", "class": "Net", "fsdp": {"use_orig_params": true, "sharding_strategy":
 *        "FULL_SHARD", "param_dtype": "bfloat16"}},
 *       {"name": "emb", "class": "Embedding", "params": [
 *         {"name": "weight", "shape": [11, 6], "dtype": "float32"}]},
 *       {"name": "head", "params": [{"name": "weight", "same_as": "emb.weight"}]},
 *       {"name": "norm", "buffers": [{"name": "running_mean", "shape": [6], "dtype": "float32"}]}]}
 *
 * or {"version": 1, "units": [...]} (unit_json.h). Names are clean: what a wrapper adds is said by
 * its key ("fsdp", "ddp", "checkpoint", "compile"), so the wrapper and the composable way of writing
 * the same model give the same list.
 *
 * Source: torch 2.15, torch/distributed/fsdp (_traversal_utils.py, _init_utils.py, wrap.py).
 */
#ifndef FSDPCK_MODEL_MODEL_H
#define FSDPCK_MODEL_MODEL_H

#include "model/unit.h"

#define MODEL_NONE UINT32_MAX

typedef enum module_kind {
    MODULE_FSDP = 1,        /* FSDP(module): a unit of its own */
    MODULE_FULLY_SHARD = 2, /* fully_shard(module): FSDP2 */
    MODULE_REPLICATE = 4,   /* replicate(module): not entered; it and all below it are ignored */
    MODULE_DDP = 8,         /* DistributedDataParallel, DataParallel: `module.` in live names */
    MODULE_CHECKPOINT = 16, /* activation checkpoint: `_checkpoint_wrapped_module.` */
    MODULE_COMPILE = 32,    /* `_orig_mod.` */
    MODULE_IGNORED = 64,    /* FSDP's ignored_modules; all below it as well */
    MODULE_LOCAL = 128      /* its own process group of one rank (experts): each rank has its own */
} module_kind;

typedef enum sharding_strategy {
    STRATEGY_FULL_SHARD,
    STRATEGY_SHARD_GRAD_OP,
    STRATEGY_NO_SHARD,
    STRATEGY_HYBRID_SHARD,
    STRATEGY_HYBRID_SHARD_ZERO2
} sharding_strategy;

/* What one FSDP or fully_shard call was told. */
typedef struct model_sharding {
    uint8_t strategy;     /* FSDP1 */
    bool use_orig_params; /* FSDP1; must be the same in the whole tree */
    bool cpu_offload;
    uint8_t param_dtype;  /* of mixed precision; DTYPE_NONE: none */
    uint8_t reduce_dtype;
    uint8_t buffer_dtype;
    uint32_t world_size;    /* of the group that shards, 0: the document's */
    uint32_t post_forward;  /* FSDP2 reshard_after_forward: 0 false, 1 true, k ranks */
    uint8_t shard_dim;      /* FSDP2 */
} model_sharding;

typedef struct model_module {
    uint32_t name;   /* name id: the whole clean path, "" for the root */
    uint32_t class_name;
    uint32_t parent; /* MODEL_NONE for the root */
    uint32_t next;   /* index just past the last module below this one (the list is in pre-order) */
    uint32_t first_param, nparams;
    uint32_t first_buffer, nbuffers;
    uint32_t sharding; /* index in model.shardings, MODEL_NONE */
    uint32_t same_as;  /* a module registered before, visited once; MODEL_NONE */
    uint16_t kinds;    /* of module_kind */
} model_module;

typedef struct model_param {
    uint32_t name;   /* name id: FQN */
    uint32_t module;
    uint32_t same_as; /* parameter that it is tied to, MODEL_NONE */
    uint8_t dtype;
    uint8_t ndim;
    bool requires_grad;
    bool ignored;
    bool strided;       /* strides follow the shape */
    uint64_t shape_at;  /* in model.dims */
} model_param;

typedef struct model_buffer {
    uint32_t name;
    uint32_t module;
    uint8_t dtype;
    uint8_t ndim;
    bool persistent;
    uint64_t shape_at;
} model_buffer;

typedef struct model {
    budget *owner;
    strtab names;
    vec modules, params, buffers, shardings, dims;
    uint32_t world_size; /* 0: not said */
    unit_list units;     /* of a document that lists units; empty otherwise */
    bool lists_units;
} model;

void model_init(model *m, budget *owner);
void model_release(model *m);

/* A whole document. BADINPUT with finding MODEL-JSON, MODEL-KEY, MODEL-ORDER, MODEL-SHAPE,
 * MODEL-TIE or MODEL-VERSION, the byte offset, and the module's or parameter's name. */
fsdpck_status model_read(model *m, const char *text, size_t nbytes,
                         fsdpck_error *err) FSDPCK_MUST_CHECK;

/* The FSDP1 units in the order of traversal (parents before children, left to right), each with its
 * own parameters: those below its module, nested units, ignored ones and subtrees that FSDP does not
 * enter left out. Where the document lists units, those. world_size: of ranks now, 0 as the document
 * says. Settings that must be equal over all units and are not: BADINPUT, MODEL-SETTINGS. */
fsdpck_status model_find_units(const model *m, uint32_t world_size, unit_list *units,
                               fsdpck_error *err) FSDPCK_MUST_CHECK;

#endif
