/* Candidate parameters of a number, by the shapes of its state. */
#include <inttypes.h>
#include <string.h>

#include "base/text.h"
#include "statedict/rekey_internal.h"

typedef struct state_tensor {
    const cat_tensor *tensor;
    const uint64_t *shape;
    uint64_t nelems;
    const char *key;
    size_t key_nbytes;
} state_tensor;

static state_tensor state_at(const rekey_matching *m, const rekey_position *p, uint32_t i)
{
    const catalogue *c = m->r->cat;
    const uint32_t tensor = *VEC_AT(&m->o->states, const uint32_t, p->first_state + i);
    const cat_tensor *t = catalogue_tensor(c, tensor);
    state_tensor s = {.tensor = t,
                      .shape = catalogue_shape(c, tensor),
                      .nelems = catalogue_tensor_nelems(c, tensor)};
    s.key = value_text(&c->pool, value_item(&c->pool, t->path, value_count(&c->pool, t->path) - 1),
                       &s.key_nbytes);
    if (s.key == NULL)
        s.key_nbytes = 0;
    return s;
}

bool rekey_key_is_moment(const char *key, size_t nbytes)
{
    static const char *const keys[] = {
        "exp_avg", "exp_avg_sq",     "max_exp_avg_sq", "momentum_buffer",
        "sum",     "square_avg",     "grad_avg",       "acc_delta",
        "exp_inf", "variance",       "step_size",      "prev",
        "ax",      "max_exp_avg_sqs"};
    return text_is_one_of(key, nbytes, keys, sizeof keys / sizeof *keys);
}

static bool is_moment(const state_tensor *s)
{
    return rekey_key_is_moment(s->key, s->key_nbytes);
}

/* Adafactor's rows and columns, of torch and of transformers. */
static bool is_factor(const state_tensor *s)
{
    static const char *const keys[] = {"row_var", "col_var", "exp_avg_sq_row", "exp_avg_sq_col"};
    return text_is_one_of(s->key, s->key_nbytes, keys, sizeof keys / sizeof *keys);
}

static bool has_shape_of(const state_tensor *s, const rekey_param *p)
{
    return shape_equal(s->shape, s->tensor->ndim, p->shape, p->ndim);
}

/* Some dims reduced to 1, or omitted. */
static bool is_reduced(const state_tensor *s, const rekey_param *p)
{
    const unsigned ndim = s->tensor->ndim;
    unsigned at = 0;
    if (ndim == p->ndim) {
        for (unsigned i = 0; i < ndim; i++)
            if (s->shape[i] != p->shape[i] && s->shape[i] != 1)
                return false;
        return true;
    }
    for (unsigned i = 0; i < p->ndim && at < ndim; i++)
        at += s->shape[at] == p->shape[i];
    return ndim < p->ndim && at == ndim;
}

bool rekey_fits(rekey_matching *m, uint32_t position, const rekey_param *param)
{
    const rekey_position *p = REKEY_POSITION(m->o, position);
    bool equal = false, reduced = true;
    m->steps += 1 + p->nstates;
    for (uint32_t i = 0; i < p->nstates; i++) {
        const state_tensor s = state_at(m, p, i);
        if (s.tensor->ndim == 0)
            continue;
        const bool same = has_shape_of(&s, param);
        if (!same && is_moment(&s))
            return false;
        equal = equal || same;
        reduced = reduced && (same || s.nelems == 1 || is_reduced(&s, param));
    }
    return equal || reduced || m->lenient;
}

bool rekey_may_be(rekey_matching *m, uint32_t position, const rekey_param *param)
{
    const rekey_position *p = REKEY_POSITION(m->o, position);
    bool has_dims = false;
    m->steps += 1 + p->nstates;
    for (uint32_t i = 0; i < p->nstates; i++) {
        const state_tensor s = state_at(m, p, i);
        has_dims = has_dims || s.tensor->ndim > 0;
        if (s.tensor->ndim > 0 && ((is_moment(&s) && !has_shape_of(&s, param)) ||
                                   (is_factor(&s) && !is_reduced(&s, param))))
            return false;
    }
    /* A scalar next to moments may apply to the whole parameter; a lone scalar has the shape of the
     * parameter. */
    for (uint32_t i = 0; !has_dims && i < p->nstates; i++) {
        const state_tensor s = state_at(m, p, i);
        if (is_moment(&s) && param->ndim > 0)
            return false;
    }
    return true;
}

const uint64_t *rekey_shape_of(rekey_matching *m, uint32_t position, unsigned *ndim)
{
    const rekey_position *p = REKEY_POSITION(m->o, position);
    const uint64_t *found = NULL;
    bool has_dims = false;
    *ndim = 0;
    for (uint32_t i = 0; i < p->nstates; i++) {
        const state_tensor s = state_at(m, p, i);
        has_dims = has_dims || s.tensor->ndim > 0;
        if (is_moment(&s) && (found == NULL || *ndim == 0)) {
            found = s.shape;
            *ndim = s.tensor->ndim;
        }
    }
    return *ndim == 0 && has_dims ? NULL : found;
}

void rekey_print_shape(unsigned ndim, const uint64_t *shape, text_buf *out)
{
    text_puts(out, "[");
    for (unsigned d = 0; d < ndim; d++)
        text_printf(out, "%s%" PRIu64, d == 0 ? "" : ", ", shape[d]);
    text_puts(out, "]");
}

/* What the state of a number says of it, where its parameter is not found. */
fsdpck_status rekey_no_match(const rekey_matching *m, uint32_t position, fsdpck_error *err)
{
    const rekey *r = m->r;
    const rekey_position *p = REKEY_POSITION(m->o, position);
    const fsdpck_status st =
        rekey_fail(r, m->o, FSDPCK_BADINPUT, FSDPCK_FINDING_MODEL_OPTIM, err,
                   "optimizer state keyed by number does not match the model's parameters%s",
                   r->order->assumed ? " in order" : "");
    error_expected(err, "one of %zu parameter%s", m->candidates.count,
                   text_plural(m->candidates.count));
    for (uint32_t i = 0; i < p->nstates; i++) {
        const uint32_t tensor = *VEC_AT(&m->o->states, const uint32_t, p->first_state + i);
        const cat_tensor *t = catalogue_tensor(r->cat, tensor);
        text_buf shape = {.limit_bytes = 200};
        rekey_print_shape(t->ndim, catalogue_shape(r->cat, tensor), &shape);
        if (t->ndim > 0)
            error_found(err, "'%s' of shape %s", catalogue_name(r->cat, t->name),
                        shape.text == NULL ? "" : shape.text);
        text_release(&shape);
    }
    error_found(err, "parameter %" PRIu32 " of %zu", position, m->o->positions.count);
    error_next(err, "describe the parameters with --model FILE: fsdpck-model(5)");
    return st;
}
