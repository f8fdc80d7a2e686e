#include "base/file_set.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#define NOBODY UINT32_MAX

struct file_set_entry {
    char *path; /* below the folder */
    file f;     /* fd -1 when closed; the identity of the first opening stays */
    uint32_t idle_before;
    uint32_t idle_after;
    unsigned users;
    bool opening; /* one thread is at it, outside the lock */
    bool seen;    /* was open before: the identity in f holds */
};

enum { OPEN_LEAST = 4, OPEN_MOST = 4096 };

static struct file_set_entry *entry_at(file_set *s, uint32_t index)
{
    return *VEC_AT(&s->files, struct file_set_entry *, index);
}

static unsigned default_max_open(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY ||
        limit.rlim_cur / 4 > OPEN_MOST)
        return OPEN_MOST;
    return limit.rlim_cur / 4 < OPEN_LEAST ? OPEN_LEAST : (unsigned)(limit.rlim_cur / 4);
}

fsdpck_status file_set_init(file_set *s, const folder *dir, unsigned max_open, unsigned flags,
                            fsdpck_error *err)
{
    memset(s, 0, sizeof(*s));
    s->dir = dir;
    s->flags = flags;
    s->max_open = max_open > 0 ? max_open : default_max_open();
    s->idle_first = NOBODY;
    s->idle_last = NOBODY;
    s->files = VEC_OF(struct file_set_entry *, NULL);
    if (pthread_mutex_init(&s->lock, NULL) != 0)
        return error_set_nomem(err, sizeof(s->lock));
    if (pthread_cond_init(&s->freed, NULL) != 0) {
        pthread_mutex_destroy(&s->lock);
        return error_set_nomem(err, sizeof(s->freed));
    }
    s->ready = 1;
    return FSDPCK_OK;
}

fsdpck_status file_set_add(file_set *s, const char *path, uint32_t *index, fsdpck_error *err)
{
    struct file_set_entry *entry = calloc(1, sizeof(*entry));
    if (entry == NULL)
        return error_set_nomem(err, sizeof(*entry));
    entry->path = strdup(path);
    entry->f = FILE_CLOSED;
    pthread_mutex_lock(&s->lock);
    struct file_set_entry **slot = NULL;
    if (entry->path != NULL && s->files.count < NOBODY - 1)
        slot = vec_push(&s->files, NULL);
    if (slot != NULL) {
        *slot = entry;
        *index = (uint32_t)(s->files.count - 1);
    }
    pthread_mutex_unlock(&s->lock);
    if (slot != NULL)
        return FSDPCK_OK;
    free(entry->path);
    free(entry);
    return error_set_nomem(err, strlen(path) + sizeof(*entry));
}

static void idle_append(file_set *s, uint32_t index)
{
    struct file_set_entry *e = entry_at(s, index);
    e->idle_before = s->idle_last;
    e->idle_after = NOBODY;
    if (s->idle_last != NOBODY)
        entry_at(s, s->idle_last)->idle_after = index;
    else
        s->idle_first = index;
    s->idle_last = index;
}

static void idle_take(file_set *s, uint32_t index)
{
    const struct file_set_entry *e = entry_at(s, index);
    if (e->idle_before != NOBODY)
        entry_at(s, e->idle_before)->idle_after = e->idle_after;
    else
        s->idle_first = e->idle_after;
    if (e->idle_after != NOBODY)
        entry_at(s, e->idle_after)->idle_before = e->idle_before;
    else
        s->idle_last = e->idle_before;
}

/* Closes the file that was not used for longest; false where all are in use. */
static bool close_oldest(file_set *s)
{
    const uint32_t index = s->idle_first;
    if (index == NOBODY)
        return false;
    idle_take(s, index);
    file *f = &entry_at(s, index)->f;
    file identity = *f;
    file_abandon(f);
    identity.fd = -1;
    identity.direct_fd = -1;
    identity.path = NULL;
    *f = identity;
    s->open_count--;
    return true;
}

static fsdpck_status check_identity(const file *before, const file *now, fsdpck_error *err)
{
    if (before->nbytes == now->nbytes && before->dev == now->dev && before->ino == now->ino &&
        before->mtime_ns == now->mtime_ns)
        return FSDPCK_OK;
    error_set(err, FSDPCK_CHANGED, "", "file was replaced or changed while it was read");
    error_path(err, now->path);
    error_expected(err, "%" PRIu64 " bytes, inode %" PRIu64, before->nbytes, before->ino);
    error_found(err, "%" PRIu64 " bytes, inode %" PRIu64, now->nbytes, now->ino);
    error_next(err, "run again when nothing writes to the input");
    return FSDPCK_CHANGED;
}

/* After EMFILE: others in this process have the descriptors, so make do with fewer. Whether it is
 * worth trying again; waits where only another thread's file can be closed. The last one that is
 * not waiting never waits, so that somebody always goes on. */
