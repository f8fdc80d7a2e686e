#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "model/fqn.h"
#include "open/checkpoint.h"
#include "open/rekey_candidates.h"
#include "open/rekey_flat.h"
#include "statedict/rekey.h"

/* --- the parameters of a description --- */

/* The selected name of a parameter with several names. */
static bool find_first(const model *m, const model_param *p, const vec *params, uint32_t *at)
{
    size_t nbytes;
    while (p->same_as != MODEL_NONE)
        p = model_param_at(m, p->same_as);
    const char *fqn = model_name(m, p->name, &nbytes);
    for (*at = 0; *at < params->count; ++*at) {
        const rekey_param *q = VEC_AT(params, const rekey_param, *at);
        if (q->fqn_nbytes == nbytes && memcmp(q->fqn, fqn, nbytes) == 0)
            return true;
    }
    return false;
}

static fsdpck_status params_of_model(const model *m, vec *params, fsdpck_error *err)
{
    for (uint32_t i = 0; i < model_module_count(m); i++) {
        const model_module *module = model_module_at(m, i);
        for (uint32_t k = module->first_param; k < module->first_param + module->nparams; k++) {
            const model_param *p = model_param_at(m, k);
            uint32_t tied_to = 0;
            if (p->same_as != MODEL_NONE && !find_first(m, p, params, &tied_to))
                continue;
            rekey_param *made = vec_push(params, err);
            if (made == NULL)
                return FSDPCK_LIMIT;
            *made = (rekey_param){.shape = model_shape(m, p->shape_at),
                                  .ndim = p->ndim,
                                  .tensor = CAT_NONE,
                                  .tied = p->same_as != MODEL_NONE,
                                  .tied_to = tied_to};
            made->fqn = model_name(m, p->name, &made->fqn_nbytes);
        }
    }
    return FSDPCK_OK;
}

/* --- those of the model part --- */

/* Bytes of its name before that of the parameter: in the model the outer key, else none. */
static size_t outer_nbytes_of(const fsdpck_checkpoint *c, const checkpoint_parts *parts,
                              const candidate *k)
{
    const size_t nbytes =
        catalogue_name_nbytes(&c->cat, catalogue_tensor(&c->cat, k->tensor)->name);
    const size_t outer = parts->model_depth > 0 && !k->outside ? strlen(parts->model_key) + 1 : 0;
    return nbytes <= outer ? nbytes : outer;
}

/* Its clean name. */
static fsdpck_status clean_name_of(const fsdpck_checkpoint *c, const checkpoint_parts *parts,
                                   const candidate *k, text_buf *clean, fsdpck_error *err)
{
    const uint32_t name = catalogue_tensor(&c->cat, k->tensor)->name;
    const size_t nbytes = catalogue_name_nbytes(&c->cat, name);
    const size_t outer = outer_nbytes_of(c, parts, k);
    clean->nbytes = 0;
    fqn_clean(catalogue_name(&c->cat, name) + outer, nbytes - outer,
              parts->model_has_ddp && !k->outside, clean);
    text_append(clean, "", 0);
    return text_check(clean, err);
}

typedef struct params_search {
    const fsdpck_checkpoint *c;
    const checkpoint_parts *parts;
    strtab *names;     /* of params */
    vec ids;           /* uint32_t: by param, in names */
    vec param_of_name; /* uint32_t: param, by id in names */
    vec *params;
    strtab other; /* keys, with a dot, of tensors that are not all copies of the model's */
} params_search;

/* The name inside its own dict; NULL if it has none. */
static const char *inner_name(const catalogue *c, const candidate *k, size_t *nbytes)
{
    const value path = catalogue_tensor(c, k->tensor)->path;
    const size_t count = value_count(&c->pool, path);
    const value v = count == 0 ? VALUE_OF_NONE : value_item(&c->pool, path, count - 1);
    *nbytes = 0;
    return value_kind_of(v) == VALUE_STR ? value_text(&c->pool, v, nbytes) : NULL;
}

static bool has_shape_of(const catalogue *c, const candidate *k, const uint64_t *shape,
                         unsigned ndim)
{
    return shape_equal(catalogue_shape(c, k->tensor), catalogue_tensor(c, k->tensor)->ndim, shape,
                       ndim);
}

