#include <string.h>

#include "layout/mesh_infer.h"
#include "layout/shard_box.h"
#include "layout/slice.h"
#include "model/fqn.h"
#include "select/optim_state_map.h"
#include "select/select_internal.h"

/* Limit for empty boxes of one tensor that differ only in offsets; torch's layouts have a
 * handful. */
#define EMPTY_MAX 64u

/* ---- the source's side ---- */

static bool is_whole(const catalogue *c, uint64_t chunk, const uint64_t *shape, unsigned ndim)
{
    uint64_t sizes[NDIM_MAX];
    catalogue_chunk_box(c, chunk, NULL, sizes);
    return memcmp(sizes, shape, ndim * sizeof *sizes) == 0;
}

bool select_source_is_sharded(const catalogue *c)
{
    if (c->origin.world_size <= 1 || c->origin.by_flat_buffers)
        return false;
    for (size_t i = 0; i < catalogue_tensor_count(c); i++) {
        const cat_tensor *t = catalogue_tensor(c, i);
        for (uint32_t k = 0; k < t->nchunks; k++)
            if (!is_whole(c, t->first_chunk + k, catalogue_shape(c, i), t->ndim))
                return true;
    }
    return false;
}

static bool same_shape(const catalogue *c, uint32_t x, uint32_t y)
{
    const unsigned ndim = catalogue_tensor(c, x)->ndim;
    return catalogue_tensor(c, y)->ndim == ndim &&
           memcmp(catalogue_shape(c, x), catalogue_shape(c, y), ndim * sizeof(uint64_t)) == 0;
}

/* The tensor of that name below the outer key of the model, which may be ""; CAT_NONE: none. */
static uint32_t find_below(const catalogue *c, const char *model_key, const char *fqn)
{
    text_buf key = {0};
    if (model_key[0] != '\0') {
        text_puts(&key, model_key);
        text_puts(&key, ".");
    }
    text_puts(&key, fqn);
    const uint32_t found =
        text_check(&key, NULL) == FSDPCK_OK ? catalogue_find(c, key.text, key.nbytes) : CAT_NONE;
    text_release(&key);
    return found;
}

static uint32_t find_parameter(const select_state *a, const char *fqn)
{
    return find_below(a->from, a->parts->model_depth > 0 ? a->parts->model_key : "", fqn);
}

/* Whether the model has that parameter with a different shape; then the tensor is no moment of
 * it. */
static bool parameter_differs(const select_state *a, uint32_t from, const text_buf *fqn)
{
    const uint32_t other = find_parameter(a, fqn->text == NULL ? "" : fqn->text);
    return other != CAT_NONE && !same_shape(a->from, other, from);
}

/* The final name of a model tensor without the outer key, for the rules of the layout. */
static void model_name(const select_state *a, const select_pick *pick, text_buf *fqn)
{
    const char *name = strtab_text(&a->names, pick->name);
    size_t nbytes = strtab_nbytes(&a->names, pick->name);
    const size_t outer = strlen(a->parts->model_key);
    if (a->parts->model_depth > 0 && nbytes > outer + 1 &&
        memcmp(name, a->parts->model_key, outer) == 0 && name[outer] == '.') {
        name += outer + 1;
        nbytes -= outer + 1;
    }
    fqn->nbytes = 0;
    text_append(fqn, name, nbytes);
}

static bool may_own_state(const select_state *a, uint32_t i);

/* Whether state of an unknown parameter has a shape that no parameter has: its parameter's differs. */
static bool all_parameters_differ(const select_state *a, uint32_t from)
{
    const cat_tensor *s = catalogue_tensor(a->from, from);
    bool has_model = false;
    if (s->param != CAT_NONE || !(s->flags & CAT_TENSOR_PARAM_OPEN) || s->ndim == 0)
        return false;
    for (uint32_t i = 0; i < a->parts->tensor_count; i++) {
        has_model = has_model || a->parts->tensor_part[i] == PART_MODEL;
        if (same_shape(a->from, i, from) && may_own_state(a, i))
            return false;
    }
    return has_model;
}

