/* open_cache.h: many files of which only so many are open at once; for the files of this folder.
 *
 *     struct entry { open_slot slot; ... };           // the slot comes first, entries do not move
 *     open_cache_init(&c, max_open, open_entry, close_entry, ctx, &err);
 *     RETURN_IF(open_cache_get(&c, &e->slot, err));   // many threads; opens it where it is not
 *     ... use ...
 *     open_cache_put(&c, &e->slot);
 *     open_cache_release(&c);                         // closes what is open
 *
 * Opening and closing happen outside of the lock, so that slow storage is asked for many files at
 * once; of one entry never two at a time, and never while it is in use. The longest unused goes
 * first.
 */
#ifndef FSDPCK_IO_OPEN_CACHE_H
#define FSDPCK_IO_OPEN_CACHE_H

#include <pthread.h>
#include <stdbool.h>

#include "base/status.h"

typedef struct open_slot {
    struct open_slot *before; /* of those that nobody uses, by last use */
    struct open_slot *after;
    unsigned users;
    bool open;
    bool busy; /* being opened or closed */
} open_slot;

typedef struct open_cache {
    pthread_mutex_t lock;
    pthread_cond_t freed;
    fsdpck_status (*open)(void *ctx, open_slot *slot, fsdpck_error *err);
    void (*close)(void *ctx, open_slot *slot);
    void *ctx;
    unsigned max_open;
    unsigned open_count;    /* open or being opened */
    unsigned waiting_count; /* of those being opened: found no descriptor, wait for one */
    open_slot *idle_first;  /* longest unused */
    open_slot *idle_last;
    int ready;
} open_cache;

/* max_open 0: as many files of `descriptors` each as a quarter of RLIMIT_NOFILE allows (a run may
 * hold two checkpoints and its output), 4 to 4,096. */
fsdpck_status open_cache_init(open_cache *c, unsigned max_open, unsigned descriptors,
                              fsdpck_status (*open)(void *, open_slot *, fsdpck_error *),
                              void (*close)(void *, open_slot *), void *ctx,
                              fsdpck_error *err) FSDPCK_MUST_CHECK;
/* A failed open (LIMIT with EMFILE) is tried again after another file was closed, as long as there
 * is one. */
fsdpck_status open_cache_get(open_cache *c, open_slot *slot, fsdpck_error *err) FSDPCK_MUST_CHECK;
void open_cache_put(open_cache *c, open_slot *slot);
/* Closes one that nobody uses, now. */
void open_cache_drop(open_cache *c, open_slot *slot);
/* Nobody may use any. A zeroed cache may be released. */
void open_cache_release(open_cache *c);

#endif
