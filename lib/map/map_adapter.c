#include "map/map_adapter_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "map/map_match.h"
#include "state/catalogue_copy.h"

uint32_t map_adapter_renamed(const map_adapter *v, uint32_t base_tensor)
{
    return *VEC_AT(&v->renamed, const uint32_t, base_tensor) - 1;
}

uint32_t map_adapter_line(const map_adapter *v, uint32_t tensor)
{
    return tensor < v->lines.count ? *VEC_AT(&v->lines, const uint32_t, tensor) : 0;
}

/* --- chunks --- */

/* The box of the target that a piece makes of a chunk; false if they share no element. */
static bool intersect(const map_piece *p, unsigned ndim, unsigned from_ndim,
                      const uint64_t *from_offsets, const uint64_t *from_sizes, uint64_t *offsets,
                      uint64_t *sizes)
{
    unsigned walked = 0;
    for (unsigned d = 0; d < ndim; d++) {
        const unsigned from = p->from_dim[d];
        uint64_t begin = 0, end = p->sizes[d];
        if (from < MAP_DIMS_MAX) {
            const uint64_t start = p->start[from], step = p->step[d];
            const uint64_t from_end = from_offsets[from] + from_sizes[from];
            walked |= 1u << from;
            if (from_offsets[from] > start)
                begin = (from_offsets[from] - start + step - 1) / step;
            if (from_end <= start || from_sizes[from] == 0)
                return false;
            if ((from_end - start - 1) / step + 1 < end)
                end = (from_end - start - 1) / step + 1;
        }
        if (begin >= end)
            return false;
        offsets[d] = p->offsets[d] + begin;
        sizes[d] = end - begin;
    }
    for (unsigned d = 0; d < from_ndim; d++)
        if (!(walked & 1u << d) &&
            (p->start[d] < from_offsets[d] || p->start[d] - from_offsets[d] >= from_sizes[d]))
            return false;
    return true;
}

/* The chunks that a piece may have elements of. */
static fsdpck_status find_chunks(map_adapter *v, unsigned ndim, const map_piece *p,
                                 const uint64_t **chunks, size_t *count, fsdpck_error *err)
{
    uint64_t begins[NDIM_MAX] = {0}, ends[NDIM_MAX] = {1}; /* a tensor without dims */
    *count = 0;
    for (unsigned d = 0; d < catalogue_tensor(v->base, p->source)->ndim; d++) {
        begins[d] = p->start[d];
        ends[d] = p->start[d] + 1;
    }
    for (unsigned d = 0; d < ndim; d++) {
        if (p->sizes[d] == 0)
            return FSDPCK_OK;
        if (p->from_dim[d] < MAP_DIMS_MAX)
            ends[p->from_dim[d]] = p->start[p->from_dim[d]] + (p->sizes[d] - 1) * p->step[d] + 1;
    }
    return chunk_index_find(&v->index, p->source, begins, ends, chunks, count, err);
}

static fsdpck_status add_piece_chunks(map_adapter *v, uint32_t tensor, unsigned ndim,
                                      const map_piece *p, fsdpck_error *err)
{
    const cat_tensor *from = catalogue_tensor(v->base, p->source);
    const uint64_t itemsize = dtype_get((dtype)from->dtype)->itemsize_bytes;
    const uint64_t *chunks = NULL;
    size_t count;
    uint32_t kept = 0;
    RETURN_IF(map_piece_keep(v, p, ndim, from->ndim, &kept, err));
    RETURN_IF(find_chunks(v, ndim, p, &chunks, &count, err));
    for (size_t n = 0; n < count; n++) {
        const uint64_t i = chunks[n];
        uint64_t offsets[MAP_DIMS_MAX], sizes[MAP_DIMS_MAX], from_offsets[NDIM_MAX],
            from_sizes[NDIM_MAX], strides[MAP_DIMS_MAX], from_strides[NDIM_MAX], skip;
        cat_chunk k = *catalogue_chunk(v->base, i);
        catalogue_chunk_box(v->base, i, from_offsets, from_sizes);
        if (!intersect(p, ndim, from->ndim, from_offsets, from_sizes, offsets, sizes))
            continue;
        box_row_major_strides(from_sizes, from->ndim, from_strides);
        if (k.place == LOCATION_ROWS && map_piece_find(p, ndim, offsets, from->ndim, from_offsets,
                                                       from_strides, strides, &skip)) {
            k.offset_bytes += skip * itemsize;
            k.nbytes = box_nelems(sizes, ndim) * itemsize;
            k.place = LOCATION_STRIDED;
        }
        RETURN_IF(map_adapter_add_chunk(v, tensor, i, kept, offsets, sizes, &k, err));
    }
    return FSDPCK_OK;
}

