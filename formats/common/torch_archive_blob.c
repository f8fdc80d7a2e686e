#include <stddef.h>
#include <string.h>

#include "base/crc.h"
#include "formats/common/torch_archive_internal.h"
#include "formats/common/torch_serialization_id.h"
#include "formats/common/zip_records.h"

/* A tensor's blob of a DCP folder is a whole zip of a few records, most of it smaller than
 * SMALL_NBYTES. This file accepts the usual ones without allocating; all others, valid or not, take
 * the general path. */
enum {
    SMALL_NBYTES = 8192,
    HEAD_NBYTES = 4096,
    TAIL_NBYTES = SMALL_NBYTES - HEAD_NBYTES,
    ENTRIES_LIMIT = 12
};

static const uint64_t SLOW_BUDGET_BYTES = (uint64_t)1 << 30;

typedef struct blob {
    const zip_input *in;
    uint64_t head_nbytes; /* from offset 0 */
    uint64_t tail_offset_bytes;
    uint8_t bytes[SMALL_NBYTES]; /* head, then tail */
} blob;

/* Reads up to *nbytes bytes from `offset` on; *nbytes receives the number read. */
static const uint8_t *blob_bytes(const blob *b, uint64_t offset, size_t *nbytes)
{
    uint64_t left = 0;
    const uint8_t *p = NULL;

    if (offset < b->head_nbytes) {
        left = b->head_nbytes - offset;
        p = b->bytes + offset;
    } else if (offset >= b->tail_offset_bytes && offset < b->in->nbytes) {
        left = b->in->nbytes - offset;
        p = b->bytes + b->head_nbytes + (offset - b->tail_offset_bytes);
    }
    *nbytes = *nbytes < left ? *nbytes : (size_t)left;
    return p;
}

static bool blob_has(const blob *b, uint64_t offset, uint64_t nbytes, const uint8_t **bytes)
{
    size_t n = nbytes < SMALL_NBYTES ? (size_t)nbytes : SMALL_NBYTES;
    *bytes = blob_bytes(b, offset, &n);
    return *bytes != NULL && n == nbytes;
}

static bool blob_read(blob *b, const zip_input *in)
{
    b->in = in;
    b->head_nbytes = in->nbytes <= SMALL_NBYTES ? in->nbytes : HEAD_NBYTES;
    if (in->read(in->ctx, in->base_offset_bytes, b->bytes, b->head_nbytes, NULL) != FSDPCK_OK)
        return false;
    b->tail_offset_bytes = in->nbytes;
    if (in->nbytes <= SMALL_NBYTES)
        return true;
    b->tail_offset_bytes = in->nbytes - TAIL_NBYTES;
    return in->read(in->ctx, in->base_offset_bytes + b->tail_offset_bytes,
                    b->bytes + b->head_nbytes, TAIL_NBYTES, NULL) == FSDPCK_OK;
}

typedef struct blob_entries {
    zip_central items[ENTRIES_LIMIT];
    uint64_t data_at[ENTRIES_LIMIT];
    size_t count;
    bool no_crc;
} blob_entries;

static bool same_but_for_case(const zip_central *a, const zip_central *b)
{
    if (a->name_nbytes != b->name_nbytes)
        return false;
    for (size_t i = 0; i < a->name_nbytes; i++) {
        const uint8_t x = (uint8_t)a->name[i], y = (uint8_t)b->name[i];
        const uint8_t lower_x = (uint8_t)(x >= 'A' && x <= 'Z' ? x + 32 : x);
        const uint8_t lower_y = (uint8_t)(y >= 'A' && y <= 'Z' ? y + 32 : y);
        if (lower_x != lower_y)
            return false;
    }
    return true;
}

