/* Names of the objects of rank files in the catalogue, and of the tensors inside them. */
#include <inttypes.h>
#include <string.h>

#include "formats/pt/ranks_internal.h"
#include "state/inner.h"

/* Limit on values visited in an object with this many cells: parts may be shared, but a small file
 * must not take long. */
static const uint64_t INNER_STEPS_LEAST = (uint64_t)1 << 16, INNER_STEPS_PER_CELL = 8;

/* While the tensors inside one object get their names. */
typedef struct ranks_inner {
    ranks_state *s;
    uint32_t entry;
    uint16_t rank;
    bool is_apart;  /* read with its object or not at all */
    uint32_t first; /* its first tensor of the catalogue */
    vec tensors;    /* ranks_inner_tensor, of each tensor from there on */
    uint64_t number;
} ranks_inner;

typedef struct ranks_inner_tensor {
    uint32_t piece;
    bool is_named; /* has a place with a name */
} ranks_inner_tensor;

/* The name of a tensor in one rank's object has the same suffix as one rank's tensor. */
static fsdpck_status inner_name_of(const ranks_inner *n, const char *name, size_t nbytes,
                                   text_buf *text, fsdpck_error *err)
{
    text->nbytes = 0;
    text_append(text, name, nbytes);
    if (n->rank != UINT16_MAX)
        text_printf(text, ".rank%u", (unsigned)n->rank);
    text_append(text, "", 0);
    return text_check(text, err);
}

static bool is_taken(const ranks_state *s, const text_buf *name)
{
    return strtab_find(&s->names, name->text, name->nbytes) != STRTAB_NONE ||
           strtab_find(&s->inner_names, name->text, name->nbytes) != STRTAB_NONE;
}

/* *tensor: CAT_NONE if the name is taken. */
static fsdpck_status add_inner(ranks_inner *n, uint32_t piece, const text_buf *name,
                               uint32_t *tensor, fsdpck_error *err)
{
    static const uint64_t zeros[NDIM_MAX];
    ranks_state *s = n->s;
    const torch_shard *q = VEC_AT(&s->reader->pieces, const torch_shard, piece);
    uint64_t sizes[NDIM_MAX] = {0};
    uint32_t id;

    *tensor = CAT_NONE;
    if (is_taken(s, name))
        return FSDPCK_OK;
    RETURN_IF(strtab_intern(&s->inner_names, name->text, name->nbytes, &id, err));
    RETURN_IF(vec_add(&n->tensors, &(ranks_inner_tensor){.piece = piece}, err));
    memcpy(sizes, VEC_AT(&s->reader->dims, const uint64_t, q->dims_at), q->ndim * sizeof *sizes);
    RETURN_IF(catalogue_add_tensor(s->cat, name->text, name->nbytes, (dtype)q->dtype, q->ndim,
                                   sizes, tensor, err));
    catalogue_tensor(s->cat, *tensor)->python = q->python;
    catalogue_tensor(s->cat, *tensor)->flags |=
        CAT_TENSOR_IN_OBJECT | (q->flags & TORCH_SHARD_GRAD ? CAT_TENSOR_REQUIRES_GRAD : 0);
    cat_chunk chunk = ranks_chunk(s->reader, piece);
    chunk.nbytes = catalogue_tensor_nbytes(s->cat, *tensor);
    return catalogue_add_chunk(s->cat, *tensor, zeros, sizes, &chunk, err);
}

/* Named after the object and a number until its path is known. */
static fsdpck_status add_numbered(ranks_inner *n, uint32_t piece, uint32_t *tensor,
                                  fsdpck_error *err)
{
    text_buf name = {.limit_bytes = UINT32_MAX}, own = {.limit_bytes = UINT32_MAX};
    fsdpck_status st;
    do {
        own.nbytes = 0;
        text_append(&own, strtab_text(&n->s->names, n->entry),
                    strtab_nbytes(&n->s->names, n->entry));
        text_printf(&own, "#%" PRIu64, n->number++);
        st = text_check(&own, err);
        if (st == FSDPCK_OK)
            st = inner_name_of(n, own.text, own.nbytes, &name, err);
        if (st == FSDPCK_OK)
            st = add_inner(n, piece, &name, tensor, err);
    } while (st == FSDPCK_OK && *tensor == CAT_NONE);
    text_release(&name);
    text_release(&own);
    return st;
}

