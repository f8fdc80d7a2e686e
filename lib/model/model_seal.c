/* model_seal.c: decisions that need all modules of a model are there. */
#include "model/model_internal.h"

/* Modules that are still open end with the list. */
static void close_modules(model *m)
{
    const uint32_t count = model_module_count(m);
    for (uint32_t i = count; i-- > 0;) {
        model_module *module = VEC_AT(&m->modules, model_module, i);
        if (module->next != 0)
            continue;
        module->next = count;
    }
}

static void link_names(model *m)
{
    for (uint32_t i = model_param_count(m); i-- > 0;) {
        model_param *p = VEC_AT(&m->params, model_param, i);
        if (p->same_as == MODEL_NONE)
            continue;
        model_param *first = VEC_AT(&m->params, model_param, p->same_as);
        p->next_name = first->next_name;
        first->next_name = i;
    }
}

/* fully_shard's default: the outermost module keeps its parameters after forward. */
static void settle_post_forward(model *m)
{
    uint32_t outermost_end = 0;
    for (uint32_t i = 0; i < model_module_count(m); i++) {
        const model_module *module = model_module_at(m, i);
        if (!(module->kinds & MODULE_FULLY_SHARD))
            continue;
        const bool inner = i < outermost_end;
        if (!inner)
            outermost_end = module->next;
        model_sharding *s = VEC_AT(&m->shardings, model_sharding, module->sharding);
        if (s->post_forward == MODEL_NONE)
            s->post_forward = inner;
    }
}

/* torch: HOMOGENEOUS_ATTR_NAMES of _runtime_utils.py. */
static fsdpck_status check_settings(const model *m, fsdpck_error *err)
{
    const model_sharding *root = NULL;
    uint32_t root_end = 0;
    for (uint32_t i = 0; i < model_module_count(m); i++) {
        const model_module *module = model_module_at(m, i);
        if (!(module->kinds & MODULE_FSDP))
            continue;
        const model_sharding *s = model_sharding_of(m, module);
        if (i >= root_end) {
            root = s;
            root_end = module->next;
        }
        const bool modes = s->use_orig_params != root->use_orig_params;
        if (!modes && s->limit_all_gathers == root->limit_all_gathers)
            continue;
        const bool want = modes ? root->use_orig_params : root->limit_all_gathers;
        return FAIL_WITH(err, BADINPUT, MODEL_SETTINGS,
                         ("'%s' differs between nested FSDP modules",
                          modes ? "use_orig_params" : "limit_all_gathers"),
                         (tensor, model_name(m, module->name, NULL)),
                         (expected, "%s, as in the outermost module", want ? "true" : "false"),
                         (found, "%s", want ? "false" : "true"),
                         (next, "describe the model again; torch refuses such a model"));
    }
    return FSDPCK_OK;
}

fsdpck_status model_seal(model *m, const model_wrap *wrap, fsdpck_error *err)
{
    close_modules(m);
    link_names(m);
    if (wrap != NULL)
        RETURN_IF(model_apply_wrap(m, wrap, err));
    settle_post_forward(m);
    return check_settings(m, err);
}
