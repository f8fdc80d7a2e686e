#include <string.h>

#include "base/crc.h"
#include "formats/common/pickle.h"
#include "formats/common/torch_archive.h"
#include "formats/common/torch_zip_write.h"
#include "formats/common/zip.h"
#include "formats/dcp/dcp_write_internal.h"

/* Byte items: a torch.save zip of the value, or, for an unreadable value, its original bytes. A
 * value that contains tensors has them as storages of the same zip, numbered in the order of the
 * pickle; seal() writes their descriptors and the directory, since they depend on several CRCs.
 * --align does not apply to those tensors. */

typedef struct inner_state {
    dcp_write *w;
    target *t;
    const cat_object *object;
    size_t first; /* in inner_chunks: storages of this object begin */
} inner_state;

static fsdpck_status fail(const inner_state *s, const char *what, fsdpck_error *err)
{
    return FAIL_WITH(err, UNSUPPORTED, NONE, ("%s", what),
                     (tensor, catalogue_name(&s->t->cat, s->object->name)),
                     (next, "leave the object out with --exclude, or write a .pt file"));
}

/* A tensor of the object becomes the next storage. The pickle writer calls it once for each. */
static fsdpck_status put_inner_tensor(void *ctx, pickle_writer *w, uint64_t index,
                                      fsdpck_error *err)
{
    inner_state *s = ctx;
    const catalogue *cat = &s->t->cat;
    uint64_t strides[NDIM_MAX];
    char name[TORCH_STORAGE_NAME_NBYTES];

    if (index >= catalogue_tensor_count(cat))
        return FAIL(err, INTERNAL, NONE, "object refers to a tensor that does not exist");
    const cat_tensor *t = catalogue_tensor(cat, index);
    if (!(t->flags & CAT_TENSOR_IN_OBJECT) || t->nchunks != 1)
        return fail(s, "object contains a tensor that has its own entry", err);
    cat_chunk *c = catalogue_chunk(cat, t->first_chunk);
    if (c->file != CAT_NONE)
        return fail(s, "object shares a tensor with another object", err);
    c->file = s->object->file;
    RETURN_IF(vec_add(&s->w->inner_chunks, &(uint64_t){t->first_chunk}, err));
    const uint64_t *shape = catalogue_shape(cat, index);
    box_row_major_strides(shape, t->ndim, strides);
    torch_zip_storage_name((uint32_t)(s->w->inner_chunks.count - 1 - s->first), name);
    torch_put_tensor_of(w, name + strlen("archive/data/"), t, shape, strides, 0,
                        catalogue_tensor_nelems(cat, index));
    return FSDPCK_OK;
}

/* --- without tensors --- */

static fsdpck_status put_plain(dcp_write *w, target *t, const cat_object *o, const text_buf *pickle,
                               uint64_t *at, fsdpck_error *err)
{
    text_buf *out = &t->text;
    uint32_t id;

    RETURN_IF(strtab_intern(&w->pickles, pickle->text, pickle->nbytes, &id, err));
    if (id == w->pickle_blobs.count) {
        const size_t base = out->nbytes;
        torch_zip_put_pickle(out, pickle->text, pickle->nbytes);
        torch_zip_put_marks(out, out->nbytes - base);
        const uint64_t version_at = out->nbytes - base;
        torch_zip_put_version(out, version_at);
        const size_t entries_at = out->nbytes;
        torch_zip_put_central_head(out, pickle->nbytes,
                                   crc32_update(0, pickle->text, pickle->nbytes));
        torch_zip_put_central_end(out, entries_at, version_at, 0);
        RETURN_IF(text_check(out, err));
        RETURN_IF(vec_add(&w->pickle_blobs,
                          &(dcp_pickle_blob){.text_at = base, .nbytes = out->nbytes - base}, err));
    }
    const dcp_pickle_blob *blob = VEC_AT(&w->pickle_blobs, const dcp_pickle_blob, id);
    RETURN_IF(target_add_constant_at(t, o->file, *at, blob->text_at, blob->nbytes, err));
    *at += blob->nbytes;
    return FSDPCK_OK;
}

