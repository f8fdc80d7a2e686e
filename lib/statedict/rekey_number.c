/* Names, and the numbers assigned to them. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "model/fqn.h"
#include "statedict/rekey_internal.h"

/* Longer paths are unchanged. */
#define REKEY_PATH_MAX 64u

static uint32_t find_known(const rekey *r, const text_buf *name)
{
    const uint32_t id = strtab_find(&r->known, name->text, name->nbytes);
    return id == STRTAB_NONE ? REKEY_NONE : *VEC_AT(&r->known_at, const uint32_t, id);
}

/* Removes DDP's `module.` if the model has none. */
fsdpck_status rekey_clean(const rekey *r, const char *text, size_t nbytes, text_buf *clean,
                          uint32_t *param, fsdpck_error *err)
{
    clean->nbytes = 0;
    fqn_clean(text, nbytes, false, clean);
    text_append(clean, "", 0);
    RETURN_IF(text_check(clean, err));
    *param = find_known(r, clean);
    if (*param != REKEY_NONE || !fqn_has_ddp_prefix(text, nbytes))
        return FSDPCK_OK;
    clean->nbytes = 0;
    fqn_clean(text, nbytes, true, clean);
    text_append(clean, "", 0);
    RETURN_IF(text_check(clean, err));
    *param = find_known(r, clean);
    if (*param != REKEY_NONE || r->order->strip_ddp)
        return FSDPCK_OK;
    clean->nbytes = 0;
    fqn_clean(text, nbytes, false, clean);
    return text_check(clean, err);
}

fsdpck_status rekey_names_clean(rekey *r, rekey_optimizer *o, fsdpck_error *err)
{
    text_buf clean = {0};
    fsdpck_status st = FSDPCK_OK;
    for (uint32_t i = 0; st == FSDPCK_OK && i < o->positions.count; i++) {
        rekey_position *p = REKEY_POSITION(o, i);
        st = rekey_clean(r, strtab_text(&o->labels, i), strtab_nbytes(&o->labels, i), &clean,
                         &p->param, err);
        if (st == FSDPCK_OK)
            st = strtab_intern(&r->texts, clean.text, clean.nbytes, &p->name, err);
    }
    text_release(&clean);
    return st;
}

/* The name that a tensor of the model has, with prefixes of wrappers; NULL if it has none. */
static const char *saved_name(const rekey *r, uint32_t known, size_t *nbytes)
{
    const rekey_param *k = known == STRTAB_NONE
                               ? NULL
                               : &r->order->params[*VEC_AT(&r->known_own, const uint32_t, known)];
    if (k == NULL || k->saved == 0)
        return NULL;
    const uint32_t name = catalogue_tensor(r->cat, k->saved - 1)->name;
    *nbytes = catalogue_name_nbytes(r->cat, name) - k->saved_outer_nbytes;
    return catalogue_name(r->cat, name) + k->saved_outer_nbytes;
}

fsdpck_status rekey_names_write(rekey *r, rekey_optimizer *o, fsdpck_error *err)
{
    for (uint32_t i = 0; i < o->positions.count; i++) {
        rekey_position *p = REKEY_POSITION(o, i);
        p->written = p->name;
        if (p->name == REKEY_NONE)
            continue;
        const char *clean = strtab_text(&r->texts, p->name);
        size_t nbytes = strtab_nbytes(&r->texts, p->name);
        const uint32_t known = strtab_find(&r->known, clean, nbytes);
        const char *label = strtab_text(&o->labels, i);
        const size_t label_nbytes = strtab_nbytes(&o->labels, i);
        const bool has_label = o->form != OPTIM_KEYS_ID;
        /* Keys that are clean stay so beside a model with prefixes. */
        if (has_label && text_equal(label, label_nbytes, clean, nbytes))
            continue;
        const char *text = saved_name(r, known, &nbytes);
        if (text == NULL && has_label && known == STRTAB_NONE) {
            text = label;
            nbytes = label_nbytes;
        }
        if (text != NULL)
            RETURN_IF(strtab_intern(&r->texts, text, nbytes, &p->written, err));
    }
    return FSDPCK_OK;
}

/* --- the order within groups --- */

typedef struct ranked {
    uint32_t rank, position;
} ranked;

static int compare_ranked(const void *left, const void *right)
{
    const ranked *a = left, *b = right;
    ORDER_BY(a->rank, b->rank);
    return a->position < b->position ? -1 : a->position > b->position;
}

