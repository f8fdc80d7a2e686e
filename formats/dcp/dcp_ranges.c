/* dcp_ranges.c: checks that blobs lie inside their files and do not overlap. */
#include <inttypes.h>
#include <stdlib.h>

#include "base/checked.h"
#include "formats/dcp/dcp_flattened.h"
#include "formats/dcp/dcp_internal.h"
#include "formats/dcp/dcp_lost.h"

#define WHO_OBJECT DCP_BLOB_OBJECT
/* Short files whose lost tensors are listed: each needs a pass over the catalogue. */
#define DESCRIBED 8u

typedef dcp_blob blob;

static int compare_blobs(const void *a, const void *b)
{
    const blob *x = a, *y = b;
    ORDER_BY(x->offset_bytes, y->offset_bytes);
    return x->who < y->who ? -1 : x->who > y->who;
}

static void name_blob(const catalogue *cat, const blob *b, uint32_t file_id, dcp_folder *d,
                      fsdpck_error *err)
{
    const uint32_t name = b->who & WHO_OBJECT
                              ? catalogue_object(cat, b->who & ~WHO_OBJECT)->name
                              : catalogue_tensor(cat, catalogue_chunk(cat, b->who)->tensor)->name;
    text_buf path = {.limit_bytes = 8192};
    if (d != NULL)
        text_printf(&path, "%s/", d->dir.path);
    text_puts(&path, catalogue_name(cat, catalogue_file(cat, file_id)->path));
    error_tensor(err, catalogue_name(cat, name));
    error_path(err, path.text);
    error_offset(err, b->offset_bytes);
    text_release(&path);
}

/* Sorted, as far as is known without a gap between them. */
static uint64_t end_of(const blob *blobs, size_t count)
{
    uint64_t end = 0, sum;
    for (size_t i = 0; i < count; i++)
        if (checked_add(blobs[i].offset_bytes, blobs[i].nbytes, &sum) && sum > end)
            end = sum;
    return end;
}

/* Adds the whole tensors, and those that are lost in this file, to FILE-SHORT. */
static void describe_lost(dcp_folder *d, const catalogue *cat, uint32_t file_id, fsdpck_error *err)
{
    text_buf lost = {.limit_bytes = 65536};
    dcp_lost_describe(d, cat, NULL, file_id, &lost);
    err->found[0] = '\0';
    error_found(err, "a file of %" PRIu64 " bytes: %s", catalogue_file(cat, file_id)->nbytes,
                lost.text != NULL ? lost.text : "");
    text_release(&lost);
}

/* needed: expected end of the file if its blobs are contiguous; otherwise 0. */
static fsdpck_status report_range(const catalogue *cat, const blob *b, uint32_t file_id,
                                  uint64_t needed, dcp_folder *d, fsdpck_error *err)
{
    if (needed > 0) {
        FAIL_WITH(err, BADINPUT, FILE_SHORT, ("file ends before the end of its blobs"),
                  (expected, "at least %" PRIu64 " bytes", needed));
    } else {
        FAIL_WITH(err, BADINPUT, DCP_RANGE, ("blob in the metadata is outside its file"),
                  (expected, "%" PRIu64 " bytes at offset %" PRIu64, b->nbytes, b->offset_bytes));
    }
    error_found(err, "a file of %" PRIu64 " bytes", catalogue_file(cat, file_id)->nbytes);
    name_blob(cat, b, file_id, d, err);
    return FSDPCK_BADINPUT;
}

/* The recorded length of a tensor in a safetensors stream counts only its elements, so that no zip
 * would fit. */
static bool may_be_inner(const catalogue *cat, const blob *b)
{
    if (b->who & WHO_OBJECT)
        return false;
    const cat_chunk *c = catalogue_chunk(cat, b->who);
    const cat_tensor *t = catalogue_tensor(cat, c->tensor);
    uint64_t sizes[NDIM_MAX];
    catalogue_chunk_box(cat, b->who, NULL, sizes);
    return c->aux == 0 &&
           b->nbytes == box_nelems(sizes, t->ndim) * dtype_get((dtype)t->dtype)->itemsize_bytes;
}

