/* average_catalogue.c: the second catalogue of an average. */
#include <stdlib.h>
#include <string.h>

#include "average/average_internal.h"
#include "plan/coverage.h"
#include "state/catalogue_copy.h"

/* --- tensors --- */

/* 8 and 4 bits: their values mean nothing without scales, which other tensors hold. */
static fsdpck_status fail_kind(const averager *v, uint32_t tensor, fsdpck_error *err)
{
    const cat_tensor *t = catalogue_tensor(v->from->cat, tensor);
    const char *name = catalogue_name(v->from->cat, t->name);
    return FAIL_WITH(
        err, UNSUPPORTED, AVERAGE_KIND,
        ("'%s' has the dtype %s, which is not averaged", name, dtype_get((dtype)t->dtype)->name),
        (tensor, name), (expected, "floats of 16, 32 or 64 bits"),
        (next, "give --dequantize if it has scales, or omit it with --exclude"));
}

/* All inputs must have every element exactly once. */
static fsdpck_status add_readers(averager *v, const average_tensor *t, fsdpck_error *err)
{
    for (size_t i = 0; i < v->count; i++) {
        struct coverage_report report;
        const uint32_t tensor = average_tensor_of(v, t, i);
        fsdpck_status st = box_reader_add(&v->readers[i], tensor, err);
        if (st == FSDPCK_OK)
            st = coverage_check_index(box_reader_index(&v->readers[i], tensor), &report, err);
        if (st == FSDPCK_OK && !coverage_is_complete(&report))
            st = coverage_error(v->inputs[i].cat, tensor, &report, err);
        if (st != FSDPCK_OK) {
            average_name_input(v, i, err);
            return st;
        }
    }
    return FSDPCK_OK;
}

/* --- chunks --- */

static fsdpck_status add_chunk(averager *v, uint32_t tensor, const average_chunk *made,
                               const uint64_t *offsets, const uint64_t *sizes, cat_chunk *k,
                               fsdpck_error *err)
{
    if (v->chunks.count == UINT32_MAX)
        return FAIL(err, LIMIT, LIMIT_COUNT, "too many chunks");
    RETURN_IF(vec_add(&v->chunks, made, err));
    k->aux = (uint32_t)(v->chunks.count - 1);
    return catalogue_add_chunk(v->out, tensor, offsets, sizes, k, err);
}

static fsdpck_status keep_chunks(averager *v, uint32_t tensor, fsdpck_error *err)
{
    const catalogue *c = v->from->cat;
    const cat_tensor *t = catalogue_tensor(c, tensor);
    for (uint64_t i = t->first_chunk; i < t->first_chunk + t->nchunks; i++) {
        uint64_t offsets[NDIM_MAX], sizes[NDIM_MAX];
        cat_chunk k = *catalogue_chunk(c, i);
        catalogue_chunk_box(c, i, offsets, sizes);
        RETURN_IF(add_chunk(v, tensor, &(average_chunk){.chunk = i, .slot = AVERAGE_NONE}, offsets,
                            sizes, &k, err));
    }
    return FSDPCK_OK;
}

typedef struct box_sink {
    averager *v;
    uint32_t slot;
} box_sink;

static fsdpck_status add_box(void *ctx, const uint64_t *offsets, const uint64_t *sizes,
                             fsdpck_error *err)
{
    const box_sink *s = ctx;
    const catalogue *c = s->v->from->cat;
    average_tensor *t = VEC_AT(&s->v->slots, average_tensor, s->slot);
    const cat_tensor *ct = catalogue_tensor(c, t->tensor);
    const box_index *x =
        box_reader_index(&s->v->readers[s->v->shape], average_tensor_of(s->v, t, s->v->shape));
    const average_chunk made = {x->first_chunk + x->order[0], s->slot};
    cat_chunk k = {.file = catalogue_chunk(c, made.chunk)->file,
                   .rank = UINT16_MAX,
                   .place = LOCATION_STRIDED,
                   .nbytes =
                       box_nelems(sizes, ct->ndim) * dtype_get((dtype)ct->dtype)->itemsize_bytes};
    t->nchunks++;
    return add_chunk(s->v, t->tensor, &made, offsets, sizes, &k, err);
}

/* A tensor whose chunks are streams. */
static fsdpck_status add_tensor(averager *v, uint32_t tensor, bool computed, fsdpck_error *err)
{
    const box_sink sink = {v, (uint32_t)v->slots.count};
    const average_tensor made = {
        .tensor = tensor, .computed = computed, .first_chunk = v->chunks.count};
    cat_tensor *t = catalogue_tensor(v->out, tensor);
    RETURN_IF(vec_add(&v->slots, &made, err));
    *VEC_AT(&v->slot_of, uint32_t, tensor) = sink.slot;
    RETURN_IF(add_readers(v, &made, err));
    /* Its elements are in no storage that another tensor views, and each rank has the same. */
    t->alias = CAT_NONE;
    t->flags &= (uint8_t)~CAT_TENSOR_EACH_RANK;
    return average_cut(v, &made, add_box, (void *)&sink, err);
}

static fsdpck_status add_any(averager *v, uint32_t tensor, fsdpck_error *err)
{
    const dtype d = (dtype)catalogue_tensor(v->from->cat, tensor)->dtype;
    const dtype_class kind = (dtype_class)dtype_get(d)->kind;
    *VEC_AT(&v->slot_of, uint32_t, tensor) = AVERAGE_NONE;
    if (!averager_takes(v, tensor) || catalogue_tensor_nelems(v->from->cat, tensor) == 0)
        return keep_chunks(v, tensor, err);
    const bool computed = average_number_type(d) != DTYPE_NONE;
    if (!computed && (kind == DTYPE_IS_FLOAT || kind == DTYPE_IS_COMPLEX))
        return fail_kind(v, tensor, err);
    return computed || !v->trust_others || average_is_quantized(v, tensor)
               ? add_tensor(v, tensor, computed, err)
               : keep_chunks(v, tensor, err);
}

