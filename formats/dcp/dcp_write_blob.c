#include <inttypes.h>
#include <string.h>

#include "base/bytes.h"
#include "base/crc.h"
#include "formats/common/pickle.h"
#include "formats/common/torch_archive.h"
#include "formats/common/torch_zip_write.h"
#include "formats/common/zip.h"
#include "formats/dcp/dcp_write_internal.h"

/* Blobs of tensors. All bytes except data and CRC depend only on dtype and shape, so millions of
 * chunks share a few texts.
 *
 * Alignment (--align) is made by gaps of zeros between blobs, not inside them: `.storage_alignment`
 * stays 64 and true, and readers of every torch use the offset and length in .metadata. With gaps
 * inside the zip, each of its six records would need this alignment, or torch's computed offsets
 * would miss the data. */

enum {
    DESCRIPTOR_CRC_AT = 4, /* in a descriptor */
    CENTRAL_CRC_AT = 16    /* in a directory entry */
};

typedef struct shape_of_blob {
    dtype d;
    unsigned ndim;
    const uint64_t *sizes;
} shape_of_blob;

static fsdpck_status put_tensor(void *ctx, pickle_writer *w, uint64_t index, fsdpck_error *err)
{
    const shape_of_blob *shape = ctx;
    uint64_t strides[NDIM_MAX];

    (void)index;
    (void)err;
    box_row_major_strides(shape->sizes, shape->ndim, strides);
    torch_put_tensor(w, "0", shape->d, shape->ndim, shape->sizes, strides, 0,
                     box_nelems(shape->sizes, shape->ndim));
    return FSDPCK_OK;
}

/* Appends head and tail to target.text. */
static fsdpck_status make_form(target *t, const shape_of_blob *shape, uint64_t nbytes,
                               dcp_form *form, fsdpck_error *err)
{
    text_buf pickle = {0};
    text_buf *out = &t->text;
    const size_t base = out->nbytes;
    char name[TORCH_STORAGE_NAME_NBYTES];
    const size_t name_nbytes = torch_zip_storage_name(0, name);

    fsdpck_status st =
        pickle_write(&t->cat.pool, value_of_tensor(0), put_tensor, (void *)shape, &pickle, err);
    if (st == FSDPCK_OK) {
        torch_zip_put_pickle(out, pickle.text, pickle.nbytes);
        torch_zip_put_marks(out, out->nbytes - base);
        const uint64_t header_at = out->nbytes - base;
        zip_put_local(out, header_at, name, name_nbytes, nbytes);
        const size_t tail_at = out->nbytes;
        const uint64_t data_at = tail_at - base;
        zip_put_descriptor(out, header_at, 0, nbytes);
        torch_zip_put_version(out, data_at + nbytes + (out->nbytes - tail_at));
        const size_t entries_at = out->nbytes;
        torch_zip_put_central_head(out, pickle.nbytes, crc32_update(0, pickle.text, pickle.nbytes));
        const size_t entry_at = out->nbytes;
        const uint64_t version_at = torch_zip_put_central_storage(out, header_at, 0, nbytes, 0);
        torch_zip_put_central_end(out, entries_at, version_at, 1);
        *form = (dcp_form){
            .text_at = base,
            .head_nbytes = (uint32_t)data_at,
            .tail_nbytes = (uint32_t)(out->nbytes - tail_at),
            .crc_at = {DESCRIPTOR_CRC_AT, (uint32_t)(entry_at - tail_at) + CENTRAL_CRC_AT},
        };
        st = text_check(out, err);
    }
    text_release(&pickle);
    return st;
}

static fsdpck_status form_of(dcp_write *w, target *t, uint64_t chunk, uint64_t nbytes,
                             uint32_t *index, fsdpck_error *err)
{
    const cat_tensor *tensor = catalogue_tensor(&t->cat, catalogue_chunk(&t->cat, chunk)->tensor);
    struct {
        uint64_t kind;
        uint64_t sizes[NDIM_MAX];
    } key = {.kind = (uint64_t)tensor->dtype << 8 | tensor->ndim};
    const size_t key_nbytes = (1 + (size_t)tensor->ndim) * sizeof(uint64_t);

    catalogue_chunk_box(&t->cat, chunk, NULL, key.sizes);
    RETURN_IF(strtab_intern(&w->form_keys, (const char *)&key, key_nbytes, index, err));
    if (*index < w->forms.count)
        return FSDPCK_OK;
    dcp_form *form = vec_push(&w->forms, err);
    if (form == NULL)
        return FSDPCK_LIMIT;
    const shape_of_blob shape = {
        .d = (dtype)tensor->dtype, .ndim = tensor->ndim, .sizes = key.sizes};
    return make_form(t, &shape, nbytes, form, err);
}