/* The row of a position; rows are by position. */
static ranked *find_row(ranked *rows, uint32_t count, uint32_t position)
{
    uint32_t low = 0, high = count;
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        if (rows[middle].position < position)
            low = middle + 1;
        else
            high = middle;
    }
    return low < count && rows[low].position == position ? &rows[low] : NULL;
}

/* Rank by `param_names`: an index by text id. */
static fsdpck_status rank_given(const rekey *r, const rekey_optimizer *o, const rekey_group *g,
                                ranked *rows, bool *known)
{
    value list = VALUE_OF_NONE;
    *known = false;
    if (g->names != CAT_NONE)
        list = catalogue_object(r->cat, g->names)->content;
    else if (!value_is_none(g->whole))
        (void)value_dict_find(&r->cat->pool, g->whole, "param_names", &list);
    if (value_kind_of(list) != VALUE_LIST || value_count(&r->cat->pool, list) != g->count)
        return FSDPCK_OK;
    for (uint32_t i = 0; i < g->count; i++)
        rows[i] = (ranked){REKEY_NONE, *REKEY_MEMBER(o, g->first + i)};
    /* As names they are already in that order, or sorted. */
    for (uint32_t i = 0; i < g->count; i++) {
        size_t nbytes = 0;
        const value item = value_item(&r->cat->pool, list, i);
        const char *text = value_text(&r->cat->pool, item, &nbytes);
        if (value_kind_of(item) != VALUE_STR)
            return FSDPCK_OK;
        const uint32_t position = strtab_find(&o->labels, text, nbytes);
        ranked *row = position == STRTAB_NONE ? NULL : find_row(rows, g->count, position);
        if (row == NULL || row->rank != REKEY_NONE)
            return FSDPCK_OK;
        row->rank = i;
    }
    *known = true;
    return FSDPCK_OK;
}

static bool rank_known(const rekey_optimizer *o, const rekey_group *g, ranked *rows)
{
    for (uint32_t i = 0; i < g->count; i++) {
        const uint32_t position = *REKEY_MEMBER(o, g->first + i);
        rows[i] = (ranked){REKEY_POSITION(o, position)->param, position};
        if (rows[i].rank == REKEY_NONE)
            return false;
    }
    return true;
}

/* Members of one list in a description are in its order. */
static bool rank_described(const rekey *r, const rekey_optimizer *o, const rekey_group *g,
                           ranked *rows)
{
    const optim_groups *all = r->order->groups;
    const optim_list *list = rekey_described(r, o);
    const uint32_t index = (uint32_t)(g - REKEY_GROUP(o, 0));
    if (list == NULL || index >= list->count ||
        optim_groups_at(all, list, index)->count != g->count)
        return false;
    for (uint32_t i = 0; i < g->count; i++)
        rows[i] = (ranked){REKEY_NONE, *REKEY_MEMBER(o, g->first + i)};
    const uint32_t low = *REKEY_MEMBER(o, g->first);
    for (uint32_t i = 0; i < g->count; i++) {
        size_t nbytes;
        const char *text = optim_groups_member(all, optim_groups_at(all, list, index), i, &nbytes);
        const uint32_t position = strtab_find(&o->labels, text, nbytes);
        if (position == STRTAB_NONE || position < low || position - low >= g->count ||
            rows[position - low].rank != REKEY_NONE)
            return false;
        rows[position - low].rank = i;
    }
    return true;
}

/* Parameters of several ranks: neither the list nor the model is in the order of one rank's. The
 * first such parameter; REKEY_NONE. */
static uint32_t find_joined(const rekey *r, const rekey_optimizer *o, const rekey_group *g,
                            bool in_model)
{
    uint32_t list = REKEY_NONE, known = REKEY_NONE;
    for (uint32_t i = 0; i < g->count; i++) {
        const uint32_t position = *REKEY_MEMBER(o, g->first + i);
        const rekey_position *p = REKEY_POSITION(o, position);
        const uint32_t tensor =
            p->param == REKEY_NONE ? CAT_NONE : r->order->params[p->param].tensor;
        if (list == REKEY_NONE && p->joined)
            list = position;
        if (known == REKEY_NONE && tensor != CAT_NONE && catalogue_tensor(r->cat, tensor)->joined)
            known = position;
    }
    return in_model && known == REKEY_NONE ? REKEY_NONE : list;
}