/* The directory, and that its entries tile the archive in order. */
static bool entries_read(const blob *b, blob_entries *e)
{
    const uint64_t tail_nbytes = b->in->nbytes - b->tail_offset_bytes;
    const bool whole = tail_nbytes == 0;
    const uint8_t *bytes;
    zip_end end;
    size_t at = 0;

    if (zip_end_parse(whole ? b->bytes : b->bytes + b->head_nbytes,
                      whole ? b->head_nbytes : tail_nbytes, b->in->nbytes, &end, NULL) != FSDPCK_OK)
        return false;
    if (end.count > ENTRIES_LIMIT ||
        !blob_has(b, end.directory_offset_bytes, end.directory_nbytes, &bytes))
        return false;
    e->no_crc = true;
    for (e->count = 0; e->count < end.count; e->count++) {
        zip_central *c = &e->items[e->count];
        if (zip_central_parse(bytes, end.directory_nbytes, &at, c, NULL) != FSDPCK_OK ||
            c->method != 0 || c->prefix_nbytes != e->items[0].prefix_nbytes ||
            memcmp(c->name, e->items[0].name, c->prefix_nbytes) != 0)
            return false;
        for (size_t i = 0; i < e->count; i++)
            if (same_but_for_case(&e->items[i], c))
                return false;
        e->no_crc = e->no_crc && (c->crc32 == 0 || c->nbytes == 0);
    }
    if (at != end.directory_nbytes)
        return false;

    uint64_t next = 0;
    for (size_t i = 0; i < e->count; i++) {
        const zip_central *c = &e->items[i];
        size_t n = (size_t)(end.directory_offset_bytes - next < SMALL_NBYTES
                                ? end.directory_offset_bytes - next
                                : SMALL_NBYTES);
        zip_local local;
        bytes = blob_bytes(b, next, &n);
        if (c->header_offset_bytes != next || bytes == NULL ||
            zip_local_parse(bytes, n, c, &local, NULL) != FSDPCK_OK)
            return false;
        e->data_at[i] = next + local.header_nbytes;
        if (!checked_range(e->data_at[i], c->nbytes, end.directory_offset_bytes) ||
            !checked_range(e->data_at[i] + c->nbytes, local.descriptor_nbytes,
                           end.directory_offset_bytes))
            return false;
        next = e->data_at[i] + c->nbytes;
        if (local.descriptor_nbytes > 0 &&
            (!blob_has(b, next, local.descriptor_nbytes, &bytes) ||
             zip_descriptor_check(bytes, local.descriptor_nbytes, c, NULL) != FSDPCK_OK))
            return false;
        next += local.descriptor_nbytes;
    }
    return next == end.directory_offset_bytes;
}

/* Index, or ENTRIES_LIMIT. */
static size_t entry_find(const blob_entries *e, const char *name)
{
    const size_t n = strlen(name);

    for (size_t i = 0; i < e->count; i++) {
        const zip_central *c = &e->items[i];
        if (c->name_nbytes == c->prefix_nbytes + 1u + n &&
            memcmp(c->name + c->prefix_nbytes + 1, name, n) == 0)
            return i;
    }
    return ENTRIES_LIMIT;
}

/* A record in memory with a correct CRC. */
static bool entry_bytes(const blob *b, const blob_entries *e, const char *name,
                        const uint8_t **bytes, uint64_t *nbytes)
{
    const size_t i = entry_find(e, name);

    if (i == ENTRIES_LIMIT)
        return false;
    *nbytes = e->items[i].nbytes;
    return blob_has(b, e->data_at[i], *nbytes, bytes) &&
           (e->no_crc || crc32_update(0, *bytes, *nbytes) == e->items[i].crc32);
}

static bool blob_fast(const zip_input *in, plain_pickle *p, place *where)
{
    blob b;
    blob_entries e;
    const uint8_t *bytes;
    uint64_t nbytes;
    bool big_endian = false;
    char record[5 + sizeof(p->key)] = "data/";

    if (in->nbytes < ZIP_END_NBYTES || !blob_read(&b, in) || !entries_read(&b, &e))
        return false;
    if (!entry_bytes(&b, &e, "version", &bytes, &nbytes) ||
        torch_version_check(bytes, nbytes, NULL) != FSDPCK_OK)
        return false;
    if (entry_find(&e, "byteorder") != ENTRIES_LIMIT &&
        (!entry_bytes(&b, &e, "byteorder", &bytes, &nbytes) ||
         torch_byteorder_parse(bytes, nbytes, &big_endian, NULL) != FSDPCK_OK))
        return false;
    if (!entry_bytes(&b, &e, "data.pkl", &bytes, &nbytes) ||
        !torch_plain_pickle_match(bytes, nbytes, p) || p->nbytes != nbytes)
        return false;
    memcpy(record + 5, p->key, strlen(p->key) + 1);
    const size_t i = entry_find(&e, record);
    if (i == ENTRIES_LIMIT || e.items[i].nbytes != p->claim.storage_nbytes)
        return false;
    where->record_offset_bytes = in->base_offset_bytes + e.data_at[i];
    where->record_nbytes = e.items[i].nbytes;
    where->has_crc = !e.no_crc;
    where->crc32 = e.items[i].crc32;
    declared_tensor_locate(&p->claim, big_endian, where);
    return true;
}

