#include <stddef.h>
#include <string.h>

#include "base/bytes.h"
#include "base/crc.h"
#include "formats/common/torch_archive_internal.h"
#include "formats/common/zip_records.h"

/* A blob that is compressed as a whole is read from its beginning, without a directory. The record
 * sizes follow from other facts: data.pkl ends with its pickle's STOP, a storage has the size in
 * the pickle, and the records between are small and end with a recognizable descriptor. */
enum { SMALL_RECORD_NBYTES = 64, MORE_NBYTES = 4096 };

static const uint64_t MACHINE_BUDGET_BYTES = (uint64_t)1 << 30;

typedef struct walk {
    const uint8_t *head;
    size_t nbytes;
    size_t at; /* of the next local header */
    size_t need_nbytes;
    bool big_endian;
} walk;

typedef struct record {
    const char *name; /* after the prefix */
    size_t name_nbytes;
    size_t data_at;
    bool has_descriptor;
    bool wide;       /* descriptor of 24 bytes */
    uint64_t nbytes; /* where has_descriptor is false */
} record;

static fsdpck_status need_more(walk *w, uint64_t end, fsdpck_error *err)
{
    w->need_nbytes = end + MORE_NBYTES;
    return FAIL(err, LIMIT, NONE, "more bytes of the blob header are required");
}

static fsdpck_status walk_failed(const walk *w, fsdpck_finding_id finding, const char *what,
                                 fsdpck_error *err)
{
    return FAIL_AS(err, FSDPCK_BADINPUT, finding, ("%s", what), (offset, w->at));
}

static fsdpck_status header_read(walk *w, record *r, fsdpck_error *err)
{
    const size_t left = w->nbytes - w->at;

    if (left < ZIP_LOCAL_NBYTES)
        return need_more(w, w->at + ZIP_LOCAL_NBYTES, err);
    const uint8_t *p = w->head + w->at;
    const uint32_t header_nbytes = zip_local_nbytes(p);
    if (header_nbytes == 0)
        return walk_failed(w, FSDPCK_FINDING_ZIP_LOCAL,
                           "no local header where the next record must begin", err);
    if (left < header_nbytes)
        return need_more(w, w->at + header_nbytes, err);
    const unsigned flags = load_le16(p + 6);
    const char *name = (const char *)p + ZIP_LOCAL_NBYTES;
    const size_t name_nbytes = load_le16(p + 26);
    if ((flags & ~(unsigned)(ZIP_FLAG_DESCRIPTOR | ZIP_FLAG_UTF8)) != 0)
        return walk_failed(w, FSDPCK_FINDING_ZIP_FLAGS,
                           "zip entry has encryption or reserved flags", err);
    if (load_le16(p + 8) != 0)
        return FAIL(err, UNSUPPORTED, ZIP_METHOD, "compressed record inside a compressed blob");
    RETURN_IF(zip_name_check(name, name_nbytes, (flags & ZIP_FLAG_UTF8) != 0, err));
    const char *slash = memchr(name, '/', name_nbytes);
    if (slash == NULL)
        return walk_failed(w, FSDPCK_FINDING_ZIP_ROOT, "zip entry is not in a folder", err);
    r->name = slash + 1;
    r->name_nbytes = name_nbytes - (size_t)(slash + 1 - name);
    r->data_at = w->at + header_nbytes;
    r->has_descriptor = (flags & ZIP_FLAG_DESCRIPTOR) != 0;
    r->nbytes = load_le32(p + 22);
    const uint8_t *extra = p + ZIP_LOCAL_NBYTES + name_nbytes;
    const size_t extra_nbytes = load_le16(p + 28);
    r->wide = extra_nbytes >= 4 && load_le16(extra) == 1;
    if (!r->has_descriptor && r->nbytes == UINT32_MAX) {
        if (!r->wide || extra_nbytes < 12)
            return walk_failed(w, FSDPCK_FINDING_ZIP64, "local header lacks a required zip64 field",
                               err);
        r->nbytes = load_le64(extra + 4);
    }
    return FSDPCK_OK;
}

static bool record_named(const record *r, const char *name)
{
    return r->name_nbytes == strlen(name) && memcmp(r->name, name, r->name_nbytes) == 0;
}

/* Whether a correct descriptor for the `nbytes` before it is at data_at + nbytes. */
static bool descriptor_fits(const walk *w, const record *r, size_t nbytes)
{
    const size_t descriptor_nbytes = r->wide ? 24 : 16;
    const size_t at = r->data_at + nbytes;

    if (w->nbytes - at < descriptor_nbytes)
        return false;
    const uint32_t crc = load_le32(w->head + at + 4);
    const zip_central c = {.crc32 = crc,
                           .nbytes = nbytes,
                           .stored_nbytes = nbytes,
                           .name = r->name,
                           .name_nbytes = (uint16_t)r->name_nbytes};
    return zip_descriptor_check(w->head + at, (unsigned)descriptor_nbytes, &c, NULL) == FSDPCK_OK &&
           (crc == 0 || crc == crc32_update(0, w->head + r->data_at, nbytes));
}

