/* Parameters and their order in param_groups. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "statedict/rekey_internal.h"

/* --- nested: lists of parameters --- */

static fsdpck_status add_group(rekey_optimizer *o, uint32_t index, uint32_t params, value whole,
                               fsdpck_error *err)
{
    return vec_add(
        &o->groups,
        &(rekey_group){.index = index, .params = params, .names = CAT_NONE, .whole = whole}, err);
}

static int compare_groups(const void *left, const void *right)
{
    const rekey_group *a = left, *b = right;
    ORDER_BY(a->index, b->index);
    return a->params < b->params ? -1 : a->params > b->params;
}

static rekey_group *find_group(rekey_optimizer *o, uint32_t index)
{
    size_t low = 0, high = o->groups.count;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (REKEY_GROUP(o, middle)->index < index)
            low = middle + 1;
        else
            high = middle;
    }
    return low < o->groups.count && REKEY_GROUP(o, low)->index == index ? REKEY_GROUP(o, low)
                                                                        : NULL;
}

/* Ranks' lists that differ are one object per rank. */
static fsdpck_status check_groups(const rekey *r, rekey_optimizer *o, fsdpck_error *err)
{
    if (o->groups.count > 1)
        qsort(o->groups.items, o->groups.count, sizeof(rekey_group), compare_groups);
    for (size_t i = 1; i < o->groups.count; i++)
        if (REKEY_GROUP(o, i)->index == REKEY_GROUP(o, i - 1)->index)
            return rekey_fail(r, o, FSDPCK_UNSUPPORTED, FSDPCK_FINDING_MODEL_OPTIM, err,
                              "param_group %" PRIu32
                              " lists different parameters on different ranks",
                              REKEY_GROUP(o, i)->index);
    return FSDPCK_OK;
}

static fsdpck_status whole_groups(rekey *r, rekey_optimizer *o, const cat_object *from,
                                  fsdpck_error *err)
{
    value_pool *pool = &r->cat->pool;
    if (value_kind_of(from->content) != VALUE_LIST || o->groups.count > 0)
        return rekey_fail(r, o, FSDPCK_BADINPUT, FSDPCK_FINDING_MODEL_OPTIM, err,
                          "param_groups is not a list");
    for (size_t i = 0; i < value_count(pool, from->content); i++) {
        value dict;
        if (!value_as_dict(pool, value_item(pool, from->content, i), &dict))
            return rekey_fail(r, o, FSDPCK_BADINPUT, FSDPCK_FINDING_MODEL_OPTIM, err,
                              "param_group %zu is not a dict", i);
        RETURN_IF(add_group(o, (uint32_t)i, CAT_NONE, dict, err));
    }
    return FSDPCK_OK;
}

static value list_of(const rekey *r, const rekey_group *g, bool names)
{
    value list = VALUE_OF_NONE;
    const uint32_t object = names ? g->names : g->params;
    if (object != CAT_NONE)
        return catalogue_object(r->cat, object)->content;
    if (!value_is_none(g->whole))
        (void)value_dict_find(&r->cat->pool, g->whole, names ? "param_names" : "params", &list);
    return list;
}

static fsdpck_status add_position(rekey *r, rekey_optimizer *o, const char *text, size_t nbytes,
                                  fsdpck_error *err)
{
    uint32_t id;
    if (o->positions.count == REKEY_POSITIONS_MAX)
        return rekey_fail(r, o, FSDPCK_LIMIT, FSDPCK_FINDING_LIMIT_COUNT, err,
                          "optimizer has more than %u parameters", REKEY_POSITIONS_MAX);
    RETURN_IF(strtab_intern(&o->labels, text, nbytes, &id, err));
    if (id < o->positions.count)
        return rekey_fail(r, o, FSDPCK_BADINPUT, FSDPCK_FINDING_MODEL_OPTIM, err,
                          "parameter '%s' is in the param_groups twice",
                          strtab_text(&o->labels, id));
    rekey_position *p = vec_push(&o->positions, err);
    uint32_t *member = vec_push(&o->members, err);
    if (p == NULL || member == NULL)
        return FSDPCK_LIMIT;
    *p = (rekey_position){.name = REKEY_NONE, .written = REKEY_NONE, .param = REKEY_NONE};
    *member = id;
    return FSDPCK_OK;
}

