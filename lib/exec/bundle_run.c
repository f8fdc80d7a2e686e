/* One item of a bundle: a band of rows of some members. */
#include <stdlib.h>

#include "base/crc.h"
#include "exec/bundle.h"
#include "exec/exec_state.h"

/* Bytes of one member. */
typedef struct share {
    uint64_t chunk;
    uint64_t chunk_begin; /* in the file */
    uint64_t run;         /* bytes of a row */
    output_range range;
    uint8_t *bytes; /* of range.begin */
} share;

typedef struct band {
    worker *worker;
    const cut_bundle *bundle;
    share *shares;
    uint32_t count;
    uint64_t itemsize;
} band;

static const cut_bundle *find_bundle(const struct exec *x, uint64_t item)
{
    size_t low = 0;
    size_t high = x->bundles.count;
    while (high - low > 1) {
        const size_t middle = low + (high - low) / 2;
        if (VEC_AT(&x->bundles, cut_bundle, middle)->first_item <= item)
            low = middle;
        else
            high = middle;
    }
    return VEC_AT(&x->bundles, cut_bundle, low);
}

void bundle_get_band(const struct exec *x, uint64_t item, bundle_band *b)
{
    const cut_bundle *bundle = find_bundle(x, item);
    const uint64_t local = item - bundle->first_item;
    const uint64_t bands = (bundle->rows + bundle->band_rows - 1) / bundle->band_rows;
    const uint64_t first = local / bands * bundle->pass_members;
    const uint64_t left = bundle->member_count - first;
    b->bundle = bundle;
    b->first_row = local % bands * bundle->band_rows;
    b->rows = bundle->rows - b->first_row < bundle->band_rows ? bundle->rows - b->first_row
                                                              : bundle->band_rows;
    b->members = VEC_AT(&x->members, const uint32_t, bundle->members_at + first);
    b->count = (uint32_t)(left < bundle->pass_members ? left : bundle->pass_members);
}

uint64_t bundle_band_nbytes(const struct exec *x, const bundle_band *b)
{
    uint64_t nbytes = 0;
    for (uint32_t i = 0; i < b->count; i++)
        nbytes += catalogue_chunk(&x->r.target->cat, b->members[i])->nbytes / b->bundle->rows;
    return nbytes * b->rows;
}

/* Byte of the file where row `row` of the chunk begins, or the block's begin before it. */
static uint64_t band_edge(const cut_bundle *bundle, const cat_chunk *k, uint64_t run, uint64_t row)
{
    if (row == 0)
        return k->offset_bytes;
    if (row >= bundle->rows)
        return k->offset_bytes + k->nbytes;
    const uint64_t at = k->offset_bytes + row * run;
    const uint64_t block = at - at % FILE_DIRECT_ALIGN;
    return block > k->offset_bytes ? block : k->offset_bytes;
}

static void begin_band(band *b, const bundle_band *what)
{
    struct exec *x = b->worker->x;
    const cut_bundle *bundle = b->bundle;
    const uint64_t slot =
        x->bundle_nbytes / bundle->pass_members / FILE_DIRECT_ALIGN * FILE_DIRECT_ALIGN;
    b->count = what->count;
    for (uint32_t i = 0; i < b->count; i++) {
        share *s = &b->shares[i];
        s->chunk = what->members[i];
        const cat_chunk *k = catalogue_chunk(&x->r.target->cat, s->chunk);
        s->run = k->nbytes / bundle->rows;
        s->chunk_begin = k->offset_bytes;
        s->range.file = k->file;
        s->range.begin = band_edge(bundle, k, s->run, what->first_row);
        s->range.end = band_edge(bundle, k, s->run, what->first_row + what->rows);
        s->bytes =
            b->worker->bundle + i * slot + FILE_DIRECT_ALIGN + s->range.begin % FILE_DIRECT_ALIGN;
    }
}

/* Rows [row, row + step) of all members, as far as they are in the band: what they need of the
 * source lies close together there. */
