#include "open/state_shapes.h"

#include <inttypes.h>
#include <string.h>

#include "base/text.h"
#include "model/fqn.h"
#include "model/weight_role.h"
#include "statedict/rekey.h"
#include "statedict/unflatten.h"

/* Of the model's elements that a flattened state has. Shards of two ranks have about a half. */
enum { FLAT_PERCENT = 60 };
/* Moments whose length is compared with those of all tensors. */
enum { LENGTHS_MAX = 1000 };

typedef struct state_name {
    const char *param, *key;
    size_t param_nbytes, key_nbytes;
    bool is_number;
} state_name;

/* The number of 'optimizers.AdamW.state.3', as Composer has it: its number of digits; 0: none. */
static size_t number_at_end(const char *param, size_t nbytes)
{
    size_t begin = nbytes;
    while (begin > 0 && param[begin - 1] >= '0' && param[begin - 1] <= '9')
        begin--;
    return begin == 0 || text_ends_with(param, begin, ".state.") ? nbytes - begin : 0;
}

/* Splits 'optim.state.PARAM.KEY'. */
static bool split(const char *name, size_t nbytes, state_name *s)
{
    static const char word[] = "state.";
    const size_t n = sizeof word - 1;
    size_t at = 0;
    while (at + n < nbytes &&
           !(memcmp(name + at, word, n) == 0 && (at == 0 || name[at - 1] == '.')))
        at++;
    if (at + n >= nbytes)
        return false;
    size_t dot = nbytes;
    while (dot > at + n && name[dot - 1] != '.')
        dot--;
    if (dot <= at + n + 1 || dot == nbytes)
        return false;
    *s = (state_name){.param = name + at + n,
                      .param_nbytes = dot - 1 - at - n,
                      .key = name + dot,
                      .key_nbytes = nbytes - dot};
    const size_t digits = number_at_end(s->param, s->param_nbytes);
    s->is_number = digits > 0;
    if (s->is_number) {
        s->param += s->param_nbytes - digits;
        s->param_nbytes = digits;
    }
    return true;
}

static bool is_float(const cat_tensor *t)
{
    return dtype_can_add(t->dtype) && !(t->flags & (CAT_TENSOR_OF_RANK | CAT_TENSOR_STORAGE));
}

static checkpoint_part part_of(const fsdpck_checkpoint *c, size_t tensor)
{
    return tensor < c->parts.tensor_count ? (checkpoint_part)c->parts.tensor_part[tensor]
                                          : PART_OTHER;
}

static bool state_at(const fsdpck_checkpoint *c, size_t tensor, state_name *s)
{
    const uint32_t name = catalogue_tensor(&c->cat, tensor)->name;
    return part_of(c, tensor) == PART_OPTIMIZER &&
           split(catalogue_name(&c->cat, name), catalogue_name_nbytes(&c->cat, name), s);
}

/* --- by number --- */

static bool is_moment(const fsdpck_checkpoint *c, size_t tensor)
{
    state_name s;
    return state_at(c, tensor, &s) && s.is_number && rekey_key_is_moment(s.key, s.key_nbytes) &&
           is_float(catalogue_tensor(&c->cat, tensor));
}

static bool has_size(const fsdpck_checkpoint *c, uint64_t nelems)
{
    for (size_t i = 0; i < catalogue_tensor_count(&c->cat); i++)
        if (catalogue_tensor_nelems(&c->cat, i) == nelems && !is_moment(c, i))
            return true;
    return false;
}

typedef struct model_size {
    double elements; /* of tied tensors once */
    size_t tensors;
    bool has_matrix; /* vectors alone may be flat themselves */
} model_size;

static model_size measure(const fsdpck_checkpoint *c)
{
    model_size m = {0};
    uint32_t alias = CAT_NONE;
    uint64_t before = 0;
    for (size_t i = 0; i < catalogue_tensor_count(&c->cat); i++) {
        const cat_tensor *t = catalogue_tensor(&c->cat, i);
        if (part_of(c, i) != PART_MODEL || !is_float(t))
            continue;
        const uint64_t nelems = catalogue_tensor_nelems(&c->cat, i);
        m.has_matrix = m.has_matrix || t->ndim > 1;
        m.tensors++;
        if (t->alias == CAT_NONE || t->alias != alias || nelems != before)
            m.elements += (double)nelems;
        alias = t->alias;
        before = nelems;
    }
    return m;
}

/* Whether all moments have one dim, and are not a flattened state of the whole model: that has few moments, which together
 * have most elements. */
