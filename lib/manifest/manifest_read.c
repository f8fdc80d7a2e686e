/* Reads a manifest in two passes. The first reads the members that decide whether the second can
 * read it. */
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "manifest/manifest.h"
#include "state/box.h"

#define JSON_FINDING FSDPCK_FINDING_MAN_JSON

static fsdpck_status refuse(const json_token *t, fsdpck_status status, fsdpck_finding_id finding,
                            const char *what, fsdpck_error *err)
{
    FAIL_AS(err, status, finding, ("manifest %s", what), (offset, t->offset_bytes));
    return status;
}

static fsdpck_status malformed(const json_token *t, const char *what, fsdpck_error *err)
{
    return refuse(t, FSDPCK_BADINPUT, JSON_FINDING, what, err);
}

/* The index of a key in `keys`, marked in *seen; or of none: then its value is skipped. */
static fsdpck_status find_key(json_reader *r, const json_token *key, const char *const *keys,
                              unsigned count, unsigned *seen, unsigned *which, fsdpck_error *err)
{
    json_token value;
    for (*which = 0; *which < count && !json_is(key, keys[*which]);)
        ++*which;
    if (*which < count) {
        if (*seen & 1u << *which)
            return malformed(key, "repeats a member", err);
        *seen |= 1u << *which;
        return FSDPCK_OK;
    }
    RETURN_IF(json_next(r, &value, err));
    return json_skip(r, &value, err);
}

