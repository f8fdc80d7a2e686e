/* Finds optimizer state that pipeline stages number from 0: one number stands for a different
 * parameter in every stage. Ranks of one stage have the same sharded parameters; if these are
 * plain, the same of those that not all ranks have. */
#include <string.h>

#include "formats/pt/ranks_internal.h"
#include "state/value_cells.h"
#include "state/value_map.h"

static fsdpck_status add_name(vec *sums, uint32_t rank, uint32_t entry, fsdpck_error *err)
{
    if (sums->count <= rank && vec_push_n(sums, (size_t)rank + 1 - sums->count, err) == NULL)
        return FSDPCK_LIMIT;
    uint64_t h = (entry + UINT64_C(1)) * UINT64_C(0x9E3779B97F4A7C15);
    h = (h ^ h >> 29) * UINT64_C(0xBF58476D1CE4E5B9);
    *VEC_AT(sums, uint64_t, rank) += h ^ h >> 32;
    return FSDPCK_OK;
}

fsdpck_status ranks_note_name(ranks_state *s, uint32_t rank, uint32_t entry, fsdpck_error *err)
{
    if (VEC_AT(&s->tensors, const ranks_tensor, entry)->in_optimizer)
        return FSDPCK_OK;
    return add_name(&s->name_sums, rank, entry, err);
}

fsdpck_status ranks_note_conflict(ranks_state *s, const ranks_file *f, uint32_t entry,
                                  const fsdpck_error *what, fsdpck_error *err)
{
    ranks_conflict *c = vec_push(&s->conflicts, err);
    if (c == NULL)
        return FSDPCK_LIMIT;
    *c = (ranks_conflict){.entry = entry, .rank = f->rank};
    if (s->conflicts.count == 1) {
        s->conflict = *what;
        error_path_in(&s->conflict, s->req->path, f->name);
    }
    return FSDPCK_OK;
}

static uint64_t sum_of(const vec *sums, uint32_t rank)
{
    return rank < sums->count ? *VEC_AT(sums, const uint64_t, rank) : 0;
}

/* The catalogue's tensors that are numbered optimizer state: 1, and 2 if stages share it. */
typedef struct stage_marks {
    uint64_t *sharded; /* the sum of the first rank that has the tensor and a sum; 0: none yet */
    uint64_t *plain;
    uint8_t *state;
    size_t count;
} stage_marks;

enum { MARK_NONE, MARK_NUMBERED, MARK_SHARED };

static bool is_another(uint64_t *first, uint64_t sum)
{
    if (*first == 0)
        *first = sum;
    return sum != 0 && *first != sum;
}

/* Ranks without such parameters decide nothing. */
static void mark(const ranks_state *s, stage_marks *m, uint32_t tensor, uint32_t rank)
{
    const uint64_t sum = sum_of(&s->name_sums, rank);
    if (m->state[tensor] == MARK_NONE)
        return;
    if (is_another(&m->sharded[tensor], sum) ||
        (sum == 0 && is_another(&m->plain[tensor], sum_of(&s->plain_sums, rank))))
        m->state[tensor] = MARK_SHARED;
}

static fsdpck_status mark_sharded(const ranks_state *s, stage_marks *m, bool *any,
                                  fsdpck_error *err)
{
    for (size_t i = 0; i < s->tensors.count; i++) {
        const ranks_tensor *t = VEC_AT(&s->tensors, const ranks_tensor, i);
        if (t->in_optimizer && t->kind != RANKS_OBJECT && t->index != CAT_NONE)
            m->state[t->index] = MARK_NUMBERED;
    }
    for (size_t i = 0; i < s->cat->chunks.count; i++) {
        const cat_chunk *k = catalogue_chunk(s->cat, i);
        mark(s, m, k->tensor, k->rank);
        *any = *any || m->state[k->tensor] == MARK_SHARED;
    }
    for (size_t i = 0; i < s->conflicts.count; i++) {
        const ranks_conflict *c = VEC_AT(&s->conflicts, const ranks_conflict, i);
        const uint32_t tensor = VEC_AT(&s->tensors, const ranks_tensor, c->entry)->index;
        mark(s, m, tensor, c->rank);
        if (m->state[tensor] != MARK_SHARED) {
            if (err != NULL)
                *err = s->conflict;
            return s->conflict.status;
        }
        *any = true;
    }
    return FSDPCK_OK;
}

/* Plain state follows sharded state, but shards of flat parameters, which have no DTensors, are
 * numbered alike on ranks with sharded parameters. */