/* Zeros up to the start of the blob that aligns its data. */
static fsdpck_status put_gap(dcp_write *w, target *t, uint32_t file_index, uint64_t nbytes,
                             uint64_t *at, fsdpck_error *err)
{
    static const char zeros[4096];

    if (!w->has_zeros) {
        w->zeros_at = t->text.nbytes;
        for (size_t n = 0; n < DCP_ZEROS_NBYTES; n += sizeof zeros)
            text_append(&t->text, zeros, sizeof zeros);
        RETURN_IF(text_check(&t->text, err));
        w->has_zeros = true;
    }
    while (nbytes > 0) {
        const uint64_t n = nbytes < DCP_ZEROS_NBYTES ? nbytes : DCP_ZEROS_NBYTES;
        RETURN_IF(target_add_constant_at(t, file_index, *at, w->zeros_at, n, err));
        *at += n;
        nbytes -= n;
    }
    return FSDPCK_OK;
}

static fsdpck_status put_deferred(target *t, uint32_t file_index, uint64_t chunk, uint64_t at,
                                  const dcp_form *form, fsdpck_error *err)
{
    return vec_add(
        &t->lates,
        &(target_deferred){
            .offset_bytes = at, .chunk = chunk, .file = file_index, .nbytes = form->tail_nbytes},
        err);
}

fsdpck_status dcp_put_chunk(dcp_write *w, target *t, uint64_t chunk, uint64_t align_nbytes,
                            uint64_t *at, fsdpck_error *err)
{
    cat_chunk *c = catalogue_chunk(&t->cat, chunk);
    const cat_tensor *tensor = catalogue_tensor(&t->cat, c->tensor);
    uint64_t sizes[NDIM_MAX], end;
    uint32_t index;

    catalogue_chunk_box(&t->cat, chunk, NULL, sizes);
    const uint64_t nbytes =
        box_nelems(sizes, tensor->ndim) * dtype_get((dtype)tensor->dtype)->itemsize_bytes;
    RETURN_IF(form_of(w, t, chunk, nbytes, &index, err));
    const dcp_form *form = VEC_AT(&w->forms, const dcp_form, index);
    if (align_nbytes > 1 && nbytes > 0) {
        const uint64_t over = (*at + form->head_nbytes) % align_nbytes;
        if (over > 0)
            RETURN_IF(put_gap(w, t, c->file, align_nbytes - over, at, err));
    }
    c->aux = index;
    c->offset_bytes = *at + form->head_nbytes;
    c->nbytes = nbytes;
    c->place = nbytes > 0 ? LOCATION_ROWS : LOCATION_EMPTY;
    if (!checked_add(c->offset_bytes, nbytes, &end) || !checked_add(end, form->tail_nbytes, &end) ||
        end > INT64_MAX)
        return FAIL(err, LIMIT, LIMIT_SIZE,
                    "output file would exceed the largest possible file size");
    const uint64_t literal_nbytes = form->head_nbytes + (nbytes > 0 ? 0 : form->tail_nbytes);
    RETURN_IF(target_add_constant_at(t, c->file, *at, form->text_at, literal_nbytes, err));
    if (nbytes > 0)
        RETURN_IF(put_deferred(t, c->file, chunk, end - form->tail_nbytes, form, err));
    *at = end;
    return FSDPCK_OK;
}

void dcp_blob_range(const target *t, uint64_t chunk, uint64_t *offset_bytes, uint64_t *nbytes)
{
    const dcp_write *w = t->writer_state;
    const cat_chunk *c = catalogue_chunk(&t->cat, chunk);
    const dcp_form *form = VEC_AT(&w->forms, const dcp_form, c->aux);

    *offset_bytes = c->offset_bytes - form->head_nbytes;
    *nbytes = form->head_nbytes + c->nbytes + form->tail_nbytes;
}

void dcp_make_deferred(const target *t, size_t index, uint32_t crc32, uint8_t *dst)
{
    const dcp_write *w = t->writer_state;
    const target_deferred *late = VEC_AT(&t->lates, const target_deferred, index);
    const dcp_form *form =
        VEC_AT(&w->forms, const dcp_form, catalogue_chunk(&t->cat, late->chunk)->aux);

    memcpy(dst, t->text.text + form->text_at + form->head_nbytes, form->tail_nbytes);
    store_le32(dst + form->crc_at[0], crc32);
    store_le32(dst + form->crc_at[1], crc32);
}