/* --- tensors --- */

/* The rule of line `first` fills the target already. */
static fsdpck_status refuse_second(const map_rule *rule, uint32_t first, const char *name,
                                   fsdpck_error *err)
{
    const uint32_t second = rule->at.line;
    char lines[64];
    if (first == second)
        snprintf(lines, sizeof lines, "the rule of line %u", first);
    else
        snprintf(lines, sizeof lines, "the rules of lines %u and %u",
                 first < second ? first : second, first < second ? second : first);
    return FAIL_WITH(err, BADINPUT, MAP_TARGET_TWICE,
                     ("'%s' is filled twice, by %s of the map", name, lines), (tensor, name),
                     (expected, "one tensor for each target"));
}

static fsdpck_status add_tensor(map_adapter *v, const map_rule *rule, const char *name,
                                size_t nbytes, dtype d, unsigned ndim, const uint64_t *shape,
                                uint32_t *tensor, fsdpck_error *err)
{
    RETURN_IF(map_check_return(v->m, rule, name, nbytes, err));
    const uint32_t id = strtab_find(&v->out->names, name, nbytes);
    for (size_t i = 0; id != STRTAB_NONE && i < catalogue_tensor_count(v->out); i++)
        if (catalogue_tensor(v->out, i)->name == id)
            return refuse_second(rule, *VEC_AT(&v->lines, const uint32_t, i), name, err);
    RETURN_IF(vec_add(&v->lines, &rule->at.line, err));
    return catalogue_add_tensor(v->out, name, nbytes, d, ndim, shape, tensor, err);
}

static const map_input *input_of(const map_input *inputs, const map_matches *x, uint32_t taken)
{
    return &inputs[VEC_AT(&x->taken, const map_taken, taken)->input];
}

/* The storage that several tensors view, in the second catalogue: a storage comes after all
 * tensors, so its number is one of the first catalogue until then. */
static fsdpck_status rename_tensor(map_adapter *v, const map_rule *rule, uint32_t from,
                                   const char *name, size_t nbytes, fsdpck_error *err)
{
    const cat_tensor *t = catalogue_tensor(v->base, from);
    uint32_t made;
    RETURN_IF(add_tensor(v, rule, name, nbytes, (dtype)t->dtype, t->ndim,
                         catalogue_shape(v->base, from), &made, err));
    cat_tensor *m = catalogue_tensor(v->out, made);
    m->flags = t->flags & ~(CAT_TENSOR_IN_OBJECT | CAT_TENSOR_NAMED);
    m->python = t->python;
    m->spec = t->spec;
    m->alias = t->alias;
    *VEC_AT(&v->renamed, uint32_t, from) = made + 1;
    return map_adapter_add_same_chunks(v, from, made, err);
}

/* The placements of the first source, where the dims are still the same. */
static void describe_made(map_adapter *v, uint32_t made, const map_layout *l,
                          const map_layout_tensor *t)
{
    if (t->count == 0)
        return;
    const map_piece *p = VEC_AT(&l->pieces, const map_piece, t->first_piece);
    const cat_tensor *from = catalogue_tensor(v->base, p->source);
    cat_tensor *m = catalogue_tensor(v->out, made);
    m->flags = from->flags & (CAT_TENSOR_REQUIRES_GRAD | CAT_TENSOR_EACH_RANK);
    m->python = from->python;
    if (from->ndim == t->ndim)
        m->spec = from->spec;
}

static fsdpck_status lay_out(map_adapter *v, const map_input *inputs, const map_matches *x,
                             const map_instance *instance, map_layout *l, fsdpck_error *err)
{
    const map_rule *rule = VEC_AT(&v->m->rules, const map_rule, instance->rule);
    map_layout_begin(l, v->m, rule, instance->stacked);
    chunk_index_clear(&v->index);
    for (uint32_t i = 0; i < instance->count; i++) {
        const uint32_t from = input_of(inputs, x, instance->first + i)->tensor;
        const cat_tensor *t = catalogue_tensor(v->base, from);
        RETURN_IF(map_layout_add_source(l, from, (dtype)t->dtype, t->ndim,
                                        catalogue_shape(v->base, from), err));
    }
    return map_layout_run(l, err);
}

