#include "pt_copy.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/crc.h"

fsdpck_status pt_opening_begin(pt_opening *o, const char *path, bool opaque_calls,
                               fsdpck_error *err)
{
    memset(o, 0, sizeof(*o));
    budget_init(&o->owner, (uint64_t)128 << 20, "metadata", NULL);
    catalogue_init(&o->cat, &o->owner);
    const open_request req = {
        .path = path, .metadata = &o->owner, .nthreads = 1, .opaque_calls = opaque_calls};
    const fsdpck_status st = pt_reader.open(&req, &o->cat, &o->self, err);
    if (st == FSDPCK_OK)
        pt_reader.source(o->self, &o->cat, &o->src);
    return st;
}

void pt_opening_end(pt_opening *o)
{
    if (o->self != NULL)
        pt_reader.close(o->self);
    catalogue_release(&o->cat);
}

static uint8_t *read_record(pt_opening *o, uint64_t chunk, const place *where, fsdpck_error *err)
{
    uint8_t *record = malloc(where->record_nbytes + 1);
    fsdpck_status st;

    if (!where->stream) {
        st = o->src.read_at(o->src.ctx, where->file, where->record_offset_bytes, record,
                            where->record_nbytes, err);
    } else {
        source_stream *s;
        st = o->src.stream_open(o->src.ctx, chunk, &s, err);
        if (st == FSDPCK_OK)
            st = o->src.stream_read(s, record, where->record_nbytes, err);
        if (st == FSDPCK_OK)
            st = o->src.stream_finish(s, err);
        o->src.stream_close(s);
    }
    if (st == FSDPCK_OK)
        return record;
    free(record);
    return NULL;
}

/* Lazy conjugation and negation of one floating-point part: its sign bit, which is the top one. */
static void flip_sign(uint8_t *part, size_t nbytes)
{
    part[nbytes - 1] ^= 0x80;
}

static void take_element(const place *where, const dtype_info *info, const uint8_t *from,
                         uint8_t *to)
{
    const size_t n = info->itemsize_bytes;
    const size_t part = info->kind == DTYPE_IS_COMPLEX ? n / 2 : n;

    memcpy(to, from, n);
    if (where->swap)
        for (size_t at = 0; at < n; at += info->swap_nbytes)
            for (size_t i = 0; i < info->swap_nbytes; i++)
                to[at + i] = from[at + info->swap_nbytes - 1 - i];
    if (where->neg)
        for (size_t at = 0; at < n; at += part)
            flip_sign(to + at, part);
    if (where->conj)
        flip_sign(to + part, part);
}

uint8_t *pt_tensor_bytes(pt_opening *o, uint32_t tensor, uint64_t *nbytes, fsdpck_error *err)
{
    const cat_tensor *t = catalogue_tensor(&o->cat, tensor);
    const dtype_info *info = dtype_get(t->dtype);
    const uint64_t *shape = catalogue_shape(&o->cat, tensor);
    uint64_t at[NDIM_MAX] = {0};
    place where;

    *nbytes = catalogue_tensor_nbytes(&o->cat, tensor);
    uint8_t *bytes = malloc(*nbytes + 1);
    if (*nbytes == 0)
        return bytes;
    if (o->src.locate(o->src.ctx, t->first_chunk, &where, err) != FSDPCK_OK) {
        free(bytes);
        return NULL;
    }
    uint8_t *record = read_record(o, t->first_chunk, &where, err);
    for (uint64_t i = 0; record != NULL && i < *nbytes / info->itemsize_bytes; i++) {
        uint64_t from = where.offset_bytes - where.record_offset_bytes;
        for (unsigned d = 0; d < t->ndim; d++)
            from += at[d] * where.strides[d] * info->itemsize_bytes;
        take_element(&where, info, record + from, bytes + i * info->itemsize_bytes);
        for (unsigned d = t->ndim; d-- > 0;) {
            if (++at[d] < shape[d])
                break;
            at[d] = 0;
        }
    }
    if (record == NULL) {
        free(bytes);
        return NULL;
    }
    free(record);
    return bytes;
}

fsdpck_status pt_digest(pt_opening *o, uint32_t tensor, char text[PT_DIGEST_BYTES],
                        fsdpck_error *err)
{
    const cat_tensor *t = catalogue_tensor(&o->cat, tensor);
    char label[256];
    uint64_t nbytes;
    int n = snprintf(label, sizeof(label), "%s[", dtype_get(t->dtype)->name);

    for (unsigned d = 0; d < t->ndim; d++)
        n += snprintf(label + n, sizeof(label) - (size_t)n, "%s%" PRIu64, d > 0 ? "," : "",
                      catalogue_shape(&o->cat, tensor)[d]);
    n += snprintf(label + n, sizeof(label) - (size_t)n, "]\n");
    uint8_t *bytes = pt_tensor_bytes(o, tensor, &nbytes, err);
    if (bytes == NULL)
        return FSDPCK_BADINPUT;
    const uint64_t crc = crc64_update(crc64_update(0, label, (uint64_t)n), bytes, nbytes);
    free(bytes);
    label[n - 1] = '\0';
    snprintf(text, PT_DIGEST_BYTES, "%016" PRIx64 "  %s  %s", crc, label,
             catalogue_name(&o->cat, t->name));
    return FSDPCK_OK;
}

