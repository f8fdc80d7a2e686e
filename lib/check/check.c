#include "check/check.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/text.h"
#include "check/check_internal.h"
#include "plan/coverage.h"
#include "state/same_files.h"
#include "state/sort.h"

/* Headers read by one job. */
#define RESOLVE_BATCH 64u

/* ---- coverage ---- */

static fsdpck_status check_tensor(void *ctx, unsigned worker, uint64_t tensor, fsdpck_error *err)
{
    check *c = ctx;
    struct coverage_report report;
    fsdpck_error what = FSDPCK_ERROR_INIT;
    (void)worker;
    RETURN_IF(coverage_check(c->r->cat, (uint32_t)tensor, c->r->metadata, &report, err));
    if (coverage_is_complete(&report))
        return FSDPCK_OK;
    const fsdpck_status st = coverage_error(c->r->cat, (uint32_t)tensor, &report, &what);
    if (!check_is_finding(st)) {
        *err = what;
        return st;
    }
    findings_report(c->found, &what);
    if (report.overlap && report.hole && report.covered <= report.nelems) {
        FAIL_WITH(&what, BADINPUT, CHUNK_GAP, ("chunks do not cover the tensor"),
                  (tensor, catalogue_name(c->r->cat, catalogue_tensor(c->r->cat, tensor)->name)),
                  (expected, "%" PRIu64 " element%s", report.nelems, text_plural(report.nelems)),
                  (found, "%" PRIu64 ", some of them twice", report.covered),
                  (next, "check that each folder contains the files of only one save"));
        findings_report(c->found, &what);
    }
    return FSDPCK_OK;
}

/* ---- blob headers ---- */

typedef struct locate_work {
    check *c;
    const sort_pair *chunks; /* in the order of the files */
    uint64_t count;
    extent *extents; /* by the same index; nbytes 0: the chunk has a finding */
} locate_work;

/* Whether the elements lie side by side, in whatever order of the dims. */
static bool is_dense(const check *c, uint64_t chunk, const place *where)
{
    uint64_t sizes[NDIM_MAX], reach = 1;
    const unsigned ndim =
        catalogue_tensor(c->r->cat, catalogue_chunk(c->r->cat, chunk)->tensor)->ndim;
    catalogue_chunk_box(c->r->cat, chunk, NULL, sizes);
    for (unsigned done = 0; done < ndim; done++) {
        unsigned d = 0;
        while (d < ndim && (sizes[d] <= 1 || where->strides[d] != reach))
            d++;
        if (d == ndim)
            break;
        reach *= sizes[d];
        sizes[d] = 1;
    }
    return box_nelems(sizes, ndim) == 1;
}

/* Bytes from the first element to the end of the last one: fewer than all elements if some overlap,
 * more if there are gaps. Known to be within the record. */
static uint64_t span_nbytes(const check *c, uint64_t chunk, const place *where)
{
    uint64_t sizes[NDIM_MAX], last = 0;
    const cat_tensor *t = catalogue_tensor(c->r->cat, catalogue_chunk(c->r->cat, chunk)->tensor);
    if (where->rows)
        return check_chunk_nbytes(c->r->cat, chunk);
    catalogue_chunk_box(c->r->cat, chunk, NULL, sizes);
    for (unsigned d = 0; d < t->ndim; d++)
        last += (sizes[d] - 1) * where->strides[d];
    return (last + 1) * dtype_get((dtype)t->dtype)->itemsize_bytes;
}

static extent extent_of(const check *c, uint64_t chunk, const place *where)
{
    extent e = {.offset_bytes = where->offset_bytes,
                .nbytes = span_nbytes(c, chunk, where),
                .chunk = chunk,
                .file = where->file,
                .stream = where->stream,
                .swap = where->swap,
                .scattered = !where->rows && !is_dense(c, chunk, where),
                .negated = where->conj || where->neg || where->add != 0};
    if (where->stream) {
        e.offset_bytes = catalogue_chunk(c->r->cat, chunk)->offset_bytes;
        e.at_bytes = where->offset_bytes;
        if (c->r->source->stream_checksum_of != NULL)
            e.stream_checksum = (uint8_t)c->r->source->stream_checksum_of(c->r->source->ctx, chunk);
    } else if (where->has_crc) {
        e.offset_bytes = where->record_offset_bytes;
        e.nbytes = where->record_nbytes;
        e.has_crc = true;
        e.crc32 = where->crc32;
        if (!e.scattered)
            e.at_bytes = where->offset_bytes - where->record_offset_bytes;
    }
    return e;
}

static void count_unread(check *c, uint64_t chunk)
{
    const uint32_t tensor = catalogue_chunk(c->r->cat, chunk)->tensor;
    __atomic_fetch_add(&c->result->unread_nbytes, check_chunk_nbytes(c->r->cat, chunk),
                       __ATOMIC_RELAXED);
    if (__atomic_exchange_n(&c->unread[tensor], 1, __ATOMIC_RELAXED) == 0)
        __atomic_fetch_add(&c->result->unread_tensors, 1, __ATOMIC_RELAXED);
}

