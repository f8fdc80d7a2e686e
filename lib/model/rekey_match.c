/* What numbers mean: parameters of the model, told by names, a description, or shapes. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "model/fqn.h"
#include "model/rekey_parts.h"

/* Steps of the search: of all groups over all candidates, again and again. */
#define STEPS_MAX (UINT64_C(1) << 31)

typedef struct matching {
    rekey *r;
    rekey_optimizer *o;
    vec candidates;       /* uint32_t: in order->params */
    uint8_t *taken;       /* by candidate */
    uint32_t *low, *high; /* by position: first and last candidate that can be it */
    uint8_t *fixed;       /* by position */
    bool lenient;         /* the order says it: only a contradiction matters */
    uint64_t steps;
} matching;

/* --- shapes --- */

/* States that every optimizer of torch gives the shape of their parameter. */
static bool is_moment(const char *key, size_t nbytes)
{
    static const char *const keys[] = {
        "exp_avg", "exp_avg_sq",     "max_exp_avg_sq", "momentum_buffer",
        "sum",     "square_avg",     "grad_avg",       "acc_delta",
        "exp_inf", "variance",       "step_size",      "prev",
        "ax",      "max_exp_avg_sqs"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (strlen(keys[i]) == nbytes && memcmp(keys[i], key, nbytes) == 0)
            return true;
    return false;
}

/* Some dims reduced to 1, or left out (Adafactor's rows and columns). */
static bool is_reduced(const uint64_t *state, unsigned ndim, const rekey_param *p)
{
    unsigned at = 0;
    if (ndim == p->ndim) {
        for (unsigned i = 0; i < ndim; i++)
            if (state[i] != p->shape[i] && state[i] != 1)
                return false;
        return true;
    }
    for (unsigned i = 0; i < p->ndim && at < ndim; i++)
        at += state[at] == p->shape[i];
    return ndim < p->ndim && at == ndim;
}

static bool fits(matching *m, uint32_t position, uint32_t candidate)
{
    const catalogue *c = m->r->cat;
    const rekey_position *p = REKEY_POSITION(m->o, position);
    const rekey_param *param =
        &m->r->order->params[*VEC_AT(&m->candidates, const uint32_t, candidate)];
    bool equal = false, reduced = true;
    m->steps += 1 + p->nstates;
    for (uint32_t i = 0; i < p->nstates; i++) {
        const uint32_t tensor = *VEC_AT(&m->o->states, const uint32_t, p->first_state + i);
        const cat_tensor *t = catalogue_tensor(c, tensor);
        const uint64_t *shape = catalogue_shape(c, tensor);
        size_t nbytes = 0;
        const char *key = value_text(
            &c->pool, value_item(&c->pool, t->path, value_count(&c->pool, t->path) - 1), &nbytes);
        if (t->ndim == 0)
            continue;
        const bool same =
            t->ndim == param->ndim && memcmp(shape, param->shape, t->ndim * sizeof *shape) == 0;
        if (!same && key != NULL && is_moment(key, nbytes))
            return false;
        equal = equal || same;
        reduced = reduced && (same || catalogue_tensor_nelems(c, tensor) == 1 ||
                              is_reduced(shape, t->ndim, param));
    }
    return equal || reduced || m->lenient;
}

/* --- the search --- */

/* The first way to go through the candidates; *failed: the position that finds none. */
static bool embed(matching *m, const rekey_group *g, bool backwards, uint32_t *failed)
{
    const uint32_t count = (uint32_t)m->candidates.count;
    uint32_t at = 0; /* candidates used up, from the side that it begins at */
    for (uint32_t i = 0; i < g->count; i++) {
        const uint32_t member = backwards ? g->count - 1 - i : i;
        const uint32_t position = *REKEY_MEMBER(m->o, g->first + member);
        uint32_t *slot = backwards ? &m->high[position] : &m->low[position];
        *failed = position;
        if (m->fixed[position]) {
            const uint32_t used = backwards ? count - 1 - *slot : *slot;
            if (used < at)
                return false;
            at = used + 1;
            continue;
        }
        for (;; at++) {
            if (at >= count || m->steps > STEPS_MAX)
                return false;
            m->steps++;
            const uint32_t candidate = backwards ? count - 1 - at : at;
            if (!m->taken[candidate] && fits(m, position, candidate)) {
                *slot = candidate;
                at++;
                break;
            }
        }
    }
    return true;
}

/* Fixes what the first and the last way agree on. */
static bool narrow(matching *m, uint32_t *left, uint32_t *failed)
{
    for (size_t g = 0; g < m->o->groups.count; g++) {
        const rekey_group *group = REKEY_GROUP(m->o, g);
        if (!embed(m, group, false, failed) || !embed(m, group, true, failed))
            return false;
        for (uint32_t i = 0; i < group->count; i++) {
            const uint32_t position = *REKEY_MEMBER(m->o, group->first + i);
            if (m->fixed[position] || m->low[position] != m->high[position])
                continue;
            m->fixed[position] = 1;
            m->taken[m->low[position]] = 1;
            --*left;
        }
    }
    return true;
}

static fsdpck_status no_match(const matching *m, uint32_t position, fsdpck_error *err)
{
    const rekey *r = m->r;
    const rekey_position *p = REKEY_POSITION(m->o, position);
    const fsdpck_status st =
        rekey_fail(r, m->o, FSDPCK_BADINPUT, "MODEL-OPTIM", err,
                   "optimizer state by number does not fit the model's parameters in their order");
    error_expected(err, "one of %zu parameters", m->candidates.count);
    for (uint32_t i = 0; i < p->nstates; i++) {
        const uint32_t tensor = *VEC_AT(&m->o->states, const uint32_t, p->first_state + i);
        const cat_tensor *t = catalogue_tensor(r->cat, tensor);
        text_buf shape = {.limit_bytes = 200};
        for (unsigned d = 0; d < t->ndim; d++)
            text_printf(&shape, "%s%" PRIu64, d == 0 ? "" : ", ",
                        catalogue_shape(r->cat, tensor)[d]);
        if (t->ndim > 0)
            error_found(err, "'%s' of shape [%s]", catalogue_name(r->cat, t->name),
                        shape.text == NULL ? "" : shape.text);
        text_release(&shape);
    }
    error_found(err, "parameter %" PRIu32 " of %zu", position, m->o->positions.count);
    error_next(err, "--model FILE says what the parameters are (fsdpck-model(5))");
    return st;
}

static fsdpck_status ambiguous(const matching *m, uint32_t left, fsdpck_error *err)
{
    const fsdpck_status st =
        rekey_fail(m->r, m->o, FSDPCK_BADINPUT, "MODEL-NEEDED", err,
                   "optimizer state by number could mean the model's parameters in several ways");
    error_expected(err, "one way to give %zu numbers to %zu parameters", m->o->positions.count,
                   m->candidates.count);
    error_found(err, "%" PRIu32 " of them not settled by shapes and order", left);
    error_next(err, "--model FILE says what the parameters are, and, where there are several "
                    "param_groups, its 'optimizers' which are in which: fsdpck-model(5)");
    return st;
}

static fsdpck_status search(matching *m, fsdpck_error *err)
{
    uint32_t left = (uint32_t)m->o->positions.count, failed = 0;
    for (uint32_t before = left + 1; left > 0 && left < before && m->steps <= STEPS_MAX;) {
        before = left;
        if (!narrow(m, &left, &failed) && m->steps <= STEPS_MAX)
            return no_match(m, failed, err);
    }
    if (left > 0)
        return ambiguous(m, left, err);
    for (size_t i = 0; i < m->o->positions.count; i++)
        REKEY_POSITION(m->o, i)->param = *VEC_AT(&m->candidates, const uint32_t, m->low[i]);
    return FSDPCK_OK;
}

/* --- what may be meant --- */

/* All that the order has, but for what is the optimizer's own; where it counts exactly the trained
 * ones, those. */
static fsdpck_status list_candidates(matching *m, fsdpck_error *err)
{
    const rekey_order *order = m->r->order;
    uint32_t trained = 0;
    for (uint32_t i = 0; i < order->count; i++)
        trained += !order->params[i].frozen;
    const size_t numbers = m->o->positions.count;
    const bool leave = order->described && numbers != order->count && numbers == trained;
    for (uint32_t i = 0; i < order->count; i++) {
        const rekey_param *p = &order->params[i];
        if ((p->tensor != CAT_NONE && m->r->mine[p->tensor]) || (leave && p->frozen))
            continue;
        uint32_t *slot = vec_push(&m->candidates, err);
        if (slot == NULL)
            return FSDPCK_LIMIT;
        *slot = i;
    }
    uint32_t filled = 0;
    for (size_t g = 0; g < m->o->groups.count; g++)
        filled += REKEY_GROUP(m->o, g)->count > 0;
    m->lenient = order->described && filled == 1 && numbers == m->candidates.count;
    return FSDPCK_OK;
}

static fsdpck_status by_shape(matching *m, fsdpck_error *err)
{
    budget *owner = m->r->cat->owner;
    const size_t numbers = m->o->positions.count;
    RETURN_IF(list_candidates(m, err));
    if (m->candidates.count == 0) {
        const fsdpck_status st = rekey_fail(
            m->r, m->o, FSDPCK_BADINPUT, "MODEL-NEEDED", err,
            "optimizer state by number has no names, and there is no model part to take them from");
        error_next(err, "--model FILE says what the parameters are; scripts/describe_model.py "
                        "writes it where the model is: fsdpck-model(5)");
        return st;
    }
    const uint64_t work_nbytes = numbers * sizeof(uint32_t);
    m->taken = budget_alloc(owner, m->candidates.count, err);
    m->fixed = budget_alloc(owner, numbers, err);
    m->low = budget_alloc(owner, work_nbytes, err);
    m->high = budget_alloc(owner, work_nbytes, err);
    fsdpck_status st = FSDPCK_LIMIT;
    if (m->taken != NULL && m->fixed != NULL && m->low != NULL && m->high != NULL)
        st = search(m, err);
    budget_free(owner, m->taken, m->candidates.count);
    budget_free(owner, m->fixed, numbers);
    budget_free(owner, m->low, work_nbytes);
    budget_free(owner, m->high, work_nbytes);
    return st;
}

/* --- by what is written down --- */

static fsdpck_status by_description(rekey *r, rekey_optimizer *o, const optim_list *list,
                                    fsdpck_error *err)
{
    const optim_groups *g = r->order->groups;
    bool alike = list->count == o->groups.count;
    for (uint32_t i = 0; alike && i < list->count; i++)
        alike = optim_groups_at(g, list, i)->count == REKEY_GROUP(o, i)->count;
    if (!alike) {
        const fsdpck_status st =
            rekey_fail(r, o, FSDPCK_BADINPUT, "MODEL-OPTIM", err,
                       "optimizer has other param_groups than the model description says");
        error_expected(err, "%" PRIu32 " groups", list->count);
        error_found(err, "%zu groups, or groups of other sizes", o->groups.count);
        return st;
    }
    for (uint32_t i = 0; i < list->count; i++) {
        for (uint32_t k = 0; k < REKEY_GROUP(o, i)->count; k++) {
            size_t nbytes;
            const char *text = optim_groups_member(g, optim_groups_at(g, list, i), k, &nbytes);
            rekey_position *p = REKEY_POSITION(o, *REKEY_MEMBER(o, REKEY_GROUP(o, i)->first + k));
            RETURN_IF(strtab_intern(&r->texts, text, nbytes, &p->name, err));
        }
    }
    return FSDPCK_OK;
}

static bool all_named(const rekey_optimizer *o)
{
    for (size_t i = 0; i < o->positions.count; i++)
        if (REKEY_POSITION(o, i)->name == REKEY_NONE)
            return false;
    return true;
}

/* `param_names` are as the optimizer was given them: by a wrapped model, with its prefixes. */
static fsdpck_status clean_given(rekey *r, rekey_optimizer *o, fsdpck_error *err)
{
    text_buf clean = {0};
    fsdpck_status st = FSDPCK_OK;
    for (size_t i = 0; st == FSDPCK_OK && i < o->positions.count; i++) {
        rekey_position *p = REKEY_POSITION(o, i);
        clean.nbytes = 0;
        fqn_clean(strtab_text(&r->texts, p->name), strtab_nbytes(&r->texts, p->name),
                  r->order->strip_ddp, &clean);
        st = text_check(&clean, err);
        if (st == FSDPCK_OK)
            st = strtab_intern(&r->texts, clean.text == NULL ? "" : clean.text, clean.nbytes,
                               &p->name, err);
    }
    text_release(&clean);
    return st;
}

fsdpck_status rekey_match(rekey *r, uint32_t owner, fsdpck_error *err)
{
    rekey_optimizer *o = REKEY_OPTIMIZER(r, owner);
    const optim_list *list =
        r->order->groups == NULL
            ? NULL
            : optim_groups_find(r->order->groups, strtab_text(&r->texts, o->prefix),
                                strtab_nbytes(&r->texts, o->prefix));
    if (list != NULL)
        return by_description(r, o, list, err);
    if (all_named(o))
        return clean_given(r, o, err);
    matching m = {.r = r, .o = o, .candidates = VEC_OF(uint32_t, r->cat->owner)};
    fsdpck_status st = by_shape(&m, err);
    vec_release(&m.candidates);
    for (size_t i = 0; st == FSDPCK_OK && i < o->positions.count; i++) {
        rekey_position *p = REKEY_POSITION(o, i);
        const rekey_param *param = &r->order->params[p->param];
        st = strtab_intern(&r->texts, param->fqn, param->fqn_nbytes, &p->name, err);
    }
    return st;
}
