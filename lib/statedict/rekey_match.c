/* Maps numbers to parameters of the model, by names, a description, or shapes. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "model/fqn.h"
#include "statedict/rekey_internal.h"

/* --- candidates --- */

/* All parameters of the order, except those of other optimizers. Frozen parameters are included: an
 * optimizer with as many parameters as need a gradient may hold others. */
static fsdpck_status list_candidates(rekey_matching *m, fsdpck_error *err)
{
    const rekey_order *order = m->r->order;
    const size_t numbers = m->o->positions.count;
    bool named = false;
    for (uint32_t i = 0; i < order->count; i++) {
        const rekey_param *p = &order->params[i];
        if (p->tied || (p->tensor != CAT_NONE && m->r->mine[p->tensor]) ||
            (order->assumed && p->outside))
            continue;
        named = named || !p->nameless;
        RETURN_IF(vec_add(&m->candidates, &(uint32_t){i}, err));
    }
    m->candidates.count = named ? m->candidates.count : 0;
    uint32_t filled = 0;
    for (size_t g = 0; g < m->o->groups.count; g++)
        filled += REKEY_GROUP(m->o, g)->count > 0;
    m->lenient = order->described && filled == 1 && numbers == m->candidates.count;
    return FSDPCK_OK;
}

/* key: one that shows `shapes`. */
static fsdpck_status by_model(rekey_matching *m, rekey_shapes shapes, const char *key,
                              fsdpck_error *err)
{
    budget *owner = m->r->cat->owner;
    const size_t numbers = m->o->positions.count;
    RETURN_IF(list_candidates(m, err));
    if (m->candidates.count == 0) {
        const fsdpck_status st = rekey_fail(
            m->r, m->o, FSDPCK_BADINPUT, FSDPCK_FINDING_MODEL_NEEDED, err,
            "optimizer state keyed by number has no names, and no model part provides them");
        error_next(err, "describe the model and its optimizer with scripts/describe_model.py, and "
                        "give --model FILE: fsdpck-model(5)");
        return st;
    }
    const bool assumed = m->r->order->assumed;
    if (shapes == REKEY_SHAPES_PROJECTED && assumed && rekey_match_all(m))
        return FSDPCK_OK;
    if (shapes == REKEY_SHAPES_PROJECTED || (shapes == REKEY_SHAPES_UNKNOWN && !assumed))
        return rekey_fail_foreign(m, key, err);
    const uint64_t work_nbytes = numbers * sizeof(uint32_t);
    m->taken = budget_alloc(owner, m->candidates.count, err);
    m->fixed = budget_alloc(owner, numbers, err);
    m->low = budget_alloc(owner, work_nbytes, err);
    m->high = budget_alloc(owner, work_nbytes, err);
    fsdpck_status st = FSDPCK_LIMIT;
    if (m->taken != NULL && m->fixed != NULL && m->low != NULL && m->high != NULL)
        st = assumed ? rekey_match_order(m, err) : rekey_match_unique(m, err);
    budget_free(owner, m->taken, m->candidates.count);
    budget_free(owner, m->fixed, numbers);
    budget_free(owner, m->low, work_nbytes);
    budget_free(owner, m->high, work_nbytes);
    return st;
}

/* --- by recorded names --- */

static uint32_t known_param(const rekey *r, const char *text, size_t nbytes)
{
    const uint32_t id = strtab_find(&r->known, text, nbytes);
    return id == STRTAB_NONE ? REKEY_NONE : *VEC_AT(&r->known_at, const uint32_t, id);
}

/* Replaces a name of `param_names`, which must not be another parameter's. */
static fsdpck_status take_described(rekey *r, rekey_optimizer *o, uint32_t position,
                                    const char *text, size_t nbytes, fsdpck_error *err)
{
    rekey_position *p = REKEY_POSITION(o, position);
    const char *given = p->name == REKEY_NONE ? NULL : strtab_text(&r->texts, p->name);
    if (given != NULL) {
        const uint32_t was = known_param(r, given, strtab_nbytes(&r->texts, p->name));
        const uint32_t is = known_param(r, text, nbytes);
        if (was != REKEY_NONE && is != REKEY_NONE && was != is) {
            const fsdpck_status st =
                rekey_fail(r, o, FSDPCK_BADINPUT, FSDPCK_FINDING_MODEL_OPTIM, err,
                           "param_names and the model description name different parameters");
            error_expected(err, "'%s' for number %s, as in param_names", given,
                           strtab_text(&o->labels, position));
            error_found(err, "'%s' in 'optimizers' of the description", text);
            error_next(err, "describe the optimizer that was saved: fsdpck-model(5)");
            return st;
        }
    }
    return strtab_intern(&r->texts, text, nbytes, &p->name, err);
}

