#include "io/journal.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/checked.h"
#include "base/crc.h"
#include "io/journal_internal.h"

/* More than the ranges of an output of 20 TB. */
#define JOURNAL_NBYTES_MAX ((uint64_t)1 << 30)

/* Of a file, read at a time. */
enum { PIECE_RECORDS = 4096 };

const uint8_t journal_magic[MAGIC_BYTES] = {'f', 's', 'd', 'p', 'c', 'k', 'J', '\n'};

void journal_header_init(journal_header *h, budget *owner)
{
    *h = (journal_header){
        .ranks = 1, .sources = VEC_OF(journal_source, owner), .outputs = VEC_OF(uint64_t, owner),
        .plan = VEC_OF(uint64_t, owner)};
}

void journal_header_release(journal_header *h)
{
    VEC_RELEASE_ALL(&h->sources, &h->outputs, &h->plan);
}

void journal_release(journal *j)
{
    journal_header_release(&j->header);
    vec_release(&j->ranges);
}

static fsdpck_status invalid(fsdpck_error *err, const char *what)
{
    return FAIL(err, BADINPUT, RESUME_FRESH, "%s", what);
}

typedef struct list_counts {
    uint64_t sources, outputs, hashes;
} list_counts;

/* The size of the header by its first FIXED_BYTES; 0: more than nbytes. */
static uint64_t header_nbytes_of(const uint8_t *p, uint64_t nbytes, list_counts *n)
{
    *n = (list_counts){load_le64(p + 56), load_le64(p + 64), load_le64(p + 24)};
    if (n->sources > nbytes / SOURCE_BYTES || n->outputs > nbytes / 8 || n->hashes > nbytes / 8)
        return 0;
    const uint64_t all =
        FIXED_BYTES + n->sources * SOURCE_BYTES + (n->outputs + n->hashes) * 8 + CRC_BYTES;
    return all <= nbytes ? all : 0;
}

static fsdpck_status parse_lists(journal_header *h, const uint8_t *p, const list_counts *n,
                                 fsdpck_error *err)
{
    for (uint64_t i = 0; i < n->sources; i++, p += SOURCE_BYTES) {
        const journal_source s = {.nbytes = load_le64(p), .identity = load_le64(p + 8)};
        RETURN_IF(vec_add(&h->sources, &s, err));
    }
    for (uint64_t i = 0; i < n->outputs; i++, p += 8)
        RETURN_IF(vec_add(&h->outputs, &(uint64_t){load_le64(p)}, err));
    for (uint64_t i = 0; i < n->hashes; i++, p += 8)
        RETURN_IF(vec_add(&h->plan, &(uint64_t){load_le64(p)}, err));
    return FSDPCK_OK;
}

static fsdpck_status parse_header(journal *j, const uint8_t *p, uint64_t nbytes, fsdpck_error *err)
{
    journal_header *h = &j->header;
    list_counts n;
    if (nbytes < MAGIC_BYTES + 4 || memcmp(p, journal_magic, MAGIC_BYTES) != 0)
        return invalid(err, "the journal is cut or is no journal");
    const uint32_t version = load_le32(p + 8);
    if (version != JOURNAL_VERSION && version > 0)
        return FAIL(err, UNSUPPORTED, RESUME_FRESH, "the journal has the %s version %" PRIu32,
                    version > JOURNAL_VERSION ? "newer" : "older", version);
    const uint64_t header_nbytes =
        version == 0 || nbytes < FIXED_BYTES ? 0 : header_nbytes_of(p, nbytes, &n);
    if (header_nbytes == 0 || load_le32(p + 12) != FIXED_BYTES)
        return invalid(err, "the journal is cut");
    j->seed = crc64_update(0, p, header_nbytes - CRC_BYTES);
    if (load_le64(p + header_nbytes - CRC_BYTES) != j->seed)
        return invalid(err, "the journal is damaged");
    h->program = load_le64(p + 16);
    h->partial_ino = load_le64(p + 32);
    h->rank = load_le32(p + 40);
    h->ranks = load_le32(p + 44);
    if (h->ranks == 0 || h->rank >= h->ranks || load_le64(p + 48) != 0)
        return invalid(err, "the journal is damaged");
    j->valid_nbytes = header_nbytes;
    return parse_lists(h, p + FIXED_BYTES, &n, err);
}

