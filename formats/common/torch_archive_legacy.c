#include <inttypes.h>
#include <string.h>

#include "base/bytes.h"
#include "formats/common/torch_archive_internal.h"

/* The stream form: five pickles (magic, 1001, system, object, storage keys), then for each key
 * in that order an element count of 8 bytes and the elements. torch writes both little-endian on
 * every machine (torch/csrc/generic/serialization.cpp). */

/* 0x1950a86a20f9469cfc6c as protocol 1 writes it, as 2 and 3 do, and in a frame, as 4 and 5 do. */
static const char MAGIC_TEXT[] = "L119547037146038801333356L\n.";
static const uint8_t MAGIC[13] = {0x8A, 0x0A, 0x6C, 0xFC, 0x9C, 0x46, 0xF9,
                                  0x20, 0x6A, 0xA8, 0x50, 0x19, '.'};
static const uint8_t FRAME[9] = {0x95, sizeof MAGIC};

bool torch_is_legacy(const uint8_t *head, uint64_t nbytes)
{
    if (nbytes >= sizeof MAGIC_TEXT - 1 && memcmp(head, MAGIC_TEXT, sizeof MAGIC_TEXT - 1) == 0)
        return true;
    if (nbytes < 2 || head[0] != 0x80 || head[1] < 2 || head[1] > 5)
        return false;
    size_t at = 2;
    if (nbytes - at >= sizeof FRAME && memcmp(head + at, FRAME, sizeof FRAME) == 0)
        at += sizeof FRAME;
    return nbytes - at >= sizeof MAGIC && memcmp(head + at, MAGIC, sizeof MAGIC) == 0;
}

enum { PROTOCOL = 1001, FIRST_WINDOW_NBYTES = 1 << 20 };
static const uint64_t HEAD_NBYTES_LIMIT = (uint64_t)8 << 30;

/* The first bytes of the file, as many as the pickles need. */
typedef struct head {
    const zip_input *in;
    budget *owner;
    uint8_t *bytes;
    uint64_t nbytes;
} head;

static fsdpck_status head_grow(head *h, fsdpck_error *err)
{
    uint64_t n = h->nbytes == 0 ? FIRST_WINDOW_NBYTES : h->nbytes * 4;
    uint8_t *bytes;

    n = n < h->in->nbytes ? n : h->in->nbytes;
    if (n > HEAD_NBYTES_LIMIT)
        return FAIL(err, LIMIT, PKL_LIMIT, "pickles of a legacy file are too long");
    budget_free(h->owner, h->bytes, h->nbytes);
    h->bytes = NULL;
    h->nbytes = 0;
    bytes = budget_alloc(h->owner, n, err);
    if (bytes == NULL)
        return FSDPCK_LIMIT;
    h->bytes = bytes;
    h->nbytes = n;
    return h->in->read(h->in->ctx, h->in->base_offset_bytes, bytes, n, err);
}

/* Finds the ends of the five pickles. */
static fsdpck_status find_pickles(head *h, uint64_t ends[5], fsdpck_error *err)
{
    uint64_t at = 0;

    for (unsigned i = 0; i < 5;) {
        fsdpck_error own = {0};
        size_t n = 0;
        pickle_input in = {.bytes = h->bytes + at,
                           .nbytes = h->nbytes - at,
                           .file_offset_bytes = h->in->base_offset_bytes + at};
        fsdpck_status st = pickle_skim(&in, &n, &own);
        if (st == FSDPCK_OK) {
            at += n;
            ends[i++] = at;
        } else if (h->nbytes < h->in->nbytes && (own.finding == FSDPCK_FINDING_PKL_TRUNCATED ||
                                                 own.finding == FSDPCK_FINDING_PKL_LENGTH)) {
            RETURN_IF(head_grow(h, err));
        } else {
            if (err != NULL)
                *err = own;
            return st;
        }
    }
    return FSDPCK_OK;
}

static fsdpck_status read_at(const head *h, const uint64_t ends[5], unsigned i, value_pool *pool,
                             const pickle_hooks *hooks, value *root, fsdpck_error *err)
{
    const uint64_t begin = i == 0 ? 0 : ends[i - 1];
    const pickle_limits limits = PICKLE_LIMITS_DEFAULT;
    const pickle_input in = {.bytes = h->bytes + begin,
                             .nbytes = ends[i] - begin,
                             .file_offset_bytes = h->in->base_offset_bytes + begin};
    size_t consumed;

    return pickle_read(&in, &limits, pool, hooks, root, &consumed, err);
}

