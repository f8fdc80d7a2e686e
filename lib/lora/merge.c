#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "lora/merge_internal.h"
#include "lora/merge_kernel.h"
#include "state/cast.h"
#include "state/catalogue_copy.h"

/* --- the list --- */

void merge_list_init(merge_list *list, budget *owner)
{
    *list = (merge_list){.inputs = VEC_OF(merge_input, owner),
                         .targets = VEC_OF(merge_target, owner),
                         .steps = VEC_OF(merge_step, owner),
                         .rows = VEC_OF(uint64_t, owner),
                         .tied = STRTAB_NONE,
                         .tied_to = STRTAB_NONE,
                         .embedding = CAT_NONE,
                         .head = CAT_NONE};
    strtab_init(&list->names, owner);
    strtab_init(&list->adapters, owner);
}

void merge_list_release(merge_list *list)
{
    VEC_RELEASE_ALL(&list->inputs, &list->targets, &list->steps, &list->rows);
    strtab_release(&list->names);
    strtab_release(&list->adapters);
}

/* --- checks --- */

static fsdpck_status fail_fit(const merger *m, const merge_target *t, const merge_step *s,
                              uint32_t tensor, fsdpck_error *err)
{
    const catalogue *c = merge_input_at(m, s->input)->cat;
    const char *of = catalogue_name(c, catalogue_tensor(c, tensor)->name);
    return FAIL_WITH(err, BADINPUT, LORA_SHAPE,
                     ("'%s' of the adapter does not fit '%s'", of, merge_target_name(m, t)),
                     (tensor, of), (next, "give the base model that the adapter was trained on"));
}

static bool can_read(const merger *m, uint32_t input, uint32_t tensor, dtype to)
{
    const dtype d = (dtype)catalogue_tensor(merge_input_at(m, input)->cat, tensor)->dtype;
    return d == to || cast_supported(d, to);
}

/* The shapes of a product. */
static bool product_fits(const merger *m, const merge_step *s, const merge_shape *g)
{
    const catalogue *c = merge_input_at(m, s->input)->cat;
    const cat_tensor *a = catalogue_tensor(c, s->a), *b = catalogue_tensor(c, s->b);
    const uint64_t *sa = catalogue_shape(c, s->a), *sb = catalogue_shape(c, s->b);
    const uint64_t in = s->transposed ? g->rows : g->columns;
    const uint64_t out = s->transposed ? g->columns : g->rows;
    uint64_t stacked;
    if (a->ndim < 2 || b->ndim < 2 || !checked_mul(s->rank, g->experts, &stacked))
        return false;
    if (s->magnitude != CAT_NONE && (g->row > 0 || catalogue_tensor_nelems(c, s->magnitude) != out))
        return false;
    return s->rank > 0 && sa[0] == stacked && box_nelems(sa + 1, a->ndim - 1) == in &&
           sb[0] == out && box_nelems(sb + 1, b->ndim - 1) == stacked &&
           (!s->transposed || g->ndim == 2 + g->row);
}

static bool rows_fit(const merger *m, const merge_step *s, const merge_shape *g)
{
    const catalogue *c = merge_input_at(m, s->input)->cat;
    const uint64_t *shape = catalogue_shape(c, s->a);
    if (g->ndim != 2 || g->row != 0 || catalogue_tensor(c, s->a)->ndim != 2 ||
        shape[0] != s->row_count || shape[1] != g->columns)
        return false;
    for (uint64_t i = s->first_row; i < s->first_row + s->row_count; i++)
        if (*VEC_AT(&m->list.rows, const uint64_t, i) >= g->rows)
            return false;
    return true;
}

