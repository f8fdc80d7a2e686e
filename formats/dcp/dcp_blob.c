/* dcp_blob.c: locates the elements of a chunk in its blob; reads compressed blobs front to back. */
#include <inttypes.h>
#include <string.h>

#include "base/checked.h"
#include "base/crc.h"
#include "formats/common/torch_archive.h"
#include "formats/common/zstd_stream.h"
#include "formats/dcp/dcp_boxes.h"
#include "formats/dcp/dcp_flattened.h"
#include "formats/dcp/dcp_internal.h"
#include "formats/dcp/dcp_item_tensor.h"

#define TAIL_LIMIT (1u << 20)

static void add_context(const dcp_folder *d, const cat_chunk *c, fsdpck_error *err)
{
    text_buf path = {.limit_bytes = 8192};
    text_printf(&path, "%s/%s", d->dir.path,
                catalogue_name(d->cat, catalogue_file(d->cat, c->file)->path));
    error_path(err, path.text);
    text_release(&path);
    error_tensor(err, catalogue_name(d->cat, catalogue_tensor(d->cat, c->tensor)->name));
    error_offset(err, c->offset_bytes);
    if (err != NULL && err->status == FSDPCK_BADINPUT &&
        err->finding == FSDPCK_FINDING_PT_CONTAINER)
        error_next(err, "copy this file again from where it was written");
}

static fsdpck_status locate_blob(dcp_folder *d, uint64_t chunk, place *where, fsdpck_error *err)
{
    dcp_payload p;

    RETURN_IF(dcp_blob_describe(d, chunk, &p, where, err));
    if (p.is_stream)
        return dcp_st_stream_locate(d, chunk, where, err);
    where->file = catalogue_chunk(d->cat, chunk)->file;
    if (dcp_chunk_is_flattened(catalogue_chunk(d->cat, chunk)))
        return dcp_flattened_place(d, chunk, &p, where, err);
    return dcp_payload_check(d, chunk, p.dtype, p.ndim, p.sizes, err);
}

fsdpck_status dcp_locate(void *ctx, uint64_t chunk, place *where, fsdpck_error *err)
{
    dcp_folder *d = ctx;
    const cat_chunk *c = catalogue_chunk(d->cat, chunk);

    if (c->aux & DCP_AUX_ITEM_TENSOR) {
        *where = dcp_item_tensor_at(d, c->aux)->where;
        return FSDPCK_OK;
    }
    const fsdpck_status st =
        c->aux & DCP_AUX_UNKNOWN_ORDER ? dcp_order_refuse(err) : locate_blob(d, chunk, where, err);
    if (st != FSDPCK_OK)
        add_context(d, c, err);
    return st;
}

/* torch reads no such record: its dtype and number of dims are not compared. */
static fsdpck_status check_empty_blob(dcp_folder *d, uint64_t chunk, fsdpck_error *err)
{
    dcp_payload p;
    place where = {0};

    RETURN_IF(dcp_blob_describe(d, chunk, &p, &where, err));
    return p.is_stream || box_nelems(p.sizes, p.ndim) == 0
               ? FSDPCK_OK
               : dcp_payload_check(d, chunk, p.dtype, p.ndim, p.sizes, err);
}

fsdpck_status dcp_check_empty(void *ctx, uint64_t chunk, fsdpck_error *err)
{
    dcp_folder *d = ctx;
    const cat_chunk *c = catalogue_chunk(d->cat, chunk);

    /* Files that hold only empty chunks may be missing. */
    if (c->aux & (DCP_AUX_ITEM_TENSOR | DCP_AUX_UNKNOWN_ORDER) ||
        !checked_range(c->offset_bytes, c->nbytes, catalogue_file(d->cat, c->file)->nbytes))
        return FSDPCK_OK;
    const fsdpck_status st = check_empty_blob(d, chunk, err);
    if (st != FSDPCK_OK)
        add_context(d, c, err);
    return st;
}

/* --- streams --- */

struct source_stream {
    dcp_folder *d;
    uint64_t chunk;
    place where;
    dcp_blob_reader reader;
    zstd_stream *zstd;
    bool inside; /* of a byte item, whose zip was checked when it was loaded */
    uint64_t position;
    uint32_t crc;   /* of the record so far */
    vec head, tail; /* uint8_t: all but the record */
};

