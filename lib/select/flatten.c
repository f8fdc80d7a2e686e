/* flatten.c: shards original parameters as FSDP1's flat ones. An interval of a flat parameter is a
 * few boxes of each parameter that it meets, so the plan needs no notion of flat parameters. */
#include <inttypes.h>
#include <string.h>

#include "base/text.h"
#include "model/fqn.h"
#include "select/select_internal.h"

static fsdpck_status check_shape(const select_state *a, const select_pick *pick,
                                 const unit_param *p, fsdpck_error *err)
{
    const unit_list *l = a->to->units;
    const cat_tensor *t = catalogue_tensor(a->from, pick->source);
    const uint64_t *shape = catalogue_shape(a->from, pick->source);
    const uint64_t *wanted = unit_param_shape(l, p);
    if (shape_equal(shape, t->ndim, wanted, p->ndim))
        return FSDPCK_OK;
    const fsdpck_status st = FAIL_WITH(err, BADINPUT, MODEL_MISMATCH,
                                       ("shape of the tensor differs from the model's parameter"),
                                       (tensor, strtab_text(&a->names, pick->name)));
    text_buf text = {0};
    for (unsigned side = 0; side < 2; side++) {
        const unsigned ndim = side == 0 ? p->ndim : t->ndim;
        text.nbytes = 0;
        text_puts(&text, "[");
        for (unsigned d = 0; d < ndim; d++)
            text_printf(&text, "%s%" PRIu64, d == 0 ? "" : ", ", (side == 0 ? wanted : shape)[d]);
        text_puts(&text, "]");
        if (text_check(&text, NULL) != FSDPCK_OK)
            break;
        if (side == 0)
            error_expected(err, "%s", text.text);
        else
            error_found(err, "%s", text.text);
    }
    text_release(&text);
    return st;
}

static fsdpck_status fail_missing(const select_state *a, const unit_param *p, fsdpck_error *err)
{
    return FAIL_WITH(err, BADINPUT, MODEL_MISMATCH, ("a parameter of the model is not selected"),
                     (tensor, unit_name(a->to->units, p->fqn, NULL)),
                     (next, "select all parameters of a flat parameter: check --keys, --exclude, "
                            "--strip-prefix and --rename, and fsdpck-model(5)"));
}

/* The parameter that a name means, directly or, with --keep-names, without its wrappers. *is_own: by its
 * own name, else by a shared one. */
static const unit_param *find_param(const select_state *a, const char *name, size_t nbytes,
                                    text_buf *clean, const unit **u, bool *is_own)
{
    const unit_list *l = a->to->units;
    const unit_param *p = unit_list_find_param(l, name, nbytes, u);
    if (p == NULL && !a->request->clean) {
        clean->nbytes = 0;
        fqn_clean(name, nbytes, a->parts->model_has_ddp, clean);
        text_append(clean, "", 0);
        if (clean->failed || clean->nbytes == nbytes)
            return NULL;
        name = clean->text, nbytes = clean->nbytes;
        p = unit_list_find_param(l, name, nbytes, u);
    }
    if (p == NULL)
        return NULL;
    size_t own_nbytes;
    const char *own = unit_name(l, p->fqn, &own_nbytes);
    *is_own = text_equal(own, own_nbytes, name, nbytes);
    return p;
}

static fsdpck_status fail_twice(const select_state *a, const select_pick *first,
                                const select_pick *pick, const unit_param *p, fsdpck_error *err)
{
    return FAIL_WITH(err, USAGE, KEY_DUP,
                     ("two tensors mean one parameter of the model, '%s'",
                      unit_name(a->to->units, p->fqn, NULL)),
                     (tensor, strtab_text(&a->names, pick->name)),
                     (found, "'%s' too", strtab_text(&a->names, first->name)),
                     (next, "omit one of them: --exclude"));
}

static fsdpck_status take_param(select_state *a, uint32_t k, const unit_param *p, bool shared,
                                uint32_t *filled, fsdpck_error *err)
{
    select_pick *pick = VEC_AT(&a->picks, select_pick, k);
    RETURN_IF(check_shape(a, pick, p, err));
    const uint32_t param = (uint32_t)(p - (const unit_param *)a->to->units->params.items);
    if (filled[param] == CAT_NONE) {
        filled[param] = k;
        pick->param = param;
        return FSDPCK_OK;
    }
    select_pick *first = VEC_AT(&a->picks, select_pick, filled[param]);
    if (!shared)
        return fail_twice(a, first, pick, p, err);
    pick->is_alias = true;
    return pick->tied_to == CAT_NONE ? select_record_tie(a, first, pick, err) : FSDPCK_OK;
}

