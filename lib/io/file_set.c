#include "io/file_set.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/crc.h"
#include "io/file_identity.h"

#define SAMPLE_BLOCKS 8u
#define SAMPLE_NBYTES ((uint64_t)4096)

struct file_set_entry {
    open_slot slot;
    char *path; /* relative to the folder */
    file f;     /* owned by the thread that opens, uses or closes it; keeps the identity of the
                 * first opening */
    bool seen;  /* was open before: the identity in f is valid */
    uint64_t nbytes;
    uint64_t expected_nbytes, expected_identity; /* 0: unknown */
};

static struct file_set_entry *entry_at(file_set *s, uint32_t index)
{
    pthread_mutex_lock(&s->cache.lock);
    struct file_set_entry *e = *VEC_AT(&s->files, struct file_set_entry *, index);
    pthread_mutex_unlock(&s->cache.lock);
    return e;
}

/* Compares the first opening with file_set_expect. */
static fsdpck_status check_expected(const struct file_set_entry *e, const file *f,
                                    fsdpck_error *err)
{
    const uint64_t identity = file_identify(f);
    if (e->expected_identity == 0 || identity == 0)
        return FSDPCK_OK;
    if (f->nbytes != e->expected_nbytes)
        return FAIL_WITH(err, CHANGED, NONE, ("file changed while it was read"), (path, f->path),
                         (expected, "%" PRIu64 " bytes", e->expected_nbytes),
                         (found, "%" PRIu64 " bytes", f->nbytes),
                         (next, "run again when no program writes to the input"));
    if (identity != e->expected_identity)
        return FAIL_WITH(err, CHANGED, NONE,
                         ("file changed or was replaced while the checkpoint was read"),
                         (path, f->path), (next, "run again when no program writes to the input"));
    return FSDPCK_OK;
}

static fsdpck_status open_entry(void *ctx, open_slot *slot, fsdpck_error *err)
{
    file_set *s = ctx;
    struct file_set_entry *e = (struct file_set_entry *)slot;
    file f;
    RETURN_IF(file_open_read(&f, s->dir, e->path, s->flags, err));
    if (e->seen) {
        const fsdpck_status st = file_identity_check(&e->f, &f, err);
        if (st == FSDPCK_OK)
            e->f = f;
        else
            file_abandon(&f);
        return st;
    }
    const fsdpck_status st = check_expected(e, &f, err);
    if (st != FSDPCK_OK) {
        file_abandon(&f);
        return st;
    }
    e->f = f;
    pthread_mutex_lock(&s->cache.lock);
    e->seen = true;
    e->nbytes = f.nbytes;
    pthread_mutex_unlock(&s->cache.lock);
    return FSDPCK_OK;
}

static void close_entry(void *ctx, open_slot *slot)
{
    struct file_set_entry *e = (struct file_set_entry *)slot;
    file identity = e->f;
    (void)ctx;
    file_abandon(&e->f);
    identity.fd = -1;
    identity.direct_fd = -1;
    identity.path = NULL;
    e->f = identity;
}

fsdpck_status file_set_init(file_set *s, const folder *dir, unsigned max_open, unsigned flags,
                            fsdpck_error *err)
{
    memset(s, 0, sizeof(*s));
    s->dir = dir;
    s->flags = flags;
    s->files = VEC_OF(struct file_set_entry *, NULL);
    return open_cache_init(&s->cache, max_open, 1, open_entry, close_entry, s, err);
}

fsdpck_status file_set_add(file_set *s, const char *path, uint32_t *index, fsdpck_error *err)
{
    struct file_set_entry *entry = calloc(1, sizeof(*entry));
    if (entry == NULL)
        return error_set_nomem(err, sizeof(*entry));
    entry->path = strdup(path);
    entry->f = FILE_CLOSED;
    pthread_mutex_lock(&s->cache.lock);
    struct file_set_entry **slot = NULL;
    if (entry->path != NULL && s->files.count < UINT32_MAX)
        slot = vec_push(&s->files, NULL);
    if (slot != NULL) {
        *slot = entry;
        *index = (uint32_t)(s->files.count - 1);
    }
    pthread_mutex_unlock(&s->cache.lock);
    if (slot != NULL)
        return FSDPCK_OK;
    free(entry->path);
    free(entry);
    return error_set_nomem(err, strlen(path) + sizeof(*entry));
}