static fsdpck_status make_targets(map_adapter *v, const map_instance *instance,
                                  const map_input *first, const map_captures *captures,
                                  const map_layout *l, text_buf *name, fsdpck_error *err)
{
    const map_rule *rule = VEC_AT(&v->m->rules, const map_rule, instance->rule);
    for (uint32_t i = 0; i < l->tensors.count; i++) {
        const map_layout_tensor *t = VEC_AT(&l->tensors, const map_layout_tensor, i);
        map_captures numbers = *captures;
        uint32_t made;
        if (rule->unstacked != MAP_NONE)
            numbers.numbers[rule->unstacked] = i % l->numbered / l->inner;
        if (rule->unstacked_inner != MAP_NONE)
            numbers.numbers[rule->unstacked_inner] = i % l->inner;
        const map_pattern *p =
            VEC_AT(&v->m->patterns, const map_pattern, rule->first_target + i / l->numbered);
        RETURN_IF(map_pattern_write(v->m, p, &numbers, name, err));
        RETURN_IF(map_compare_heads(v, first, name, l, err));
        RETURN_IF(
            add_tensor(v, rule, name->text, name->nbytes, t->dtype, t->ndim, t->shape, &made, err));
        describe_made(v, made, l, t);
        for (size_t k = 0; k < t->count; k++)
            RETURN_IF(add_piece_chunks(
                v, made, t->ndim, VEC_AT(&l->pieces, const map_piece, t->first_piece + k), err));
    }
    return FSDPCK_OK;
}

/* Whether a rule keeps all elements of a tensor: it has no operation but a switch that is off. */
static bool only_renames(const tensor_map *m, const map_rule *rule)
{
    for (uint32_t i = 0; i < rule->nops; i++) {
        const map_op *op = VEC_AT(&m->ops, const map_op, rule->first_op + i);
        if (op->kind != MAP_OP_ADD || map_added(m, op) != 0)
            return false;
    }
    return rule->nsources == 1;
}

/* What narrow cut from the tensors of an instance is left out, under the name of the first one. */
static fsdpck_status skip_cut(map_adapter *v, const map_input *first, const map_layout *l,
                              text_buf *name, fsdpck_error *err)
{
    const cat_tensor *t = catalogue_tensor(v->base, first->tensor);
    uint64_t nbytes;
    if (l->cut.nbytes == 0)
        return FSDPCK_OK;
    if (!checked_mul(l->cut_nelems, dtype_get((dtype)t->dtype)->itemsize_bytes, &nbytes))
        return FAIL(err, BADINPUT, MAP_SHAPE, "tensor is larger than 2^64 bytes");
    name->nbytes = 0;
    text_append(name, first->name, first->nbytes);
    text_append(name, l->cut.text, l->cut.nbytes);
    RETURN_IF(text_check(name, err));
    return catalogue_add_skipped(v->out, name->text, name->nbytes, false, nbytes, VALUE_OF_NONE,
                                 err);
}

static fsdpck_status make_instance(map_adapter *v, const map_input *inputs, const map_matches *x,
                                   const map_instance *instance, map_layout *l, text_buf *name,
                                   fsdpck_error *err)
{
    const map_rule *rule = VEC_AT(&v->m->rules, const map_rule, instance->rule);
    const map_input *first = input_of(inputs, x, instance->first);
    const map_captures *captures = &VEC_AT(&x->taken, const map_taken, instance->first)->captures;
    fsdpck_status st;
    if (rule->keeps) {
        st = rename_tensor(v, rule, first->tensor, first->name, first->nbytes, err);
    } else if (only_renames(v->m, rule)) {
        const map_pattern *p = VEC_AT(&v->m->patterns, const map_pattern, rule->first_target);
        st = map_pattern_write(v->m, p, captures, name, err);
        if (st == FSDPCK_OK)
            st = rename_tensor(v, rule, first->tensor, name->text, name->nbytes, err);
    } else {
        st = lay_out(v, inputs, x, instance, l, err);
        v->add = l->add;
        if (st == FSDPCK_OK)
            st = make_targets(v, instance, first, captures, l, name, err);
        v->add = 0;
        if (st == FSDPCK_OK)
            st = skip_cut(v, first, l, name, err);
    }
    if (st != FSDPCK_OK)
        error_tensor(err, first->name);
    return st;
}

/* --- construction --- */

/* Storages come last in a catalogue; those of tensors that kept their layout are copied. */
static fsdpck_status copy_storages(map_adapter *v, fsdpck_error *err)
{
    const size_t count = catalogue_tensor_count(v->out);
    for (size_t i = 0; i < count; i++) {
        const uint32_t storage = catalogue_tensor(v->out, i)->alias;
        uint32_t made;
        if (storage == CAT_NONE)
            continue;
        if (*VEC_AT(&v->renamed, const uint32_t, storage) == 0) {
            const cat_tensor *t = catalogue_tensor(v->base, storage);
            RETURN_IF(catalogue_add_tensor(v->out, catalogue_name(v->base, t->name),
                                           catalogue_name_nbytes(v->base, t->name), (dtype)t->dtype,
                                           t->ndim, catalogue_shape(v->base, storage), &made, err));
            catalogue_tensor(v->out, made)->flags = t->flags;
            *VEC_AT(&v->renamed, uint32_t, storage) = made + 1;
            RETURN_IF(map_adapter_add_same_chunks(v, storage, made, err));
        }
        catalogue_tensor(v->out, i)->alias = *VEC_AT(&v->renamed, const uint32_t, storage) - 1;
    }
    return FSDPCK_OK;
}