static void describe_source(const select_state *a, const select_pick *pick, text_buf *fqn,
                            text_buf *outer, layout_tensor *t)
{
    const catalogue *c = a->from;
    const uint32_t from = pick->source;
    const cat_tensor *s = catalogue_tensor(c, from);
    *t = (layout_tensor){
        .dtype = (dtype)s->dtype, .ndim = s->ndim, .shape = catalogue_shape(c, from)};
    const cat_spec *spec = catalogue_spec(c, from);
    if (spec != NULL) {
        t->source_mesh = catalogue_mesh(c, spec->mesh);
        t->source = spec->placements;
        t->source_absent_dims = spec->absent_dims;
    }
    t->source_whole = a->source_is_sharded && s->nchunks > 0 && s->ndim > 0 &&
                      is_whole(c, s->first_chunk, t->shape, s->ndim);
    if (a->parts->tensor_part[from] != PART_OPTIMIZER) {
        model_name(a, pick, fqn);
    } else if (!optim_state_map_param(c, a->parts, s, fqn)) {
        fqn->nbytes = 0;
        text_append(fqn, "", 0);
    } else if (parameter_differs(a, from, fqn) || all_parameters_differ(a, from)) {
        t->odd_state = true;
        t->source_whole = spec == NULL;
    }
    t->fqn = fqn->text == NULL ? "" : fqn->text;
    if (a->parts->model_depth > 0 && t->fqn[0] != '\0') {
        text_printf(outer, "%s.", a->parts->model_key);
        text_append(outer, fqn->text, fqn->nbytes);
        t->outer_fqn = outer->text;
    }
}

/* ---- the target's side ---- */

typedef struct shard_state {
    select_state *a;
    const mesh *m;
    uint32_t index;
    unsigned ndim;
    const uint64_t *shape;
    cat_spec spec;                       /* but for its mesh */
    uint64_t empty[EMPTY_MAX][NDIM_MAX]; /* offsets of the empty boxes added */
    unsigned empty_count;
} shard_state;

static bool is_new_empty(shard_state *s, const uint64_t *offsets)
{
    for (unsigned i = 0; i < s->empty_count; i++) {
        if (memcmp(s->empty[i], offsets, s->ndim * sizeof *offsets) == 0)
            return false;
    }
    if (s->empty_count < EMPTY_MAX)
        memcpy(s->empty[s->empty_count++], offsets, s->ndim * sizeof *offsets);
    return true;
}

static fsdpck_status shard_over_ranks(shard_state *s, fsdpck_error *err)
{
    const shard_request *sharding = s->a->request->sharding;
    const uint64_t world_size = s->a->to->world_size;
    uint64_t coord[MESH_NDIM_MAX], offsets[NDIM_MAX], sizes[NDIM_MAX];
    for (uint64_t rank = 0; rank < world_size; rank++) {
        mesh_coord(s->m, rank, coord);
        if (!sharding->every_rank && !shard_is_first_holder(s->m, s->spec.placements, coord))
            continue;
        RETURN_IF(shard_box(s->m, s->spec.placements, s->ndim, s->shape, coord, SHARD_PHYSICAL,
                            offsets, sizes, err));
        if (!sharding->every_rank && box_nelems(sizes, s->ndim) == 0 && !is_new_empty(s, offsets))
            continue;
        const cat_chunk k = {.file = CAT_NONE, .rank = (uint16_t)rank, .place = LOCATION_ROWS};
        RETURN_IF(catalogue_add_chunk(&s->a->to->cat, s->index, offsets, sizes, &k, err));
    }
    return FSDPCK_OK;
}

/* only_rank: UINT16_MAX, or the only rank that stores it. */
static fsdpck_status add_whole(select_state *a, uint32_t index, uint16_t only_rank,
                               fsdpck_error *err)
{
    static const uint64_t origin[NDIM_MAX] = {0};
    const shard_request *sharding = a->request->sharding;
    catalogue *cat = &a->to->cat;
    const uint64_t copies = sharding == NULL       ? 1
                            : sharding->no_chunks  ? 0
                            : sharding->every_rank ? a->to->world_size
                                                   : 1;
    uint64_t shape[NDIM_MAX];
    memcpy(shape, catalogue_shape(cat, index), catalogue_tensor(cat, index)->ndim * sizeof *shape);
    for (uint64_t rank = 0; rank < copies; rank++) {
        if (copies > 1 && only_rank != UINT16_MAX && rank != only_rank)
            continue;
        const cat_chunk whole = {.file = CAT_NONE,
                                 .rank = sharding == NULL ? UINT16_MAX : (uint16_t)rank,
                                 .place = LOCATION_ROWS};
        RETURN_IF(catalogue_add_chunk(cat, index, origin, shape, &whole, err));
    }
    return FSDPCK_OK;
}

/* OTHER's tensor of the same name, or of the same parameter (a moment follows its parameter, also
 * where OTHER has no optimizer, and the outer key of the model may differ); CAT_NONE: none. */