/* One pass over the picks: by a parameter's own name, or by its shared ones. A shared name is used
 * for a parameter without its own name. */
static fsdpck_status find_named(select_state *a, bool shared, uint32_t *filled, fsdpck_error *err)
{
    text_buf clean = {0};
    fsdpck_status st = FSDPCK_OK;
    for (uint32_t k = 0; st == FSDPCK_OK && k < a->picks.count; k++) {
        const select_pick *pick = VEC_AT(&a->picks, const select_pick, k);
        const unit *u = NULL;
        bool is_own = false;
        const unit_param *p = find_param(a, strtab_text(&a->names, pick->name),
                                         strtab_nbytes(&a->names, pick->name), &clean, &u, &is_own);
        if (clean.failed)
            st = text_check(&clean, err);
        else if (p != NULL && unit_is_sharded(u) && is_own != shared &&
                 a->parts->tensor_part[pick->source] == PART_MODEL)
            st = take_param(a, k, p, shared, filled, err);
    }
    text_release(&clean);
    return st;
}

fsdpck_status flatten_find_params(select_state *a, fsdpck_error *err)
{
    const unit_list *l = a->to->units;
    const size_t nbytes = l->params.count * sizeof(uint32_t);
    uint32_t *filled = budget_alloc(a->from->owner, nbytes, err);
    if (filled == NULL)
        return FSDPCK_LIMIT;
    if (nbytes > 0)
        memset(filled, 0xff, nbytes);
    fsdpck_status st = find_named(a, false, filled, err);
    if (st == FSDPCK_OK)
        st = find_named(a, true, filled, err);
    for (uint32_t i = 0; st == FSDPCK_OK && i < unit_count(l); i++) {
        const unit *u = unit_at(l, i);
        for (uint32_t k = 0; st == FSDPCK_OK && unit_is_sharded(u) && k < u->nparams; k++)
            if (filled[u->first_param + k] == CAT_NONE)
                st = fail_missing(a, unit_param_at(l, u, k), err);
    }
    budget_free(a->from->owner, filled, nbytes);
    return st;
}

/* ---- chunks ---- */

/* Dims, outermost in memory first, to iterate index by index so that the rest of the box is
 * row-major. */
static unsigned walked_dims(const unit_boxes *b, unsigned ndim)
{
    uint64_t inner = NDIM_MAX;
    unsigned walked = ndim;
    for (unsigned i = ndim; b->order != NULL && i-- > 0;) {
        const uint64_t d = b->order[i];
        if (b->sizes[d] > 1) {
            if (d > inner)
                return walked;
            inner = d;
        }
        walked = i;
    }
    return 0;
}

/* A box of a permuted parameter is stored in memory order, chunks are row-major: it is split into
 * parts that are both, such as one pixel's channels. */
static fsdpck_status add_box(select_state *a, uint32_t index, unsigned ndim, uint16_t rank,
                             const unit_boxes *b, fsdpck_error *err)
{
    const cat_chunk proto = {.file = CAT_NONE, .rank = rank, .place = LOCATION_ROWS};
    const unsigned walked = walked_dims(b, ndim);
    uint64_t offsets[NDIM_MAX], sizes[NDIM_MAX];
    memcpy(offsets, b->offsets, ndim * sizeof *offsets);
    memcpy(sizes, b->sizes, ndim * sizeof *sizes);
    for (unsigned i = 0; i < walked; i++)
        sizes[b->order[i]] = 1;
    for (;;) {
        RETURN_IF(catalogue_add_chunk(&a->to->cat, index, offsets, sizes, &proto, err));
        unsigned i = walked;
        for (; i > 0; i--) {
            const uint64_t d = b->order[i - 1];
            if (++offsets[d] < b->offsets[d] + b->sizes[d])
                break;
            offsets[d] = b->offsets[d];
        }
        if (i == 0)
            return FSDPCK_OK;
    }
}

