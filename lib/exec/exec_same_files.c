#include "exec/exec_internal.h"
#include "state/same_files.h"
#include "state/sort.h"

typedef struct same_search {
    const struct exec *x;
    const sort_pair *chunks; /* in the order of the files */
    exec_same_fn report;
    void *ctx;
} same_search;

static file_record record_at(const void *ctx, uint64_t index)
{
    const same_search *s = ctx;
    const catalogue *from = plan_source(s->x->r.plan);
    const uint64_t chunk = s->chunks[index].item;
    const cat_tensor *t = catalogue_tensor(from, catalogue_chunk(from, chunk)->tensor);
    const chunk_extent *e = &s->x->chunk_extents[chunk];
    uint64_t sizes[NDIM_MAX];
    catalogue_chunk_box(from, chunk, NULL, sizes);
    return (file_record){.offset_bytes = e->offset_bytes,
                         .nbytes = box_nelems(sizes, t->ndim) *
                                   dtype_get((dtype)t->dtype)->itemsize_bytes,
                         .chunk = chunk,
                         .file = e->file,
                         .crc32 = e->crc32,
                         .has_crc = (e->flags & (EXTENT_CRC | EXTENT_STREAM)) == EXTENT_CRC};
}

static void report(void *ctx, const file_record *a, const file_record *b, uint64_t count)
{
    const same_search *s = ctx;
    fsdpck_error what = FSDPCK_ERROR_INIT;
    const catalogue *from = plan_source(s->x->r.plan);
    same_files_describe(from, a, count, &what);
    exec_add_chunk_context(s->x, b->chunk, &what);
    s->report(s->ctx, &what);
}

fsdpck_status exec_find_same_files(const struct exec *x, exec_same_fn fn, void *ctx,
                                   fsdpck_error *err)
{
    const uint64_t most = x->chunk_extent_count, nbytes = 2 * most * sizeof(sort_pair);
    uint64_t n = 0;
    /* Samples of files on other hosts would be requests to them. */
    if (catalogue_file_count(plan_source(x->r.plan)) < 2 || most < 2 || x->r.source_folder != NULL)
        return FSDPCK_OK;
    sort_pair *list = budget_alloc(x->r.metadata, nbytes, err);
    if (list == NULL)
        return FSDPCK_LIMIT;
    for (uint64_t k = 0; k < most; k++)
        if (x->chunk_extents[k].flags & EXTENT_RESOLVED)
            list[n++] = (sort_pair){x->chunk_extents[k].offset_bytes, (uint32_t)k};
    sort_pairs(list, list + most, n, NULL, NULL);
    for (uint64_t i = 0; i < n; i++)
        list[i].key = x->chunk_extents[list[i].item].file;
    sort_pairs(list, list + most, n, NULL, NULL);
    same_search search = {.x = x, .chunks = list, .report = fn, .ctx = ctx};
    const same_files same = {.cat = plan_source(x->r.plan),
                             .source = x->r.source,
                             .metadata = x->r.metadata,
                             .count = n,
                             .record_at = record_at,
                             .report = report,
                             .ctx = &search};
    const fsdpck_status st = same_files_find(&same, err);
    budget_free(x->r.metadata, list, nbytes);
    return st;
}