static uint32_t find_like(const shard_state *s, const select_pick *pick, const char *fqn)
{
    const select_state *a = s->a;
    const shard_request *sharding = a->request->sharding;
    const uint32_t same = catalogue_find(sharding->like, strtab_text(&a->names, pick->name),
                                         strtab_nbytes(&a->names, pick->name));
    if (same != CAT_NONE || fqn[0] == '\0')
        return same;
    const uint32_t other = find_below(sharding->like, sharding->like_model_key, fqn);
    return other != CAT_NONE &&
                   shape_equal(catalogue_shape(sharding->like, other),
                               catalogue_tensor(sharding->like, other)->ndim, s->shape, s->ndim)
               ? other
               : CAT_NONE;
}

/* --like: the placements of OTHER's tensor, on the same slice; false if it has none or does not
 * record them. */
static bool copy_like_placements(shard_state *s, const select_pick *pick, const char *fqn)
{
    const catalogue *like = s->a->request->sharding->like;
    if (like == NULL)
        return false;
    const uint32_t other = find_like(s, pick, fqn);
    const bool found = other != CAT_NONE && catalogue_tensor(like, other)->ndim == s->ndim;
    s->a->result->not_in_like += s->ndim > 0 && !found ? 1 : 0;
    if (!found)
        return false;
    const cat_spec *spec = catalogue_spec(like, other);
    if (spec != NULL)
        return mesh_slice_widen(s->m, catalogue_mesh(like, spec->mesh), spec, &s->spec);
    const cat_tensor *t = catalogue_tensor(like, other); /* whole on every rank: Replicate */
    return t->nchunks > 0 && is_whole(like, t->first_chunk, catalogue_shape(like, other), t->ndim);
}

static fsdpck_status place_by_rules(shard_state *s, const layout_tensor *t, fsdpck_error *err)
{
    const shard_request *sharding = s->a->request->sharding;
    select_result *result = s->a->result;
    const uint64_t moved = sharding->layout->moved;
    RETURN_IF(
        layout_get_placements(sharding->layout, t, sharding->any_size, s->spec.placements, err));
    if (moved == 0 && sharding->layout->moved > 0)
        result->moved_first = s->index;
    s->spec.absent_dims = layout_absent_dims(sharding->layout, t);
    for (unsigned i = 0; i < s->m->ndim; i++)
        if (s->spec.placements[i].kind != PLACEMENT_REPLICATE)
            s->spec.absent_dims &= (uint8_t) ~(1u << i);
    return FSDPCK_OK;
}

static fsdpck_status place_named(shard_state *s, const select_pick *pick, const layout_tensor *t,
                                 fsdpck_error *err)
{
    return copy_like_placements(s, pick, t->fqn) ? FSDPCK_OK : place_by_rules(s, t, err);
}

static bool same_placements(const shard_state *a, const shard_state *b)
{
    for (unsigned i = 0; i < a->m->ndim; i++) {
        const placement *x = &a->spec.placements[i], *y = &b->spec.placements[i];
        if (x->kind != y->kind || (x->kind != PLACEMENT_REPLICATE &&
                                   (x->dim != y->dim || x->split_factor != y->split_factor)))
            return false;
    }
    return a->spec.absent_dims == b->spec.absent_dims;
}

static fsdpck_status refuse_unknown_layout(const checkpoint_parts *parts, const char *one,
                                           const char *other, fsdpck_error *err)
{
    return FAIL_WITH(
        err, BADINPUT, MODEL_NEEDED,
        ("optimizer state keyed by number is sharded like its parameter, which is unknown"),
        (found, "candidates '%.100s' and '%.100s', which are sharded differently", one, other),
        (next,
         "describe the model and its optimizer with scripts/describe_model.py and give --model "
         "FILE%s",
         parts->assumes_order ? ""
                              : "; or give --assume order if the optimizer received the "
                                "parameters in the order of model.parameters()"));
}

/* Shards the state like model tensor i. */
static fsdpck_status place_as(const shard_state *s, const select_pick *pick, const layout_tensor *t,
                              uint32_t i, fsdpck_error *err)
{
    const select_state *a = s->a;
    const uint32_t name = catalogue_tensor(a->from, i)->name;
    const size_t outer = a->parts->tensor_part[i] == PART_MODEL && a->parts->model_depth > 0
                             ? strlen(a->parts->model_key) + 1
                             : 0;
    shard_state other = *s;
    layout_tensor named = *t;
    text_buf fqn = {0}, whole = {0};
    if (catalogue_name_nbytes(a->from, name) <= outer)
        return FSDPCK_OK;
    fqn_clean(catalogue_name(a->from, name) + outer, catalogue_name_nbytes(a->from, name) - outer,
              a->parts->model_has_ddp, &fqn);
    text_append(&fqn, "", 0);
    text_append(&whole, catalogue_name(a->from, name), outer);
    text_append(&whole, fqn.text == NULL ? "" : fqn.text, fqn.nbytes);
    fsdpck_status st = text_check(&fqn, err);
    if (st == FSDPCK_OK)
        st = text_check(&whole, err);
    if (st == FSDPCK_OK) {
        named.fqn = fqn.text;
        named.outer_fqn = outer > 0 ? whole.text : t->outer_fqn;
        st = place_named(&other, pick, &named, err);
    }
    if (st == FSDPCK_OK && !same_placements(s, &other))
        st = refuse_unknown_layout(a->parts, t->fqn, named.fqn, err);
    text_release(&fqn);
    text_release(&whole);
    return st;
}