static bool group_has_state(const rekey_optimizer *o, const rekey_group *g)
{
    for (uint32_t i = 0; i < g->count; i++) {
        const rekey_position *p = REKEY_POSITION(o, *REKEY_MEMBER(o, g->first + i));
        if (p->nstates > 0 || p->has_objects)
            return true;
    }
    return false;
}

/* `--assume order` does not help: it is about the optimizer, and here the model's order is unknown. */
static fsdpck_status check_joined(rekey *r, const rekey_optimizer *o, const rekey_group *g,
                                  bool in_model, fsdpck_error *err)
{
    const uint32_t position = find_joined(r, o, g, in_model);
    if (position == REKEY_NONE || g->count < 2 || !group_has_state(o, g))
        return FSDPCK_OK;
    const fsdpck_status st = rekey_fail(
        r, o, FSDPCK_BADINPUT, FSDPCK_FINDING_MODEL_NEEDED, err,
        "param_group %" PRIu32
        " has parameters of several ranks, and no rank recorded the order of all of them",
        g->index);
    error_found(err, "'%.100s' on other ranks than the parameters before it",
                strtab_text(&o->labels, position));
    error_next(err, "describe the model and its optimizer with scripts/describe_model.py, and give "
                    "--model FILE");
    return st;
}

/* If the list differs from the order of the model, the optimizer may use either. */
static fsdpck_status check_order(rekey *r, const rekey_optimizer *o, const rekey_group *g,
                                 const ranked *rows, fsdpck_error *err)
{
    uint32_t moved = REKEY_NONE;
    for (uint32_t i = 0; i < g->count; i++) {
        if (moved == REKEY_NONE && i > 0 && rows[i].rank < rows[i - 1].rank)
            moved = i;
    }
    if (r->order->assumed || moved == REKEY_NONE || !group_has_state(o, g))
        return FSDPCK_OK;
    const fsdpck_status st = rekey_fail(
        r, o, FSDPCK_BADINPUT, FSDPCK_FINDING_MODEL_NEEDED, err,
        "param_group %" PRIu32
        " lists names in a different order than the model, and the numbers may follow either order",
        g->index);
    error_found(err, "'%.100s' before '%.100s'", strtab_text(&o->labels, rows[moved - 1].position),
                strtab_text(&o->labels, rows[moved].position));
    error_next(
        err,
        "describe the model and its optimizer with scripts/describe_model.py, and give --model "
        "FILE; or give --assume order if the optimizer received the parameters in the order of "
        "model.parameters()");
    return st;
}

typedef struct order_words {
    uint32_t moved, unknown;
} order_words;

static fsdpck_status order_group(rekey *r, rekey_optimizer *o, const rekey_group *g,
                                 order_words *words, fsdpck_error *err)
{
    budget *owner = r->cat->owner;
    bool known = false;
    ranked *rows = budget_alloc(owner, g->count * sizeof *rows, err);
    if (rows == NULL)
        return FSDPCK_LIMIT;
    fsdpck_status st = rank_given(r, o, g, rows, &known);
    if (!known && o->form == OPTIM_KEYS_NAME)
        known = rank_described(r, o, g, rows);
    if (st == FSDPCK_OK && !known) {
        known = rank_known(o, g, rows);
        st = check_joined(r, o, g, known, err);
        if (known && st == FSDPCK_OK)
            st = check_order(r, o, g, rows, err);
    }
    if (known && g->count > 1)
        qsort(rows, g->count, sizeof *rows, compare_ranked);
    for (uint32_t i = 0; known && i < g->count; i++) {
        uint32_t *member = REKEY_MEMBER(o, g->first + i);
        words->moved += *member != rows[i].position;
        *member = rows[i].position;
    }
    words->unknown += !known && g->count > 1;
    budget_free(owner, rows, g->count * sizeof *rows);
    return st;
}

/* Keeps existing numbers; a list that does not count from 0 through the groups is reported. */
static void keep_numbers(rekey_optimizer *o)
{
    for (uint32_t i = 0; i < o->positions.count; i++)
        REKEY_POSITION(o, i)->number = (uint32_t)strtoul(strtab_text(&o->labels, i), NULL, 10);
}

