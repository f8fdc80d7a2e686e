/* What a description and the model part of a checkpoint say of each parameter and buffer. */
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "model/model_internal.h"
#include "statedict/description_match.h"
#include "statedict/unflatten_internal.h"

/* A tensor as the description has it. */
typedef struct wanted {
    const char *fqn;
    size_t nbytes;
    const char *what; /* "parameter" */
    uint8_t dtype;    /* DTYPE_NONE: not stated */
    uint8_t ndim;
    const uint64_t *shape;
    uint32_t module; /* MODEL_NONE: unknown */
    bool optional;
} wanted;

typedef struct checking {
    const description_match *a;
    description_notes *notes;
} checking;

static fsdpck_status differ(const char *fqn, const char *message, const char *expected,
                            const char *found, fsdpck_error *err)
{
    return FAIL_WITH(
        err, BADINPUT, MODEL_MISMATCH, ("%s", message), (tensor, fqn), (expected, "%s", expected),
        (found, "%s", found),
        (next,
         "describe the model of this checkpoint (scripts/describe_model.py), or omit --model"));
}

static bool is_floating(uint8_t d)
{
    return dtype_get((dtype)d)->kind == DTYPE_IS_FLOAT;
}

static fsdpck_status compare(const checking *c, const wanted *w, uint32_t tensor, fsdpck_error *err)
{
    const cat_tensor *t = catalogue_tensor(c->a->cat, tensor);
    const uint64_t *shape = catalogue_shape(c->a->cat, tensor);
    char expected[160], found[160];
    const bool same_shape = shape_equal(shape, t->ndim, w->shape, w->ndim);
    description_print_shape((dtype)w->dtype, w->ndim, w->shape, expected, sizeof expected);
    description_print_shape(w->dtype == DTYPE_NONE ? DTYPE_NONE : (dtype)t->dtype, t->ndim, shape,
                            found, sizeof found);
    if (!same_shape)
        return differ(w->fqn, "tensor and model differ in shape", expected, found, err);
    if (w->dtype == DTYPE_NONE || w->dtype == t->dtype)
        return FSDPCK_OK;
    if (!is_floating(w->dtype) || !is_floating(t->dtype))
        return differ(w->fqn, "tensor and model differ in dtype", expected, found, err);
    if (c->notes->casts++ == 0) {
        c->notes->first_cast = tensor;
        c->notes->wanted = w->dtype;
    }
    return FSDPCK_OK;
}

static fsdpck_status check_wanted(const checking *c, const wanted *w, fsdpck_error *err)
{
    char expected[160];
    const bool in_module = w->module != MODEL_NONE;
    const uint32_t tensor = in_module
                                ? description_match_find_in(c->a, w->module, w->fqn, w->nbytes)
                                : description_match_find(c->a, w->fqn, w->nbytes);
    if (tensor != CAT_NONE)
        return compare(c, w, tensor, err);
    if (w->optional)
        return FSDPCK_OK;
    if (in_module && model_module_at(c->a->m, w->module)->state_path != MODEL_NONE) {
        if (c->notes->unfound++ == 0)
            c->notes->first_unfound = w->fqn;
        return FSDPCK_OK;
    }
    description_print_shape((dtype)w->dtype, w->ndim, w->shape, expected, sizeof expected);
    char message[80];
    snprintf(message, sizeof message, "checkpoint lacks a %s of the model", w->what);
    return differ(w->fqn, message, expected, "no tensor of this name", err);
}

/* A parameter that is whole on every rank. */
static bool is_whole(const description_match *a, const model_param *p)
{
    size_t nbytes;
    const char *fqn = model_name(a->m, p->name, &nbytes);
    const unit *u = NULL;
    return unit_list_find_param(a->units, fqn, nbytes, &u) == NULL || !unit_is_sharded(u);
}

