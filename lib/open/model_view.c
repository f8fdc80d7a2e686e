#include "open/model_view.h"

static fsdpck_status add_tensors(model_view *v, fsdpck_checkpoint *c, fsdpck_error *err)
{
    map_inputs l;
    fsdpck_error why = FSDPCK_ERROR_INIT;
    fsdpck_status st = map_inputs_list(c, &l, err);
    for (size_t i = 0; st == FSDPCK_OK && i < l.inputs.count; i++) {
        const map_input *in = VEC_AT(&l.inputs, const map_input, i);
        const cat_tensor *t = catalogue_tensor(&c->cat, in->tensor);
        uint32_t added;
        if ((t->flags & CAT_TENSOR_STORAGE) != 0)
            continue;
        st = catalogue_add_tensor(&v->cat, in->name, in->nbytes, (dtype)t->dtype, t->ndim,
                                  catalogue_shape(&c->cat, in->tensor), &added, err);
        if (st == FSDPCK_OK)
            st = vec_add(&v->from, &in->tensor, err);
    }
    map_inputs_release(&l);
    if (st != FSDPCK_OK)
        return st;
    st = catalogue_seal(&v->cat, &why);
    if (st == FSDPCK_BADINPUT) {
        catalogue_release(&v->cat);
        catalogue_init(&v->cat, &c->metadata);
        return catalogue_seal(&v->cat, err);
    }
    if (st != FSDPCK_OK && err != NULL)
        *err = why;
    return st;
}

fsdpck_status model_view_open(model_view *v, fsdpck_checkpoint *c, fsdpck_error *err)
{
    *v = (model_view){.from = VEC_OF(uint32_t, &c->metadata)};
    catalogue_init(&v->cat, &c->metadata);
    /* An unreadable one is reported where it is needed. */
    if (side_folder_config(c, &v->config, NULL) != FSDPCK_OK)
        model_config_release(&v->config);
    if (v->config.text == NULL)
        return FSDPCK_OK;
    const fsdpck_status st = add_tensors(v, c, err);
    if (st != FSDPCK_OK)
        model_view_release(v);
    return st;
}

uint32_t model_view_tensor(const model_view *v, size_t tensor)
{
    return *VEC_AT(&v->from, const uint32_t, tensor);
}

void model_view_release(model_view *v)
{
    model_config_release(&v->config);
    catalogue_release(&v->cat);
    vec_release(&v->from);
}
