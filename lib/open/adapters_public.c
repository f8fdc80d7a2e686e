/* adapters_public.c: the adapters of a checkpoint for callers. */
#include <stdlib.h>
#include <string.h>

#include "base/struct_copy.h"
#include "open/checkpoint.h"

static uint32_t role_of(const catalogue *c, size_t tensor)
{
    const uint32_t name = catalogue_tensor(c, tensor)->name;
    return lora_role_of_name(catalogue_name(c, name), catalogue_name_nbytes(c, name));
}

bool adapters_are_likely(const catalogue *c)
{
    for (size_t i = 0; i < catalogue_tensor_count(c); i++) {
        const uint32_t role = role_of(c, i);
        if (role != LORA_ROLE_BASE && role != LORA_ROLE_ORIGINAL)
            return true;
    }
    return false;
}

uint64_t adapters_count_tensors(const catalogue *c)
{
    uint64_t count = 0;
    for (size_t i = 0; i < catalogue_tensor_count(c); i++) {
        const uint32_t role = role_of(c, i);
        count += role != LORA_ROLE_BASE && role != LORA_ROLE_ORIGINAL && role != LORA_ROLE_FOREIGN;
    }
    return count;
}

static void count_tensors(const fsdpck_checkpoint *c, const lora_set *set, uint32_t adapter,
                          found_adapter *a)
{
    for (size_t i = 0; i < lora_tensor_count(set); i++) {
        const lora_tensor *t = lora_tensor_at(set, i);
        if (t->adapter != adapter)
            continue;
        a->tensors++;
        a->nbytes += catalogue_tensor_nbytes(&c->cat, t->tensor);
    }
}

static void count_modules(const fsdpck_checkpoint *c, const lora_set *set, uint32_t adapter,
                          found_adapter *a)
{
    for (size_t i = 0; i < lora_module_count(set); i++) {
        const lora_module *m = lora_module_at(set, i);
        if (m->adapter != adapter)
            continue;
        a->saved_modules += m->kind == LORA_SAVED;
        a->token_modules += m->kind == LORA_TOKENS;
        a->has_magnitude = a->has_magnitude || m->magnitude != LORA_NONE;
        if (m->kind == LORA_SAVED || m->kind == LORA_TOKENS)
            continue;
        const uint64_t r = lora_module_rank(set, &c->cat, m);
        a->modules++;
        if (r > 0 && (a->rank_min == 0 || r < a->rank_min))
            a->rank_min = r;
        a->rank_max = r > a->rank_max ? r : a->rank_max;
    }
}

/* Modules of modules_to_save in a file that does not mark them. */
static fsdpck_status count_saved(const lora_set *set, uint32_t adapter, found_adapter *a,
                                 fsdpck_error *err)
{
    strtab paths;
    uint32_t id;
    fsdpck_status st = FSDPCK_OK;
    strtab_init(&paths, set->names.owner);
    for (size_t i = 0; i < lora_tensor_count(set) && st == FSDPCK_OK; i++) {
        const lora_tensor *t = lora_tensor_at(set, i);
        const size_t n = lora_saved_path(set, i);
        if (n > 0 && t->adapter == adapter)
            st = strtab_intern(&paths, lora_text(set, t->base), n, &id, err);
    }
    a->saved_modules += strtab_count(&paths);
    strtab_release(&paths);
    return st;
}

static fsdpck_status list_adapters(fsdpck_checkpoint *c, fsdpck_error *err)
{
    lora_set set;
    fsdpck_status st = checkpoint_find_adapters(c, &set, err);
    if (st == FSDPCK_OK)
        st = lora_set_name_parameters(&set, &c->cat, NULL, err);
    for (uint32_t i = 0; st == FSDPCK_OK && i < lora_adapter_count(&set); i++) {
        found_adapter a = {0};
        st = strtab_intern(&c->adapter_names, strtab_text(&set.adapters, i),
                           strtab_nbytes(&set.adapters, i), &a.name, err);
        count_tensors(c, &set, i, &a);
        count_modules(c, &set, i, &a);
        if (st == FSDPCK_OK)
            st = count_saved(&set, i, &a, err);
        if (st == FSDPCK_OK)
            st = vec_add(&c->adapters, &a, err);
    }
    lora_set_release(&set);
    return st;
}

void checkpoint_list_adapters(fsdpck_checkpoint *c)
{
    if (c->adapters_known)
        return;
    c->adapters_known = true;
    if (adapters_are_likely(&c->cat) && list_adapters(c, NULL) != FSDPCK_OK)
        c->adapters.count = 0;
}

int fsdpck_get_adapter(fsdpck_checkpoint *c, size_t index, fsdpck_adapter *adapter)
{
    checkpoint_list_adapters(c);
    if (index >= c->adapters.count) {
        struct_clear(adapter);
        return 0;
    }
    const found_adapter *a = VEC_AT(&c->adapters, const found_adapter, index);
    const fsdpck_adapter all = {
        .struct_nbytes = sizeof all,
        .name = strtab_text(&c->adapter_names, a->name),
        .tensors = a->tensors,
        .nbytes = a->nbytes,
        .modules = a->modules,
        .rank_min = a->rank_min,
        .rank_max = a->rank_max,
        .saved_modules = a->saved_modules,
        .token_modules = a->token_modules,
        .use_dora = a->has_magnitude,
    };
    struct_copy_out(adapter, &all, sizeof all);
    return 1;
}