static fsdpck_status read_params(rekey *r, rekey_optimizer *o, rekey_group *g, bool *ids,
                                 bool *names, fsdpck_error *err)
{
    const value list = list_of(r, g, false);
    const value_kind kind = value_kind_of(list);
    if (kind != VALUE_LIST && kind != VALUE_TUPLE)
        return rekey_fail(r, o, FSDPCK_BADINPUT, FSDPCK_FINDING_MODEL_OPTIM, err,
                          "param_group %" PRIu32 " has no list of parameters", g->index);
    g->first = (uint32_t)o->members.count;
    for (size_t i = 0; i < value_count(&r->cat->pool, list); i++) {
        const value item = value_item(&r->cat->pool, list, i);
        char digits[24];
        size_t nbytes;
        if (value_kind_of(item) != VALUE_INT && value_kind_of(item) != VALUE_STR)
            return rekey_fail(r, o, FSDPCK_BADINPUT, FSDPCK_FINDING_MODEL_OPTIM, err,
                              "param_group %" PRIu32
                              " contains an item that is neither a number nor a name",
                              g->index);
        *ids = *ids || value_kind_of(item) == VALUE_INT;
        *names = *names || value_kind_of(item) == VALUE_STR;
        const char *text = rekey_element(r->cat, item, digits, &nbytes);
        RETURN_IF(add_position(r, o, text, nbytes, err));
    }
    g->count = (uint32_t)o->members.count - g->first;
    /* Lists of several ranks: the first and the last parameter are of different ones. */
    if (g->params != CAT_NONE && g->count > 0 && catalogue_object(r->cat, g->params)->joined)
        REKEY_POSITION(o, *REKEY_MEMBER(o, g->first + g->count - 1))->joined = true;
    return FSDPCK_OK;
}

/* torch 2.6 and newer: the names that the optimizer received, one per parameter. */
static fsdpck_status read_names(rekey *r, rekey_optimizer *o, const rekey_group *g,
                                fsdpck_error *err)
{
    const value list = list_of(r, g, true);
    if (value_kind_of(list) != VALUE_LIST || value_count(&r->cat->pool, list) != g->count)
        return FSDPCK_OK;
    for (uint32_t i = 0; i < g->count; i++) {
        size_t nbytes = 0;
        const value item = value_item(&r->cat->pool, list, i);
        const char *text = value_text(&r->cat->pool, item, &nbytes);
        if (value_kind_of(item) == VALUE_STR)
            RETURN_IF(strtab_intern(&r->texts, text, nbytes,
                                    &REKEY_POSITION(o, *REKEY_MEMBER(o, g->first + i))->name, err));
    }
    return FSDPCK_OK;
}

static fsdpck_status read_nested(rekey *r, uint32_t owner, fsdpck_error *err)
{
    rekey_optimizer *o = REKEY_OPTIMIZER(r, owner);
    bool ids = false, names = false;

    for (size_t i = 0; i < r->entries.count; i++) {
        const rekey_entry *e = REKEY_ENTRY(r, i);
        if (e->owner != owner)
            continue;
        if (e->kind == REKEY_PARAMS)
            RETURN_IF(add_group(o, e->at, e->index, VALUE_OF_NONE, err));
        else if (e->kind == REKEY_GROUPS_ALL)
            RETURN_IF(whole_groups(r, o, catalogue_object(r->cat, e->index), err));
    }
    RETURN_IF(check_groups(r, o, err));
    for (size_t i = 0; i < r->entries.count; i++) {
        const rekey_entry *e = REKEY_ENTRY(r, i);
        if (e->owner != owner || e->kind == REKEY_GROUPS_ALL)
            continue;
        rekey_group *g = find_group(o, e->at);
        if (g == NULL)
            return rekey_fail(r, o, FSDPCK_BADINPUT, FSDPCK_FINDING_MODEL_OPTIM, err,
                              "param_group %" PRIu32 " has no list of parameters", e->at);
        if (e->kind == REKEY_NAMES)
            g->names = e->index;
    }
    for (size_t i = 0; i < o->groups.count; i++) {
        RETURN_IF(read_params(r, o, REKEY_GROUP(o, i), &ids, &names, err));
        RETURN_IF(read_names(r, o, REKEY_GROUP(o, i), err));
    }
    if (ids && names)
        return rekey_fail(r, o, FSDPCK_BADINPUT, FSDPCK_FINDING_MODEL_OPTIM, err,
                          "param_groups mix numbers and names");
    o->form = ids ? OPTIM_KEYS_ID : OPTIM_KEYS_NAME;
    return FSDPCK_OK;
}

