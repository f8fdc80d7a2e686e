/* dcp_files.c: checks that the blobs' files exist and are long enough. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "formats/dcp/dcp_catalogue.h"
#include "formats/dcp/dcp_flattened.h"
#include "formats/dcp/dcp_internal.h"
#include "formats/dcp/dcp_missing.h"
#include "io/path_stamp.h"

/* --- sizes --- */

typedef struct size_job {
    dcp_folder *d;
    const catalogue *cat;
    dcp_file_state *states;
    int64_t *mtimes_ns; /* INT64_MIN: unknown */
    bool no_follow;
} size_job;

static fsdpck_status probe_file(void *ctx, unsigned worker, uint64_t job, fsdpck_error *err)
{
    const size_job *s = ctx;
    dcp_file_state *state = &s->states[job];
    const char *name = catalogue_name(s->cat, catalogue_file(s->cat, job)->path);
    path_stamp stamp;
    path_kind kind;
    uint64_t identity;
    (void)worker;

    RETURN_IF(path_identify(&s->d->dir, name, &kind, &state->nbytes, &identity, err));
    s->mtimes_ns[job] =
        path_stamp_get(&stamp, &s->d->dir, name, NULL) == FSDPCK_OK && stamp.kind == PATH_FILE
            ? stamp.mtime_ns
            : INT64_MIN;
    state->kind = (uint8_t)kind;
    if (kind == PATH_FILE)
        file_set_expect(&s->d->blobs, (uint32_t)job, state->nbytes, identity);
    /* Opening refuses links, and names folders and devices correctly. */
    if ((s->no_follow && kind == PATH_FILE) || kind == PATH_FOLDER || kind == PATH_OTHER)
        return file_set_nbytes(&s->d->blobs, (uint32_t)job, &state->nbytes, err);
    return FSDPCK_OK;
}

static void mark_needed(const dcp_folder *d, const catalogue *cat, dcp_file_state *states)
{
    for (uint64_t i = 0; i < catalogue_chunk_count(cat); i++) {
        const cat_chunk *c = catalogue_chunk(cat, i);
        if (c->place != LOCATION_EMPTY)
            states[c->file].needed = 1;
    }
    for (size_t i = 0; i < catalogue_object_count(cat); i++)
        states[catalogue_object(cat, i)->file].needed = 1;
    for (size_t i = 0; i < d->repeats.count; i++)
        states[dcp_repeat_at(d, i)->file].needed = 1;
}

/* --- ranges --- */

#define WHO_OBJECT DCP_BLOB_OBJECT

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