static fsdpck_status fill_rows(const band *b, uint64_t row, fsdpck_error *err)
{
    worker *w = b->worker;
    for (uint32_t i = 0; i < b->count; i++) {
        const share *s = &b->shares[i];
        const uint64_t low = s->chunk_begin + row * s->run;
        const uint64_t high = low + b->bundle->step_rows * s->run;
        const uint64_t begin = low > s->range.begin ? low : s->range.begin;
        const uint64_t end = high < s->range.end ? high : s->range.end;
        if (begin >= end)
            continue;
        const uint64_t first = (begin - s->chunk_begin) / b->itemsize;
        const uint64_t last = (end - s->chunk_begin + b->itemsize - 1) / b->itemsize;
        const int64_t chunk_at =
            (s->bytes - w->bundle) - (int64_t)(s->range.begin - s->chunk_begin);
        RETURN_IF(gather_elements(w, s->chunk, first, last, chunk_at, err));
    }
    return gather_flush(w, err);
}

static fsdpck_status fill_band(worker *w, const void *ctx, fsdpck_error *err)
{
    const band *b = ctx;
    uint64_t first = UINT64_MAX;
    uint64_t end = 0;
    for (uint32_t i = 0; i < b->count; i++) {
        const share *s = &b->shares[i];
        const uint64_t low = (s->range.begin - s->chunk_begin) / s->run;
        const uint64_t high = (s->range.end - s->chunk_begin + s->run - 1) / s->run;
        first = low < first ? low : first;
        end = high > end ? high : end;
    }
    for (uint64_t row = first; row < end; row += b->bundle->step_rows) {
        RETURN_IF(cancel_check(w->x->r.cancel, err));
        RETURN_IF(fill_rows(b, row, err));
    }
    return FSDPCK_OK;
}

static uint64_t sum_band(worker *w, const void *ctx)
{
    const band *b = ctx;
    uint64_t crc = 0;
    (void)w;
    for (uint32_t i = 0; i < b->count; i++)
        crc = crc64_update(crc, b->shares[i].bytes,
                           b->shares[i].range.end - b->shares[i].range.begin);
    return crc;
}

/* Shares lie one after the other. */
static fsdpck_status fill_shares(worker *w, const band *b, fsdpck_error *err)
{
    const share *last = &b->shares[b->count - 1];
    const engine_fill f = {fill_band,
                           sum_band,
                           b,
                           b->shares[0].bytes,
                           last->bytes + (last->range.end - last->range.begin),
                           false};
    bool done = false;
    if (w->bundle == w->tile)
        RETURN_IF(w->x->engine->fill(w, &f, &done, err));
    return done ? FSDPCK_OK : fill_band(w, b, err);
}

static fsdpck_status write_share(const band *b, const share *s, fsdpck_error *err)
{
    struct exec *x = b->worker->x;
    const range_part part = {.begin = s->range.begin,
                             .end = s->range.end,
                             .chunk = s->chunk,
                             .chunk_begin = s->chunk_begin};
    if (s->range.begin == s->range.end)
        return FSDPCK_OK;
    if (crc_parts_wanted(x))
        crc_parts_put(x, &part, s->bytes);
    RETURN_IF(write_range(b->worker, &s->range, s->bytes, err));
    progress_add(x->r.progress, s->range.end - s->range.begin);
    return FSDPCK_OK;
}

fsdpck_status bundle_run_item(worker *w, uint64_t item, fsdpck_error *err)
{
    struct exec *x = w->x;
    bundle_band what;
    bundle_get_band(x, item, &what);
    const cut_bundle *bundle = what.bundle;
    const dtype type = (dtype)catalogue_tensor(&x->r.target->cat, bundle->tensor)->dtype;
    band b = {.worker = w, .bundle = bundle, .itemsize = dtype_get(type)->itemsize_bytes};
    if (w->bundle == NULL && x->bundle_nbytes <= x->tile_nbytes)
        w->bundle = w->tile;
    if (w->bundle == NULL)
        w->bundle = aligned_alloc(FILE_DIRECT_ALIGN, x->bundle_nbytes);
    b.shares = calloc(bundle->pass_members, sizeof *b.shares);
    if (w->bundle == NULL || b.shares == NULL) {
        free(b.shares);
        return error_set_nomem(err, x->bundle_nbytes);
    }
    begin_band(&b, &what);
    w->gather.base = w->bundle;
    w->gather.bundled = true;
    fsdpck_status st = fill_shares(w, &b, err);
    w->gather.base = w->tile;
    w->gather.bundled = false;
    w->gather.count = 0; /* after a failure */
    w->gather.dims_count = 0;
    for (uint32_t i = 0; st == FSDPCK_OK && i < b.count; i++)
        st = write_share(&b, &b.shares[i], err);
    free(b.shares);
    return st;
}
