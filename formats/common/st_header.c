#include "formats/common/st_header.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/text.h"
#include "formats/common/st_header_internal.h"

/* Most headers are smaller; on network storage one read of this size costs as much as one of 8
 * bytes. */
#define FIRST_READ_NBYTES ((uint64_t)64 << 10)

static void init(st_header *h, budget *owner)
{
    *h = (st_header){0};
    strtab_init(&h->names, owner);
    h->entries = VEC_OF(st_entry, owner);
    h->dims = VEC_OF(uint64_t, owner);
    strtab_init(&h->metadata_keys, owner);
    strtab_init(&h->metadata_texts, owner);
    h->metadata = VEC_OF(uint32_t, owner);
}

void st_header_release(st_header *h)
{
    strtab_release(&h->names);
    VEC_RELEASE_ALL(&h->entries, &h->dims);
    strtab_release(&h->metadata_keys);
    strtab_release(&h->metadata_texts);
    vec_release(&h->metadata);
}

const char *st_header_name(const st_header *h, const st_entry *e, size_t *nbytes)
{
    *nbytes = strtab_nbytes(&h->names, e->name);
    return strtab_text(&h->names, e->name);
}

const uint64_t *st_header_shape(const st_header *h, const st_entry *e)
{
    static const uint64_t none[1];
    return e->ndim > 0 ? VEC_AT(&h->dims, const uint64_t, e->dims_at) : none;
}

const char *st_header_metadata(const st_header *h, const char *key, size_t *nbytes)
{
    const uint32_t id = strtab_find(&h->metadata_keys, key, strlen(key));
    if (id == STRTAB_NONE)
        return NULL;
    const uint32_t text = *VEC_AT(&h->metadata, const uint32_t, id);
    *nbytes = strtab_nbytes(&h->metadata_texts, text);
    return strtab_text(&h->metadata_texts, text);
}

/* --- all entries --- */

static int by_offset(const void *a, const void *b)
{
    const st_entry *x = a;
    const st_entry *y = b;
    ORDER_BY(x->begin_bytes, y->begin_bytes);
    ORDER_BY(x->end_bytes, y->end_bytes);
    return x->name < y->name ? -1 : x->name > y->name;
}

static fsdpck_status check_tiling(st_header *h, bool may_end_early, fsdpck_error *err)
{
    st_entry *e = h->entries.items;
    const size_t count = h->entries.count;
    bool sorted = true;
    for (size_t i = 1; sorted && i < count; i++)
        sorted = by_offset(&e[i - 1], &e[i]) < 0;
    if (!sorted)
        qsort(e, count, sizeof *e, by_offset);
    uint64_t end = 0;
    for (size_t i = 0; i < count; i++) {
        if (e[i].begin_bytes != end) {
            const bool gap = e[i].begin_bytes > end;
            return FAIL_WITH(
                err, BADINPUT, ST_OFFSET,
                (gap ? "bytes between tensors belong to no tensor" : "tensors overlap"),
                (tensor, strtab_text(&h->names, e[i].name)),
                (offset, h->data_offset_bytes + (end < h->data_nbytes ? end : h->data_nbytes)),
                (expected, "data_offsets that begin at %" PRIu64, end),
                (found, "%" PRIu64, e[i].begin_bytes));
        }
        end = e[i].end_bytes;
    }
    if (end == h->data_nbytes || (may_end_early && end > h->data_nbytes))
        return FSDPCK_OK;
    const bool cut = end > h->data_nbytes;
    return FAIL_AS(err, FSDPCK_BADINPUT,
                   cut ? FSDPCK_FINDING_FILE_SHORT : FSDPCK_FINDING_ST_TRAILING,
                   (cut ? "file is truncated" : "bytes after the last tensor"),
                   (offset, h->data_offset_bytes + (cut ? h->data_nbytes : end)),
                   (expected, "%" PRIu64 " byte%s of data", end, text_plural(end)),
                   (found, "%" PRIu64 " byte%s", h->data_nbytes, text_plural(h->data_nbytes)));
}

