#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/text.h"
#include "map/dequantize_internal.h"
#include "state/catalogue_copy.h"
#include "state/scale_name.h"

/* --- weights and their scales --- */

#define BLOCKS "_blocks"
#define SCALES "_scales"

typedef struct quant_names {
    strtab table;
    vec input_of; /* uint32_t: by id, index of the input */
} quant_names;

static uint32_t find_input(const quant_names *n, const char *stem, size_t stem_nbytes,
                           const char *end, text_buf *name, fsdpck_error *err, fsdpck_status *st)
{
    name->nbytes = 0;
    text_append(name, stem, stem_nbytes);
    text_append(name, end, strlen(end));
    *st = text_check(name, err);
    if (*st != FSDPCK_OK)
        return QUANT_NONE;
    const uint32_t id = strtab_find(&n->table, name->text, name->nbytes);
    return id == STRTAB_NONE ? QUANT_NONE : *VEC_AT(&n->input_of, const uint32_t, id);
}

static bool is_fp8(dtype d)
{
    return d == DTYPE_FLOAT8_E4M3FN || d == DTYPE_FLOAT8_E5M2 || d == DTYPE_FLOAT8_E4M3FNUZ ||
           d == DTYPE_FLOAT8_E5M2FNUZ;
}

static bool is_blocks(const map_input *in, dtype d)
{
    return d == DTYPE_UINT8 && text_ends_with(in->name, in->nbytes, BLOCKS);
}

bool dequantizer_applies(const catalogue *base, const map_input *inputs, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const cat_tensor *t = catalogue_tensor(base, inputs[i].tensor);
        if (is_fp8((dtype)t->dtype) || quant_named_kind(&inputs[i]) != NULL ||
            quant_is_packed(&inputs[i], t) ||
            text_ends_with(inputs[i].name, inputs[i].nbytes, SCALE_OF_BLOCKS))
            return true;
    }
    return false;
}

static fsdpck_status fail_kind(const map_input *in, const char *kind, dtype d, fsdpck_error *err)
{
    return FAIL_WITH(err, UNSUPPORTED, QUANT_KIND,
                     ("'%s' is quantized in a way that fsdpck does not convert", in->name),
                     (tensor, in->name),
                     (expected, "8-bit floats in blocks (NAME" SCALE_OF_BLOCKS "), or MXFP4 "
                                "(NAME_blocks and NAME_scales)"),
                     (found, "%s quantization, dtype %s", kind, dtype_get(d)->name));
}

/* Of a checkpoint that has scales of other tensors: this one was lost. */
static fsdpck_status fail_lost_scale(const map_input *in, const char *end, const char *scale_end,
                                     fsdpck_error *err)
{
    return FAIL_WITH(
        err, BADINPUT, QUANT_SCALE,
        ("the scale '%.*s%s' is missing", (int)(in->nbytes - strlen(end)), in->name, scale_end),
        (tensor, in->name), (expected, "a scale for each quantized tensor"),
        (next, "restore the scale from the original"));
}

/* Whether weights have scales in blocks: some has one, or config.json states blocks. Scales under other names are of
 * another kind. */
static bool has_scales(const dequantizer *v, const quant_names *n)
{
    bool others = false;
    for (uint32_t i = 0; i < strtab_count(&n->table); i++) {
        const char *name = strtab_text(&n->table, i);
        if (text_ends_with(name, strtab_nbytes(&n->table, i), SCALE_OF_BLOCKS))
            return true;
        others |= strstr(name, "scale") != NULL;
    }
    return v->block.is_stated && !others;
}

static void print_shape(text_buf *out, const uint64_t *shape, unsigned ndim)
{
    for (unsigned d = 0; d < ndim; d++)
        text_printf(out, "%s%" PRIu64, d == 0 ? "" : ", ", shape[d]);
}

