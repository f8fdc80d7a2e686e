#include "base/alloc.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"

void budget_init(budget *b, uint64_t limit_bytes, const char *what, const char *option)
{
    b->limit_bytes = limit_bytes;
    atomic_init(&b->used_bytes, 0);
    atomic_init(&b->peak_bytes, 0);
    b->what = what;
    b->option = option;
}

fsdpck_status budget_reserve(budget *b, uint64_t nbytes, fsdpck_error *err)
{
    if (b == NULL)
        return FSDPCK_OK;
    uint64_t used = atomic_load_explicit(&b->used_bytes, memory_order_relaxed);
    do {
        if (checked_range(used, nbytes, b->limit_bytes))
            continue;
        FAIL_WITH(err, LIMIT, LIMIT_MEMORY,
                  ("%s needs more than its %" PRIu64 " bytes of memory", b->what, b->limit_bytes),
                  (found, "%" PRIu64 " bytes in use, %" PRIu64 " more requested", used, nbytes));
        if (b->option != NULL)
            error_next(err, "raise the limit with %s", b->option);
        return FSDPCK_LIMIT;
    } while (!atomic_compare_exchange_weak_explicit(&b->used_bytes, &used, used + nbytes,
                                                    memory_order_relaxed, memory_order_relaxed));
    uint64_t peak = atomic_load_explicit(&b->peak_bytes, memory_order_relaxed);
    while (peak < used + nbytes &&
           !atomic_compare_exchange_weak_explicit(&b->peak_bytes, &peak, used + nbytes,
                                                  memory_order_relaxed, memory_order_relaxed))
        continue;
    return FSDPCK_OK;
}

void budget_release(budget *b, uint64_t nbytes)
{
    if (b != NULL)
        atomic_fetch_sub_explicit(&b->used_bytes, nbytes, memory_order_relaxed);
}

void *budget_alloc(budget *b, uint64_t nbytes, fsdpck_error *err)
{
    size_t size;
    if (!checked_size(nbytes, &size)) {
        (void)error_set_nomem(err, nbytes);
        return NULL;
    }
    if (budget_reserve(b, nbytes, err) != FSDPCK_OK)
        return NULL;
    void *p = calloc(1, size > 0 ? size : 1);
    if (p == NULL) {
        budget_release(b, nbytes);
        (void)error_set_nomem(err, nbytes);
    }
    return p;
}

void budget_free(budget *b, void *p, uint64_t nbytes)
{
    if (p == NULL)
        return;
    free(p);
    budget_release(b, nbytes);
}

/* Sets the capacity to exactly `capacity` items. */
static fsdpck_status vec_resize(vec *v, size_t capacity, fsdpck_error *err)
{
    uint64_t want;
    size_t size;
    if (!checked_mul(capacity, v->item_nbytes, &want) || !checked_size(want, &size))
        return error_set_nomem(err, UINT64_MAX);
    const uint64_t have = v->borrowed ? 0 : (uint64_t)v->capacity * v->item_nbytes;
    if (want > have)
        RETURN_IF(budget_reserve(v->owner, want - have, err));
    void *items = realloc(v->borrowed ? NULL : v->items, size);
    if (items == NULL) {
        if (want > have)
            budget_release(v->owner, want - have);
        return error_set_nomem(err, want);
    }
    if (want < have)
        budget_release(v->owner, have - want);
    if (v->borrowed && v->count > 0)
        memcpy(items, v->items, v->count * v->item_nbytes);
    v->items = items;
    v->capacity = capacity;
    v->borrowed = false;
    return FSDPCK_OK;
}

fsdpck_status vec_reserve(vec *v, size_t extra, fsdpck_error *err)
{
    if (extra <= v->capacity - v->count)
        return FSDPCK_OK;
    if (extra > SIZE_MAX - v->count)
        return error_set_nomem(err, UINT64_MAX);
    const size_t want = v->count + extra;
    size_t grown = v->capacity + v->capacity / 2 + 8;
    if (grown < want)
        grown = want;
    if (vec_resize(v, grown, NULL) == FSDPCK_OK)
        return FSDPCK_OK;
    /* Near the ceiling the required size may fit although growth by half does not. */
    return vec_resize(v, want, err);
}

void *vec_push(vec *v, fsdpck_error *err)
{
    return vec_push_n(v, 1, err);
}

void *vec_push_n(vec *v, size_t n, fsdpck_error *err)
{
    if (vec_reserve(v, n > 0 ? n : 1, err) != FSDPCK_OK)
        return NULL;
    char *first = (char *)v->items + v->count * v->item_nbytes;
    memset(first, 0, n * v->item_nbytes);
    v->count += n;
    return first;
}

fsdpck_status vec_add(vec *v, const void *item, fsdpck_error *err)
{
    RETURN_IF(vec_reserve(v, 1, err));
    memcpy((char *)v->items + v->count++ * v->item_nbytes, item, v->item_nbytes);
    return FSDPCK_OK;
}

fsdpck_status vec_add_n(vec *v, const void *items, size_t n, fsdpck_error *err)
{
    if (n == 0)
        return FSDPCK_OK;
    RETURN_IF(vec_reserve(v, n, err));
    memcpy((char *)v->items + v->count * v->item_nbytes, items, n * v->item_nbytes);
    v->count += n;
    return FSDPCK_OK;
}

void vec_trim(vec *v)
{
    if (v->count == 0) {
        vec_release(v);
        return;
    }
    if (!v->borrowed && v->count < v->capacity && vec_resize(v, v->count, NULL) != FSDPCK_OK)
        return; /* the larger block remains, and remains accounted for */
}

void vec_release(vec *v)
{
    if (v->items != NULL && !v->borrowed) {
        free(v->items);
        budget_release(v->owner, (uint64_t)v->capacity * v->item_nbytes);
    }
    v->items = NULL;
    v->count = 0;
    v->capacity = 0;
    v->borrowed = false;
}

void vec_release_all(vec *const *list)
{
    for (; *list != NULL; list++)
        vec_release(*list);
}
