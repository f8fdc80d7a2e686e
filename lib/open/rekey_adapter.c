#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "model/fqn.h"
#include "open/checkpoint.h"
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

/* torch's batch norm counts its batches beside them. */
static bool has_counter(const catalogue *c, const char *name, size_t module_nbytes)
{
    text_buf counter = {.limit_bytes = UINT32_MAX};
    text_append(&counter, name, module_nbytes);
    text_puts(&counter, "num_batches_tracked");
    const uint32_t k =
        counter.failed ? CAT_NONE : catalogue_find((catalogue *)c, counter.text, counter.nbytes);
    text_release(&counter);
    return k != CAT_NONE && catalogue_tensor(c, k)->ndim == 0 &&
           dtype_get((dtype)catalogue_tensor(c, k)->dtype)->kind != DTYPE_IS_FLOAT;
}

/* Whether a module has the buffers of torch's batch norm: running_mean and running_var, vectors of
 * one shape, and its counter. Names alone may be those of parameters. */
static bool is_norm_buffer(const catalogue *c, const cat_tensor *t)
{
    static const char *const buffers[] = {"running_mean", "running_var"};
    const char *name = catalogue_name(c, t->name);
    const size_t nbytes = catalogue_name_nbytes(c, t->name);
    bool found = false;
    for (size_t i = 0; !found && t->ndim == 1 && i < 2; i++) {
        const size_t n = strlen(buffers[i]);
        if (nbytes < n || memcmp(name + nbytes - n, buffers[i], n) != 0 ||
            (nbytes > n && name[nbytes - n - 1] != '.'))
            continue;
        text_buf other = {.limit_bytes = UINT32_MAX};
        text_append(&other, name, nbytes - n);
        text_puts(&other, buffers[1 - i]);
        const uint32_t k =
            other.failed ? CAT_NONE : catalogue_find((catalogue *)c, other.text, other.nbytes);
        text_release(&other);
        if (k == CAT_NONE || !has_counter(c, name, nbytes - n))
            return false;
        const cat_tensor *o = catalogue_tensor(c, k);
        found =
            o->ndim == 1 && o->dtype == t->dtype &&
            *catalogue_shape(c, k) == *catalogue_shape(c, (uint64_t)(t - catalogue_tensor(c, 0)));
    }
    return found;
}

/* Integer tensors get no gradients. */
static bool is_trainable(const catalogue *c, const cat_tensor *t)
{
    const unsigned kind = dtype_get((dtype)t->dtype)->kind;
    return !(t->flags & (CAT_TENSOR_STORAGE | CAT_TENSOR_OF_RANK)) &&
           (kind == DTYPE_IS_FLOAT || kind == DTYPE_IS_COMPLEX) && !is_norm_buffer(c, t);
}

/* A tensor inside an object of a class: its number there is no name. */
static bool is_nameless(const cat_tensor *t)
{
    return (t->flags & CAT_TENSOR_IN_OBJECT) && !(t->flags & CAT_TENSOR_NAMED);
}

typedef struct candidate {
    uint32_t saved_at, tensor;
    uint32_t alias;
    uint64_t offset_bytes;
    bool outside;     /* beside the model part */
    bool tied;        /* to one before it */
    uint32_t tied_to; /* its tensor */
} candidate;

static int compare_saved(const void *left, const void *right)
{
    const candidate *a = left, *b = right;
    if (a->outside != b->outside)
        return a->outside ? 1 : -1;
    ORDER_BY(a->saved_at, b->saved_at);
    return a->tensor < b->tensor ? -1 : a->tensor > b->tensor;
}

static int compare_alias(const void *left, const void *right)
{
    const candidate *a = left, *b = right;
    ORDER_BY(a->alias, b->alias);
    ORDER_BY(a->offset_bytes, b->offset_bytes);
    return compare_saved(left, right);
}

/* Whether two tensors of one shape at one offset have the same strides: not one transposed. */
static fsdpck_status same_strides(const fsdpck_checkpoint *c, const cat_tensor *a,
                                  const cat_tensor *b, uint32_t tensor, bool *same,
                                  fsdpck_error *err)
{
    const uint64_t *shape = catalogue_shape(&c->cat, tensor);
    place x, y;
    RETURN_IF(c->src.locate(c->src.ctx, a->first_chunk, &x, err));
    RETURN_IF(c->src.locate(c->src.ctx, b->first_chunk, &y, err));
    *same = x.rows == y.rows;
    for (unsigned i = 0; *same && !x.rows && i < a->ndim; i++)
        *same = shape[i] < 2 || x.strides[i] == y.strides[i];
    return FSDPCK_OK;
}

/* Marks tensors with the same elements as an earlier one. */
static fsdpck_status find_ties(const fsdpck_checkpoint *from, candidate *all, size_t count,
                               fsdpck_error *err)
{
    const catalogue *c = &from->cat;
    if (count > 1)
        qsort(all, count, sizeof *all, compare_alias);
    for (size_t i = 1; i < count; i++) {
        const cat_tensor *t = catalogue_tensor(c, all[i].tensor);
        const cat_tensor *before = catalogue_tensor(c, all[i - 1].tensor);
        all[i].tied = all[i].alias != CAT_NONE && all[i].alias == all[i - 1].alias &&
                      all[i].offset_bytes == all[i - 1].offset_bytes && t->dtype == before->dtype &&
                      shape_equal(catalogue_shape(c, all[i].tensor), t->ndim,
                                  catalogue_shape(c, all[i - 1].tensor), before->ndim);
        if (all[i].tied)
            RETURN_IF(same_strides(from, t, before, all[i].tensor, &all[i].tied, err));
        all[i].tied_to = all[i - 1].tied ? all[i - 1].tied_to : all[i - 1].tensor;
    }
    if (count > 1)
        qsort(all, count, sizeof *all, compare_saved);
    return FSDPCK_OK;
}

