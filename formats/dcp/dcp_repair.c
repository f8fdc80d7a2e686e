/* dcp_repair.c: --repair-strided. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "formats/dcp/dcp_boxes.h"
#include "formats/dcp/dcp_flattened.h"

/* Largest number of ranks to try if the number of ranks is unknown. */
enum { RANKS_GUESSED = 64 };
/* Over all tensors of a checkpoint. A number of ranks has up to some thousand layouts, each with
 * one shard per rank. Most are excluded at their first shard, so 4,096 ranks take about 20,000
 * steps per tensor. A step takes about 80 ns. */
#define REPAIR_STEPS_MAX ((uint64_t)1 << 24)

/* Wrong boxes are only recorded for dims that do not divide evenly: then sizes differ. */
static bool may_be_wrong(const catalogue *cat, uint32_t tensor)
{
    const cat_tensor *t = catalogue_tensor(cat, tensor);
    uint64_t first[NDIM_MAX], sizes[NDIM_MAX];

    if (t->nchunks < 2 || t->ndim == 0 || t->flags & CAT_TENSOR_IN_OBJECT ||
        dcp_tensor_is_flattened(cat, tensor))
        return false;
    catalogue_chunk_box(cat, t->first_chunk, NULL, first);
    for (uint64_t k = 1; k < t->nchunks; k++) {
        catalogue_chunk_box(cat, t->first_chunk + k, NULL, sizes);
        if (memcmp(first, sizes, t->ndim * sizeof *sizes) != 0)
            return true;
    }
    return false;
}

/* FSDP over `fsdp` ranks inside each of the `outer` x `inner` parts (expert, tensor parallel; outer
 * 1: only one of them), as recorded by torch 2.5 to 2.15. */
static dcp_reading reading_of(unsigned dim, uint64_t fsdp, uint64_t outer, uint64_t inner)
{
    dcp_reading r = {.dim = dim};
    unsigned n = 0;
    r.recorded[n] =
        (placement){.kind = PLACEMENT_STRIDED_SHARD, .split_factor = (uint32_t)(outer * inner)};
    r.mesh.sizes[n++] = fsdp;
    if (outer > 1) {
        r.recorded[n] = (placement){.kind = PLACEMENT_SHARD};
        r.mesh.sizes[n++] = outer;
    }
    r.recorded[n] = (placement){.kind = PLACEMENT_SHARD};
    r.mesh.sizes[n++] = inner;
    r.mesh.ndim = n;
    memcpy(r.physical, r.recorded, sizeof r.physical);
    return r;
}

typedef struct search {
    const dcp_boxes *b;
    dcp_cuts cuts;
    unsigned dim;
    uint64_t *steps;   /* of all tensors so far */
    uint64_t *derived; /* of the first layout that fits */
    uint64_t *other;
    unsigned nfits; /* layouts that lead to different boxes: 0, 1, 2 (or more) */
} search;

static fsdpck_status refuse_more(const search *s, fsdpck_error *err)
{
    return FAIL_WITH(
        err, LIMIT, DCP_LAYOUTS, ("--repair-strided: too many layouts to try"),
        (tensor, catalogue_name(s->b->d->cat, catalogue_tensor(s->b->d->cat, s->b->tensor)->name)),
        (expected, "at most %" PRIu64 " shards over all layouts", REPAIR_STEPS_MAX),
        (found, "%" PRId64 " ranks", s->b->d->marks.world_size),
        (next, "omit --repair-strided and exclude the tensors that do not fit, or load and save "
               "the checkpoint with the torch that wrote it"));
}

static fsdpck_status try_reading(search *s, uint64_t fsdp, uint64_t outer, uint64_t inner,
                                 fsdpck_error *err)
{
    const dcp_reading r = reading_of(s->dim, fsdp, outer, inner);
    uint64_t *derived = s->nfits == 0 ? s->derived : s->other;
    bool fits;

    const uint64_t before = s->cuts.steps;
    RETURN_IF(dcp_boxes_fit(s->b, &s->cuts, &r, derived, &fits, err));
    *s->steps += s->cuts.steps - before;
    if (*s->steps > REPAIR_STEPS_MAX)
        return refuse_more(s, err);
    if (fits &&
        (s->nfits == 0 || memcmp(derived, s->derived, s->b->count * 2 * sizeof *derived) != 0))
        s->nfits++;
    return FSDPCK_OK;
}

