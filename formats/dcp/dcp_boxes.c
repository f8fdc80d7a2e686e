/* dcp_boxes.c: compares one tensor's boxes with its blobs, and finds layouts that explain both. */
#include "formats/dcp/dcp_boxes.h"

#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "layout/mesh_text.h"
#include "layout/shard_box.h"

fsdpck_status dcp_boxes_init(dcp_boxes *b, dcp_folder *d, uint32_t tensor, fsdpck_error *err)
{
    const cat_tensor *t = catalogue_tensor(d->cat, tensor);

    *b = (dcp_boxes){
        .d = d,
        .tensor = tensor,
        .ndim = t->ndim,
        .shape = catalogue_shape(d->cat, tensor),
        .first_chunk = t->first_chunk,
        .count = t->nchunks,
    };
    b->recorded = budget_alloc(d->owner, b->count * 2 * b->ndim * sizeof *b->recorded, err);
    if (b->recorded == NULL)
        return FSDPCK_LIMIT;
    for (uint64_t k = 0; k < b->count; k++) {
        uint64_t *box = b->recorded + k * 2 * b->ndim;
        catalogue_chunk_box(d->cat, b->first_chunk + k, box, box + b->ndim);
    }
    return FSDPCK_OK;
}

void dcp_boxes_release(dcp_boxes *b)
{
    budget_free(b->d->owner, b->recorded, b->count * 2 * b->ndim * sizeof *b->recorded);
    budget_free(b->d->owner, b->held, b->count * b->ndim * sizeof *b->held);
    b->recorded = b->held = NULL;
}

static fsdpck_status read_head(void *ctx, unsigned worker, uint64_t k, fsdpck_error *err)
{
    dcp_boxes *b = ctx;
    const catalogue *cat = b->d->cat;
    const cat_chunk *c = catalogue_chunk(cat, b->first_chunk + k);
    uint64_t *held = b->held + k * b->ndim;
    dcp_payload p;
    place where;
    (void)worker;

    memcpy(held, b->recorded + (k * 2 + 1) * b->ndim, b->ndim * sizeof *held);
    /* Files that hold only empty boxes may be missing. */
    if (c->place == LOCATION_EMPTY &&
        (c->file == CAT_NONE || c->nbytes == 0 ||
         !checked_range(c->offset_bytes, c->nbytes, catalogue_file(cat, c->file)->nbytes)))
        return FSDPCK_OK;
    RETURN_IF(dcp_blob_describe(b->d, b->first_chunk + k, &p, &where, err));
    if (p.is_stream || p.ndim != b->ndim ||
        p.dtype != (dtype)catalogue_tensor(cat, b->tensor)->dtype)
        held[0] = UINT64_MAX;
    else
        memcpy(held, p.sizes, b->ndim * sizeof *held);
    return FSDPCK_OK;
}

fsdpck_status dcp_boxes_read_headers(dcp_boxes *b, const open_request *req, fsdpck_error *err)
{
    if (b->ndim == 0) {
        b->alien = true;
        return FSDPCK_OK;
    }
    b->held = budget_alloc(b->d->owner, b->count * b->ndim * sizeof *b->held, err);
    if (b->held == NULL)
        return FSDPCK_LIMIT;
    const unsigned nthreads = req->nthreads < 1 || b->count < 8 ? 1 : req->nthreads;
    RETURN_IF(pool_run(nthreads, b->count, read_head, b, req->cancel, err));
    for (uint64_t k = 0; k < b->count; k++)
        b->alien = b->alien || b->held[k * b->ndim] == UINT64_MAX;
    return FSDPCK_OK;
}

bool dcp_boxes_agree(const dcp_boxes *b, unsigned *dim)
{
    bool agree = true;
    for (uint64_t k = 0; k < b->count; k++) {
        const uint64_t *sizes = b->recorded + (k * 2 + 1) * b->ndim;
        for (unsigned d = 0; d < b->ndim; d++) {
            if (sizes[d] == b->held[k * b->ndim + d])
                continue;
            *dim = agree || *dim == d ? d : NDIM_MAX;
            agree = false;
        }
    }
    return agree;
}

/* --- one reading --- */

/* A recorded shard of the sharded dim or, for strays, a shard that was recorded as empty. */
typedef struct cut {
    uint64_t offset, size;
    uint64_t new_offset, new_size;
    uint64_t known; /* number of the last reading that had it */
} cut;

