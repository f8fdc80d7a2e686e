#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "select/select_internal.h"

/* Tied tensors of the model view the same bytes of one storage in the same way. Equal bytes in two
 * locations are no tie, as training may make them differ. State that an optimizer shares is no tie
 * either: torch gives all parameters of a unit one `step` when it gathers their state
 * (FSDP.optim_state_dict), but loading requires a `step` for each. */

typedef struct tie_key {
    uint32_t alias;
    uint32_t pick;
    uint64_t offset_bytes;
    uint64_t view; /* a hash of dtype, shape and strides: equal views of one byte come together */
    uint32_t as;   /* dtype in the target; 0 for a flat writer, which has one dtype for all names */
} tie_key;

static int compare_keys(const void *left, const void *right)
{
    const tie_key *a = left, *b = right;
    ORDER_BY(a->alias, b->alias);
    ORDER_BY(a->offset_bytes, b->offset_bytes);
    ORDER_BY(a->view, b->view);
    ORDER_BY(a->as, b->as);
    return a->pick < b->pick ? -1 : a->pick > b->pick;
}

fsdpck_status select_resolve_storage(const select_state *a, uint32_t from_index, place *where,
                                     fsdpck_error *err)
{
    const cat_tensor *t = catalogue_tensor(a->from, from_index);
    memset(where, 0, sizeof *where);
    RETURN_IF(a->request->src->locate(a->request->src->ctx, t->first_chunk, where, err));
    if (where->rows)
        box_row_major_strides(catalogue_shape(a->from, from_index), t->ndim, where->strides);
    return FSDPCK_OK;
}

fsdpck_status select_same_view(const select_state *a, uint32_t i, uint32_t k, bool *same,
                               fsdpck_error *err)
{
    const cat_tensor *x = catalogue_tensor(a->from, i), *y = catalogue_tensor(a->from, k);
    *same = x->dtype == y->dtype &&
            shape_equal(catalogue_shape(a->from, i), x->ndim, catalogue_shape(a->from, k), y->ndim);
    if (!*same)
        return FSDPCK_OK;
    place p, q;
    RETURN_IF(select_resolve_storage(a, i, &p, err));
    RETURN_IF(select_resolve_storage(a, k, &q, err));
    *same = p.file == q.file && p.offset_bytes == q.offset_bytes && p.conj == q.conj &&
            p.neg == q.neg && p.add == q.add && shape_equal(p.strides, x->ndim, q.strides, y->ndim);
    return FSDPCK_OK;
}

static void put_tie(const select_state *a, const select_pick *first, const select_pick *tied,
                    text_buf *both)
{
    text_append(both, strtab_text(&a->names, tied->name), strtab_nbytes(&a->names, tied->name));
    text_puts(both, " = ");
    text_append(both, strtab_text(&a->names, first->name), strtab_nbytes(&a->names, first->name));
}

fsdpck_status select_record_tie(select_state *a, const select_pick *first, const select_pick *tied,
                                fsdpck_error *err)
{
    text_buf both = {0};
    a->result->tied++;
    put_tie(a, first, tied, &both);
    fsdpck_status st = text_check(&both, err);
    if (st == FSDPCK_OK)
        st = name_list_add(&a->result->tied_names, both.text, both.nbytes, err);
    text_release(&both);
    return st;
}

/* FNV-1a. */
static void hash_bytes(uint64_t *hash, const void *bytes, size_t nbytes)
{
    const uint8_t *b = bytes;
    for (size_t i = 0; i < nbytes; i++)
        *hash = (*hash ^ b[i]) * UINT64_C(0x100000001b3);
}

static uint64_t hash_view(const select_state *a, uint32_t from_index, const place *where)
{
    const cat_tensor *t = catalogue_tensor(a->from, from_index);
    const uint8_t kind[] = {t->dtype, t->ndim, where->conj, where->neg, (uint8_t)where->add};
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    hash_bytes(&hash, kind, sizeof kind);
    hash_bytes(&hash, catalogue_shape(a->from, from_index), t->ndim * sizeof(uint64_t));
    hash_bytes(&hash, where->strides, t->ndim * sizeof *where->strides);
    return hash;
}

static bool is_castable(dtype d)
{
    return d == DTYPE_FLOAT64 || d == DTYPE_FLOAT32 || d == DTYPE_FLOAT16 || d == DTYPE_BFLOAT16;
}