static void mark_plain(const ranks_state *s, stage_marks *m, bool any)
{
    const vec *pieces = &s->reader->pieces;
    for (int pass = 0; pass < 2; pass++)
        for (size_t i = 0; i < pieces->count; i++) {
            torch_shard *q = VEC_AT(pieces, torch_shard, i);
            if (!(q->flags & RANKS_SHARD_PLAIN) || (!any && sum_of(&s->name_sums, q->rank) != 0))
                continue;
            const uint32_t tensor = VEC_AT(&s->tensors, const ranks_tensor, q->tensor)->index;
            if (pass == 0)
                mark(s, m, tensor, q->rank);
            else if (m->state[tensor] == MARK_SHARED)
                q->flags |= RANKS_SHARD_STAGES;
        }
}

static void mark_chunks(const ranks_state *s, const stage_marks *m)
{
    for (size_t i = 0; i < s->cat->chunks.count; i++) {
        cat_chunk *k = catalogue_chunk(s->cat, i);
        if (m->state[k->tensor] != MARK_SHARED)
            continue;
        k->place = LOCATION_STRIDED;
        VEC_AT(&s->reader->pieces, torch_shard, k->aux)->flags |= RANKS_SHARD_STAGES;
    }
}

/* With a model description, plain tensors may be shards of its flat parameters. */
static fsdpck_status add_plain_names(ranks_state *s, fsdpck_error *err)
{
    const vec *pieces = &s->reader->pieces;
    for (size_t i = 0; !s->req->keep_flat_shards && i < pieces->count; i++) {
        const torch_shard *q = VEC_AT(pieces, const torch_shard, i);
        const ranks_tensor *t = VEC_AT(&s->tensors, const ranks_tensor, q->tensor);
        if ((q->flags & RANKS_SHARD_PLAIN) && t->is_partial && !t->in_optimizer)
            RETURN_IF(add_name(&s->plain_sums, q->rank, q->tensor, err));
    }
    return FSDPCK_OK;
}

fsdpck_status ranks_mark_stages(ranks_state *s, fsdpck_error *err)
{
    stage_marks m = {.count = s->cat->tensors.count};
    bool any = false;
    RETURN_IF(add_plain_names(s, err));
    m.sharded = budget_alloc(s->req->metadata, m.count * sizeof *m.sharded, err);
    m.plain = budget_alloc(s->req->metadata, m.count * sizeof *m.plain, err);
    m.state = budget_alloc(s->req->metadata, m.count * sizeof *m.state, err);
    fsdpck_status st =
        m.sharded == NULL || m.plain == NULL || m.state == NULL ? FSDPCK_LIMIT : FSDPCK_OK;
    if (st == FSDPCK_OK)
        st = mark_sharded(s, &m, &any, err);
    if (st == FSDPCK_OK) {
        mark_plain(s, &m, any);
        mark_chunks(s, &m);
    }
    if (m.sharded != NULL)
        budget_free(s->req->metadata, m.sharded, m.count * sizeof *m.sharded);
    if (m.plain != NULL)
        budget_free(s->req->metadata, m.plain, m.count * sizeof *m.plain);
    if (m.state != NULL)
        budget_free(s->req->metadata, m.state, m.count * sizeof *m.state);
    return st;
}

/* --- param_groups --- */

/* Elements of the path up to param_groups; 0: it has none. */
static size_t groups_depth(const ranks_state *s, const ranks_object *o)
{
    const value_pool *pool = &s->cat->pool;
    const size_t count = value_count(pool, o->path);
    for (size_t i = 0; i + 1 < count; i++)
        if (value_is_str(pool, value_item(pool, o->path, i), "param_groups"))
            return i + 1;
    return 0;
}

/* 'params' of a group: a list of numbers. */
static bool lists_numbers(const ranks_state *s, const ranks_object *o)
{
    const value_pool *pool = &s->cat->pool;
    const value params = VEC_AT(&s->variants, const ranks_variant, o->first_variant)->content;
    const value last = value_item(pool, o->path, value_count(pool, o->path) - 1);
    return value_is_str(pool, last, "params") && value_kind_of(params) == VALUE_LIST &&
           value_count(&s->pool, params) > 0 &&
           value_kind_of(value_item(&s->pool, params, 0)) == VALUE_INT;
}

static bool same_groups(const ranks_state *s, const ranks_object *a, const ranks_object *b)
{
    const value_pool *pool = &s->cat->pool;
    const size_t depth = groups_depth(s, a);
    bool same = depth > 0 && depth == groups_depth(s, b);
    for (size_t i = 0; same && i < depth; i++)
        same = value_item(pool, a->path, i) == value_item(pool, b->path, i);
    return same;
}