typedef struct explaining {
    const dcp_boxes *b;
    const dcp_reading *r;
    dcp_cuts *cuts; /* sharded: distinct, by offset, not empty */
    vec strays;     /* sharded: only new_offset and new_size */
} explaining;

static int compare_cuts(const void *a, const void *b)
{
    const cut *x = a, *y = b;
    return x->offset != y->offset ? (x->offset < y->offset ? -1 : 1)
                                  : (x->size > y->size) - (x->size < y->size);
}

static fsdpck_status collect_cuts(vec *made, const dcp_boxes *b, unsigned dim, fsdpck_error *err)
{
    for (uint64_t k = 0; k < b->count; k++) {
        const uint64_t *box = b->recorded + k * 2 * b->ndim;
        if (box[b->ndim + dim] == 0)
            continue;
        RETURN_IF(vec_add(made, &(cut){.offset = box[dim], .size = box[b->ndim + dim]}, err));
    }
    if (made->count > 1)
        qsort(made->items, made->count, sizeof(cut), compare_cuts);
    return FSDPCK_OK;
}

fsdpck_status dcp_cuts_init(dcp_cuts *cuts, const dcp_boxes *b, unsigned dim, fsdpck_error *err)
{
    size_t kept = 0;

    *cuts = (dcp_cuts){.items = VEC_OF(cut, b->d->owner), .clear = true};
    const fsdpck_status st = collect_cuts(&cuts->items, b, dim, err);
    if (st != FSDPCK_OK) {
        dcp_cuts_release(cuts);
        return st;
    }
    cut *c = cuts->items.items;
    for (size_t i = 0; i < cuts->items.count; i++) {
        if (kept > 0 && c[kept - 1].offset == c[i].offset) {
            cuts->clear = cuts->clear && c[kept - 1].size == c[i].size;
            continue;
        }
        c[kept++] = c[i];
    }
    cuts->items.count = kept;
    cuts->clear = cuts->clear && kept > 0;
    return FSDPCK_OK;
}

void dcp_cuts_release(dcp_cuts *cuts)
{
    vec_release(&cuts->items);
}

static cut *find_cut(const dcp_cuts *cuts, const cut *wanted)
{
    return bsearch(wanted, cuts->items.items, cuts->items.count, sizeof(cut), compare_cuts);
}

/* One rank's shard under both readings. False if impossible. */
static fsdpck_status take_piece(explaining *x, const uint64_t *coord, bool *fits, fsdpck_error *err)
{
    const dcp_reading *r = x->r;
    const uint64_t n = x->b->shape[r->dim];
    cut c = {.known = x->cuts->number};

    *fits = shard_box(&r->mesh, r->recorded, 1, &n, coord, SHARD_RECORDED, &c.offset, &c.size,
                      NULL) == FSDPCK_OK &&
            shard_box(&r->mesh, r->physical, 1, &n, coord, SHARD_PHYSICAL, &c.new_offset,
                      &c.new_size, NULL) == FSDPCK_OK;
    if (!*fits)
        return FSDPCK_OK;
    if (c.size == 0) {
        cut *stray = c.new_size > 0 ? vec_push(&x->strays, err) : NULL;
        if (stray != NULL)
            *stray = c;
        return c.new_size > 0 && stray == NULL ? FSDPCK_LIMIT : FSDPCK_OK;
    }
    cut *found = find_cut(x->cuts, &c);
    *fits = found != NULL && found->known != x->cuts->number;
    if (*fits)
        *found = c;
    return FSDPCK_OK;
}

static fsdpck_status take_pieces(explaining *x, bool *fits, fsdpck_error *err)
{
    const mesh *m = &x->r->mesh;
    uint64_t coord[MESH_NDIM_MAX];

    for (uint64_t rank = 0, nranks = mesh_size(m); rank < nranks; rank++) {
        x->cuts->steps++;
        mesh_coord(m, rank, coord);
        RETURN_IF(take_piece(x, coord, fits, err));
        if (!*fits)
            return FSDPCK_OK;
    }
    for (size_t i = 0; i < x->cuts->items.count; i++)
        *fits = *fits && VEC_AT(&x->cuts->items, cut, i)->known == x->cuts->number;
    return FSDPCK_OK;
}