static fsdpck_status check_overlap(const catalogue *cat, const blob *a, const blob *b,
                                   uint32_t file_id, uint64_t *inner_at, dcp_folder *d,
                                   fsdpck_error *err)
{
    if (a->offset_bytes == b->offset_bytes && may_be_inner(cat, a) && may_be_inner(cat, b)) {
        bool is_stream = *inner_at == a->offset_bytes;
        if (!is_stream && d != NULL)
            RETURN_IF(dcp_st_stream_probe(d, file_id, a->offset_bytes, &is_stream, err));
        if (is_stream) {
            *inner_at = a->offset_bytes;
            return FSDPCK_OK;
        }
    }
    FAIL_WITH(err, BADINPUT, DCP_RANGE_OVERLAP, ("two blobs in the metadata overlap in a file"),
              (expected, "offset %" PRIu64 " or later", a->offset_bytes + a->nbytes),
              (found, "offset %" PRIu64, b->offset_bytes));
    name_blob(cat, b, file_id, d, err);
    return FSDPCK_BADINPUT;
}

/* Blobs of one file; sorts them if necessary. */
static fsdpck_status check_file(const catalogue *cat, blob *blobs, size_t count, uint32_t file_id,
                                dcp_folder *d, fsdpck_error *err)
{
    const uint64_t file_nbytes = catalogue_file(cat, file_id)->nbytes;
    uint64_t end = 0, inner_at = UINT64_MAX;
    size_t reaches_furthest = 0;
    bool tiled = true;

    for (size_t i = 1; i < count; i++) {
        if (blobs[i - 1].offset_bytes > blobs[i].offset_bytes) {
            qsort(blobs, count, sizeof *blobs, compare_blobs);
            break;
        }
    }
    for (size_t i = 0; i < count; i++) {
        const blob *b = &blobs[i];
        if (b->offset_bytes < end && b->nbytes > 0)
            RETURN_IF(check_overlap(cat, &blobs[reaches_furthest], b, file_id, &inner_at, d, err));
        tiled = tiled && b->offset_bytes == end && b->nbytes <= UINT64_MAX - end;
        if (!checked_range(b->offset_bytes, b->nbytes, file_nbytes))
            return report_range(cat, b, file_id, tiled ? end_of(blobs, count) : 0, d, err);
        if (b->offset_bytes + b->nbytes >= end) {
            end = b->offset_bytes + b->nbytes;
            reaches_furthest = i;
        }
    }
    return FSDPCK_OK;
}

static bool has_blob(const cat_chunk *c, bool empty_too)
{
    if (dcp_chunk_is_flattened(c) && (c->aux & DCP_AUX_FLAT_FURTHER))
        return false;
    return c->place != LOCATION_EMPTY || (empty_too && c->file != CAT_NONE && c->nbytes > 0);
}

void dcp_blobs_group(const catalogue *cat, bool empty_too, uint64_t *starts, dcp_blob *blobs)
{
    const size_t nfiles = catalogue_file_count(cat);
    const uint64_t nchunks = catalogue_chunk_count(cat);
    const size_t nobjects = catalogue_object_count(cat);

    for (uint64_t i = 0; i < nchunks; i++)
        if (has_blob(catalogue_chunk(cat, i), empty_too))
            starts[catalogue_chunk(cat, i)->file]++;
    for (size_t i = 0; i < nobjects; i++)
        if (catalogue_object(cat, i)->file != CAT_NONE)
            starts[catalogue_object(cat, i)->file]++;
    uint64_t end = 0;
    for (size_t f = 0; f <= nfiles; f++) {
        end += f < nfiles ? starts[f] : 0;
        starts[f] = end;
    }
    for (size_t i = nobjects; i-- > 0;) {
        const cat_object *o = catalogue_object(cat, i);
        if (o->file != CAT_NONE) /* created by fsdpck, for instance by --optim-keys */
            blobs[--starts[o->file]] = (blob){o->offset_bytes, o->nbytes, WHO_OBJECT | i};
    }
    for (uint64_t i = nchunks; i-- > 0;) {
        const cat_chunk *c = catalogue_chunk(cat, i);
        if (has_blob(c, empty_too))
            blobs[--starts[c->file]] = (blob){c->offset_bytes, c->nbytes, i};
    }
}

/* The end so far of each file's blobs, in the order of the catalogue. */
typedef struct file_end {
    uint64_t end;
    uint8_t odd; /* its blobs have another order, overlap or do not fit */
} file_end;

