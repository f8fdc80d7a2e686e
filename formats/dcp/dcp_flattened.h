/* dcp_flattened.h: optimizer state that Megatron-Core up to 0.15 stores flattened (fully_sharded_model_space).
 *
 * A parameter of shape [X, Y] in shards of [x, y] becomes a tensor of shape [X / x, Y / y, x * y]. Each row of its
 * last dim is one shard in row-major order, divided among the data-parallel ranks. `.metadata` records [X, Y] in
 * mcore_data. The catalogue gets the parameter's own shape: each chunk is an interval of a shard, hence at
 * most 2*ndim-1 boxes of one blob.
 */
#ifndef FSDPCK_DCP_FLATTENED_H
#define FSDPCK_DCP_FLATTENED_H

#include "formats/dcp/dcp_internal.h"

typedef struct dcp_flattening {
    unsigned ndim; /* of the parameter; 0: not flattened */
    uint64_t shape[NDIM_MAX], cuts[NDIM_MAX], shard[NDIM_MAX];
    uint64_t nelems; /* of a shard */
} dcp_flattening;

/* A box of a blob, by the aux of its chunk. */
typedef struct dcp_flat_box {
    uint64_t skip;   /* elements of the blob before it */
    uint64_t nelems; /* of the blob */
    uint32_t transform;
} dcp_flat_box;

/* Fills shapes[FQN] from mcore_data; None for other tensors. `mcore`: a dict, or None. */
void dcp_flattened_collect(const value_pool *pool, value mcore, const strtab *fqns, value *shapes);
/* `recorded`: of dcp_flattened_collect. stored: the shape of the tensor. BADINPUT (MEGATRON-SHAPE). */
fsdpck_status dcp_flattening_read(const dcp_metadata *m, const value_pool *pool, value recorded,
                                  const uint64_t *stored, unsigned stored_ndim, dcp_flattening *f,
                                  fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Adds the boxes of a chunk of the stored tensor; `boxes` gets a dcp_flat_box for each. */
fsdpck_status dcp_flattened_add(catalogue *cat, uint32_t tensor, const dcp_flattening *f,
                                const uint64_t *offsets, const uint64_t *sizes,
                                const cat_chunk *proto, vec *boxes,
                                fsdpck_error *err) FSDPCK_MUST_CHECK;

static inline bool dcp_chunk_is_flattened(const cat_chunk *c)
{
    return (c->aux & (DCP_AUX_ITEM_TENSOR | DCP_AUX_FLATTENED)) == DCP_AUX_FLATTENED;
}
bool dcp_tensor_is_flattened(const catalogue *cat, uint32_t tensor);
const dcp_flat_box *dcp_flat_box_at(const dcp_folder *d, const cat_chunk *c);
/* Moves *where from the blob's first element to the box. DCP-PAYLOAD-DTYPE, DCP-PAYLOAD-SHAPE. */
fsdpck_status dcp_flattened_place(const dcp_folder *d, uint64_t chunk, const dcp_payload *p,
                                  place *where, fsdpck_error *err) FSDPCK_MUST_CHECK;

#endif