fsdpck_status rekey_number(rekey *r, rekey_optimizer *o, fsdpck_error *err)
{
    order_words words = {0};
    if (o->form == OPTIM_KEYS_ID) {
        keep_numbers(o);
        return FSDPCK_OK;
    }
    if (r->to == OPTIM_KEYS_ID && !o->settled)
        for (size_t i = 0; i < o->groups.count; i++)
            RETURN_IF(order_group(r, o, REKEY_GROUP(o, i), &words, err));
    for (uint32_t i = 0; i < o->members.count; i++)
        REKEY_POSITION(o, *REKEY_MEMBER(o, i))->number = i;
    if (r->to != OPTIM_KEYS_ID)
        return FSDPCK_OK;
    if (words.unknown > 0)
        log_warn(r->log, FSDPCK_FINDING_OPTIM_ORDER,
                 "give --model FILE, which defines the order of model.parameters()",
                 "optimizer state was numbered in the order in which the checkpoint lists the "
                 "parameter names; torch sometimes sorts these names alphabetically");
    else if (words.moved > 0)
        log_write(r->log, LOG_NOTE,
                  "optimizer state was numbered in the order of the model's parameters, not in the "
                  "order in which the checkpoint lists their names");
    return FSDPCK_OK;
}

/* --- numbers that are texts --- */

/* A path with an int as its element `at`. */
static fsdpck_status number_element(value_pool *pool, size_t at, value *path, fsdpck_error *err)
{
    const size_t count = value_count(pool, *path);
    value elements[REKEY_PATH_MAX];
    size_t nbytes = 0;
    for (size_t i = 0; i < count && i < REKEY_PATH_MAX; i++)
        elements[i] = value_item(pool, *path, i);
    if (at >= count || count > REKEY_PATH_MAX || value_kind_of(elements[at]) != VALUE_STR)
        return FSDPCK_OK;
    char digits[24];
    const char *text = value_text(pool, elements[at], &nbytes);
    if (text == NULL || nbytes >= sizeof digits)
        return FSDPCK_OK;
    memcpy(digits, text, nbytes); /* the pool may move */
    RETURN_IF(value_new_bytes(pool, digits, nbytes, &elements[at], err));
    return value_new_from(pool, VALUE_TUPLE, elements, count, path, err);
}

fsdpck_status rekey_text_numbers(rekey *r, fsdpck_error *err)
{
    if (!value_is_none(r->cat->root)) /* has them unchanged */
        return FSDPCK_OK;
    for (size_t i = 0; i < r->entries.count; i++) {
        const rekey_entry *e = REKEY_ENTRY(r, i);
        const rekey_optimizer *o = REKEY_OPTIMIZER(r, e->owner);
        if (o->flat || o->form != OPTIM_KEYS_ID || e->kind != REKEY_STATE || e->at == REKEY_NONE)
            continue;
        value path = e->is_object ? catalogue_object(r->cat, e->index)->path
                                  : catalogue_tensor(r->cat, e->index)->path;
        RETURN_IF(number_element(&r->cat->pool, o->depth + 1u, &path, err));
        if (e->is_object)
            catalogue_object(r->cat, e->index)->path = path;
        else
            catalogue_tensor(r->cat, e->index)->path = path;
    }
    return FSDPCK_OK;
}

/* --- the lists of the groups --- */

static fsdpck_status append_label(rekey *r, const rekey_optimizer *o, value list, uint32_t position,
                                  fsdpck_error *err)
{
    value_pool *pool = &r->cat->pool;
    const rekey_position *p = REKEY_POSITION(o, position);
    value item;
    if (r->to == OPTIM_KEYS_ID)
        RETURN_IF(value_new_int(pool, p->number, &item, err));
    else
        RETURN_IF(value_new_str(pool, strtab_text(&r->texts, p->written),
                                strtab_nbytes(&r->texts, p->written), &item, err));
    return value_append(pool, list, item, err);
}

fsdpck_status rekey_lists_make(rekey *r, rekey_optimizer *o, fsdpck_error *err)
{
    for (size_t i = 0; i < o->groups.count; i++) {
        rekey_group *g = REKEY_GROUP(o, i);
        RETURN_IF(value_new_list(&r->cat->pool, &g->new_params, err));
        for (uint32_t k = 0; k < g->count; k++)
            RETURN_IF(append_label(r, o, g->new_params, *REKEY_MEMBER(o, g->first + k), err));
    }
    return FSDPCK_OK;
}