/* A tensor that already has a path in the object is added again. */
static fsdpck_status name_inner(void *ctx, const char *name, size_t nbytes, value path,
                                uint64_t *tensor, fsdpck_error *err)
{
    ranks_inner *n = ctx;
    catalogue *cat = n->s->cat;
    const uint64_t k = *tensor - n->first;
    const ranks_inner_tensor known = *VEC_AT(&n->tensors, const ranks_inner_tensor, k);
    text_buf text = {.limit_bytes = UINT32_MAX};
    uint32_t id, made = CAT_NONE;
    fsdpck_status st = inner_name_of(n, name, nbytes, &text, err);
    if (st == FSDPCK_OK && known.is_named) {
        st = add_inner(n, known.piece, &text, &made, err);
    } else if (st == FSDPCK_OK && !is_taken(n->s, &text)) {
        made = (uint32_t)*tensor;
        st = strtab_intern(&n->s->inner_names, text.text, text.nbytes, &id, err);
        if (st == FSDPCK_OK)
            st = catalogue_rename(cat, made, text.text, text.nbytes, err);
    }
    text_release(&text);
    if (st != FSDPCK_OK || made == CAT_NONE)
        return st;
    VEC_AT(&n->tensors, ranks_inner_tensor, made - n->first)->is_named = true;
    *tensor = made;
    cat_tensor *t = catalogue_tensor(cat, made);
    if (n->is_apart)
        return FSDPCK_OK;
    t->path = path;
    t->flags |= CAT_TENSOR_NAMED;
    return FSDPCK_OK;
}

static fsdpck_status name_all_inner(ranks_inner *n, value path, value *content, fsdpck_error *err)
{
    value_pool *pool = &n->s->cat->pool;
    value_map judged = VALUE_MAP(pool->owner), seen = VALUE_MAP(pool->owner);
    inner_names in = {.pool = pool,
                      .judged = &judged,
                      .seen = &seen,
                      .steps_limit = INNER_STEPS_LEAST + INNER_STEPS_PER_CELL * pool->cells.count,
                      .on_tensor = name_inner,
                      .ctx = n};
    const fsdpck_status st =
        inner_name_tensors(&in, strtab_text(&n->s->names, n->entry),
                           strtab_nbytes(&n->s->names, n->entry), path, content, err);
    value_map_release(&judged);
    value_map_release(&seen);
    return st;
}

fsdpck_status ranks_variant_value(ranks_state *s, uint32_t variant, const ranks_object *o,
                                  uint16_t rank, value *content, fsdpck_error *err)
{
    ranks_variant *v = VEC_AT(&s->variants, ranks_variant, variant);
    const uint64_t map_nbytes = v->piece_count * sizeof(uint64_t);

    if (v->is_placed && v->piece_count == 0) {
        *content = v->placed;
        return FSDPCK_OK;
    }
    uint64_t *map = budget_alloc(s->req->metadata, map_nbytes, err);
    fsdpck_status st = map == NULL ? FSDPCK_LIMIT : FSDPCK_OK;
    ranks_inner n = {.s = s,
                     .entry = o->entry,
                     .rank = rank,
                     .is_apart = o->use == RANK_COPIES_OBJECTS,
                     .first = (uint32_t)catalogue_tensor_count(s->cat),
                     .tensors = VEC_OF(ranks_inner_tensor, s->req->metadata)};
    for (uint32_t i = 0; st == FSDPCK_OK && i < v->piece_count; i++) {
        uint32_t tensor = 0;
        st = add_numbered(&n, *VEC_AT(&s->leaves, const uint32_t, v->pieces_at + i), &tensor, err);
        map[i] = tensor;
    }
    if (st == FSDPCK_OK)
        st = value_copy(&s->pool, v->content, &s->cat->pool, map, &v->placed, err);
    if (st == FSDPCK_OK && v->piece_count > 0)
        st = name_all_inner(&n, o->path, &v->placed, err);
    if (map != NULL)
        budget_free(s->req->metadata, map, map_nbytes);
    vec_release(&n.tensors);
    RETURN_IF(st);
    v->is_placed = true;
    *content = v->placed;
    return FSDPCK_OK;
}