static bool make_room(file_set *s)
{
    if (s->open_count > 1 && s->open_count - 1 < s->max_open)
        s->max_open = s->open_count - 1;
    if (close_oldest(s))
        return true;
    if (s->open_count - s->waiting_count <= 1)
        return false;
    s->waiting_count++;
    pthread_cond_wait(&s->freed, &s->lock);
    s->waiting_count--;
    (void)close_oldest(s);
    return true;
}

/* Opens an entry that is marked as opening. Called with the lock held, which is given up for the
 * call that may be slow. */
static fsdpck_status open_entry(file_set *s, struct file_set_entry *e, fsdpck_error *err)
{
    fsdpck_error local;
    fsdpck_error_init(&local);
    file f = FILE_CLOSED;
    fsdpck_status st;
    do {
        pthread_mutex_unlock(&s->lock);
        st = file_open_read(&f, s->dir, e->path, s->flags, &local);
        pthread_mutex_lock(&s->lock);
    } while (st == FSDPCK_LIMIT && local.sys_errno == EMFILE && make_room(s));
    if (st == FSDPCK_OK && e->seen) {
        st = check_identity(&e->f, &f, &local);
        if (st != FSDPCK_OK)
            file_abandon(&f);
    }
    if (st == FSDPCK_OK) {
        e->f = f;
        e->seen = true;
    } else if (err != NULL) {
        *err = local;
    }
    return st;
}

/* On success the entry is open, has one user more, and *f is a copy that stays valid until
 * entry_put. */
static fsdpck_status entry_get(file_set *s, uint32_t index, file *f, fsdpck_error *err)
{
    fsdpck_status st = FSDPCK_OK;
    pthread_mutex_lock(&s->lock);
    struct file_set_entry *e = entry_at(s, index);
    while (e->f.fd < 0 && st == FSDPCK_OK) {
        if (e->opening || (s->open_count >= s->max_open && !close_oldest(s))) {
            pthread_cond_wait(&s->freed, &s->lock);
            continue;
        }
        e->opening = true;
        s->open_count++;
        st = open_entry(s, e, err);
        e->opening = false;
        if (st == FSDPCK_OK)
            idle_append(s, index);
        else
            s->open_count--;
        pthread_cond_broadcast(&s->freed);
    }
    if (st == FSDPCK_OK) {
        if (e->users++ == 0)
            idle_take(s, index);
        *f = e->f;
    }
    pthread_mutex_unlock(&s->lock);
    return st;
}

static void entry_put(file_set *s, uint32_t index)
{
    pthread_mutex_lock(&s->lock);
    if (--entry_at(s, index)->users == 0) {
        idle_append(s, index);
        pthread_cond_broadcast(&s->freed);
    }
    pthread_mutex_unlock(&s->lock);
}

fsdpck_status file_set_nbytes(file_set *s, uint32_t index, uint64_t *nbytes, fsdpck_error *err)
{
    pthread_mutex_lock(&s->lock);
    const bool seen = entry_at(s, index)->seen;
    if (seen)
        *nbytes = entry_at(s, index)->f.nbytes;
    pthread_mutex_unlock(&s->lock);
    if (seen)
        return FSDPCK_OK;
    file f;
    RETURN_IF(entry_get(s, index, &f, err));
    *nbytes = f.nbytes;
    entry_put(s, index);
    return FSDPCK_OK;
}

fsdpck_status file_set_read_at(file_set *s, uint32_t index, uint64_t offset_bytes, void *dst,
                               uint64_t nbytes, fsdpck_error *err)
{
    file f;
    RETURN_IF(entry_get(s, index, &f, err));
    const fsdpck_status st = file_read_at(&f, offset_bytes, dst, nbytes, err);
    entry_put(s, index);
    return st;
}

fsdpck_status file_set_check_unchanged(file_set *s, fsdpck_error *err)
{
    pthread_mutex_lock(&s->lock);
    const size_t count = s->files.count;
    pthread_mutex_unlock(&s->lock);
    for (uint32_t i = 0; i < count; i++) {
        pthread_mutex_lock(&s->lock);
        const bool seen = entry_at(s, i)->seen;
        pthread_mutex_unlock(&s->lock);
        if (!seen)
            continue;
        file f;
        RETURN_IF(entry_get(s, i, &f, err));
        const fsdpck_status st = file_check_unchanged(&f, err);
        entry_put(s, i);
        RETURN_IF(st);
    }
    return FSDPCK_OK;
}

const char *file_set_path(file_set *s, uint32_t index)
{
    pthread_mutex_lock(&s->lock);
    const char *path = entry_at(s, index)->path;
    pthread_mutex_unlock(&s->lock);
    return path;
}

void file_set_release(file_set *s)
{
    for (uint32_t i = 0; i < s->files.count; i++) {
        struct file_set_entry *e = entry_at(s, i);
        file_abandon(&e->f);
        free(e->path);
        free(e);
    }
    vec_release(&s->files);
    if (s->ready) {
        pthread_cond_destroy(&s->freed);
        pthread_mutex_destroy(&s->lock);
    }
    s->ready = 0;
    s->open_count = 0;
}
