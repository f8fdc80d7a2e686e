/* open_cache.h: many files, a limited number open at once; for the files of this folder.
 *
 *     struct entry { open_slot slot; ... };           // the slot comes first, entries do not move
 *     open_cache_init(&c, max_open, open_entry, close_entry, ctx, &err);
 *     RETURN_IF(open_cache_get(&c, &e->slot, err));   // many threads; opens it if necessary
 *     ... use ...
 *     open_cache_put(&c, &e->slot);
 *     open_cache_release(&c);                         // closes all open files
 *
 * Opening and closing happen outside the lock, so that slow storage serves many files at once. One
 * entry is opened or closed by one thread at a time, and never while it is in use. The file that
 * was unused for the longest time is closed first.
 */
#ifndef FSDPCK_IO_OPEN_CACHE_H
#define FSDPCK_IO_OPEN_CACHE_H

#include <pthread.h>
#include <stdbool.h>

#include "base/status.h"

typedef struct open_slot {
    struct open_slot *before; /* of the unused entries, by last use */
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
    unsigned waiting_count; /* threads that found no descriptor and wait for one */
    open_slot *idle_first;  /* unused for the longest time */
    open_slot *idle_last;
    int ready;
} open_cache;

/* max_open 0: derived from RLIMIT_NOFILE. A quarter of it is used, with `descriptors` per file (a
 * run may hold two checkpoints and its output), 4 to 4,096 files. */
fsdpck_status open_cache_init(open_cache *c, unsigned max_open, unsigned descriptors,
                              fsdpck_status (*open)(void *, open_slot *, fsdpck_error *),
                              void (*close)(void *, open_slot *), void *ctx,
                              fsdpck_error *err) FSDPCK_MUST_CHECK;
/* A failed open (LIMIT with EMFILE) is repeated after another file was closed, as long as one can
 * be closed. */
fsdpck_status open_cache_get(open_cache *c, open_slot *slot, fsdpck_error *err) FSDPCK_MUST_CHECK;
void open_cache_put(open_cache *c, open_slot *slot);
/* Closes an unused entry now. */
void open_cache_drop(open_cache *c, open_slot *slot);
/* No entry may be in use. Accepts a zeroed cache. */
void open_cache_release(open_cache *c);

#endif