static fsdpck_status legacy_bad(fsdpck_error *err, const char *what)
{
    return FAIL(err, BADINPUT, PT_LEGACY, "legacy file of torch.save has %s", what);
}

static fsdpck_status system_check(const value_pool *pool, value protocol, value system,
                                  fsdpck_error *err)
{
    uint64_t number;
    value little;

    if (!value_as_u64(pool, protocol, &number) || number != PROTOCOL)
        return legacy_bad(err, "an unknown protocol");
    if (value_kind_of(system) != VALUE_DICT ||
        !value_dict_find(pool, system, "little_endian", &little))
        return legacy_bad(err, "no system record");
    if (!value_is_true(little))
        return FAIL(err, UNSUPPORTED, PT_BYTEORDER,
                    "legacy file from a big-endian machine is not supported");
    return FSDPCK_OK;
}

/* Walks the storages after the pickles: the file has no index of them. */
static fsdpck_status place_storages(torch_builder *b, const zip_input *in, value keys, uint64_t at,
                                    fsdpck_error *err)
{
    torch_archive *a = b->archive;
    uint64_t end;

    if (value_kind_of(keys) != VALUE_LIST || value_count(a->pool, keys) != a->storages.count)
        return legacy_bad(err, "a list of storages that differs from the storages of its tensors");
    for (size_t i = 0; i < value_count(a->pool, keys); i++) {
        size_t nbytes = 0;
        uint8_t count[8];
        const value key = value_item(a->pool, keys, i);
        const char *text = value_kind_of(key) == VALUE_STR ? value_text(a->pool, key, &nbytes) : "";
        const uint32_t id = strtab_find(&b->keys, text, nbytes);
        if (id == STRTAB_NONE || VEC_AT(&a->storages, torch_storage, id)->data_offset_bytes != 0)
            return legacy_bad(err, "a storage key that is unknown or listed twice");
        torch_storage *s = VEC_AT(&a->storages, torch_storage, id);
        if (!checked_range(at, 8, in->nbytes))
            return legacy_bad(err, "fewer storages than it lists: the file was truncated");
        RETURN_IF(in->read(in->ctx, in->base_offset_bytes + at, count, sizeof(count), err));
        s->data_offset_bytes = in->base_offset_bytes + at + 8;
        if (!checked_mul(load_le64(count), dtype_get(s->dtype)->itemsize_bytes, &end) ||
            end != s->nbytes)
            return FAIL_WITH(
                err, BADINPUT, PT_STORAGE_SIZE, ("size of a storage does not match its tensors"),
                (offset, in->base_offset_bytes + at), (expected, "%" PRIu64 " bytes", s->nbytes),
                (found, "%" PRIu64 " elements", load_le64(count)));
        if (!checked_range(at + 8, s->nbytes, in->nbytes))
            return legacy_bad(
                err, "a storage that reaches past the end of the file, which was truncated");
        at += 8 + s->nbytes;
    }
    if (at != in->nbytes) {
        fsdpck_status st = legacy_bad(err, "bytes after its last storage");
        error_offset(err, in->base_offset_bytes + at);
        return st;
    }
    return FSDPCK_OK;
}

static fsdpck_status read_object(torch_builder *b, const head *h, const uint64_t ends[5],
                                 fsdpck_error *err)
{
    torch_archive *a = b->archive;
    const pickle_hooks hooks = torch_builder_hooks(b);
    value protocol, system, keys;

    RETURN_IF(read_at(h, ends, 1, a->pool, NULL, &protocol, err));
    RETURN_IF(read_at(h, ends, 2, a->pool, NULL, &system, err));
    RETURN_IF(system_check(a->pool, protocol, system, err));
    RETURN_IF(read_at(h, ends, 3, a->pool, &hooks, &a->root, err));
    RETURN_IF(torch_builder_finish(b, err));
    RETURN_IF(read_at(h, ends, 4, a->pool, NULL, &keys, err));
    return place_storages(b, h->in, keys, ends[4], err);
}

fsdpck_status torch_legacy_open(const zip_input *in, torch_archive *a, torch_calls calls,
                                fsdpck_error *err)
{
    torch_builder b = {.archive = a, .calls = calls, .no_records = true};
    head h = {.in = in, .owner = a->owner};
    uint64_t ends[5];

    fsdpck_status st = head_grow(&h, err);
    if (st == FSDPCK_OK)
        st = find_pickles(&h, ends, err);
    torch_builder_init(&b);
    if (st == FSDPCK_OK)
        st = read_object(&b, &h, ends, err);
    torch_builder_release(&b);
    budget_free(a->owner, h.bytes, h.nbytes);
    return st;
}