static fsdpck_status parse(const char *text, size_t nbytes, uint64_t text_offset_bytes,
                           uint64_t data_nbytes, bool may_end_early, budget *owner, st_header *h,
                           fsdpck_error *err)
{
    init(h, owner);
    h->data_offset_bytes = text_offset_bytes + nbytes;
    h->data_nbytes = data_nbytes;
    fsdpck_status st = st_header_read_text(text, nbytes, h, err);
    if (st != FSDPCK_OK && err != NULL && err->has_offset)
        err->offset_bytes +=
            text_offset_bytes; /* until now it counted from the start of the text */
    if (st == FSDPCK_OK)
        st = check_tiling(h, may_end_early, err);
    if (st != FSDPCK_OK)
        st_header_release(h);
    return st;
}

fsdpck_status st_header_parse(const char *text, size_t nbytes, uint64_t text_offset_bytes,
                              uint64_t data_nbytes, budget *owner, st_header *h, fsdpck_error *err)
{
    return parse(text, nbytes, text_offset_bytes, data_nbytes, false, owner, h, err);
}

/* --- from a file --- */

/* In a text file the eight bytes of the length are letters: a git-lfs pointer ("version "), a web
 * page ("<!DOCTYP"). */
static bool is_text(uint64_t n)
{
    for (; n != 0; n >>= 8) {
        if ((n & 0xff) < ' ' || (n & 0xff) > '~')
            return false;
        if (n >> 8 == 0)
            return true;
    }
    return false;
}

static fsdpck_status check_header_nbytes(const st_input *in, uint64_t n, fsdpck_error *err)
{
    if (n >= 2 && n <= ST_HEADER_NBYTES_MAX && n <= in->nbytes - 8)
        return FSDPCK_OK;
    const fsdpck_status st = FAIL(err, BADINPUT, ST_HEADER_SIZE, "invalid header length");
    const uint64_t most =
        in->nbytes - 8 < ST_HEADER_NBYTES_MAX ? in->nbytes - 8 : ST_HEADER_NBYTES_MAX;
    error_offset(err, in->base_offset_bytes);
    error_expected(err, "2 to %" PRIu64 " bytes", most);
    error_found(err, "%" PRIu64 " bytes", n);
    if (n > UINT32_MAX && is_text(n))
        error_next(err, "this is a text file, perhaps a git-lfs pointer or a web page: fetch the "
                        "real file (git lfs pull)");
    else if (n > in->nbytes - 8 && n <= ST_HEADER_NBYTES_MAX)
        error_next(err, "copy the file again; its writer or a copy may have been interrupted");
    return st;
}

fsdpck_status st_header_read(const st_input *in, budget *owner, st_header *h, fsdpck_error *err)
{
    *h = (st_header){0};
    if (in->nbytes < 8)
        return FAIL_WITH(err, BADINPUT, FILE_SHORT, ("too short for a safetensors header"),
                         (found, "%" PRIu64 " bytes", in->nbytes));
    const uint64_t base = in->base_offset_bytes;
    uint64_t have = in->nbytes < FIRST_READ_NBYTES ? in->nbytes : FIRST_READ_NBYTES;
    char *first = budget_alloc(owner, have, err);
    if (first == NULL)
        return FSDPCK_LIMIT;
    char *whole = NULL;
    uint64_t n = 0;
    fsdpck_status st;
    GOTO_IF(in->read(in->ctx, base, first, have, err), out);
    n = load_le64((const uint8_t *)first);
    GOTO_IF(check_header_nbytes(in, n, err), out);
    if (n > have - 8) {
        whole = budget_alloc(owner, n, err);
        if (whole == NULL) {
            st = FSDPCK_LIMIT;
            goto out;
        }
        memcpy(whole, first + 8, (size_t)(have - 8));
        GOTO_IF(in->read(in->ctx, base + have, whole + (have - 8), n - (have - 8), err), out);
    }
    st = parse(whole != NULL ? whole : first + 8, (size_t)n, base + 8, in->nbytes - 8 - n,
               in->may_end_early, owner, h, err);
out:
    budget_free(owner, whole, n);
    budget_free(owner, first, have);
    return st;
}