static bool are_slices(const fsdpck_checkpoint *c, const model_size *whole)
{
    state_name first = {0}, s;
    double sum = 0;
    size_t count = 0;
    for (size_t i = 0; i < catalogue_tensor_count(&c->cat); i++) {
        if (!is_moment(c, i) || !state_at(c, i, &s))
            continue;
        if (catalogue_tensor(&c->cat, i)->ndim > 1)
            return false;
        if (catalogue_tensor(&c->cat, i)->ndim == 0)
            continue;
        if (first.key == NULL)
            first = s;
        if (!text_equal(first.key, first.key_nbytes, s.key, s.key_nbytes))
            continue;
        sum += (double)*catalogue_shape(&c->cat, i);
        count++;
    }
    return count > 0 && (sum * 100 < whole->elements * FLAT_PERCENT || count * 2 > whole->tensors);
}

static void warn_flat(const fsdpck_checkpoint *c)
{
    unsigned tried = 0;
    for (size_t i = 0; i < catalogue_tensor_count(&c->cat) && tried < LENGTHS_MAX; i++) {
        const cat_tensor *t = catalogue_tensor(&c->cat, i);
        if (t->ndim != 1 || !is_moment(c, i) || *catalogue_shape(&c->cat, i) < 2)
            continue;
        tried++;
        if (has_size(c, *catalogue_shape(&c->cat, i)))
            continue;
        log_warn(&c->ctx->log, FSDPCK_FINDING_RANK_FLAT,
                 "save the optimizer with get_optimizer_state_dict or FSDP.optim_state_dict",
                 "optimizer state keyed by number may be the shards of one rank (FSDP1), without "
                 "those of the "
                 "others: '%s' of shape [%" PRIu64
                 "], and no tensor of the model has as many elements",
                 catalogue_name(&c->cat, t->name), *catalogue_shape(&c->cat, i));
        return;
    }
}

/* --- by name --- */

/* Whether a key is one of torch's Adam and SGD. */
static bool is_known(const state_name *s)
{
    static const char *const keys[] = {"step", "exp_avg", "exp_avg_sq", "max_exp_avg_sq",
                                       "momentum_buffer"};
    return text_is_one_of(s->key, s->key_nbytes, keys, sizeof keys / sizeof *keys);
}

/* The tensor of the model with this name; CAT_NONE. */
static uint32_t find_param(const fsdpck_checkpoint *c, const state_name *s)
{
    text_buf name = {.limit_bytes = UINT32_MAX};
    const bool has_key = c->parts.model_depth > 0 || c->parts.has_flat_key;
    if (has_key)
        text_printf(&name, "%s.", c->parts.model_key);
    text_append(&name, s->param, s->param_nbytes);
    const uint32_t found =
        name.failed ? CAT_NONE : catalogue_find((catalogue *)&c->cat, name.text, name.nbytes);
    text_release(&name);
    return found != CAT_NONE && part_of(c, found) == PART_MODEL ? found : CAT_NONE;
}

static bool contradicts(const fsdpck_checkpoint *c, uint32_t state, uint32_t param)
{
    const cat_tensor *t = catalogue_tensor(&c->cat, state);
    const cat_tensor *p = catalogue_tensor(&c->cat, param);
    return is_float(t) && is_float(p) && catalogue_tensor_nelems(&c->cat, state) != 1 &&
           !shape_equal(catalogue_shape(&c->cat, state), t->ndim, catalogue_shape(&c->cat, param),
                        p->ndim);
}

static bool has_other_keys(const fsdpck_checkpoint *c)
{
    state_name s;
    for (size_t i = 0; i < catalogue_tensor_count(&c->cat); i++)
        if (state_at(c, i, &s) && !is_known(&s))
            return true;
    for (uint32_t i = 0; i < catalogue_object_count(&c->cat); i++) {
        const uint32_t name = catalogue_object(&c->cat, i)->name;
        if (c->parts.object_part[i] == PART_OPTIMIZER &&
            split(catalogue_name(&c->cat, name), catalogue_name_nbytes(&c->cat, name), &s) &&
            !is_known(&s))
            return true;
    }
    return false;
}

static void print_shape(const catalogue *c, uint32_t tensor, text_buf *out)
{
    for (unsigned d = 0; d < catalogue_tensor(c, tensor)->ndim; d++)
        text_printf(out, "%s%" PRIu64, d == 0 ? "" : ", ", catalogue_shape(c, tensor)[d]);
}

