/* Finds optimizer state that is equal on all ranks and has one dim in every tensor. FSDP1 saves its
 * state as shards of flat parameters, which are equal where all elements are, such as zeros before
 * the first step, or where one file is a copy of another. Replicas of a whole optimizer have the
 * shapes of the parameters. */
#include "formats/pt/ranks_internal.h"

typedef struct vector_state {
    uint64_t family, nelems;
} vector_state;

fsdpck_status ranks_equal_begin(ranks_equal_optim *x, const ranks_state *s, fsdpck_error *err)
{
    *x = (ranks_equal_optim){.sizes = VEC_OF(vector_state, s->req->metadata),
                             .whole = VALUE_MAP(s->req->metadata),
                             .families = s->list->families.count};
    x->is_other = budget_alloc(s->req->metadata, x->families, err);
    return x->is_other == NULL ? FSDPCK_LIMIT : FSDPCK_OK;
}

void ranks_equal_release(ranks_equal_optim *x, const ranks_state *s)
{
    if (x->is_other != NULL)
        budget_free(s->req->metadata, x->is_other, x->families);
    vec_release(&x->sizes);
    value_map_release(&x->whole);
}

static uint32_t family_of(const ranks_state *s, const ranks_tensor *t)
{
    return VEC_AT(&s->list->files, const ranks_file, t->first_file)->family;
}

static fsdpck_status add_whole(ranks_equal_optim *x, uint64_t size, fsdpck_error *err)
{
    return value_map_put(&x->whole, size + 1, NULL, err) == NULL ? FSDPCK_LIMIT : FSDPCK_OK;
}

fsdpck_status ranks_equal_see(ranks_equal_optim *x, const ranks_state *s, uint32_t entry,
                              uint32_t piece, size_t count, bool differs, fsdpck_error *err)
{
    const ranks_tensor *t = VEC_AT(&s->tensors, const ranks_tensor, entry);
    const torch_shard *q = VEC_AT(&s->reader->pieces, const torch_shard, piece);
    const uint64_t *sizes = VEC_AT(&s->reader->dims, const uint64_t, q->dims_at);
    if (q->ndim == 0 || dtype_get((dtype)q->dtype)->kind != DTYPE_IS_FLOAT)
        return FSDPCK_OK;
    if (!t->in_optimizer)
        return q->ndim == 1 && !differs ? add_whole(x, sizes[0], err) : FSDPCK_OK;
    const vector_state state = {family_of(s, t), sizes[0]};
    if (q->ndim > 1 || count == 1 || (q->flags & RANKS_SHARD_STAGES) != 0)
        x->is_other[state.family] = 1;
    return q->ndim == 1 ? vec_add(&x->sizes, &state, err) : FSDPCK_OK;
}

static fsdpck_status see_sharded(ranks_equal_optim *x, const ranks_state *s, fsdpck_error *err)
{
    for (size_t i = 0; i < s->tensors.count; i++) {
        const ranks_tensor *t = VEC_AT(&s->tensors, const ranks_tensor, i);
        if ((t->kind != RANKS_DTENSOR && t->kind != RANKS_SHARDED) || t->index == CAT_NONE)
            continue;
        if (t->in_optimizer)
            x->is_other[family_of(s, t)] = 1;
        else if (catalogue_tensor(s->cat, t->index)->ndim == 1)
            RETURN_IF(add_whole(x, catalogue_shape(s->cat, t->index)[0], err));
    }
    return FSDPCK_OK;
}

fsdpck_status ranks_equal_decide(ranks_equal_optim *x, const ranks_state *s, uint8_t *is_flat,
                                 fsdpck_error *err)
{
    RETURN_IF(see_sharded(x, s, err));
    for (size_t i = 0; i < x->sizes.count; i++) {
        const vector_state *state = VEC_AT(&x->sizes, const vector_state, i);
        if (is_flat[state->family] == RANKS_NOT_FLAT && !x->is_other[state->family] &&
            value_map_find(&x->whole, state->nelems + 1) == NULL)
            is_flat[state->family] = RANKS_FLAT_OR_COPIES;
    }
    return FSDPCK_OK;
}
