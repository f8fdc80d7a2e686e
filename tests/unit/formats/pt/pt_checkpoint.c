#include "pt_checkpoint.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/crc.h"
#include "tests/support/target_write.h"

fsdpck_status pt_checkpoint_open(pt_checkpoint *o, const char *path, bool opaque_calls,
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

void pt_checkpoint_close(pt_checkpoint *o)
{
    if (o->self != NULL)
        pt_reader.close(o->self);
    catalogue_release(&o->cat);
}

static uint8_t *read_record(pt_checkpoint *o, uint64_t chunk, const place *where, fsdpck_error *err)
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

/* Two's complement, byte by byte. */
static void negate_integer(uint8_t *bytes, size_t nbytes)
{
    unsigned carry = 1;
    for (size_t i = 0; i < nbytes; i++, carry >>= 8) {
        carry += (uint8_t)~bytes[i];
        bytes[i] = (uint8_t)carry;
    }
}

static void store_element(const place *where, const dtype_info *info, const uint8_t *from,
                          uint8_t *to)
{
    const size_t n = info->itemsize_bytes;
    const size_t part = info->kind == DTYPE_IS_COMPLEX ? n / 2 : n;

    memcpy(to, from, n);
    if (where->swap)
        for (size_t at = 0; at < n; at += info->swap_nbytes)
            for (size_t i = 0; i < info->swap_nbytes; i++)
                to[at + i] = from[at + info->swap_nbytes - 1 - i];
    if (where->neg && info->kind == DTYPE_IS_INT)
        negate_integer(to, n);
    else if (where->neg)
        for (size_t at = 0; at < n; at += part)
            flip_sign(to + at, part);
    if (where->conj)
        flip_sign(to + part, part);
}

uint8_t *pt_tensor_bytes(pt_checkpoint *o, uint32_t tensor, uint64_t *nbytes, fsdpck_error *err)
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
        store_element(&where, info, record + from, bytes + i * info->itemsize_bytes);
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

fsdpck_status pt_digest(pt_checkpoint *o, uint32_t tensor, char text[PT_DIGEST_BYTES],
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

static fsdpck_status fill_target(pt_checkpoint *o, target *t, bool flat, fsdpck_error *err)
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

typedef struct copying {
    pt_checkpoint *o;
    const target *t;
    uint32_t tensor; /* whose bytes are here */
    uint8_t *bytes;
} copying;

static void fill_from_source(void *ctx, const catalogue *cat, uint32_t tensor, uint64_t element,
                             uint8_t *dst)
{
    copying *c = ctx;
    const size_t item = dtype_get((dtype)catalogue_tensor(cat, tensor)->dtype)->itemsize_bytes;
    uint64_t nbytes;

    if (c->bytes == NULL || c->tensor != tensor) {
        free(c->bytes);
        c->bytes =
            pt_tensor_bytes(c->o, *VEC_AT(&c->t->from, const uint32_t, tensor), &nbytes, NULL);
        c->tensor = tensor;
    }
    if (c->bytes != NULL)
        memcpy(dst, c->bytes + element * item, item);
}

fsdpck_status pt_copy(pt_checkpoint *o, const char *path, bool flat, fsdpck_error *err)
{
    target t;
    copying c = {.o = o, .t = &t};

    target_init(&t, &o->owner);
    fsdpck_status st = fill_target(o, &t, flat, err);
    if (st == FSDPCK_OK)
        st = pt_writer.layout(&t, &(writer_options){0}, err);
    if (st == FSDPCK_OK)
        st = target_write(&t, &pt_writer, path, fill_from_source, &c, err);
    free(c.bytes);
    target_release(&t);
    return st;
}