static bool step_fits(const merger *m, const merge_target *t, const merge_step *s,
                      const merge_shape *g)
{
    uint32_t input;
    const uint32_t tensor = merge_from(m, t, &input);
    const catalogue *c = merge_input_at(m, input)->cat, *a = merge_input_at(m, s->input)->cat;
    switch (s->kind) {
    case MERGE_PRODUCT:
        return product_fits(m, s, g);
    case MERGE_ROWS:
        return rows_fit(m, s, g);
    case MERGE_ADD:
        return shape_equal(catalogue_shape(c, tensor), g->ndim, catalogue_shape(a, s->a),
                           catalogue_tensor(a, s->a)->ndim);
    case MERGE_REPLACE:
        break;
    }
    return true;
}

static fsdpck_status fail_dtype(const merger *m, const merge_target *t, fsdpck_error *err)
{
    return FAIL_WITH(err, UNSUPPORTED, LORA_MERGE,
                     ("cannot merge an adapter into '%s' of dtype %s", merge_target_name(m, t),
                      dtype_get(merge_dtype(m, t))->name),
                     (tensor, merge_target_name(m, t)),
                     (expected, "float32, bfloat16, float16 or float64"),
                     (next, "of a quantized model: give --dequantize"));
}

static fsdpck_status check_step(const merger *m, const merge_target *t, const merge_step *s,
                                const merge_shape *g, fsdpck_error *err)
{
    const dtype d = merge_dtype(m, t);
    const dtype number = d == DTYPE_FLOAT64 ? DTYPE_FLOAT64 : DTYPE_FLOAT32;
    const dtype to = s->kind == MERGE_PRODUCT || s->kind == MERGE_ADD ? number : d;
    const bool product = s->kind == MERGE_PRODUCT;
    if (!step_fits(m, t, s, g))
        return fail_fit(m, t, s, s->a, err);
    if (s->kind != MERGE_REPLACE && !merge_dtype_supported(d))
        return fail_dtype(m, t, err);
    if (!can_read(m, s->input, s->a, to) || (product && !can_read(m, s->input, s->b, to)) ||
        (product && s->magnitude != CAT_NONE &&
         (d == DTYPE_FLOAT64 || !can_read(m, s->input, s->magnitude, to))))
        return FAIL_WITH(
            err, UNSUPPORTED, LORA_MERGE,
            ("the dtypes of '%s' and of its adapter cannot be merged", merge_target_name(m, t)),
            (tensor, merge_target_name(m, t)));
    return FSDPCK_OK;
}

/* The tensors that streams read, whose chunks are indexed now. */
static fsdpck_status add_readers(merger *m, const merge_target *t, fsdpck_error *err)
{
    uint32_t input;
    const uint32_t tensor = merge_from(m, t, &input);
    RETURN_IF(box_reader_add(VEC_AT(&m->readers, box_reader, input), tensor, err));
    for (uint64_t i = t->first_step; i < t->first_step + t->step_count; i++) {
        const merge_step *s = merge_step_at(m, i);
        box_reader *r = VEC_AT(&m->readers, box_reader, s->input);
        RETURN_IF(box_reader_add(r, s->a, err));
        if (s->kind == MERGE_PRODUCT)
            RETURN_IF(box_reader_add(r, s->b, err));
        if (s->kind == MERGE_PRODUCT && s->magnitude != CAT_NONE)
            RETURN_IF(box_reader_add(r, s->magnitude, err));
    }
    return FSDPCK_OK;
}

static fsdpck_status check_target(merger *m, const merge_target *t, fsdpck_error *err)
{
    const merge_shape g = merge_shape_of(m, t);
    if (t->step_count > MERGE_STEPS_MAX)
        return FAIL_WITH(err, LIMIT, LORA_MERGE,
                         ("more than %u changes of '%s'", MERGE_STEPS_MAX, merge_target_name(m, t)),
                         (tensor, merge_target_name(m, t)));
    for (uint64_t i = t->first_step; i < t->first_step + t->step_count; i++)
        RETURN_IF(check_step(m, t, merge_step_at(m, i), &g, err));
    return add_readers(m, t, err);
}

