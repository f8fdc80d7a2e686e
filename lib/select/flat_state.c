/* Optimizer state of flat parameters: maps each tensor to a parameter and a state key. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "model/fqn.h"
#include "select/select_internal.h"

/* One state of one unit without use_orig_params: all of its parameters have it, in one dtype. */
typedef struct unit_state {
    uint32_t unit;
    uint32_t count; /* parameters that have it */
    uint32_t pick;  /* the first */
} unit_state;

typedef struct find_states {
    select_state *a;
    optim_state_name name;
    text_buf outer; /* the prefix of 'state': one optimizer */
    bool has_outer;
    strtab seen;  /* "PARAMETER.STATE", "uUNIT.STATE" */
    vec of_units; /* unit_state, by number of the latter among themselves */
    strtab unit_states;
} find_states;

/* --- names --- */

static bool element_is_state(const value_pool *pool, value path, size_t i)
{
    return value_is_str(pool, value_item(pool, path, i), "state");
}

/* Flattened, one element is 'state.FQN.exp_avg'. */
static optim_state_kind read_flattened(const char *text, size_t nbytes, bool has_ddp,
                                       optim_state_name *n)
{
    size_t end = nbytes;
    while (end > 6 && text[end - 1] != '.')
        end--;
    if (end <= 7 || end == nbytes)
        return OPTIM_STATE_UNKNOWN;
    fqn_clean(text + 6, end - 7, has_ddp, &n->fqn);
    text_append(&n->key, text + end, nbytes - end);
    return OPTIM_STATE_NAMED;
}

optim_state_kind optim_state_parse(const value_pool *pool, value path, bool has_ddp,
                                   optim_state_name *n)
{
    const size_t count = value_count(pool, path);
    n->fqn.nbytes = n->key.nbytes = 0;
    for (size_t i = 0; i < count; i++) {
        size_t nbytes, key_nbytes;
        const char *text = value_text(pool, value_item(pool, path, i), &nbytes);
        n->depth = i;
        if (text != NULL && nbytes > 6 && memcmp(text, "state.", 6) == 0)
            return i + 1 == count ? read_flattened(text, nbytes, has_ddp, n) : OPTIM_STATE_UNKNOWN;
        if (!element_is_state(pool, path, i))
            continue;
        if (i + 3 != count)
            return OPTIM_STATE_UNKNOWN;
        const value owner = value_item(pool, path, i + 1);
        const char *key = value_text(pool, value_item(pool, path, i + 2), &key_nbytes);
        text = value_text(pool, owner, &nbytes);
        if (value_kind_of(owner) != VALUE_STR)
            return OPTIM_STATE_NUMBERED;
        if (key == NULL)
            return OPTIM_STATE_UNKNOWN;
        fqn_clean(text, nbytes, has_ddp, &n->fqn);
        text_append(&n->key, key, key_nbytes);
        return OPTIM_STATE_NAMED;
    }
    return OPTIM_STATE_NONE;
}

void optim_state_name_release(optim_state_name *n)
{
    text_release(&n->fqn);
    text_release(&n->key);
}

fsdpck_status optim_state_find_param(select_state *a, text_buf *fqn, uint32_t *param,
                                     fsdpck_error *err)
{
    const unit_list *l = a->to->units;
    bool changed;
    text_append(fqn, "", 0);
    RETURN_IF(text_check(fqn, err));
    RETURN_IF(select_rules_rename(&a->rules, fqn, NULL, &changed, err));
    const unit_param *p = unit_list_find_param(l, fqn->text, fqn->nbytes, NULL);
    *param = p == NULL ? CAT_NONE : (uint32_t)(p - (const unit_param *)l->params.items);
    return FSDPCK_OK;
}

fsdpck_status optim_state_refuse(fsdpck_status status, const char *what, const char *name,
                                 fsdpck_error *err)
{
    return FAIL_AS(err, status, FSDPCK_FINDING_MODEL_OPTIM, ("%s", what), (tensor, name),
                   (next, "select only the model: --part model"));
}

