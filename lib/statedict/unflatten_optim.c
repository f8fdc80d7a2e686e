/* unflatten_optim.c: optimizer state by number: maps numbers to parameters. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "model/fqn.h"
#include "statedict/unflatten_internal.h"

static int compare_pieces(const void *left, const void *right)
{
    const flat_state_tensor *a = left, *b = right;
    ORDER_BY(a->owner, b->owner);
    ORDER_BY(a->number, b->number);
    ORDER_BY(a->key, b->key);
    return a->tensor < b->tensor ? -1 : a->tensor > b->tensor;
}

static void count_numbers(const flat_adapter *v, flat_optimizer *o, uint32_t *groups)
{
    *groups = 0;
    for (uint32_t i = 0; i < catalogue_object_count(v->base); i++) {
        const cat_object *from = catalogue_object(v->base, i);
        if (!flat_is_of_group(v, o, from, "params") ||
            (from->rank != UINT16_MAX && from->rank != 0))
            continue;
        ++*groups;
        for (size_t k = 0; k < value_count(&v->base->pool, from->content); k++) {
            const uint32_t n = flat_number_at(v, from->content, k);
            if (n != CAT_NONE && n >= o->count)
                o->count = n + 1;
        }
    }
    for (size_t i = 0; *groups == 0 && i < v->pieces.count; i++) {
        const flat_state_tensor *p = VEC_AT(&v->pieces, const flat_state_tensor, i);
        if (VEC_AT(&v->optimizers, flat_optimizer, p->owner) == o && p->number < FLAT_NUMBERS_MAX &&
            p->number >= o->count)
            o->count = p->number + 1;
    }
}

static const char next_describe[] =
    "describe the model and its optimizer with scripts/describe_model.py, and give --model FILE; "
    "or "
    "omit the state: --part model, in commands that have this option";

static fsdpck_status refuse(flat_adapter *v, flat_optimizer *o, const char *why, uint32_t number)
{
    o->failed = true;
    if (v->refusal.status != FSDPCK_OK)
        return FSDPCK_OK;
    /* Another order may fit, unless the user confirms this one. */
    const bool asks = o->by_order && !v->options.assume_order;
    FAIL_AS(&v->refusal, FSDPCK_BADINPUT,
            asks ? FSDPCK_FINDING_MODEL_NEEDED : FSDPCK_FINDING_MODEL_OPTIM,
            ("optimizer state keyed by number %s", why),
            (expected, "%zu unit%s and %zu parameter%s of the model", v->units->units.count,
             text_plural(v->units->units.count), v->units->params.count,
             text_plural(v->units->params.count)));
    if (number == CAT_NONE)
        error_found(&v->refusal, "%" PRIu32 " parameter%s in the optimizer", o->count,
                    text_plural(o->count));
    else
        error_found(&v->refusal, "parameter %" PRIu32 " of %" PRIu32, number, o->count);
    error_next(&v->refusal, "%s", next_describe);
    return FSDPCK_OK;
}

static fsdpck_status refuse_groups(flat_adapter *v, flat_optimizer *o)
{
    o->failed = true;
    if (v->refusal.status == FSDPCK_OK)
        FAIL_WITH(&v->refusal, BADINPUT, MODEL_OPTIM,
                  ("optimizer state keyed by number has param_groups that differ from the "
                   "model's 'optimizers'"),
                  (expected, "the same number of groups, and of parameters in each group"),
                  (next, "%s", next_describe));
    return FSDPCK_OK;
}

/* The state is correct, but its parameters are unknown. */
static fsdpck_status ask(flat_adapter *v, flat_optimizer *o, const char *why, const char *found)
{
    o->failed = true;
    if (v->refusal.status != FSDPCK_OK)
        return FSDPCK_OK;
    FAIL(&v->refusal, BADINPUT, MODEL_NEEDED, "optimizer state keyed by number %s", why);
    if (found[0] != '\0')
        error_found(&v->refusal, "%s", found);
    error_next(&v->refusal,
               "give --model FILE, made with scripts/describe_model.py from the model and its "
               "optimizer%s; or omit the state: --part model, in commands that have this option",
               v->options.assume_order ? ""
                                       : "; --assume order suffices if the optimizer received the "
                                         "parameters in the order of model.parameters()");
    return FSDPCK_OK;
}

static bool all_orig(const unit_list *l, bool *mixed)
{
    size_t orig = 0;
    for (uint32_t i = 0; i < unit_count(l); i++)
        orig += unit_at(l, i)->use_orig_params;
    *mixed = orig > 0 && orig < unit_count(l);
    return orig > 0;
}