/* --- the second catalogue --- */

static fsdpck_status add_chunk(merger *m, uint32_t tensor, const merge_chunk *made,
                               const uint64_t *offsets, const uint64_t *sizes, cat_chunk *k,
                               fsdpck_error *err)
{
    if (m->chunks.count == UINT32_MAX)
        return FAIL(err, LIMIT, LIMIT_COUNT, "too many chunks");
    RETURN_IF(vec_add(&m->chunks, made, err));
    k->aux = (uint32_t)(m->chunks.count - 1);
    return catalogue_add_chunk(m->out, tensor, offsets, sizes, k, err);
}

/* A tensor of input 0 with its chunks. */
static fsdpck_status add_same(merger *m, const merge_target *t, uint32_t tensor, fsdpck_error *err)
{
    const catalogue *c = merge_input_at(m, 0)->cat;
    const cat_tensor *of = catalogue_tensor(c, tensor);
    uint32_t made;
    RETURN_IF(catalogue_add_tensor(m->out, merge_target_name(m, t),
                                   strtab_nbytes(&m->list.names, t->name), (dtype)of->dtype,
                                   of->ndim, catalogue_shape(c, tensor), &made, err));
    cat_tensor *to = catalogue_tensor(m->out, made);
    to->flags = of->flags & ~(CAT_TENSOR_IN_OBJECT | CAT_TENSOR_NAMED);
    to->python = of->python;
    to->spec = of->spec;
    *VEC_AT(&m->same, uint32_t, tensor) = made + 1;
    for (uint64_t i = of->first_chunk; i < of->first_chunk + of->nchunks; i++) {
        uint64_t offsets[NDIM_MAX], sizes[NDIM_MAX];
        cat_chunk k = *catalogue_chunk(c, i);
        catalogue_chunk_box(c, i, offsets, sizes);
        RETURN_IF(add_chunk(m, made, &(merge_chunk){.chunk = i, .target = MERGE_NONE}, offsets,
                            sizes, &k, err));
    }
    return FSDPCK_OK;
}

/* One chunk for a box. */
static fsdpck_status add_part(merger *m, uint32_t tensor, uint32_t target, uint64_t chunk,
                              const uint64_t *offsets, const uint64_t *sizes, cat_chunk proto,
                              fsdpck_error *err)
{
    const unsigned ndim = catalogue_tensor(m->out, tensor)->ndim;
    const merge_chunk made = {chunk, target, (uint32_t)m->boxes.count};
    if (m->boxes.count > MERGE_NONE - 2 * NDIM_MAX)
        return FAIL(err, LIMIT, LIMIT_COUNT, "too many chunks");
    RETURN_IF(vec_add_n(&m->boxes, offsets, ndim, err));
    RETURN_IF(vec_add_n(&m->boxes, sizes, ndim, err));
    proto.place = LOCATION_STRIDED;
    proto.nbytes = box_nelems(sizes, ndim) *
                   dtype_get((dtype)catalogue_tensor(m->out, tensor)->dtype)->itemsize_bytes;
    return add_chunk(m, tensor, &made, offsets, sizes, &proto, err);
}