/* --- flattened: one hyperparameter of each parameter --- */

typedef struct flat_hyper {
    uint32_t saved_at, entry;
} flat_hyper;

static int compare_hypers(const void *left, const void *right)
{
    const flat_hyper *a = left, *b = right;
    ORDER_BY(a->saved_at, b->saved_at);
    return a->entry < b->entry ? -1 : a->entry > b->entry;
}

static fsdpck_status read_flat(rekey *r, uint32_t owner, fsdpck_error *err)
{
    catalogue *c = r->cat;
    rekey_optimizer *o = REKEY_OPTIMIZER(r, owner);
    vec hypers = VEC_OF(flat_hyper, c->owner);
    fsdpck_status st = FSDPCK_OK;

    o->form = OPTIM_KEYS_FLAT;
    for (size_t i = 0; st == FSDPCK_OK && i < r->entries.count; i++) {
        const rekey_entry *e = REKEY_ENTRY(r, i);
        if (e->owner != owner)
            continue;
        flat_hyper *h = vec_push(&hypers, err);
        st = h == NULL ? FSDPCK_LIMIT : FSDPCK_OK;
        if (h != NULL)
            *h = (flat_hyper){e->is_object ? catalogue_object(c, e->index)->saved_at
                                           : catalogue_tensor(c, e->index)->saved_at,
                              (uint32_t)i};
    }
    if (hypers.count > 1)
        qsort(hypers.items, hypers.count, sizeof(flat_hyper), compare_hypers);
    for (size_t i = 0; st == FSDPCK_OK && i < hypers.count; i++) {
        rekey_entry *e = REKEY_ENTRY(r, VEC_AT(&hypers, flat_hyper, i)->entry);
        const value path = e->is_object ? catalogue_object(c, e->index)->path
                                        : catalogue_tensor(c, e->index)->path;
        size_t nbytes;
        const char *text = value_text(&c->pool, value_item(&c->pool, path, o->depth), &nbytes);
        const size_t skip = strlen("param_groups.");
        nbytes -= skip + strtab_nbytes(&r->texts, e->key) + 1;
        e->at = strtab_find(&o->labels, text + skip, nbytes);
        if (e->at != STRTAB_NONE)
            continue;
        e->at = (uint32_t)o->positions.count;
        st = add_position(r, o, text + skip, nbytes, err);
        if (st == FSDPCK_OK)
            REKEY_POSITION(o, e->at)->joined = e->is_object ? catalogue_object(c, e->index)->joined
                                                            : catalogue_tensor(c, e->index)->joined;
    }
    vec_release(&hypers);
    return st;
}

fsdpck_status rekey_groups_read(rekey *r, uint32_t owner, fsdpck_error *err)
{
    return REKEY_OPTIMIZER(r, owner)->flat ? read_flat(r, owner, err) : read_nested(r, owner, err);
}

/* --- groups of equal parameters --- */

typedef struct alike {
    uint32_t position, key, entry;
} alike;

static int compare_alike(const void *left, const void *right)
{
    const alike *a = left, *b = right;
    ORDER_BY(a->position, b->position);
    ORDER_BY(a->key, b->key);
    return a->entry < b->entry ? -1 : a->entry > b->entry;
}

/* Hyperparameters of positions, sorted; those of position p begin at starts[p]. */
typedef struct likeness {
    rekey *r;
    rekey_optimizer *o;
    vec hypers; /* alike */
    uint32_t *starts;
    uint32_t *class_of; /* class of each position */
    strtab texts;
    vec samples; /* uint32_t by text: a position */
} likeness;

static value content_of(const likeness *l, uint32_t i)
{
    const rekey_entry *e = REKEY_ENTRY(l->r, VEC_AT(&l->hypers, const alike, i)->entry);
    return catalogue_object(l->r->cat, e->index)->content;
}

static fsdpck_status same_hypers(const likeness *l, uint32_t a, uint32_t b, bool *same,
                                 fsdpck_error *err)
{
    const value_pool *pool = &l->r->cat->pool;
    const uint32_t count = l->starts[a + 1] - l->starts[a];
    *same = count == l->starts[b + 1] - l->starts[b];
    for (uint32_t i = 0; *same && i < count; i++) {
        const uint32_t x = l->starts[a] + i, y = l->starts[b] + i;
        *same = VEC_AT(&l->hypers, const alike, x)->key == VEC_AT(&l->hypers, const alike, y)->key;
        if (*same)
            RETURN_IF(value_equal(pool, content_of(l, x), pool, content_of(l, y), same, err));
    }
    return FSDPCK_OK;
}