static uint32_t target_named(const flat_adapter *v, bool orig, const char *text, size_t nbytes)
{
    const unit *u = NULL;
    const unit_param *p = unit_list_find_param(v->units, text, nbytes, &u);
    if (orig && p != NULL)
        return (uint32_t)(p - flat_param(v, 0));
    if (!orig && flat_name_is_flat(text, nbytes)) {
        while (nbytes > 0 && text[nbytes - 1] != '.')
            nbytes--;
        u = unit_list_find(v->units, text, nbytes > 0 ? nbytes - 1 : 0);
        return u == NULL ? CAT_NONE : (uint32_t)(u - unit_at(v->units, 0));
    }
    for (uint32_t i = 0; i < v->options.order_count; i++)
        if (v->options.order[i].target == CAT_NONE &&
            text_equal(v->options.order[i].fqn, v->options.order[i].nbytes, text, nbytes))
            return FLAT_OTHER | i;
    return CAT_NONE;
}

/* `params` of the group that an object of a param_group belongs to. */
static value params_beside(const flat_adapter *v, const flat_optimizer *o, const cat_object *of)
{
    const value_pool *pool = &v->base->pool;
    const value group = value_item(pool, of->path, o->depth + 1u);
    for (uint32_t i = 0; i < catalogue_object_count(v->base); i++) {
        const cat_object *from = catalogue_object(v->base, i);
        if (flat_is_of_group(v, o, from, "params") &&
            value_keys_equal(pool, value_item(pool, from->path, o->depth + 1u), group))
            return from->content;
    }
    return VALUE_OF_NONE;
}

/* torch 2.6 and newer record the names that the optimizer received. *named: each number has one. */
static fsdpck_status take_names(flat_adapter *v, flat_optimizer *o, bool orig, bool *named,
                                fsdpck_error *err)
{
    const value_pool *pool = &v->base->pool;
    uint32_t *targets = VEC_AT(&v->targets, uint32_t, o->targets_at);
    text_buf clean = {0};
    uint32_t count = 0, known = 0;
    for (uint32_t i = 0; i < catalogue_object_count(v->base); i++) {
        const cat_object *from = catalogue_object(v->base, i);
        if (!flat_is_of_group(v, o, from, "param_names") ||
            (from->rank != UINT16_MAX && from->rank != 0))
            continue;
        const value params = params_beside(v, o, from);
        for (size_t k = 0; k < value_count(pool, from->content); k++) {
            size_t nbytes;
            const char *text = value_text(pool, value_item(pool, from->content, k), &nbytes);
            const uint32_t n = flat_number_at(v, params, k);
            if (text == NULL || n >= o->count)
                continue;
            clean.nbytes = 0;
            fqn_clean(text, nbytes, false, &clean);
            if (text_check(&clean, err) != FSDPCK_OK)
                break;
            targets[n] = target_named(v, orig, clean.text, clean.nbytes);
            known += targets[n] != CAT_NONE;
            count++;
        }
    }
    *named = known > 0 && count >= o->count;
    for (uint32_t n = 0; !*named && n < o->count; n++)
        targets[n] = CAT_NONE;
    const fsdpck_status st = text_check(&clean, err);
    text_release(&clean);
    return st;
}

/* Lengths of each number's shards, from one of its states (all are sharded alike). */
static fsdpck_status match_lengths(flat_adapter *v, const flat_optimizer *o, uint32_t *found,
                                   unsigned *solutions, fsdpck_error *err)
{
    const uint32_t owner = (uint32_t)(o - VEC_AT(&v->optimizers, const flat_optimizer, 0));
    vec first = VEC_OF(uint64_t, v->owner), ranks = VEC_OF(uint32_t, v->owner),
        nelems = VEC_OF(uint64_t, v->owner);
    fsdpck_status st = FSDPCK_OK;
    size_t at = 0;
    for (uint32_t n = 0; st == FSDPCK_OK && n <= o->count; n++) {
        uint64_t *begin = vec_push(&first, err);
        if (begin == NULL) {
            st = FSDPCK_LIMIT;
            break;
        }
        *begin = ranks.count;
        uint32_t key = CAT_NONE;
        for (; at < v->pieces.count; at++) {
            const flat_state_tensor *p = VEC_AT(&v->pieces, const flat_state_tensor, at);
            if (p->owner > owner || (p->owner == owner && p->number > n))
                break;
            const cat_tensor *t = catalogue_tensor(v->base, p->tensor);
            if (p->owner < owner || t->ndim == 0 || (key != CAT_NONE && p->key != key))
                continue;
            key = p->key;
            for (uint64_t k = t->first_chunk; k < t->first_chunk + t->nchunks; k++) {
                uint32_t *rank = vec_push(&ranks, err);
                uint64_t *length = vec_push(&nelems, err);
                if (rank == NULL || length == NULL) {
                    st = FSDPCK_LIMIT;
                    break;
                }
                *rank = p->rank != CAT_NONE ? p->rank : catalogue_chunk(v->base, k)->rank;
                *length = catalogue_tensor_nelems(v->base, p->tensor);
            }
        }
    }
    flat_match m = {.units = v->units,
                    .count = o->count,
                    .first = first.items,
                    .ranks = ranks.items,
                    .nelems = nelems.items,
                    .found = found,
                    .owner = v->owner};
    if (st == FSDPCK_OK)
        st = flat_match_run(&m, solutions, err);
    VEC_RELEASE_ALL(&first, &ranks, &nelems);
    return st;
}