static fsdpck_status not_a_tensor(fsdpck_error *err)
{
    return FAIL(err, UNSUPPORTED, PT_TENSOR_KIND, "blob does not hold exactly one plain tensor");
}

static fsdpck_status blob_slow(const zip_input *in, dtype *d, unsigned *ndim, uint64_t *sizes,
                               place *where, fsdpck_error *err)
{
    budget owner;
    value_pool pool;
    torch_archive a;

    budget_init(&owner, SLOW_BUDGET_BYTES, "a blob with one tensor", NULL);
    value_pool_init(&pool, &owner);
    fsdpck_status st = torch_archive_open(in, &owner, &pool, false, &a, err);
    if (st == FSDPCK_OK && value_kind_of(a.root) != VALUE_TENSOR)
        st = not_a_tensor(err);
    else if (st == FSDPCK_OK) {
        const torch_tensor *t = VEC_AT(&a.tensors, torch_tensor, value_tensor_index(a.root));
        *d = t->dtype;
        *ndim = t->ndim;
        if (t->ndim > 0)
            memcpy(sizes, torch_tensor_sizes(&a, t), t->ndim * sizeof(uint64_t));
        st = torch_tensor_locate(&a, t, where, err);
        if (st == FSDPCK_OK && where->stream)
            st = FAIL(err, UNSUPPORTED, ZIP_METHOD, "deflated record inside a blob");
    }
    torch_archive_release(&a);
    value_pool_release(&pool);
    if (st != FSDPCK_OK)
        error_offset(err, in->base_offset_bytes);
    return st;
}

fsdpck_status torch_blob_locate(const zip_input *in, dtype *d, unsigned *ndim, uint64_t *sizes,
                                place *where, fsdpck_error *err)
{
    plain_pickle p;

    memset(where, 0, offsetof(place, strides));
    if (!blob_fast(in, &p, where))
        return blob_slow(in, d, ndim, sizes, where, err);
    *d = p.claim.dtype;
    *ndim = p.claim.ndim;
    memcpy(sizes, p.claim.sizes, p.claim.ndim * sizeof(uint64_t));
    return FSDPCK_OK;
}

/* Whether the serialization id, if present, is the one that torch would write. */
static bool serial_is_right(const blob *b, const blob_entries *e)
{
    const size_t id = entry_find(e, TORCH_SERIALIZATION_ID_RECORD);
    const uint8_t *text;
    uint64_t hash = 0;

    if (id == ENTRIES_LIMIT)
        return true;
    for (size_t i = 0; i < id; i++)
        if (e->items[i].nbytes > 0)
            hash = torch_serialization_id_add(hash, e->items[i].crc32);
    return blob_has(b, e->data_at[id], e->items[id].nbytes, &text) &&
           !torch_serialization_id_differs(text, e->items[id].nbytes, hash);
}

bool torch_blob_check(const zip_input *in,
                      bool (*is_checked_elsewhere)(void *ctx, uint64_t offset_bytes), void *ctx,
                      uint64_t *records, uint64_t *nbytes)
{
    blob b;
    blob_entries e;

    *records = *nbytes = 0;
    if (in->nbytes < ZIP_END_NBYTES || !blob_read(&b, in) || !entries_read(&b, &e))
        return false;
    for (size_t i = 0; i < e.count && !e.no_crc; i++) {
        const zip_central *c = &e.items[i];
        const uint8_t *bytes;
        if (is_checked_elsewhere(ctx, in->base_offset_bytes + e.data_at[i]))
            continue;
        if (!blob_has(&b, e.data_at[i], c->nbytes, &bytes) ||
            crc32_update(0, bytes, c->nbytes) != c->crc32)
            return false;
        ++*records;
        *nbytes += c->nbytes;
    }
    return e.no_crc || serial_is_right(&b, &e);
}