/* Printed values find a candidate; then they are compared in full, because a text may be truncated.
 */
static fsdpck_status classify(likeness *l, uint32_t position, text_buf *text, fsdpck_error *err)
{
    const value_pool *pool = &l->r->cat->pool;
    text->nbytes = 0;
    for (uint32_t i = l->starts[position]; i < l->starts[position + 1]; i++) {
        text_printf(text, "%" PRIu32 "=", VEC_AT(&l->hypers, const alike, i)->key);
        value_print(pool, content_of(l, i), 4096, text);
        text_append(text, ";", 1);
    }
    for (;;) {
        uint32_t id;
        bool same = true;
        text_append(text, "", 0);
        RETURN_IF(text_check(text, err));
        RETURN_IF(strtab_intern(&l->texts, text->text, text->nbytes, &id, err));
        if (id == l->samples.count) {
            RETURN_IF(vec_add(&l->samples, &(uint32_t){position}, err));
        } else {
            RETURN_IF(
                same_hypers(l, *VEC_AT(&l->samples, const uint32_t, id), position, &same, err));
        }
        l->class_of[position] = id;
        if (same)
            return FSDPCK_OK;
        text_append(text, "+", 1);
    }
}

static fsdpck_status gather_hypers(likeness *l, uint32_t owner, fsdpck_error *err)
{
    const size_t count = l->o->positions.count;
    for (size_t i = 0; i < l->r->entries.count; i++) {
        const rekey_entry *e = REKEY_ENTRY(l->r, i);
        if (e->owner != owner || e->kind != REKEY_HYPER)
            continue;
        if (!e->is_object || catalogue_object(l->r->cat, e->index)->rank != UINT16_MAX)
            return rekey_fail(l->r, l->o, FSDPCK_UNSUPPORTED, FSDPCK_FINDING_MODEL_OPTIM, err,
                              "hyperparameter '%s' is a tensor, or differs between ranks",
                              strtab_text(&l->r->texts, e->key));
        RETURN_IF(vec_add(&l->hypers, &(alike){e->at, e->key, (uint32_t)i}, err));
    }
    if (l->hypers.count > 1)
        qsort(l->hypers.items, l->hypers.count, sizeof(alike), compare_alike);
    l->starts = budget_alloc(l->r->cat->owner, (count + 1) * sizeof *l->starts, err);
    l->class_of = budget_alloc(l->r->cat->owner, (count + 1) * sizeof *l->class_of, err);
    if (l->starts == NULL || l->class_of == NULL)
        return FSDPCK_LIMIT;
    uint32_t at = 0;
    for (uint32_t p = 0; p <= count; p++) {
        while (at < l->hypers.count && VEC_AT(&l->hypers, const alike, at)->position < p)
            at++;
        l->starts[p] = at;
    }
    return FSDPCK_OK;
}

static fsdpck_status described_groups(likeness *l, const optim_list *list, bool *used,
                                      fsdpck_error *err)
{
    const optim_groups *g = l->r->order->groups;
    rekey_optimizer *o = l->o;
    uint32_t total = 0;
    for (uint32_t i = 0; i < list->count; i++) {
        const optim_group *group = optim_groups_at(g, list, i);
        total += group->count;
        for (uint32_t k = 0; k < group->count; k++) {
            size_t nbytes;
            const char *text = optim_groups_member(g, group, k, &nbytes);
            if (strtab_find(&o->labels, text, nbytes) == STRTAB_NONE)
                return FSDPCK_OK;
        }
    }
    *used = total == o->positions.count;
    if (*used)
        o->members.count = 0;
    o->settled = *used;
    for (uint32_t i = 0; *used && i < list->count; i++) {
        const optim_group *group = optim_groups_at(g, list, i);
        RETURN_IF(add_group(o, i, CAT_NONE, VALUE_OF_NONE, err));
        REKEY_GROUP(o, i)->first = (uint32_t)o->members.count;
        REKEY_GROUP(o, i)->count = group->count;
        for (uint32_t k = 0; k < group->count; k++) {
            size_t nbytes;
            const char *text = optim_groups_member(g, group, k, &nbytes);
            uint32_t *member = vec_push(&o->members, err);
            if (member == NULL)
                return FSDPCK_LIMIT;
            *member = strtab_find(&o->labels, text, nbytes);
            if (k > 0 && l->class_of[*member] != l->class_of[member[-1]])
                return rekey_fail(
                    l->r, o, FSDPCK_BADINPUT, FSDPCK_FINDING_MODEL_OPTIM, err,
                    "the model description puts '%s' into a group with different hyperparameters",
                    text);
        }
    }
    return FSDPCK_OK;
}