static fsdpck_status fail_scale(const dequantizer *v, const map_input *in, const map_input *scale,
                                const uint64_t *shape, fsdpck_error *err)
{
    const catalogue *c = v->base;
    const cat_tensor *s = catalogue_tensor(c, scale->tensor);
    text_buf is = {0}, wanted = {0};
    print_shape(&is, catalogue_shape(c, scale->tensor), s->ndim);
    print_shape(&wanted, shape, catalogue_tensor(c, in->tensor)->ndim);
    text_puts(&is, "");
    text_puts(&wanted, "");
    fsdpck_status st = text_check(&is, err);
    if (st == FSDPCK_OK)
        st = text_check(&wanted, err);
    if (st == FSDPCK_OK)
        st = FAIL_WITH(err, BADINPUT, QUANT_SCALE,
                       ("the shape or dtype of '%s' does not fit '%s'", scale->name, in->name),
                       (tensor, scale->name),
                       (expected, "shape [%s]: one number for each block of %" PRIu64 " x %" PRIu64,
                        wanted.text, v->block.size[0], v->block.size[1]),
                       (found, "shape [%s], dtype %s", is.text, dtype_get((dtype)s->dtype)->name),
                       (next,
                        "compare with weight_block_size in quantization_config of config.json, "
                        "beside the tensors"));
    text_release(&is);
    text_release(&wanted);
    return st;
}

static fsdpck_status fail_groups(const map_input *in, const map_input *scale, fsdpck_error *err)
{
    return FAIL_WITH(err, BADINPUT, QUANT_SCALE,
                     ("the shape or dtype of '%s' does not fit '%s'", scale->name, in->name),
                     (tensor, scale->name), (expected, "one number for each block of its tensor"));
}

/* Block counts of the last two dims, and the same leading dims. */
static fsdpck_status check_fp8(const dequantizer *v, const map_input *in, const map_input *scale,
                               fsdpck_error *err)
{
    const catalogue *c = v->base;
    const cat_tensor *w = catalogue_tensor(c, in->tensor), *s = catalogue_tensor(c, scale->tensor);
    const dtype d = (dtype)s->dtype;
    uint64_t shape[NDIM_MAX];
    if (w->ndim < 2)
        return fail_groups(in, scale, err);
    memcpy(shape, catalogue_shape(c, in->tensor), w->ndim * sizeof *shape);
    for (unsigned i = 0; i < 2; i++) {
        uint64_t *n = &shape[w->ndim - 2 + i];
        *n = *n / v->block.size[i] + (*n % v->block.size[i] != 0);
    }
    if (s->ndim == w->ndim &&
        (d == DTYPE_FLOAT32 || d == DTYPE_BFLOAT16 || d == DTYPE_FLOAT8_E8M0FNU) &&
        memcmp(shape, catalogue_shape(c, scale->tensor), w->ndim * sizeof *shape) == 0)
        return FSDPCK_OK;
    return fail_scale(v, in, scale, shape, err);
}

static bool mxfp4_fits(const catalogue *c, uint32_t weight, uint32_t scale)
{
    const cat_tensor *w = catalogue_tensor(c, weight), *s = catalogue_tensor(c, scale);
    return w->ndim == 4 && s->ndim == 3 && w->dtype == DTYPE_UINT8 && s->dtype == DTYPE_UINT8 &&
           memcmp(catalogue_shape(c, weight), catalogue_shape(c, scale), 3 * sizeof(uint64_t)) == 0;
}