static fsdpck_status put_opaque(target *t, const cat_object *o, uint64_t *at, fsdpck_error *err)
{
    size_t nbytes = 0;
    const char *bytes = value_text(&t->cat.pool, o->content, &nbytes);

    if (bytes == NULL || value_kind_of(o->content) != VALUE_BYTES)
        return FAIL(err, INTERNAL, NONE, "bytes of an opaque object are missing");
    if (nbytes > 0)
        RETURN_IF(target_add_constant(t, o->file, *at, bytes, nbytes, err));
    *at += nbytes;
    return FSDPCK_OK;
}

/* --- with tensors --- */

static fsdpck_status flush(target *t, uint32_t file_index, text_buf *out, uint64_t blob_at,
                           uint64_t *in_blob, fsdpck_error *err)
{
    RETURN_IF(text_check(out, err));
    RETURN_IF(target_add_constant(t, file_index, blob_at + *in_blob, out->text, out->nbytes, err));
    *in_blob += out->nbytes;
    out->nbytes = 0;
    return FSDPCK_OK;
}

static fsdpck_status put_storages(const dcp_write *w, target *t, const dcp_inner_blob *blob,
                                  text_buf *out, uint64_t *in_blob, fsdpck_error *err)
{
    char name[TORCH_STORAGE_NAME_NBYTES];

    for (size_t i = 0; i < blob->chunk_count; i++) {
        cat_chunk *c = catalogue_chunk(
            &t->cat, *VEC_AT(&w->inner_chunks, const uint64_t, blob->first_chunk + i));
        const uint64_t header_at = *in_blob + out->nbytes;
        uint64_t end;
        c->nbytes = catalogue_tensor_nbytes(&t->cat, c->tensor);
        zip_put_local(out, header_at, name, torch_zip_storage_name((uint32_t)i, name), c->nbytes);
        RETURN_IF(flush(t, blob->file, out, blob->blob_at, in_blob, err));
        c->offset_bytes = blob->blob_at + *in_blob;
        c->place = c->nbytes > 0 ? LOCATION_ROWS : LOCATION_EMPTY;
        if (!checked_add(c->offset_bytes, c->nbytes, &end) || end > INT64_MAX / 2)
            return FAIL(err, LIMIT, LIMIT_SIZE,
                        "output file would exceed the largest possible file size");
        *in_blob += c->nbytes + zip_descriptor_nbytes(header_at, c->nbytes);
    }
    return FSDPCK_OK;
}

/* Directory of a blob: crc holds the chunks' CRCs, NULL if not yet known. */
static void put_directory(const dcp_write *w, const target *t, const dcp_inner_blob *blob,
                          const uint32_t *crc, text_buf *out)
{
    uint64_t header_at = torch_zip_put_central_head(out, blob->pickle_nbytes, blob->pickle_crc);

    for (size_t i = 0; i < blob->chunk_count; i++) {
        const uint64_t chunk = *VEC_AT(&w->inner_chunks, const uint64_t, blob->first_chunk + i);
        header_at = torch_zip_put_central_storage(out, header_at, (uint32_t)i,
                                                  catalogue_chunk(&t->cat, chunk)->nbytes,
                                                  crc == NULL ? 0 : crc[chunk]);
    }
    torch_zip_put_central_end(out, 0, header_at, blob->chunk_count);
}

static fsdpck_status put_inner(dcp_write *w, target *t, dcp_inner_blob *blob,
                               const text_buf *pickle, text_buf *out, uint64_t *at,
                               fsdpck_error *err)
{
    uint64_t in_blob = 0;

    torch_zip_put_pickle(out, pickle->text, pickle->nbytes);
    torch_zip_put_marks(out, out->nbytes);
    RETURN_IF(put_storages(w, t, blob, out, &in_blob, err));
    torch_zip_put_version(out, in_blob + out->nbytes);
    RETURN_IF(flush(t, blob->file, out, blob->blob_at, &in_blob, err));
    blob->directory_at = in_blob;
    put_directory(w, t, blob, NULL, out);
    RETURN_IF(text_check(out, err));
    *at += in_blob + out->nbytes;
    return FSDPCK_OK;
}

