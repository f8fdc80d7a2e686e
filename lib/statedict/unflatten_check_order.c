/* Shards of parameters next to the flat parameter that contains all of them.
 *
 * They are views of the rank's shard, and torch.save preserves that. Their offset in the shard is
 * the parameter's offset in the rank's part of the flat parameter. It must match the model, which
 * detects two exchanged names of equal shape. */
#include <inttypes.h>

#include "model/fqn.h"
#include "statedict/unflatten_internal.h"

/* The parameter of a covered name, possibly after outer keys. */
static const unit_param *param_of(const flat_adapter *v, const char *key, size_t nbytes,
                                  const unit **u)
{
    const unit_param *p = unit_list_find_param(v->units, key, nbytes, u);
    for (size_t i = 0; p == NULL && i < nbytes; i++)
        if (key[i] == '.')
            p = unit_list_find_param(v->units, key + i + 1, nbytes - i - 1, u);
    return p;
}

/* The chunk of a flat parameter that a rank wrote: usually one per rank, in order. */
static uint64_t chunk_of_rank(const catalogue *c, uint32_t tensor, unsigned rank)
{
    const cat_tensor *t = catalogue_tensor(c, tensor);
    if (rank < t->nchunks && catalogue_chunk(c, t->first_chunk + rank)->rank == rank)
        return t->first_chunk + rank;
    for (uint64_t k = t->first_chunk; k < t->first_chunk + t->nchunks; k++)
        if (catalogue_chunk(c, k)->rank == rank)
            return k;
    return UINT64_MAX;
}

static bool has_offset(const cat_chunk *k)
{
    return k->place == LOCATION_ROWS || k->place == LOCATION_STRIDED;
}

static fsdpck_status lies_elsewhere(const flat_adapter *v, const cat_chunk *piece,
                                    const uint64_t expected[2], const uint64_t found[2],
                                    fsdpck_error *err)
{
    const fsdpck_status st = FAIL_WITH(
        err, BADINPUT, MODEL_MISMATCH,
        ("offset of the parameter in the flat parameter differs from the model"),
        (tensor, catalogue_name(v->base, catalogue_tensor(v->base, piece->tensor)->name)));
    if (expected[0] == expected[1])
        error_expected(err, "no element in the shard of rank %u", (unsigned)piece->rank);
    else
        error_expected(err, "elements [%" PRIu64 ", %" PRIu64 ") of the shard of rank %u",
                       expected[0], expected[1], (unsigned)piece->rank);
    error_found(err, "[%" PRIu64 ", %" PRIu64 ")", found[0], found[1]);
    error_next(err, "describe the trained model, with the original order and shapes of its "
                    "parameters: scripts/describe_model.py");
    return st;
}

static fsdpck_status check_piece(const flat_adapter *v, uint32_t flat, const unit *u,
                                 const unit_param *p, uint64_t chunk, fsdpck_error *err)
{
    const catalogue *c = v->base;
    const cat_chunk *piece = catalogue_chunk(c, chunk);
    const uint64_t shard =
        piece->rank == UINT16_MAX ? UINT64_MAX : chunk_of_rank(c, flat, piece->rank);
    const cat_tensor *of = catalogue_tensor(c, flat);
    uint64_t nelems, begin, end, expected[2] = {0, 0};

    if (shard == UINT64_MAX || catalogue_tensor(c, piece->tensor)->dtype != of->dtype)
        return FSDPCK_OK;
    const cat_chunk *s = catalogue_chunk(c, shard);
    const uint64_t itemsize = dtype_get((dtype)of->dtype)->itemsize_bytes;
    catalogue_chunk_box(c, chunk, NULL, &nelems);
    if (flat_rank_interval(v, u, flat, shard, &begin, &end, NULL) != FSDPCK_OK)
        return FSDPCK_OK; /* the code that unflattens it reports the error */
    /* Elsewhere in the file it is a copy, of unknown origin. */
    if (!has_offset(piece) || !has_offset(s) || piece->file != s->file || nelems == 0 ||
        piece->offset_bytes < s->offset_bytes ||
        (piece->offset_bytes - s->offset_bytes) / itemsize >= end - begin)
        return FSDPCK_OK;
    const uint64_t lo = begin > p->offset ? begin : p->offset;
    const uint64_t hi = end < p->offset + p->nelems ? end : p->offset + p->nelems;
    if (lo < hi) {
        expected[0] = lo - begin;
        expected[1] = hi - begin;
    }
    const uint64_t at = (piece->offset_bytes - s->offset_bytes) / itemsize;
    const uint64_t found[2] = {at, at + nelems};
    if (found[0] == expected[0] && found[1] == expected[1])
        return FSDPCK_OK;
    return lies_elsewhere(v, piece, expected, found, err);
}

fsdpck_status flat_check_order(const flat_adapter *v, uint32_t base_tensor, const flat_name *n,
                               text_buf *clean, fsdpck_error *err)
{
    const cat_tensor *t = catalogue_tensor(v->base, base_tensor);
    const unit *u = NULL;
    clean->nbytes = 0;
    fqn_clean(n->text + n->key_at, n->key_nbytes, false, clean);
    RETURN_IF(text_check(clean, err));
    const unit_param *p = param_of(v, clean->text, clean->nbytes, &u);
    if (p == NULL || !unit_is_sharded(u))
        return FSDPCK_OK;
    const uint32_t flat = *VEC_AT(&v->flat_of, const uint32_t, u - unit_at(v->units, 0));
    for (uint64_t k = t->first_chunk; flat != CAT_NONE && k < t->first_chunk + t->nchunks; k++)
        RETURN_IF(check_piece(v, flat, u, p, k, err));
    return FSDPCK_OK;
}