/* Finds the scale of input `i`, if it is a weight of either kind. */
static fsdpck_status find_pair(dequantizer *v, const map_input *inputs, uint32_t i,
                               const quant_names *n, uint32_t *pair_of, text_buf *name,
                               fsdpck_error *err)
{
    const map_input *in = &inputs[i];
    const cat_tensor *t = catalogue_tensor(v->base, in->tensor);
    const dtype d = (dtype)t->dtype;
    const bool blocks = is_blocks(in, d);
    const char *kind = quant_named_kind(in);
    fsdpck_status st;
    uint32_t scale;

    if (kind != NULL)
        return fail_kind(in, kind, d, err);
    if (!is_fp8(d) && !blocks)
        return FSDPCK_OK;
    if (blocks)
        scale = find_input(n, in->name, in->nbytes - strlen(BLOCKS), SCALES, name, err, &st);
    else
        scale = find_input(n, in->name, in->nbytes, SCALE_OF_BLOCKS, name, err, &st);
    RETURN_IF(st);
    if (scale == QUANT_NONE && blocks)
        return t->ndim == 4 ? fail_lost_scale(in, BLOCKS, SCALES, err) : FSDPCK_OK;
    if (scale == QUANT_NONE)
        return has_scales(v, n) ? fail_lost_scale(in, "", SCALE_OF_BLOCKS, err)
                                : fail_kind(in, "unknown", d, err);
    if (!blocks)
        RETURN_IF(check_fp8(v, in, &inputs[scale], err));
    else if (!mxfp4_fits(v->base, in->tensor, inputs[scale].tensor))
        return fail_groups(in, &inputs[scale], err);
    pair_of[i] = pair_of[scale] = (uint32_t)v->pairs.count;
    RETURN_IF(box_reader_add(&v->reader, inputs[scale].tensor, err));
    return vec_add(&v->pairs,
                   &(quant_pair){.weight = in->tensor,
                                 .scale = inputs[scale].tensor,
                                 .kind = blocks ? QUANT_MXFP4 : QUANT_FP8},
                   err);
}

/* A scale without its weight, and quantized tensors that are of no known kind. */
static fsdpck_status check_left(const dequantizer *v, const map_input *inputs, size_t count,
                                const uint32_t *pair_of, fsdpck_error *err)
{
    for (size_t i = 0; i < count; i++) {
        const cat_tensor *t = catalogue_tensor(v->base, inputs[i].tensor);
        if (pair_of[i] == QUANT_NONE && quant_is_packed(&inputs[i], t))
            return fail_kind(&inputs[i], "unknown", (dtype)t->dtype, err);
    }
    for (size_t i = 0; i < count; i++)
        if (pair_of[i] == QUANT_NONE &&
            text_ends_with(inputs[i].name, inputs[i].nbytes, SCALE_OF_BLOCKS))
            return FAIL_WITH(err, BADINPUT, QUANT_SCALE,
                             ("'%s' has no tensor of 8-bit floats", inputs[i].name),
                             (tensor, inputs[i].name),
                             (expected, "a tensor of the same name without '" SCALE_OF_BLOCKS "'"));
    return FSDPCK_OK;
}

static fsdpck_status find_pairs(dequantizer *v, const map_input *inputs, size_t count,
                                uint32_t *pair_of, fsdpck_error *err)
{
    quant_names n = {.input_of = VEC_OF(uint32_t, v->out->owner)};
    text_buf name = {0};
    fsdpck_status st = FSDPCK_OK;
    strtab_init(&n.table, v->out->owner);
    for (size_t i = 0; i < count && st == FSDPCK_OK; i++) {
        uint32_t id;
        pair_of[i] = QUANT_NONE;
        st = strtab_intern(&n.table, inputs[i].name, inputs[i].nbytes, &id, err);
        if (st == FSDPCK_OK && id == n.input_of.count)
            st = vec_add(&n.input_of, &(uint32_t){(uint32_t)i}, err);
    }
    for (uint32_t i = 0; i < count && st == FSDPCK_OK; i++)
        st = find_pair(v, inputs, i, &n, pair_of, &name, err);
    if (st == FSDPCK_OK)
        st = check_left(v, inputs, count, pair_of, err);
    text_release(&name);
    vec_release(&n.input_of);
    strtab_release(&n.table);
    return st;
}

/* --- the second catalogue --- */