/* The order of the tree, if the description has it: all parameters or only the trained ones. */
static bool take_order(flat_adapter *v, const flat_optimizer *o, uint32_t *targets)
{
    const flat_adapter_options *opt = &v->options;
    uint32_t trained = 0, n = 0;
    for (uint32_t i = 0; i < opt->order_count; i++)
        trained += opt->order[i].requires_grad;
    const bool all = o->count == opt->order_count;
    if (opt->order_count == 0 || (!all && o->count != trained))
        return false;
    for (uint32_t i = 0; i < opt->order_count; i++) {
        if (!all && !opt->order[i].requires_grad)
            continue;
        targets[n++] = opt->order[i].target != CAT_NONE ? opt->order[i].target : FLAT_OTHER | i;
    }
    return true;
}

/* The description's list of groups; *taken is false if it has none, or names a parameter that the
 * model lacks. False: the optimizer has other groups. */
static bool take_groups(flat_adapter *v, const flat_optimizer *o, bool orig, bool *taken)
{
    const optim_groups *g = v->options.groups;
    const optim_list *list = g == NULL ? NULL
                                       : optim_groups_find(g, strtab_text(&v->texts, o->prefix),
                                                           strtab_nbytes(&v->texts, o->prefix),
                                                           v->optimizers.count == 1);
    uint32_t *targets = VEC_AT(&v->targets, uint32_t, o->targets_at);
    uint32_t known = 0, groups = 0;
    *taken = false;
    for (uint32_t i = 0; list != NULL && i < catalogue_object_count(v->base); i++) {
        const cat_object *from = catalogue_object(v->base, i);
        uint64_t at;
        if (!flat_is_of_group(v, o, from, "params") ||
            !value_as_u64(&v->base->pool, value_item(&v->base->pool, from->path, o->depth + 1u),
                          &at))
            continue;
        const optim_group *group = at < list->count ? optim_groups_at(g, list, (uint32_t)at) : NULL;
        if (group == NULL || value_count(&v->base->pool, from->content) != group->count)
            return false;
        groups = groups > at ? groups : (uint32_t)at + 1;
        for (uint32_t k = 0; k < group->count; k++) {
            size_t nbytes;
            const char *text = optim_groups_member(g, group, k, &nbytes);
            const uint32_t n = flat_number_at(v, from->content, k);
            if (n >= o->count)
                return true;
            targets[n] = target_named(v, orig, text, nbytes);
            if (targets[n] == CAT_NONE)
                return true;
            known++;
        }
    }
    *taken = known > 0;
    return groups == 0 || groups == list->count;
}

/* The description may list the groups too. */
static fsdpck_status compare_with_groups(flat_adapter *v, flat_optimizer *o, bool orig,
                                         fsdpck_error *err)
{
    const size_t named_at = o->targets_at;
    bool taken;
    o->targets_at = v->targets.count;
    uint32_t *listed = vec_push_n(&v->targets, o->count, err);
    if (listed == NULL && o->count > 0)
        return FSDPCK_LIMIT;
    for (uint32_t n = 0; n < o->count; n++)
        listed[n] = CAT_NONE;
    const bool same = take_groups(v, o, orig, &taken);
    o->targets_at = named_at;
    if (!same)
        return refuse_groups(v, o);
    const uint32_t *named = VEC_AT(&v->targets, const uint32_t, named_at);
    for (uint32_t n = 0; taken && n < o->count; n++)
        if (listed[n] != CAT_NONE && named[n] != CAT_NONE && listed[n] != named[n])
            return refuse(v, o, "has param_names that differ from the model's 'optimizers'", n);
    return FSDPCK_OK;
}

