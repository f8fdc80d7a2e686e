/* dcp_blob.c: locates the elements of a chunk in its blob; reads compressed blobs front to back. */
#include <inttypes.h>
#include <string.h>

#include "base/crc.h"
#include "formats/common/torch_archive.h"
#include "formats/common/zstd_stream.h"
#include "formats/dcp/dcp_boxes.h"
#include "formats/dcp/dcp_internal.h"
#include "formats/dcp/dcp_item_tensor.h"

#define HEAD_LIMIT (16u << 20)
#define TAIL_LIMIT (1u << 20)

fsdpck_status dcp_blob_read(void *ctx, uint64_t offset_bytes, void *dst, uint64_t nbytes,
                            fsdpck_error *err)
{
    const dcp_blob_reader *r = ctx;
    return file_set_read_at(&r->d->blobs, r->file, offset_bytes, dst, nbytes, err);
}

fsdpck_status dcp_transform_check(const dcp_folder *d, uint32_t transform, bool *zstd,
                                  fsdpck_error *err)
{
    *zstd = false;
    if (transform == 0)
        return FSDPCK_OK;
    const char *name = strtab_text(&d->names.transforms, transform);
    if (strcmp(name, "stream.zstd/1") == 0) {
        *zstd = true;
        return FSDPCK_OK;
    }
    error_set(err, FSDPCK_UNSUPPORTED, FSDPCK_FINDING_DCP_TRANSFORM,
              "blob uses the unknown stream extension '%s'", name);
    error_expected(err, "stream.zstd/1, or no extension");
    error_next(err, "save the checkpoint again without this extension");
    return FSDPCK_UNSUPPORTED;
}

static zip_input blob_input(dcp_blob_reader *r, const cat_chunk *c)
{
    return (zip_input){
        .read = dcp_blob_read, .ctx = r, .base_offset_bytes = c->offset_bytes, .nbytes = c->nbytes};
}

static void add_context(const dcp_folder *d, const cat_chunk *c, fsdpck_error *err)
{
    text_buf path = {.limit_bytes = 8192};
    text_printf(&path, "%s/%s", d->dir.path,
                catalogue_name(d->cat, catalogue_file(d->cat, c->file)->path));
    if (path.text != NULL)
        error_path(err, path.text);
    text_release(&path);
    error_tensor(err, catalogue_name(d->cat, catalogue_tensor(d->cat, c->tensor)->name));
    error_offset(err, c->offset_bytes);
}

static const char *print_sizes(text_buf *text, const uint64_t *sizes, unsigned ndim)
{
    text_puts(text, "[");
    for (unsigned i = 0; i < ndim; i++)
        text_printf(text, "%s%" PRIu64, i > 0 ? ", " : "", sizes[i]);
    text_puts(text, "]");
    return text->text != NULL ? text->text : "";
}

/* Blob against catalogue. */
fsdpck_status dcp_payload_check(const dcp_folder *d, uint64_t chunk, dtype found, unsigned ndim,
                                const uint64_t *sizes, fsdpck_error *err)
{
    const cat_tensor *t = catalogue_tensor(d->cat, catalogue_chunk(d->cat, chunk)->tensor);
    uint64_t want[NDIM_MAX];

    if (found != t->dtype) {
        error_set(err, FSDPCK_BADINPUT, FSDPCK_FINDING_DCP_PAYLOAD_DTYPE,
                  "dtype of a blob differs from the metadata");
        error_expected(err, "%s", dtype_get((dtype)t->dtype)->name);
        error_found(err, "%s", dtype_get(found)->name);
        error_next(err, "metadata and files are from different saves: copy both again");
        return FSDPCK_BADINPUT;
    }
    catalogue_chunk_box(d->cat, chunk, NULL, want);
    if (ndim == t->ndim && memcmp(sizes, want, ndim * sizeof *want) == 0)
        return FSDPCK_OK;
    text_buf expected = {.limit_bytes = 4096}, got = {.limit_bytes = 4096};
    error_set(err, FSDPCK_BADINPUT, FSDPCK_FINDING_DCP_PAYLOAD_SHAPE,
              "shape of a blob differs from the metadata");
    error_expected(err, "%s", print_sizes(&expected, want, t->ndim));
    error_found(err, "%s", print_sizes(&got, sizes, ndim));
    error_next(err, "%s", dcp_boxes_advice(d, chunk, ndim, sizes));
    text_release(&expected);
    text_release(&got);
    return FSDPCK_BADINPUT;
}

