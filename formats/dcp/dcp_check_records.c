/* dcp_check_records.c: the records that verify checks besides chunks: the other records of their
 * blobs, and objects. */
#include <inttypes.h>
#include <string.h>

#include "base/checked.h"
#include "formats/common/pickle.h"
#include "formats/common/pt_flatten.h"
#include "formats/common/torch_archive.h"
#include "formats/common/zip_check.h"
#include "formats/dcp/dcp_flattened.h"
#include "formats/dcp/dcp_item.h"
#include "formats/dcp/dcp_object_copies.h"

/* Blobs checked by one job. */
#define BATCH         64u
#define SCRATCH_LIMIT (UINT64_C(1) << 30)
/* Of the calls of one object. */
#define CALLS_NAMED 3u

typedef struct rest_work {
    dcp_folder *d;
    const record_check_request *request;
    dcp_blob *blobs;
    uint64_t *starts;
    uint64_t count; /* of blobs; the repeats follow */
    uint64_t *sums; /* of objects, likewise: dcp_object_sum; NULL: no repeats */
} rest_work;

typedef struct rest_blob {
    rest_work *w;
    zip_checker *summer;
    dcp_repeat at;
    const char *name; /* of the tensor or object */
    const char *path; /* of the file, for findings */
    bool is_located;  /* defects of its zip were already reported */
    uint64_t *sum;    /* of an object; NULL: not needed */
} rest_blob;

static void report(const rest_blob *b, format_severity severity, fsdpck_error *what)
{
    const record_check_request *r = b->w->request;
    error_path(what, b->path);
    error_tensor(what, b->name);
    error_offset(what, b->at.offset_bytes);
    r->found(r->found_ctx, severity, what);
}

/* Findings of the input do not stop the others. */
static fsdpck_status judge(const rest_blob *b, fsdpck_status st, fsdpck_error *what,
                           fsdpck_error *err)
{
    if (st == FSDPCK_OK)
        return st;
    if (status_is_finding(st)) {
        report(b, FORMAT_ERROR, what);
        return FSDPCK_OK;
    }
    error_path(what, b->path);
    error_tensor(what, b->name);
    if (err != NULL)
        *err = *what;
    return st;
}

/* --- calls --- */

typedef struct calls_walk {
    const rest_blob *b;
    const value_pool *pool;
    unsigned named;
} calls_walk;

/* Calls that run code are errors; others may belong to a program's own classes. */
static fsdpck_status see_value(void *ctx, value v, fsdpck_error *err)
{
    calls_walk *w = ctx;
    fsdpck_error what = FSDPCK_ERROR_INIT;
    (void)err;

    if (value_kind_of(v) != VALUE_CALL)
        return FSDPCK_OK;
    const value_call *call = value_call_of(w->pool, v);
    if (call->how != CALL_REDUCE || torch_call_is_known(w->pool, call))
        return FSDPCK_OK;
    if (torch_call_refuse(w->pool, call, &what) == FSDPCK_OK)
        return FSDPCK_OK;
    const bool runs_code = what.finding == FSDPCK_FINDING_PKL_GLOBAL;
    if (runs_code || w->named < CALLS_NAMED)
        report(w->b, runs_code ? FORMAT_ERROR : FORMAT_WARNING, &what);
    w->named++;
    return FSDPCK_OK;
}

static fsdpck_status see_calls(const rest_blob *b, const value_pool *pool, value root,
                               fsdpck_error *err)
{
    calls_walk w = {.b = b, .pool = pool};
    if (b->sum != NULL)
        *b->sum = dcp_object_sum(pool, root);
    return value_walk(pool, root, see_value, &w, err);
}

/* --- objects --- */

/* All records, even if one of them prevents opening the archive. Defects of the zip itself were
 * then already reported. */
static fsdpck_status sum_archive(const rest_blob *b, const zip_input *in, uint32_t file_id,
                                 budget *owner, fsdpck_error *err)
{
    zip_archive z;
    fsdpck_status st = zip_open(in, owner, &z, err);
    if (status_is_finding(st))
        return FSDPCK_OK;
    if (st == FSDPCK_OK)
        st = zip_check_records(b->summer, &z, file_id, b->path, b->name, err);
    zip_release(&z);
    return st;
}