static void warn_contradiction(const fsdpck_checkpoint *c, uint32_t state, uint32_t param,
                               uint64_t count)
{
    text_buf found = {.limit_bytes = 200}, expected = {.limit_bytes = 200};
    print_shape(&c->cat, state, &found);
    print_shape(&c->cat, param, &expected);
    log_warn(&c->ctx->log, FSDPCK_FINDING_MODEL_OPTIM,
             "save the optimizer with get_optimizer_state_dict, if these are the shards of one "
             "rank; or use "
             "the optimizer of this model",
             "%" PRIu64
             " tensor%s of the optimizer ha%s another shape than the parameter of the same name: "
             "'%s' of shape [%s], expected [%s]",
             count, text_plural(count), count == 1 ? "s" : "ve",
             catalogue_name(&c->cat, catalogue_tensor(&c->cat, state)->name),
             found.text == NULL ? "" : found.text, expected.text == NULL ? "" : expected.text);
    text_release(&found);
    text_release(&expected);
}

static void warn_named(const fsdpck_checkpoint *c)
{
    state_name s;
    uint32_t state = CAT_NONE, param = CAT_NONE;
    uint64_t count = 0;
    for (uint32_t i = 0; i < catalogue_tensor_count(&c->cat); i++) {
        if (!state_at(c, i, &s) || s.is_number || !is_known(&s) ||
            text_is(s.key, s.key_nbytes, "step"))
            continue;
        const uint32_t own = find_param(c, &s);
        if (own == CAT_NONE || !contradicts(c, i, own))
            continue;
        state = count == 0 ? i : state;
        param = count == 0 ? own : param;
        count++;
    }
    if (count > 0 && !has_other_keys(c))
        warn_contradiction(c, state, param, count);
}

/* --- names that the model lacks --- */

/* Parameters with state by name that no tensor of the model has as its name. All names are clean. */
typedef struct lacking_names {
    const fsdpck_checkpoint *c;
    strtab names, model;
    vec states; /* uint32_t: a tensor of its state, by id in `names` */
    vec found;  /* uint8_t: it is a tensor under another key, by id */
    text_buf text;
} lacking_names;

static fsdpck_status set_clean(lacking_names *l, const char *name, size_t nbytes)
{
    l->text.nbytes = 0;
    fqn_clean(name, nbytes, l->c->parts.model_has_ddp, &l->text);
    return text_check(&l->text, NULL);
}

static fsdpck_status list_lacking(lacking_names *l)
{
    state_name s;
    for (uint32_t i = 0; i < catalogue_tensor_count(&l->c->cat); i++) {
        uint32_t id;
        if (!state_at(l->c, i, &s) || s.is_number || !is_known(&s) ||
            text_is(s.key, s.key_nbytes, "step") || find_param(l->c, &s) != CAT_NONE)
            continue;
        RETURN_IF(set_clean(l, s.param, s.param_nbytes));
        RETURN_IF(strtab_intern(&l->names, l->text.text, l->text.nbytes, &id, NULL));
        if (id < l->states.count)
            continue;
        RETURN_IF(vec_add(&l->states, &i, NULL));
        RETURN_IF(vec_add(&l->found, &(uint8_t){0}, NULL));
    }
    return FSDPCK_OK;
}

/* Other networks and averaged weights are under keys of their own. */
static fsdpck_status mark_found(lacking_names *l)
{
    const catalogue *cat = &l->c->cat;
    const size_t outer = checkpoint_parts_outer_nbytes(&l->c->parts, PART_MODEL);
    for (size_t i = 0; i < catalogue_tensor_count(cat); i++) {
        const checkpoint_part part = part_of(l->c, i);
        const uint32_t name = catalogue_tensor(cat, i)->name;
        const size_t nbytes = catalogue_name_nbytes(cat, name);
        const size_t skip = part == PART_MODEL && outer < nbytes ? outer : 0;
        uint32_t id;
        if (part == PART_OPTIMIZER)
            continue;
        RETURN_IF(set_clean(l, catalogue_name(cat, name) + skip, nbytes - skip));
        if (part == PART_MODEL)
            RETURN_IF(strtab_intern(&l->model, l->text.text, l->text.nbytes, &id, NULL));
        for (size_t at = 0; at < l->text.nbytes; at++) {
            const bool is_begin = at == 0 || l->text.text[at - 1] == '.';
            id = is_begin ? strtab_find(&l->names, l->text.text + at, l->text.nbytes - at)
                          : STRTAB_NONE;
            if (id != STRTAB_NONE)
                *VEC_AT(&l->found, uint8_t, id) = 1;
        }
    }
    return FSDPCK_OK;
}

/* Whether the model has the name without one of its parts, or without several at its front: wrappers add some, and PEFT
 * the name of an adapter, which its files lack. What it trains in full has other names there. */
