#include "model/model.h"
#include "model/model_internal.h"

#include <string.h>

void model_init(model *m, budget *owner)
{
    memset(m, 0, sizeof *m);
    m->owner = owner;
    strtab_init(&m->names, owner);
    strtab_init(&m->classes, owner);
    strtab_init(&m->paths, owner);
    m->modules = VEC_OF(model_module, owner);
    m->params = VEC_OF(model_param, owner);
    m->buffers = VEC_OF(model_buffer, owner);
    m->shardings = VEC_OF(model_sharding, owner);
    m->dims = VEC_OF(uint64_t, owner);
    m->inputs = VEC_OF(model_input, owner);
    m->uses = VEC_OF(uint32_t, owner);
    m->torch = (model_torch){2, 15};
    optim_groups_init(&m->optimizers, owner);
    unit_list_init(&m->units, owner);
}

void model_release(model *m)
{
    strtab_release(&m->names);
    strtab_release(&m->classes);
    strtab_release(&m->paths);
    VEC_RELEASE_ALL(&m->modules, &m->params, &m->buffers, &m->shardings, &m->dims, &m->inputs,
                    &m->uses);
    optim_groups_release(&m->optimizers);
    unit_list_release(&m->units);
}

uint32_t model_module_count(const model *m)
{
    return (uint32_t)m->modules.count;
}

const model_module *model_module_at(const model *m, uint32_t i)
{
    return VEC_AT(&m->modules, const model_module, i);
}

uint32_t model_param_count(const model *m)
{
    return (uint32_t)m->params.count;
}

const model_param *model_param_at(const model *m, uint32_t i)
{
    return VEC_AT(&m->params, const model_param, i);
}

uint32_t model_buffer_count(const model *m)
{
    return (uint32_t)m->buffers.count;
}

const model_buffer *model_buffer_at(const model *m, uint32_t i)
{
    return VEC_AT(&m->buffers, const model_buffer, i);
}

const model_sharding *model_sharding_of(const model *m, const model_module *module)
{
    if (module->sharding == MODEL_NONE)
        return NULL;
    return VEC_AT(&m->shardings, const model_sharding, module->sharding);
}

const char *model_name(const model *m, uint32_t name_id, size_t *nbytes)
{
    if (nbytes != NULL)
        *nbytes = strtab_nbytes(&m->names, name_id);
    return strtab_text(&m->names, name_id);
}

const char *model_state_path(const model *m, const model_module *module, size_t *nbytes)
{
    if (module->state_path == MODEL_NONE)
        return model_name(m, module->name, nbytes);
    if (nbytes != NULL)
        *nbytes = strtab_nbytes(&m->paths, module->state_path);
    return strtab_text(&m->paths, module->state_path);
}

const uint64_t *model_shape(const model *m, uint64_t shape_at)
{
    static const uint64_t none;
    return m->dims.items == NULL ? &none : VEC_AT(&m->dims, const uint64_t, shape_at);
}

const uint64_t *model_strides(const model *m, const model_param *p)
{
    return p->strided ? model_shape(m, p->shape_at + p->ndim) : NULL;
}

const model_input *model_inputs(const model *m, uint32_t param, uint32_t *count)
{
    size_t low = 0;
    size_t high = m->inputs.count;
    while (low < high) { /* the first of the parameter, or of one after it */
        const size_t mid = low + (high - low) / 2;
        if (VEC_AT(&m->inputs, const model_input, mid)->param < param)
            low = mid + 1;
        else
            high = mid;
    }
    *count = 0;
    while (low + *count < m->inputs.count &&
           VEC_AT(&m->inputs, const model_input, low + *count)->param == param)
        ++*count;
    return *count == 0 ? NULL : VEC_AT(&m->inputs, const model_input, low);
}

static uint32_t find(const model *m, const char *name, size_t nbytes, model_use kind)
{
    const uint32_t id = strtab_find(&m->names, name, nbytes);
    if (id == STRTAB_NONE)
        return MODEL_NONE;
    const uint32_t use = *VEC_AT(&m->uses, const uint32_t, id);
    return use >> 30 == (uint32_t)kind ? use & MODEL_ITEMS_MAX : MODEL_NONE;
}

uint32_t model_find_param(const model *m, const char *fqn, size_t nbytes)
{
    return find(m, fqn, nbytes, MODEL_USE_PARAM);
}

uint32_t model_find_buffer(const model *m, const char *fqn, size_t nbytes)
{
    return find(m, fqn, nbytes, MODEL_USE_BUFFER);
}

uint32_t model_find_module(const model *m, const char *path, size_t nbytes)
{
    return find(m, path, nbytes, MODEL_USE_MODULE);
}

uint32_t model_param_first(const model *m, uint32_t param)
{
    const uint32_t first = model_param_at(m, param)->same_as;
    return first == MODEL_NONE ? param : first;
}

fsdpck_status model_add_name(model *m, const char *text, size_t nbytes, model_use kind,
                             size_t index, uint32_t *id, fsdpck_error *err)
{
    if (index > MODEL_ITEMS_MAX)
        return FAIL(err, LIMIT, LIMIT_COUNT, "model has too many modules or tensors");
    const size_t before = strtab_count(&m->names);
    RETURN_IF(strtab_intern(&m->names, text, nbytes, id, err));
    if (*id < before) {
        static const char *const words[] = {"a module", "a parameter", "a buffer"};
        return FAIL_WITH(
            err, BADINPUT, MODEL_NAME_DUP, ("two items of the model have the same name"),
            (tensor, strtab_text(&m->names, *id)), (expected, "a unique name for %s", words[kind]),
            (found, "the name of %s", words[*VEC_AT(&m->uses, uint32_t, *id) >> 30]));
    }
    return vec_add(&m->uses, &(uint32_t){(uint32_t)kind << 30 | (uint32_t)index}, err);
}