/* file_id: CAT_NONE if the archive is in memory; none of its records then belongs to a chunk. */
static fsdpck_status see_archive(const rest_blob *b, const zip_input *in, uint32_t file_id,
                                 budget *owner, value_pool *pool, fsdpck_error *err)
{
    const bool sums = b->w->request->sums;
    fsdpck_error what = FSDPCK_ERROR_INIT;
    torch_archive a;

    if (sums)
        RETURN_IF(sum_archive(b, in, file_id, owner, err));
    fsdpck_status st = torch_archive_open(in, owner, pool, TORCH_CALLS_KEEP_ALL, &a, &what);
    if (st == FSDPCK_BADINPUT && sums && what.finding == FSDPCK_FINDING_ZIP_CRC)
        return FSDPCK_OK; /* reported */
    if (st != FSDPCK_OK) {
        *err = what;
        return st;
    }
    st = see_calls(b, pool, a.root, err);
    if (st == FSDPCK_OK) /* the shards of other ranks were not saved */
        st = pt_refuse_sharded(pool, a.root, err);
    if (sums && a.is_legacy)
        b->summer->result.unverified_nbytes += b->at.nbytes;
    torch_archive_release(&a);
    return st;
}

/* A bare pickle has no checksum. */
static fsdpck_status see_pickle(const rest_blob *b, const dcp_item_bytes *item, value_pool *pool,
                                fsdpck_error *err)
{
    const pickle_input in = {.bytes = item->bytes.items,
                             .nbytes = item->bytes.count,
                             .file_offset_bytes = item->base_bytes};
    const pickle_limits limits = PICKLE_LIMITS_DEFAULT;
    size_t consumed = 0;
    value root;

    const fsdpck_status st = pickle_read(&in, &limits, pool, NULL, &root, &consumed, err);
    if (st == FSDPCK_BADINPUT || (st == FSDPCK_OK && consumed != in.nbytes))
        return FSDPCK_OK; /* bytes that only resemble one */
    return st == FSDPCK_OK ? see_calls(b, pool, root, err) : st;
}

/* Only the ends are read, unless all of it is required. */
static fsdpck_status is_torch_save(const zip_input *in, bool *is, fsdpck_error *err)
{
    uint8_t first[DCP_ITEM_BEGIN], last[DCP_ITEM_END];
    const uint64_t begin = in->nbytes < DCP_ITEM_BEGIN ? in->nbytes : DCP_ITEM_BEGIN;
    const uint64_t n = in->nbytes < DCP_ITEM_END ? in->nbytes : DCP_ITEM_END;

    RETURN_IF(in->read(in->ctx, in->base_offset_bytes, first, begin, err));
    RETURN_IF(in->read(in->ctx, in->base_offset_bytes + in->nbytes - n, last, n, err));
    *is = dcp_item_is_torch_save(first, last, in->nbytes);
    return FSDPCK_OK;
}

static fsdpck_status see_item(const rest_blob *b, budget *owner, value_pool *pool,
                              fsdpck_error *err)
{
    dcp_folder *d = b->w->d;
    dcp_blob_reader reader = {.d = d, .file = b->at.file};
    dcp_item_bytes item = {.bytes = VEC_OF(uint8_t, owner)};
    zip_input in = {.read = dcp_blob_read,
                    .ctx = &reader,
                    .base_offset_bytes = b->at.offset_bytes,
                    .nbytes = b->at.nbytes};
    bool zstd, archive = false;

    RETURN_IF(dcp_transform_check(d, b->at.transform, &zstd, err));
    if (!zstd)
        RETURN_IF(is_torch_save(&in, &archive, err));
    if (archive)
        return see_archive(b, &in, b->at.file, owner, pool, err);
    fsdpck_status st = dcp_item_read(d, &b->at, &item, err);
    if (st == FSDPCK_OK && zstd) {
        in = (zip_input){.read = dcp_item_read_at, .ctx = &item, .nbytes = item.bytes.count};
        st = is_torch_save(&in, &archive, err);
    } else if (b->w->request->sums) {
        b->summer->result.unverified_nbytes += item.bytes.count;
    }
    if (st == FSDPCK_OK && archive)
        st = see_archive(b, &in, CAT_NONE, owner, pool, err);
    else if (st == FSDPCK_OK && dcp_item_is_pickle(item.bytes.items, item.bytes.count))
        st = see_pickle(b, &item, pool, err);
    else if (st == FSDPCK_OK)
        st = dcp_item_check_bytes(&item, err);
    vec_release(&item.bytes);
    return st;
}

static fsdpck_status add_object_of_rank(const rest_blob *b, fsdpck_error *err)
{
    fsdpck_error what = FSDPCK_ERROR_INIT;
    value_pool pool;

    value_pool_init(&pool, b->w->d->owner);
    const fsdpck_status st = see_item(b, b->w->d->owner, &pool, &what);
    value_pool_release(&pool);
    return judge(b, st, &what, err);
}

/* --- blobs of chunks --- */

