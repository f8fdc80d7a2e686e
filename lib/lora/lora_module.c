/* lora_module.c: numbers and names of one module with an adapter. */
#include "base/text.h"
#include "lora/lora_check.h"
#include "lora/lora_internal.h"

uint64_t lora_module_experts(const lora_set *set, const catalogue *c, const lora_module *m)
{
    const uint32_t t = lora_cat_tensor(set, m->base_weight);
    if (m->kind != LORA_PARAMETER)
        return 1;
    if (t == CAT_NONE)
        return 0;
    return catalogue_tensor(c, t)->ndim == 3 ? catalogue_shape(c, t)[0] : 1;
}

uint64_t lora_module_rank(const lora_set *set, const catalogue *c, const lora_module *m)
{
    const uint32_t a = lora_cat_tensor(set, m->a);
    const uint64_t experts = lora_module_experts(set, c, m);
    if (a == CAT_NONE || catalogue_tensor(c, a)->ndim < 1 || experts == 0)
        return 0;
    return catalogue_shape(c, a)[0] / experts;
}

fsdpck_status lora_module_key(const lora_set *set, const lora_module *m, text_buf *key,
                              fsdpck_error *err)
{
    const uint32_t path = m->holder == LORA_NONE ? m->path : lora_module_at(set, m->holder)->path;
    key->nbytes = 0;
    text_append(key, strtab_text(&set->names, path), strtab_nbytes(&set->names, path));
    if (m->kind == LORA_PARAMETER && m->parameter != LORA_NONE) {
        text_puts(key, ".");
        text_append(key, strtab_text(&set->names, m->parameter),
                    strtab_nbytes(&set->names, m->parameter));
    }
    return text_check(key, err);
}