/* Computes the CRC of the record and keeps the bytes around it, so that the zip can be checked at
 * the end. */
static fsdpck_status observe(source_stream *s, const uint8_t *bytes, uint64_t nbytes,
                             fsdpck_error *err)
{
    const uint64_t begin = s->where.record_offset_bytes, end = begin + s->where.record_nbytes;

    while (nbytes > 0) {
        const uint64_t at = s->position;
        const uint64_t limit = at < begin ? begin : at < end ? end : UINT64_MAX;
        const uint64_t n = nbytes < limit - at ? nbytes : limit - at;
        if (at >= begin && at < end) {
            s->crc = crc32_update(s->crc, bytes, n);
        } else if (!s->inside) {
            vec *part = at < begin ? &s->head : &s->tail;
            if (part->count + n > (at < begin ? DCP_HEAD_LIMIT : TAIL_LIMIT))
                return FAIL(err, UNSUPPORTED, DCP_TRANSFORM,
                            "compressed blob holds more than one tensor");
            RETURN_IF(vec_add_n(part, bytes, (size_t)n, err));
        }
        bytes += n;
        nbytes -= n;
        s->position += n;
    }
    return FSDPCK_OK;
}

/* The decoded zip without its record. */
static fsdpck_status read_around(void *ctx, uint64_t offset_bytes, void *dst, uint64_t nbytes,
                                 fsdpck_error *err)
{
    const source_stream *s = ctx;
    const uint64_t end = s->where.record_offset_bytes + s->where.record_nbytes;

    if (checked_range(offset_bytes, nbytes, s->head.count)) {
        memcpy(dst, VEC_AT(&s->head, const uint8_t, offset_bytes), (size_t)nbytes);
        return FSDPCK_OK;
    }
    if (offset_bytes >= end && checked_range(offset_bytes - end, nbytes, s->tail.count)) {
        memcpy(dst, VEC_AT(&s->tail, const uint8_t, offset_bytes - end), (size_t)nbytes);
        return FSDPCK_OK;
    }
    if (offset_bytes < end && offset_bytes + nbytes > s->head.count) {
        /* A search for the end may begin inside the record: its bytes read as zeros. */
        uint8_t *out = dst;
        for (uint64_t i = 0; i < nbytes; i++) {
            const uint64_t at = offset_bytes + i;
            const bool in_head = at < s->head.count;
            const bool in_tail = at >= end && at - end < s->tail.count;
            out[i] = in_head   ? *VEC_AT(&s->head, const uint8_t, at)
                     : in_tail ? *VEC_AT(&s->tail, const uint8_t, at - end)
                               : 0;
        }
        return FSDPCK_OK;
    }
    return FAIL(err, BADINPUT, Z_TRUNCATED, "compressed zip refers to bytes past its end");
}

static fsdpck_status bad_crc(uint32_t expected, uint32_t found, fsdpck_error *err)
{
    return FAIL_WITH(err, BADINPUT, ZIP_CRC, ("checksum of the tensor's bytes does not match"),
                     (expected, "%08" PRIx32, expected), (found, "%08" PRIx32, found));
}

/* Most important is the pickle: it was used before its checksum was known. */
static fsdpck_status check_small_records(const zip_archive *zip, const zip_entry *tensor,
                                         fsdpck_error *err)
{
    for (size_t i = 0; i < zip->entries.count; i++) {
        const zip_entry *e = VEC_AT(&zip->entries, zip_entry, i);
        uint8_t *bytes;
        uint64_t nbytes;
        if (e == tensor || e->nbytes == 0)
            continue;
        RETURN_IF(zip_read_entry(zip, e, DCP_HEAD_LIMIT, &bytes, &nbytes, err));
        budget_free(zip->owner, bytes, nbytes);
    }
    return FSDPCK_OK;
}

