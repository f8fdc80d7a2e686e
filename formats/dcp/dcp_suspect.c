/* dcp_suspect.c: detects boxes that cannot match the blobs, without reading the blobs. */
#include <inttypes.h>
#include <string.h>

#include "formats/dcp/dcp_boxes.h"
#include "formats/dcp/dcp_flattened.h"

/* Limit on different dim lengths to check: models have few, and each costs layouts x ranks. */
enum { LENGTHS_MAX = 32, RANKS_LOOKED_AT = 4096 };

typedef struct doubt {
    dcp_folder *d;
    const open_request *req;
    uint64_t nranks;
    uint64_t seen[LENGTHS_MAX];
    size_t nseen;
} doubt;

/* The dim on which sizes differ, NDIM_MAX if none or several. */
static unsigned uneven_dim(const catalogue *cat, const cat_tensor *t)
{
    uint64_t first[NDIM_MAX], sizes[NDIM_MAX];
    unsigned dim = NDIM_MAX;
    catalogue_chunk_box(cat, t->first_chunk, NULL, first);
    for (uint64_t k = 1; k < t->nchunks; k++) {
        catalogue_chunk_box(cat, t->first_chunk + k, NULL, sizes);
        for (unsigned i = 0; i < t->ndim; i++) {
            if (sizes[i] == first[i])
                continue;
            if (dim != NDIM_MAX && dim != i)
                return NDIM_MAX;
            dim = i;
        }
    }
    return dim;
}

static bool is_new(doubt *x, uint64_t length)
{
    for (size_t i = 0; i < x->nseen; i++)
        if (x->seen[i] == length)
            return false;
    if (x->nseen == LENGTHS_MAX)
        return false;
    x->seen[x->nseen++] = length;
    return true;
}

/* FSDP over `fsdp` ranks inside each of `tp` parts; tp 1: only FSDP. */
static dcp_reading reading_of(unsigned dim, uint64_t fsdp, uint64_t tp)
{
    dcp_reading r = {.dim = dim};
    r.mesh.ndim = tp > 1 ? 2 : 1;
    r.mesh.sizes[0] = fsdp;
    r.mesh.sizes[1] = tp;
    r.recorded[0] = (placement){.kind = PLACEMENT_SHARD};
    if (tp > 1) {
        r.recorded[0] = (placement){.kind = PLACEMENT_STRIDED_SHARD, .split_factor = (uint32_t)tp};
        r.recorded[1] = (placement){.kind = PLACEMENT_SHARD};
    }
    memcpy(r.physical, r.recorded, sizeof r.physical);
    return r;
}

/* Whether each chunk's box is, on `dim`, the shard of its file's rank. Replicas: the mesh is
 * repeated over the ranks. */
static bool explains(const dcp_boxes *b, const dcp_reading *r, shard_rule rule)
{
    const uint64_t nranks = mesh_size(&r->mesh);
    for (uint64_t k = 0; k < b->count; k++) {
        const cat_chunk *c = catalogue_chunk(b->d->cat, b->first_chunk + k);
        const uint64_t *box = b->recorded + k * 2 * b->ndim;
        uint64_t coord[MESH_NDIM_MAX], offset, size;
        if (c->rank == UINT16_MAX)
            return false;
        mesh_coord(&r->mesh, c->rank % nranks, coord);
        if (shard_box(&r->mesh, r->recorded, 1, &b->shape[r->dim], coord, rule, &offset, &size,
                      NULL) != FSDPCK_OK)
            return false;
        if (size != box[b->ndim + r->dim] || (size > 0 && offset != box[r->dim]))
            return false;
    }
    return true;
}

static fsdpck_status look(const doubt *x, const dcp_boxes *b, unsigned dim, bool *wrong,
                          fsdpck_error *err)
{
    *wrong = false;
    for (uint64_t tp = 1; tp <= x->nranks; tp++) {
        if (x->nranks % tp != 0)
            continue;
        RETURN_IF(cancel_check(x->req->cancel, err));
        for (uint64_t fsdp = 1; fsdp <= x->nranks / tp; fsdp++) {
            if (x->nranks / tp % fsdp != 0)
                continue;
            const dcp_reading r = reading_of(dim, fsdp, tp);
            if (explains(b, &r, SHARD_PHYSICAL)) {
                *wrong = false;
                return FSDPCK_OK;
            }
            *wrong = *wrong || explains(b, &r, SHARD_RECORDED);
        }
    }
    return FSDPCK_OK;
}

static fsdpck_status check_suspect_tensor(doubt *x, uint32_t tensor, bool *wrong, fsdpck_error *err)
{
    const cat_tensor *t = catalogue_tensor(x->d->cat, tensor);
    *wrong = false;
    if (t->nchunks < 2 || t->ndim == 0 || t->flags & CAT_TENSOR_IN_OBJECT ||
        (x->d->flat_boxes.count > 0 && dcp_tensor_is_flattened(x->d->cat, tensor)))
        return FSDPCK_OK;
    const unsigned dim = uneven_dim(x->d->cat, t);
    if (dim == NDIM_MAX || !is_new(x, catalogue_shape(x->d->cat, tensor)[dim]))
        return FSDPCK_OK;
    dcp_boxes b;
    fsdpck_status st = dcp_boxes_init(&b, x->d, tensor, err);
    if (st == FSDPCK_OK)
        st = look(x, &b, dim, wrong, err);
    dcp_boxes_release(&b);
    return st;
}

fsdpck_status dcp_boxes_check_suspect(dcp_folder *d, const open_request *req, fsdpck_error *err)
{
    doubt x = {.d = d, .req = req};
    if (d->marks.world_size < 4 || d->marks.world_size > RANKS_LOOKED_AT)
        return FSDPCK_OK;
    x.nranks = (uint64_t)d->marks.world_size;
    for (uint32_t i = 0; i < catalogue_tensor_count(d->cat); i++) {
        bool wrong;
        RETURN_IF(check_suspect_tensor(&x, i, &wrong, err));
        if (!wrong)
            continue;
        d->cat->origin.boxes_suspect = true;
        log_warn(&d->log, FSDPCK_FINDING_DCP_BOX,
                 "give --repair-strided to derive the boxes from the data",
                 "recorded boxes of '%s' do not fit any layout of FSDP with tensor parallelism: "
                 "torch 2.10 to 2.15 record wrong boxes where a dim does not divide evenly",
                 catalogue_name(d->cat, catalogue_tensor(d->cat, i)->name));
        return FSDPCK_OK;
    }
    return FSDPCK_OK;
}
