#include "io/open_cache.h"

#include <errno.h>
#include <string.h>
#include <sys/resource.h>

enum { OPEN_LEAST = 4, OPEN_MOST = 4096 };

static unsigned default_max_open(unsigned descriptors)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY ||
        limit.rlim_cur / 4 / descriptors > OPEN_MOST)
        return OPEN_MOST;
    const unsigned most = (unsigned)(limit.rlim_cur / 4 / descriptors);
    return most < OPEN_LEAST ? OPEN_LEAST : most;
}

fsdpck_status open_cache_init(open_cache *c, unsigned max_open, unsigned descriptors,
                              fsdpck_status (*open)(void *, open_slot *, fsdpck_error *),
                              void (*close)(void *, open_slot *), void *ctx, fsdpck_error *err)
{
    memset(c, 0, sizeof *c);
    c->open = open;
    c->close = close;
    c->ctx = ctx;
    c->max_open = max_open > 0 ? max_open : default_max_open(descriptors);
    if (pthread_mutex_init(&c->lock, NULL) != 0)
        return error_set_nomem(err, sizeof c->lock);
    if (pthread_cond_init(&c->freed, NULL) != 0) {
        pthread_mutex_destroy(&c->lock);
        return error_set_nomem(err, sizeof c->freed);
    }
    c->ready = 1;
    return FSDPCK_OK;
}

static void idle_append(open_cache *c, open_slot *slot)
{
    slot->before = c->idle_last;
    slot->after = NULL;
    if (c->idle_last != NULL)
        c->idle_last->after = slot;
    else
        c->idle_first = slot;
    c->idle_last = slot;
}

static void idle_take(open_cache *c, open_slot *slot)
{
    if (slot->before != NULL)
        slot->before->after = slot->after;
    else
        c->idle_first = slot->after;
    if (slot->after != NULL)
        slot->after->before = slot->before;
    else
        c->idle_last = slot->before;
}

/* Called with the lock, which is released during the close. */
static void close_idle(open_cache *c, open_slot *slot)
{
    idle_take(c, slot);
    slot->busy = true;
    slot->open = false;
    pthread_mutex_unlock(&c->lock);
    c->close(c->ctx, slot);
    pthread_mutex_lock(&c->lock);
    slot->busy = false;
    c->open_count--;
    pthread_cond_broadcast(&c->freed);
}

/* False if all are in use. */
static bool close_oldest(open_cache *c)
{
    if (c->idle_first == NULL)
        return false;
    close_idle(c, c->idle_first);
    return true;
}

/* After EMFILE: other parts of the process hold the descriptors, so use fewer. Returns whether to
 * try again; waits if only a file of another thread can be closed. The last active thread never
 * waits, so that one always continues. */
static bool make_room(open_cache *c)
{
    if (c->open_count > 1 && c->open_count - 1 < c->max_open)
        c->max_open = c->open_count - 1;
    if (close_oldest(c))
        return true;
    if (c->open_count - c->waiting_count <= 1)
        return false;
    c->waiting_count++;
    pthread_cond_wait(&c->freed, &c->lock);
    c->waiting_count--;
    (void)close_oldest(c);
    return true;
}

/* Opens a slot that is marked as busy; called with the lock, which is released during the open. */
static fsdpck_status open_busy(open_cache *c, open_slot *slot, fsdpck_error *err)
{
    fsdpck_error local = FSDPCK_ERROR_INIT;
    fsdpck_status st;
    do {
        pthread_mutex_unlock(&c->lock);
        st = c->open(c->ctx, slot, &local);
        pthread_mutex_lock(&c->lock);
    } while (st == FSDPCK_LIMIT && local.sys_errno == EMFILE && make_room(c));
    if (st != FSDPCK_OK && err != NULL)
        *err = local;
    return st;
}

fsdpck_status open_cache_get(open_cache *c, open_slot *slot, fsdpck_error *err)
{
    fsdpck_status st = FSDPCK_OK;
    pthread_mutex_lock(&c->lock);
    while (!slot->open && st == FSDPCK_OK) {
        if (slot->busy) {
            pthread_cond_wait(&c->freed, &c->lock);
            continue;
        }
        if (c->open_count >= c->max_open) {
            if (!close_oldest(c))
                pthread_cond_wait(&c->freed, &c->lock);
            continue;
        }
        slot->busy = true;
        c->open_count++;
        st = open_busy(c, slot, err);
        slot->busy = false;
        slot->open = st == FSDPCK_OK;
        if (slot->open)
            idle_append(c, slot);
        else
            c->open_count--;
        pthread_cond_broadcast(&c->freed);
    }
    if (st == FSDPCK_OK && slot->users++ == 0)
        idle_take(c, slot);
    pthread_mutex_unlock(&c->lock);
    return st;
}

void open_cache_put(open_cache *c, open_slot *slot)
{
    pthread_mutex_lock(&c->lock);
    if (--slot->users == 0) {
        idle_append(c, slot);
        pthread_cond_broadcast(&c->freed);
    }
    pthread_mutex_unlock(&c->lock);
}

void open_cache_drop(open_cache *c, open_slot *slot)
{
    pthread_mutex_lock(&c->lock);
    if (slot->open && slot->users == 0)
        close_idle(c, slot);
    pthread_mutex_unlock(&c->lock);
}

void open_cache_release(open_cache *c)
{
    if (!c->ready)
        return;
    pthread_mutex_lock(&c->lock);
    while (close_oldest(c))
        continue;
    pthread_mutex_unlock(&c->lock);
    pthread_cond_destroy(&c->freed);
    pthread_mutex_destroy(&c->lock);
    c->ready = 0;
}