static fsdpck_status locate_batch(void *ctx, unsigned worker, uint64_t job, fsdpck_error *err)
{
    locate_work *w = ctx;
    check *c = w->c;
    const source *src = c->r->source;
    (void)worker;
    for (uint64_t i = job * RESOLVE_BATCH; i < (job + 1) * RESOLVE_BATCH && i < w->count; i++) {
        const uint64_t chunk = w->chunks[i].item;
        place where = {0};
        fsdpck_error what = FSDPCK_ERROR_INIT;
        const bool empty = catalogue_chunk(c->r->cat, chunk)->place == LOCATION_EMPTY;
        const fsdpck_status st = empty ? src->check_empty(src->ctx, chunk, &what)
                                       : src->locate(src->ctx, chunk, &where, &what);
        if (st == FSDPCK_OK) {
            if (!empty)
                w->extents[i] = extent_of(c, chunk, &where);
            continue;
        }
        check_add_context(c, chunk, &what);
        if (!check_is_finding(st)) {
            *err = what;
            return st;
        }
        findings_report(c->found, &what);
        if (!empty)
            count_unread(c, chunk);
    }
    return FSDPCK_OK;
}

/* Chunks that view one record make one extent, and are its chunk_extents. */
static void merge_extents(check *c, extent *list, uint64_t count)
{
    extent *made = c->extents.items;
    size_t n = 0, chunk_extents = 0;
    if (count > 1)
        qsort(list, count, sizeof *list, check_compare_extents);
    for (uint64_t i = 0; i < count; i++) {
        if (list[i].nbytes == 0)
            continue;
        extent *last = n > 0 ? &made[n - 1] : NULL;
        list[chunk_extents] = list[i];
        const extent *chunk_extent = &list[chunk_extents++];
        if (last != NULL && !last->stream && last->file == chunk_extent->file &&
            last->offset_bytes == chunk_extent->offset_bytes &&
            last->nbytes == chunk_extent->nbytes) {
            last->chunk_extents++;
            continue;
        }
        made[n] = *chunk_extent;
        made[n].first_chunk_extent = (uint32_t)(chunk_extents - 1);
        made[n++].chunk_extents = 1;
        c->result->bytes_total += chunk_extent->nbytes;
    }
    c->extents.count = n;
    c->chunk_extents.count = chunk_extents;
    c->result->records = n;
}

static uint64_t list_chunks(check *c, sort_pair *list)
{
    const catalogue *cat = c->r->cat;
    uint64_t n = 0;
    c->result->chunks = 0;
    for (uint64_t k = 0; k < catalogue_chunk_count(cat); k++) {
        c->result->chunks += catalogue_chunk(cat, k)->place != LOCATION_EMPTY;
        if (source_has_header(c->r->source, cat, k))
            list[n++] = (sort_pair){catalogue_chunk(cat, k)->offset_bytes, (uint32_t)k};
    }
    return n;
}

static fsdpck_status locate_listed(check *c, sort_pair *list, sort_pair *scratch, fsdpck_error *err)
{
    const uint64_t n = list_chunks(c, list);
    if (n > 0 && vec_push_n(&c->chunk_extents, n, err) == NULL)
        return FSDPCK_LIMIT;
    sort_pairs(list, scratch, n, NULL, NULL);
    for (uint64_t i = 0; i < n; i++)
        list[i].key = catalogue_chunk(c->r->cat, list[i].item)->file;
    sort_pairs(list, scratch, n, NULL, NULL);
    locate_work w = {.c = c, .chunks = list, .count = n, .extents = c->chunk_extents.items};
    progress_phase(c->r->progress, "reading blob headers", 0);
    RETURN_IF(pool_run(c->r->nthreads > 0 ? c->r->nthreads : 1,
                       (n + RESOLVE_BATCH - 1) / RESOLVE_BATCH, locate_batch, &w, c->r->cancel,
                       err));
    if (n > 0 && vec_push_n(&c->extents, n, err) == NULL)
        return FSDPCK_LIMIT;
    merge_extents(c, c->chunk_extents.items, n);
    if (c->r->level < CHECK_NUMERIC)
        vec_release(&c->chunk_extents);
    return FSDPCK_OK;
}

static fsdpck_status locate_all(check *c, fsdpck_error *err)
{
    const uint64_t count = catalogue_chunk_count(c->r->cat);
    const uint64_t pairs_nbytes = 2 * count * sizeof(sort_pair);
    const uint64_t unread_nbytes = catalogue_tensor_count(c->r->cat);
    sort_pair *list = budget_alloc(c->r->metadata, pairs_nbytes, err);
    if (list == NULL)
        return FSDPCK_LIMIT;
    c->unread = budget_alloc(c->r->metadata, unread_nbytes, err);
    const fsdpck_status st =
        c->unread == NULL ? FSDPCK_LIMIT : locate_listed(c, list, list + count, err);
    budget_free(c->r->metadata, c->unread, unread_nbytes);
    budget_free(c->r->metadata, list, pairs_nbytes);
    c->unread = NULL;
    return st;
}