static fsdpck_status expect_u64(json_reader *r, uint64_t *v, fsdpck_error *err)
{
    json_token t;
    RETURN_IF(json_expect(r, JSON_NUMBER, &t, err));
    if (!t.is_u64)
        return malformed(&t, "has a number that is not a count", err);
    *v = t.u64;
    return FSDPCK_OK;
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

static fsdpck_status expect_hex(json_reader *r, uint8_t *bytes, size_t nbytes, fsdpck_error *err)
{
    json_token t;
    RETURN_IF(json_expect(r, JSON_STRING, &t, err));
    bool good = t.nbytes == 2 * nbytes;
    for (size_t i = 0; good && i < nbytes; i++) {
        const int high = hex_digit(t.text[2 * i]), low = hex_digit(t.text[2 * i + 1]);
        good = high >= 0 && low >= 0;
        if (good)
            bytes[i] = (uint8_t)(high << 4 | low);
    }
    if (good)
        return FSDPCK_OK;
    return FAIL_WITH(err, BADINPUT, MAN_ALG, ("manifest has a damaged checksum"),
                     (offset, t.offset_bytes), (expected, "%zu hexadecimal digits", 2 * nbytes),
                     (found, "%zu characters", t.nbytes));
}

static fsdpck_status expect_hex64(json_reader *r, uint64_t *v, fsdpck_error *err)
{
    uint8_t bytes[8];
    RETURN_IF(expect_hex(r, bytes, sizeof bytes, err));
    *v = 0;
    for (unsigned i = 0; i < 8; i++)
        *v = *v << 8 | bytes[i];
    return FSDPCK_OK;
}

/* ---- first pass ---- */

typedef struct manifest_header {
    bool has_schema, has_version;
    uint64_t version;
    bool known_checksum, has_checksum;
    size_t version_at, checksum_at;
} manifest_header;

static fsdpck_status read_header_member(json_reader *r, unsigned which, manifest_header *h,
                                        fsdpck_error *err)
{
    json_token t;
    RETURN_IF(json_next(r, &t, err));
    if (which == 0) {
        h->has_schema = t.kind == JSON_STRING && json_is(&t, MANIFEST_SCHEMA);
    } else if (which == 1) {
        h->has_version = t.kind == JSON_NUMBER && t.is_u64;
        h->version = t.is_u64 ? t.u64 : 0;
        h->version_at = t.offset_bytes;
    } else {
        h->has_checksum = t.kind == JSON_STRING;
        h->known_checksum = h->has_checksum && json_is(&t, "crc64-xz");
        h->checksum_at = t.offset_bytes;
    }
    return json_skip(r, &t, err);
}

static fsdpck_status check_header(const manifest_header *h, fsdpck_error *err)
{
    const json_token start = {0}, version = {.offset_bytes = h->version_at};
    const json_token checksum = {.offset_bytes = h->checksum_at};
    if (!h->has_schema)
        return malformed(&start, "has no \"schema\": \"" MANIFEST_SCHEMA "\"", err);
    if (!h->has_version || h->version == 0)
        return refuse(&version, FSDPCK_BADINPUT, FSDPCK_FINDING_MAN_VERSION, "has no version", err);
    if (h->version > MANIFEST_VERSION)
        return FAIL_WITH(err, UNSUPPORTED, MAN_VERSION, ("manifest has a newer version"),
                         (offset, version.offset_bytes), (expected, "at most %u", MANIFEST_VERSION),
                         (found, "%llu", (unsigned long long)h->version),
                         (next, "read it with a newer fsdpck"));
    if (!h->has_checksum)
        return malformed(&checksum, "does not name its checksum", err);
    if (!h->known_checksum)
        return refuse(&checksum, FSDPCK_UNSUPPORTED, FSDPCK_FINDING_MAN_ALG,
                      "uses an unknown checksum", err);
    return FSDPCK_OK;
}

static fsdpck_status read_header(json_reader *r, fsdpck_error *err)
{
    static const char *const keys[] = {"schema", "version", "checksum"};
    manifest_header h = {0};
    unsigned seen = 0, which;
    json_token t;
    RETURN_IF(json_expect(r, JSON_OBJECT, &t, err));
    for (;;) {
        RETURN_IF(json_next(r, &t, err));
        if (t.kind == JSON_OBJECT_END)
            break;
        RETURN_IF(find_key(r, &t, keys, 3, &seen, &which, err));
        if (which < 3)
            RETURN_IF(read_header_member(r, which, &h, err));
    }
    RETURN_IF(json_expect(r, JSON_END, &t, err));
    return check_header(&h, err);
}

/* ---- second pass ---- */

/* Members of an entry. The name is copied, as tokens are temporary. */
typedef struct entry {
    text_buf name;
    uint64_t nbytes, digest;
    dtype d;
    unsigned ndim;
    uint64_t shape[NDIM_MAX];
    uint8_t sha256[32];
} entry;

static fsdpck_status read_name(json_reader *r, entry *e, fsdpck_error *err)
{
    json_token t;
    RETURN_IF(json_expect(r, JSON_STRING, &t, err));
    e->name.nbytes = 0;
    text_append(&e->name, t.text, t.nbytes);
    text_append(&e->name, "", 0);
    return text_check(&e->name, err);
}

static fsdpck_status read_dtype(json_reader *r, entry *e, fsdpck_error *err)
{
    json_token t;
    RETURN_IF(json_expect(r, JSON_STRING, &t, err));
    e->d = dtype_from_name(t.text, t.nbytes);
    return e->d != DTYPE_NONE ? FSDPCK_OK : malformed(&t, "has an unknown dtype", err);
}

static fsdpck_status read_shape(json_reader *r, entry *e, fsdpck_error *err)
{
    json_token t;
    RETURN_IF(json_expect(r, JSON_ARRAY, &t, err));
    for (e->ndim = 0;; e->ndim++) {
        RETURN_IF(json_next(r, &t, err));
        if (t.kind == JSON_ARRAY_END)
            return FSDPCK_OK;
        if (t.kind != JSON_NUMBER || !t.is_u64)
            return malformed(&t, "has a shape that is not a list of counts", err);
        if (e->ndim == NDIM_MAX)
            return malformed(&t, "has a tensor with too many dims", err);
        e->shape[e->ndim] = t.u64;
    }
}

static fsdpck_status read_file_member(json_reader *r, unsigned which, entry *e, fsdpck_error *err)
{
    switch (which) {
    case 0:
        return read_name(r, e, err);
    case 1:
        return expect_u64(r, &e->nbytes, err);
    case 2:
        return expect_hex64(r, &e->digest, err);
    default:
        return expect_hex(r, e->sha256, sizeof e->sha256, err);
    }
}

static fsdpck_status read_tensor_member(json_reader *r, unsigned which, entry *e, fsdpck_error *err)
{
    switch (which) {
    case 0:
        return read_name(r, e, err);
    case 1:
        return read_dtype(r, e, err);
    case 2:
        return read_shape(r, e, err);
    default:
        return expect_hex64(r, &e->digest, err);
    }
}

static fsdpck_status add_file(manifest *m, const entry *e, bool has_sha256, fsdpck_error *err)
{
    manifest_file *f;
    RETURN_IF(manifest_add_file(m, e->name.nbytes > 0 ? e->name.text : "", e->name.nbytes,
                                e->nbytes, &f, err));
    f->crc64 = e->digest;
    f->has_sha256 = has_sha256;
    memcpy(f->sha256, e->sha256, sizeof f->sha256);
    return FSDPCK_OK;
}

/* The members of an entry whose first token has been read, and the entry kept. */
static fsdpck_status read_entry(manifest *m, json_reader *r, const json_token *first, bool is_file,
                                entry *e, fsdpck_error *err)
{
    static const char *const file_keys[] = {"name", "nbytes", "crc64", "sha256"};
    static const char *const tensor_keys[] = {"name", "dtype", "shape", "digest"};
    const unsigned needed = is_file ? 7 : 15;
    const size_t offset = first->offset_bytes;
    unsigned seen = 0, which;
    json_token t = *first;
    if (t.kind != JSON_OBJECT)
        return malformed(&t, "has an entry that is not an object", err);
    for (;;) {
        RETURN_IF(json_next(r, &t, err));
        if (t.kind == JSON_OBJECT_END)
            break;
        RETURN_IF(find_key(r, &t, is_file ? file_keys : tensor_keys, 4, &seen, &which, err));
        if (which < 4)
            RETURN_IF(is_file ? read_file_member(r, which, e, err)
                              : read_tensor_member(r, which, e, err));
    }
    t.offset_bytes = offset;
    if ((seen & needed) != needed)
        return malformed(&t,
                         is_file ? "has a file without name, nbytes or crc64"
                                 : "has a tensor without name, dtype, shape or digest",
                         err);
    const fsdpck_status st =
        is_file ? add_file(m, e, (seen & 8) != 0, err)
                : manifest_add_tensor(m, e->name.nbytes > 0 ? e->name.text : "", e->name.nbytes,
                                      e->d, e->ndim, e->shape, e->digest, err);
    if (st != FSDPCK_OK)
        error_offset(err, offset);
    return st;
}

static fsdpck_status read_list(manifest *m, json_reader *r, bool are_files, fsdpck_error *err)
{
    entry e = {0};
    json_token t;
    fsdpck_status st = json_expect(r, JSON_ARRAY, &t, err);
    while (st == FSDPCK_OK) {
        st = json_next(r, &t, err);
        if (st != FSDPCK_OK || t.kind == JSON_ARRAY_END)
            break;
        st = read_entry(m, r, &t, are_files, &e, err);
    }
    text_release(&e.name);
    return st;
}

static fsdpck_status read_body(manifest *m, json_reader *r, fsdpck_error *err)
{
    static const char *const keys[] = {"digest", "files", "tensors"};
    unsigned seen = 0, which;
    uint64_t digest = 0, sum;
    json_token t;
    RETURN_IF(json_expect(r, JSON_OBJECT, &t, err));
    for (;;) {
        RETURN_IF(json_next(r, &t, err));
        if (t.kind == JSON_OBJECT_END)
            break;
        RETURN_IF(find_key(r, &t, keys, 3, &seen, &which, err));
        if (which == 0)
            RETURN_IF(expect_hex64(r, &digest, err));
        else if (which < 3)
            RETURN_IF(read_list(m, r, which == 1, err));
    }
    if (seen != 7)
        return malformed(&t, "has no digest, files or tensors", err);
    RETURN_IF(manifest_digest(m, &sum, err));
    if (sum == digest)
        return FSDPCK_OK;
    return FAIL_WITH(err, BADINPUT, MAN_HASH,
                     ("manifest was changed: its list has a different digest"),
                     (expected, "%016llx", (unsigned long long)digest),
                     (found, "%016llx", (unsigned long long)sum));
}

fsdpck_status manifest_read(manifest *m, const char *text, size_t nbytes, fsdpck_error *err)
{
    json_reader r;
    json_reader_init(&r, text, nbytes, JSON_FINDING);
    fsdpck_status st = read_header(&r, err);
    json_reader_release(&r);
    if (st != FSDPCK_OK)
        return st;
    json_reader_init(&r, text, nbytes, JSON_FINDING);
    st = read_body(m, &r, err);
    json_reader_release(&r);
    return st;
}

bool manifest_is_likely(const char *text, size_t nbytes)
{
    json_reader r;
    json_token t;
    bool found = false;
    json_reader_init(&r, text, nbytes, JSON_FINDING);
    if (json_expect(&r, JSON_OBJECT, &t, NULL) == FSDPCK_OK) {
        while (!found && json_next(&r, &t, NULL) == FSDPCK_OK && t.kind == JSON_KEY) {
            const bool schema = json_is(&t, "schema");
            if (json_next(&r, &t, NULL) != FSDPCK_OK)
                break;
            found = schema && t.kind == JSON_STRING && json_is(&t, MANIFEST_SCHEMA);
            if (json_skip(&r, &t, NULL) != FSDPCK_OK)
                break;
        }
    }
    json_reader_release(&r);
    return found;
}
