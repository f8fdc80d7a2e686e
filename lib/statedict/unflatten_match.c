/* Maps an optimizer's numbers to parameters, with use_orig_params.
 *
 * Numbers count the parameters in the order of the module tree. A list of units has the parameters
 * of each unit in that order, and the units in the order of traversal, but not the position of a
 * nested unit among its parent's parameters. The search tries all orders that a tree can have, and
 * the lengths of the ranks' shards select the possible ones: the next nested unit may come before
 * each parameter of the open unit; once open, a unit is completed. */
#include <string.h>

#include "statedict/unflatten_internal.h"

/* More steps than any tree needs if the shards distinguish its parameters. */
#define STEPS_MAX UINT64_C(20000000)

typedef enum step_kind { STEP_PARAM, STEP_OPEN, STEP_CLOSE } step_kind;

typedef struct step {
    uint32_t unit;
    uint8_t kind;
    bool may_open; /* STEP_PARAM: the next unit could have been opened instead */
} step;

typedef struct search {
    flat_match *m;
    uint32_t unit_count;
    uint32_t *parent; /* of each unit; unit_count: of no unit, the frame around all */
    uint32_t *used;   /* completed parameters of each */
    uint32_t *open;   /* units, outermost first */
    uint32_t open_count;
    uint32_t next_unit;
    uint32_t number;
    uint32_t *now; /* of each number its parameter */
    vec trail;     /* step */
} search;

static bool is_inside(const unit_list *l, const unit *u, const unit *outer)
{
    size_t n, k;
    const char *name = unit_name(l, u->prefix, &n), *prefix = unit_name(l, outer->prefix, &k);
    return k == 0 || (n > k && name[k] == '.' && memcmp(name, prefix, k) == 0);
}

static void find_parents(search *s)
{
    const unit_list *l = s->m->units;
    for (uint32_t i = 0; i < s->unit_count; i++) {
        uint32_t p = i == 0 ? s->unit_count : i - 1;
        while (p != s->unit_count && !is_inside(l, unit_at(l, i), unit_at(l, p)))
            p = s->parent[p];
        s->parent[i] = p;
    }
}

static uint32_t top(const search *s)
{
    return s->open_count == 0 ? s->unit_count : s->open[s->open_count - 1];
}

/* Whether parameter k of a unit has the shard lengths of the next number. */
static bool fits(const search *s, uint32_t unit_index, uint32_t k)
{
    const flat_match *m = s->m;
    const unit *u = unit_at(m->units, unit_index);
    if (s->number == m->count)
        return false;
    for (uint64_t i = m->first[s->number]; i < m->first[s->number + 1]; i++) {
        const unit_param_range q = unit_param_range_of(m->units, u, k, m->ranks[i] % u->world_size);
        if (m->nelems[i] != (q.in_shard ? q.end - q.begin : 0))
            return false;
    }
    return true;
}

static bool can_open(const search *s)
{
    return s->next_unit < s->unit_count && s->parent[s->next_unit] == top(s);
}

static bool has_more(const search *s)
{
    return top(s) != s->unit_count && s->used[top(s)] < unit_at(s->m->units, top(s))->nparams;
}

static fsdpck_status push(search *s, step_kind kind, bool may_open, fsdpck_error *err)
{
    step *t = vec_push(&s->trail, err);
    if (t == NULL)
        return FSDPCK_LIMIT;
    *t = (step){.unit = kind == STEP_OPEN ? s->next_unit : top(s),
                .kind = (uint8_t)kind,
                .may_open = may_open};
    if (kind == STEP_PARAM) {
        s->now[s->number++] = unit_at(s->m->units, t->unit)->first_param + s->used[t->unit];
        s->used[t->unit]++;
    } else if (kind == STEP_OPEN) {
        s->open[s->open_count++] = s->next_unit++;
    } else {
        s->open_count--;
    }
    return FSDPCK_OK;
}

/* Returns to the last choice with an untried alternative; false if none is left. */
static bool back(search *s)
{
    while (s->trail.count > 0) {
        const step t = *VEC_AT(&s->trail, const step, s->trail.count - 1);
        s->trail.count--;
        if (t.kind == STEP_PARAM) {
            s->used[t.unit]--;
            s->number--;
            if (t.may_open)
                return true;
        } else if (t.kind == STEP_OPEN) {
            s->open_count--;
            s->next_unit--;
        } else {
            s->open[s->open_count++] = t.unit;
        }
    }
    return false;
}

/* One step ahead, or back if none is possible; *done after all alternatives. */
static fsdpck_status advance(search *s, bool *reopen, bool *done, fsdpck_error *err)
{
    const bool open_only = *reopen;
    *reopen = false;
    if (!open_only && has_more(s) && fits(s, top(s), s->used[top(s)]))
        return push(s, STEP_PARAM, can_open(s), err);
    if (can_open(s))
        return push(s, STEP_OPEN, false, err);
    if (!open_only && top(s) != s->unit_count && !has_more(s))
        return push(s, STEP_CLOSE, false, err);
    *reopen = back(s);
    *done = !*reopen;
    return FSDPCK_OK;
}

static bool complete(const search *s)
{
    return s->open_count == 0 && s->next_unit == s->unit_count && s->number == s->m->count;
}

static fsdpck_status look(search *s, unsigned *solutions, fsdpck_error *err)
{
    bool done = false, reopen = false;
    *solutions = 0;
    for (uint64_t i = 0; !done && *solutions < 2; i++) {
        if (i == STEPS_MAX) {
            *solutions = 2;
            return FSDPCK_OK;
        }
        RETURN_IF(advance(s, &reopen, &done, err));
        if (!complete(s) || done || reopen)
            continue;
        const size_t nbytes = s->m->count * sizeof *s->now;
        if (*solutions == 0)
            memcpy(s->m->found, s->now, nbytes);
        *solutions += *solutions == 0 || memcmp(s->m->found, s->now, nbytes) != 0;
        reopen = back(s);
        done = !reopen;
    }
    return FSDPCK_OK;
}

fsdpck_status flat_match_run(flat_match *m, unsigned *solutions, fsdpck_error *err)
{
    const uint32_t n = unit_count(m->units);
    const uint64_t nbytes = (3 * (uint64_t)n + m->count + 1) * sizeof(uint32_t);
    uint32_t *arrays = budget_alloc(m->owner, nbytes, err);

    *solutions = 0;
    if (arrays == NULL)
        return FSDPCK_LIMIT;
    if (m->units->params.count != m->count) {
        budget_free(m->owner, arrays, nbytes);
        return FSDPCK_OK;
    }
    search s = {.m = m,
                .unit_count = n,
                .parent = arrays,
                .used = arrays + n,
                .open = arrays + 2 * (size_t)n,
                .now = arrays + 3 * (size_t)n,
                .trail = VEC_OF(step, m->owner)};
    find_parents(&s);
    const fsdpck_status st = look(&s, solutions, err);
    vec_release(&s.trail);
    budget_free(m->owner, arrays, nbytes);
    return st;
}
