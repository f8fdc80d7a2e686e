#include "open/rekey_flat.h"

fsdpck_status rekey_flat_begin(fsdpck_checkpoint *c, bool model_too, rekey_paths *inferred,
                               fsdpck_error *err)
{
    for (uint32_t i = 0; i < catalogue_object_count(&c->cat); i++)
        if (!catalogue_object(&c->cat, i)->loaded && rekey_paths_need_object(&c->cat, i))
            RETURN_IF(checkpoint_load_object(c, i, err));
    return rekey_paths_infer(&c->cat, model_too, inferred, err);
}

fsdpck_status rekey_flat_check(const fsdpck_checkpoint *c, const checkpoint_parts *parts,
                               fsdpck_error *err)
{
    for (size_t i = 0; i < parts->tensor_count; i++) {
        const cat_tensor *t = catalogue_tensor(&c->cat, i);
        const char *key = checkpoint_parts_flat_key(catalogue_name(&c->cat, t->name),
                                                    catalogue_name_nbytes(&c->cat, t->name));
        if (parts->tensor_part[i] != PART_MODEL || key == NULL)
            continue;
        return FAIL_WITH(
            err, BADINPUT, MODEL_NEEDED,
            ("optimizer state keyed by number, and flat names that may begin with a key above the "
             "model"),
            (tensor, catalogue_name(&c->cat, t->name)),
            (found, "'%s', a key of trainers or a part of the parameter's name", key),
            (next, "describe the model and its optimizer with scripts/describe_model.py, and give "
                   "--model FILE: fsdpck-model(5)"));
    }
    return FSDPCK_OK;
}

static fsdpck_status find_parts(fsdpck_checkpoint *c, const rekey_paths *inferred,
                                fsdpck_error *err)
{
    const bool assumes_order = c->parts.assumes_order;
    if (!inferred->made)
        return FSDPCK_OK;
    checkpoint_parts_release(&c->parts);
    RETURN_IF(checkpoint_parts_find(&c->cat, &c->parts, err));
    c->parts.assumes_order = assumes_order;
    return FSDPCK_OK;
}

fsdpck_status rekey_flat_enter(fsdpck_checkpoint *c, bool model_too, rekey_paths *inferred,
                               fsdpck_error *err)
{
    RETURN_IF(rekey_flat_begin(c, model_too, inferred, err));
    return find_parts(c, inferred, err);
}

fsdpck_status rekey_flat_leave(fsdpck_checkpoint *c, const rekey_paths *inferred, fsdpck_error *err)
{
    rekey_paths_clear(&c->cat, inferred);
    return find_parts(c, inferred, err);
}
