/* alloc.h: bounded allocation.
 *
 * A `budget` is a ceiling in bytes shared by several owners, such as the metadata of one open
 * checkpoint. Every growing object names its budget. Hence no input can make the program use more
 * than the ceiling, and a malloc failure is an ordinary status (LIMIT).
 *
 *     budget b;
 *     budget_init(&b, (uint64_t)4 << 30, "metadata", NULL);
 *     vec items = VEC_OF(struct item, &b);
 *     struct item *it = vec_push(&items, err);       // NULL and *err on failure
 *     vec_release(&items);
 *
 * Thread safety: many threads may use one budget; one thread uses each other object.
 */
#ifndef FSDPCK_BASE_ALLOC_H
#define FSDPCK_BASE_ALLOC_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

typedef struct budget {
    uint64_t limit_bytes;
    _Atomic uint64_t used_bytes;
    _Atomic uint64_t peak_bytes; /* largest used_bytes so far */
    const char *what;            /* for messages: "metadata" */
    const char *option;          /* option that raises it, or NULL */
} budget;

void budget_init(budget *b, uint64_t limit_bytes, const char *what, const char *option);
fsdpck_status budget_reserve(budget *b, uint64_t nbytes, fsdpck_error *err) FSDPCK_MUST_CHECK;
void budget_release(budget *b, uint64_t nbytes);

/* Zeroed memory from a budget (NULL: limited only by malloc). Free it with the same size. Returns
 * NULL and fills *err on failure. nbytes 0 gives a pointer that may be freed. */
void *budget_alloc(budget *b, uint64_t nbytes, fsdpck_error *err) FSDPCK_MUST_CHECK;
void budget_free(budget *b, void *p, uint64_t nbytes);

/* Growing array of equal-sized items; grows by half; indices remain valid, pointers do not. */
typedef struct vec {
    void *items;
    size_t count;
    size_t capacity;
    size_t item_nbytes;
    budget *owner; /* may be NULL */
    bool borrowed; /* items are memory of another owner (table_file.h): never freed, and left when
                    * the array grows */
} vec;

#define VEC_OF(type, budget_ptr) ((vec){.item_nbytes = sizeof(type), .owner = (budget_ptr)})
#define VEC_AT(v, type, index)   (&((type *)(v)->items)[index])

/* Reserves space for `extra` more items, without adding them. */
fsdpck_status vec_reserve(vec *v, size_t extra, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Appends one zeroed item and returns it, or NULL. */
void *vec_push(vec *v, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Appends n zeroed items and returns the first, or NULL. */
void *vec_push_n(vec *v, size_t n, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Appends a copy of *item, which has the type of VEC_OF: `vec_add(&v, &(uint32_t){n}, err)`. */
fsdpck_status vec_add(vec *v, const void *item, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Appends copies of n of them, which may be NULL for 0. */
fsdpck_status vec_add_n(vec *v, const void *items, size_t n, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Frees unused capacity. */
void vec_trim(vec *v);
void vec_release(vec *v);
/* Releases several. */
#define VEC_RELEASE_ALL(...) vec_release_all((vec *const[]){__VA_ARGS__, NULL})
void vec_release_all(vec *const *list);

/* In a function for qsort: returns -1 or 1 unless the numbers are equal. */
#define ORDER_BY(a, b)                 \
    do {                               \
        if ((a) != (b))                \
            return (a) < (b) ? -1 : 1; \
    } while (0)

/* Interned byte strings: equal bytes get equal ids. Ids are dense from 0. Strings may contain any
 * byte, including NUL, and are also NUL-terminated. Hashing is seeded per table, so that inputs
 * cannot choose collisions. Limits: 2^32-2 strings, 4 GiB of text in total. */
typedef struct strtab {
    vec text;    /* char */
    vec entries; /* struct strtab_entry */
    vec buckets; /* uint32_t; their number is a power of two, or 0 */
    uint64_t seed;
    budget *owner;
} strtab;

#define STRTAB_NONE UINT32_MAX

void strtab_init(strtab *t, budget *owner);
/* Returns the id of the string; adds it if it is new. */
fsdpck_status strtab_intern(strtab *t, const char *text, size_t nbytes, uint32_t *id,
                            fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Returns STRTAB_NONE for an unknown string. */
uint32_t strtab_find(const strtab *t, const char *text, size_t nbytes);
/* Borrowed until the next intern or release. */
const char *strtab_text(const strtab *t, uint32_t id);
size_t strtab_nbytes(const strtab *t, uint32_t id);
bool strtab_is(const strtab *t, uint32_t id, const char *text, size_t nbytes);
size_t strtab_count(const strtab *t);
/* Removes the strings with ids of `count` and above. */
void strtab_truncate(strtab *t, size_t count);
void strtab_release(strtab *t);

/* Text under construction, with a limit. A zeroed `text_buf` with a limit is ready. After a failed
 * append (limit, malloc) `failed` remains set and further appends do nothing: check once at the
 * end. */
typedef struct text_buf {
    char *text; /* NUL-terminated after the first append */
    size_t nbytes;
    size_t capacity;
    size_t limit_bytes; /* 0: 1 GiB */
    int failed;
    size_t refused_nbytes; /* bytes of the failed allocation; 0: none failed */
} text_buf;

void text_append(text_buf *b, const void *bytes, size_t nbytes);
void text_puts(text_buf *b, const char *s);
void text_printf(text_buf *b, const char *fmt, ...) PRINTF_LIKE(2, 3);
fsdpck_status text_check(const text_buf *b, fsdpck_error *err) FSDPCK_MUST_CHECK;
void text_release(text_buf *b);

#endif
