/* Names of one tensor, and tensors that each rank has of its own, from a description. */

#include "statedict/unflatten_internal.h"

bool flat_is_local(const flat_adapter *v, const char *name, size_t nbytes)
{
    return v->options.match != NULL && description_is_local(v->options.match, name, nbytes);
}

/* --- names of one tensor --- */

/* Whether both have the same boxes in the same order: then the chunks of one are replicas of the
 * other's. */
static bool same_boxes(const catalogue *c, const cat_tensor *a, const cat_tensor *b)
{
    uint64_t x[2][NDIM_MAX], y[2][NDIM_MAX];
    bool same = a->nchunks == b->nchunks;
    for (uint32_t k = 0; same && k < a->nchunks; k++) {
        catalogue_chunk_box(c, a->first_chunk + k, x[0], x[1]);
        catalogue_chunk_box(c, b->first_chunk + k, y[0], y[1]);
        for (unsigned d = 0; same && d < a->ndim; d++)
            same = x[0][d] == y[0][d] && x[1][d] == y[1][d];
    }
    return same;
}

/* A storage that both view, or one location in a file. */
static bool same_bytes(const catalogue *c, const cat_tensor *a, const cat_tensor *b)
{
    if (a->alias != CAT_NONE && a->alias == b->alias)
        return true;
    bool same = a->nchunks == b->nchunks;
    for (uint32_t k = 0; same && k < a->nchunks; k++) {
        const cat_chunk *x = catalogue_chunk(c, a->first_chunk + k);
        const cat_chunk *y = catalogue_chunk(c, b->first_chunk + k);
        same = x->file == y->file && x->place == y->place && x->offset_bytes == y->offset_bytes &&
               x->nbytes == y->nbytes;
    }
    return same;
}

/* Makes the alias's chunks replicas of the first's, so that reading compares them. */
static fsdpck_status join_alias(flat_adapter *v, const description_tie *t, uint32_t made,
                                fsdpck_error *err)
{
    const cat_tensor *a = catalogue_tensor(v->base, t->first);
    const cat_tensor *b = catalogue_tensor(v->base, t->twin);
    if (same_bytes(v->base, a, b))
        return FSDPCK_OK;
    if (!same_boxes(v->base, a, b)) {
        v->ties_uncompared++;
        return FSDPCK_OK;
    }
    for (uint64_t k = b->first_chunk; k < b->first_chunk + b->nchunks; k++)
        RETURN_IF(flat_add_same(v, made, k, FLAT_CHUNK_ALIAS, err));
    return FSDPCK_OK;
}

static fsdpck_status fill_alias(flat_adapter *v, const description_tie *t, fsdpck_error *err)
{
    const cat_tensor *a = catalogue_tensor(v->base, t->first);
    const size_t depth = value_count(&v->base->pool, a->path);
    text_buf name = {0};
    uint32_t made;
    value path = VALUE_OF_NONE;
    flat_name n;

    flat_name_read(v->base, t->first, &n);
    text_append(&name, n.text, n.key_at);
    if (n.key_at == 0 && n.key_nbytes >= t->first_fqn_nbytes) /* outer keys without a path */
        text_append(&name, n.text, n.key_nbytes - t->first_fqn_nbytes);
    const size_t key_at = depth > 0 ? n.key_at : 0;
    text_append(&name, t->fqn, t->fqn_nbytes);
    fsdpck_status st = text_check(&name, err);
    if (st == FSDPCK_OK) {
        const char *key = name.text + key_at;
        const size_t key_nbytes = name.nbytes - key_at;
        st = flat_path(v, a->path, depth == 0 ? 0 : depth - 1, &key, &key_nbytes, 1, &path, err);
    }
    if (st == FSDPCK_OK)
        st = flat_copy_tensor(v, t->first, name.text, name.nbytes, path, &made, err);
    text_release(&name);
    RETURN_IF(st);
    for (uint64_t k = a->first_chunk; k < a->first_chunk + a->nchunks; k++)
        RETURN_IF(flat_add_same(v, made, k, FLAT_CHUNK_AS_IS, err));
    return FSDPCK_OK;
}

fsdpck_status flat_add_ties(flat_adapter *v, fsdpck_error *err)
{
    for (size_t i = 0; i < v->options.tie_count; i++) {
        const description_tie *t = &v->options.ties[i];
        const uint64_t made = *VEC_AT(&v->map, const uint64_t, t->first);
        if (made == UINT64_MAX)
            continue;
        if (t->twin == CAT_NONE)
            RETURN_IF(fill_alias(v, t, err));
        else if (*VEC_AT(&v->map, const uint64_t, t->twin) != UINT64_MAX)
            RETURN_IF(join_alias(v, t, (uint32_t)made, err));
    }
    return FSDPCK_OK;
}

const char *flat_replica_of(void *ctx, uint64_t chunk)
{
    const flat_adapter *v = ctx;
    const flat_chunk *s = VEC_AT(&v->spots, const flat_chunk, catalogue_chunk(v->out, chunk)->aux);
    if (s->param != FLAT_CHUNK_ALIAS)
        return NULL;
    const uint32_t tensor = catalogue_chunk(v->base, s->chunk)->tensor;
    return catalogue_name(v->base, catalogue_tensor(v->base, tensor)->name);
}

const fsdpck_error *flat_adapter_order_error(const flat_adapter *v)
{
    return v->refusal.status == FSDPCK_OK ? NULL : &v->refusal;
}

uint64_t flat_adapter_ties_uncompared(const flat_adapter *v)
{
    return v->ties_uncompared;
}