/* A chunk as boxes of rows. A stream is not divided, because each part would decode it from its beginning. */
static fsdpck_status add_parts(merger *m, uint32_t tensor, uint32_t target, const catalogue *c,
                               uint64_t chunk, bool whole, const cat_chunk *proto,
                               fsdpck_error *err)
{
    const merge_shape g = merge_shape_of(m, merge_target_at(m, target));
    uint64_t offsets[NDIM_MAX], sizes[NDIM_MAX], from[NDIM_MAX], n[NDIM_MAX];
    catalogue_chunk_box(c, chunk, offsets, sizes);
    if (box_nelems(sizes, g.ndim) == 0)
        return FSDPCK_OK;
    memcpy(from, offsets, sizeof from);
    memcpy(n, sizes, sizeof n);
    if (g.ndim == 0)
        return add_part(m, tensor, target, chunk, from, n, *proto, err);
    const uint64_t *shape = catalogue_shape(m->out, tensor);
    for (unsigned d = g.row + 2; d < g.ndim; d++)
        if (sizes[d] != shape[d])
            return FAIL_WITH(
                err, UNSUPPORTED, LORA_MERGE,
                ("dim %u of '%s' is sharded", d, merge_target_name(m, merge_target_at(m, target))),
                (next, "consolidate the checkpoint first, without --merge-adapter"));
    const uint64_t row = box_nelems(sizes + g.row + 1, g.ndim - g.row - 1);
    uint64_t step = row >= MERGE_CHUNK_NELEMS ? 1 : MERGE_CHUNK_NELEMS / row;
    step = whole || step > sizes[g.row] ? sizes[g.row] : step;
    const uint64_t experts = g.row > 0 ? sizes[0] : 1;
    for (uint64_t e = 0; e < experts; e++) {
        for (uint64_t at = 0; at < sizes[g.row]; at += step) {
            if (g.row > 0) {
                from[0] = offsets[0] + e;
                n[0] = 1;
            }
            from[g.row] = offsets[g.row] + at;
            n[g.row] = sizes[g.row] - at < step ? sizes[g.row] - at : step;
            RETURN_IF(add_part(m, tensor, target, chunk, from, n, *proto, err));
        }
    }
    return FSDPCK_OK;
}

static fsdpck_status add_changed(merger *m, uint32_t target, fsdpck_error *err)
{
    const merge_target *t = merge_target_at(m, target);
    uint32_t input, made;
    const uint32_t tensor = merge_from(m, t, &input);
    const catalogue *c = merge_input_at(m, input)->cat, *base = merge_input_at(m, 0)->cat;
    const cat_tensor *of = catalogue_tensor(c, tensor), *old = catalogue_tensor(base, t->tensor);
    bool whole = false;
    RETURN_IF(catalogue_add_tensor(m->out, merge_target_name(m, t),
                                   strtab_nbytes(&m->list.names, t->name), merge_dtype(m, t),
                                   of->ndim, catalogue_shape(c, tensor), &made, err));
    cat_tensor *to = catalogue_tensor(m->out, made);
    to->flags = old->flags & (CAT_TENSOR_REQUIRES_GRAD | CAT_TENSOR_EACH_RANK);
    to->python = old->python;
    to->spec = input == 0 ? of->spec : CAT_NONE;
    if (!m->list.no_reading)
        RETURN_IF(box_first_is_stream(merge_reader_at(m, input), tensor, &whole, err));
    for (uint64_t i = of->first_chunk; i < of->first_chunk + of->nchunks; i++) {
        cat_chunk k = *catalogue_chunk(c, i);
        if (input != 0)
            k = old->nchunks > 0 ? *catalogue_chunk(base, old->first_chunk)
                                 : (cat_chunk){.rank = UINT16_MAX};
        RETURN_IF(add_parts(m, made, target, c, i, whole, &k, err));
    }
    m->changed++;
    return FSDPCK_OK;
}

/* A replacement by a tensor of input 0 with the same dtype needs no stream. */
static bool is_plain(const merger *m, const merge_target *t)
{
    uint32_t input;
    const uint32_t tensor = merge_from(m, t, &input);
    return t->step_count == 1 && input == 0 && tensor != t->tensor &&
           catalogue_tensor(merge_input_at(m, 0)->cat, tensor)->dtype == merge_dtype(m, t);
}