/* Whether numbered state may belong to it: a tensor of the model, or one beside it that is no
 * copy. */
static bool may_own_state(const select_state *a, uint32_t i)
{
    const cat_tensor *t = catalogue_tensor(a->from, i);
    if (a->parts->tensor_part[i] == PART_OPTIMIZER || (t->flags & CAT_TENSOR_IN_OBJECT))
        return false;
    if (a->parts->tensor_part[i] == PART_MODEL)
        return true;
    const size_t count = value_count(&a->from->pool, t->path);
    size_t nbytes = 0;
    const value v = count == 0 ? VALUE_OF_NONE : value_item(&a->from->pool, t->path, count - 1);
    const char *text = value_text(&a->from->pool, v, &nbytes);
    text_buf fqn = {0};
    if (text != NULL)
        fqn_clean(text, nbytes, a->parts->model_has_ddp, &fqn);
    text_append(&fqn, "", 0);
    const uint32_t param = fqn.text == NULL ? CAT_NONE : find_parameter(a, fqn.text);
    text_release(&fqn);
    return param == CAT_NONE || !same_shape(a->from, param, i);
}

/* State of one of several parameters: all must be sharded alike. Once for each kind. */
static fsdpck_status check_unknown_layout(const shard_state *s, const select_pick *pick,
                                          const layout_tensor *t, fsdpck_error *err)
{
    select_state *a = s->a;
    const catalogue *c = a->from;
    const cat_tensor *state = catalogue_tensor(c, pick->source);
    const uint64_t not_in_like = a->result->not_in_like;
    const uint32_t param = find_parameter(a, t->fqn);

    for (size_t i = 0; i < a->open_states.count; i++) {
        const uint32_t seen = *VEC_AT(&a->open_states, const uint32_t, i);
        if (same_shape(c, seen, pick->source) && catalogue_tensor(c, seen)->dtype == state->dtype &&
            catalogue_tensor(c, seen)->spec == state->spec)
            return FSDPCK_OK;
    }
    const uint32_t like = param != CAT_NONE ? param : pick->source;
    for (uint32_t i = 0; i < a->parts->tensor_count; i++)
        if (may_own_state(a, i) && i != param && same_shape(c, i, like))
            RETURN_IF(place_as(s, pick, t, i, err));
    a->result->not_in_like = not_in_like;
    return vec_add(&a->open_states, &(uint32_t){pick->source}, err);
}

static fsdpck_status choose_placements(shard_state *s, const select_pick *pick, fsdpck_error *err)
{
    text_buf fqn = {0}, outer = {0};
    layout_tensor t;
    describe_source(s->a, pick, &fqn, &outer, &t);
    fsdpck_status st = text_check(&fqn, err);
    if (st == FSDPCK_OK)
        st = text_check(&outer, err);
    if (st == FSDPCK_OK)
        st = place_named(s, pick, &t, err);
    if (st == FSDPCK_OK && s->ndim > 0 &&
        (catalogue_tensor(s->a->from, pick->source)->flags & CAT_TENSOR_PARAM_OPEN))
        st = check_unknown_layout(s, pick, &t, err);
    text_release(&fqn);
    text_release(&outer);
    return st;
}

static bool is_replicated(const shard_state *s)
{
    for (unsigned i = 0; i < s->m->ndim; i++) {
        if (s->spec.placements[i].kind != PLACEMENT_REPLICATE)
            return false;
    }
    return true;
}

uint16_t select_only_rank(const select_state *a, const select_pick *pick)
{
    const cat_tensor *t = catalogue_tensor(a->from, pick->source);
    const shard_request *sharding = a->request->sharding;
    if (!(t->flags & CAT_TENSOR_OF_RANK) || t->nchunks == 0 || sharding == NULL ||
        !sharding->every_rank || (int64_t)a->to->world_size != a->from->origin.world_size)
        return UINT16_MAX;
    return catalogue_chunk(a->from, t->first_chunk)->rank;
}

