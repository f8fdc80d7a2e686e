/* dcp_blob_head.c: what the head of a blob says of the tensor in it. */
#include <string.h>

#include "formats/common/torch_archive.h"
#include "formats/common/zstd_stream.h"
#include "formats/dcp/dcp_flattened.h"

uint32_t dcp_chunk_transform(const dcp_folder *d, const cat_chunk *c)
{
    return dcp_chunk_is_flattened(c) ? dcp_flat_box_at(d, c)->transform
                                     : c->aux & ~DCP_AUX_UNKNOWN_ORDER;
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
    return FAIL_WITH(err, UNSUPPORTED, DCP_TRANSFORM,
                     ("blob uses the unknown stream extension '%s'", name),
                     (expected, "stream.zstd/1, or no extension"));
}

zip_input dcp_blob_input(dcp_blob_reader *r, const cat_chunk *c)
{
    return (zip_input){
        .read = dcp_blob_read, .ctx = r, .base_offset_bytes = c->offset_bytes, .nbytes = c->nbytes};
}

/* Decodes until the head tells all. */
static fsdpck_status locate_zstd(dcp_folder *d, const cat_chunk *c, dtype *found, unsigned *ndim,
                                 uint64_t *sizes, place *where, fsdpck_error *err)
{
    dcp_blob_reader reader = {.d = d, .file = c->file};
    const zip_input in = dcp_blob_input(&reader, c);
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
        if (ended || need > DCP_HEAD_LIMIT) {
            st = FAIL(err, BADINPUT, Z_TRUNCATED,
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
    RETURN_IF(dcp_transform_check(d, dcp_chunk_transform(d, c), &zstd, err));
    if (zstd)
        return locate_zstd(d, c, &p->dtype, &p->ndim, p->sizes, where, err);
    catalogue_chunk_box(d->cat, chunk, NULL, p->sizes);
    /* No zip is as short as its tensor's elements. */
    if (c->nbytes <= box_nelems(p->sizes, t->ndim) * dtype_get((dtype)t->dtype)->itemsize_bytes)
        RETURN_IF(dcp_st_stream_probe(d, c->file, c->offset_bytes, &p->is_stream, err));
    if (p->is_stream)
        return FSDPCK_OK;
    const zip_input in = dcp_blob_input(&reader, c);
    return torch_blob_locate(&in, &p->dtype, &p->ndim, p->sizes, where, err);
}
