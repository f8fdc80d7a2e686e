/* ema_checkpoint.c: the moving average of the parameters that an optimizer holds, as a model. torchtitan keeps
 * it as state of its optimizer: optimizer.ema_params.NAME. */
#include <string.h>

#include "open/checkpoint.h"

static const char ema[] = "ema_params.";

/* The name in the model; NULL for other tensors. */
static const char *name_in_model(const char *name, size_t nbytes, size_t *rest)
{
    for (size_t i = 0; i + strlen(ema) < nbytes; i++) {
        if ((i > 0 && name[i - 1] != '.') || memcmp(name + i, ema, strlen(ema)) != 0)
            continue;
        *rest = nbytes - i - strlen(ema);
        return name + i + strlen(ema);
    }
    return NULL;
}

static fsdpck_status list_inputs(const fsdpck_checkpoint *base, vec *inputs, fsdpck_error *err)
{
    for (uint32_t i = 0; i < base->parts.tensor_count; i++) {
        const cat_tensor *t = catalogue_tensor(&base->cat, i);
        map_input in = {.tensor = i};
        if (base->parts.tensor_part[i] == PART_OPTIMIZER && (t->flags & CAT_TENSOR_IN_OBJECT) == 0)
            in.name = name_in_model(catalogue_name(&base->cat, t->name),
                                    catalogue_name_nbytes(&base->cat, t->name), &in.nbytes);
        if (in.name != NULL)
            RETURN_IF(vec_add(inputs, &in, err));
    }
    if (inputs->count > 0)
        return FSDPCK_OK;
    return FAIL_WITH(
        err, BADINPUT, AVERAGE_DIFFER, ("the optimizer holds no moving average of the parameters"),
        (path, base->path), (expected, "tensors named ema_params.NAME, as torchtitan writes them"),
        (next, "omit --part ema"));
}

/* Weights of the model without an average: the output lacks them. */
static fsdpck_status warn_partial(fsdpck_checkpoint *c, const vec *inputs, fsdpck_error *err)
{
    map_inputs weights = {0};
    strtab averaged;
    const char *first = NULL;
    size_t count = 0;
    uint32_t id;
    strtab_init(&averaged, &c->metadata);
    fsdpck_status st = map_inputs_list(c->base, &weights, err);
    for (size_t i = 0; st == FSDPCK_OK && i < inputs->count; i++) {
        const map_input *in = VEC_AT(inputs, const map_input, i);
        st = strtab_intern(&averaged, in->name, in->nbytes, &id, err);
    }
    for (size_t i = 0; st == FSDPCK_OK && i < weights.inputs.count; i++) {
        const map_input *in = VEC_AT(&weights.inputs, const map_input, i);
        if (strtab_find(&averaged, in->name, in->nbytes) == STRTAB_NONE && count++ == 0)
            first = in->name;
    }
    if (st == FSDPCK_OK && count > 0 && group_rank(c->ctx->group) == 0)
        log_warn(&c->ctx->log, FSDPCK_FINDING_EMA_PARTIAL,
                 "list them with --json (left_out), and convert them with --part model and --keys",
                 "the moving average lacks %zu of %zu tensors of the model, the first is '%s'",
                 count, weights.inputs.count, first);
    map_inputs_release(&weights);
    strtab_release(&averaged);
    return st;
}

/* All other tensors. */
static fsdpck_status skip_others(fsdpck_checkpoint *c, const vec *inputs, fsdpck_error *err)
{
    const fsdpck_checkpoint *base = c->base;
    size_t next = 0;
    for (uint32_t i = 0; i < base->parts.tensor_count; i++) {
        const cat_tensor *t = catalogue_tensor(&base->cat, i);
        if (next < inputs->count && VEC_AT(inputs, const map_input, next)->tensor == i)
            next++;
        else
            RETURN_IF(catalogue_add_skipped(&c->cat, catalogue_name(&base->cat, t->name),
                                            catalogue_name_nbytes(&base->cat, t->name), false,
                                            catalogue_tensor_nbytes(&base->cat, i), VALUE_OF_NONE,
                                            err));
    }
    return FSDPCK_OK;
}

static fsdpck_status fill(fsdpck_checkpoint *c, vec *inputs, fsdpck_error *err)
{
    static const char keep[] = "keep *\n";
    RETURN_IF(checkpoint_load_inner(c->base, err));
    RETURN_IF(map_read(keep, strlen(keep), &c->metadata, &c->map, err));
    RETURN_IF(list_inputs(c->base, inputs, err));
    RETURN_IF(warn_partial(c, inputs, err));
    RETURN_IF(map_adapter_new(c->map, &c->base->cat, &c->base->src, inputs->items, inputs->count,
                              &c->cat, &c->mapper, err));
    c->src = *map_adapter_source(c->mapper);
    RETURN_IF(skip_others(c, inputs, err));
    return checkpoint_parts_all_model(&c->cat, &c->parts, err);
}

fsdpck_status checkpoint_ema(fsdpck_checkpoint *base, fsdpck_checkpoint **out, fsdpck_error *err)
{
    fsdpck_status st = derived_checkpoint_new(base, out, err);
    if (*out == NULL)
        return st;
    vec inputs = VEC_OF(map_input, &(*out)->metadata);
    (*out)->borrows_base = true;
    (*out)->map_name = strdup("");
    if (st == FSDPCK_OK && (*out)->map_name == NULL)
        st = error_set_nomem(err, 1);
    if (st == FSDPCK_OK)
        st = fill(*out, &inputs, err);
    vec_release(&inputs);
    return st;
}