static fsdpck_status fill(merger *m, fsdpck_error *err)
{
    RETURN_IF(catalogue_copy_frame(m->out, merge_input_at(m, 0)->cat, err));
    for (uint32_t i = 0; i < m->list.targets.count; i++) {
        const merge_target *t = merge_target_at(m, i);
        uint32_t input;
        fsdpck_status st = FSDPCK_OK;
        if (t->step_count > 0)
            st = check_target(m, t, err);
        if (st == FSDPCK_OK && (t->step_count == 0 || is_plain(m, t))) {
            st = add_same(m, t, merge_from(m, t, &input), err);
            m->changed += t->step_count > 0;
        } else if (st == FSDPCK_OK) {
            st = add_changed(m, i, err);
        }
        if (st != FSDPCK_OK) {
            error_tensor(err, merge_target_name(m, t));
            return st;
        }
    }
    return catalogue_seal(m->out, err);
}

/* --- creation --- */

static fsdpck_status prepare(merger *m, budget *owner, fsdpck_error *err)
{
    const size_t tensors = catalogue_tensor_count(merge_input_at(m, 0)->cat);
    const size_t steps = m->list.steps.count;
    if (pthread_mutex_init(&m->lock, NULL) != 0)
        return error_set_nomem(err, sizeof m->lock);
    if (pthread_cond_init(&m->changed_state, NULL) != 0) {
        pthread_mutex_destroy(&m->lock);
        return error_set_nomem(err, sizeof m->changed_state);
    }
    m->locks = true;
    m->shared = calloc(steps + 1, sizeof *m->shared);
    if (m->shared == NULL)
        return error_set_nomem(err, (steps + 1) * sizeof *m->shared);
    if (tensors > 0 && vec_push_n(&m->same, tensors, err) == NULL)
        return FSDPCK_LIMIT;
    for (uint32_t i = 0; i < m->list.inputs.count; i++) {
        const merge_input *in = merge_input_at(m, i);
        box_reader *r = vec_push(&m->readers, err);
        if (r == NULL)
            return FSDPCK_LIMIT;
        box_reader_init(r, in->cat, in->src, owner);
    }
    return vec_reserve(&m->idle, steps + 1, err);
}

fsdpck_status merger_new(merge_list *list, catalogue *out, merger **made, fsdpck_error *err)
{
    *made = NULL;
    merger *m = calloc(1, sizeof *m);
    if (m == NULL) {
        merge_list_release(list);
        return error_set_nomem(err, sizeof *m);
    }
    *m = (merger){.list = *list, .out = out};
    *list = (merge_list){0};
    m->readers = VEC_OF(box_reader, out->owner);
    m->chunks = VEC_OF(merge_chunk, out->owner);
    m->boxes = VEC_OF(uint64_t, out->owner);
    m->same = VEC_OF(uint32_t, out->owner);
    m->idle = VEC_OF(uint64_t, out->owner);
    fsdpck_status st = prepare(m, out->owner, err);
    if (st == FSDPCK_OK)
        st = fill(m, err);
    if (st != FSDPCK_OK) {
        merger_free(m);
        return st;
    }
    merger_set_source(m);
    *made = m;
    return FSDPCK_OK;
}

const source *merger_source(const merger *m)
{
    return &m->source.source;
}

uint64_t merger_count(const merger *m)
{
    return m->changed;
}

uint32_t merger_same(const merger *m, uint32_t tensor)
{
    return *VEC_AT(&m->same, const uint32_t, tensor) - 1;
}

void merger_free(merger *m)
{
    if (m == NULL)
        return;
    for (uint64_t i = 0; m->shared != NULL && i < m->list.steps.count; i++) {
        free(m->shared[i].right);
        free(m->shared[i].left);
        free(m->shared[i].factors);
    }
    free(m->shared);
    if (m->locks) {
        pthread_cond_destroy(&m->changed_state);
        pthread_mutex_destroy(&m->lock);
    }
    for (size_t i = 0; i < m->readers.count; i++)
        box_reader_release(VEC_AT(&m->readers, box_reader, i));
    VEC_RELEASE_ALL(&m->readers, &m->chunks, &m->boxes, &m->same, &m->idle);
    merge_list_release(&m->list);
    free(m);
}