dtype select_dtype_of(select_state *a, const select_pick *pick)
{
    const select_request *r = a->request;
    const char *name = strtab_text(&a->names, pick->name);
    dtype d = (dtype)catalogue_tensor(a->from, pick->source)->dtype;
    bool is_model = a->parts->tensor_part[pick->source] == PART_MODEL;
    const uint32_t like =
        r->like_model == NULL
            ? CAT_NONE
            : catalogue_find(r->like_model, name, strtab_nbytes(&a->names, pick->name));
    if (like != CAT_NONE) {
        const dtype wanted = (dtype)catalogue_tensor(r->like_model, like)->dtype;
        if (is_castable(d) && is_castable(wanted))
            d = wanted;
        if (dtype_get(wanted)->itemsize_bytes > dtype_get(r->like_usual)->itemsize_bytes)
            is_model = false; /* only a glob casts it */
    }
    return select_rules_cast(&a->rules, name, d, is_model);
}

static fsdpck_status list_views(select_state *a, vec *keys, fsdpck_error *err)
{
    for (size_t k = 0; k < a->picks.count; k++) {
        const select_pick *pick = VEC_AT(&a->picks, select_pick, k);
        const uint32_t from_index = pick->source;
        const cat_tensor *t = catalogue_tensor(a->from, from_index);
        if (t->alias == CAT_NONE || t->nchunks != 1 ||
            a->parts->tensor_part[from_index] != PART_MODEL ||
            catalogue_tensor_nelems(a->from, from_index) == 0)
            continue;
        place where;
        RETURN_IF(select_resolve_storage(a, from_index, &where, err));
        RETURN_IF(vec_add(keys,
                          &(tie_key){t->alias, (uint32_t)k, where.offset_bytes,
                                     hash_view(a, from_index, &where),
                                     a->to->units == NULL ? (uint32_t)select_dtype_of(a, pick) : 0},
                          err));
    }
    return FSDPCK_OK;
}

/* Whether --dtype makes two tensors of one: neither name can stand for the other. */
static bool is_parted(select_state *a, const select_pick *first, const select_pick *tied)
{
    return a->request->tied != SELECT_TIED_KEEP &&
           select_dtype_of(a, first) != select_dtype_of(a, tied);
}

/* A name that --dtype makes another tensor of, in any format: a loader that ties them reads one of both. Flat parameters
 * have one dtype; with a model to be like, its names have the dtypes of that model. */
static fsdpck_status record_parted(select_state *a, const select_pick *first,
                                   const select_pick *parted, fsdpck_error *err)
{
    if (a->to->units != NULL || a->request->like_model != NULL)
        return FSDPCK_OK;
    text_buf both = {0};
    put_tie(a, first, parted, &both);
    fsdpck_status st = text_check(&both, err);
    if (st == FSDPCK_OK)
        st = name_list_add(&a->result->parted_names, both.text, both.nbytes, err);
    text_release(&both);
    return st;
}

static fsdpck_status tie_storages(select_state *a, fsdpck_error *err)
{
    vec keys = VEC_OF(tie_key, a->from->owner);
    fsdpck_status st = FSDPCK_OK;
    GOTO_IF(list_views(a, &keys, err), out);
    if (keys.count > 1)
        qsort(keys.items, keys.count, sizeof(tie_key), compare_keys);
    size_t view = 0, head = 0; /* first name of the view, and of the view with this dtype */
    for (size_t k = 1; k < keys.count; k++) {
        const tie_key *v = VEC_AT(&keys, tie_key, view), *h = VEC_AT(&keys, tie_key, head),
                      *key = VEC_AT(&keys, tie_key, k);
        const select_pick *first = VEC_AT(&a->picks, select_pick, h->pick);
        select_pick *pick = VEC_AT(&a->picks, select_pick, key->pick);
        bool same = false;
        if (h->alias == key->alias && h->offset_bytes == key->offset_bytes)
            GOTO_IF(select_same_view(a, first->source, pick->source, &same, err), out);
        if (!same)
            view = k;
        else if (h->as != key->as)
            GOTO_IF(record_parted(a, VEC_AT(&a->picks, select_pick, v->pick), pick, err), out);
        if (!same || h->as != key->as) {
            head = k;
            continue;
        }
        pick->tied_to = h->pick;
        pick->shares_view = true;
        GOTO_IF(select_record_tie(a, first, pick, err), out);
    }
out:
    vec_release(&keys);
    return st;
}

