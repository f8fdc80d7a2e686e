#include <inttypes.h>
#include <string.h>

#include "base/bytes.h"
#include "base/checked.h"
#include "base/json.h"
#include "base/utf8.h"
#include "formats/common/st_header_internal.h"

typedef struct parser {
    json_reader json;
    st_header *h;
    bool saw_metadata;
} parser;

/* The entry being read, so far. */
typedef struct fields {
    bool has_dtype, has_shape, has_offsets;
    unsigned ndim;
    unsigned offset_count;
    uint64_t offsets[2];
    uint64_t dims[NDIM_MAX];
    dtype d;
} fields;

static fsdpck_status fail(fsdpck_error *err, fsdpck_finding_id finding, size_t offset_bytes,
                          const char *what)
{
    return FAIL_AS(err, FSDPCK_BADINPUT, finding, ("%s", what), (offset, offset_bytes));
}

/* --- text --- */

/* Index of the first invalid byte, or nbytes. NUL is UTF-8, but ends names early in readers written
 * in C. */
static size_t bad_text_at(const uint8_t *s, size_t nbytes)
{
    const uint64_t ones = UINT64_C(0x0101010101010101);
    const uint64_t highs = ones << 7;
    size_t at = 0;
    while (at < nbytes) {
        if (nbytes - at >= 8) {
            const uint64_t x = load_le64(s + at);
            if (((x | (x - ones)) & highs) == 0) {
                at += 8;
                continue;
            }
        }
        uint32_t c;
        const unsigned n = utf8_decode(s + at, nbytes - at, &c);
        if (n == 0 || c == 0)
            return at;
        at += n;
    }
    return nbytes;
}

static fsdpck_status check_text(const char *text, size_t nbytes, fsdpck_error *err)
{
    const uint8_t *s = (const uint8_t *)text;
    if (nbytes >= 3 && s[0] == 0xEF && s[1] == 0xBB && s[2] == 0xBF)
        return fail(err, FSDPCK_FINDING_ST_UTF8, 0, "header begins with a byte order mark");
    const size_t bad = bad_text_at(s, nbytes);
    if (bad < nbytes)
        return fail(err, FSDPCK_FINDING_ST_UTF8, bad,
                    s[bad] == 0 ? "header holds a NUL byte" : "header is not UTF-8");
    if (nbytes < 2)
        return fail(err, FSDPCK_FINDING_ST_JSON, 0, "header is too short to be a JSON object");
    if (text[0] != '{')
        return fail(err, FSDPCK_FINDING_ST_JSON, 0, "header does not begin with '{'");
    return FSDPCK_OK;
}

/* --- __metadata__ --- */

static fsdpck_status read_metadata(parser *p, fsdpck_error *err)
{
    st_header *h = p->h;
    json_token t;
    if (p->saw_metadata)
        return fail(err, FSDPCK_FINDING_ST_META, p->json.at, "header has '__metadata__' twice");
    p->saw_metadata = true;
    RETURN_IF(json_next(&p->json, &t, err));
    if (t.kind != JSON_OBJECT)
        return fail(err, FSDPCK_FINDING_ST_META, t.offset_bytes, "'__metadata__' is not an object");
    for (;;) {
        RETURN_IF(json_next(&p->json, &t, err));
        if (t.kind == JSON_OBJECT_END)
            return FSDPCK_OK;
        const size_t known = strtab_count(&h->metadata_keys);
        const size_t key_at = t.offset_bytes;
        uint32_t key;
        uint32_t text;
        RETURN_IF(strtab_intern(&h->metadata_keys, t.text, t.nbytes, &key, err));
        if (key < known)
            return fail(err, FSDPCK_FINDING_ST_META, key_at, "'__metadata__' has a key twice");
        RETURN_IF(json_next(&p->json, &t, err));
        if (t.kind != JSON_STRING)
            return fail(err, FSDPCK_FINDING_ST_META, t.offset_bytes,
                        "'__metadata__' has a value that is not a string");
        RETURN_IF(strtab_intern(&h->metadata_texts, t.text, t.nbytes, &text, err));
        RETURN_IF(vec_add(&h->metadata, &(uint32_t){text}, err));
    }
}

