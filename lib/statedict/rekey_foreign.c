/* Optimizers that are not torch's. The shape of their state may differ from that of the parameter,
 * as in low-rank projections, so shapes identify nothing. */
#include <inttypes.h>
#include <string.h>

#include "base/text.h"
#include "statedict/rekey_internal.h"

#define NAMES_SHOWN 3u

static bool is_one_of(const char *text, size_t nbytes, const char *const *words, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (strlen(words[i]) == nbytes && memcmp(words[i], text, nbytes) == 0)
            return true;
    return false;
}

/* Keys of param_groups: of torch 2.15 and its schedulers, of apex, of Adafactor of transformers;
 * and those by which training code describes groups or scales their rates. */
static const char *const known_hypers[] = {"params",
                                           "param_names",
                                           "lr",
                                           "betas",
                                           "eps",
                                           "weight_decay",
                                           "momentum",
                                           "dampening",
                                           "nesterov",
                                           "maximize",
                                           "foreach",
                                           "differentiable",
                                           "fused",
                                           "capturable",
                                           "amsgrad",
                                           "decoupled_weight_decay",
                                           "adjust_lr_fn",
                                           "alpha",
                                           "beta2_decay",
                                           "centered",
                                           "d",
                                           "etas",
                                           "history_size",
                                           "initial_accumulator_value",
                                           "lambd",
                                           "line_search_fn",
                                           "lr_decay",
                                           "max_eval",
                                           "max_iter",
                                           "momentum_decay",
                                           "ns_coefficients",
                                           "ns_steps",
                                           "rho",
                                           "step_sizes",
                                           "t0",
                                           "tolerance_change",
                                           "tolerance_grad",
                                           "initial_lr",
                                           "max_lr",
                                           "min_lr",
                                           "swa_lr",
                                           "base_momentum",
                                           "max_momentum",
                                           "step",
                                           "bias_correction",
                                           "scale_parameter",
                                           "relative_step",
                                           "warmup_init",
                                           "clip_threshold",
                                           "decay_rate",
                                           "beta1",
                                           "name",
                                           "group_name",
                                           "lr_scale",
                                           "lr_mult",
                                           "wd_mult",
                                           "is_expert",
                                           "is_expert_parallel",
                                           "is_decoupled_lr"};

static bool is_known_hyper(const char *text, size_t nbytes)
{
    return is_one_of(text, nbytes, known_hypers, sizeof known_hypers / sizeof *known_hypers);
}

/* Keys of optimizers whose state is a projection of the parameter's. */
static bool is_projection(const char *text, size_t nbytes)
{
    static const char *const words[] = {"rank", "update_proj_gap", "proj_type",   "projector",
                                        "proj", "ortho_matrix",    "proj_matrix", "low_rank"};
    return is_one_of(text, nbytes, words, sizeof words / sizeof *words);
}

/* The text of element `at` of an entry's path; NULL. */
static const char *element(const rekey *r, const rekey_entry *e, size_t at, size_t *nbytes)
{
    const catalogue *c = r->cat;
    const value path =
        e->is_object ? catalogue_object(c, e->index)->path : catalogue_tensor(c, e->index)->path;
    if (at >= value_count(&c->pool, path) ||
        value_kind_of(value_item(&c->pool, path, at)) != VALUE_STR)
        return NULL;
    return value_text(&c->pool, value_item(&c->pool, path, at), nbytes);
}

/* A hyperparameter's key, or that of state. *kind: the shapes that it implies. */
static const char *key_of(const rekey *r, const rekey_optimizer *o, const rekey_entry *e,
                          rekey_shapes *kind, size_t *nbytes)
{
    const char *text = !o->flat && (e->kind == REKEY_HYPER || e->kind == REKEY_STATE)
                           ? element(r, e, o->depth + 2u, nbytes)
                           : NULL;
    *kind = text == NULL                    ? REKEY_SHAPES_KNOWN
            : is_projection(text, *nbytes)  ? REKEY_SHAPES_PROJECTED
            : e->kind == REKEY_STATE        ? REKEY_SHAPES_KNOWN
            : is_known_hyper(text, *nbytes) ? REKEY_SHAPES_KNOWN
                                            : REKEY_SHAPES_UNKNOWN;
    return text;
}