static fsdpck_status find_targets(flat_adapter *v, flat_optimizer *o, bool orig, fsdpck_error *err)
{
    uint32_t groups;
    bool named;
    unsigned solutions = 0;

    count_numbers(v, o, &groups);
    o->targets_at = v->targets.count;
    uint32_t *targets = vec_push_n(&v->targets, o->count, err);
    if (targets == NULL && o->count > 0)
        return FSDPCK_LIMIT;
    for (uint32_t i = 0; i < o->count; i++)
        targets[i] = CAT_NONE;
    RETURN_IF(take_names(v, o, orig, &named, err));
    if (named)
        return compare_with_groups(v, o, orig, err);
    if (!take_groups(v, o, orig, &named))
        return refuse_groups(v, o);
    if (named)
        return FSDPCK_OK;
    if (groups > 1)
        return ask(v, o, "is in several param_groups, without names", "");
    o->by_order = true;
    if (take_order(v, o, targets))
        return FSDPCK_OK;
    if (!orig) {
        if (unit_count(v->units) == 0)
            return ask(v, o, "requires 'optimizers' in a model description without FSDP units", "");
        if (o->count != unit_count(v->units))
            return refuse(v, o, "has a number of parameters that differs from the number of units",
                          CAT_NONE);
        for (uint32_t i = 0; i < o->count; i++)
            targets[i] = i;
        return FSDPCK_OK;
    }
    /* Without state all parameters of one group are interchangeable. */
    if (!o->has_state && o->count == v->units->params.count) {
        for (uint32_t i = 0; i < o->count; i++)
            targets[i] = i;
        return FSDPCK_OK;
    }
    RETURN_IF(match_lengths(v, o, targets, &solutions, err));
    if (solutions == 0)
        return refuse(v, o, "has no order of parameters that matches its shards", CAT_NONE);
    if (solutions > 1)
        return ask(v, o, "matches parameters in more than one order", "");
    return FSDPCK_OK;
}

bool flat_piece_is_whole(const flat_adapter *v, uint32_t base_tensor, uint32_t param)
{
    const unit_param *p = flat_param(v, param);
    return !unit_is_sharded(flat_unit_of(v, param)) && p->ndim > 0 &&
           shape_equal(catalogue_shape(v->base, base_tensor),
                       catalogue_tensor(v->base, base_tensor)->ndim, unit_param_shape(v->units, p),
                       p->ndim);
}

/* Checks that each shard has the length of its parameter's shard. */
static fsdpck_status check_piece(flat_adapter *v, const flat_state_tensor *p,
                                 const uint32_t *targets, bool orig, bool *fits)
{
    const cat_tensor *t = catalogue_tensor(v->base, p->tensor);
    const uint32_t target = targets[p->number];
    *fits = true;
    if (target == CAT_NONE || (target & FLAT_OTHER) || t->ndim == 0)
        return FSDPCK_OK;
    if (orig && flat_piece_is_whole(v, p->tensor, target))
        return FSDPCK_OK;
    *fits = t->ndim == 1;
    for (uint64_t k = t->first_chunk; *fits && k < t->first_chunk + t->nchunks; k++) {
        const uint64_t nelems = catalogue_tensor_nelems(v->base, p->tensor);
        const uint32_t rank = p->rank != CAT_NONE ? p->rank : catalogue_chunk(v->base, k)->rank;
        uint64_t begin, end;
        if (!orig) {
            *fits = flat_rank_interval(v, unit_at(v->units, target), p->tensor, k, &begin, &end,
                                       NULL) == FSDPCK_OK;
            continue;
        }
        const unit *u = flat_unit_of(v, target);
        const unit_param_range q =
            unit_param_range_of(v->units, u, target - u->first_param, rank % u->world_size);
        *fits = nelems == (q.in_shard ? q.end - q.begin : 0) &&
                (rank != UINT16_MAX || u->world_size == 1);
    }
    return FSDPCK_OK;
}

/* State of a sharded parameter by number in DCP: torch saves a name once, here the shard of one
 * rank. */
