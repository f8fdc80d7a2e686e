/* dcp_tp_order.c: FSDP2 with tensor parallelism of torch 2.3, whose rows may be at other offsets
 * than recorded. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "formats/dcp/dcp_boxes.h"

/* The ranks of a mesh of two dims; 0: not known. */
typedef struct two_dims {
    uint64_t fsdp, tp;
    bool clash; /* tensors imply different meshes */
} two_dims;

/* Sharding of a tensor's boxes with elements. */
typedef struct cut_shape {
    uint64_t counts[2]; /* distinct offsets of dim 0, and of the other dim that is cut */
    unsigned ncut_dims;
    uint64_t nboxes;
    uint64_t rows; /* of the first box */
    bool any_empty, even, ascending;
} cut_shape;

static int compare_u64(const void *a, const void *b)
{
    const uint64_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

static fsdpck_status count_offsets(const catalogue *cat, uint32_t tensor, unsigned dim,
                                   uint64_t *count, fsdpck_error *err)
{
    const cat_tensor *t = catalogue_tensor(cat, tensor);
    uint64_t box[NDIM_MAX];
    size_t n = 0;
    bool sorted = true;
    uint64_t *offsets = budget_alloc(cat->owner, t->nchunks * sizeof *offsets, err);

    if (offsets == NULL)
        return FSDPCK_LIMIT;
    for (uint64_t k = 0; k < t->nchunks; k++) {
        if (catalogue_chunk(cat, t->first_chunk + k)->place == LOCATION_EMPTY)
            continue;
        catalogue_chunk_box(cat, t->first_chunk + k, box, NULL);
        sorted = sorted && (n == 0 || box[dim] >= offsets[n - 1]);
        offsets[n++] = box[dim];
    }
    if (!sorted)
        qsort(offsets, n, sizeof *offsets, compare_u64);
    *count = n > 0;
    for (size_t i = 1; i < n; i++)
        *count += offsets[i] != offsets[i - 1];
    budget_free(cat->owner, offsets, t->nchunks * sizeof *offsets);
    return FSDPCK_OK;
}

/* All but the counts. */
static void look_at(const catalogue *cat, uint32_t tensor, cut_shape *c)
{
    const cat_tensor *t = catalogue_tensor(cat, tensor);
    uint64_t first[NDIM_MAX], offsets[NDIM_MAX], sizes[NDIM_MAX], last = 0;

    *c = (cut_shape){.even = true, .ascending = true};
    for (uint64_t k = 0; t->ndim > 0 && k < t->nchunks; k++) {
        if (catalogue_chunk(cat, t->first_chunk + k)->place == LOCATION_EMPTY) {
            c->any_empty = true;
            continue;
        }
        catalogue_chunk_box(cat, t->first_chunk + k, offsets, sizes);
        if (c->nboxes == 0)
            memcpy(first, sizes, t->ndim * sizeof *first);
        c->even = c->even && memcmp(first, sizes, t->ndim * sizeof *first) == 0;
        c->ascending = c->ascending && offsets[0] >= last;
        last = offsets[0];
        c->nboxes++;
    }
    c->rows = c->nboxes > 0 ? first[0] : 0;
}

static fsdpck_status count_cuts(const catalogue *cat, uint32_t tensor, cut_shape *c,
                                fsdpck_error *err)
{
    const cat_tensor *t = catalogue_tensor(cat, tensor);
    RETURN_IF(count_offsets(cat, tensor, 0, &c->counts[0], err));
    c->ncut_dims = c->counts[0] > 1;
    for (unsigned d = 1; d < t->ndim; d++) {
        uint64_t count;
        RETURN_IF(count_offsets(cat, tensor, d, &count, err));
        if (count > 1) {
            c->ncut_dims++;
            c->counts[1] = count;
        }
    }
    return FSDPCK_OK;
}

static void speak_for(two_dims *m, uint64_t fsdp, uint64_t tp)
{
    m->clash = m->clash || (m->tp != 0 && (m->tp != tp || m->fsdp != fsdp));
    m->fsdp = fsdp;
    m->tp = tp;
}

/* The shapes of all tensors, each a pass over its chunks. */
typedef struct cut_shapes {
    const catalogue *cat;
    cut_shape *of; /* by tensor */
} cut_shapes;

/* Whether its counts tell of a mesh. */
static bool is_even(const cut_shape *c)
{
    return c->nboxes >= 2 && !c->any_empty && c->even;
}

static fsdpck_status find_shape(void *ctx, unsigned worker, uint64_t tensor, fsdpck_error *err)
{
    const cut_shapes *s = ctx;
    cut_shape *c = &s->of[tensor];
    (void)worker;
    look_at(s->cat, (uint32_t)tensor, c);
    return is_even(c) ? count_cuts(s->cat, (uint32_t)tensor, c, err) : FSDPCK_OK;
}

/* Tensors cut on two dims show both numbers. Otherwise a tensor with fewer shards than ranks, but
 * rows for all ranks, is whole on each TP rank. */
static two_dims mesh_of(const cut_shapes *s, uint64_t nranks)
{
    two_dims grid = {0}, rows = {0};

    for (uint32_t i = 0; i < catalogue_tensor_count(s->cat); i++) {
        const cut_shape *c = &s->of[i];
        if (!is_even(c) || c->counts[0] < 2)
            continue;
        const uint64_t n = catalogue_shape(s->cat, i)[0];
        if (c->ncut_dims == 2 && c->counts[0] * c->counts[1] == c->nboxes)
            speak_for(&grid, c->counts[0], c->counts[1]);
        else if (c->ncut_dims == 1 && nranks > c->nboxes && nranks % c->nboxes == 0 &&
                 c->rows != n / nranks + (n % nranks != 0))
            speak_for(&rows, c->nboxes, nranks / c->nboxes);
    }
    two_dims found = grid.tp != 0 ? grid : rows;
    if (found.clash || found.fsdp * found.tp > MESH_RANKS_MAX ||
        (nranks != 0 && found.fsdp * found.tp != nranks))
        found = (two_dims){0};
    return found;
}

static fsdpck_status infer_mesh(const dcp_folder *d, const open_request *req, two_dims *found,
                                fsdpck_error *err)
{
    const size_t count = catalogue_tensor_count(d->cat);
    const unsigned nthreads = catalogue_threads(d->cat, req->nthreads);
    cut_shapes s = {.cat = d->cat, .of = budget_alloc(d->owner, count * sizeof *s.of, err)};
    if (s.of == NULL)
        return FSDPCK_LIMIT;
    const fsdpck_status st = pool_run(nthreads, count, find_shape, &s, req->cancel, err);
    if (st == FSDPCK_OK)
        *found = mesh_of(&s, d->marks.world_size > 0 ? (uint64_t)d->marks.world_size : 0);
    budget_free(d->owner, s.of, count * sizeof *s.of);
    return st;
}

/* --- tensors that may be wrong --- */

static dcp_reading reading_of(const two_dims *m)
{
    return (dcp_reading){
        .mesh = {.ndim = 2, .sizes = {m->fsdp, m->tp}},
        .recorded = {{.kind = PLACEMENT_SHARD}, {.kind = PLACEMENT_SHARD}},
        .physical = {{.kind = PLACEMENT_STRIDED_SHARD, .split_factor = (uint32_t)m->tp},
                     {.kind = PLACEMENT_SHARD}},
    };
}

/* The next chunk from *k on that has rows, all of them of one column. */
static const uint64_t *next_rows(const dcp_boxes *b, uint64_t *k)
{
    while (*k < b->count && b->recorded[*k * 2 * b->ndim + b->ndim] == 0)
        ++*k;
    return *k < b->count ? b->recorded + (*k)++ * 2 * b->ndim : NULL;
}

/* Whether the tensor's boxes, in their order, are those of the ranks that have rows under plain
 * Shards of dim 0. *differ: the other reading of the placements yields other rows. */
static bool rows_are(const dcp_boxes *b, const dcp_reading *r, bool *differ)
{
    uint64_t coord[MESH_NDIM_MAX], from, nfrom, to, nto, k = 0;

    *differ = false;
    for (uint64_t rank = 0, nranks = mesh_size(&r->mesh); rank < nranks; rank++) {
        mesh_coord(&r->mesh, rank, coord);
        if (shard_box(&r->mesh, r->recorded, 1, b->shape, coord, SHARD_RECORDED, &from, &nfrom,
                      NULL) != FSDPCK_OK ||
            shard_box(&r->mesh, r->physical, 1, b->shape, coord, SHARD_PHYSICAL, &to, &nto, NULL) !=
                FSDPCK_OK)
            return false;
        *differ = *differ || from != to || nfrom != nto;
        if (nfrom == 0)
            continue;
        const uint64_t *box = next_rows(b, &k);
        if (box == NULL || box[0] != from || box[b->ndim] != nfrom)
            return false;
    }
    return next_rows(b, &k) == NULL;
}

/* Sharded only by dim 0, in the order of ranks, into exactly the boxes of two Shards, and TP first
 * would yield other rows. */
static fsdpck_status is_suspect(const dcp_boxes *b, const dcp_reading *r, bool *suspect,
                                fsdpck_error *err)
{
    cut_shape c;
    bool differ;

    *suspect = false;
    look_at(b->d->cat, b->tensor, &c);
    if (c.nboxes < 2 || !c.ascending)
        return FSDPCK_OK;
    RETURN_IF(count_cuts(b->d->cat, b->tensor, &c, err));
    if (c.ncut_dims == 1 && c.counts[0] == c.nboxes)
        *suspect = rows_are(b, r, &differ) && differ;
    return FSDPCK_OK;
}

/* Whether plain FSDP also explains the rows, with the tensor whole on each TP rank. */
static bool may_be_fsdp_alone(const dcp_boxes *b, const two_dims *m)
{
    const dcp_reading r = {
        .mesh = {.ndim = 1, .sizes = {m->fsdp}},
        .recorded = {{.kind = PLACEMENT_SHARD}},
        .physical = {{.kind = PLACEMENT_SHARD}},
    };
    bool differ;
    return rows_are(b, &r, &differ);
}

typedef struct order_counts {
    uint64_t suspects, corrected, unsure;
    const char *first; /* name of the first suspect */
} order_counts;

static void mark_unsure(dcp_boxes *b)
{
    for (uint64_t k = 0; k < b->count; k++)
        catalogue_chunk(b->d->cat, b->first_chunk + k)->aux |= DCP_AUX_UNKNOWN_ORDER;
}

/* TP first, if the blobs allow it and no other layout explains them. */
static fsdpck_status correct(dcp_boxes *b, const open_request *req, const two_dims *m,
                             const dcp_reading *r, order_counts *counts, fsdpck_error *err)
{
    const uint64_t nbytes = b->count * 2 * sizeof(uint64_t);
    bool tp_first = false;
    unsigned dim;

    RETURN_IF(dcp_boxes_read_headers(b, req, err));
    if (b->alien) {
        mark_unsure(b);
        counts->unsure++;
        return FSDPCK_OK;
    }
    uint64_t *derived = budget_alloc(b->d->owner, nbytes, err);
    if (derived == NULL)
        return FSDPCK_LIMIT;
    dcp_cuts cuts;
    fsdpck_status st = dcp_cuts_init(&cuts, b, r->dim, err);
    if (st == FSDPCK_OK)
        st = dcp_boxes_fit(b, &cuts, r, derived, &tp_first, err);
    dcp_cuts_release(&cuts);
    const bool fsdp_alone = may_be_fsdp_alone(b, m) && dcp_boxes_agree(b, &dim);
    if (st == FSDPCK_OK && tp_first && !fsdp_alone) {
        st = dcp_boxes_apply(b, r->dim, derived, err);
        counts->corrected++;
    } else if (st == FSDPCK_OK && tp_first == fsdp_alone) {
        mark_unsure(b);
        counts->unsure++;
    }
    budget_free(b->d->owner, derived, nbytes);
    return st;
}

static fsdpck_status check_tensor(dcp_folder *d, const open_request *req, uint32_t tensor,
                                  const two_dims *m, order_counts *counts, fsdpck_error *err)
{
    const cat_tensor *t = catalogue_tensor(d->cat, tensor);
    const dcp_reading r = reading_of(m);
    dcp_boxes b;
    bool suspect = false;

    if (t->ndim == 0 || t->nchunks < 2)
        return FSDPCK_OK;
    fsdpck_status st = dcp_boxes_init(&b, d, tensor, err);
    if (st == FSDPCK_OK)
        st = is_suspect(&b, &r, &suspect, err);
    if (st == FSDPCK_OK && suspect && req->assume_tp_first) {
        st = correct(&b, req, m, &r, counts, err);
    } else if (suspect && !may_be_fsdp_alone(&b, m)) {
        if (counts->suspects++ == 0)
            counts->first = catalogue_name(d->cat, t->name);
    }
    dcp_boxes_release(&b);
    return st;
}

/* torch 2.3, or 2.4 to 2.6, which leave the same marks. */
static bool may_be_wrong(const dcp_marks *m)
{
    return m->has_tensors && !m->has_modules && !m->has_version && !m->no_collectives &&
           !m->has_transforms && !m->has_mcore_data && !m->old_package && !m->old_properties;
}

static fsdpck_status refuse(fsdpck_status code, fsdpck_finding_id finding, const char *what,
                            const char *next, fsdpck_error *err)
{
    FAIL_AS(err, code, finding, ("%s", what), (next, "%s", next));
    return code;
}

fsdpck_status dcp_order_refuse(fsdpck_error *err)
{
    return refuse(FSDPCK_UNSUPPORTED, FSDPCK_FINDING_DCP_TP_UNSURE,
                  "blobs do not show whether tensor parallelism or FSDP sharded this tensor first",
                  "omit the tensor with --exclude, or load it with torch 2.3 on the mesh that "
                  "saved it; without --assume fsdp2-tp-2.3, fsdpck reads the tensor as recorded",
                  err);
}

static void report(dcp_folder *d, const open_request *req, const two_dims *m,
                   const order_counts *counts)
{
    cat_origin *o = &d->cat->origin;

    if (counts->suspects > 0) {
        snprintf(o->note, sizeof o->note,
                 "%" PRIu64 " tensor%s may have rows in the wrong order: see --assume fsdp2-tp-2.3",
                 counts->suspects, text_plural(counts->suspects));
        o->order_suspect = true;
        log_warn(&d->log, FSDPCK_FINDING_TP_ORDER,
                 "give --assume fsdp2-tp-2.3 if FSDP2 with tensor parallelism wrote the "
                 "checkpoint; files of FSDP1 with tensor parallelism have the same form and are "
                 "correct",
                 "%" PRIu64 " tensor%s, the first '%s', may have rows in the wrong order: torch "
                 "2.3 and 2.4 record FSDP2 with tensor parallelism in this form",
                 counts->suspects, text_plural(counts->suspects), counts->first);
    }
    if (!req->assume_tp_first)
        return;
    snprintf(o->note, sizeof o->note,
             "moved rows of %" PRIu64
             " tensor%s to their positions in FSDP2 with tensor parallelism of torch 2.3 (%" PRIu64
             " x %" PRIu64 " ranks)",
             counts->corrected, text_plural(counts->corrected), m->fsdp, m->tp);
    log_write(&d->log, LOG_NOTE, "--assume fsdp2-tp-2.3: %s", o->note);
    if (counts->unsure > 0)
        log_warn(&d->log, FSDPCK_FINDING_DCP_TP_UNSURE, "omit such tensors with --exclude of consolidate or reshard",
                 "%" PRIu64 " tensor%s with an ambiguous order will be refused", counts->unsure,
                 text_plural(counts->unsure));
}

fsdpck_status dcp_order_check(dcp_folder *d, const open_request *req, fsdpck_error *err)
{
    two_dims m;
    order_counts counts = {0};

    if (!may_be_wrong(&d->marks))
        return req->assume_tp_first
                   ? refuse(FSDPCK_USAGE, FSDPCK_FINDING_NONE,
                            "--assume fsdp2-tp-2.3 does not fit this checkpoint",
                            "torch 2.3 or 2.4 did not write it: omit the option", err)
                   : FSDPCK_OK;
    RETURN_IF(infer_mesh(d, req, &m, err));
    if (m.tp < 2)
        return req->assume_tp_first
                   ? refuse(FSDPCK_UNSUPPORTED, FSDPCK_FINDING_DCP_TP_UNSURE,
                            "cannot determine the number of tensor-parallel ranks from the "
                            "tensors' boxes",
                            "load the checkpoint with torch 2.3 on the mesh that saved it", err)
                   : FSDPCK_OK;
    for (uint32_t i = 0; i < catalogue_tensor_count(d->cat); i++)
        RETURN_IF(check_tensor(d, req, i, &m, &counts, err));
    report(d, req, &m, &counts);
    return FSDPCK_OK;
}