static void note(rekey_shapes *worst, rekey_shapes kind, const char *text, size_t nbytes,
                 text_buf *key)
{
    if (kind <= *worst)
        return;
    *worst = kind;
    key->nbytes = 0;
    text_append(key, text, nbytes);
    text_append(key, "", 0);
}

rekey_shapes rekey_shapes_of(const rekey *r, uint32_t owner, text_buf *key)
{
    const rekey_optimizer *o = REKEY_OPTIMIZER(r, owner);
    const value_pool *pool = &r->cat->pool;
    rekey_shapes worst = REKEY_SHAPES_KNOWN, kind;
    size_t nbytes = 0;
    for (size_t i = 0; i < r->entries.count; i++) {
        const rekey_entry *e = REKEY_ENTRY(r, i);
        if (e->owner != owner)
            continue;
        const char *text = key_of(r, o, e, &kind, &nbytes);
        note(&worst, kind, text, nbytes, key);
    }
    for (size_t g = 0; g < o->groups.count; g++) {
        const value whole = REKEY_GROUP(o, g)->whole;
        for (size_t i = 0; !value_is_none(whole) && i < value_count(pool, whole); i++) {
            const value v = value_key(pool, whole, i);
            const char *text = value_text(pool, v, &nbytes);
            if (value_kind_of(v) != VALUE_STR || is_known_hyper(text, nbytes))
                continue;
            kind = is_projection(text, nbytes) ? REKEY_SHAPES_PROJECTED : REKEY_SHAPES_UNKNOWN;
            note(&worst, kind, text, nbytes, key);
        }
    }
    return worst;
}

fsdpck_status rekey_fail_foreign(const rekey_matching *m, const char *key, fsdpck_error *err)
{
    text_buf names = {.limit_bytes = 600};
    const size_t count = m->candidates.count;
    const fsdpck_status st =
        rekey_fail(m->r, m->o, FSDPCK_BADINPUT, FSDPCK_FINDING_MODEL_NEEDED, err,
                   "optimizer with '%.60s' is not one of torch's: the shapes of its state may "
                   "differ from those of the parameters",
                   key);
    for (uint32_t i = 0; i < count && i < NAMES_SHOWN; i++)
        text_printf(&names, "%s'%.40s'", i > 0 ? ", " : "", rekey_candidate(m, i)->fqn);
    error_expected(err, "names (param_names) of %zu number%s", m->o->positions.count,
                   text_plural(m->o->positions.count));
    error_found(err, "a number can be any of %zu parameter%s: %s%s", count, text_plural(count),
                names.text == NULL ? "" : names.text, count > NAMES_SHOWN ? ", ..." : "");
    error_next(err,
               "describe the model and its optimizer with scripts/describe_model.py, and give "
               "--model FILE%s",
               m->r->order->assumed
                   ? ""
                   : "; or give --assume order if the optimizer received all parameters in the "
                     "order of model.parameters()");
    text_release(&names);
    return st;
}

bool rekey_match_all(rekey_matching *m)
{
    uint32_t filled = 0;
    for (size_t g = 0; g < m->o->groups.count; g++)
        filled += REKEY_GROUP(m->o, g)->count > 0;
    if (filled != 1 || m->o->members.count != m->candidates.count)
        return false;
    for (uint32_t i = 0; i < m->o->members.count; i++)
        REKEY_POSITION(m->o, *REKEY_MEMBER(m->o, i))->param =
            *VEC_AT(&m->candidates, const uint32_t, i);
    return true;
}