static bool parse_record(const journal *j, const uint8_t *p, journal_range *r)
{
    if (load_le64(p + 32) != crc64_update(j->seed, p, 32))
        return false;
    *r = (journal_range){.file = load_le32(p),
                         .count = load_le32(p + 4),
                         .offset_bytes = load_le64(p + 8),
                         .nbytes = load_le64(p + 16),
                         .crc64 = load_le64(p + 24)};
    return r->file < j->header.outputs.count && r->nbytes > 0 &&
           checked_range(r->offset_bytes, r->nbytes,
                         *VEC_AT(&j->header.outputs, const uint64_t, r->file));
}

static int compare_ranges(const void *a, const void *b)
{
    const journal_range *x = a, *y = b;
    ORDER_BY(x->file, y->file);
    ORDER_BY(x->offset_bytes, y->offset_bytes);
    ORDER_BY(y->nbytes, x->nbytes);
    ORDER_BY(y->record, x->record);
    return 0;
}

static bool is_same_range(const journal_range *a, const journal_range *b)
{
    return a->file == b->file && a->offset_bytes == b->offset_bytes && a->nbytes == b->nbytes;
}

/* Of records about one range the last is kept, as it was written again. */
static void order_ranges(journal *j)
{
    size_t kept = 0;
    if (j->ranges.count > 1)
        qsort(j->ranges.items, j->ranges.count, sizeof(journal_range), compare_ranges);
    for (size_t i = 0; i < j->ranges.count; i++) {
        const journal_range r = *VEC_AT(&j->ranges, journal_range, i);
        if (kept > 0 && is_same_range(VEC_AT(&j->ranges, journal_range, kept - 1), &r))
            continue;
        *VEC_AT(&j->ranges, journal_range, kept++) = r;
        if (!checked_add(j->nbytes, r.nbytes, &j->nbytes))
            j->nbytes = UINT64_MAX;
    }
    j->ranges.count = kept;
}

/* *valid: bytes of those that are accepted. */
static fsdpck_status parse_records(journal *j, const uint8_t *bytes, uint64_t nbytes,
                                   uint64_t *valid, fsdpck_error *err)
{
    journal_range r;
    *valid = 0;
    while (nbytes - *valid >= JOURNAL_RECORD_BYTES && parse_record(j, bytes + *valid, &r)) {
        r.record = (uint32_t)j->ranges.count;
        RETURN_IF(vec_add(&j->ranges, &r, err));
        *valid += JOURNAL_RECORD_BYTES;
    }
    return FSDPCK_OK;
}

static void begin_reading(journal *j, budget *owner)
{
    *j = (journal){.ranges = VEC_OF(journal_range, owner)};
    journal_header_init(&j->header, owner);
}

fsdpck_status journal_parse(journal *j, const uint8_t *bytes, size_t nbytes, budget *owner,
                            fsdpck_error *err)
{
    uint64_t valid;
    begin_reading(j, owner);
    RETURN_IF(parse_header(j, bytes, nbytes, err));
    RETURN_IF(parse_records(j, bytes + j->valid_nbytes, nbytes - j->valid_nbytes, &valid, err));
    j->valid_nbytes += valid;
    j->torn_nbytes = nbytes - j->valid_nbytes;
    order_ranges(j);
    return FSDPCK_OK;
}

static fsdpck_status read_header(journal *j, const file *f, budget *owner, fsdpck_error *err)
{
    uint8_t fixed[FIXED_BYTES];
    list_counts n;
    uint64_t nbytes = f->nbytes < FIXED_BYTES ? f->nbytes : FIXED_BYTES;
    RETURN_IF(file_read_at(f, 0, fixed, nbytes, err));
    const uint64_t all =
        nbytes == FIXED_BYTES && memcmp(fixed, journal_magic, MAGIC_BYTES) == 0 &&
                load_le32(fixed + 8) == JOURNAL_VERSION
            ? header_nbytes_of(fixed, f->nbytes, &n)
            : 0;
    if (all == 0)
        return parse_header(j, fixed, nbytes, err);
    uint8_t *bytes = budget_alloc(owner, all, err);
    if (bytes == NULL)
        return FSDPCK_LIMIT;
    fsdpck_status st = file_read_at(f, 0, bytes, all, err);
    if (st == FSDPCK_OK)
        st = parse_header(j, bytes, all, err);
    budget_free(owner, bytes, all);
    return st;
}

