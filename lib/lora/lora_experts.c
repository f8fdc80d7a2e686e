/* lora_experts.c: layers of a base model that have experts, which may be fused, under another name, in memory. */
#include <string.h>

#include "base/text.h"
#include "lora/lora_check.h"

/* The bytes of the layer in "model.layers.0.mlp.experts.1.w1": "model.layers.0". 0: no experts, or no layer. */
static size_t layer_nbytes(const char *path)
{
    size_t layer = 0;
    for (size_t at = 0;; at++) {
        const size_t n = strcspn(path + at, ".");
        if (text_is(path + at, n, "experts"))
            return layer;
        if (n > 0 && strspn(path + at, "0123456789") == n)
            layer = at + n;
        at += n;
        if (path[at] == '\0')
            return 0;
    }
}

fsdpck_status lora_count_experts(const lora_set *set, uint32_t adapter, const catalogue *base,
                                 uint64_t *count, fsdpck_error *err)
{
    strtab layers;
    uint32_t id;
    fsdpck_status st = FSDPCK_OK;
    strtab_init(&layers, base->owner);
    for (size_t i = 0; i < catalogue_tensor_count(base) && st == FSDPCK_OK; i++) {
        const char *name = catalogue_name(base, catalogue_tensor(base, i)->name);
        const size_t n = layer_nbytes(name);
        if (n > 0)
            st = strtab_intern(&layers, name, n, &id, err);
    }
    *count = 0;
    for (size_t i = 0; i < lora_module_count(set) && st == FSDPCK_OK; i++) {
        const lora_module *m = lora_module_at(set, i);
        const char *path = lora_text(set, m->path);
        const size_t n = layer_nbytes(path);
        *count += m->adapter == adapter && m->kind == LORA_PARAMETER && n > 0 &&
                  strtab_find(&layers, path, n) != STRTAB_NONE;
    }
    strtab_release(&layers);
    return st;
}