static fsdpck_status has_shorter(lacking_names *l, uint32_t id, bool *has)
{
    const char *name = strtab_text(&l->names, id);
    const size_t nbytes = strtab_nbytes(&l->names, id);
    *has = strstr(name, ".modules_to_save.") != NULL;
    for (size_t at = 0, end; !*has && at < nbytes; at = end + 1) {
        end = at;
        while (end < nbytes && name[end] != '.')
            end++;
        const size_t after = end < nbytes ? end + 1 : nbytes;
        const size_t before = after < nbytes || at == 0 ? at : at - 1;
        l->text.nbytes = 0;
        text_append(&l->text, name, before);
        text_append(&l->text, name + after, nbytes - after);
        RETURN_IF(text_check(&l->text, NULL));
        *has = strtab_find(&l->model, l->text.text, l->text.nbytes) != STRTAB_NONE ||
               strtab_find(&l->model, name + after, nbytes - after) != STRTAB_NONE;
    }
    return FSDPCK_OK;
}

/* Whether a model that was saved with one name of tied weights has the other: an embedding without state. */
static fsdpck_status is_tied(lacking_names *l, uint32_t id, bool *tied)
{
    const catalogue *cat = &l->c->cat;
    const uint32_t state = *VEC_AT(&l->states, const uint32_t, id);
    const char *written = catalogue_name(cat, catalogue_tensor(cat, state)->name);
    const size_t outer = checkpoint_parts_outer_nbytes(&l->c->parts, PART_MODEL);
    state_name s;
    *tied = false;
    if (weight_role_of(strtab_text(&l->names, id)) != WEIGHT_TABLE || !state_at(l->c, state, &s))
        return FSDPCK_OK;
    for (uint32_t i = 0; !*tied && i < catalogue_tensor_count(cat); i++) {
        const char *name = catalogue_name(cat, catalogue_tensor(cat, i)->name);
        if (part_of(l->c, i) != PART_MODEL || strlen(name) <= outer ||
            weight_role_of(name) != WEIGHT_TABLE || contradicts(l->c, state, i))
            continue;
        l->text.nbytes = 0;
        text_append(&l->text, written, (size_t)(s.param - written));
        text_puts(&l->text, name + outer);
        text_append(&l->text, s.key - 1, s.key_nbytes + 1);
        RETURN_IF(text_check(&l->text, NULL));
        *tied = catalogue_find((catalogue *)cat, l->text.text, l->text.nbytes) == CAT_NONE;
    }
    return FSDPCK_OK;
}

static fsdpck_status warn_those(lacking_names *l)
{
    const catalogue *cat = &l->c->cat;
    uint32_t first = 0;
    uint64_t count = 0;
    for (uint32_t i = 0; i < strtab_count(&l->names); i++) {
        bool has = *VEC_AT(&l->found, uint8_t, i) != 0;
        if (!has)
            RETURN_IF(has_shorter(l, i, &has));
        if (!has)
            RETURN_IF(is_tied(l, i, &has));
        first = count == 0 ? i : first;
        count += !has;
    }
    if (count > 0)
        log_warn(
            &l->c->ctx->log, FSDPCK_FINDING_MODEL_OPTIM,
            "look for weights that are missing from the model, or use the optimizer of this model",
            "%" PRIu64
            " parameter%s of the optimizer %s no tensor in the model, first that of '%s'",
            count, text_plural(count), count == 1 ? "has" : "have",
            catalogue_name(
                cat, catalogue_tensor(cat, *VEC_AT(&l->states, const uint32_t, first))->name));
    return FSDPCK_OK;
}

static void warn_lacking(const fsdpck_checkpoint *c)
{
    lacking_names l = {.c = c,
                       .states = VEC_OF(uint32_t, c->cat.owner),
                       .found = VEC_OF(uint8_t, c->cat.owner),
                       .text = {.limit_bytes = UINT32_MAX}};
    strtab_init(&l.names, c->cat.owner);
    strtab_init(&l.model, c->cat.owner);
    fsdpck_status st = list_lacking(&l);
    if (st == FSDPCK_OK && strtab_count(&l.names) > 0)
        st = mark_found(&l);
    if (st == FSDPCK_OK && strtab_count(&l.names) > 0)
        (void)warn_those(&l);
    VEC_RELEASE_ALL(&l.states, &l.found);
    strtab_release(&l.names);
    strtab_release(&l.model);
    text_release(&l.text);
}

void state_shapes_warn(const fsdpck_checkpoint *c)
{
    const model_size whole = measure(c);
    /* Files of ranks show it themselves. */
    if (c->format != format_reader_of_pattern && whole.has_matrix && are_slices(c, &whole))
        warn_flat(c);
    warn_named(c);
    if (whole.tensors > 0 && flat_params_count(&c->cat, NULL) == 0)
        warn_lacking(c);
}
