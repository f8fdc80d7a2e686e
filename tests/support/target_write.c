#include "tests/support/target_write.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/crc.h"

typedef struct image {
    uint8_t *bytes;
    uint8_t *times; /* how often each was given */
    uint64_t nbytes;
} image;

typedef struct writing {
    target *t;
    image *images;
    size_t count;
} writing;

void target_fill_index(void *ctx, const catalogue *cat, uint32_t tensor, uint64_t element,
                       uint8_t *dst)
{
    const float f = (float)element;
    uint32_t bits;
    (void)ctx;
    memcpy(&bits, &f, sizeof bits);
    switch (catalogue_tensor(cat, tensor)->dtype) {
    case DTYPE_INT64:
        store_le64(dst, element);
        break;
    case DTYPE_BFLOAT16:
        store_le16(dst, (uint16_t)(bits >> 16));
        break;
    default:
        store_le32(dst, bits);
        break;
    }
}

static fsdpck_status fill_bytes(writing *w, uint32_t index, uint64_t offset, const void *bytes,
                                uint64_t nbytes, fsdpck_error *err)
{
    image *im = index < w->count ? &w->images[index] : NULL;
    if (im == NULL || offset > im->nbytes || nbytes > im->nbytes - offset)
        return error_set(err, FSDPCK_INTERNAL, FSDPCK_FINDING_NONE, "bytes outside of file %u",
                         index);
    memcpy(im->bytes + offset, bytes, nbytes);
    for (uint64_t i = 0; i < nbytes; i++)
        im->times[offset + i]++;
    return FSDPCK_OK;
}

static fsdpck_status put_deferred(void *ctx, const deferred_bytes *late, fsdpck_error *err)
{
    return fill_bytes(ctx, late->file, late->offset_bytes, late->bytes, late->nbytes, err);
}

static fsdpck_status fill_chunk(writing *w, uint64_t index, target_fill_fn fill, void *ctx,
                                fsdpck_error *err)
{
    const catalogue *cat = &w->t->cat;
    const cat_chunk *c = catalogue_chunk(cat, index);
    const cat_tensor *tensor = catalogue_tensor(cat, c->tensor);
    const size_t item = dtype_get((dtype)tensor->dtype)->itemsize_bytes;
    uint64_t offsets[NDIM_MAX], sizes[NDIM_MAX], strides[NDIM_MAX], at[NDIM_MAX] = {0};
    fsdpck_status st = FSDPCK_OK;

    catalogue_chunk_box(cat, index, offsets, sizes);
    box_row_major_strides(catalogue_shape(cat, c->tensor), tensor->ndim, strides);
    if (c->nbytes != box_nelems(sizes, tensor->ndim) * item)
        return error_set(err, FSDPCK_INTERNAL, FSDPCK_FINDING_NONE,
                         "chunk %" PRIu64 " has another size", index);
    uint8_t *bytes = malloc(c->nbytes + 1);
    for (uint64_t i = 0; i < c->nbytes / item; i++) {
        uint64_t element = 0;
        for (unsigned d = 0; d < tensor->ndim; d++)
            element += (offsets[d] + at[d]) * strides[d];
        fill(ctx, cat, c->tensor, element, bytes + i * item);
        for (unsigned d = tensor->ndim; d-- > 0;) {
            if (++at[d] < sizes[d])
                break;
            at[d] = 0;
        }
    }
    if (w->t->want_crc)
        w->t->chunk_crc[index] = crc32_update(0, bytes, c->nbytes);
    st = fill_bytes(w, c->file, c->offset_bytes, bytes, c->nbytes, err);
    free(bytes);
    return st;
}

static fsdpck_status fill_all(writing *w, const format_writer *writer, target_fill_fn fill,
                              void *ctx, fsdpck_error *err)
{
    target *t = w->t;
    uint8_t deferred_text[4096];

    for (size_t i = 0; i < t->literals.count; i++) {
        const target_constant *l = VEC_AT(&t->literals, const target_constant, i);
        const target_constant *last = i > 0 ? l - 1 : l;
        if (i > 0 && (last->file > l->file ||
                      (last->file == l->file && last->offset_bytes >= l->offset_bytes)))
            return error_set(err, FSDPCK_INTERNAL, FSDPCK_FINDING_NONE,
                             "literals are not in order");
        RETURN_IF(
            fill_bytes(w, l->file, l->offset_bytes, t->text.text + l->text_at, l->nbytes, err));
    }
    for (uint64_t i = 0; i < catalogue_chunk_count(&t->cat); i++)
        if (catalogue_chunk(&t->cat, i)->place == LOCATION_ROWS)
            RETURN_IF(fill_chunk(w, i, fill, ctx, err));
    for (size_t i = 0; i < t->lates.count; i++) {
        const target_deferred *l = VEC_AT(&t->lates, const target_deferred, i);
        if (l->nbytes > sizeof deferred_text)
            return error_set(err, FSDPCK_INTERNAL, FSDPCK_FINDING_NONE, "late bytes are too many");
        t->make_deferred(t, i, t->chunk_crc[l->chunk], deferred_text);
        RETURN_IF(fill_bytes(w, l->file, l->offset_bytes, deferred_text, l->nbytes, err));
    }
    return writer->seal != NULL ? writer->seal(t, put_deferred, w, err) : FSDPCK_OK;
}

static fsdpck_status save(const writing *w, const char *path, fsdpck_error *err)
{
    for (uint32_t i = 0; i < w->count; i++) {
        const image *im = &w->images[i];
        const char *name = catalogue_name(&w->t->cat, catalogue_file(&w->t->cat, i)->path);
        char full[4096];
        for (uint64_t k = 0; k < im->nbytes; k++)
            if (im->times[k] != 1)
                return error_set(err, FSDPCK_INTERNAL, FSDPCK_FINDING_NONE,
                                 "byte %" PRIu64 " of '%s' was given %u times", k, name,
                                 im->times[k]);
        snprintf(full, sizeof full, "%s%s%s", path, w->t->is_folder ? "/" : "", name);
        FILE *out = fopen(full, "wb");
        if (out == NULL || fwrite(im->bytes, 1, im->nbytes, out) != im->nbytes || fclose(out) != 0)
            return error_set(err, FSDPCK_IO, FSDPCK_FINDING_NONE, "cannot write '%s'", full);
    }
    return FSDPCK_OK;
}

fsdpck_status target_write(target *t, const format_writer *writer, const char *path,
                           target_fill_fn fill, void *ctx, fsdpck_error *err)
{
    writing w = {.t = t, .count = catalogue_file_count(&t->cat)};
    w.images = calloc(w.count + 1, sizeof *w.images);
    for (uint32_t i = 0; i < w.count; i++) {
        w.images[i].nbytes = catalogue_file(&t->cat, i)->nbytes;
        w.images[i].bytes = calloc(w.images[i].nbytes + 1, 1);
        w.images[i].times = calloc(w.images[i].nbytes + 1, 1);
    }
    if (t->want_crc)
        t->chunk_crc = calloc(catalogue_chunk_count(&t->cat) + 1, sizeof(uint32_t));
    fsdpck_status st = fill_all(&w, writer, fill, ctx, err);
    if (st == FSDPCK_OK)
        st = save(&w, path, err);
    for (size_t i = 0; i < w.count; i++) {
        free(w.images[i].bytes);
        free(w.images[i].times);
    }
    free(w.images);
    return st;
}