/* --- one entry --- */

static bool is_between(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n' || c == ',';
}

static bool begins_number(char c)
{
    return (c >= '0' && c <= '9') || c == '+' || c == '-' || c == '.';
}

/* Next number of an array, or *end. A token that begins like a number but is invalid in JSON (01,
 * +1) counts as a bad number, not as bad JSON. */
static fsdpck_status next_number(parser *p, bool of_shape, uint64_t *number, bool *end,
                                 fsdpck_error *err)
{
    json_reader *r = &p->json;
    size_t at = r->at;
    while (at < r->nbytes && is_between(r->text[at]))
        at++;
    const bool numeric = at < r->nbytes && begins_number(r->text[at]);
    json_token t;
    r->finding = numeric ? FSDPCK_FINDING_ST_NUMBER : FSDPCK_FINDING_ST_JSON;
    const fsdpck_status st = json_next(r, &t, err);
    r->finding = FSDPCK_FINDING_ST_JSON;
    RETURN_IF(st);
    *end = t.kind == JSON_ARRAY_END;
    if (*end)
        return FSDPCK_OK;
    if (t.kind != JSON_NUMBER)
        return fail(err, FSDPCK_FINDING_ST_ENTRY, t.offset_bytes,
                    "array contains values other than numbers");
    *number = t.u64;
    if (t.is_u64)
        return FSDPCK_OK;
    const bool negative = t.text[0] == '-' && t.nbytes > 1 && t.text[1] != '0';
    FAIL_AS(err, FSDPCK_BADINPUT,
            of_shape && negative ? FSDPCK_FINDING_ST_SHAPE : FSDPCK_FINDING_ST_NUMBER,
            (of_shape ? "bad size in a shape" : "bad number in data_offsets"),
            (offset, t.offset_bytes), (expected, "an integer from 0 to 2^64-1"));
    char shown[64];
    error_found(err, "%s", escape_text(shown, sizeof shown, t.text, t.nbytes < 48 ? t.nbytes : 48));
    return FSDPCK_BADINPUT;
}

static fsdpck_status begin_array(parser *p, const char *what, fsdpck_error *err)
{
    json_token t;
    RETURN_IF(json_next(&p->json, &t, err));
    if (t.kind != JSON_ARRAY)
        return FAIL_WITH(err, BADINPUT, ST_ENTRY, ("field of an entry is not an array"),
                         (offset, t.offset_bytes), (expected, "'%s': an array", what));
    return FSDPCK_OK;
}

static fsdpck_status read_shape(parser *p, fields *f, fsdpck_error *err)
{
    RETURN_IF(begin_array(p, "shape", err));
    for (;;) {
        uint64_t size;
        bool end;
        RETURN_IF(next_number(p, true, &size, &end, err));
        if (end)
            return FSDPCK_OK;
        if (f->ndim == NDIM_MAX)
            return FAIL_WITH(err, LIMIT, ST_SHAPE, ("tensor has too many dims"),
                             (offset, p->json.at), (expected, "at most %u", NDIM_MAX));
        if (size > INT64_MAX)
            return fail(err, FSDPCK_FINDING_ST_SHAPE, p->json.at, "size in a shape is too large");
        f->dims[f->ndim++] = size;
    }
}

static fsdpck_status read_offsets(parser *p, fields *f, fsdpck_error *err)
{
    RETURN_IF(begin_array(p, "data_offsets", err));
    for (;;) {
        uint64_t offset;
        bool end;
        RETURN_IF(next_number(p, false, &offset, &end, err));
        if (end && f->offset_count == 2)
            return FSDPCK_OK;
        if (end || f->offset_count == 2)
            return fail(err, FSDPCK_FINDING_ST_ENTRY, p->json.at,
                        "data_offsets does not hold two numbers");
        f->offsets[f->offset_count++] = offset;
    }
}