static bool record_is_checksummed(void *ctx, uint64_t offset_bytes)
{
    const rest_blob *b = ctx;
    const record_check_request *r = b->w->request;
    return r->is_checked_elsewhere(r->checked_ctx, b->at.file, offset_bytes);
}

static fsdpck_status sum_long_way(const rest_blob *b, const zip_input *in, fsdpck_error *err)
{
    budget owner;
    zip_archive z;

    budget_init(&owner, SCRATCH_LIMIT, "a blob with one tensor", NULL);
    RETURN_IF(zip_open(in, &owner, &z, err));
    const fsdpck_status st = zip_check_records(b->summer, &z, b->at.file, b->path, b->name, err);
    zip_release(&z);
    return st;
}

/* Whether it is a zip, as all blobs except compressed ones, whose streams are checked to their end,
 * and tensors in safetensors streams. */
static fsdpck_status is_zip(const rest_blob *b, const zip_input *in, bool *is, fsdpck_error *err)
{
    uint8_t head[4];
    *is = false;
    if (b->at.transform != 0 || b->at.nbytes < sizeof head)
        return FSDPCK_OK;
    RETURN_IF(in->read(in->ctx, in->base_offset_bytes, head, sizeof head, err));
    *is = memcmp(head, "PK\3\4", 4) == 0;
    return FSDPCK_OK;
}

static fsdpck_status sum_blob(rest_blob *b, fsdpck_error *err)
{
    dcp_blob_reader reader = {.d = b->w->d, .file = b->at.file};
    const zip_input in = {.read = dcp_blob_read,
                          .ctx = &reader,
                          .base_offset_bytes = b->at.offset_bytes,
                          .nbytes = b->at.nbytes};
    record_check_result *result = &b->summer->result;
    uint64_t records, nbytes;
    fsdpck_error what = FSDPCK_ERROR_INIT;
    bool zip;

    if (b->at.transform == 0 &&
        torch_blob_check(&in, record_is_checksummed, b, &records, &nbytes)) {
        result->records += records;
        result->checked_nbytes += nbytes;
        return FSDPCK_OK;
    }
    fsdpck_status st = is_zip(b, &in, &zip, &what);
    if (st == FSDPCK_OK && zip)
        st = sum_long_way(b, &in, &what);
    return st == FSDPCK_BADINPUT && b->is_located ? FSDPCK_OK : judge(b, st, &what, err);
}

/* --- all --- */

static bool blob_at(rest_work *w, uint64_t index, rest_blob *b, bool *is_object)
{
    const catalogue *cat = w->d->cat;
    *is_object = true;
    if (index >= w->count) {
        b->at = *VEC_AT(&w->d->repeats, const dcp_repeat, index - w->count);
        b->name = dcp_object_name(cat, b->at.object);
        return true;
    }
    const dcp_blob *k = &w->blobs[index];
    b->at = (dcp_repeat){.offset_bytes = k->offset_bytes, .nbytes = k->nbytes};
    if (k->who & DCP_BLOB_OBJECT) {
        const cat_object *o = catalogue_object(cat, k->who & ~DCP_BLOB_OBJECT);
        b->at.file = o->file;
        b->at.transform = o->aux;
        b->name = catalogue_name(cat, o->name);
        return true;
    }
    const cat_chunk *c = catalogue_chunk(cat, k->who);
    *is_object = false;
    b->at.file = c->file;
    b->at.transform = c->aux & DCP_AUX_ITEM_TENSOR ? 0 : dcp_chunk_transform(w->d, c);
    b->name = catalogue_name(cat, catalogue_tensor(cat, c->tensor)->name);
    b->is_located = c->place != LOCATION_EMPTY;
    return w->request->sums && (c->aux & DCP_AUX_ITEM_TENSOR) == 0 &&
           checked_range(c->offset_bytes, c->nbytes, catalogue_file(cat, c->file)->nbytes);
}

static fsdpck_status see_batch(void *ctx, zip_checker *s, uint64_t job, fsdpck_error *err)
{
    rest_work *w = ctx;
    const uint64_t all = w->count + w->d->repeats.count;
    text_buf path = {.limit_bytes = 8192};
    fsdpck_status st = FSDPCK_OK;
    uint32_t file_id = CAT_NONE;

    for (uint64_t i = job * BATCH; st == FSDPCK_OK && i < (job + 1) * BATCH && i < all; i++) {
        rest_blob b = {.w = w, .summer = s};
        bool is_object;
        if (!blob_at(w, i, &b, &is_object))
            continue;
        if (b.at.file != file_id) {
            file_id = b.at.file;
            path.nbytes = 0;
            text_printf(&path, "%s/%s", w->d->dir.path,
                        catalogue_name(w->d->cat, catalogue_file(w->d->cat, file_id)->path));
        }
        b.path = path.text != NULL ? path.text : "";
        b.sum = w->sums == NULL ? NULL : &w->sums[i];
        st = cancel_check(w->request->cancel, err);
        if (st == FSDPCK_OK)
            st = is_object ? add_object_of_rank(&b, err) : sum_blob(&b, err);
    }
    text_release(&path);
    return st;
}