fsdpck_status optim_state_refuse_numbers(const char *name, fsdpck_error *err)
{
    return FAIL_WITH(
        err, BADINPUT, MODEL_NEEDED,
        ("optimizer state is keyed by number, and rank files of FSDP1 require parameter names"),
        (tensor, name),
        (next,
         "give --optim-keys name with --model FILE that lists 'optimizers' "
         "(scripts/describe_model.py), or with --assume order if the optimizer received the "
         "parameters in the order of model.parameters(); or select only the model: --part model"));
}

/* --- states of the source --- */

static const char *source_name(const select_state *a, const select_pick *pick)
{
    return catalogue_name(a->from, catalogue_tensor(a->from, pick->source)->name);
}

/* A flat key can name the state of only one optimizer. */
static fsdpck_status check_outer(find_states *f, const select_pick *pick, fsdpck_error *err)
{
    const select_state *a = f->a;
    const value_pool *pool = &a->from->pool;
    const value path = catalogue_tensor(a->from, pick->source)->path;
    text_buf outer = {0};
    for (size_t i = 0; i < f->name.depth; i++) {
        size_t nbytes = 0;
        const char *text = value_text(pool, value_item(pool, path, i), &nbytes);
        text_append(&outer, text == NULL ? "" : text, nbytes);
        text_puts(&outer, ".");
    }
    fsdpck_status st = text_check(&outer, err);
    if (st == FSDPCK_OK && f->has_outer &&
        (outer.nbytes != f->outer.nbytes ||
         (outer.nbytes > 0 && memcmp(outer.text, f->outer.text, outer.nbytes) != 0)))
        st = optim_state_refuse(FSDPCK_UNSUPPORTED,
                                "rank files of FSDP1 can contain only one optimizer",
                                source_name(a, pick), err);
    if (!f->has_outer && st == FSDPCK_OK) {
        text_append(&f->outer, outer.text == NULL ? "" : outer.text, outer.nbytes);
        f->has_outer = true;
        st = text_check(&f->outer, err);
    }
    text_release(&outer);
    return st;
}

static bool has_shape_of(const select_state *a, const select_pick *pick, const unit_param *p)
{
    const cat_tensor *t = catalogue_tensor(a->from, pick->source);
    return shape_equal(catalogue_shape(a->from, pick->source), t->ndim,
                       unit_param_shape(a->to->units, p), p->ndim);
}

static fsdpck_status note(strtab *seen, char kind, uint32_t what, uint32_t state, uint32_t *id,
                          bool *fresh, fsdpck_error *err)
{
    char text[40];
    const size_t before = strtab_count(seen);
    const int n = snprintf(text, sizeof text, "%c%" PRIu32 ".%" PRIu32, kind, what, state);
    RETURN_IF(strtab_intern(seen, text, (size_t)n, id, err));
    *fresh = *id >= before;
    return FSDPCK_OK;
}

/* A part of a flat parameter's state: the part of this parameter. */
static fsdpck_status count_piece(find_states *f, const select_pick *pick, uint32_t index,
                                 uint32_t unit_index, uint32_t *first_pick, fsdpck_error *err)
{
    uint32_t id;
    bool fresh;
    RETURN_IF(note(&f->unit_states, 'u', unit_index, pick->state, &id, &fresh, err));
    if (fresh) {
        unit_state *s = vec_push(&f->of_units, err);
        if (s == NULL)
            return FSDPCK_LIMIT;
        *s = (unit_state){.unit = unit_index, .pick = index};
    }
    unit_state *s = VEC_AT(&f->of_units, unit_state, id);
    s->count++;
    *first_pick = s->pick;
    const select_pick *first = VEC_AT(&f->a->picks, select_pick, s->pick);
    if (catalogue_tensor(f->a->from, first->source)->dtype !=
        catalogue_tensor(f->a->from, pick->source)->dtype)
        return optim_state_refuse(FSDPCK_UNSUPPORTED,
                                  "state of a flat parameter cannot have two dtypes",
                                  source_name(f->a, pick), err);
    return FSDPCK_OK;
}

