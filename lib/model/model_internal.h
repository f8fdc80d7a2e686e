/* model_internal.h: internals shared by the files that build a model (model.c, model_json*.c,
 * auto_wrap.c). */
#ifndef FSDPCK_MODEL_MODEL_INTERNAL_H
#define FSDPCK_MODEL_MODEL_INTERNAL_H

#include "model/model.h"

typedef enum model_use { MODEL_USE_MODULE, MODEL_USE_PARAM, MODEL_USE_BUFFER } model_use;

/* "auto_wrap": the policy of the FSDP call of `module`. */
typedef struct model_wrap {
    uint32_t module;
    vec classes;        /* uint32_t: ids in model.classes, of ModuleWrapPolicy */
    uint64_t min_numel; /* of size_based_auto_wrap_policy */
    bool by_size;
    size_t offset_bytes; /* for errors */
} model_wrap;

/* Adds a new name: MODEL-NAME-DUP if it exists. */
fsdpck_status model_add_name(model *m, const char *text, size_t nbytes, model_use kind,
                             size_t index, uint32_t *id, fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Call after the last module. wrap may be NULL. */
fsdpck_status model_seal(model *m, const model_wrap *wrap, fsdpck_error *err) FSDPCK_MUST_CHECK;

/* auto_wrap.c: marks the modules that the policy selects MODULE_FSDP, with the settings of the
 * module that has the policy. */
fsdpck_status model_apply_wrap(model *m, const model_wrap *wrap,
                               fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Properties that a module inherits from those above it. */
typedef enum module_scope {
    SCOPE_CLOSED = 1,  /* below `replicate`, or the module itself */
    SCOPE_IGNORED = 2, /* below an ignored module, no unit between */
    SCOPE_LOCAL = 4    /* below MODULE_LOCAL */
} module_scope;

/* traversal.c: scopes[module_count]; ignored[param_count], for the first name of each parameter:
 * any name of it is in a closed or ignored module, or marked. Zeroed by the caller. */
void model_find_scopes(const model *m, uint8_t *scopes, uint8_t *ignored);

/* traversal.c: BADINPUT, MODEL-WRAP, if a unit of FSDP and one of fully_shard would have the same
 * parameter. torch 2.9 and 2.15 fail to build FSDP1 around such modules. The other way round FSDP's
 * flat parameter is sharded again, and the saved state has neither form. */
fsdpck_status model_check_kinds(const model *m, fsdpck_error *err) FSDPCK_MUST_CHECK;

#endif