static fsdpck_status error_dtype(const json_token *t, fsdpck_error *err)
{
    char shown[64];
    char upper[16] = {0};
    const size_t n = t->nbytes < sizeof upper ? t->nbytes : 0;
    for (size_t i = 0; i < n; i++)
        upper[i] = (char)(t->text[i] >= 'a' && t->text[i] <= 'z' ? t->text[i] - 32 : t->text[i]);
    const bool misspelt = dtype_from_safetensors(upper, n) != DTYPE_NONE;
    const fsdpck_status st =
        FAIL_AS(err, misspelt ? FSDPCK_BADINPUT : FSDPCK_UNSUPPORTED, FSDPCK_FINDING_ST_DTYPE,
                ("unknown dtype"), (offset, t->offset_bytes));
    if (misspelt)
        error_expected(err, "'%s'", upper);
    escape_text(shown, sizeof shown, t->text, t->nbytes < 40 ? t->nbytes : 40);
    error_found(err, "'%s'", shown);
    return st;
}

static fsdpck_status read_dtype(parser *p, fields *f, fsdpck_error *err)
{
    json_token t;
    RETURN_IF(json_next(&p->json, &t, err));
    if (t.kind != JSON_STRING)
        return fail(err, FSDPCK_FINDING_ST_ENTRY, t.offset_bytes,
                    "dtype of an entry is not a string");
    f->d = dtype_from_safetensors(t.text, t.nbytes);
    return f->d != DTYPE_NONE ? FSDPCK_OK : error_dtype(&t, err);
}

static fsdpck_status read_fields(parser *p, fields *f, fsdpck_error *err)
{
    json_token t;
    RETURN_IF(json_next(&p->json, &t, err));
    if (t.kind != JSON_OBJECT)
        return fail(err, FSDPCK_FINDING_ST_ENTRY, t.offset_bytes,
                    "entry of a tensor is not an object");
    for (;;) {
        RETURN_IF(json_next(&p->json, &t, err));
        if (t.kind == JSON_OBJECT_END)
            return FSDPCK_OK;
        bool *has = json_is(&t, "dtype")          ? &f->has_dtype
                    : json_is(&t, "shape")        ? &f->has_shape
                    : json_is(&t, "data_offsets") ? &f->has_offsets
                                                  : NULL;
        if (has != NULL && *has)
            return fail(err, FSDPCK_FINDING_ST_DUPKEY, t.offset_bytes, "entry has a field twice");
        if (has != NULL)
            *has = true;
        if (has == &f->has_dtype) {
            RETURN_IF(read_dtype(p, f, err));
        } else if (has == &f->has_shape) {
            RETURN_IF(read_shape(p, f, err));
        } else if (has == &f->has_offsets) {
            RETURN_IF(read_offsets(p, f, err));
        } else {
            p->h->extra_fields++;
            RETURN_IF(json_next(&p->json, &t, err));
            RETURN_IF(json_skip(&p->json, &t, err));
        }
    }
}

/* Bytes required by dtype and shape, counted in bits because F4 has half bytes. */
static fsdpck_status check_length(const fields *f, size_t at, fsdpck_error *err)
{
    const uint64_t bits_each = dtype_get(f->d)->itemsize_bytes * 8u / dtype_get(f->d)->packing;
    uint64_t nelems;
    uint64_t bits;
    if (!checked_product(f->dims, f->ndim, &nelems) || !checked_mul(nelems, bits_each, &bits))
        return fail(err, FSDPCK_FINDING_ST_SHAPE, at, "shape is too large");
    if (bits % 8 != 0)
        return fail(err, FSDPCK_FINDING_ST_DTYPE, at, "tensor does not fill whole bytes");
    if (f->offsets[0] > f->offsets[1])
        return FAIL_WITH(err, BADINPUT, ST_OFFSET, ("data_offsets: end is before begin"),
                         (offset, at),
                         (found, "[%" PRIu64 ", %" PRIu64 "]", f->offsets[0], f->offsets[1]));
    if (f->offsets[1] - f->offsets[0] != bits / 8)
        return FAIL_WITH(err, BADINPUT, ST_LENGTH, ("data_offsets do not fit dtype and shape"),
                         (offset, at), (expected, "%" PRIu64 " bytes", bits / 8),
                         (found, "%" PRIu64 " bytes", f->offsets[1] - f->offsets[0]));
    return FSDPCK_OK;
}

