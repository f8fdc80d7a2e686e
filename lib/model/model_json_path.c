/* model_json_path.c: names of modules and tensors in state, where they are not those of the walk. */
#include <string.h>

#include "model/model_json.h"

static void join_path(text_buf *out, const char *path, size_t path_nbytes, const char *local,
                      size_t nbytes)
{
    out->nbytes = 0;
    text_append(out, path, path_nbytes);
    if (path_nbytes > 0 && nbytes > 0)
        text_append(out, ".", 1);
    text_append(out, local, nbytes);
}

/* As it is overridden, or below its parent's where that is. */
fsdpck_status model_find_state_path(model_reader *r, const raw_module *raw, model_module *module,
                                    fsdpck_error *err)
{
    model *m = r->m;
    module->state_path = MODEL_NONE;
    if (raw != NULL && raw->override.offset_bytes > 0)
        return strtab_intern(&m->paths, model_word(r, &raw->override), raw->override.nbytes,
                             &module->state_path, err);
    const model_module *parent =
        module->parent == MODEL_NONE ? NULL : model_module_at(m, module->parent);
    if (parent == NULL || parent->state_path == MODEL_NONE)
        return FSDPCK_OK;
    size_t path_nbytes, nbytes;
    const char *name = model_name(m, module->name, &nbytes);
    const size_t skip = strtab_nbytes(&m->names, parent->name);
    const char *path = model_state_path(m, parent, &path_nbytes);
    const size_t local_at = skip == 0 ? 0 : skip + 1;
    join_path(&r->fqn, path, path_nbytes, name + local_at, nbytes - local_at);
    text_append(&r->fqn, "", 0);
    RETURN_IF(text_check(&r->fqn, err));
    return strtab_intern(&m->paths, r->fqn.text, r->fqn.nbytes, &module->state_path, err);
}

/* The name of a tensor of a module, by the walk or as state has it. */
fsdpck_status model_name_in(model_reader *r, uint32_t module, bool in_state, uint32_t like,
                            fsdpck_error *err)
{
    const model *m = r->m;
    size_t path_nbytes, nbytes;
    const model_module *at = model_module_at(m, module);
    const char *path =
        in_state ? model_state_path(m, at, &path_nbytes) : model_name(m, at->name, &path_nbytes);
    const char *name = model_name(m, like, &nbytes);
    size_t local = nbytes;
    while (local > 0 && name[local - 1] != '.')
        local--;
    join_path(&r->fqn, path, path_nbytes, name + local, nbytes - local);
    return text_check(&r->fqn, err);
}

fsdpck_status model_add_walk_name(model_reader *r, uint32_t module, model_use kind, size_t index,
                                  uint32_t name, fsdpck_error *err)
{
    uint32_t other;
    if (model_module_at(r->m, module)->state_path == MODEL_NONE)
        return FSDPCK_OK;
    RETURN_IF(model_name_in(r, module, false, name, err));
    if (strtab_is(&r->m->names, name, r->fqn.text, r->fqn.nbytes))
        return FSDPCK_OK;
    return model_add_name(r->m, r->fqn.text, r->fqn.nbytes, kind, index, &other, err);
}

fsdpck_status model_add_param(model_reader *r, uint32_t module, model_param *p, fsdpck_error *err)
{
    model *m = r->m;
    RETURN_IF(model_add_name(m, r->fqn.text, r->fqn.nbytes, MODEL_USE_PARAM, m->params.count,
                             &p->name, err));
    RETURN_IF(model_add_walk_name(r, module, MODEL_USE_PARAM, m->params.count, p->name, err));
    return vec_add(&m->params, p, err);
}