/* The bytes of a scalar. *known: it is stored as such. */
static fsdpck_status read_scalar(const select_state *a, uint32_t tensor, uint8_t bytes[16],
                                 bool *known, fsdpck_error *err)
{
    const source *src = a->request->src;
    const cat_tensor *t = catalogue_tensor(a->from, tensor);
    const size_t nbytes = dtype_get((dtype)t->dtype)->itemsize_bytes;
    place where = {0};
    *known = t->nchunks > 0 && nbytes <= 16 &&
             catalogue_chunk(a->from, t->first_chunk)->place != LOCATION_EMPTY;
    if (!*known)
        return FSDPCK_OK;
    RETURN_IF(src->locate(src->ctx, t->first_chunk, &where, err));
    *known = !where.stream && !where.swap && !where.conj && !where.neg && where.add == 0;
    return *known ? src->read_at(src->ctx, where.file, where.offset_bytes, bytes, nbytes, err)
                  : FSDPCK_OK;
}

/* A flat parameter has one scalar for all: they must be equal, as torch requires. */
static fsdpck_status check_scalar(const find_states *f, const select_pick *first,
                                  const select_pick *pick, fsdpck_error *err)
{
    const select_state *a = f->a;
    const size_t nbytes =
        dtype_get((dtype)catalogue_tensor(a->from, pick->source)->dtype)->itemsize_bytes;
    uint8_t bytes[2][16] = {{0}};
    bool known[2];
    RETURN_IF(read_scalar(a, first->source, bytes[0], &known[0], err));
    RETURN_IF(read_scalar(a, pick->source, bytes[1], &known[1], err));
    if (known[0] && known[1] && memcmp(bytes[0], bytes[1], nbytes) == 0)
        return FSDPCK_OK;
    const fsdpck_status st = optim_state_refuse(
        known[0] && known[1] ? FSDPCK_BADINPUT : FSDPCK_UNSUPPORTED,
        known[0] && known[1] ? "parameters of one flat parameter have different optimizer state"
                             : "compressed scalars of one flat parameter cannot be compared",
        source_name(a, pick), err);
    error_expected(err, "the value of '%.200s'", source_name(a, first));
    return st;
}

static fsdpck_status add_owned(find_states *f, select_pick *pick, uint32_t index, uint32_t param,
                               fsdpck_error *err)
{
    select_state *a = f->a;
    const unit_list *l = a->to->units;
    const unit_param *p = VEC_AT(&l->params, const unit_param, param);
    const unit *u = unit_of_param(l, param);
    const cat_tensor *t = catalogue_tensor(a->from, pick->source);
    uint32_t id, first;

    RETURN_IF(note(&f->seen, 'p', param, pick->state, &id, &pick->is_merged, err));
    pick->is_merged =
        !pick->is_merged; /* under another name of the parameter it was there before */
    if (pick->is_merged)
        return FSDPCK_OK;
    if (t->ndim > 0 && !has_shape_of(a, pick, p))
        return optim_state_refuse(FSDPCK_UNSUPPORTED,
                                  "FSDP1 flattens only state with the shape of its parameter",
                                  source_name(a, pick), err);
    const uint32_t unit_index = (uint32_t)(u - unit_at(l, 0));
    if (t->ndim > 0) {
        if (unit_is_sharded(u) || !u->use_orig_params)
            pick->param = param;
        return u->use_orig_params ? FSDPCK_OK
                                  : count_piece(f, pick, index, unit_index, &first, err);
    }
    if (u->use_orig_params) {
        pick->held_by = unit_is_sharded(u) ? param : CAT_NONE;
        return FSDPCK_OK;
    }
    RETURN_IF(count_piece(f, pick, index, unit_index, &first, err));
    pick->is_merged = first != index; /* a flat parameter has one for all */
    return pick->is_merged ? check_scalar(f, VEC_AT(&a->picks, select_pick, first), pick, err)
                           : FSDPCK_OK;
}