/* Moves past a record of known size. */
static fsdpck_status record_pass(walk *w, const record *r, uint64_t nbytes, fsdpck_error *err)
{
    uint64_t end;
    const unsigned descriptor_nbytes = !r->has_descriptor ? 0 : r->wide ? 24 : 16;

    if (!checked_add(r->data_at + descriptor_nbytes, nbytes, &end) || end > INT64_MAX)
        return walk_failed(w, FSDPCK_FINDING_PT_STORAGE_SIZE, "record is too large", err);
    if (end > w->nbytes)
        return need_more(w, end, err);
    if (r->has_descriptor ? !descriptor_fits(w, r, nbytes) : r->nbytes != nbytes)
        return walk_failed(w, FSDPCK_FINDING_ZIP_DESCRIPTOR,
                           "size or CRC of a record contradicts its data", err);
    w->at = end;
    return FSDPCK_OK;
}

/* Some other record: its size is the first one followed by a correct descriptor. */
static fsdpck_status small_pass(walk *w, const record *r, uint64_t *nbytes, fsdpck_error *err)
{
    if (w->nbytes - r->data_at < SMALL_RECORD_NBYTES + 24)
        return need_more(w, r->data_at + SMALL_RECORD_NBYTES + 24, err);
    *nbytes = r->has_descriptor ? UINT64_MAX : r->nbytes;
    for (size_t n = 0; r->has_descriptor && n <= SMALL_RECORD_NBYTES && *nbytes == UINT64_MAX; n++)
        if (descriptor_fits(w, r, n))
            *nbytes = n;
    if (*nbytes > SMALL_RECORD_NBYTES)
        return walk_failed(w, FSDPCK_FINDING_ZIP_DESCRIPTOR,
                           "cannot determine the size of a record", err);
    return record_pass(w, r, *nbytes, err);
}

/* Content of data.pkl, from either parser: the tensor and the storages of the archive. */
typedef struct head_pickle {
    plain_pickle plain;
    bool is_plain;
    torch_archive archive;
    value_pool pool;
    budget owner;
    torch_tensor tensor;
} head_pickle;

static fsdpck_status machine_read(head_pickle *p, const uint8_t *bytes, size_t nbytes,
                                  fsdpck_error *err)
{
    torch_archive *a = &p->archive;
    torch_builder b = {.archive = a, .no_records = true};
    const pickle_limits limits = PICKLE_LIMITS_DEFAULT;
    const pickle_input in = {.bytes = bytes, .nbytes = nbytes};
    size_t consumed;

    a->owner = &p->owner;
    a->pool = &p->pool;
    a->tensors = VEC_OF(torch_tensor, &p->owner);
    a->storages = VEC_OF(torch_storage, &p->owner);
    a->dims = VEC_OF(uint64_t, &p->owner);
    torch_builder_init(&b);
    const pickle_hooks hooks = torch_builder_hooks(&b);
    fsdpck_status st = pickle_read(&in, &limits, &p->pool, &hooks, &a->root, &consumed, err);
    torch_builder_release(&b);
    RETURN_IF(st);
    if (value_kind_of(a->root) != VALUE_TENSOR)
        return FAIL(err, UNSUPPORTED, PT_TENSOR_KIND,
                    "blob does not hold exactly one plain tensor");
    p->tensor = *VEC_AT(&a->tensors, torch_tensor, value_tensor_index(a->root));
    if (p->tensor.meta)
        return FAIL(err, UNSUPPORTED, PT_TENSOR_KIND, "tensor on the meta device has no data");
    declared_tensor *c = &p->plain.claim;
    c->dtype = p->tensor.dtype;
    c->ndim = p->tensor.ndim;
    c->offset_nelems = p->tensor.offset_nelems;
    c->storage_nbytes = VEC_AT(&a->storages, torch_storage, p->tensor.storage)->nbytes;
    memcpy(c->sizes, torch_tensor_sizes(a, &p->tensor), c->ndim * sizeof(uint64_t));
    memcpy(c->strides, torch_tensor_strides(a, &p->tensor), c->ndim * sizeof(uint64_t));
    return FSDPCK_OK;
}