static fsdpck_status alike_groups(likeness *l, fsdpck_error *err)
{
    rekey_optimizer *o = l->o;
    const uint32_t count = (uint32_t)o->positions.count;
    uint32_t runs = 0, at = 0;
    for (uint32_t i = 0; i < l->samples.count; i++)
        RETURN_IF(add_group(o, i, CAT_NONE, VALUE_OF_NONE, err));
    for (uint32_t p = 0; p < count; p++) {
        REKEY_GROUP(o, l->class_of[p])->count++;
        runs += p == 0 || l->class_of[p] != l->class_of[p - 1];
    }
    for (uint32_t i = 0; i < o->groups.count; i++) {
        REKEY_GROUP(o, i)->first = at;
        at += REKEY_GROUP(o, i)->count;
        REKEY_GROUP(o, i)->count = 0;
    }
    for (uint32_t p = 0; p < count; p++) {
        rekey_group *g = REKEY_GROUP(o, l->class_of[p]);
        *REKEY_MEMBER(o, g->first + g->count++) = p;
    }
    if (runs > o->groups.count || o->groups.count > 1)
        log_warn(l->r->log, FSDPCK_FINDING_OPTIM_GROUPS,
                 "list the groups in --model FILE: 'optimizers' in fsdpck-model(5)",
                 "flattened optimizer state: %zu param_group%s made of parameters with equal "
                 "hyperparameters; equal groups were merged; the saved optimizer may have had up "
                 "to %" PRIu32 " groups",
                 o->groups.count, o->groups.count == 1 ? "" : "s", count);
    else
        log_write(l->r->log, LOG_NOTE,
                  "flattened optimizer state: %zu param_group%s made of parameters with equal "
                  "hyperparameters; equal groups were merged",
                  o->groups.count, o->groups.count == 1 ? "" : "s");
    return FSDPCK_OK;
}

/* Gives each parameter the names of its whole group. */
static void find_names(likeness *l)
{
    for (size_t i = 0; i < l->o->groups.count; i++) {
        rekey_group *g = REKEY_GROUP(l->o, i);
        const uint32_t first = g->count == 0 ? 0 : *REKEY_MEMBER(l->o, g->first);
        for (uint32_t k = l->starts[first]; g->count > 0 && k < l->starts[first + 1]; k++) {
            const rekey_entry *e = REKEY_ENTRY(l->r, VEC_AT(&l->hypers, const alike, k)->entry);
            if (strcmp(strtab_text(&l->r->texts, e->key), "param_names") == 0)
                g->names = e->index;
        }
    }
}

fsdpck_status rekey_groups_make(rekey *r, uint32_t owner, fsdpck_error *err)
{
    rekey_optimizer *o = REKEY_OPTIMIZER(r, owner);
    budget *budget_of = r->cat->owner;
    const size_t count = o->positions.count + 1;
    likeness l = {
        .r = r, .o = o, .hypers = VEC_OF(alike, budget_of), .samples = VEC_OF(uint32_t, budget_of)};
    text_buf text = {0};
    bool used = false;
    strtab_init(&l.texts, budget_of);
    fsdpck_status st = gather_hypers(&l, owner, err);
    for (uint32_t p = 0; st == FSDPCK_OK && p + 1 < count; p++)
        st = classify(&l, p, &text, err);
    const optim_list *list = rekey_described(r, o);
    if (st == FSDPCK_OK && list != NULL)
        st = described_groups(&l, list, &used, err);
    if (st == FSDPCK_OK && !used)
        st = alike_groups(&l, err);
    if (st == FSDPCK_OK)
        find_names(&l);
    text_release(&text);
    strtab_release(&l.texts);
    VEC_RELEASE_ALL(&l.hypers, &l.samples);
    budget_free(budget_of, l.starts, count * sizeof *l.starts);
    budget_free(budget_of, l.class_of, count * sizeof *l.class_of);
    return st;
}
