/* merge_steps.c: the tensors and steps of a list that is being made. */
#include "lora/merge_list_internal.h"

uint32_t list_maker_tensor(const list_maker *k, uint32_t index)
{
    return index < k->own ? k->request->beside->inputs[index].tensor
                          : k->base->inputs[index - k->own].tensor;
}

lora_role list_maker_role(const list_maker *k, uint32_t index)
{
    const lora_tensor *t = lora_tensor_at(&k->set, index);
    const bool is_base = k->own > 0 && index >= k->own && t->module == LORA_NONE;
    return t->role == LORA_ROLE_SAVED && is_base ? LORA_ROLE_BASE : (lora_role)t->role;
}

uint32_t list_maker_use(list_maker *k, uint32_t index)
{
    if (index == LORA_NONE)
        return CAT_NONE;
    k->used[index] = 1;
    return list_maker_tensor(k, index);
}

fsdpck_status list_maker_add(list_maker *k, uint32_t base, const merge_step *step,
                             fsdpck_error *err)
{
    const uint32_t tensor = list_maker_tensor(k, base);
    const pending_step made = {*VEC_AT(&k->target_of, const uint32_t, tensor) - 1, *step};
    for (size_t i = 0; step->kind == MERGE_REPLACE && i < k->pending.count; i++)
        if (VEC_AT(&k->pending, const pending_step, i)->target == made.target)
            return FAIL_WITH(err, UNSUPPORTED, LORA_MERGE,
                             ("adapter '%s' replaces '%s', which another adapter changes",
                              strtab_text(&k->list->adapters, step->adapter),
                              lora_text(&k->set, lora_tensor_at(&k->set, base)->base)),
                             (next, "merge the adapters one after another"));
    return vec_add(&k->pending, &made, err);
}

void list_maker_note_missing(list_maker *k, const char *path)
{
    if (k->missing_count < sizeof k->missing / sizeof k->missing[0])
        k->missing[k->missing_count] = path;
    k->missing_count++;
}