static fsdpck_status cut_rank(select_state *a, const select_pick *pick, uint32_t index,
                              const unit_param *p, const unit_param_range *piece, uint16_t rank,
                              fsdpck_error *err)
{
    unit_boxes b;
    if (!piece->in_shard || piece->begin >= piece->end)
        return FSDPCK_OK;
    if (pick->param == CAT_NONE) { /* a scalar beside it */
        static const uint64_t none[NDIM_MAX];
        const cat_chunk whole = {.file = CAT_NONE, .rank = rank, .place = LOCATION_ROWS};
        return catalogue_add_chunk(&a->to->cat, index, none, none, &whole, err);
    }
    unit_boxes_init(&b, a->to->units, p, piece->begin, piece->end);
    while (unit_boxes_next(&b))
        RETURN_IF(add_box(a, index, p->ndim, rank, &b, err));
    return FSDPCK_OK;
}

void flatten_rank_range(const select_state *a, const unit *u, const unit_param *p, uint32_t *first,
                        uint32_t *end)
{
    *first = 0;
    *end = p->nelems == 0 ? 0 : (uint32_t)a->to->world_size;
    if (!unit_is_sharded(u) || p->nelems == 0)
        return;
    *first = (uint32_t)(p->offset / u->shard_size);
    *end = (uint32_t)((p->offset + p->nelems - 1) / u->shard_size) + 1;
}

fsdpck_status flatten_add_chunks(select_state *a, const select_pick *pick, uint32_t index,
                                 fsdpck_error *err)
{
    const unit_list *l = a->to->units;
    const uint32_t param = pick->param == CAT_NONE ? pick->held_by : pick->param;
    const unit_param *p = VEC_AT(&l->params, const unit_param, param);
    const unit *u = unit_of_param(l, param);
    uint32_t first, end;

    if (a->request->sharding->no_chunks)
        return FSDPCK_OK;
    flatten_rank_range(a, u, p, &first, &end);
    for (uint32_t rank = first; rank < end; rank++) {
        const unit_param_range piece =
            unit_param_range_of(l, u, param - u->first_param, unit_is_sharded(u) ? rank : 0);
        const fsdpck_status st = cut_rank(a, pick, index, p, &piece, (uint16_t)rank, err);
        if (st != FSDPCK_OK) {
            error_tensor(err, strtab_text(&a->names, pick->name));
            return st;
        }
    }
    return FSDPCK_OK;
}

fsdpck_status flatten_check_dtypes(const select_state *a, fsdpck_error *err)
{
    const catalogue *cat = &a->to->cat;
    const unit_list *l = a->to->units;
    const size_t nbytes = l->params.count;
    uint8_t *dtypes = budget_alloc(a->from->owner, nbytes, err);
    if (dtypes == NULL)
        return FSDPCK_LIMIT;
    for (size_t i = 0; i < a->to->flat_params.count; i++) {
        const uint32_t param = *VEC_AT(&a->to->flat_params, const uint32_t, i);
        if (param != CAT_NONE && *VEC_AT(&a->to->flat_states, const uint32_t, i) == 0)
            dtypes[param] = catalogue_tensor(cat, i)->dtype;
    }
    fsdpck_status st = FSDPCK_OK;
    const bool has_model = a->request->part != PART_OPTIMIZER;
    for (uint32_t i = 0; has_model && st == FSDPCK_OK && i < unit_count(l); i++) {
        const unit *u = unit_at(l, i);
        if (unit_is_sharded(u) && u->nparams > 0 &&
            dtype_get((dtype)dtypes[u->first_param])->kind != DTYPE_IS_FLOAT)
            st = FAIL_WITH(err, UNSUPPORTED, KEY_DTYPE,
                           ("FSDP flattens only floating-point tensors"),
                           (tensor, unit_name(l, unit_param_at(l, u, 0)->fqn, NULL)),
                           (found, "%s", dtype_get((dtype)dtypes[u->first_param])->name));
        for (uint32_t k = 1; st == FSDPCK_OK && unit_is_sharded(u) && k < u->nparams; k++) {
            if (dtypes[u->first_param + k] == dtypes[u->first_param])
                continue;
            st = FAIL_WITH(
                err, UNSUPPORTED, KEY_DTYPE, ("a flat parameter cannot contain two dtypes"),
                (tensor, unit_name(l, unit_param_at(l, u, k)->fqn, NULL)),
                (expected, "%s, as '%s' has", dtype_get((dtype)dtypes[u->first_param])->name,
                 unit_name(l, unit_param_at(l, u, 0)->fqn, NULL)),
                (found, "%s", dtype_get((dtype)dtypes[u->first_param + k])->name),
                (next, "cast with --dtype"));
        }
    }
    budget_free(a->from->owner, dtypes, nbytes);
    return st;
}