static fsdpck_status add_pick(find_states *f, select_pick *pick, uint32_t index, fsdpck_error *err)
{
    select_state *a = f->a;
    const cat_tensor *t = catalogue_tensor(a->from, pick->source);
    uint32_t param, id;
    switch (optim_state_parse(&a->from->pool, t->path, a->parts->model_has_ddp, &f->name)) {
    case OPTIM_STATE_NONE: /* such as a learning rate in a group */
        pick->state = OPTIM_STATE_PLAIN;
        return FSDPCK_OK;
    case OPTIM_STATE_NUMBERED:
        return optim_state_refuse_numbers(source_name(a, pick), err);
    case OPTIM_STATE_UNKNOWN:
        return optim_state_refuse(FSDPCK_UNSUPPORTED, "optimizer state is nested in itself",
                                  source_name(a, pick), err);
    case OPTIM_STATE_NAMED:
        break;
    }
    RETURN_IF(text_check(&f->name.key, err));
    RETURN_IF(check_outer(f, pick, err));
    RETURN_IF(optim_state_find_param(a, &f->name.fqn, &param, err));
    RETURN_IF(strtab_intern(&a->state_keys, f->name.key.text, f->name.key.nbytes, &id, err));
    pick->state = id + 1;
    return param == CAT_NONE ? FSDPCK_OK : add_owned(f, pick, index, param, err);
}

/* Missing state is not filled in: a flat parameter has state for all of its parameters or for
 * none. */
static fsdpck_status check_whole(const find_states *f, fsdpck_error *err)
{
    for (size_t i = 0; i < f->of_units.count; i++) {
        const unit_state *s = VEC_AT(&f->of_units, const unit_state, i);
        if (s->count == unit_at(f->a->to->units, s->unit)->nparams)
            continue;
        const fsdpck_status st = optim_state_refuse(
            FSDPCK_BADINPUT, "state of a flat parameter requires the state of all its parameters",
            source_name(f->a, VEC_AT(&f->a->picks, const select_pick, s->pick)), err);
        error_expected(err, "%" PRIu32 " parameters with state",
                       unit_at(f->a->to->units, s->unit)->nparams);
        error_found(err, "%" PRIu32, s->count);
        return st;
    }
    return FSDPCK_OK;
}

fsdpck_status flat_state_find(select_state *a, fsdpck_error *err)
{
    budget *owner = a->from->owner;
    find_states f = {.a = a, .of_units = VEC_OF(unit_state, owner)};
    fsdpck_status st = FSDPCK_OK;
    strtab_init(&f.seen, owner);
    strtab_init(&f.unit_states, owner);
    for (size_t k = 0; st == FSDPCK_OK && k < a->picks.count; k++) {
        select_pick *pick = VEC_AT(&a->picks, select_pick, k);
        if (a->parts->tensor_part[pick->source] != PART_OPTIMIZER)
            continue;
        if (catalogue_tensor(a->from, pick->source)->flags & CAT_TENSOR_OF_RANK)
            st = optim_state_refuse(FSDPCK_UNSUPPORTED,
                                    "rank-local optimizer state cannot be written keyed by number",
                                    source_name(a, pick), err);
        else
            st = add_pick(&f, pick, (uint32_t)k, err);
    }
    if (st == FSDPCK_OK)
        st = check_whole(&f, err);
    optim_state_name_release(&f.name);
    text_release(&f.outer);
    strtab_release(&f.seen);
    strtab_release(&f.unit_states);
    vec_release(&f.of_units);
    return st;
}