void file_set_expect(file_set *s, uint32_t index, uint64_t nbytes, uint64_t identity)
{
    struct file_set_entry *e = entry_at(s, index);
    e->expected_nbytes = nbytes;
    e->expected_identity = identity;
}

static bool entry_seen(file_set *s, struct file_set_entry *e, uint64_t *nbytes)
{
    pthread_mutex_lock(&s->cache.lock);
    const bool seen = e->seen;
    if (seen)
        *nbytes = e->nbytes;
    pthread_mutex_unlock(&s->cache.lock);
    return seen;
}

fsdpck_status file_set_nbytes(file_set *s, uint32_t index, uint64_t *nbytes, fsdpck_error *err)
{
    struct file_set_entry *e = entry_at(s, index);
    if (entry_seen(s, e, nbytes))
        return FSDPCK_OK;
    RETURN_IF(open_cache_get(&s->cache, &e->slot, err));
    *nbytes = e->f.nbytes;
    open_cache_put(&s->cache, &e->slot);
    return FSDPCK_OK;
}

uint64_t file_set_identity(file_set *s, uint32_t index)
{
    uint64_t nbytes;
    struct file_set_entry *e = entry_at(s, index);
    return entry_seen(s, e, &nbytes) ? file_identify(&e->f) : e->expected_identity;
}

fsdpck_status file_set_read_at(file_set *s, uint32_t index, uint64_t offset_bytes, void *dst,
                               uint64_t nbytes, fsdpck_error *err)
{
    struct file_set_entry *e = entry_at(s, index);
    RETURN_IF(open_cache_get(&s->cache, &e->slot, err));
    const fsdpck_status st = file_read_at(&e->f, offset_bytes, dst, nbytes, err);
    open_cache_put(&s->cache, &e->slot);
    return st;
}

fsdpck_status file_set_sample(file_set *s, uint32_t index, uint64_t nbytes, uint64_t *crc,
                              fsdpck_error *err)
{
    uint8_t block[SAMPLE_NBYTES];
    const uint64_t n = nbytes < SAMPLE_NBYTES ? nbytes : SAMPLE_NBYTES;
    const uint64_t step = (nbytes - n) / (SAMPLE_BLOCKS - 1);
    *crc = 0;
    for (unsigned i = 0; i < SAMPLE_BLOCKS && n > 0; i++) {
        const uint64_t at = i + 1 < SAMPLE_BLOCKS ? i * step : nbytes - n;
        RETURN_IF(file_set_read_at(s, index, at, block, n, err));
        *crc = crc64_update(*crc, block, n);
    }
    return FSDPCK_OK;
}

fsdpck_status file_set_check_unchanged(file_set *s, fsdpck_error *err)
{
    pthread_mutex_lock(&s->cache.lock);
    const size_t count = s->files.count;
    pthread_mutex_unlock(&s->cache.lock);
    for (uint32_t i = 0; i < count; i++) {
        uint64_t nbytes;
        struct file_set_entry *e = entry_at(s, i);
        if (!entry_seen(s, e, &nbytes))
            continue;
        RETURN_IF(open_cache_get(&s->cache, &e->slot, err));
        const fsdpck_status st = file_check_unchanged(&e->f, err);
        open_cache_put(&s->cache, &e->slot);
        RETURN_IF(st);
    }
    return FSDPCK_OK;
}

const char *file_set_path(file_set *s, uint32_t index)
{
    return entry_at(s, index)->path;
}

void file_set_release(file_set *s)
{
    open_cache_release(&s->cache);
    for (uint32_t i = 0; i < s->files.count; i++) {
        struct file_set_entry *e = *VEC_AT(&s->files, struct file_set_entry *, i);
        free(e->path);
        free(e);
    }
    vec_release(&s->files);
}