static fsdpck_status add_chunk(dequantizer *v, uint32_t tensor, const quant_chunk *made,
                               const uint64_t *offsets, const uint64_t *sizes, cat_chunk *k,
                               fsdpck_error *err)
{
    if (v->chunks.count == UINT32_MAX)
        return FAIL(err, LIMIT, LIMIT_COUNT, "too many chunks");
    RETURN_IF(vec_add(&v->chunks, made, err));
    k->aux = (uint32_t)(v->chunks.count - 1);
    return catalogue_add_chunk(v->out, tensor, offsets, sizes, k, err);
}

static fsdpck_status add_same(dequantizer *v, const map_input *in, fsdpck_error *err)
{
    const cat_tensor *t = catalogue_tensor(v->base, in->tensor);
    uint32_t made;
    RETURN_IF(catalogue_add_tensor(v->out, in->name, in->nbytes, (dtype)t->dtype, t->ndim,
                                   catalogue_shape(v->base, in->tensor), &made, err));
    cat_tensor *m = catalogue_tensor(v->out, made);
    m->flags = t->flags & ~(CAT_TENSOR_IN_OBJECT | CAT_TENSOR_NAMED);
    m->python = t->python;
    m->spec = t->spec;
    *VEC_AT(&v->same, uint32_t, in->tensor) = made + 1;
    for (uint64_t i = t->first_chunk; i < t->first_chunk + t->nchunks; i++) {
        uint64_t offsets[NDIM_MAX], sizes[NDIM_MAX];
        cat_chunk k = *catalogue_chunk(v->base, i);
        catalogue_chunk_box(v->base, i, offsets, sizes);
        RETURN_IF(add_chunk(v, made, &(quant_chunk){.chunk = i, .pair = QUANT_NONE}, offsets, sizes,
                            &k, err));
    }
    return FSDPCK_OK;
}

/* One chunk for a box of the weight: rows of one matrix. */
static fsdpck_status add_part(dequantizer *v, uint32_t tensor, uint32_t pair, uint64_t chunk,
                              const uint64_t *offsets, const uint64_t *sizes, fsdpck_error *err)
{
    const quant_pair *p = VEC_AT(&v->pairs, const quant_pair, pair);
    const unsigned ndim = catalogue_tensor(v->base, p->weight)->ndim;
    uint64_t to_offsets[NDIM_MAX], to_sizes[NDIM_MAX];
    cat_chunk k = *catalogue_chunk(v->base, chunk);
    const quant_chunk made = {chunk, pair, (uint32_t)v->boxes.count};
    if (v->boxes.count > QUANT_NONE - 2 * NDIM_MAX)
        return FAIL(err, LIMIT, LIMIT_COUNT, "too many chunks");
    RETURN_IF(vec_add_n(&v->boxes, offsets, ndim, err));
    RETURN_IF(vec_add_n(&v->boxes, sizes, ndim, err));
    memcpy(to_offsets, offsets, ndim * sizeof *offsets);
    memcpy(to_sizes, sizes, ndim * sizeof *sizes);
    if (p->kind == QUANT_MXFP4) {
        const uint64_t values = catalogue_shape(v->base, p->weight)[3] * 2;
        to_offsets[1] = offsets[2] * values;
        to_sizes[1] = sizes[2] * values;
        to_offsets[2] = offsets[1];
        to_sizes[2] = sizes[1];
    }
    k.place = LOCATION_STRIDED;
    k.nbytes = box_nelems(sizes, ndim) * quant_packing(p->kind) * sizeof(uint16_t);
    return add_chunk(v, tensor, &made, to_offsets, to_sizes, &k, err);
}

/* The dim of the rows: all dims before it are walked one index at a time. */
static unsigned row_dim(const quant_pair *p, unsigned ndim)
{
    return p->kind == QUANT_MXFP4 ? 1 : ndim - 2;
}

/* Cuts one chunk of the weight into boxes of at most about `most` elements. The dim after the rows is
 * cut only where one row is longer. */