fsdpck_status select_shard_tensor(select_state *a, const select_pick *pick, uint32_t from,
                                  uint32_t index, fsdpck_error *err)
{
    const shard_request *sharding = a->request->sharding;
    if (sharding == NULL || pick == NULL)
        return add_whole(a, index, pick == NULL ? a->inner_rank : UINT16_MAX, err);
    const uint16_t own = select_only_rank(a, pick);
    if (own != UINT16_MAX) {
        catalogue_tensor(&a->to->cat, index)->flags |= CAT_TENSOR_OF_RANK;
        return add_whole(a, index, own, err);
    }
    if (sharding->units != NULL)
        return pick->param == CAT_NONE && pick->held_by == CAT_NONE
                   ? add_whole(a, index, UINT16_MAX, err)
                   : flatten_add_chunks(a, pick, index, err);
    catalogue *cat = &a->to->cat;
    shard_state s = {.a = a,
                     .m = &sharding->layout->mesh,
                     .index = index,
                     .ndim = catalogue_tensor(cat, index)->ndim};
    uint64_t shape[NDIM_MAX];
    memcpy(shape, catalogue_shape(cat, index), s.ndim * sizeof *shape);
    s.shape = shape;
    fsdpck_status st = choose_placements(&s, pick, err);
    /* A tensor that is plain on every rank of the source stays plain, and so does one without a
     * mesh dim (with TP only). */
    const bool plain = is_replicated(&s) && (catalogue_spec(a->from, from) == NULL ||
                                             s.spec.absent_dims == (1u << s.m->ndim) - 1);
    if (st == FSDPCK_OK && plain)
        st = add_whole(a, index, UINT16_MAX, err);
    if (st == FSDPCK_OK && !plain) {
        st = catalogue_add_mesh(cat, s.m, &s.spec.mesh, err);
        if (st == FSDPCK_OK)
            st = catalogue_add_spec(cat, &s.spec, &catalogue_tensor(cat, index)->spec, err);
        if (st == FSDPCK_OK && !sharding->no_chunks)
            st = shard_over_ranks(&s, err);
    }
    if (st != FSDPCK_OK)
        error_tensor(err, strtab_text(&a->names, pick->name));
    return st;
}

/* ---- a source without specs ---- */

/* Plain, on one rank or on several. */
static bool all_whole(const catalogue *c, size_t tensor)
{
    const cat_tensor *t = catalogue_tensor(c, tensor);
    bool whole = true;
    for (uint32_t k = 0; whole && k < t->nchunks; k++)
        whole = is_whole(c, t->first_chunk + k, catalogue_shape(c, tensor), t->ndim);
    return whole;
}

static fsdpck_status set_specs(catalogue *c, const explain *x, const mesh *m, fsdpck_error *err)
{
    cat_spec spec = {0};
    RETURN_IF(catalogue_add_mesh(c, m, &spec.mesh, err));
    for (size_t i = 0; i < catalogue_tensor_count(c); i++) {
        cat_tensor *t = catalogue_tensor(c, i);
        if (t->ndim == 0 || t->nchunks == 0 || (t->flags & CAT_TENSOR_IN_OBJECT) || all_whole(c, i))
            continue;
        memset(spec.placements, 0, sizeof spec.placements);
        if (mesh_infer_tensor(x, i, m, spec.placements))
            RETURN_IF(catalogue_add_spec(c, &spec, &t->spec, err));
    }
    return FSDPCK_OK;
}

fsdpck_status select_infer_specs(catalogue *c, unsigned nthreads, const cancel_token *cancel,
                                 uint64_t *otherwise, fsdpck_error *err)
{
    *otherwise = 0;
    if (c->specs.count > 0 || c->origin.world_size == 1 ||
        catalogue_chunk_count(c) <= catalogue_tensor_count(c))
        return FSDPCK_OK;
    explain x;
    mesh_infer_init(&x, c->origin.world_size > 0 ? (uint64_t)c->origin.world_size : 0, c->owner);
    fsdpck_status st = FSDPCK_OK;
    mesh m;
    bool found = false;
    GOTO_IF(mesh_infer_add(&x, c, nthreads, cancel, err), out);
    GOTO_IF(mesh_infer_solve(&x, &m, &found, err), out);
    *otherwise = x.otherwise;
    if (found)
        GOTO_IF(set_specs(c, &x, &m, err), out);
out:
    mesh_infer_release(&x);
    return st;
}