const uint32_t *map_adapter_lost(const map_adapter *v, size_t *count)
{
    *count = v->lost.count;
    return v->lost.items;
}

static fsdpck_status fill(map_adapter *v, const map_input *inputs, const map_matches *x,
                          fsdpck_error *err)
{
    map_layout l;
    text_buf name = {0};
    fsdpck_status st = FSDPCK_OK;
    map_layout_init(&l, v->out->owner);
    for (size_t i = 0; i < x->instances.count && st == FSDPCK_OK; i++)
        st = make_instance(v, inputs, x, VEC_AT(&x->instances, const map_instance, i), &l, &name,
                           err);
    for (size_t i = 0; i < x->dropped.count && st == FSDPCK_OK; i++) {
        const map_input *in = &inputs[*VEC_AT(&x->dropped, const uint32_t, i)];
        st =
            catalogue_add_skipped(v->out, in->name, in->nbytes, false,
                                  catalogue_tensor_nbytes(v->base, in->tensor), VALUE_OF_NONE, err);
    }
    for (size_t i = 0; i < x->lost.count && st == FSDPCK_OK; i++)
        st = vec_add(&v->lost, &inputs[*VEC_AT(&x->lost, const uint32_t, i)].tensor, err);
    if (st == FSDPCK_OK)
        st = map_add_ties(v, err);
    map_layout_release(&l);
    text_release(&name);
    return st;
}

static map_adapter *adapter_init(const tensor_map *m, const catalogue *base, const source *src,
                                 catalogue *out)
{
    map_adapter *v = calloc(1, sizeof *v);
    if (v == NULL)
        return NULL;
    v->m = m;
    v->base = base;
    v->out = out;
    v->chunks = VEC_OF(map_chunk, out->owner);
    v->pieces = VEC_OF(uint64_t, out->owner);
    v->renamed = VEC_OF(uint32_t, out->owner);
    v->lines = VEC_OF(uint32_t, out->owner);
    v->lost = VEC_OF(uint32_t, out->owner);
    v->source_modules.heads = VEC_OF(map_module_heads, out->owner);
    v->target_modules.heads = VEC_OF(map_module_heads, out->owner);
    strtab_init(&v->source_modules.names, out->owner);
    strtab_init(&v->target_modules.names, out->owner);
    chunk_index_init(&v->index, base, out->owner);
    map_adapter_set_source(v, src);
    return v;
}

static void release_modules(map_modules *modules)
{
    strtab_release(&modules->names);
    vec_release(&modules->heads);
}

fsdpck_status map_adapter_new(const tensor_map *m, const catalogue *base, const source *src,
                              const map_input *inputs, size_t count, catalogue *out,
                              map_adapter **adapter, fsdpck_error *err)
{
    *adapter = NULL;
    map_adapter *v = adapter_init(m, base, src, out);
    if (v == NULL)
        return error_set_nomem(err, sizeof *v);
    map_matches x = {0};
    const size_t tensors = catalogue_tensor_count(base);
    fsdpck_status st = FSDPCK_OK;
    if (vec_push_n(&v->renamed, tensors, err) == NULL && tensors > 0)
        st = FSDPCK_LIMIT;
    if (st == FSDPCK_OK)
        st = map_match(m, inputs, count, &x, err);
    if (st == FSDPCK_OK)
        st = catalogue_copy_frame(v->out, v->base, err);
    if (st == FSDPCK_OK)
        st = fill(v, inputs, &x, err);
    if (st == FSDPCK_OK)
        st = copy_storages(v, err);
    if (st == FSDPCK_OK)
        st = catalogue_seal(out, err);
    map_matches_release(&x);
    chunk_index_release(&v->index);
    release_modules(&v->source_modules);
    release_modules(&v->target_modules);
    vec_trim(&v->chunks);
    vec_trim(&v->pieces);
    if (st != FSDPCK_OK)
        map_adapter_free(v);
    else
        *adapter = v;
    return st;
}

uint64_t map_adapter_compared(const map_adapter *v)
{
    return chunk_index_compared(&v->index);
}

void map_adapter_free(map_adapter *v)
{
    if (v == NULL)
        return;
    vec_release(&v->chunks);
    vec_release(&v->pieces);
    vec_release(&v->renamed);
    vec_release(&v->lines);
    vec_release(&v->lost);
    text_release(&v->tied);
    text_release(&v->untied);
    free(v);
}