static fsdpck_status check_zip(source_stream *s, fsdpck_error *err)
{
    const zip_input in = {.read = read_around, .ctx = s, .nbytes = s->position};
    zip_archive zip;
    fsdpck_status st;

    if (s->inside)
        return s->where.has_crc && s->crc != s->where.crc32 ? bad_crc(s->where.crc32, s->crc, err)
                                                            : FSDPCK_OK;
    RETURN_IF(zip_open(&in, s->d->owner, &zip, err));
    const zip_entry *record = NULL;
    for (size_t i = 0; i < zip.entries.count; i++) {
        const zip_entry *e = VEC_AT(&zip.entries, zip_entry, i);
        if (e->data_offset_bytes == s->where.record_offset_bytes && e->nbytes > 0)
            record = e;
    }
    if (record == NULL || record->nbytes != s->where.record_nbytes || record->method != 0)
        st = FAIL(err, BADINPUT, ZIP_LOCAL,
                  "directory of the compressed zip has no entry for the tensor's bytes");
    else if (!zip.no_crc && record->crc32 != s->crc)
        st = bad_crc(record->crc32, s->crc, err);
    else
        st = check_small_records(&zip, record, err);
    zip_release(&zip);
    return st;
}

static fsdpck_status open_decoder(source_stream *s, fsdpck_error *err)
{
    const cat_chunk *c = catalogue_chunk(s->d->cat, s->chunk);
    const zip_input in = dcp_blob_input(&s->reader, c);

    if (!s->where.stream)
        return FAIL(err, INTERNAL, NONE, "stream opened on a blob that is not compressed");
    return zstd_stream_open(&in, s->d->owner, &s->zstd, err);
}

fsdpck_status dcp_stream_open(void *ctx, uint64_t chunk, source_stream **s, fsdpck_error *err)
{
    dcp_folder *d = ctx;
    const cat_chunk *c = catalogue_chunk(d->cat, chunk);
    source_stream *made = budget_alloc(d->owner, sizeof *made, err);

    if (made == NULL)
        return FSDPCK_LIMIT;
    made->d = d;
    made->chunk = chunk;
    made->reader = (dcp_blob_reader){.d = d, .file = c->file};
    made->inside = (c->aux & DCP_AUX_ITEM_TENSOR) != 0;
    made->head = VEC_OF(uint8_t, d->owner);
    made->tail = VEC_OF(uint8_t, d->owner);
    fsdpck_status st = dcp_locate(d, chunk, &made->where, err);
    if (st == FSDPCK_OK)
        st = open_decoder(made, err);
    if (st != FSDPCK_OK) {
        add_context(d, c, err);
        dcp_stream_close(made);
        return st;
    }
    *s = made;
    return FSDPCK_OK;
}

fsdpck_status dcp_stream_read(source_stream *s, void *dst, uint64_t nbytes, fsdpck_error *err)
{
    fsdpck_status st = zstd_stream_read(s->zstd, dst, nbytes, err);
    if (st == FSDPCK_OK)
        st = observe(s, dst, nbytes, err);
    if (st != FSDPCK_OK)
        add_context(s->d, catalogue_chunk(s->d->cat, s->chunk), err);
    return st;
}

typedef struct rest_taker {
    source_stream *s;
    fsdpck_status st;
    fsdpck_error *err;
} rest_taker;

static void take_rest(void *ctx, const uint8_t *bytes, size_t nbytes)
{
    rest_taker *r = ctx;
    if (r->st == FSDPCK_OK)
        r->st = observe(r->s, bytes, nbytes, r->err);
}

fsdpck_status dcp_stream_finish(source_stream *s, fsdpck_error *err)
{
    rest_taker rest = {.s = s, .err = err};
    fsdpck_status st = zstd_stream_finish(s->zstd, take_rest, &rest, err);

    if (st == FSDPCK_OK)
        st = rest.st;
    if (st == FSDPCK_OK)
        st = check_zip(s, err);
    if (st != FSDPCK_OK)
        add_context(s->d, catalogue_chunk(s->d->cat, s->chunk), err);
    return st;
}

void dcp_stream_close(source_stream *s)
{
    if (s == NULL)
        return;
    zstd_stream_close(s->zstd);
    VEC_RELEASE_ALL(&s->head, &s->tail);
    budget_free(s->d->owner, s, sizeof *s);
}