static fsdpck_status list_candidates(const fsdpck_checkpoint *c, const checkpoint_parts *parts,
                                     vec *all, fsdpck_error *err)
{
    for (uint32_t i = 0; i < parts->tensor_count; i++) {
        const cat_tensor *t = catalogue_tensor(&c->cat, i);
        if (parts->tensor_part[i] == PART_OPTIMIZER || !is_trainable(&c->cat, t))
            continue;
        candidate *made = vec_push(all, err);
        if (made == NULL)
            return FSDPCK_LIMIT;
        *made = (candidate){.saved_at = t->saved_at,
                            .tensor = i,
                            .alias = t->alias,
                            .outside = parts->tensor_part[i] != PART_MODEL || is_nameless(t)};
        if (t->alias == CAT_NONE || t->nchunks != 1 || catalogue_tensor_nelems(&c->cat, i) == 0) {
            made->alias = CAT_NONE;
            continue;
        }
        place where;
        RETURN_IF(c->src.locate(c->src.ctx, t->first_chunk, &where, err));
        made->offset_bytes = where.offset_bytes;
    }
    return find_ties(c, all->items, all->count, err);
}

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

/* Whether it is a copy of model tensors under a different key (averaged weights). */
static bool is_copy(const fsdpck_checkpoint *c, const checkpoint_parts *parts, const candidate *k,
                    const strtab *names, const vec *param_of_name, const vec *params)
{
    const cat_tensor *t = catalogue_tensor(&c->cat, k->tensor);
    const size_t count = value_count(&c->cat.pool, t->path);
    text_buf clean = {0};
    size_t nbytes = 0;
    const value v = count == 0 ? VALUE_OF_NONE : value_item(&c->cat.pool, t->path, count - 1);
    const char *text = value_text(&c->cat.pool, v, &nbytes);
    if (text == NULL || value_kind_of(v) != VALUE_STR)
        return false;
    fqn_clean(text, nbytes, parts->model_has_ddp, &clean);
    const uint32_t id =
        clean.text == NULL ? STRTAB_NONE : strtab_find(names, clean.text, clean.nbytes);
    text_release(&clean);
    if (id == STRTAB_NONE)
        return false;
    const rekey_param *p =
        VEC_AT(params, const rekey_param, *VEC_AT(param_of_name, const uint32_t, id));
    return shape_equal(p->shape, p->ndim, catalogue_shape(&c->cat, k->tensor), t->ndim);
}

typedef struct params_search {
    const fsdpck_checkpoint *c;
    const checkpoint_parts *parts;
    strtab *names;     /* of params */
    vec ids;           /* uint32_t: by param, in names */
    vec param_of_name; /* uint32_t: param, by id in names */
    vec *params;
} params_search;

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
    if (clean->nbytes == 0 ||
        (k->outside && is_copy(s->c, s->parts, k, s->names, &s->param_of_name, s->params)))
        return FSDPCK_OK;
    const uint32_t at = (uint32_t)s->params->count;
    const uint32_t outer_nbytes = (uint32_t)outer_nbytes_of(s->c, s->parts, k);
    RETURN_IF(note_name(s, at, clean->text, clean->nbytes, err));
    note_saved(s, at, k, outer_nbytes);
    return vec_add(s->params,
                   &(rekey_param){.shape = catalogue_shape(&s->c->cat, k->tensor),
                                  .ndim = catalogue_tensor(&s->c->cat, k->tensor)->ndim,
                                  .tensor = k->tensor,
                                  .saved = k->tensor + 1,
                                  .saved_outer_nbytes = outer_nbytes,
                                  .tied = k->tied,
                                  .tied_to = tied_to,
                                  .outside = k->outside,
                                  .nameless = is_nameless(catalogue_tensor(&s->c->cat, k->tensor))},
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
    const size_t first = params->count;
    fsdpck_status st = list_candidates(c, parts, &all, err);
    for (uint32_t i = 0; st == FSDPCK_OK && i < first; i++) {
        const rekey_param *p = VEC_AT(params, const rekey_param, i);
        st = note_name(&s, i, p->fqn, p->fqn_nbytes, err);
    }
    for (size_t i = 0; st == FSDPCK_OK && i < all.count; i++) {
        const candidate *k = VEC_AT(&all, const candidate, i);
        if (k->outside || !described)
            st = add_param(&s, k, &clean, err);
    }
    for (size_t i = first; st == FSDPCK_OK && i < params->count; i++) {
        rekey_param *p = VEC_AT(params, rekey_param, i);
        p->fqn = strtab_text(names, *VEC_AT(&s.ids, const uint32_t, i));
        p->fqn_nbytes = strtab_nbytes(names, *VEC_AT(&s.ids, const uint32_t, i));
    }
    VEC_RELEASE_ALL(&all, &s.ids, &s.param_of_name);
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