/* Whether the model has a tensor of this name and shape: a parameter, or a buffer. */
static bool is_alike(const params_search *s, const candidate *k, const char *name, size_t nbytes)
{
    const catalogue *c = &s->c->cat;
    text_buf text = {.limit_bytes = UINT32_MAX};
    fqn_clean(name, nbytes, s->parts->model_has_ddp, &text);
    const uint32_t id =
        text.text == NULL ? STRTAB_NONE : strtab_find(s->names, text.text, text.nbytes);
    const rekey_param *p =
        id == STRTAB_NONE
            ? NULL
            : VEC_AT(s->params, const rekey_param, *VEC_AT(&s->param_of_name, const uint32_t, id));
    bool is = p != NULL && has_shape_of(c, k, p->shape, p->ndim);
    if (p == NULL) {
        text.nbytes = 0;
        text_puts(&text, s->parts->model_key);
        text_puts(&text, s->parts->model_depth > 0 ? "." : "");
        text_append(&text, name, nbytes);
        const uint32_t at =
            text.failed ? CAT_NONE : catalogue_find((catalogue *)c, text.text, text.nbytes);
        is = at != CAT_NONE &&
             has_shape_of(c, k, catalogue_shape(c, at), catalogue_tensor(c, at)->ndim);
    }
    text_release(&text);
    return is;
}

static size_t key_nbytes(const catalogue *c, const candidate *k, size_t inner_nbytes)
{
    return catalogue_name_nbytes(c, catalogue_tensor(c, k->tensor)->name) - inner_nbytes;
}

/* A network of its own may have some of the model's names and shapes: its dict is no copy. */
static fsdpck_status note_other(params_search *s, const candidate *k, fsdpck_error *err)
{
    const cat_tensor *t = catalogue_tensor(&s->c->cat, k->tensor);
    size_t nbytes;
    uint32_t id;
    const char *name = inner_name(&s->c->cat, k, &nbytes);
    if (name == NULL || t->ndim == 0 || is_alike(s, k, name, nbytes))
        return FSDPCK_OK;
    return strtab_intern(&s->other, catalogue_name(&s->c->cat, t->name),
                         key_nbytes(&s->c->cat, k, nbytes), &id, err);
}

/* Whether it is in a copy of the model under a different key (averaged weights). */
static bool is_copy(const params_search *s, const candidate *k)
{
    const catalogue *c = &s->c->cat;
    size_t nbytes;
    const char *name = inner_name(c, k, &nbytes);
    return name != NULL && is_alike(s, k, name, nbytes) &&
           strtab_find(&s->other, catalogue_name(c, catalogue_tensor(c, k->tensor)->name),
                       key_nbytes(c, k, nbytes)) == STRTAB_NONE;
}

static fsdpck_status note_name(params_search *s, uint32_t param, const char *text, size_t nbytes,
                               fsdpck_error *err)
{
    uint32_t id;
    RETURN_IF(strtab_intern(s->names, text, nbytes, &id, err));
    uint32_t *slot = vec_push(&s->ids, err);
    if (slot == NULL)
        return FSDPCK_LIMIT;
    *slot = id;
    if (id < s->param_of_name.count)
        return FSDPCK_OK;
    slot = vec_push(&s->param_of_name, err);
    if (slot == NULL)
        return FSDPCK_LIMIT;
    *slot = param;
    return FSDPCK_OK;
}

/* Ties are few, so a linear search suffices. */
static bool find_tied(const params_search *s, const candidate *k, uint32_t *param)
{
    for (*param = 0; *param < s->params->count; ++*param)
        if (VEC_AT(s->params, const rekey_param, *param)->tensor == k->tied_to)
            return true;
    return false;
}

/* The parameter of this name in a description gets the tensor's name. */
static void note_saved(const params_search *s, uint32_t at, const candidate *k,
                       uint32_t outer_nbytes)
{
    const uint32_t first =
        *VEC_AT(&s->param_of_name, const uint32_t, *VEC_AT(&s->ids, const uint32_t, at));
    rekey_param *p = first == at ? NULL : VEC_AT(s->params, rekey_param, first);
    if (p == NULL || p->saved != 0)
        return;
    p->saved = k->tensor + 1;
    p->saved_outer_nbytes = outer_nbytes;
}