static bool has_stream(const dcp_folder *d, size_t i)
{
    return i < d->streams.count && *VEC_AT(&d->streams, dcp_st_stream *const, i) != NULL;
}

static void note_streams(const rest_work *w)
{
    const record_check_request *r = w->request;
    for (size_t i = 0; i < w->d->streams.count; i++) {
        if (!has_stream(w->d, i))
            continue;
        const uint32_t path = catalogue_file(w->d->cat, i)->path;
        format_note(
            r->found, r->found_ctx, FSDPCK_FINDING_DCP_ST_INSIDE, w->d->dir.path,
            catalogue_name(w->d->cat, path),
            "file holds a safetensors stream, which torch writes but cannot read in a DCP folder");
        return;
    }
}

/* Savers end a file with its last blob. The end of a safetensors stream is not recorded. */
static void warn_of_trailing(const rest_work *w)
{
    const record_check_request *r = w->request;
    const catalogue *cat = w->d->cat;
    for (size_t i = 0; i < w->d->ends.count && i < catalogue_file_count(cat); i++) {
        const cat_file *f = catalogue_file(cat, i);
        const uint64_t end = *VEC_AT(&w->d->ends, const uint64_t, i);
        fsdpck_error what;
        if (f->nbytes <= end || has_stream(w->d, i))
            continue;
        FAIL_WITH(&what, BADINPUT, DCP_TRAILING, ("file has bytes after its last blob"),
                  (path_in, w->d->dir.path, catalogue_name(cat, f->path)),
                  (expected, "%" PRIu64 " bytes, the end of the last blob in the metadata", end),
                  (found, "a file of %" PRIu64 " bytes", f->nbytes));
        r->found(r->found_ctx, FORMAT_WARNING, &what);
    }
}

/* Only objects: few among many chunks. */
static void keep_objects(rest_work *w)
{
    uint64_t kept = 0;
    for (uint64_t i = 0; i < w->count; i++)
        if (w->request->sums || (w->blobs[i].who & DCP_BLOB_OBJECT))
            w->blobs[kept++] = w->blobs[i];
    w->count = kept;
}

static fsdpck_status see_all(rest_work *w, record_check_result *result, fsdpck_error *err)
{
    const uint64_t nfiles = catalogue_file_count(w->d->cat);

    note_streams(w);
    warn_of_trailing(w);
    dcp_blobs_group(w->d->cat, true, w->starts, w->blobs);
    w->count = w->starts[nfiles];
    keep_objects(w);
    const uint64_t all = w->count + w->d->repeats.count;
    const uint64_t sums_nbytes = all * sizeof *w->sums;
    if (w->d->repeats.count > 0 && (w->sums = budget_alloc(w->d->owner, sums_nbytes, err)) == NULL)
        return FSDPCK_LIMIT;
    const fsdpck_status st = zip_check_jobs(w->request, w->d->owner, (all + BATCH - 1) / BATCH,
                                            see_batch, w, result, err);
    if (st == FSDPCK_OK && w->sums != NULL)
        dcp_object_copies_report(w->d, w->blobs, w->count, w->sums, w->request);
    budget_free(w->d->owner, w->sums, w->sums == NULL ? 0 : sums_nbytes);
    return st;
}

fsdpck_status dcp_check_records(void *self, const record_check_request *request,
                                record_check_result *result, fsdpck_error *err)
{
    dcp_folder *d = self;
    const uint64_t nfiles = catalogue_file_count(d->cat);
    const uint64_t nblobs = catalogue_chunk_count(d->cat) + catalogue_object_count(d->cat);
    const uint64_t starts_nbytes = (nfiles + 1) * sizeof(uint64_t);
    rest_work w = {.d = d, .request = request};

    w.starts = budget_alloc(d->owner, starts_nbytes, err);
    w.blobs = w.starts == NULL ? NULL : budget_alloc(d->owner, nblobs * sizeof *w.blobs, err);
    const fsdpck_status st = w.blobs == NULL ? FSDPCK_LIMIT : see_all(&w, result, err);
    budget_free(d->owner, w.blobs, w.blobs == NULL ? 0 : nblobs * sizeof *w.blobs);
    budget_free(d->owner, w.starts, w.starts == NULL ? 0 : starts_nbytes);
    return st;
}