static fsdpck_status by_description(rekey *r, rekey_optimizer *o, const optim_list *list,
                                    fsdpck_error *err)
{
    const optim_groups *g = r->order->groups;
    bool alike = list->count == o->groups.count;
    for (uint32_t i = 0; alike && i < list->count; i++)
        alike = optim_groups_at(g, list, i)->count == REKEY_GROUP(o, i)->count;
    if (!alike) {
        const fsdpck_status st =
            rekey_fail(r, o, FSDPCK_BADINPUT, FSDPCK_FINDING_MODEL_OPTIM, err,
                       "param_groups of the optimizer differ from the model description");
        error_expected(err, "%" PRIu32 " group%s", list->count, text_plural(list->count));
        error_found(err, "%zu group%s%s", o->groups.count, text_plural(o->groups.count),
                    list->count == o->groups.count ? ", but of other sizes" : "");
        error_next(err, "describe the saved optimizer and its groups with "
                        "scripts/describe_model.py; or read only the model: --part model "
                        "without --optim-keys and --model");
        return st;
    }
    for (uint32_t i = 0; i < list->count; i++) {
        for (uint32_t k = 0; k < REKEY_GROUP(o, i)->count; k++) {
            size_t nbytes;
            const char *text = optim_groups_member(g, optim_groups_at(g, list, i), k, &nbytes);
            const uint32_t position = *REKEY_MEMBER(o, REKEY_GROUP(o, i)->first + k);
            RETURN_IF(take_described(r, o, position, text, nbytes, err));
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

/* Under a different outer key, where another model may be. */
static bool is_outside(const rekey *r, const char *text, size_t nbytes)
{
    for (uint32_t i = 0; i < r->order->count; i++) {
        const rekey_param *p = &r->order->params[i];
        if (p->outside && p->fqn_nbytes > nbytes + 1 && p->fqn[p->fqn_nbytes - nbytes - 1] == '.' &&
            memcmp(p->fqn + p->fqn_nbytes - nbytes, text, nbytes) == 0)
            return true;
    }
    return false;
}

static fsdpck_status no_such_name(const rekey *r, const rekey_optimizer *o, uint32_t position,
                                  const char *text, fsdpck_error *err)
{
    const fsdpck_status st = rekey_fail(r, o, FSDPCK_BADINPUT, FSDPCK_FINDING_MODEL_OPTIM, err,
                                        "param_names contain a parameter that the model lacks");
    error_found(err, "'%.200s' for number %s", text, strtab_text(&o->labels, position));
    error_next(err, "describe the saved optimizer with scripts/describe_model.py, and give "
                    "--model FILE: 'optimizers' in fsdpck-model(5)");
    return st;
}

/* `param_names` have the form that the optimizer received: from a wrapped model, with its prefixes.
 * described: missing names are allowed. */
static fsdpck_status clean_given(rekey *r, rekey_optimizer *o, bool described, fsdpck_error *err)
{
    text_buf clean = {0};
    fsdpck_status st = FSDPCK_OK;
    for (uint32_t i = 0; st == FSDPCK_OK && i < o->positions.count; i++) {
        rekey_position *p = REKEY_POSITION(o, i);
        uint32_t param;
        st = rekey_clean(r, strtab_text(&r->texts, p->name), strtab_nbytes(&r->texts, p->name),
                         &clean, &param, err);
        if (st == FSDPCK_OK && param == REKEY_NONE && r->has_model && !described &&
            !is_outside(r, clean.text, clean.nbytes))
            st = no_such_name(r, o, i, strtab_text(&r->texts, p->name), err);
        if (st == FSDPCK_OK)
            st = strtab_intern(&r->texts, clean.text, clean.nbytes, &p->name, err);
    }
    text_release(&clean);
    return st;
}

/* Recorded names must refer to parameters with the shape of their state. */
static fsdpck_status check_shapes(rekey *r, rekey_optimizer *o, fsdpck_error *err)
{
    rekey_matching m = {.r = r, .o = o};
    for (uint32_t i = 0; i < o->positions.count; i++) {
        rekey_position *p = REKEY_POSITION(o, i);
        const uint32_t param =
            known_param(r, strtab_text(&r->texts, p->name), strtab_nbytes(&r->texts, p->name));
        if (param == REKEY_NONE || rekey_may_be(&m, i, &r->order->params[param]))
            continue;
        const fsdpck_status st =
            rekey_fail(r, o, FSDPCK_BADINPUT, FSDPCK_FINDING_MODEL_OPTIM, err,
                       "state of number %s differs in shape from '%s'", strtab_text(&o->labels, i),
                       strtab_text(&r->texts, p->name));
        text_buf shape = {.limit_bytes = 200};
        rekey_print_shape(r->order->params[param].ndim, r->order->params[param].shape, &shape);
        if (shape.text != NULL)
            error_expected(err, "shape %s", shape.text);
        text_release(&shape);
        error_next(err, "describe the model and the optimizer that were saved: fsdpck-model(5)");
        return st;
    }
    return FSDPCK_OK;
}

static fsdpck_status fail_nameless(rekey *r, rekey_optimizer *o, uint32_t position,
                                   fsdpck_error *err)
{
    const rekey_param *param = &r->order->params[REKEY_POSITION(o, position)->param];
    const fsdpck_status st =
        rekey_fail(r, o, FSDPCK_BADINPUT, FSDPCK_FINDING_MODEL_NEEDED, err,
                   "optimizer state keyed by number belongs to a tensor inside an object");
    error_found(err, "'%.200s', inside an object, for number %s", param->fqn,
                strtab_text(&o->labels, position));
    error_next(err, "describe the model and its optimizer with scripts/describe_model.py, and "
                    "give --model FILE: fsdpck-model(5)");
    return st;
}

static fsdpck_status match(rekey *r, uint32_t owner, bool tentative, rekey_shapes shapes,
                           const char *key, fsdpck_error *err)
{
    rekey_optimizer *o = REKEY_OPTIMIZER(r, owner);
    const optim_list *list = rekey_described(r, o);
    const bool named = all_named(o);
    if (named)
        RETURN_IF(clean_given(r, o, list != NULL, err));
    if (list != NULL)
        RETURN_IF(by_description(r, o, list, err));
    if (named || list != NULL)
        return shapes == REKEY_SHAPES_PROJECTED ? FSDPCK_OK : check_shapes(r, o, err);
    rekey_matching m = {
        .r = r, .o = o, .candidates = VEC_OF(uint32_t, r->cat->owner), .tentative = tentative};
    o->inferred = true;
    /* Of a projection even a shape that one parameter alone has identifies nothing. */
    const bool assume_known = tentative && shapes != REKEY_SHAPES_PROJECTED;
    fsdpck_status st = by_model(&m, assume_known ? REKEY_SHAPES_KNOWN : shapes, key, err);
    vec_release(&m.candidates);
    for (size_t i = 0; st == FSDPCK_OK && i < o->positions.count; i++) {
        rekey_position *p = REKEY_POSITION(o, i);
        if (p->param == REKEY_NONE)
            continue;
        const rekey_param *param = &r->order->params[p->param];
        if (param->nameless)
            return fail_nameless(r, o, (uint32_t)i, err);
        st = strtab_intern(&r->texts, param->fqn, param->fqn_nbytes, &p->name, err);
    }
    return st;
}

fsdpck_status rekey_match(rekey *r, uint32_t owner, bool tentative, fsdpck_error *err)
{
    text_buf key = {0};
    const rekey_shapes shapes = rekey_shapes_of(r, owner, &key);
    fsdpck_status st = text_check(&key, err);
    if (st == FSDPCK_OK)
        st = match(r, owner, tentative, shapes, key.text, err);
    text_release(&key);
    return st;
}