static fsdpck_status add_param(params_search *s, const candidate *k, text_buf *clean,
                               fsdpck_error *err)
{
    uint32_t tied_to = 0;
    if (k->tied && (k->outside || !find_tied(s, k, &tied_to)))
        return FSDPCK_OK;
    RETURN_IF(clean_name_of(s->c, s->parts, k, clean, err));
    if (clean->nbytes == 0 || (k->outside && is_copy(s, k)))
        return FSDPCK_OK;
    const uint32_t at = (uint32_t)s->params->count;
    const uint32_t outer_nbytes = (uint32_t)outer_nbytes_of(s->c, s->parts, k);
    RETURN_IF(note_name(s, at, clean->text, clean->nbytes, err));
    note_saved(s, at, k, outer_nbytes);
    return vec_add(
        s->params,
        &(rekey_param){.shape = catalogue_shape(&s->c->cat, k->tensor),
                       .ndim = catalogue_tensor(&s->c->cat, k->tensor)->ndim,
                       .tensor = k->tensor,
                       .saved = k->tensor + 1,
                       .saved_outer_nbytes = outer_nbytes,
                       .tied = k->tied,
                       .tied_to = tied_to,
                       .outside = k->outside,
                       .nameless = candidate_is_nameless(catalogue_tensor(&s->c->cat, k->tensor))},
        err);
}

/* described: `params` already contains those of a description; only other ones are added. */
static fsdpck_status params_of_part(const fsdpck_checkpoint *c, const checkpoint_parts *parts,
                                    bool described, strtab *names, vec *params, fsdpck_error *err)
{
    vec all = VEC_OF(candidate, c->cat.owner);
    params_search s = {.c = c,
                       .parts = parts,
                       .names = names,
                       .ids = VEC_OF(uint32_t, c->cat.owner),
                       .param_of_name = VEC_OF(uint32_t, c->cat.owner),
                       .params = params};
    text_buf clean = {0};
    strtab_init(&s.other, c->cat.owner);
    const size_t first = params->count;
    fsdpck_status st = candidates_list(c, parts, &all, err);
    for (uint32_t i = 0; st == FSDPCK_OK && i < first; i++) {
        const rekey_param *p = VEC_AT(params, const rekey_param, i);
        st = note_name(&s, i, p->fqn, p->fqn_nbytes, err);
    }
    for (unsigned outside = described; st == FSDPCK_OK && outside < 2; outside++) {
        for (size_t i = 0; st == FSDPCK_OK && outside && i < all.count; i++)
            if (VEC_AT(&all, const candidate, i)->outside)
                st = note_other(&s, VEC_AT(&all, const candidate, i), err);
        for (size_t i = 0; st == FSDPCK_OK && i < all.count; i++)
            if (VEC_AT(&all, const candidate, i)->outside == (outside == 1))
                st = add_param(&s, VEC_AT(&all, const candidate, i), &clean, err);
    }
    for (size_t i = first; st == FSDPCK_OK && i < params->count; i++) {
        rekey_param *p = VEC_AT(params, rekey_param, i);
        p->fqn = strtab_text(names, *VEC_AT(&s.ids, const uint32_t, i));
        p->fqn_nbytes = strtab_nbytes(names, *VEC_AT(&s.ids, const uint32_t, i));
    }
    VEC_RELEASE_ALL(&all, &s.ids, &s.param_of_name);
    strtab_release(&s.other);
    text_release(&clean);
    return st;
}

/* --- all of it --- */

static fsdpck_status load_wanted(fsdpck_checkpoint *c, optim_keys to, fsdpck_error *err)
{
    for (uint32_t i = 0; i < catalogue_object_count(&c->cat); i++)
        if (!catalogue_object(&c->cat, i)->loaded && rekey_needs_object(&c->cat, i, to))
            RETURN_IF(checkpoint_load_object(c, i, err));
    return FSDPCK_OK;
}

/* to: OPTIM_KEYS_AS_THEY_ARE only to find the meaning of numbers. */
static fsdpck_status rekey_or_infer(fsdpck_checkpoint *c, optim_keys to, const model *m,
                                    bool assumed, const checkpoint_parts *parts, uint32_t *count,
                                    fsdpck_error *err)
{
    vec params = VEC_OF(rekey_param, c->cat.owner);
    strtab names;
    fsdpck_status st = FSDPCK_OK;
    const bool described = m != NULL && !m->lists_units;

    strtab_init(&names, c->cat.owner);
    if (described)
        st = params_of_model(m, &params, err);
    /* Parameters of units are not in the order of the model. */
    if (st == FSDPCK_OK && (described || c->adapter == NULL))
        st = params_of_part(c, parts, described, &names, &params, err);
    const rekey_order order = {.params = params.items,
                               .count = (uint32_t)params.count,
                               .assumed = assumed,
                               .described = described,
                               .strip_ddp = parts->model_has_ddp,
                               .groups = m != NULL && m->optimizers.lists.count > 0 ? &m->optimizers
                                                                                    : NULL};
    if (st == FSDPCK_OK)
        st = to == OPTIM_KEYS_AS_THEY_ARE
                 ? rekey_infer_params(&c->cat, &order, &c->ctx->log, err)
                 : rekey_run(&c->cat, &order, to, &c->ctx->log, count, err);
    vec_release(&params);
    strtab_release(&names);
    return st;
}

