/* merge_steps.c: the tensors and steps of a list that is being made. */
#include "base/text.h"
#include "lora/lora_internal.h"
#include "lora/merge_list_internal.h"

fsdpck_status list_maker_numbers(const list_maker *k, const lora_module *m, lora_numbers *n,
                                 fsdpck_error *err)
{
    text_buf key = {0};
    fsdpck_status st = lora_module_key(&k->set, m, &key, err);
    if (st == FSDPCK_OK)
        st = lora_config_numbers(k->request->config, key.text, key.nbytes, n, err);
    text_release(&key);
    return st;
}

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

static size_t first_tied(const list_maker *k)
{
    return k->own + k->base->count - k->base->tied;
}

bool list_maker_is_tied(const list_maker *k, uint32_t index)
{
    return index >= first_tied(k);
}

/* Of the weight that the second name shares until it is untied. */
static uint32_t shared_target(const list_maker *k, uint32_t base)
{
    return *VEC_AT(&k->target_of, const uint32_t, list_maker_tensor(k, base)) - 1;
}

static uint32_t target_of(const list_maker *k, uint32_t base)
{
    const uint32_t own = list_maker_is_tied(k, base)
                             ? *VEC_AT(&k->tied_target, const uint32_t, base - first_tied(k))
                             : 0;
    return own > 0 ? own - 1 : shared_target(k, base);
}

/* How a step replaces a target; NULL: none does. */
static const merge_step *replacing(const list_maker *k, uint32_t target)
{
    for (size_t i = 0; i < k->pending.count; i++) {
        const pending_step *p = VEC_AT(&k->pending, const pending_step, i);
        if (p->target == target && p->step.kind == MERGE_REPLACE)
            return &p->step;
    }
    return NULL;
}

bool list_maker_is_replaced(const list_maker *k, uint32_t base)
{
    return replacing(k, target_of(k, base)) != NULL;
}

/* A second name becomes a weight of its own where another module replaces it, or the weight that it shares. */
static fsdpck_status untie(list_maker *k, uint32_t base, const merge_step *step, fsdpck_error *err)
{
    const merge_step *other = replacing(k, shared_target(k, base));
    const bool unties = step->kind == MERGE_REPLACE && step->unties;
    const lora_tensor *t = lora_tensor_at(&k->set, base);
    merge_target made = {.tensor = list_maker_tensor(k, base)};
    uint32_t *own = VEC_AT(&k->tied_target, uint32_t, base - first_tied(k));
    if (*own > 0 || !(unties || (other != NULL && other->unties)))
        return FSDPCK_OK;
    RETURN_IF(strtab_intern(&k->list->names, lora_text(&k->set, t->base),
                            strtab_nbytes(&k->set.names, t->base), &made.name, err));
    RETURN_IF(vec_add(&k->list->targets, &made, err));
    *own = (uint32_t)k->list->targets.count;
    return FSDPCK_OK;
}

fsdpck_status list_maker_add(list_maker *k, uint32_t base, const merge_step *step,
                             fsdpck_error *err)
{
    if (list_maker_is_tied(k, base))
        RETURN_IF(untie(k, base, step, err));
    const pending_step made = {target_of(k, base), *step, k->request->config->ties_tokens};
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