static fsdpck_status pickle_pass(walk *w, head_pickle *p, const record *r, fsdpck_error *err)
{
    const uint8_t *bytes = w->head + r->data_at;
    const size_t left = w->nbytes - r->data_at;
    fsdpck_error own = {0};
    size_t n;

    p->is_plain = torch_plain_pickle_match(bytes, left, &p->plain);
    if (p->is_plain)
        return record_pass(w, r, p->plain.nbytes, err);
    const pickle_input in = {.bytes = bytes, .nbytes = left, .file_offset_bytes = r->data_at};
    fsdpck_status st = pickle_skim(&in, &n, &own);
    if (st != FSDPCK_OK &&
        (own.finding == FSDPCK_FINDING_PKL_TRUNCATED || own.finding == FSDPCK_FINDING_PKL_LENGTH))
        return need_more(w, (uint64_t)w->nbytes * 2, err);
    if (st != FSDPCK_OK && err != NULL)
        *err = own;
    RETURN_IF(st);
    const size_t begin = r->data_at;
    RETURN_IF(record_pass(w, r, n, err));
    return machine_read(p, w->head + begin, n, err);
}

/* Size of storage `key`; false if the pickle has no such storage. *wanted: it belongs to the
 * tensor. */
static bool storage_known(const head_pickle *p, const char *key, size_t key_nbytes,
                          uint64_t *nbytes, bool *wanted)
{
    if (p->is_plain) {
        *nbytes = p->plain.claim.storage_nbytes;
        *wanted = key_nbytes == strlen(p->plain.key) && memcmp(key, p->plain.key, key_nbytes) == 0;
        return *wanted;
    }
    for (size_t i = 0; i < p->archive.storages.count; i++) {
        const torch_storage *s = VEC_AT(&p->archive.storages, torch_storage, i);
        if (strtab_nbytes(&p->pool.strings, s->key) != key_nbytes ||
            memcmp(strtab_text(&p->pool.strings, s->key), key, key_nbytes) != 0)
            continue;
        *nbytes = s->nbytes;
        *wanted = i == p->tensor.storage;
        return true;
    }
    return false;
}

static fsdpck_status walk_records(walk *w, head_pickle *p, place *where, fsdpck_error *err)
{
    record r;
    uint64_t nbytes = 0;
    bool wanted;

    RETURN_IF(header_read(w, &r, err));
    if (!record_named(&r, "data.pkl"))
        return walk_failed(w, FSDPCK_FINDING_PT_CONTAINER,
                           "blob does not begin with the record data.pkl", err);
    RETURN_IF(pickle_pass(w, p, &r, err));
    for (;;) {
        RETURN_IF(header_read(w, &r, err));
        if (r.name_nbytes > 5 && memcmp(r.name, "data/", 5) == 0) {
            if (!storage_known(p, r.name + 5, r.name_nbytes - 5, &nbytes, &wanted))
                return walk_failed(w, FSDPCK_FINDING_PT_PERSID,
                                   "blob holds a storage that its pickle does not name", err);
            if (wanted)
                break;
            RETURN_IF(record_pass(w, &r, nbytes, err));
            continue;
        }
        const size_t begin = r.data_at;
        RETURN_IF(small_pass(w, &r, &nbytes, err));
        if (record_named(&r, "byteorder"))
            RETURN_IF(torch_byteorder_parse(w->head + begin, nbytes, &w->big_endian, err));
    }
    if (!r.has_descriptor && r.nbytes != nbytes)
        return walk_failed(w, FSDPCK_FINDING_PT_STORAGE_SIZE,
                           "size of a record differs from its storage", err);
    where->stream = true;
    where->record_offset_bytes = r.data_at;
    where->record_nbytes = nbytes;
    where->conj = p->tensor.conj;
    where->neg = p->tensor.neg;
    declared_tensor_locate(&p->plain.claim, w->big_endian, where);
    return FSDPCK_OK;
}

fsdpck_status torch_blob_locate_head(const uint8_t *head, size_t head_nbytes, dtype *d,
                                     unsigned *ndim, uint64_t *sizes, place *where,
                                     size_t *need_nbytes, fsdpck_error *err)
{
    walk w = {.head = head, .nbytes = head_nbytes};
    head_pickle p;

    memset(where, 0, offsetof(place, strides));
    memset(&p, 0, sizeof(p));
    budget_init(&p.owner, MACHINE_BUDGET_BYTES, "a blob with one tensor", NULL);
    value_pool_init(&p.pool, &p.owner);
    fsdpck_status st = walk_records(&w, &p, where, err);
    *need_nbytes = w.need_nbytes;
    if (st == FSDPCK_OK) {
        *d = p.plain.claim.dtype;
        *ndim = p.plain.claim.ndim;
        memcpy(sizes, p.plain.claim.sizes, p.plain.claim.ndim * sizeof(uint64_t));
    }
    torch_archive_release(&p.archive);
    value_pool_release(&p.pool);
    return st;
}
