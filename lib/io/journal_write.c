/* journal_write.c: the journal of a run that writes; journal.c reads that of an earlier run. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/crc.h"
#include "io/descriptor.h"
#include "io/journal_internal.h"

/* Records are written once this many are in memory, or ranges of so many bytes. A kill loses those in memory, and each
 * write costs a change of the file's metadata: 120 of them in 1 GB. */
enum { BATCH_RECORDS = 64 };
#define BATCH_NBYTES ((uint64_t)8 << 20)

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
        FIXED_BYTES + h->sources.count * SOURCE_BYTES + (h->outputs.count + h->plan.count) * 8 +
        CRC_BYTES;
    uint8_t *bytes = calloc(1, *nbytes), *p = bytes;
    if (bytes == NULL)
        return NULL;
    memcpy(p, journal_magic, MAGIC_BYTES);
    store_le32(p + 8, JOURNAL_VERSION);
    store_le32(p + 12, FIXED_BYTES);
    store_le64(p + 16, h->program);
    store_le64(p + 24, h->plan.count);
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
    for (size_t i = 0; i < h->outputs.count; i++, p += 8)
        store_le64(p, *VEC_AT(&h->outputs, const uint64_t, i));
    for (size_t i = 0; i < h->plan.count; i++, p += 8)
        store_le64(p, *VEC_AT(&h->plan, const uint64_t, i));
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
