/* Maps numbers to parameters if shapes leave only one assignment. Parameters of one shape form a
 * class. A number that fits only one class with one parameter left takes it, until no number can.
 * The assignment is unique exactly if all numbers get a parameter this way. */
#include <inttypes.h>
#include <string.h>

#include "statedict/rekey_internal.h"

#define NAMES_SHOWN 3u
#define FITS_ANY    (UINT32_MAX - 1)
#define FITS_BARE   (UINT32_MAX - 2)

/* Candidates of one shape. */
typedef struct shape_class {
    uint32_t first; /* candidate; others follow in unique.next */
    uint32_t count, left;
    uint32_t wanted; /* numbers of exactly this shape without a parameter */
} shape_class;

typedef struct unique {
    rekey_matching *m;
    strtab shapes;
    vec classes;    /* shape_class by id in shapes */
    uint32_t *next; /* by candidate: the next one of its class, or REKEY_NONE */
    /* By position: its class; FITS_ANY: other classes may also fit; FITS_BARE: it has no state. */
    uint32_t *class_of;
    uint32_t open;
    bool misleads; /* the shapes contradict the order */
} unique;

#define CLASS(u, i) VEC_AT(&(u)->classes, shape_class, i)

static fsdpck_status add_candidates(unique *u, fsdpck_error *err)
{
    rekey_matching *m = u->m;
    for (uint32_t i = (uint32_t)m->candidates.count; i-- > 0;) {
        const rekey_param *p = rekey_candidate(m, i);
        uint32_t id;
        RETURN_IF(strtab_intern(&u->shapes, (const char *)p->shape, p->ndim * sizeof *p->shape, &id,
                                err));
        if (id == u->classes.count) {
            RETURN_IF(vec_add(&u->classes, &(shape_class){.first = REKEY_NONE}, err));
        }
        shape_class *c = CLASS(u, id);
        u->next[i] = c->first;
        c->first = i;
        c->count++;
        c->left++;
    }
    return FSDPCK_OK;
}

static fsdpck_status class_positions(unique *u, fsdpck_error *err)
{
    rekey_matching *m = u->m;
    for (uint32_t i = 0; i < m->o->positions.count; i++) {
        const rekey_position *p = REKEY_POSITION(m->o, i);
        unsigned ndim = 0;
        const uint64_t *shape = rekey_shape_of(m, i, &ndim);
        u->class_of[i] = p->nstates == 0 && !p->has_objects ? FITS_BARE : FITS_ANY;
        if (shape == NULL)
            continue;
        const uint32_t id = strtab_find(&u->shapes, (const char *)shape, ndim * sizeof *shape);
        if (id == STRTAB_NONE || !rekey_may_be(m, i, rekey_candidate(m, CLASS(u, id)->first)))
            return rekey_no_match(m, i, err);
        u->class_of[i] = id;
        CLASS(u, id)->wanted++;
    }
    for (uint32_t i = 0; i < m->o->positions.count; i++) {
        const uint32_t id = u->class_of[i];
        if (id < FITS_BARE && CLASS(u, id)->wanted > CLASS(u, id)->count)
            return rekey_no_match(m, i, err);
    }
    return FSDPCK_OK;
}

/* Number of candidate parameters, at most two; *id: the class of one of them. */
static uint32_t count_fits(unique *u, uint32_t position, uint32_t *id)
{
    uint32_t fits = 0;
    *id = u->class_of[position];
    if (*id < FITS_BARE)
        return CLASS(u, *id)->left;
    for (uint32_t k = 0; fits < 2 && k < u->classes.count; k++) {
        const shape_class *c = CLASS(u, k);
        if (c->left == 0 || !rekey_may_be(u->m, position, rekey_candidate(u->m, c->first)))
            continue;
        fits += c->left;
        *id = k;
    }
    return fits;
}

static void settle(rekey_matching *m, uint32_t position, uint32_t candidate)
{
    m->fixed[position] = 1;
    m->low[position] = candidate;
    m->taken[candidate] = 1;
}

static fsdpck_status take_single_ones(unique *u, fsdpck_error *err)
{
    rekey_matching *m = u->m;
    const uint32_t count = (uint32_t)m->o->positions.count;
    for (uint32_t before = UINT32_MAX; u->open < before && m->steps <= REKEY_STEPS_MAX;) {
        before = u->open;
        for (uint32_t i = 0; i < count && m->steps <= REKEY_STEPS_MAX; i++) {
            uint32_t id;
            m->steps++;
            if (m->fixed[i] || u->class_of[i] == FITS_BARE)
                continue;
            const uint32_t fits = count_fits(u, i, &id);
            if (fits == 0)
                return rekey_no_match(m, i, err);
            if (fits > 1)
                continue;
            settle(m, i, CLASS(u, id)->first);
            CLASS(u, id)->left = 0;
            u->open--;
        }
    }
    return FSDPCK_OK;
}

/* --- parameters without state --- */

