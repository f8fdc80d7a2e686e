/* derived_checkpoint.c: a checkpoint that is made of the model part of another. */
#include <stdlib.h>
#include <string.h>

#include "open/checkpoint.h"

void checkpoint_init_tables(fsdpck_checkpoint *c)
{
    catalogue_init(&c->cat, &c->metadata);
    catalogue_init(&c->read, &c->metadata);
    unit_list_init(&c->units, &c->metadata);
    optim_groups_init(&c->optimizers, &c->metadata);
    strtab_init(&c->param_order, &c->metadata);
    c->ties = VEC_OF(tied_pair, &c->metadata);
    c->adapters = VEC_OF(found_adapter, &c->metadata);
    c->state_files = VEC_OF(found_state_file, &c->metadata);
    c->other_files = VEC_OF(found_state_file, &c->metadata);
    strtab_init(&c->adapter_names, &c->metadata);
}

static char *copy(const char *text)
{
    return text == NULL ? NULL : strdup(text);
}

/* Members with the same value in both; `base` owns them. */
static fsdpck_status describe(fsdpck_checkpoint *c, fsdpck_error *err)
{
    const fsdpck_checkpoint *base = c->base;
    c->ctx = base->ctx;
    c->entered = base->entered;
    c->probe = base->probe;
    c->format = base->format;
    c->self = base->self;
    c->opaque_calls = base->opaque_calls;
    c->remote_files = base->remote_files;
    c->dequantized = base->dequantized;
    c->unquantized = base->unquantized;
    c->inner_loaded = true;
    c->path = strdup(base->path);
    c->entered_from = copy(base->entered_from);
    c->mesh = copy(base->mesh);
    c->model_path = copy(base->model_path);
    if (c->path == NULL || (base->entered_from != NULL && c->entered_from == NULL) ||
        (base->mesh != NULL && c->mesh == NULL) ||
        (base->model_path != NULL && c->model_path == NULL))
        return error_set_nomem(err, strlen(base->path));
    return FSDPCK_OK;
}

fsdpck_status derived_checkpoint_new(fsdpck_checkpoint *base, fsdpck_checkpoint **out,
                                     fsdpck_error *err)
{
    fsdpck_checkpoint *c = *out = calloc(1, sizeof *c);
    if (c == NULL)
        return error_set_nomem(err, sizeof *c);
    c->base = base;
    budget_init(&c->metadata, base->metadata.limit_bytes - base->metadata.used_bytes,
                base->metadata.what, base->metadata.option);
    checkpoint_init_tables(c);
    return describe(c, err);
}

fsdpck_status derived_checkpoint_skip_others(fsdpck_checkpoint *c, fsdpck_error *err)
{
    const fsdpck_checkpoint *base = c->base;
    for (uint32_t i = 0; i < base->parts.tensor_count; i++) {
        const cat_tensor *t = catalogue_tensor(&base->cat, i);
        const bool inside = (t->flags & CAT_TENSOR_IN_OBJECT) && !(t->flags & CAT_TENSOR_NAMED);
        if (base->parts.tensor_part[i] != PART_MODEL || inside)
            RETURN_IF(catalogue_add_skipped(&c->cat, catalogue_name(&base->cat, t->name),
                                            catalogue_name_nbytes(&base->cat, t->name), false,
                                            catalogue_tensor_nbytes(&base->cat, i), VALUE_OF_NONE,
                                            err));
    }
    for (uint32_t i = 0; i < base->parts.object_count; i++) {
        const cat_object *o = catalogue_object(&base->cat, i);
        if (o->saved_at != CAT_NONE)
            RETURN_IF(catalogue_add_skipped(&c->cat, catalogue_name(&base->cat, o->name),
                                            catalogue_name_nbytes(&base->cat, o->name), true,
                                            o->nbytes, VALUE_OF_NONE, err));
    }
    return FSDPCK_OK;
}