fsdpck_status checkpoint_rekey(fsdpck_checkpoint *c, optim_keys to, const model *m,
                               bool assume_order, fsdpck_error *err)
{
    checkpoint_parts parts = {0};
    rekey_paths inferred = {0};
    uint32_t count = 0;

    /* Numbers without a known meaning have no parameter name; the cause was recorded. */
    const fsdpck_error *refusal = c->adapter == NULL ? NULL : flat_adapter_order_error(c->adapter);
    if (refusal != NULL) {
        if (err != NULL)
            *err = *refusal;
        error_path(err, c->path);
        return refusal->status;
    }
    fsdpck_status st = rekey_flat_begin(c, true, &inferred, err);
    if (st == FSDPCK_OK)
        st = load_wanted(c, to, err);
    if (st == FSDPCK_OK && to != OPTIM_KEYS_ID) /* tensors inside objects may be parameters */
        st = checkpoint_load_inner(c, err);
    if (st == FSDPCK_OK)
        st = checkpoint_parts_find(&c->cat, &parts, err);
    if (st == FSDPCK_OK && inferred.made && !inferred.has_names && to != OPTIM_KEYS_ID && m == NULL)
        st = rekey_flat_check(c, &parts, err);
    if (st == FSDPCK_OK)
        st = rekey_or_infer(c, to, m, assume_order, &parts, &count, err);
    rekey_paths_clear(&c->cat, &inferred);
    if (st == FSDPCK_OK && count == 0)
        st = FAIL_WITH(
            err, USAGE, NONE, ("--optim-keys: no optimizer state with param_groups found"),
            (next, "list the contents with fsdpck inspect --tree SRC, or omit --optim-keys"));
    checkpoint_parts_release(&parts);
    if (st == FSDPCK_OK) {
        checkpoint_parts_release(&c->parts);
        st = checkpoint_parts_find(&c->cat, &c->parts, err);
    }
    if (st != FSDPCK_OK)
        error_path(err, c->path);
    return st;
}

/* An int, or its text as DCP has it. */
static bool is_number(const value_pool *pool, value v)
{
    size_t nbytes = 0;
    const char *text = value_text(pool, v, &nbytes);
    if (value_kind_of(v) != VALUE_STR)
        return value_kind_of(v) == VALUE_BYTES;
    for (size_t i = 0; i < nbytes; i++)
        if (text[i] < '0' || text[i] > '9')
            return false;
    return nbytes > 0;
}

/* Some optimizer state is keyed by an int. */
static bool has_numbers(const catalogue *c)
{
    for (size_t i = 0; i < catalogue_tensor_count(c); i++) {
        const value path = catalogue_tensor(c, i)->path;
        const size_t count = value_count(&c->pool, path);
        if (count >= 3 && is_number(&c->pool, value_item(&c->pool, path, count - 2)) &&
            value_is_str(&c->pool, value_item(&c->pool, path, count - 3), "state"))
            return true;
    }
    return false;
}

fsdpck_status checkpoint_infer_params(fsdpck_checkpoint *c, const model *m, bool assume_order,
                                      fsdpck_error *err)
{
    uint32_t count;
    if (!has_numbers(&c->cat))
        return FSDPCK_OK;
    for (uint32_t i = 0; i < catalogue_object_count(&c->cat); i++)
        if (!catalogue_object(&c->cat, i)->loaded &&
            rekey_needs_object(&c->cat, i, OPTIM_KEYS_AS_THEY_ARE))
            (void)!checkpoint_load_object(c, i, NULL); /* reported where it is needed */
    return rekey_or_infer(c, OPTIM_KEYS_AS_THEY_ARE, m, assume_order, &c->parts, &count, err);
}