/* Decodes until the header is complete. */
static fsdpck_status locate_zstd(dcp_folder *d, const cat_chunk *c, dtype *found, unsigned *ndim,
                                 uint64_t *sizes, place *where, fsdpck_error *err)
{
    dcp_blob_reader reader = {.d = d, .file = c->file};
    const zip_input in = blob_input(&reader, c);
    vec head = VEC_OF(uint8_t, d->owner);
    size_t want_nbytes = 4096;
    zstd_stream *z;
    fsdpck_status st;

    RETURN_IF(zstd_stream_open(&in, d->owner, &z, err));
    for (;;) {
        const size_t had = head.count;
        uint64_t got;
        size_t need = 0;
        st = FSDPCK_LIMIT;
        uint8_t *more = vec_push_n(&head, want_nbytes - had, err);
        if (more == NULL)
            break;
        st = zstd_stream_read_some(z, more, want_nbytes - had, &got, err);
        if (st != FSDPCK_OK)
            break;
        const bool ended = got < want_nbytes - had;
        head.count = had + (size_t)got;
        st = torch_blob_locate_head(head.items, head.count, found, ndim, sizes, where, &need, err);
        if (st != FSDPCK_LIMIT || need <= head.count)
            break;
        if (ended || need > HEAD_LIMIT) {
            st = error_set(err, FSDPCK_BADINPUT, FSDPCK_FINDING_Z_TRUNCATED,
                           "compressed blob ends before the description of its tensor");
            break;
        }
        want_nbytes = need;
    }
    where->stream = true;
    vec_release(&head);
    zstd_stream_close(z);
    return st;
}

fsdpck_status dcp_blob_describe(dcp_folder *d, uint64_t chunk, dcp_payload *p, place *where,
                                fsdpck_error *err)
{
    const cat_chunk *c = catalogue_chunk(d->cat, chunk);
    const cat_tensor *t = catalogue_tensor(d->cat, c->tensor);
    dcp_blob_reader reader = {.d = d, .file = c->file};
    bool zstd;

    p->dtype = DTYPE_NONE;
    p->ndim = 0;
    p->is_stream = false;
    RETURN_IF(dcp_transform_check(d, c->aux & ~DCP_AUX_UNKNOWN_ORDER, &zstd, err));
    if (zstd)
        return locate_zstd(d, c, &p->dtype, &p->ndim, p->sizes, where, err);
    catalogue_chunk_box(d->cat, chunk, NULL, p->sizes);
    /* No zip is as short as its tensor's elements. */
    if (c->nbytes <= box_nelems(p->sizes, t->ndim) * dtype_get((dtype)t->dtype)->itemsize_bytes)
        RETURN_IF(dcp_st_stream_probe(d, c->file, c->offset_bytes, &p->is_stream, err));
    if (p->is_stream)
        return FSDPCK_OK;
    const zip_input in = blob_input(&reader, c);
    return torch_blob_locate(&in, &p->dtype, &p->ndim, p->sizes, where, err);
}

static fsdpck_status locate_blob(dcp_folder *d, uint64_t chunk, place *where, fsdpck_error *err)
{
    dcp_payload p;

    RETURN_IF(dcp_blob_describe(d, chunk, &p, where, err));
    if (p.is_stream)
        return dcp_st_stream_locate(d, chunk, where, err);
    where->file = catalogue_chunk(d->cat, chunk)->file;
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
            if (part->count + n > (at < begin ? HEAD_LIMIT : TAIL_LIMIT))
                return error_set(err, FSDPCK_UNSUPPORTED, FSDPCK_FINDING_DCP_TRANSFORM,
                                 "compressed blob holds more than one tensor");
            uint8_t *copy = vec_push_n(part, (size_t)n, err);
            if (copy == NULL)
                return FSDPCK_LIMIT;
            memcpy(copy, bytes, (size_t)n);
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
    return error_set(err, FSDPCK_BADINPUT, FSDPCK_FINDING_Z_TRUNCATED,
                     "compressed zip refers to bytes past its end");
}

static fsdpck_status bad_crc(uint32_t expected, uint32_t found, fsdpck_error *err)
{
    error_set(err, FSDPCK_BADINPUT, FSDPCK_FINDING_ZIP_CRC,
              "checksum of the tensor's bytes does not match");
    error_expected(err, "%08" PRIx32, expected);
    error_found(err, "%08" PRIx32, found);
    error_next(err, "the blob is damaged: copy the file again");
    return FSDPCK_BADINPUT;
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
        RETURN_IF(zip_read_entry(zip, e, HEAD_LIMIT, &bytes, &nbytes, err));
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
        st = error_set(err, FSDPCK_BADINPUT, FSDPCK_FINDING_ZIP_LOCAL,
                       "directory of the compressed zip does not contain the tensor's bytes");
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
    const zip_input in = blob_input(&s->reader, c);

    if (!s->where.stream)
        return error_set(err, FSDPCK_INTERNAL, FSDPCK_FINDING_NONE,
                         "stream opened on a blob that is not compressed");
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
    vec_release(&s->head);
    vec_release(&s->tail);
    budget_free(s->d->owner, s, sizeof *s);
}