/* Of the ranks with an object: the sums of the first ones that have some, and whether others differ. */
typedef struct object_sums {
    uint64_t sharded, plain;
    bool differ;
} object_sums;

/* In one pass over all occurrences: optimizers may have thousands of groups. */
static void add_sums(const ranks_state *s, object_sums *sums)
{
    for (size_t i = 0; i < s->occurrences.count; i++) {
        const ranks_occurrence *seen = VEC_AT(&s->occurrences, const ranks_occurrence, i);
        object_sums *of = &sums[seen->object];
        const uint64_t sum = sum_of(&s->name_sums, seen->rank);
        if (is_another(&of->sharded, sum) ||
            (sum == 0 && is_another(&of->plain, sum_of(&s->plain_sums, seen->rank))))
            of->differ = true;
    }
}

static void part(ranks_state *s, const ranks_object *o)
{
    log_warn(&s->req->log, FSDPCK_FINDING_RANK_DISAGREE,
             "save the optimizer with get_optimizer_state_dict, which names parameters",
             "'%s' has one number for different parameters of several ranks (pipeline stages): "
             "param_groups are kept for each rank",
             strtab_text(&s->names, o->entry));
    for (uint32_t i = 0; i < s->objects.count; i++) {
        ranks_object *other = VEC_AT(&s->objects, ranks_object, i);
        if (!same_groups(s, o, other))
            continue;
        other->is_of_stages = true;
        other->differs = true;
    }
}

fsdpck_status ranks_part_stages(ranks_state *s, fsdpck_error *err)
{
    const uint64_t nbytes = s->objects.count * sizeof(object_sums);
    object_sums *sums = budget_alloc(s->req->metadata, nbytes, err);
    if (sums == NULL)
        return FSDPCK_LIMIT;
    add_sums(s, sums);
    for (uint32_t i = 0; i < s->objects.count; i++) {
        const ranks_object *o = VEC_AT(&s->objects, const ranks_object, i);
        if (!o->is_of_stages && sums[i].differ && groups_depth(s, o) > 0 && lists_numbers(s, o))
            part(s, o);
    }
    budget_free(s->req->metadata, sums, nbytes);
    return FSDPCK_OK;
}

/* --- params of groups by name --- */

/* The lists of one object that were found so far, as one. */
typedef struct joined_params {
    value list; /* in ranks_state.pool */
    uint32_t lists;
    /* One is no list of names, lacks a name of its own, or another group has one of its names. */
    bool is_refused;
} joined_params;

typedef struct params_join {
    joined_params *objects; /* by object */
    uint8_t *seen;          /* by variant: passes over it */
    /* By object and name: the last list with it plus 1; LIST_SHARED: others have it too. */
    value_map lists;
    value_map groups; /* by name: the first object with it plus 1 */
} params_join;

#define LIST_SHARED (UINT64_C(1) << 63)

static bool is_params(const ranks_state *s, const ranks_object *o)
{
    const value_pool *pool = &s->cat->pool;
    return o->differs && !o->is_of_stages && groups_depth(s, o) > 0 &&
           value_is_str(pool, value_item(pool, o->path, value_count(pool, o->path) - 1), "params");
}

static uint64_t name_key(uint32_t object, value name)
{
    return (object + UINT64_C(1)) << 32 | value_payload(name);
}

/* A parameter is in one group. */
static fsdpck_status check_group(ranks_state *s, uint32_t object, value name, params_join *x,
                                 fsdpck_error *err)
{
    bool fresh;
    uint64_t *slot = value_map_put(&x->groups, UINT64_C(1) + value_payload(name), &fresh, err);
    if (slot == NULL)
        return FSDPCK_LIMIT;
    if (fresh)
        *slot = object + UINT64_C(1);
    const uint32_t other = (uint32_t)(*slot - 1);
    if (other != object && same_groups(s, VEC_AT(&s->objects, const ranks_object, object),
                                       VEC_AT(&s->objects, const ranks_object, other)))
        x->objects[object].is_refused = x->objects[other].is_refused = true;
    return FSDPCK_OK;
}

