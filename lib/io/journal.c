#include "io/journal.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/checked.h"
#include "base/crc.h"
#include "io/descriptor.h"

/* More than the ranges of an output of 20 TB. */
#define JOURNAL_NBYTES_MAX ((uint64_t)1 << 30)

/* magic, version, header size, program, plan, partial, rank, ranks, numbers of sources and outputs */
enum { MAGIC_BYTES = 8, FIXED_BYTES = 72, SOURCE_BYTES = 16, OUTPUT_BYTES = 8, CRC_BYTES = 8 };

/* Records are written once this many are in memory, or ranges of so many bytes. */
enum { BATCH_RECORDS = 64 };
#define BATCH_NBYTES ((uint64_t)1 << 20)

static const uint8_t magic[MAGIC_BYTES] = {'f', 's', 'd', 'p', 'c', 'k', 'J', '\n'};

void journal_header_init(journal_header *h, budget *owner)
{
    *h = (journal_header){
        .ranks = 1, .sources = VEC_OF(journal_source, owner), .outputs = VEC_OF(uint64_t, owner)};
}

void journal_header_release(journal_header *h)
{
    VEC_RELEASE_ALL(&h->sources, &h->outputs);
}

void journal_release(journal *j)
{
    journal_header_release(&j->header);
    vec_release(&j->ranges);
}

/* ---- reading ---- */

static fsdpck_status invalid(fsdpck_error *err, const char *what)
{
    return FAIL(err, BADINPUT, RESUME_FRESH, "%s", what);
}

static fsdpck_status parse_lists(journal_header *h, const uint8_t *p, uint64_t sources,
                                 uint64_t outputs, fsdpck_error *err)
{
    for (uint64_t i = 0; i < sources; i++, p += SOURCE_BYTES) {
        const journal_source s = {.nbytes = load_le64(p), .identity = load_le64(p + 8)};
        RETURN_IF(vec_add(&h->sources, &s, err));
    }
    for (uint64_t i = 0; i < outputs; i++, p += OUTPUT_BYTES)
        RETURN_IF(vec_add(&h->outputs, &(uint64_t){load_le64(p)}, err));
    return FSDPCK_OK;
}