/* The shard that chunk k holds. */
static bool derive(const explaining *x, uint64_t k, uint64_t *piece)
{
    const dcp_boxes *b = x->b;
    const unsigned dim = x->r->dim;
    const uint64_t *box = b->recorded + k * 2 * b->ndim;
    const uint64_t held = b->held[k * b->ndim + dim];
    const cut wanted = {.offset = box[dim], .size = box[b->ndim + dim]};

    piece[0] = b->shape[dim];
    piece[1] = held;
    if (wanted.size > 0) {
        const cut *found = find_cut(x->cuts, &wanted);
        piece[0] = found->new_offset;
        return found->new_size == held;
    }
    if (held == 0)
        return true;
    /* Of several ranks with empty boxes only one blob was kept; its rank must be unambiguous. */
    bool any = false;
    for (size_t i = 0; i < x->strays.count; i++) {
        const cut *stray = VEC_AT(&x->strays, cut, i);
        if (stray->new_size != held)
            continue;
        if (any && piece[0] != stray->new_offset)
            return false;
        any = true;
        piece[0] = stray->new_offset;
    }
    return any;
}

typedef struct corner {
    uint64_t flat; /* row-major number of the box's first element */
    uint64_t nelems;
} corner;

static int compare_corners(const void *a, const void *b)
{
    const corner *x = a, *y = b;
    return x->flat != y->flat ? (x->flat < y->flat ? -1 : 1)
                              : (x->nelems > y->nelems) - (x->nelems < y->nelems);
}

/* Boxes at the same offset must be replicas, and all elements must be covered. The plan checks all
 * tensors for partial overlaps. */
static fsdpck_status check_tiling(const explaining *x, const uint64_t *derived, bool *fits,
                                  fsdpck_error *err)
{
    const dcp_boxes *b = x->b;
    uint64_t total = 0;
    size_t count = 0;
    corner *corners = budget_alloc(b->d->owner, b->count * sizeof *corners, err);

    if (corners == NULL)
        return FSDPCK_LIMIT;
    for (uint64_t k = 0; k < b->count; k++) {
        corner c = {.nelems = 1};
        for (unsigned d = 0; d < b->ndim; d++) {
            const bool cut_dim = d == x->r->dim;
            const uint64_t *box = b->recorded + k * 2 * b->ndim;
            c.flat = c.flat * b->shape[d] + (cut_dim ? derived[2 * k] : box[d]);
            c.nelems *= cut_dim ? derived[2 * k + 1] : box[b->ndim + d];
        }
        if (c.nelems > 0)
            corners[count++] = c;
    }
    qsort(corners, count, sizeof *corners, compare_corners);
    for (size_t i = 0; i < count && *fits; i++) {
        if (i > 0 && corners[i - 1].flat == corners[i].flat)
            *fits = corners[i - 1].nelems == corners[i].nelems;
        else
            *fits = checked_add(total, corners[i].nelems, &total);
    }
    *fits = *fits && total == catalogue_tensor_nelems(b->d->cat, b->tensor);
    budget_free(b->d->owner, corners, b->count * sizeof *corners);
    return FSDPCK_OK;
}

fsdpck_status dcp_boxes_fit(const dcp_boxes *b, dcp_cuts *cuts, const dcp_reading *r,
                            uint64_t *derived, bool *fits, fsdpck_error *err)
{
    explaining x = {.b = b, .r = r, .cuts = cuts, .strays = VEC_OF(cut, b->d->owner)};
    fsdpck_status st = FSDPCK_OK;

    cuts->number++;
    *fits = cuts->clear;
    if (*fits)
        st = take_pieces(&x, fits, err);
    if (st == FSDPCK_OK && *fits) {
        cuts->steps += b->count;
        for (uint64_t k = 0; k < b->count && *fits; k++)
            *fits = derive(&x, k, derived + 2 * k);
        if (*fits)
            st = check_tiling(&x, derived, fits, err);
    }
    vec_release(&x.strays);
    return st;
}

fsdpck_status dcp_boxes_apply(const dcp_boxes *b, unsigned dim, const uint64_t *derived,
                              fsdpck_error *err)
{
    uint64_t box[2 * NDIM_MAX];

    for (uint64_t k = 0; k < b->count; k++) {
        memcpy(box, b->recorded + k * 2 * b->ndim, 2 * b->ndim * sizeof *box);
        box[dim] = derived[2 * k];
        box[b->ndim + dim] = derived[2 * k + 1];
        RETURN_IF(catalogue_set_box(b->d->cat, b->first_chunk + k, box, box + b->ndim,
                                    LOCATION_BLOB, err));
    }
    return FSDPCK_OK;
}