static fsdpck_status fill_target(pt_opening *o, target *t, bool flat, fsdpck_error *err)
{
    static const uint64_t zeros[NDIM_MAX];

    for (uint32_t i = 0; i < catalogue_tensor_count(&o->cat); i++) {
        const cat_tensor *from = catalogue_tensor(&o->cat, i);
        const cat_chunk proto = {.rank = UINT16_MAX};
        const char *name = catalogue_name(&o->cat, from->name);
        uint32_t index;
        if (from->flags & CAT_TENSOR_STORAGE)
            continue; /* copies are compact */
        RETURN_IF(catalogue_add_tensor(&t->cat, name, catalogue_name_nbytes(&o->cat, from->name),
                                       from->dtype, from->ndim, catalogue_shape(&o->cat, i), &index,
                                       err));
        RETURN_IF(
            catalogue_add_chunk(&t->cat, index, zeros, catalogue_shape(&o->cat, i), &proto, err));
        uint32_t *source_tensor = vec_push(&t->from, err);
        if (source_tensor == NULL)
            return FSDPCK_LIMIT;
        *source_tensor = i;
    }
    RETURN_IF(catalogue_seal(&t->cat, err));
    return flat ? FSDPCK_OK
                : value_copy(&o->cat.pool, o->cat.root, &t->cat.pool, NULL, &t->root, err);
}

typedef struct sealing {
    FILE *out;
} sealing;

static fsdpck_status put_late(void *ctx, const late_bytes *late, fsdpck_error *err)
{
    const sealing *s = ctx;
    if (fseek(s->out, (long)late->offset_bytes, SEEK_SET) != 0 ||
        fwrite(late->bytes, 1, late->nbytes, s->out) != late->nbytes)
        return error_set(err, FSDPCK_IO, "", "cannot write late bytes");
    return FSDPCK_OK;
}

static fsdpck_status write_chunks(pt_opening *o, target *t, FILE *out, fsdpck_error *err)
{
    t->chunk_crc = calloc(catalogue_chunk_count(&t->cat) + 1, sizeof(uint32_t));
    for (size_t i = 0; i < t->literals.count; i++) {
        const target_literal *l = VEC_AT(&t->literals, const target_literal, i);
        fseek(out, (long)l->offset_bytes, SEEK_SET);
        fwrite(t->text.text + l->text_at, 1, l->nbytes, out);
    }
    for (uint32_t i = 0; i < catalogue_tensor_count(&t->cat); i++) {
        const uint64_t chunk = catalogue_tensor(&t->cat, i)->first_chunk;
        const cat_chunk *c = catalogue_chunk(&t->cat, chunk);
        uint64_t nbytes;
        if (c->place != PLACE_ROWS)
            continue;
        uint8_t *bytes = pt_tensor_bytes(o, *VEC_AT(&t->from, const uint32_t, i), &nbytes, err);
        if (bytes == NULL)
            return FSDPCK_BADINPUT;
        fseek(out, (long)c->offset_bytes, SEEK_SET);
        fwrite(bytes, 1, nbytes, out);
        t->chunk_crc[chunk] = crc32_update(0, bytes, nbytes);
        free(bytes);
    }
    return FSDPCK_OK;
}

fsdpck_status pt_copy(pt_opening *o, const char *path, bool flat, fsdpck_error *err)
{
    target t;
    sealing s = {.out = fopen(path, "wb")};

    target_init(&t, &o->owner);
    fsdpck_status st = s.out == NULL ? error_set(err, FSDPCK_IO, "", "cannot create '%s'", path)
                                     : fill_target(o, &t, flat, err);
    if (st == FSDPCK_OK)
        st = pt_writer.layout(&t, &(writer_options){0}, err);
    if (st == FSDPCK_OK)
        st = write_chunks(o, &t, s.out, err);
    if (st == FSDPCK_OK)
        st = pt_writer.seal(&t, put_late, &s, err);
    if (st == FSDPCK_OK) {
        fseek(s.out, 0, SEEK_END);
        if ((uint64_t)ftell(s.out) != catalogue_file(&t.cat, 0)->nbytes)
            st = error_set(err, FSDPCK_INTERNAL, "", "file has another size than declared");
    }
    if (s.out != NULL)
        fclose(s.out);
    target_release(&t);
    return st;
}