static void see_blob(const catalogue *cat, file_end *ends, uint32_t file_id, uint64_t offset_bytes,
                     uint64_t nbytes)
{
    file_end *e = &ends[file_id];
    if (offset_bytes < e->end ||
        !checked_range(offset_bytes, nbytes, catalogue_file(cat, file_id)->nbytes))
        e->odd = 1;
    else
        e->end = offset_bytes + nbytes;
}

/* Most files have their blobs in the order of the catalogue: one pass without a list of blobs. */
static bool are_in_order(const catalogue *cat, file_end *ends)
{
    const size_t nfiles = catalogue_file_count(cat);
    bool in_order = true;
    for (size_t i = 0; i < catalogue_object_count(cat); i++) {
        const cat_object *o = catalogue_object(cat, i);
        if (o->file != CAT_NONE)
            see_blob(cat, ends, o->file, o->offset_bytes, o->nbytes);
    }
    for (uint64_t i = 0, n = catalogue_chunk_count(cat); i < n; i++) {
        const cat_chunk *c = catalogue_chunk(cat, i);
        if (has_blob(c, false))
            see_blob(cat, ends, c->file, c->offset_bytes, c->nbytes);
    }
    for (size_t f = 0; f < nfiles; f++)
        in_order = in_order && !ends[f].odd;
    return in_order;
}

/* All blobs of the files, sorted. req and missing may be NULL. */
static fsdpck_status check_sorted(dcp_folder *d, const catalogue *cat, const open_request *req,
                                  const uint8_t *missing, fsdpck_error *err)
{
    const size_t nfiles = catalogue_file_count(cat);
    const uint64_t nblobs = catalogue_chunk_count(cat) + catalogue_object_count(cat);
    uint64_t *starts = budget_alloc(cat->owner, (nfiles + 1) * sizeof *starts, err);
    blob *blobs = starts == NULL ? NULL : budget_alloc(cat->owner, nblobs * sizeof *blobs, err);
    fsdpck_status st = blobs != NULL ? FSDPCK_OK : FSDPCK_LIMIT, failed = FSDPCK_OK;
    fsdpck_error first = FSDPCK_ERROR_INIT;
    size_t short_files = 0;

    if (st == FSDPCK_OK)
        dcp_blobs_group(cat, false, starts, blobs);
    for (uint32_t f = 0; f < nfiles && st == FSDPCK_OK; f++) {
        fsdpck_error what = FSDPCK_ERROR_INIT;
        if (missing != NULL && missing[f])
            continue;
        const fsdpck_status one =
            check_file(cat, &blobs[starts[f]], (size_t)(starts[f + 1] - starts[f]), f, d, &what);
        if (one == FSDPCK_OK)
            continue;
        if (d != NULL && what.finding == FSDPCK_FINDING_FILE_SHORT && short_files++ < DESCRIBED)
            describe_lost(d, cat, f, &what);
        if (req != NULL && open_request_report(req, one, &what)) {
            failed = one;
            first = what;
            continue;
        }
        st = one;
        first = what;
    }
    if (st == FSDPCK_OK)
        st = failed;
    if (st != FSDPCK_OK && err != NULL && first.status != FSDPCK_OK)
        *err = first;
    budget_free(cat->owner, starts, (nfiles + 1) * sizeof *starts);
    budget_free(cat->owner, blobs, nblobs * sizeof *blobs);
    return st;
}

fsdpck_status dcp_ranges_check_files(dcp_folder *d, const catalogue *cat, const open_request *req,
                                     const uint8_t *missing, fsdpck_error *err)
{
    const size_t nfiles = catalogue_file_count(cat);
    file_end *ends = budget_alloc(cat->owner, nfiles * sizeof *ends, err);
    if (ends == NULL)
        return FSDPCK_LIMIT;
    const bool in_order = are_in_order(cat, ends);
    budget_free(cat->owner, ends, nfiles * sizeof *ends);
    return in_order ? FSDPCK_OK : check_sorted(d, cat, req, missing, err);
}

fsdpck_status dcp_ranges_check(dcp_folder *d, const catalogue *cat, fsdpck_error *err)
{
    return dcp_ranges_check_files(d, cat, NULL, NULL, err);
}