static fsdpck_status add_entry(parser *p, uint32_t name, fields *f, size_t at, fsdpck_error *err)
{
    st_header *h = p->h;
    if (!f->has_dtype || !f->has_shape || !f->has_offsets)
        return FAIL_WITH(err, BADINPUT, ST_ENTRY, ("entry of a tensor is incomplete"), (offset, at),
                         (expected, "dtype, shape and data_offsets"));
    RETURN_IF(check_length(f, at, err));
    const unsigned packing = dtype_get(f->d)->packing;
    if (packing > 1) {
        uint64_t *last = &f->dims[f->ndim - 1]; /* ndim 0 is not a whole byte */
        if (*last % packing != 0)
            return FAIL_WITH(err, UNSUPPORTED, ST_SHAPE,
                             ("F4 tensor with an odd last dim, which torch does not support"),
                             (offset, at));
        *last /= packing;
    }
    const st_entry e = {
        .name = name,
        .dtype = (uint8_t)f->d,
        .ndim = (uint8_t)f->ndim,
        .dims_at = h->dims.count,
        .begin_bytes = f->offsets[0],
        .end_bytes = f->offsets[1],
    };
    RETURN_IF(vec_add(&h->entries, &e, err));
    return vec_add_n(&h->dims, f->dims, f->ndim, err);
}

/* The error contains both definitions: readers differ in which of them they use. */
static fsdpck_status error_duplicate(const st_header *h, uint32_t name, size_t at,
                                     fsdpck_error *err)
{
    /* Not yet sorted: entry i defines name i. */
    const st_entry *e = VEC_AT(&h->entries, const st_entry, name);
    return FAIL_WITH(err, BADINPUT, ST_DUPKEY, ("header defines a tensor twice"), (offset, at),
                     (tensor, strtab_text(&h->names, name)), (expected, "one definition"),
                     (found,
                      "first %s with %u dim%s at bytes %" PRIu64 "..%" PRIu64
                      " of the data, then again here",
                      dtype_get((dtype)e->dtype)->name, e->ndim, text_plural(e->ndim),
                      e->begin_bytes, e->end_bytes));
}

static fsdpck_status read_entry(parser *p, const json_token *key, fsdpck_error *err)
{
    st_header *h = p->h;
    const size_t at = key->offset_bytes;
    const size_t known = strtab_count(&h->names);
    uint32_t name;
    RETURN_IF(strtab_intern(&h->names, key->text, key->nbytes, &name, err));
    if (name < known)
        return error_duplicate(h, name, at, err);
    fields f;
    memset(&f, 0, offsetof(fields, dims));
    fsdpck_status st = read_fields(p, &f, err);
    if (st == FSDPCK_OK)
        st = add_entry(p, name, &f, at, err);
    if (st != FSDPCK_OK)
        error_tensor(err, strtab_text(&h->names, name));
    return st;
}

static fsdpck_status read_root(parser *p, fsdpck_error *err)
{
    json_reader *r = &p->json;
    json_token t;
    RETURN_IF(json_next(r, &t, err)); /* '{', checked by check_text */
    for (;;) {
        RETURN_IF(json_next(r, &t, err));
        if (t.kind == JSON_OBJECT_END)
            break;
        if (json_is(&t, "__metadata__"))
            RETURN_IF(read_metadata(p, err));
        else
            RETURN_IF(read_entry(p, &t, err));
    }
    for (size_t at = r->at; at < r->nbytes; at++)
        if (r->text[at] != ' ')
            return fail(err, FSDPCK_FINDING_ST_JSON, at,
                        "header is followed by bytes other than spaces");
    return FSDPCK_OK;
}

fsdpck_status st_header_read_text(const char *text, size_t nbytes, st_header *h, fsdpck_error *err)
{
    RETURN_IF(check_text(text, nbytes, err));
    parser p = {.h = h};
    json_reader_init(&p.json, text, nbytes, FSDPCK_FINDING_ST_JSON);
    const fsdpck_status st = read_root(&p, err);
    json_reader_release(&p.json);
    return st;
}