static fsdpck_status fill(averager *v, fsdpck_error *err)
{
    const size_t count = catalogue_tensor_count(v->from->cat);
    RETURN_IF(catalogue_copy_without_chunks(v->out, v->from->cat, err));
    if (count > 0 && vec_push_n(&v->slot_of, count, err) == NULL)
        return FSDPCK_LIMIT;
    for (uint32_t i = 0; i < count; i++) {
        const fsdpck_status st = add_any(v, i, err);
        if (st != FSDPCK_OK) {
            if (err != NULL && err->tensor[0] == '\0')
                error_tensor(err, catalogue_name(v->out, catalogue_tensor(v->out, i)->name));
            return st;
        }
    }
    for (size_t i = 0; v->rule.slerp && i < v->slots.count; i++)
        if (VEC_AT(&v->slots, average_tensor, i)->computed)
            RETURN_IF(average_slerp_new(VEC_AT(&v->slots, average_tensor, i), err));
    return catalogue_seal_as(v->out, v->from->cat, err);
}

/* --- the averager --- */

/* A size in a range, of whole blocks of files. */
static uint64_t within(uint64_t nbytes, uint64_t least, uint64_t most)
{
    nbytes = nbytes > most ? most : nbytes < least ? least : nbytes;
    return nbytes - nbytes % AVERAGE_ALIGN;
}

static fsdpck_status copy_request(averager *v, const average_request *r, fsdpck_error *err)
{
    budget *owner = v->out->owner;
    const uint64_t n = catalogue_tensor_count(r->inputs[r->shape].cat) * r->count;
    v->rule = *r->rule;
    v->count = r->count;
    v->shape = r->shape;
    v->trust_others = r->trust_others;
    v->chunk_nbytes = within(AVERAGE_CHUNKS_NBYTES / r->count, AVERAGE_CHUNK_NBYTES_MIN,
                             AVERAGE_CHUNK_NBYTES_MAX);
    v->band_nbytes =
        within(AVERAGE_BANDS_NBYTES / r->count, AVERAGE_BAND_NBYTES_MIN, AVERAGE_BAND_NBYTES_MAX);
    v->rule.coefficients = calloc(r->count, sizeof(double));
    v->inputs = calloc(r->count, sizeof *v->inputs);
    v->readers = calloc(r->count, sizeof *v->readers);
    if (v->rule.coefficients == NULL || v->inputs == NULL || v->readers == NULL)
        return error_set_nomem(err, r->count * sizeof *v->inputs);
    memcpy(v->inputs, r->inputs, r->count * sizeof *v->inputs);
    if (r->rule->coefficients != NULL)
        memcpy(v->rule.coefficients, r->rule->coefficients, r->rule->count * sizeof(double));
    v->from = &v->inputs[r->shape];
    for (size_t i = 0; i < r->count; i++)
        box_reader_init(&v->readers[i], v->inputs[i].cat, v->inputs[i].src, owner);
    v->tensors_nbytes = n * sizeof *v->tensors;
    v->tensors = budget_alloc(owner, v->tensors_nbytes, err);
    if (v->tensors == NULL)
        return FSDPCK_LIMIT;
    if (n > 0)
        memcpy(v->tensors, r->tensors, v->tensors_nbytes);
    return FSDPCK_OK;
}

static fsdpck_status begin_distances(averager *v, fsdpck_error *err)
{
    v->distances_nbytes = v->slots.count * v->rule.count * sizeof *v->distances;
    v->distances = budget_alloc(v->out->owner, v->distances_nbytes, err);
    return v->distances == NULL ? FSDPCK_LIMIT : FSDPCK_OK;
}

fsdpck_status averager_new(const average_request *request, catalogue *out, averager **averager_out,
                           fsdpck_error *err)
{
    *averager_out = NULL;
    averager *v = calloc(1, sizeof *v);
    if (v == NULL)
        return error_set_nomem(err, sizeof *v);
    v->out = out;
    v->slots = VEC_OF(average_tensor, out->owner);
    v->chunks = VEC_OF(average_chunk, out->owner);
    v->slot_of = VEC_OF(uint32_t, out->owner);
    pthread_mutex_init(&v->lock, NULL);
    fsdpck_status st = copy_request(v, request, err);
    if (st == FSDPCK_OK)
        st = fill(v, err);
    if (st == FSDPCK_OK)
        st = begin_distances(v, err);
    if (st != FSDPCK_OK) {
        averager_free(v);
        return st;
    }
    average_set_source(v);
    *averager_out = v;
    return FSDPCK_OK;
}

const source *averager_source(const averager *v)
{
    return &v->source.source;
}

void averager_free(averager *v)
{
    if (v == NULL)
        return;
    budget *owner = v->out->owner;
    for (size_t i = 0; i < v->slots.count; i++)
        average_slerp_free(VEC_AT(&v->slots, average_tensor, i));
    average_free_buffers(v);
    for (size_t i = 0; v->readers != NULL && i < v->count; i++)
        box_reader_release(&v->readers[i]);
    budget_free(owner, v->tensors, v->tensors_nbytes);
    budget_free(owner, v->distances, v->distances_nbytes);
    VEC_RELEASE_ALL(&v->slots, &v->chunks, &v->slot_of);
    pthread_mutex_destroy(&v->lock);
    free(v->rule.coefficients);
    free(v->inputs);
    free(v->readers);
    free(v);
}