/* Files marked as missing in `states` hold no ranges. req and states may be NULL. */
static fsdpck_status check_ranges(dcp_folder *d, const catalogue *cat, const open_request *req,
                                  const dcp_file_state *states, fsdpck_error *err)
{
    const size_t nfiles = catalogue_file_count(cat);
    const uint64_t nblobs = catalogue_chunk_count(cat) + catalogue_object_count(cat);
    uint64_t *starts = budget_alloc(cat->owner, (nfiles + 1) * sizeof *starts, err);
    blob *blobs = starts == NULL ? NULL : budget_alloc(cat->owner, nblobs * sizeof *blobs, err);
    fsdpck_status st = blobs != NULL ? FSDPCK_OK : FSDPCK_LIMIT, failed = FSDPCK_OK;
    fsdpck_error first = FSDPCK_ERROR_INIT;

    if (st == FSDPCK_OK)
        dcp_blobs_group(cat, false, starts, blobs);
    for (uint32_t f = 0; f < nfiles && st == FSDPCK_OK; f++) {
        fsdpck_error what = FSDPCK_ERROR_INIT;
        if (states != NULL && dcp_is_missing(states, f))
            continue;
        const fsdpck_status one =
            check_file(cat, &blobs[starts[f]], (size_t)(starts[f + 1] - starts[f]), f, d, &what);
        if (one == FSDPCK_OK)
            continue;
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

fsdpck_status dcp_ranges_check(dcp_folder *d, const catalogue *cat, fsdpck_error *err)
{
    return check_ranges(d, cat, NULL, NULL, err);
}

/* --- ends --- */

/* Files are filled to their end. If another blob follows the last one in the metadata, the file is
 * from a different save: a newer one that did not write its metadata, or a second one into the same
 * file. */
static fsdpck_status check_end(dcp_folder *d, uint32_t file_id, fsdpck_error *err)
{
    static const uint8_t zstd[] = {0x28, 0xB5, 0x2F, 0xFD};
    const uint64_t nbytes = catalogue_file(d->cat, file_id)->nbytes;
    const uint64_t end = *VEC_AT(&d->ends, const uint64_t, file_id);
    uint8_t head[4];

    if (end == 0 || end >= nbytes || nbytes - end < sizeof head)
        return FSDPCK_OK;
    RETURN_IF(file_set_read_at(&d->blobs, file_id, end, head, sizeof head, err));
    if (memcmp(head, "PK\3\4", 4) != 0 && memcmp(head, zstd, 4) != 0)
        return FSDPCK_OK;
    return FAIL_WITH(
        err, BADINPUT, DCP_MIXED,
        ("file holds more blobs than the metadata lists: it is from another save"),
        (path_in, d->dir.path, catalogue_name(d->cat, catalogue_file(d->cat, file_id)->path)),
        (offset, end), (expected, "%" PRIu64 " bytes", end), (found, "%" PRIu64 " bytes", nbytes),
        (next, "a newer save may have been interrupted before it wrote '.metadata': use another "
               "checkpoint, or find the file that belongs to this one"));
}

static fsdpck_status check_ends(dcp_folder *d, const open_request *req, fsdpck_error *err)
{
    fsdpck_status failed = FSDPCK_OK;
    const size_t nfiles = catalogue_file_count(d->cat);
    for (uint32_t i = 0; i < nfiles && i < d->ends.count; i++) {
        fsdpck_error what = FSDPCK_ERROR_INIT;
        const fsdpck_status st = check_end(d, i, &what);
        if (st == FSDPCK_OK)
            continue;
        if (err != NULL && failed == FSDPCK_OK)
            *err = what;
        failed = failed == FSDPCK_OK ? st : failed;
        if (!open_request_report(req, st, &what))
            return st;
    }
    return failed;
}

static fsdpck_status check_repeat(const dcp_folder *d, const dcp_repeat *r,
                                  const dcp_file_state *states, fsdpck_error *err)
{
    const uint64_t nbytes = states[r->file].nbytes;
    if (dcp_is_missing(states, r->file) || checked_range(r->offset_bytes, r->nbytes, nbytes))
        return FSDPCK_OK;
    return FAIL_WITH(
        err, BADINPUT, FILE_SHORT, ("file ends before the end of its blobs"),
        (tensor, dcp_object_name(d->cat, r->object)),
        (path_in, d->dir.path, catalogue_name(d->cat, catalogue_file(d->cat, r->file)->path)),
        (expected, "%" PRIu64 " bytes at offset %" PRIu64, r->nbytes, r->offset_bytes),
        (found, "a file of %" PRIu64 " bytes", nbytes));
}

/* The values of other ranks, of objects that several ranks have. */
static fsdpck_status check_repeats(const dcp_folder *d, const open_request *req,
                                   const dcp_file_state *states, fsdpck_error *err)
{
    fsdpck_status failed = FSDPCK_OK;
    for (size_t i = 0; i < d->repeats.count; i++) {
        fsdpck_error what = FSDPCK_ERROR_INIT;
        const fsdpck_status st = check_repeat(d, dcp_repeat_at(d, i), states, &what);
        if (st == FSDPCK_OK)
            continue;
        if (err != NULL && failed == FSDPCK_OK)
            *err = what;
        failed = st;
        if (!open_request_report(req, st, &what))
            return st;
    }
    return failed;
}

fsdpck_status dcp_files_check(dcp_folder *d, const open_request *req, fsdpck_error *err)
{
    catalogue *cat = d->cat;
    const size_t nfiles = catalogue_file_count(cat);
    fsdpck_status st = FSDPCK_OK;
    dcp_file_state *states = budget_alloc(d->owner, nfiles * sizeof *states, err);
    int64_t *mtimes_ns =
        states == NULL ? NULL : budget_alloc(d->owner, nfiles * sizeof *mtimes_ns, err);

    if (mtimes_ns == NULL) {
        budget_free(d->owner, states, nfiles * sizeof *states);
        return FSDPCK_LIMIT;
    }
    mark_needed(d, cat, states);
    for (size_t i = 0; i < nfiles; i++) {
        uint32_t index;
        GOTO_IF(
            file_set_add(&d->blobs, catalogue_name(cat, catalogue_file(cat, i)->path), &index, err),
            out);
    }
    size_job job = {
        .d = d, .cat = cat, .states = states, .mtimes_ns = mtimes_ns, .no_follow = req->no_follow};
    GOTO_IF(pool_run(req->nthreads, nfiles, probe_file, &job, req->cancel, err), out);
    for (size_t i = 0; i < nfiles; i++)
        catalogue_file(cat, i)->nbytes = states[i].nbytes;
    fsdpck_error what = FSDPCK_ERROR_INIT;
    st = dcp_report_missing(d, req, cat, states, err);
    if (st != FSDPCK_OK && !open_request_tolerate(req, st, err) &&
        !open_request_report(req, st, err))
        goto out;
    const fsdpck_status ranges = check_ranges(d, cat, req, states, &what);
    if (st == FSDPCK_OK && ranges != FSDPCK_OK) {
        st = ranges;
        if (err != NULL)
            *err = what;
    }
    if (open_request_tolerate(req, ranges, &what) || open_request_is_damaged(req))
        st = FSDPCK_OK;
    else if (st == FSDPCK_OK)
        st = check_repeats(d, req, states, err);
    if (st == FSDPCK_OK && !open_request_is_damaged(req))
        st = check_ends(d, req, err);
    if (st == FSDPCK_OK && !open_request_is_damaged(req))
        st = dcp_warn_of_newer(d, mtimes_ns, err);
out:
    budget_free(d->owner, mtimes_ns, nfiles * sizeof *mtimes_ns);
    budget_free(d->owner, states, nfiles * sizeof *states);
    return st;
}