static fsdpck_status read_records(journal *j, const file *f, budget *owner, fsdpck_error *err)
{
    const uint64_t piece_nbytes = PIECE_RECORDS * JOURNAL_RECORD_BYTES;
    uint64_t nbytes = piece_nbytes, valid = piece_nbytes;
    uint8_t *piece = budget_alloc(owner, piece_nbytes, err);
    if (piece == NULL)
        return FSDPCK_LIMIT;
    fsdpck_status st = FSDPCK_OK;
    while (st == FSDPCK_OK && nbytes == piece_nbytes && valid == nbytes) {
        const uint64_t left = f->nbytes - j->valid_nbytes;
        nbytes = left < piece_nbytes ? left : piece_nbytes;
        st = file_read_at(f, j->valid_nbytes, piece, nbytes, err);
        if (st == FSDPCK_OK)
            st = parse_records(j, piece, nbytes, &valid, err);
        j->valid_nbytes += st == FSDPCK_OK ? valid : 0;
    }
    j->torn_nbytes = f->nbytes - j->valid_nbytes;
    budget_free(owner, piece, piece_nbytes);
    order_ranges(j);
    return st;
}

fsdpck_status journal_read(journal *j, const folder *parent, const char *name, budget *owner,
                           fsdpck_error *err)
{
    file f;
    begin_reading(j, owner);
    RETURN_IF(file_open_read(&f, parent, name, FILE_NO_FOLLOW, err));
    fsdpck_status st = FSDPCK_OK;
    if (f.nbytes > JOURNAL_NBYTES_MAX)
        st = FAIL_WITH(err, LIMIT, LIMIT_SIZE, ("the journal is larger than its limit"),
                       (path, f.path), (found, "%" PRIu64 " bytes", f.nbytes));
    if (st == FSDPCK_OK)
        st = read_header(j, &f, owner, err);
    if (st == FSDPCK_OK)
        st = read_records(j, &f, owner, err);
    file_abandon(&f);
    return st;
}

bool journal_is(const folder *parent, const char *name)
{
    file f;
    uint8_t bytes[MAGIC_BYTES];
    if (file_open_read(&f, parent, name, FILE_NO_FOLLOW, NULL) != FSDPCK_OK)
        return false;
    const uint64_t n = f.nbytes < MAGIC_BYTES ? f.nbytes : MAGIC_BYTES;
    const bool is = file_read_at(&f, 0, bytes, n, NULL) == FSDPCK_OK && memcmp(bytes, journal_magic, n) == 0;
    file_abandon(&f);
    return is;
}

/* Whether two lists of numbers are equal; *at: the index of the first difference. */
static bool is_same_list(const vec *a, const vec *b, size_t *at)
{
    for (*at = 0; *at < b->count && *at < a->count; (*at)++)
        if (*VEC_AT(a, const uint64_t, *at) != *VEC_AT(b, const uint64_t, *at))
            return false;
    *at = b->count;
    return a->count == b->count;
}

journal_difference journal_compare(const journal_header *before, const journal_header *now,
                                   size_t *at)
{
    *at = 0;
    if (before->partial_ino != now->partial_ino)
        return JOURNAL_PARTIAL;
    if (before->program != now->program)
        return JOURNAL_PROGRAM;
    if (before->rank != now->rank || before->ranks != now->ranks)
        return JOURNAL_RANKS;
    if (before->sources.count != now->sources.count)
        return JOURNAL_SOURCE_COUNT;
    for (; *at < now->sources.count; (*at)++) {
        const journal_source *a = VEC_AT(&before->sources, const journal_source, *at);
        const journal_source *b = VEC_AT(&now->sources, const journal_source, *at);
        if (a->nbytes != b->nbytes || a->identity != b->identity)
            return JOURNAL_SOURCE;
    }
    size_t ignored;
    if (!is_same_list(&before->plan, &now->plan, at))
        return JOURNAL_PLAN;
    return is_same_list(&before->outputs, &now->outputs, &ignored) ? JOURNAL_SAME : JOURNAL_PLAN;
}

/* The first range at or after a place. */
static size_t lower_bound(const journal *j, uint32_t index, uint64_t begin)
{
    size_t low = 0, high = j->ranges.count;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        const journal_range *r = VEC_AT(&j->ranges, const journal_range, middle);
        if (r->file < index || (r->file == index && r->offset_bytes < begin))
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

const journal_range *journal_find(const journal *j, uint32_t index, uint64_t begin, uint64_t end)
{
    for (size_t i = lower_bound(j, index, begin); i < j->ranges.count; i++) {
        const journal_range *r = VEC_AT(&j->ranges, const journal_range, i);
        if (r->file != index || r->offset_bytes != begin)
            return NULL;
        if (r->nbytes <= end - begin)
            return r;
    }
    return NULL;
}

bool journal_covers(const journal *j, uint32_t index, uint64_t begin, uint64_t end)
{
    while (begin < end) {
        const journal_range *r = journal_find(j, index, begin, end);
        if (r == NULL)
            return false;
        begin += r->nbytes;
    }
    return true;
}