static bool is_of_one_rank(const flat_adapter *v, const flat_state_tensor *p, uint32_t target,
                           bool orig)
{
    const cat_tensor *t = catalogue_tensor(v->base, p->tensor);
    const value number =
        value_item(&v->base->pool, t->path, value_count(&v->base->pool, t->path) - 2);
    if (value_kind_of(number) != VALUE_STR || t->ndim == 0 || target == CAT_NONE ||
        (target & FLAT_OTHER))
        return false;
    const unit *u = orig ? flat_unit_of(v, target) : unit_at(v->units, target);
    return unit_is_sharded(u) &&
           (orig || t->ndim != 1 || catalogue_tensor_nelems(v->base, p->tensor) != u->total);
}

static fsdpck_status refuse_one_rank(flat_adapter *v, flat_optimizer *o, const flat_state_tensor *p,
                                     uint32_t target, bool orig)
{
    const cat_tensor *t = catalogue_tensor(v->base, p->tensor);
    const unit *u = orig ? flat_unit_of(v, target) : unit_at(v->units, target);
    size_t nbytes;
    const char *name =
        unit_name(v->units, flat_param(v, orig ? target : u->first_param)->fqn, &nbytes);
    o->failed = true;
    if (v->refusal.status != FSDPCK_OK)
        return FSDPCK_OK;
    FAIL(&v->refusal, BADINPUT, MODEL_OPTIM,
         "optimizer state keyed by number has the shard of one rank only; torch omitted those of "
         "the other ranks as replicas");
    error_tensor(&v->refusal, catalogue_name(v->base, t->name));
    error_expected(&v->refusal, "state of the flat parameter of '%.100s': [%" PRIu64 "]", name,
                   u->total);
    error_found(&v->refusal, "%" PRIu64 " element%s", catalogue_tensor_nelems(v->base, p->tensor),
                text_plural(catalogue_tensor_nelems(v->base, p->tensor)));
    error_next(&v->refusal,
               "omit the state: --part model, in commands that have this option; save it with "
               "FSDP.optim_state_dict");
    return FSDPCK_OK;
}

static fsdpck_status check_pieces(flat_adapter *v, uint32_t owner, bool orig)
{
    flat_optimizer *o = VEC_AT(&v->optimizers, flat_optimizer, owner);
    const uint32_t *targets = VEC_AT(&v->targets, const uint32_t, o->targets_at);
    for (size_t i = 0; !o->failed && i < v->pieces.count; i++) {
        const flat_state_tensor *p = VEC_AT(&v->pieces, const flat_state_tensor, i);
        bool fits = false;
        if (p->owner != owner)
            continue;
        if (p->number < o->count && is_of_one_rank(v, p, targets[p->number], orig))
            return refuse_one_rank(v, o, p, targets[p->number], orig);
        if (p->number < o->count)
            RETURN_IF(check_piece(v, p, targets, orig, &fits));
        const flat_state_tensor *q = i > 0 ? p - 1 : p;
        if (q->owner == owner && q->number == p->number && q->key == p->key)
            fits = fits && (catalogue_tensor(v->base, q->tensor)->ndim == 0) ==
                               (catalogue_tensor(v->base, p->tensor)->ndim == 0);
        if (!fits)
            return refuse(v, o, "differs in length from its parameter's shards", p->number);
    }
    return FSDPCK_OK;
}

static fsdpck_status check_only_way(flat_adapter *v, uint32_t owner, bool orig, fsdpck_error *err)
{
    text_buf why = {0};
    fsdpck_status st = flat_find_ambiguity(v, owner, orig, &why, err);
    if (st == FSDPCK_OK && why.nbytes > 0)
        st = ask(v, VEC_AT(&v->optimizers, flat_optimizer, owner),
                 "does not identify its parameters", why.text);
    text_release(&why);
    return st;
}

fsdpck_status flat_optim_find(flat_adapter *v, fsdpck_error *err)
{
    bool mixed;
    const bool orig = all_orig(v->units, &mixed);

    v->orig = orig;
    if (v->pieces.count > 1)
        qsort(v->pieces.items, v->pieces.count, sizeof(flat_state_tensor), compare_pieces);
    for (uint32_t i = 0; i < v->optimizers.count; i++) {
        flat_optimizer *o = VEC_AT(&v->optimizers, flat_optimizer, i);
        if (mixed)
            RETURN_IF(refuse(v, o, "mixes units with and without use_orig_params", CAT_NONE));
        else
            RETURN_IF(find_targets(v, o, orig, err));
        if (!o->failed)
            RETURN_IF(check_pieces(v, i, orig));
        if (!o->failed && o->by_order && !v->options.assume_order)
            RETURN_IF(check_only_way(v, i, orig, err));
    }
    return FSDPCK_OK;
}