static fsdpck_status add_parts(dequantizer *v, uint32_t tensor, uint32_t pair, uint64_t chunk,
                               fsdpck_error *err)
{
    const quant_pair *p = VEC_AT(&v->pairs, const quant_pair, pair);
    const unsigned ndim = catalogue_tensor(v->base, p->weight)->ndim, row = row_dim(p, ndim);
    uint64_t offsets[NDIM_MAX], sizes[NDIM_MAX], at[NDIM_MAX] = {0}, from[NDIM_MAX], n[NDIM_MAX];
    uint64_t step[NDIM_MAX];
    const uint64_t most = p->kind == QUANT_MXFP4 ? QUANT_MXFP4_NELEMS : QUANT_FP8_NELEMS;

    catalogue_chunk_box(v->base, chunk, offsets, sizes);
    const uint64_t rest = box_nelems(sizes + row + 2, ndim - row - 2) * quant_packing(p->kind);
    if (box_nelems(sizes, ndim) == 0)
        return FSDPCK_OK;
    if (p->kind == QUANT_MXFP4 && sizes[3] != catalogue_shape(v->base, p->weight)[3])
        return FAIL(err, UNSUPPORTED, QUANT_KIND, "a group of 4-bit floats is sharded");
    for (unsigned d = 0; d < row; d++)
        step[d] = 1;
    for (unsigned d = row + 2; d < ndim; d++)
        step[d] = sizes[d];
    step[row + 1] = rest >= most ? 1 : most / rest;
    if (step[row + 1] > sizes[row + 1])
        step[row + 1] = sizes[row + 1];
    const uint64_t row_nelems = step[row + 1] * rest;
    step[row] = row_nelems >= most ? 1 : most / row_nelems;
    for (;;) {
        for (unsigned d = 0; d < ndim; d++) {
            from[d] = offsets[d] + at[d];
            n[d] = sizes[d] - at[d] < step[d] ? sizes[d] - at[d] : step[d];
        }
        RETURN_IF(add_part(v, tensor, pair, chunk, from, n, err));
        unsigned d = ndim;
        while (d > 0) {
            d--;
            if (sizes[d] - at[d] > step[d]) {
                at[d] += step[d];
                break;
            }
            at[d] = 0;
            if (d == 0)
                return FSDPCK_OK;
        }
    }
}

static fsdpck_status add_weight(dequantizer *v, const map_input *in, uint32_t pair,
                                fsdpck_error *err)
{
    const quant_pair *p = VEC_AT(&v->pairs, const quant_pair, pair);
    const cat_tensor *t = catalogue_tensor(v->base, in->tensor);
    const uint64_t *shape = catalogue_shape(v->base, in->tensor);
    uint64_t to[3];
    uint32_t made;
    if (p->kind == QUANT_FP8) {
        RETURN_IF(catalogue_add_tensor(v->out, in->name, in->nbytes, DTYPE_BFLOAT16, t->ndim, shape,
                                       &made, err));
        catalogue_tensor(v->out, made)->spec = t->spec;
    } else {
        to[0] = shape[0];
        to[2] = shape[1];
        if (!checked_mul(shape[2], shape[3], &to[1]) || !checked_mul(to[1], 2, &to[1]))
            return FAIL(err, BADINPUT, TENSOR_BOUNDS, "tensor extends beyond its storage");
        RETURN_IF(catalogue_add_tensor(v->out, in->name, in->nbytes - strlen(BLOCKS),
                                       DTYPE_BFLOAT16, 3, to, &made, err));
    }
    cat_tensor *m = catalogue_tensor(v->out, made);
    m->flags = t->flags & (CAT_TENSOR_REQUIRES_GRAD | CAT_TENSOR_EACH_RANK);
    m->python = t->python;
    for (uint64_t i = t->first_chunk; i < t->first_chunk + t->nchunks; i++)
        RETURN_IF(add_parts(v, made, pair, i, err));
    return FSDPCK_OK;
}