static fsdpck_status add_params(ranks_state *s, uint32_t object, uint32_t variant, params_join *x,
                                fsdpck_error *err)
{
    joined_params *j = &x->objects[object];
    const value params = VEC_AT(&s->variants, const ranks_variant, variant)->content;
    const size_t count = value_kind_of(params) == VALUE_LIST ? value_count(&s->pool, params) : 0;
    if (j->lists++ == 0)
        RETURN_IF(value_new_list(&s->pool, &j->list, err));
    j->is_refused = j->is_refused || value_kind_of(params) != VALUE_LIST;
    for (size_t i = 0; !j->is_refused && i < count; i++) {
        const value name = value_item(&s->pool, params, i);
        bool fresh;
        if (value_kind_of(name) != VALUE_STR) {
            j->is_refused = true;
            break;
        }
        uint64_t *slot = value_map_put(&x->lists, name_key(object, name), &fresh, err);
        if (slot == NULL)
            return FSDPCK_LIMIT;
        j->is_refused = j->is_refused || (*slot & ~LIST_SHARED) == variant + UINT64_C(1);
        *slot = (fresh ? 0 : LIST_SHARED) | (variant + UINT64_C(1));
        if (fresh)
            RETURN_IF(value_append(&s->pool, j->list, name, err));
        RETURN_IF(check_group(s, object, name, x, err));
    }
    return FSDPCK_OK;
}

/* A stage has parameters that no other has. Of lists without such a name, one may be of another save. */
static void check_own(const ranks_state *s, uint32_t object, uint32_t variant, params_join *x)
{
    const value params = VEC_AT(&s->variants, const ranks_variant, variant)->content;
    bool has_own = false;
    for (size_t i = 0; !x->objects[object].is_refused && i < value_count(&s->pool, params); i++) {
        const uint64_t *slot =
            value_map_find(&x->lists, name_key(object, value_item(&s->pool, params, i)));
        has_own = has_own || (slot != NULL && (*slot & LIST_SHARED) == 0);
    }
    if (!has_own && x->objects[object].lists > 1)
        x->objects[object].is_refused = true;
}

/* In two passes over all occurrences, each variant once: the first joins, the second checks. */
static fsdpck_status gather_params(ranks_state *s, params_join *x, fsdpck_error *err)
{
    for (uint8_t pass = 0; pass < 2; pass++)
        for (size_t i = 0; i < s->occurrences.count; i++) {
            const ranks_occurrence *at = VEC_AT(&s->occurrences, const ranks_occurrence, i);
            if (x->seen[at->variant] > pass ||
                !is_params(s, VEC_AT(&s->objects, const ranks_object, at->object)))
                continue;
            x->seen[at->variant]++;
            if (pass == 0)
                RETURN_IF(add_params(s, at->object, at->variant, x, err));
            else
                check_own(s, at->object, at->variant, x);
        }
    return FSDPCK_OK;
}

static bool is_joined(const joined_params *j)
{
    return j->lists > 1 && !j->is_refused;
}

static fsdpck_status use_joined(ranks_state *s, const joined_params *joined, fsdpck_error *err)
{
    bool any = false;
    for (uint32_t i = 0; i < s->objects.count; i++) {
        ranks_object *o = VEC_AT(&s->objects, ranks_object, i);
        if (!is_joined(&joined[i]))
            continue;
        RETURN_IF(vec_add(&s->variants, &(ranks_variant){.content = joined[i].list}, err));
        o->first_variant = o->last_variant = (uint32_t)(s->variants.count - 1);
        o->differs = false;
        o->is_joined = true;
        any = true;
    }
    for (size_t i = 0; any && i < s->occurrences.count; i++) {
        ranks_occurrence *at = VEC_AT(&s->occurrences, ranks_occurrence, i);
        if (is_joined(&joined[at->object]))
            at->variant = VEC_AT(&s->objects, const ranks_object, at->object)->first_variant;
    }
    return FSDPCK_OK;
}

fsdpck_status ranks_join_params(ranks_state *s, fsdpck_error *err)
{
    budget *owner = s->req->metadata;
    const uint64_t nbytes = s->objects.count * sizeof(joined_params);
    const uint64_t seen_nbytes = s->variants.count;
    params_join x = {.lists = VALUE_MAP(owner), .groups = VALUE_MAP(owner)};
    x.objects = budget_alloc(owner, nbytes, err);
    x.seen = budget_alloc(owner, seen_nbytes, err);
    fsdpck_status st = x.objects == NULL || x.seen == NULL ? FSDPCK_LIMIT : FSDPCK_OK;
    if (st == FSDPCK_OK)
        st = gather_params(s, &x, err);
    if (st == FSDPCK_OK)
        st = use_joined(s, x.objects, err);
    value_map_release(&x.lists);
    value_map_release(&x.groups);
    if (x.objects != NULL)
        budget_free(owner, x.objects, nbytes);
    if (x.seen != NULL)
        budget_free(owner, x.seen, seen_nbytes);
    return st;
}