/* --- ties of a description --- */

/* Picks are in source order. CAT_NONE if not selected. */
static uint32_t pick_of(const select_state *a, uint32_t from_index)
{
    size_t low = 0, high = a->picks.count;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        const uint32_t at = VEC_AT(&a->picks, const select_pick, middle)->source;
        if (at == from_index)
            return (uint32_t)middle;
        if (at < from_index)
            low = middle + 1;
        else
            high = middle;
    }
    return CAT_NONE;
}

select_pick *select_tied_primary(const select_state *a, uint32_t pick)
{
    select_pick *p = VEC_AT(&a->picks, select_pick, pick);
    while (p->tied_to != CAT_NONE)
        p = VEC_AT(&a->picks, select_pick, p->tied_to);
    return p;
}

/* Then tie_storages has recorded them. */
static bool share_storage(const select_state *a, const select_pick *x, const select_pick *y)
{
    const uint32_t alias = catalogue_tensor(a->from, x->source)->alias;
    return alias != CAT_NONE && alias == catalogue_tensor(a->from, y->source)->alias;
}

static fsdpck_status tie_described(select_state *a, fsdpck_error *err)
{
    const select_request *r = a->request;
    uint32_t head = CAT_NONE;
    for (size_t i = 0; i < r->tie_count; i++) {
        const tied_pair *t = &r->ties[i];
        const uint32_t alias = pick_of(a, t->alias);
        if (i == 0 || t->first != r->ties[i - 1].first)
            head = pick_of(a, t->first);
        if (head == CAT_NONE)
            head = alias;
        if (alias == CAT_NONE || alias == head)
            continue;
        select_pick *first = select_tied_primary(a, head), *tied = select_tied_primary(a, alias);
        if (first == tied)
            continue;
        if (select_dtype_of(a, first) != select_dtype_of(a, tied) && !share_storage(a, first, tied))
            RETURN_IF(record_parted(a, first, tied, err));
        if (is_parted(a, first, tied))
            continue;
        tied->tied_to = (uint32_t)(first - (select_pick *)a->picks.items);
        RETURN_IF(select_record_tie(a, first, tied, err));
    }
    return FSDPCK_OK;
}

/* --- an output projection that a model without it takes from the embedding --- */

/* Whether the last parts of a name are `end`. */
static bool name_ends(const select_state *a, const select_pick *p, const char *end)
{
    const char *name = strtab_text(&a->names, p->name);
    const size_t nbytes = strtab_nbytes(&a->names, p->name), n = strlen(end);
    return text_ends_with(name, nbytes, end) && (nbytes == n || name[nbytes - n - 1] == '.');
}

static bool is_in_like(const select_state *a, const select_pick *p)
{
    return catalogue_find(a->request->like_model, strtab_text(&a->names, p->name),
                          strtab_nbytes(&a->names, p->name)) != CAT_NONE;
}

/* The only pick of this name that the model lacks; NULL: none, or several. */
static select_pick *find_head(const select_state *a)
{
    select_pick *found = NULL;
    for (size_t k = 0; k < a->picks.count; k++) {
        select_pick *p = VEC_AT(&a->picks, select_pick, k);
        if (!name_ends(a, p, "lm_head.weight") || is_in_like(a, p))
            continue;
        if (found != NULL)
            return NULL;
        found = p;
    }
    return found;
}

/* The pick that becomes the model's embedding. */
static select_pick *find_embedding(const select_state *a)
{
    const catalogue *like = a->request->like_model;
    const uint32_t name = catalogue_tensor(like, a->request->like_embedding)->name;
    for (size_t k = 0; k < a->picks.count; k++) {
        select_pick *p = VEC_AT(&a->picks, select_pick, k);
        const size_t nbytes = strtab_nbytes(&a->names, p->name);
        if (nbytes == catalogue_name_nbytes(like, name) &&
            memcmp(strtab_text(&a->names, p->name), catalogue_name(like, name), nbytes) == 0)
            return p;
    }
    return NULL;
}

