/* Optimizers whose numbers refer to the same parameter without recorded names: one of them belongs
 * to a different model. */
#include "statedict/rekey_internal.h"

static uint32_t param_of(const rekey *r, const rekey_optimizer *o, uint32_t position)
{
    const rekey_position *p = REKEY_POSITION(o, position);
    uint32_t id = STRTAB_NONE;
    if (p->param != REKEY_NONE || o->inferred)
        return p->param;
    if (o->form == OPTIM_KEYS_ID && p->name == REKEY_NONE)
        return REKEY_NONE;
    if (o->form == OPTIM_KEYS_ID)
        id = strtab_find(&r->known, strtab_text(&r->texts, p->name),
                         strtab_nbytes(&r->texts, p->name));
    else
        id = strtab_find(&r->known, strtab_text(&o->labels, position),
                         strtab_nbytes(&o->labels, position));
    return id == STRTAB_NONE ? REKEY_NONE : *VEC_AT(&r->known_at, const uint32_t, id);
}

void rekey_mark_unknown(rekey_optimizer *o)
{
    for (size_t i = 0; i < o->positions.count; i++)
        REKEY_POSITION(o, i)->open = true;
}

static fsdpck_status two_files_declare(const rekey *r, const rekey_optimizer *a,
                                       const rekey_optimizer *b, uint32_t param, fsdpck_error *err)
{
    const rekey_param *p = &r->order->params[param];
    const fsdpck_status st = rekey_fail(
        r, a, FSDPCK_BADINPUT, FSDPCK_FINDING_MODEL_NEEDED, err,
        "parameter numbers of two optimizers refer to the same parameter '%.100s'", p->fqn);
    error_expected(err, "each parameter in one optimizer, or names (param_names) in both");
    error_found(err, "'%.100sstate' and '%.100sstate'", strtab_text(&r->texts, b->prefix),
                strtab_text(&r->texts, a->prefix));
    error_next(err, "describe the model and its optimizers with scripts/describe_model.py, and "
                    "give --model FILE: 'optimizers' in fsdpck-model(5)");
    return st;
}

/* claims: per parameter its optimizer plus 1. */
static fsdpck_status claim(rekey *r, uint32_t owner, bool tentative, uint32_t *claims,
                           fsdpck_error *err)
{
    rekey_optimizer *o = REKEY_OPTIMIZER(r, owner);
    for (uint32_t i = 0; i < o->positions.count; i++) {
        const uint32_t param = param_of(r, o, i);
        if (param == REKEY_NONE || REKEY_POSITION(o, i)->open)
            continue;
        const uint32_t before = claims[param];
        claims[param] = before == 0 ? owner + 1 : before;
        if (!o->inferred || before == 0 || before == owner + 1)
            continue;
        rekey_optimizer *other = REKEY_OPTIMIZER(r, before - 1);
        if (!tentative)
            return two_files_declare(r, o, other, param, err);
        rekey_mark_unknown(o);
        if (other->inferred)
            rekey_mark_unknown(other);
    }
    return FSDPCK_OK;
}

fsdpck_status rekey_check_conflicts(rekey *r, bool tentative, fsdpck_error *err)
{
    const uint64_t nbytes = r->order->count * sizeof(uint32_t);
    fsdpck_status st = FSDPCK_OK;
    if (nbytes == 0 || r->optimizers.count < 2)
        return FSDPCK_OK;
    uint32_t *claims = budget_alloc(r->cat->owner, nbytes, err);
    if (claims == NULL)
        return FSDPCK_LIMIT;
    for (unsigned pass = 0; pass < 2; pass++)
        for (uint32_t i = 0; st == FSDPCK_OK && i < r->optimizers.count; i++)
            if (REKEY_OPTIMIZER(r, i)->inferred == (pass == 1))
                st = claim(r, i, tentative, claims, err);
    budget_free(r->cat->owner, claims, nbytes);
    return st;
}