static fsdpck_status parse_header(journal *j, const uint8_t *p, size_t nbytes, fsdpck_error *err)
{
    journal_header *h = &j->header;
    if (nbytes < MAGIC_BYTES + 4 || memcmp(p, magic, MAGIC_BYTES) != 0)
        return invalid(err, "the journal is cut or is no journal");
    if (load_le32(p + 8) > JOURNAL_VERSION)
        return FAIL(err, UNSUPPORTED, RESUME_FRESH, "the journal has the newer version %" PRIu32,
                    load_le32(p + 8));
    if (load_le32(p + 8) != JOURNAL_VERSION || nbytes < FIXED_BYTES + CRC_BYTES)
        return invalid(err, "the journal is cut");
    const uint64_t sources = load_le64(p + 56), outputs = load_le64(p + 64);
    if (sources > nbytes / SOURCE_BYTES || outputs > nbytes / OUTPUT_BYTES)
        return invalid(err, "the journal is cut");
    const uint64_t header_nbytes =
        FIXED_BYTES + sources * SOURCE_BYTES + outputs * OUTPUT_BYTES + CRC_BYTES;
    if (header_nbytes > nbytes || load_le32(p + 12) != FIXED_BYTES)
        return invalid(err, "the journal is cut");
    j->seed = crc64_update(0, p, header_nbytes - CRC_BYTES);
    if (load_le64(p + header_nbytes - CRC_BYTES) != j->seed)
        return invalid(err, "the journal is damaged");
    h->program = load_le64(p + 16);
    h->plan = load_le64(p + 24);
    h->partial_ino = load_le64(p + 32);
    h->rank = load_le32(p + 40);
    h->ranks = load_le32(p + 44);
    if (h->ranks == 0 || h->rank >= h->ranks || load_le64(p + 48) != 0)
        return invalid(err, "the journal is damaged");
    j->valid_nbytes = header_nbytes;
    return parse_lists(h, p + FIXED_BYTES, sources, outputs, err);
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

/* `count` of the record in the file breaks ties: the later one is first. */
typedef struct numbered_range {
    journal_range range;
    size_t index;
} numbered_range;

static int compare_ranges(const void *a, const void *b)
{
    const numbered_range *x = a, *y = b;
    ORDER_BY(x->range.file, y->range.file);
    ORDER_BY(x->range.offset_bytes, y->range.offset_bytes);
    ORDER_BY(y->range.nbytes, x->range.nbytes);
    ORDER_BY(y->index, x->index);
    return 0;
}

static bool is_same_range(const journal_range *a, const journal_range *b)
{
    return a->file == b->file && a->offset_bytes == b->offset_bytes && a->nbytes == b->nbytes;
}

/* Of records about one range the last is kept, as it was written again. */
static fsdpck_status keep_ranges(journal *j, const vec *all, fsdpck_error *err)
{
    const journal_range *last = NULL;
    for (size_t i = 0; i < all->count; i++) {
        const journal_range *r = &VEC_AT(all, const numbered_range, i)->range;
        if (last != NULL && is_same_range(last, r))
            continue;
        last = r;
        RETURN_IF(vec_add(&j->ranges, r, err));
        if (!checked_add(j->nbytes, r->nbytes, &j->nbytes))
            j->nbytes = UINT64_MAX;
    }
    return FSDPCK_OK;
}

static fsdpck_status parse_records(journal *j, const uint8_t *bytes, size_t nbytes,
                                   fsdpck_error *err)
{
    vec all = VEC_OF(numbered_range, j->ranges.owner);
    fsdpck_status st = FSDPCK_OK;
    numbered_range r;
    while (st == FSDPCK_OK && nbytes - j->valid_nbytes >= JOURNAL_RECORD_BYTES &&
           parse_record(j, bytes + j->valid_nbytes, &r.range)) {
        r.index = all.count;
        st = vec_add(&all, &r, err);
        j->valid_nbytes += JOURNAL_RECORD_BYTES;
    }
    j->torn_nbytes = nbytes - j->valid_nbytes;
    if (all.count > 1)
        qsort(all.items, all.count, sizeof(numbered_range), compare_ranges);
    if (st == FSDPCK_OK)
        st = keep_ranges(j, &all, err);
    vec_release(&all);
    return st;
}

fsdpck_status journal_parse(journal *j, const uint8_t *bytes, size_t nbytes, budget *owner,
                            fsdpck_error *err)
{
    *j = (journal){.ranges = VEC_OF(journal_range, owner)};
    journal_header_init(&j->header, owner);
    RETURN_IF(parse_header(j, bytes, nbytes, err));
    return parse_records(j, bytes, nbytes, err);
}

fsdpck_status journal_read(journal *j, const folder *parent, const char *name, budget *owner,
                           fsdpck_error *err)
{
    char *text = NULL;
    size_t nbytes = 0;
    *j = (journal){.ranges = VEC_OF(journal_range, owner)};
    journal_header_init(&j->header, owner);
    RETURN_IF(file_read_whole(parent, name, JOURNAL_NBYTES_MAX, &text, &nbytes, err));
    const fsdpck_status st = journal_parse(j, (const uint8_t *)text, nbytes, owner, err);
    free(text);
    return st;
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
    const size_t outputs = now->outputs.count;
    return before->plan != now->plan || before->outputs.count != outputs ||
                   (outputs > 0 && memcmp(before->outputs.items, now->outputs.items,
                                          outputs * sizeof(uint64_t)) != 0)
               ? JOURNAL_PLAN
               : JOURNAL_SAME;
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

/* ---- writing ---- */

struct journal_writer {
    int fd;
    pthread_mutex_t lock; /* guards the rest */
    uint64_t seed;
    uint64_t added;
    uint64_t pending_nbytes; /* of the ranges in `pending` */
    unsigned pending_count;
    int failed; /* errno */
    uint8_t pending[BATCH_RECORDS * JOURNAL_RECORD_BYTES];
};

/* Appends all bytes. Returns 0 or an errno value. */
static int append(int fd, const uint8_t *bytes, size_t nbytes)
{
    unsigned tries = 0;
    while (nbytes > 0) {
        const ssize_t n = write(fd, bytes, nbytes);
        if (n > 0) {
            bytes += n;
            nbytes -= (size_t)n;
        } else if (n == 0 || !descriptor_retry(errno, &tries)) {
            return n == 0 ? EIO : errno;
        }
    }
    return 0;
}

static uint8_t *header_bytes(const journal_header *h, size_t *nbytes)
{
    *nbytes =
        FIXED_BYTES + h->sources.count * SOURCE_BYTES + h->outputs.count * OUTPUT_BYTES + CRC_BYTES;
    uint8_t *bytes = calloc(1, *nbytes), *p = bytes;
    if (bytes == NULL)
        return NULL;
    memcpy(p, magic, MAGIC_BYTES);
    store_le32(p + 8, JOURNAL_VERSION);
    store_le32(p + 12, FIXED_BYTES);
    store_le64(p + 16, h->program);
    store_le64(p + 24, h->plan);
    store_le64(p + 32, h->partial_ino);
    store_le32(p + 40, h->rank);
    store_le32(p + 44, h->ranks);
    store_le64(p + 56, h->sources.count);
    store_le64(p + 64, h->outputs.count);
    p += FIXED_BYTES;
    for (size_t i = 0; i < h->sources.count; i++, p += SOURCE_BYTES) {
        const journal_source *s = VEC_AT(&h->sources, const journal_source, i);
        store_le64(p, s->nbytes);
        store_le64(p + 8, s->identity);
    }
    for (size_t i = 0; i < h->outputs.count; i++, p += OUTPUT_BYTES)
        store_le64(p, *VEC_AT(&h->outputs, const uint64_t, i));
    store_le64(p, crc64_update(0, bytes, *nbytes - CRC_BYTES));
    return bytes;
}

static journal_lock lock_file(int fd)
{
    if (flock(fd, LOCK_EX | LOCK_NB) == 0)
        return JOURNAL_LOCKED;
    return errno == EWOULDBLOCK ? JOURNAL_BUSY : JOURNAL_NO_LOCK;
}

static fsdpck_status open_writer(journal_writer **out, const folder *parent, const char *name,
                                 int flags, journal_lock *lock, fsdpck_error *err)
{
    journal_writer *w = calloc(1, sizeof *w);
    *out = NULL;
    if (w == NULL)
        return error_set_nomem(err, sizeof *w);
    const int rc =
        descriptor_open(parent->fd, name, O_RDWR | O_APPEND | O_NOFOLLOW | flags, 0600, &w->fd);
    if (rc != 0) {
        free(w);
        return error_set_errno(err, rc, "opening the journal", name);
    }
    struct stat st;
    /* Ranges that another user records would keep bytes that this one never wrote. */
    if (fstat(w->fd, &st) != 0 || st.st_uid != geteuid() || !S_ISREG(st.st_mode)) {
        close(w->fd);
        free(w);
        return error_set_errno(err, EPERM, "opening the journal", name);
    }
    pthread_mutex_init(&w->lock, NULL);
    *lock = lock_file(w->fd);
    *out = w;
    return FSDPCK_OK;
}

fsdpck_status journal_create(journal_writer **out, const folder *parent, const char *name,
                             const journal_header *h, journal_lock *lock, fsdpck_error *err)
{
    size_t nbytes;
    RETURN_IF(open_writer(out, parent, name, O_CREAT | O_EXCL, lock, err));
    uint8_t *bytes = header_bytes(h, &nbytes);
    fsdpck_status st = FSDPCK_OK;
    if (bytes == NULL) {
        st = error_set_nomem(err, nbytes);
    } else {
        (*out)->seed = load_le64(bytes + nbytes - CRC_BYTES);
        const int rc = append((*out)->fd, bytes, nbytes);
        if (rc != 0)
            st = error_set_errno(err, rc, "writing the journal", name);
    }
    free(bytes);
    if (st != FSDPCK_OK) {
        journal_close(*out);
        *out = NULL;
    }
    return st;
}

fsdpck_status journal_open(journal_writer **out, const folder *parent, const char *name,
                           journal_lock *lock, fsdpck_error *err)
{
    RETURN_IF(open_writer(out, parent, name, 0, lock, err));
    if (*lock == JOURNAL_BUSY) {
        journal_close(*out);
        *out = NULL;
    }
    return FSDPCK_OK;
}

fsdpck_status journal_continue(journal_writer *w, const journal *j, fsdpck_error *err)
{
    w->seed = j->seed;
    if (j->valid_nbytes <= INT64_MAX && ftruncate(w->fd, (off_t)j->valid_nbytes) == 0)
        return FSDPCK_OK;
    return error_set_errno(err, errno, "cutting the journal", NULL);
}

static void flush_locked(journal_writer *w)
{
    if (w->pending_count > 0 && w->failed == 0)
        w->failed = append(w->fd, w->pending, w->pending_count * JOURNAL_RECORD_BYTES);
    w->pending_count = 0;
    w->pending_nbytes = 0;
}

void journal_add(journal_writer *w, const journal_range *r)
{
    uint8_t record[JOURNAL_RECORD_BYTES];
    store_le32(record, r->file);
    store_le32(record + 4, r->count);
    store_le64(record + 8, r->offset_bytes);
    store_le64(record + 16, r->nbytes);
    store_le64(record + 24, r->crc64);
    store_le64(record + 32, crc64_update(w->seed, record, 32));
    pthread_mutex_lock(&w->lock);
    memcpy(w->pending + w->pending_count++ * JOURNAL_RECORD_BYTES, record, sizeof record);
    w->pending_nbytes += r->nbytes;
    w->added++;
    if (w->pending_count == BATCH_RECORDS || w->pending_nbytes >= BATCH_NBYTES)
        flush_locked(w);
    pthread_mutex_unlock(&w->lock);
}

void journal_flush(journal_writer *w)
{
    pthread_mutex_lock(&w->lock);
    flush_locked(w);
    pthread_mutex_unlock(&w->lock);
}

uint64_t journal_added(const journal_writer *w)
{
    return w->added;
}

int journal_errno(const journal_writer *w)
{
    return w->failed;
}

void journal_close(journal_writer *w)
{
    if (w == NULL)
        return;
    flush_locked(w);
    close(w->fd);
    pthread_mutex_destroy(&w->lock);
    free(w);
}
