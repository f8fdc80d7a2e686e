/* Maps numbers to parameters in the order of the model (--assume order); warns of other orders. */
#include <inttypes.h>
#include <string.h>

#include "base/text.h"
#include "statedict/rekey_internal.h"

/* The first assignment in order of the candidates; *failed: the position without one. */
static bool embed(rekey_matching *m, const rekey_group *g, bool backwards, uint32_t *failed)
{
    const uint32_t count = (uint32_t)m->candidates.count;
    uint32_t at = 0; /* candidates used so far, from the side where it begins */
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
            if (at >= count || m->steps > REKEY_STEPS_MAX)
                return false;
            m->steps++;
            const uint32_t candidate = backwards ? count - 1 - at : at;
            if (!m->taken[candidate] && rekey_fits(m, position, rekey_candidate(m, candidate))) {
                *slot = candidate;
                at++;
                break;
            }
        }
    }
    return true;
}

/* Fixes the positions for which the first and the last assignment agree. */
static bool narrow(rekey_matching *m, uint32_t *left, uint32_t *failed)
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

static fsdpck_status ambiguous(const rekey_matching *m, uint32_t left, fsdpck_error *err)
{
    const fsdpck_status st = rekey_fail(
        m->r, m->o, FSDPCK_BADINPUT, FSDPCK_FINDING_MODEL_NEEDED, err,
        "optimizer state keyed by number matches the model's parameters in several ways");
    error_expected(err, "one assignment of %zu number%s to %zu parameter%s", m->o->positions.count,
                   text_plural(m->o->positions.count), m->candidates.count,
                   text_plural(m->candidates.count));
    error_found(err, "shapes and order do not determine %" PRIu32 " of the numbers", left);
    error_next(err, "describe the parameters with --model FILE, and several param_groups with "
                    "'optimizers' in it: fsdpck-model(5)");
    return st;
}

/* Each number needs a parameter of its own, however its groups are ordered. */
static fsdpck_status too_few(const rekey_matching *m, fsdpck_error *err)
{
    const fsdpck_status st = rekey_fail(m->r, m->o, FSDPCK_BADINPUT, FSDPCK_FINDING_MODEL_OPTIM,
                                        err, "optimizer has more parameters than the model");
    error_expected(err, "at most %zu parameter%s", m->candidates.count,
                   text_plural(m->candidates.count));
    error_found(err, "%zu numbers in param_groups", m->o->positions.count);
    error_next(err, "describe the parameters with --model FILE: fsdpck-model(5)");
    return st;
}

fsdpck_status rekey_match_order(rekey_matching *m, fsdpck_error *err)
{
    if (m->o->positions.count > m->candidates.count)
        return too_few(m, err);
    uint32_t left = (uint32_t)m->o->positions.count, failed = 0;
    for (uint32_t before = left + 1; left > 0 && left < before && m->steps <= REKEY_STEPS_MAX;) {
        before = left;
        if (!narrow(m, &left, &failed) && m->steps <= REKEY_STEPS_MAX)
            return rekey_no_match(m, failed, err);
    }
    if (left > 0 && !m->tentative)
        return ambiguous(m, left, err);
    for (size_t i = 0; i < m->o->positions.count; i++) {
        REKEY_POSITION(m->o, i)->open = !m->fixed[i];
        REKEY_POSITION(m->o, i)->param = *VEC_AT(&m->candidates, const uint32_t, m->low[i]);
    }
    return FSDPCK_OK;
}

/* The first position of a group with state that follows neither the model's order nor that of
 * names; REKEY_NONE. */
static uint32_t find_out_of_order(const rekey *r, const rekey_optimizer *o, const rekey_group *g)
{
    uint32_t before = REKEY_NONE, moved = REKEY_NONE;
    bool by_name = true;
    for (uint32_t i = 0; i < g->count; i++) {
        const uint32_t at = *REKEY_MEMBER(o, g->first + i);
        const rekey_position *p = REKEY_POSITION(o, at);
        if (p->nstates == 0 || p->param == REKEY_NONE)
            continue;
        if (before != REKEY_NONE) {
            const rekey_position *q = REKEY_POSITION(o, before);
            by_name = by_name &&
                      strcmp(r->order->params[q->param].fqn, r->order->params[p->param].fqn) <= 0;
            if (moved == REKEY_NONE && p->param < q->param)
                moved = at;
        }
        before = at;
    }
    return by_name ? REKEY_NONE : moved;
}

void rekey_warn_order(const rekey *r, const rekey_optimizer *o)
{
    for (size_t i = 0; i < o->groups.count; i++) {
        const uint32_t at = find_out_of_order(r, o, REKEY_GROUP(o, i));
        if (at == REKEY_NONE)
            continue;
        log_warn(r->log, FSDPCK_FINDING_OPTIM_ORDER,
                 "check that the optimizer had no parameter that the checkpoint lacks, or give "
                 "--model FILE, which lists the parameters of the optimizer",
                 "numbers of optimizer state were assigned to parameters by shape, not in the "
                 "order of the model: number %s is '%.200s'",
                 strtab_text(&o->labels, at), r->order->params[REKEY_POSITION(o, at)->param].fqn);
        return;
    }
}