/* Numbers of one group that take all remaining parameters: their order does not matter. */
static fsdpck_status take_bare_ones(unique *u, fsdpck_error *err)
{
    rekey_matching *m = u->m;
    uint32_t bare = 0, left = 0, groups = 0, at = 0;
    for (size_t g = 0; g < m->o->groups.count; g++) {
        const rekey_group *group = REKEY_GROUP(m->o, g);
        const uint32_t before = bare;
        for (uint32_t i = 0; i < group->count; i++)
            bare += u->class_of[*REKEY_MEMBER(m->o, group->first + i)] == FITS_BARE;
        groups += bare > before;
    }
    for (uint32_t i = 0; i < m->candidates.count; i++)
        left += !m->taken[i];
    if (bare == 0 || u->open > bare || groups > 1 || bare < left)
        return FSDPCK_OK;
    for (uint32_t i = 0; i < m->o->members.count; i++) {
        const uint32_t position = *REKEY_MEMBER(m->o, i);
        if (u->class_of[position] != FITS_BARE)
            continue;
        while (at < m->candidates.count && m->taken[at])
            at++;
        if (at == m->candidates.count)
            return rekey_no_match(m, position, err);
        settle(m, position, at);
        u->open--;
    }
    return FSDPCK_OK;
}

/* Numbers without state beside others with state, as many as parameters: then state at another place
 * than its parameter's contradicts the order, and shapes may mislead. */
static void drop_contradictions(unique *u)
{
    rekey_matching *m = u->m;
    uint32_t bare = 0, filled = 0, count = (uint32_t)m->o->members.count;
    bool ordered = true;
    for (size_t g = 0; g < m->o->groups.count; g++)
        filled += REKEY_GROUP(m->o, g)->count > 0;
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t position = *REKEY_MEMBER(m->o, i);
        bare += u->class_of[position] == FITS_BARE;
        ordered = ordered && (u->class_of[position] == FITS_BARE || !m->fixed[position] ||
                              m->low[position] == i);
    }
    if (ordered || bare == 0 || filled != 1 || count != m->candidates.count || m->tentative)
        return;
    for (uint32_t i = 0; i < count; i++) {
        u->open += m->fixed[i];
        m->fixed[i] = 0;
    }
    memset(m->taken, 0, m->candidates.count);
    u->misleads = true;
}

/* --- unresolved numbers --- */

static fsdpck_status ambiguous(unique *u, fsdpck_error *err)
{
    rekey_matching *m = u->m;
    uint32_t position = 0, count = 0;
    text_buf names = {.limit_bytes = 600};
    while (m->fixed[position])
        position++;
    const fsdpck_status st =
        rekey_fail(m->r, m->o, FSDPCK_BADINPUT, FSDPCK_FINDING_MODEL_NEEDED, err,
                   "optimizer state keyed by number does not identify its parameters");
    for (uint32_t i = 0; i < m->candidates.count; i++) {
        const rekey_param *p = rekey_candidate(m, i);
        if (m->taken[i] || (!u->misleads && !rekey_may_be(m, position, p)))
            continue;
        if (count++ < NAMES_SHOWN)
            text_printf(&names, "%s'%.40s'", count > 1 ? ", " : "", p->fqn);
    }
    error_expected(err, "names (param_names), or one parameter of each shape");
    error_found(err,
                "number %s can be any of %" PRIu32 " parameters: %s%s; unresolved numbers: %" PRIu32
                " of %zu",
                strtab_text(&m->o->labels, position), count, names.text == NULL ? "" : names.text,
                count > NAMES_SHOWN ? ", ..." : "", u->open, m->o->positions.count);
    error_next(
        err,
        "describe the model and its optimizer with scripts/describe_model.py, and give --model "
        "FILE; or give --assume order if the optimizer received the parameters in the order of "
        "model.parameters()");
    text_release(&names);
    return st;
}

/* Gives each unresolved number a parameter of its shape, each to one number only. */
static void stand_in(unique *u)
{
    rekey_matching *m = u->m;
    for (uint32_t i = 0; i < m->o->positions.count; i++) {
        const uint32_t id = u->class_of[i];
        if (m->fixed[i])
            continue;
        REKEY_POSITION(m->o, i)->open = true;
        if (id >= FITS_BARE || CLASS(u, id)->first == REKEY_NONE)
            continue;
        const uint32_t candidate = CLASS(u, id)->first;
        CLASS(u, id)->first = u->next[candidate];
        if (!m->taken[candidate])
            settle(m, i, candidate);
    }
}

static fsdpck_status search(unique *u, fsdpck_error *err)
{
    rekey_matching *m = u->m;
    RETURN_IF(add_candidates(u, err));
    RETURN_IF(class_positions(u, err));
    RETURN_IF(take_single_ones(u, err));
    RETURN_IF(take_bare_ones(u, err));
    drop_contradictions(u);
    if (u->open > 0 && !m->tentative)
        return ambiguous(u, err);
    if (u->open > 0)
        stand_in(u);
    for (size_t i = 0; i < m->o->positions.count; i++)
        if (m->fixed[i])
            REKEY_POSITION(m->o, i)->param = *VEC_AT(&m->candidates, const uint32_t, m->low[i]);
    return FSDPCK_OK;
}

fsdpck_status rekey_match_unique(rekey_matching *m, fsdpck_error *err)
{
    budget *owner = m->r->cat->owner;
    const uint64_t next_nbytes = m->candidates.count * sizeof(uint32_t);
    const uint64_t class_nbytes = m->o->positions.count * sizeof(uint32_t);
    unique u = {
        .m = m, .classes = VEC_OF(shape_class, owner), .open = (uint32_t)m->o->positions.count};
    strtab_init(&u.shapes, owner);
    u.next = budget_alloc(owner, next_nbytes, err);
    u.class_of = budget_alloc(owner, class_nbytes, err);
    const fsdpck_status st = u.next == NULL || u.class_of == NULL ? FSDPCK_LIMIT : search(&u, err);
    budget_free(owner, u.next, next_nbytes);
    budget_free(owner, u.class_of, class_nbytes);
    strtab_release(&u.shapes);
    vec_release(&u.classes);
    return st;
}