/* Whether an extent with a CRC begins there. */
static bool is_checked_elsewhere(void *ctx, uint32_t file, uint64_t offset_bytes)
{
    const check *c = ctx;
    size_t low = 0, high = c->extents.count;

    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        const extent *e = VEC_AT(&c->extents, const extent, middle);
        if (e->file < file || (e->file == file && e->offset_bytes < offset_bytes))
            low = middle + 1;
        else
            high = middle;
    }
    for (; low < c->extents.count; low++) {
        const extent *e = VEC_AT(&c->extents, const extent, low);
        if (e->file != file || e->offset_bytes != offset_bytes)
            return false;
        if (e->has_crc && !e->stream)
            return true;
    }
    return false;
}

/* All checks without the bytes. */
static file_record record_at(const void *ctx, uint64_t index)
{
    const extent *e = VEC_AT(&((const check *)ctx)->extents, const extent, index);
    return (file_record){.offset_bytes = e->offset_bytes,
                         .nbytes = e->nbytes,
                         .chunk = e->chunk,
                         .at_bytes = e->at_bytes,
                         .file = e->file,
                         .crc32 = e->crc32,
                         .has_crc = e->has_crc && !e->stream};
}

static void report_same(void *ctx, const file_record *a, const file_record *b, uint64_t count)
{
    check *c = ctx;
    fsdpck_error what = FSDPCK_ERROR_INIT;
    same_files_describe(c->r->cat, a, count, &what);
    check_add_path(c, b->file, &what);
    findings_report(c->found, &what);
}

static fsdpck_status check_metadata(check *c, fsdpck_error *err)
{
    const check_request *r = c->r;
    if (r->level >= CHECK_STRUCTURE)
        RETURN_IF(check_confusable(c, err));
    if (r->level < CHECK_COVERAGE)
        return FSDPCK_OK;
    progress_phase(r->progress, "checking coverage", 0);
    RETURN_IF(pool_run(r->nthreads > 0 ? r->nthreads : 1, catalogue_tensor_count(r->cat),
                       check_tensor, c, r->cancel, err));
    RETURN_IF(locate_all(c, err));
    const same_files same = {.cat = r->cat,
                             .source = r->source,
                             .metadata = r->metadata,
                             .count = c->extents.count,
                             .record_at = record_at,
                             .report = report_same,
                             .ctx = c};
    return same_files_find(&same, err);
}

/* By one process, as it is little work. */
static fsdpck_status check_other_records(check *c, fsdpck_error *err)
{
    const check_request *r = c->r;
    const bool first = r->peers == NULL || r->peers->rank == 0;
    found_mark before;
    fsdpck_status st = FSDPCK_OK;
    peers_mark_findings(c, &before);
    if (first)
        st = r->other_records(r->other_records_ctx, is_checked_elsewhere, c, c->result, err);
    else
        progress_phase(r->progress, "reading", 0); /* phases are counted */
    return peers_merge_records(c, st, &before, err);
}

static fsdpck_status run_levels(check *c, fsdpck_error *err)
{
    const check_request *r = c->r;
    RETURN_IF(peers_agree(c, check_metadata(c, err), err));
    if (r->level < CHECK_COVERAGE)
        return FSDPCK_OK;
    if (r->level >= CHECK_CHECKSUM)
        RETURN_IF(check_bytes(c, err));
    c->result->stopped = c->stopped;
    if (r->other_records != NULL && !c->stopped)
        RETURN_IF(check_other_records(c, err));
    const source *src = r->source;
    const fsdpck_status st =
        src->check_unchanged == NULL ? FSDPCK_OK : src->check_unchanged(src->ctx, err);
    return peers_agree(c, st, err);
}

fsdpck_status check_run(const check_request *r, findings *found, check_result *result,
                        fsdpck_error *err)
{
    check c = {.r = r,
               .found = found,
               .result = result,
               .extents = VEC_OF(extent, r->metadata),
               .chunk_extents = VEC_OF(extent, r->metadata)};
    *result = (check_result){0};
    pthread_mutex_init(&c.lock, NULL);
    const fsdpck_status st = run_levels(&c, err);
    VEC_RELEASE_ALL(&c.extents, &c.chunk_extents);
    pthread_mutex_destroy(&c.lock);
    return st;
}

void check_result_release(check_result *result)
{
    for (uint64_t i = 0; result->numbers != NULL && i < result->ntensors; i++)
        free(result->numbers[i].counts);
    free(result->numbers);
    result->numbers = NULL;
}