/* All layouts of the existing ranks: the product divides their number. */
static fsdpck_status search_layouts(search *s, const open_request *req, fsdpck_error *err)
{
    const int64_t known = s->b->d->marks.world_size;
    const uint64_t nranks = known > 0 ? (uint64_t)known : RANKS_GUESSED;

    if (nranks > MESH_RANKS_MAX)
        return FSDPCK_OK;
    for (uint64_t inner = 2; inner <= nranks / 2 && s->nfits < 2; inner++) {
        if (known > 0 && nranks % inner != 0)
            continue;
        for (uint64_t outer = 1; outer <= nranks / inner / 2; outer++) {
            if (known > 0 && nranks / inner % outer != 0)
                continue;
            RETURN_IF(cancel_check(req->cancel, err));
            for (uint64_t fsdp = 2; fsdp <= nranks / inner / outer; fsdp++)
                if (known <= 0 || nranks / inner / outer % fsdp == 0)
                    RETURN_IF(try_reading(s, fsdp, outer, inner, err));
        }
    }
    return FSDPCK_OK;
}

static fsdpck_status repair_dim(const dcp_boxes *b, const open_request *req, unsigned dim,
                                uint64_t *steps, bool *repaired, fsdpck_error *err)
{
    const uint64_t nbytes = b->count * 2 * sizeof(uint64_t);
    search s = {.b = b, .dim = dim, .steps = steps};
    fsdpck_status st = FSDPCK_LIMIT;

    RETURN_IF(dcp_cuts_init(&s.cuts, b, dim, err));
    s.derived = budget_alloc(b->d->owner, nbytes, err);
    s.other = budget_alloc(b->d->owner, nbytes, err);
    if (s.derived != NULL && s.other != NULL)
        st = search_layouts(&s, req, err);
    *repaired = st == FSDPCK_OK && s.nfits == 1;
    if (*repaired)
        st = dcp_boxes_apply(b, dim, s.derived, err);
    budget_free(b->d->owner, s.derived, nbytes);
    budget_free(b->d->owner, s.other, nbytes);
    dcp_cuts_release(&s.cuts);
    return st;
}

static fsdpck_status repair_tensor(dcp_folder *d, const open_request *req, uint32_t tensor,
                                   uint64_t *steps, uint64_t *nrepaired, fsdpck_error *err)
{
    dcp_boxes b;
    unsigned dim = NDIM_MAX;
    bool repaired = false;
    fsdpck_status st = dcp_boxes_init(&b, d, tensor, err);

    if (st == FSDPCK_OK)
        st = dcp_boxes_read_headers(&b, req, err);
    if (st == FSDPCK_OK && !b.alien && !dcp_boxes_agree(&b, &dim)) {
        if (dim != NDIM_MAX)
            st = repair_dim(&b, req, dim, steps, &repaired, err);
        *nrepaired += repaired;
        if (st == FSDPCK_OK && !repaired)
            log_warn(&d->log, FSDPCK_FINDING_DCP_PAYLOAD_SHAPE,
                     "omit the tensor with --exclude of consolidate or reshard, or save the checkpoint again",
                     "blobs of '%s' do not fit their boxes or any known layout: some data may be "
                     "lost; keeping the recorded boxes",
                     catalogue_name(d->cat, catalogue_tensor(d->cat, tensor)->name));
    }
    dcp_boxes_release(&b);
    return st;
}

fsdpck_status dcp_boxes_repair(dcp_folder *d, const open_request *req, fsdpck_error *err)
{
    cat_origin *o = &d->cat->origin;
    uint64_t steps = 0, nrepaired = 0;

    d->repaired = true;
    for (uint32_t i = 0; i < catalogue_tensor_count(d->cat); i++)
        if (may_be_wrong(d->cat, i))
            RETURN_IF(repair_tensor(d, req, i, &steps, &nrepaired, err));
    if (nrepaired == 0) {
        log_write(&d->log, LOG_NOTE, "--repair-strided: no boxes were derived");
        return FSDPCK_OK;
    }
    snprintf(o->note, sizeof o->note,
             "boxes of %" PRIu64 " tensor%s did not fit the blobs and were derived from them",
             nrepaired, nrepaired == 1 ? "" : "s");
    log_write(&d->log, LOG_NOTE, "--repair-strided: %s", o->note);
    return FSDPCK_OK;
}