static fsdpck_status fill(dequantizer *v, const map_input *inputs, size_t count,
                          const uint32_t *pair_of, fsdpck_error *err)
{
    RETURN_IF(catalogue_copy_frame(v->out, v->base, err));
    for (size_t i = 0; i < count; i++) {
        const map_input *in = &inputs[i];
        fsdpck_status st = FSDPCK_OK;
        if (pair_of[i] == QUANT_NONE)
            st = add_same(v, in, err);
        else if (VEC_AT(&v->pairs, const quant_pair, pair_of[i])->weight == in->tensor)
            st = add_weight(v, in, pair_of[i], err);
        if (st != FSDPCK_OK) {
            error_tensor(err, in->name);
            return st;
        }
    }
    return catalogue_seal(v->out, err);
}

fsdpck_status dequantizer_check(const catalogue *base, const source *src, quant_blocks block,
                                const map_input *inputs, size_t count, fsdpck_error *err)
{
    catalogue none = {.owner = base->owner};
    dequantizer v = {.base = base, .base_source = *src, .out = &none, .block = block};
    vec pair_of = VEC_OF(uint32_t, base->owner);
    fsdpck_status st = FSDPCK_OK;
    box_reader_init(&v.reader, base, &v.base_source, base->owner);
    v.pairs = VEC_OF(quant_pair, base->owner);
    if (count > 0 && vec_push_n(&pair_of, count, err) == NULL)
        st = FSDPCK_LIMIT;
    if (st == FSDPCK_OK)
        st = find_pairs(&v, inputs, count, pair_of.items, err);
    box_reader_release(&v.reader);
    VEC_RELEASE_ALL(&v.pairs, &pair_of);
    return st;
}

fsdpck_status dequantizer_new(const catalogue *base, const source *src, quant_blocks block,
                              const map_input *inputs, size_t count, catalogue *out,
                              dequantizer **dq, fsdpck_error *err)
{
    *dq = NULL;
    dequantizer *v = calloc(1, sizeof *v);
    if (v == NULL)
        return error_set_nomem(err, sizeof *v);
    *v = (dequantizer){.base = base, .base_source = *src, .out = out, .block = block};
    box_reader_init(&v->reader, base, &v->base_source, out->owner);
    v->pairs = VEC_OF(quant_pair, out->owner);
    v->chunks = VEC_OF(quant_chunk, out->owner);
    v->boxes = VEC_OF(uint64_t, out->owner);
    v->same = VEC_OF(uint32_t, out->owner);
    vec pair_of = VEC_OF(uint32_t, out->owner);
    const size_t tensors = catalogue_tensor_count(base);
    fsdpck_status st = FSDPCK_OK;
    if ((count > 0 && vec_push_n(&pair_of, count, err) == NULL) ||
        (tensors > 0 && vec_push_n(&v->same, tensors, err) == NULL))
        st = FSDPCK_LIMIT;
    if (st == FSDPCK_OK)
        st = find_pairs(v, inputs, count, pair_of.items, err);
    if (st == FSDPCK_OK)
        st = fill(v, inputs, count, pair_of.items, err);
    vec_release(&pair_of);
    dequantizer_set_source(v);
    if (st != FSDPCK_OK)
        dequantizer_free(v);
    else
        *dq = v;
    return st;
}

const source *dequantizer_source(const dequantizer *v)
{
    return &v->source.source;
}

uint64_t dequantizer_count(const dequantizer *v)
{
    return v->pairs.count;
}

uint32_t dequantizer_same(const dequantizer *v, uint32_t base_tensor)
{
    return *VEC_AT(&v->same, const uint32_t, base_tensor) - 1;
}

void dequantizer_free(dequantizer *v)
{
    if (v == NULL)
        return;
    box_reader_release(&v->reader);
    VEC_RELEASE_ALL(&v->pairs, &v->chunks, &v->boxes, &v->same);
    free(v);
}