static fsdpck_status check_params(const checking *c, fsdpck_error *err)
{
    const model *m = c->a->m;
    for (uint32_t i = 0; i < model_param_count(m); i++) {
        const model_param *p = model_param_at(m, i);
        const uint32_t first = model_param_first(m, i);
        wanted w = {.what = "parameter",
                    .dtype = p->dtype,
                    .ndim = p->ndim,
                    .shape = model_shape(m, p->shape_at),
                    .module = p->module,
                    .optional = c->a->ignored[first] != 0 ||
                                (c->a->drops && is_whole(c->a, model_param_at(m, first)))};
        w.fqn = model_name(m, p->name, &w.nbytes);
        RETURN_IF(check_wanted(c, &w, err));
    }
    return FSDPCK_OK;
}

static fsdpck_status check_buffers(const checking *c, fsdpck_error *err)
{
    const model *m = c->a->m;
    for (uint32_t i = 0; i < model_buffer_count(m); i++) {
        const model_buffer *b = model_buffer_at(m, i);
        wanted w = {.what = "buffer",
                    .dtype = b->dtype,
                    .ndim = b->ndim,
                    .shape = model_shape(m, b->shape_at),
                    .module = b->module,
                    .optional = !b->persistent || c->a->drops};
        w.fqn = model_name(m, b->name, &w.nbytes);
        RETURN_IF(check_wanted(c, &w, err));
    }
    return FSDPCK_OK;
}

static fsdpck_status check_units(const checking *c, fsdpck_error *err)
{
    const unit_list *l = c->a->units;
    for (uint32_t i = 0; i < unit_count(l); i++) {
        const unit *u = unit_at(l, i);
        for (uint32_t k = 0; k < u->nparams; k++) {
            const unit_param *p = unit_param_at(l, u, k);
            wanted w = {.what = "parameter",
                        .dtype = u->dtype,
                        .ndim = p->ndim,
                        .shape = unit_param_shape(l, p),
                        .module = MODEL_NONE};
            w.fqn = unit_name(l, p->fqn, &w.nbytes);
            RETURN_IF(check_wanted(c, &w, err));
        }
    }
    return FSDPCK_OK;
}

/* Tensors of the model part that the model lacks. */
static fsdpck_status check_others(const checking *c, fsdpck_error *err)
{
    const description_match *a = c->a;
    char found[160];
    for (uint32_t id = 0; id < strtab_count(&a->keys); id++) {
        const char *key = strtab_text(&a->keys, id);
        const size_t nbytes = strtab_nbytes(&a->keys, id);
        if (model_find_param(a->m, key, nbytes) != MODEL_NONE ||
            model_find_buffer(a->m, key, nbytes) != MODEL_NONE ||
            text_ends_with(key, nbytes, "_extra_state"))
            continue;
        description_print_tensor(a->cat, *VEC_AT(&a->tensors, const uint32_t, id), found,
                                 sizeof found);
        return differ(key, "the model lacks a tensor of the checkpoint", "no tensor of this name",
                      found, err);
    }
    return FSDPCK_OK;
}

/* No name is known: a different model, or no model at all. */
static fsdpck_status check_unknown(const description_match *a, fsdpck_error *err)
{
    char found[160];
    if (a->sample == CAT_NONE || model_param_count(a->m) + a->units->params.count == 0)
        return FSDPCK_OK;
    description_print_tensor(a->cat, a->sample, found, sizeof found);
    return differ(
        catalogue_name(a->cat, catalogue_tensor(a->cat, a->sample)->name),
        "no tensor name of the checkpoint is in the model",
        a->units->params.count > 0
            ? unit_name(a->units, unit_param_at(a->units, unit_at(a->units, 0), 0)->fqn, NULL)
            : model_name(a->m, model_param_at(a->m, 0)->name, NULL),
        found, err);
}

fsdpck_status description_match_check(const description_match *a, description_notes *notes,
                                      fsdpck_error *err)
{
    const checking c = {.a = a, .notes = notes};
    *notes = (description_notes){.first_cast = CAT_NONE};
    if (!a->known)
        return check_unknown(a, err);
    if (a->m->lists_units)
        return check_units(&c, err);
    RETURN_IF(check_params(&c, err));
    RETURN_IF(check_buffers(&c, err));
    return check_others(&c, err);
}
