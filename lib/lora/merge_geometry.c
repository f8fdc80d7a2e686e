/* merge_geometry.c: the tensor of a target, and its dims as rows and columns. */
#include <stdlib.h>

#include "base/checked.h"
#include "lora/merge_internal.h"

void *merge_alloc(uint64_t n, uint64_t each, size_t item_nbytes, fsdpck_error *err)
{
    uint64_t nbytes;
    if (!checked_mul(n, each, &nbytes) || !checked_mul(nbytes, item_nbytes, &nbytes) ||
        nbytes > INT64_MAX) {
        (void)error_set_nomem(err, UINT64_MAX);
        return NULL;
    }
    void *memory = malloc(nbytes == 0 ? 1 : nbytes);
    if (memory == NULL)
        (void)error_set_nomem(err, nbytes);
    return memory;
}

const char *merge_target_name(const merger *m, const merge_target *t)
{
    return strtab_text(&m->list.names, t->name);
}

uint32_t merge_from(const merger *m, const merge_target *t, uint32_t *input)
{
    const merge_step *s = t->step_count > 0 ? merge_step_at(m, t->first_step) : NULL;
    *input = s != NULL && s->kind == MERGE_REPLACE ? s->input : 0;
    return s != NULL && s->kind == MERGE_REPLACE ? s->a : t->tensor;
}

/* Whether a step is a product for each index of the first dim. */
static bool has_experts(const merger *m, const merge_target *t, unsigned ndim)
{
    bool any = false;
    for (uint64_t i = t->first_step; i < t->first_step + t->step_count; i++) {
        const merge_step *s = merge_step_at(m, i);
        const catalogue *c = merge_input_at(m, s->input)->cat;
        any =
            any || (s->kind == MERGE_PRODUCT && ndim == 3 && catalogue_tensor(c, s->a)->ndim == 2);
    }
    return any;
}

merge_shape merge_shape_of(const merger *m, const merge_target *t)
{
    uint32_t input;
    const uint32_t tensor = merge_from(m, t, &input);
    const catalogue *c = merge_input_at(m, input)->cat;
    const uint64_t *shape = catalogue_shape(c, tensor);
    merge_shape g = {.ndim = catalogue_tensor(c, tensor)->ndim, .experts = 1, .rows = 1};
    g.row = has_experts(m, t, g.ndim) ? 1 : 0;
    if (g.row > 0)
        g.experts = shape[0];
    if (g.ndim > 0)
        g.rows = shape[g.row];
    g.columns = g.ndim > g.row + 1 ? box_nelems(shape + g.row + 1, g.ndim - g.row - 1) : 1;
    return g;
}