static fsdpck_status put_with_tensors(dcp_write *w, target *t, const cat_object *o, size_t first,
                                      const text_buf *pickle, uint64_t *at, fsdpck_error *err)
{
    text_buf out = {.limit_bytes = SIZE_MAX / 2};
    dcp_inner_blob *blob = vec_push(&w->inner_blobs, err);

    if (blob == NULL)
        return FSDPCK_LIMIT;
    *blob = (dcp_inner_blob){
        .file = o->file,
        .pickle_crc = crc32_update(0, pickle->text, pickle->nbytes),
        .pickle_nbytes = pickle->nbytes,
        .blob_at = *at,
        .first_chunk = first,
        .chunk_count = w->inner_chunks.count - first,
    };
    const fsdpck_status st = put_inner(w, t, blob, pickle, &out, at, err);
    text_release(&out);
    return st;
}

/* --- both --- */

fsdpck_status dcp_put_object(dcp_write *w, target *t, uint32_t object, uint64_t *at,
                             fsdpck_error *err)
{
    cat_object *o = catalogue_object(&t->cat, object);
    text_buf pickle = {.limit_bytes = SIZE_MAX / 2};
    inner_state s = {.w = w, .t = t, .object = o, .first = w->inner_chunks.count};

    o->offset_bytes = *at;
    fsdpck_status st;
    if (!o->loaded) {
        st = FAIL(err, INTERNAL, NONE, "object to write was not loaded");
    } else if (o->opaque) {
        st = put_opaque(t, o, at, err);
    } else {
        st = pickle_write(&t->cat.pool, o->content, put_inner_tensor, &s, &pickle, err);
        if (st == FSDPCK_OK && w->inner_chunks.count == s.first)
            st = put_plain(w, t, o, &pickle, at, err);
        else if (st == FSDPCK_OK)
            st = put_with_tensors(w, t, o, s.first, &pickle, at, err);
    }
    text_release(&pickle);
    if (st != FSDPCK_OK)
        error_tensor(err, catalogue_name(&t->cat, o->name));
    o->nbytes = *at - o->offset_bytes;
    return st;
}

/* --- sealing --- */

static fsdpck_status put_deferred(const dcp_inner_blob *blob, const text_buf *out,
                                  uint64_t offset_bytes, deferred_fn put, void *ctx,
                                  fsdpck_error *err)
{
    RETURN_IF(text_check(out, err));
    const deferred_bytes late = {.file = blob->file,
                                 .offset_bytes = offset_bytes,
                                 .nbytes = out->nbytes,
                                 .bytes = (const uint8_t *)out->text};
    return put(ctx, &late, err);
}

static fsdpck_status seal_blob(const dcp_write *w, const target *t, const dcp_inner_blob *blob,
                               text_buf *out, deferred_fn put, void *ctx, fsdpck_error *err)
{
    char name[TORCH_STORAGE_NAME_NBYTES];
    out->nbytes = 0;
    uint64_t header_at = torch_zip_put_central_head(out, blob->pickle_nbytes, blob->pickle_crc);

    for (size_t i = 0; i < blob->chunk_count; i++) {
        const uint64_t chunk = *VEC_AT(&w->inner_chunks, const uint64_t, blob->first_chunk + i);
        const cat_chunk *c = catalogue_chunk(&t->cat, chunk);
        const uint64_t end =
            zip_data_offset(header_at, torch_zip_storage_name((uint32_t)i, name), c->nbytes) +
            c->nbytes;
        const unsigned n = zip_descriptor_nbytes(header_at, c->nbytes);
        if (n > 0) {
            out->nbytes = 0;
            zip_put_descriptor(out, header_at, t->chunk_crc[chunk], c->nbytes);
            RETURN_IF(put_deferred(blob, out, c->offset_bytes + c->nbytes, put, ctx, err));
        }
        header_at = end + n;
    }
    out->nbytes = 0;
    put_directory(w, t, blob, t->chunk_crc, out);
    return put_deferred(blob, out, blob->blob_at + blob->directory_at, put, ctx, err);
}

fsdpck_status dcp_seal_objects(const target *t, deferred_fn put, void *ctx, fsdpck_error *err)
{
    const dcp_write *w = t->writer_state;
    text_buf out = {.limit_bytes = SIZE_MAX / 2};
    fsdpck_status st = FSDPCK_OK;

    for (size_t i = 0; i < w->inner_blobs.count && st == FSDPCK_OK; i++)
        st = seal_blob(w, t, VEC_AT(&w->inner_blobs, const dcp_inner_blob, i), &out, put, ctx, err);
    text_release(&out);
    return st;
}