static fsdpck_status omit_tied_head(select_state *a, fsdpck_error *err)
{
    if (!a->request->omits_tied_head)
        return FSDPCK_OK;
    select_pick *head = find_head(a), *embedding = find_embedding(a);
    if (head == NULL || embedding == NULL)
        return FSDPCK_OK;
    const cat_tensor *h = catalogue_tensor(a->from, head->source),
                     *e = catalogue_tensor(a->from, embedding->source);
    if (h->dtype != e->dtype || !shape_equal(catalogue_shape(a->from, head->source), h->ndim,
                                             catalogue_shape(a->from, embedding->source), e->ndim))
        return FSDPCK_OK;
    a->result->omitted_head = head->source;
    a->result->head_embedding = embedding->source;
    const bool is_recorded = head->tied_to != CAT_NONE || embedding->tied_to != CAT_NONE;
    embedding->tied_to = CAT_NONE;
    head->tied_to = (uint32_t)(embedding - (select_pick *)a->picks.items);
    head->is_omitted_tie = true;
    return is_recorded ? FSDPCK_OK : select_record_tie(a, embedding, head, err);
}

/* Takes `alias` out of the chain that `first` is tied along, and ties it to `first`. */
static void tie_behind(select_state *a, uint32_t alias, uint32_t first)
{
    select_pick *p = VEC_AT(&a->picks, select_pick, alias),
                *at = VEC_AT(&a->picks, select_pick, first);
    for (; at->tied_to != CAT_NONE; at = VEC_AT(&a->picks, select_pick, at->tied_to)) {
        if (at->tied_to != alias)
            continue;
        at->tied_to = p->tied_to;
        break;
    }
    p->tied_to = first;
    p->is_omitted_tie = true;
}

static fsdpck_status omit_like_ties(select_state *a, fsdpck_error *err)
{
    const select_request *r = a->request;
    for (size_t i = 0; i < r->like_tie_count; i++) {
        const uint32_t alias = pick_of(a, r->like_ties[i].alias),
                       first = pick_of(a, r->like_ties[i].first);
        if (alias == CAT_NONE || first == CAT_NONE)
            continue;
        const select_pick *p = VEC_AT(&a->picks, const select_pick, alias);
        const bool is_recorded = p->tied_to != CAT_NONE;
        tie_behind(a, alias, first);
        if (!is_recorded)
            RETURN_IF(select_record_tie(a, VEC_AT(&a->picks, const select_pick, first), p, err));
    }
    return FSDPCK_OK;
}

fsdpck_status select_find_ties(select_state *a, fsdpck_error *err)
{
    RETURN_IF(tie_storages(a, err));
    RETURN_IF(tie_described(a, err));
    RETURN_IF(omit_tied_head(a, err));
    return omit_like_ties(a, err);
}

/* --- applying ties --- */

static fsdpck_status add_name(select_state *a, vec *to, const select_pick *p, uint32_t tensor,
                              fsdpck_error *err)
{
    target_dropped *d = vec_push(to, err);
    if (d == NULL)
        return FSDPCK_LIMIT;
    d->tensor = tensor;
    return strtab_intern(&a->to->cat.names, strtab_text(&a->names, p->name),
                         strtab_nbytes(&a->names, p->name), &d->name, err);
}

static fsdpck_status drop_tied(select_state *a, const select_pick *p, const select_pick *head,
                               fsdpck_error *err)
{
    a->result->tied_dropped++;
    a->result->tied_dropped_nbytes += catalogue_tensor_nbytes(a->from, p->source);
    if (head == p || head->target == CAT_NONE || p->is_omitted_tie)
        return FSDPCK_OK;
    return add_name(a, &a->to->dropped, p, head->target, err);
}

fsdpck_status select_assign_tied(select_state *a, fsdpck_error *err)
{
    for (uint32_t k = 0; k < a->picks.count; k++) {
        select_pick *p = VEC_AT(&a->picks, select_pick, k);
        a->result->merged += p->is_merged;
        a->result->merged_nbytes += p->is_merged ? catalogue_tensor_nbytes(a->from, p->source) : 0;
        if (p->target != CAT_NONE || p->is_merged)
            continue;
        const select_pick *head = select_tied_primary(a, k);
        if (!p->is_linked) {
            RETURN_IF(drop_tied(a, p, head, err));
            continue;
        }
        p->target = head->target;
        if (p->target != CAT_NONE) /* a second name of a target tensor, for the manifest */
            RETURN_IF(add_name(a, &a->to->linked, p, p->target, err));
        a->tensor_map[p->source] = p->target;
        a->result->tensors_out++;
        a->result->nbytes_out += catalogue_tensor_nbytes(a->from, p->source);
    }
    return FSDPCK_OK;
}
